"""Everything that keyed state can do, over files, into a table of Parquet files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf

sys.path.append(str(Path(__file__).parents[2] / "support"))

from keyed_programs import EVENTS, OUTPUT, Everything
from keyed_runs import read_stream, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ship()


@hf.job(
    name="keyed",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.every("50ms"),
    restart=hf.exponential(initial="50ms", max="200ms", same_failure=20),
)
def keyed(
    spark: SparkSession, into: str = "in", out: str = "out", redis: str = "", cassandra: str = ""
) -> hf.Sink:
    events = read_stream(spark, Path(into), EVENTS).withWatermark("ts", "5 seconds")
    blobs: hf.Redis | hf.Cassandra | None = hf.Redis(redis) if redis else None
    if cassandra:
        blobs = hf.Cassandra(cassandra, keyspace="kills", replication=1)
    answers = hf.keyed(events, by="who", key_groups=8).process(
        Everything(), output=OUTPUT, name="everything", blobs=blobs, blobs_from="1b"
    )
    return hf.sink(answers).parquet(f"{out}/answers")
