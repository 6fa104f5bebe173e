"""The windows again, partitioned, with a writer that knows nothing of Holdfast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import windows as other

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@hf.job(name="plain", checkpoint=hf.Checkpoint("checkpoint"), trigger=hf.available_now())
def plain(spark: SparkSession, day: str = "day", out: str = "out") -> DataStreamWriter:
    frame = other.windows(spark, day=day, out=out).frame
    assert frame is not None
    frame = frame.withColumn("part", frame["account"])
    writer: DataStreamWriter = frame.writeStream.format("parquet").partitionBy("part")
    return writer.option("path", f"{out}/windows")
