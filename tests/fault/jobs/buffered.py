"""Rows over files into a table, in steps; how many instances buffer them is in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf

sys.path.append(str(Path(__file__).parents[2] / "support"))

from keyed_runs import read_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@hf.job(
    name="buffered",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.every("50ms"),
    restart=hf.exponential(initial="50ms", max="200ms", same_failure=20),
)
def buffered(spark: SparkSession) -> hf.Sink:
    events = read_stream(spark, Path("in"), "n long, ts timestamp")
    instances = int(Path("instances").read_text(encoding="utf-8"))
    buffer = hf.BufferedSink(
        "events", "sqlite:///out/ledger.db", rows=20, age="2 seconds", instances=instances
    )
    return buffer.sink(events)
