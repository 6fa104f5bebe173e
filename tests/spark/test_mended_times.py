"""Times to live and timers, edited: what Spark keeps beside them stays in step, and the query goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mended import rows_of, view_of

import holdfast as hf
from holdfast import savepoints
from holdfast.config.spark_defaults import FORMAT_KEY, PROVIDER_KEY, ROCKSDB_PROVIDER
from holdfast.engine.session.workers import ship_by_value
from holdfast.savepoints.address import StateAddress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ship_by_value(sys.modules[__name__])

YEARS_MS = 40 * 365 * 86_400_000
FAR_MS = 4_102_444_800_000


def arrive(folder: Path, number: int, amounts: dict[str, list[int]]) -> None:
    folder.mkdir(exist_ok=True)
    lines = [{"customer": who, "amount": each} for who, found in amounts.items() for each in found]
    (folder / f"{number}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(spark: SparkSession, folder: Path, checkpoint: Path, last: int) -> dict[str, tuple[int, int, int]]:
    """Run until a batch was worked off; what each customer's values, list and map are said to hold."""
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Timed(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.latest = handle.getValueState("latest", "n long", YEARS_MS)
            self.short = handle.getListState("short", "a long", YEARS_MS)
            self.kept = handle.getMapState("kept", "k long", "x long", YEARS_MS)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            amounts = [int(each) for batch in rows for each in batch["amount"]]
            noted = self.latest.get()
            seen = (noted[0] if noted else 0) + len(amounts)
            self.latest.update((seen,))
            for each in amounts:
                self.short.appendValue((each,))
                self.kept.updateValue((each,), (each * 2,))
                self.handle.registerTimer(FAR_MS + each)
            told = (seen, sum(each[0] for each in self.short.get()))
            count = sum(1 for _ in self.kept.iterator())
            yield pd.DataFrame({"customer": [key[0]], "n": [told[0]], "a": [told[1]], "k": [count]})

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N802, N803
            yield pd.DataFrame({"customer": [key[0]], "n": [-1], "a": [-1], "k": [-1]})

        def close(self) -> None:
            pass

    told: dict[str, tuple[int, int, int]] = {}

    def take(batch: Any, _: int) -> None:
        told.update({row.customer: (row.n, row.a, row.k) for row in batch.collect()})

    stream = spark.readStream.schema("customer string, amount long").option("maxFilesPerTrigger", "1")
    frame = stream.json(str(folder)).groupBy("customer")
    made = frame.transformWithStateInPandas(
        Timed(), "customer string, n long, a long, k long", "update", "processingTime"
    )
    writer = made.writeStream.foreachBatch(take).outputMode("update")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    while (progress := query.lastProgress) is None or progress["batchId"] < last:
        query.awaitTermination(1)
    query.stop()
    return told


def in_step(view: Any) -> None:
    """Every index of times says what the values say, and nothing else."""
    values = {(value["ttlExpirationMs"], key["customer"]) for key, value in rows_of(view, "latest")}
    assert {
        (k["expirationMs"], k["elementKey"]["customer"]) for k, _ in rows_of(view, "$ttl_latest")
    } == values
    entries = {
        (value["ttlExpirationMs"], key["key"]["customer"], key["userKey"]["k"])
        for key, value in rows_of(view, "kept")
    }
    indexed = {
        (k["expirationMs"], k["elementKey"]["key"]["customer"], k["elementKey"]["userKey"]["k"])
        for k, _ in rows_of(view, "$ttl_kept")
    }
    assert indexed == entries
    lists = {key["customer"]: value for key, value in rows_of(view, "short")}
    least = {who: min(each["ttlExpirationMs"] for each in found) for who, found in lists.items()}
    assert {
        key["customer"]: next(iter(value.values())) for key, value in rows_of(view, "$min_short")
    } == least
    assert {key["customer"]: value["count"] for key, value in rows_of(view, "$count_short")} == {
        who: len(found) for who, found in lists.items()
    }
    assert {(k["elementKey"]["customer"], k["expirationMs"]) for k, _ in rows_of(view, "$ttl_short")} == set(
        least.items()
    )
    forward = {
        (k["key"]["customer"], k["expiryTimestampMs"]) for k, _ in rows_of(view, "$procTimers_keyToTimestamp")
    }
    back = {
        (k["key"]["customer"], k["expiryTimestampMs"]) for k, _ in rows_of(view, "$procTimers_timestampToKey")
    }
    assert forward == back


def test_times_stay_in_step(
    spark: SparkSession, settings: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    settings({PROVIDER_KEY: ROCKSDB_PROVIDER, FORMAT_KEY: "2", "spark.sql.shuffle.partitions": "2"})
    arrive(tmp_path / "in", 0, {"ann": [1, 2, 3], "bob": [10, 20], "cid": [7]})
    run(spark, tmp_path / "in", tmp_path / "first", 0)
    taken = savepoints.take(tmp_path / "first", tmp_path / "sp", deep=True).uri

    def view(uri: str) -> Any:
        return view_of(*StateAddress.resolve(uri).open_savepoint())

    in_step(view(taken))
    made = hf.edit(taken, "latest", key="bob", set={"n": 40, "expires_ms": "expires_ms + 1000"})
    in_step(view(made.uri))
    made = hf.edit(made.uri, "short", where="a in (1, 10, 20)", delete=True)
    made = hf.edit(made.uri, "short", where="a = 2", set={"expires_ms": "expires_ms - 1000"})
    in_step(view(made.uri))
    made = hf.edit(made.uri, "kept", where="k >= 3", delete=True)
    made = hf.edit(made.uri, "kept", insert=[{"customer": "bob", "k": 5, "x": 6, "expires_ms": FAR_MS}])
    in_step(view(made.uri))
    made = hf.edit(made.uri, "timers", key="ann", delete=True)
    made = hf.edit(made.uri, "timers", insert=[{"customer": "bob", "expiryTimestampMs": FAR_MS + 99}])
    in_step(view(made.uri))
    timers = {
        (k["key"]["customer"], k["expiryTimestampMs"] - FAR_MS)
        for k, _ in rows_of(view(made.uri), "$procTimers_keyToTimestamp")
    }
    assert timers == {("bob", 10), ("bob", 20), ("bob", 99), ("cid", 7)}
    # Spark removes what has expired by itself; where it has not, a savepoint without it is refused by name.
    clean = hf.drop_expired(made.uri, to=tmp_path / "clean").manifest.expired
    assert clean is not None
    assert {each["state"]: each["values"] for each in clean["states"]} == {"latest": 0, "short": 0, "kept": 0}
    stale = hf.edit(made.uri, "latest", key="bob", set={"expires_ms": 5}, to=tmp_path / "stale")
    with pytest.raises(hf.Unsupported, match="expired rows cannot be dropped") as refused:
        hf.drop_expired(stale.uri)
    assert "latest" in str(refused.value.where)
    assert len(savepoints.list(tmp_path / "stale")) == 1
    found = hf.erase("cid", everywhere=tmp_path / "sp")
    assert found.proved
    in_step(view(made.uri))
    savepoints.restore(made.uri, tmp_path / "second")
    arrive(tmp_path / "in", 1, {"ann": [100], "bob": [30], "cid": [8]})
    told = run(spark, tmp_path / "in", tmp_path / "second", 1)
    assert told == {"ann": (4, 2 + 3 + 100, 3), "bob": (41, 30, 2), "cid": (1, 8, 1)}
