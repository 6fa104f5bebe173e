"""Queries and settings of golden checkpoints that plain PySpark of any version can run.

The input is the same each time, one batch a file: customer `c0` to `c9`, a minute from file to file.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

FILES = 12
BEGIN = 1_767_225_600
SCHEMA = "customer string, amount long, ts timestamp"
STREAMING = "spark.sql.streaming"
MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

PROVIDERS = {
    "memory": {"providerClass": MEMORY, "checkpointFormatVersion": "1"},
    "rocksdb": {"providerClass": ROCKSDB, "checkpointFormatVersion": "1", "changelog": "false"},
    "changelog": {"providerClass": ROCKSDB, "checkpointFormatVersion": "1", "changelog": "true"},
    "format2": {"providerClass": ROCKSDB, "checkpointFormatVersion": "2", "changelog": "true"},
}


def write_input(folder: Path, side: str, files: int = FILES) -> Path:
    """Files of ten events each; the tenth of a file is as old as the first of the file before."""
    place = folder / side
    place.mkdir(parents=True)
    for number in range(files):
        events = [
            {"customer": f"c{(number + each) % 10}", "amount": number * 10 + each, "ts": stamp(number, each)}
            for each in range(10)
        ]
        text = "".join(json.dumps(event) + "\n" for event in events)
        file = place / f"{number:03}.json"
        file.write_text(text)
        os.utime(file, (BEGIN + number, BEGIN + number))  # the order in which Spark takes them
    return place


def stamp(number: int, each: int) -> str:
    minute = number - 1 if each == 9 and number else number
    return f"2026-03-05T08:{minute:02}:{each * 5:02}Z"


def events(spark: SparkSession, folder: Path, watermark: str | None = "1 minute") -> DataFrame:
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(folder))
    return stream.withWatermark("ts", watermark) if watermark else stream


def aggregate(spark: SparkSession, folder: Path) -> DataFrame:
    return (
        events(spark, write_input(folder, "in"), None)
        .groupBy("customer")
        .agg(F.count("*").alias("visits"), F.sum("amount").alias("spend"))
    )


def filtered(spark: SparkSession, folder: Path) -> DataFrame:
    """A query without state."""
    return events(spark, write_input(folder, "in"), None).where("amount % 2 = 0")


def joined(spark: SparkSession, folder: Path) -> DataFrame:
    left = events(spark, write_input(folder, "left"))
    right = events(spark, write_input(folder, "right")).select(
        F.col("customer").alias("who"), F.col("amount").alias("paid"), F.col("ts").alias("at")
    )
    near = F.expr("customer = who and at between ts - interval 1 minute and ts + interval 1 minute")
    return left.join(right, near, "left_outer")


def deduplicated(spark: SparkSession, folder: Path) -> DataFrame:
    return events(spark, write_input(folder, "in")).dropDuplicatesWithinWatermark(["customer"])


def settings(provider: str) -> dict[str, str]:
    """What a query runs with: Spark's own choices wherever Holdfast would make another."""
    given = PROVIDERS[provider]
    store = f"{STREAMING}.stateStore"
    return {
        f"{store}.providerClass": given["providerClass"],
        f"{store}.checkpointFormatVersion": given["checkpointFormatVersion"],
        f"{store}.rocksdb.changelogCheckpointing.enabled": given.get("changelog", "false"),
        f"{store}.minDeltasForSnapshot": "4",
        f"{STREAMING}.minBatchesToRetain": "6",
    }


def pack(folder: Path, target: Path) -> None:
    """Files of one kind side by side, since they are much alike; the same files give the same archive."""
    target.parent.mkdir(exist_ok=True)
    files = [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".tmp"]
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for file in sorted(files, key=lambda file: (file.suffix, str(file))):
            try:
                data = file.read_bytes()
            except FileNotFoundError:
                continue  # Spark's maintenance has deleted it: no kept batch needs it
            info = tarfile.TarInfo(str(file.relative_to(folder)))
            info.size, info.mtime = len(data), BEGIN
            archive.addfile(info, io.BytesIO(data))
