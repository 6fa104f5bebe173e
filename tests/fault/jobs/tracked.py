"""Sessions over files, into a table of Parquet files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf

sys.path.append(str(Path(__file__).parents[2] / "support"))

from timely_programs import sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@hf.job(
    name="tracked",
    checkpoint=hf.Checkpoint("checkpoint"),
    trigger=hf.every("50ms"),
    restart=hf.exponential(initial="50ms", max="200ms", same_failure=20),
)
def tracked(spark: SparkSession) -> hf.Sink:
    return hf.sink(sessions(spark, Path("in"))).parquet("out/tracked")
