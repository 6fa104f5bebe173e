"""Queries and settings of golden checkpoints that plain PySpark of any version can run.

The input is the same each time, one batch a file: customer `c0` to `c9`, a minute from file to file.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

FILES = 12
SIDES = ("in", "left", "right")
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
    # Sources by name in the offset log, version 2, and the sink's name in the commit log, version 3.
    "named": {"providerClass": ROCKSDB, "checkpointFormatVersion": "2", "changelog": "true", "named": "true"},
}
# The format of a join's state: 3 and 4 have one store a partition, and 4 keeps rows by their time.
JOIN_FORMATS = {"join": "2", "join3": "3", "join4": "4", "joinlists": "4"}
NAMED_SOURCES = f"{STREAMING}.queryEvolution.enableSourceEvolution"
NAMED_SINK = f"{STREAMING}.queryEvolution.enableSinkEvolution"
SINK = "results"


def write_input(folder: Path, files: Iterable[int] = range(FILES)) -> None:
    """Files of ten events each, for every side; the tenth of one is as old as the first of the one before."""
    for side in SIDES:
        place = folder / side
        place.mkdir(parents=True, exist_ok=True)
        for number in files:
            events = [
                {"customer": f"c{(number + at) % 10}", "amount": number * 10 + at, "ts": stamp(number, at)}
                for at in range(10)
            ]
            file = place / f"{number:03}.json"
            file.write_text("".join(json.dumps(event) + "\n" for event in events))
            os.utime(file, (BEGIN + number, BEGIN + number))  # the order in which Spark takes them


def stamp(number: int, at: int) -> str:
    minute = number - 1 if at == 9 and number else number
    return f"2026-03-05T08:{minute:02}:{at * 5:02}Z"


def events(spark: SparkSession, folder: Path, watermark: str | None = "1 minute") -> DataFrame:
    reader: Any = spark.readStream
    if spark.conf.get(NAMED_SOURCES, "false") == "true":
        reader = reader.name(f"{folder.name}_events")
    stream: DataFrame = reader.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(folder))
    return stream.withWatermark("ts", watermark) if watermark else stream


def aggregate(spark: SparkSession, folder: Path) -> DataFrame:
    return (
        events(spark, folder / "in", None)
        .groupBy("customer")
        .agg(F.count("*").alias("visits"), F.sum("amount").alias("spend"))
    )


def filtered(spark: SparkSession, folder: Path) -> DataFrame:
    """A query without state."""
    return events(spark, folder / "in", None).where("amount % 2 = 0")


def joined(spark: SparkSession, folder: Path) -> DataFrame:
    return _joined(events(spark, folder / "left"), events(spark, folder / "right"))


def joined_by_minute(spark: SparkSession, folder: Path) -> DataFrame:
    """Several rows of a customer have one time, which are a list in format 4."""
    sides = (events(spark, folder / side, None) for side in ("left", "right"))
    minutes = (side.withColumn("ts", F.date_trunc("minute", "ts")) for side in sides)
    return _joined(*(side.withWatermark("ts", "1 minute") for side in minutes))


def _joined(left: DataFrame, right: DataFrame) -> DataFrame:
    right = right.select(
        F.col("customer").alias("who"), F.col("amount").alias("paid"), F.col("ts").alias("at")
    )
    near = F.expr("customer = who and at between ts - interval 1 minute and ts + interval 1 minute")
    return left.join(right, near, "left_outer")


def deduplicated(spark: SparkSession, folder: Path) -> DataFrame:
    return events(spark, folder / "in").dropDuplicatesWithinWatermark(["customer"])


def distinct(spark: SparkSession, folder: Path) -> DataFrame:
    return events(spark, folder / "in").dropDuplicates(["customer", "ts"])


def everything(spark: SparkSession, folder: Path) -> DataFrame:
    """An aggregate that goes by no key: one task has all its state, whatever Spark notes."""
    return events(spark, folder / "in", None).agg(F.count("*").alias("visits"))


def limited(spark: SparkSession, folder: Path) -> DataFrame:
    return events(spark, folder / "in", None).limit(45)


def windowed(spark: SparkSession, folder: Path) -> DataFrame:
    seen = events(spark, folder / "in")
    return seen.groupBy(F.window("ts", "2 minutes"), "customer").count()


def sessions(spark: SparkSession, folder: Path) -> DataFrame:
    seen = events(spark, folder / "in")
    return seen.groupBy(F.session_window("ts", "30 seconds"), "customer").count()


def grouped(spark: SparkSession, folder: Path) -> DataFrame:
    """Visits and spend again, by a function of one's own."""
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

    def count(key: Any, batches: Any, state: GroupState) -> Any:
        visits, spend = state.get if state.exists else (0, 0)
        for batch in batches:
            visits, spend = visits + len(batch), spend + int(batch["amount"].sum())
        state.update((visits, spend))
        yield pd.DataFrame({"customer": [key[0]], "visits": [visits]})

    seen = events(spark, folder / "in", None)
    return seen.groupBy("customer").applyInPandasWithState(
        count,
        "customer string, visits long",
        "visits long, spend long",
        "update",
        GroupStateTimeout.NoTimeout,
    )


def with_state(spark: SparkSession, folder: Path) -> DataFrame:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Count(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.count = handle.getValueState("count", "n long")
            self.amounts = handle.getListState("amounts", "amount long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            amounts = [int(each) for batch in rows for each in batch["amount"]]
            noted = self.count.get()
            before = noted[0] if noted else 0
            self.count.update((before + len(amounts),))
            for each in amounts:
                self.amounts.appendValue((each,))
            yield pd.DataFrame({"customer": [key[0]], "n": [before + len(amounts)]})

        def close(self) -> None:
            pass

    seen = events(spark, folder / "in", None)
    return seen.groupBy("customer").transformWithStateInPandas(
        Count(), "customer string, n long", "Update", "None"
    )


def with_sink_name(spark: SparkSession, writer: Any) -> Any:
    """Give the sink its name where Spark asks for one; Python has no method for it yet."""
    if spark.conf.get(NAMED_SINK, "false") == "true":
        writer._jwrite = writer._jwrite.name(SINK)
    return writer


def settings(provider: str, query: str = "") -> dict[str, str]:
    """What a query runs with: Spark's own choices wherever Holdfast would make another."""
    given = PROVIDERS[provider]
    store = f"{STREAMING}.stateStore"
    named = given.get("named", "false")
    return {
        f"{store}.providerClass": given["providerClass"],
        f"{store}.checkpointFormatVersion": given["checkpointFormatVersion"],
        f"{store}.rocksdb.changelogCheckpointing.enabled": given.get("changelog", "false"),
        f"{store}.minDeltasForSnapshot": "4",
        f"{STREAMING}.minBatchesToRetain": "6",
        f"{STREAMING}.join.stateFormatVersion": JOIN_FORMATS.get(query, "2"),
        NAMED_SOURCES: named,
        # Spark 4.2 lists the names in the log only if it is asked to.
        f"{STREAMING}.offsetLog.formatVersion": "2" if named == "true" else "1",
        NAMED_SINK: named,
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
