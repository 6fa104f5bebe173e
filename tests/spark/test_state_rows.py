"""Rows read from files beside the same rows read by Spark, byte by byte."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from state_rows import state_rows

from holdfast.checkpoints.state.states import StateCodec
from holdfast.engine.session.workers import ship_by_value
from holdfast.formats.rows.spark_types import parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship_by_value(sys.modules[__name__])

FILES = 3
STORE = "spark.sql.streaming.stateStore"
# A snapshot every second version, so that rows are in snapshots and in changelogs.
SUMS = {f"{STORE}.minDeltasForSnapshot": "2"}
COMMAS = {**SUMS, f"{STORE}.rowChecksum.enabled": "false", f"{STORE}.rocksdb.mergeOperatorVersion": "1"}
Settings = Callable[[dict[str, str]], None]
YEARS_MS = 40 * 365 * 86_400_000
FAR_MS = 4_102_444_800_000


@pytest.fixture
def events(tmp_path: Path) -> Callable[[SparkSession], DataFrame]:
    """Three files of ten events each, one a batch."""
    folder = tmp_path / "events"
    folder.mkdir()
    for number in range(FILES):
        lines = [
            {
                "customer": f"c{(number * 3 + each) % 7}",
                "amount": number * 10 + each,
                "ts": f"2026-03-05T08:0{number}:{each * 5:02}Z",
            }
            for each in range(10)
        ]
        (folder / f"{number}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def stream(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema("customer string, amount long, ts timestamp")
        return reader.option("maxFilesPerTrigger", "1").json(str(folder))

    return stream


def run(frame: DataFrame, checkpoint: Path, mode: str) -> None:
    """Run until all files have been taken; a query in processing time would go on for ever."""
    writer = frame.writeStream.format("noop").outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    while (progress := query.lastProgress) is None or progress["batchId"] < FILES - 1:
        query.awaitTermination(1)
    query.stop()


def by_spark(spark: SparkSession, checkpoint: Path, batch: int, store: str | None) -> Counter[Any]:
    """Every row with its family, as Spark's own reader gives it."""
    reader = spark.read.format("statestore").option("_readAllColumnFamilies", "true")
    reader = reader.option("batchId", batch)
    if store is not None:
        reader = reader.option("storeName", store)
    rows = reader.load(str(checkpoint)).select("column_family_name", "key_bytes", "value_bytes").collect()
    return Counter((row[0], bytes(row[1]), bytes(row[2])) for row in rows)


def by_us(checkpoint: Path, batch: int, store: str | None) -> Counter[Any]:
    return Counter(
        (row.state.family, row.key_row, value)
        for row in state_rows(open_storage(checkpoint), batch)
        if store is None or row.state.store == store
        for value in row.value_rows
    )


def written_back(checkpoint: Path) -> None:
    """What is read as values becomes the bytes that Spark wrote."""
    for row in state_rows(open_storage(checkpoint)):
        codec: StateCodec = row.codec
        assert codec.schema is not None
        key = RowCodec(parse_struct(codec.schema.key_schema, ""))
        value = RowCodec(parse_struct(codec.schema.value_schema, ""))
        assert key.encode(row.key) == row.key_row
        values = row.value if row.is_list else [row.value]
        assert tuple(value.encode(each) for each in values) == row.value_rows


@pytest.mark.parametrize("chosen", [SUMS, COMMAS], ids=["sums", "commas"])
def test_transform_with_state(
    chosen: dict[str, str],
    spark: SparkSession,
    settings: Settings,
    events: Callable[[SparkSession], DataFrame],
    tmp_path: Path,
) -> None:
    """Values, lists, maps, with and without a time to live, and timers."""
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Everything(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.count = handle.getValueState("count", "n long")
            self.amounts = handle.getListState("amounts", "a long, t string")
            self.latest = handle.getMapState("latest", "k string", "x double, y decimal(30,2)")
            self.short = handle.getListState("short", "a long", YEARS_MS)
            self.kept = handle.getMapState("kept", "k string", "x long", YEARS_MS)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            from decimal import Decimal

            amounts = [int(each) for batch in rows for each in batch["amount"]]
            self.count.update((amounts[-1],))
            for each in amounts:
                if each % 3:
                    self.amounts.appendValue((each, "é" * (each % 12)))
                else:
                    self.amounts.appendList([(each, None), (-each, "")])
                self.short.appendValue((each,))
                self.latest.updateValue((f"k{each % 4}",), (each / 2, Decimal(each)))
                self.kept.updateValue((f"k{each % 3}",), (each,))
            if amounts[0] % 5 == 0:
                self.amounts.put([(1, "anew")])
            if amounts[0] % 7 == 0:
                self.amounts.clear()
                self.latest.removeKey((f"k{amounts[0] % 4}",))
            self.handle.registerTimer(FAR_MS + amounts[0])
            yield pd.DataFrame({"customer": [key[0]]})

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N802, N803
            yield pd.DataFrame({"customer": [key[0]]})

        def close(self) -> None:
            pass

    settings(chosen)
    checkpoint = tmp_path / "state"
    frame = events(spark).groupBy("customer")
    run(
        frame.transformWithStateInPandas(Everything(), "customer string", "update", "processingTime"),
        checkpoint,
        "update",
    )
    for batch in (FILES - 2, FILES - 1):
        found = by_us(checkpoint, batch, None)
        assert found == by_spark(spark, checkpoint, batch, None)
        assert {"count", "amounts", "latest", "short", "kept", "$procTimers_timestampToKey"} <= {
            family for family, _, _ in found
        }
    written_back(checkpoint)


@pytest.mark.parametrize(("version", "chosen"), [("2", SUMS), ("3", COMMAS)], ids=["sums", "commas"])
def test_joins(
    version: str,
    chosen: dict[str, str],
    spark: SparkSession,
    settings: Settings,
    events: Callable[[SparkSession], DataFrame],
    tmp_path: Path,
) -> None:
    """Four stores, or one with four column families."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    settings({"spark.sql.streaming.join.stateFormatVersion": version, **chosen})
    left = events(spark).withWatermark("ts", "1 minute")
    right = left.select(F.col("customer").alias("who"), F.col("ts").alias("at"))
    near = F.expr("customer = who and at between ts - interval 1 minute and ts")
    run(left.join(right, near, "left_outer"), tmp_path / "join", "append")
    stores = [None] if version == "3" else ["left-keyToNumValues", "right-keyWithIndexToValue"]
    for store in stores:
        found = by_us(tmp_path / "join", FILES - 1, store)
        expected = by_spark(spark, tmp_path / "join", FILES - 1, store)
        assert found == expected
        assert sum(found.values()) > 0
    written_back(tmp_path / "join")
