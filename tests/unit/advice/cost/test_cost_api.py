"""What real checkpoints and savepoints cost: bytes against the files themselves."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import holdfast as hf
from golden import STATELESS, golden_files, golden_on_disk
from holdfast import savepoints
from holdfast.advice.cost_report import Origin, Situation, changes
from holdfast.advice.prices import Prices
from holdfast.advice.usage import measure
from holdfast.errors import Invalid, NotFound, Unsupported
from holdfast.storage.memory import MemoryStorage

GB = 10**9


def bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    "name", ["4.2/aggregate-format2", "4.2/aggregate-memory", "4.2/join-format2", "4.2/aggregate-rocksdb"]
)
def test_every_byte_of_a_checkpoint_is_counted_once(name: str, tmp_path: Path) -> None:
    folder = golden_on_disk(name, tmp_path / "checkpoint")
    report = hf.cost(folder)
    assert report.checkpoint_bytes == bytes_below(folder)
    of_state = sum(state.checkpoint_bytes + state.retained_bytes for state in report.states)
    assert of_state == sum(
        file.stat().st_size
        for file in (folder / "state").rglob("*")
        if file.is_file() and "_metadata" not in file.parts and "_stateSchema" not in file.parts
    )
    assert sum(state.checkpoint_bytes for state in report.states) == hf.checkpoints.read(folder).size_bytes
    assert report.money.checkpoint == pytest.approx(0.10 * report.checkpoint_bytes / GB)
    assert report.medium == "local"
    assert report.requests is None


def test_a_heap_keeps_nothing_on_disk(tmp_path: Path) -> None:
    heap = hf.cost(golden_on_disk("4.2/aggregate-memory", tmp_path / "heap"))
    assert heap.provider == "memory"
    assert heap.local_bytes == 0
    assert heap.memory_bytes is not None
    assert heap.memory_bytes > sum(state.checkpoint_bytes for state in heap.states)
    assert heap.memory_from is Origin.ESTIMATED
    disk = hf.cost(golden_on_disk("4.2/aggregate-format2", tmp_path / "disk"))
    assert disk.local_bytes == sum(state.checkpoint_bytes for state in disk.states) > 0


def test_measured_memory_goes_before_an_estimate(tmp_path: Path) -> None:
    folder = golden_on_disk("4.2/aggregate-format2", tmp_path / "checkpoint")
    report = hf.cost(folder, memory={"aggregate": 12_345}, prices=Prices(memory=2.0))
    assert report.memory_bytes == 12_345
    assert report.memory_from is Origin.MEASURED
    assert report.money.memory == pytest.approx(2.0 * 12_345 / GB)
    assert hf.cost(folder, memory={}).memory_bytes is None


def test_savepoints_share_bytes(tmp_path: Path) -> None:
    folder = golden_on_disk("4.2/aggregate-format2", tmp_path / "checkpoint")
    catalog = tmp_path / "checkpoint.savepoints"
    first = savepoints.take(folder, catalog, batch=9)
    savepoints.take(folder, catalog)
    report = hf.cost(folder)
    assert report.savepoints == 2
    assert report.savepoint_bytes == bytes_below(catalog / "objects")
    assert 0 < report.states[0].savepoint_bytes < report.savepoint_bytes
    assert hf.cost(folder, savepoints=[]).savepoints == 0
    alone = hf.cost(first.uri)
    assert alone.is_savepoint
    assert (alone.savepoints, alone.checkpoint_bytes, alone.local_bytes) == (1, 0, 0)
    assert alone.savepoint_bytes == first.manifest.size_bytes
    assert alone.memory_bytes is None
    assert alone.changes == ()


def test_an_older_batch_is_not_shown_as_the_newest(tmp_path: Path) -> None:
    folder = golden_on_disk("4.2/aggregate-format2", tmp_path / "checkpoint")
    newest = hf.checkpoints.read(folder).batch_id
    assert newest is not None
    with pytest.raises(Invalid, match="only for the newest batch") as caught:
        hf.cost(f"{folder}@{newest - 1}")
    assert caught.value.found == f"batch {newest - 1}"
    assert caught.value.expected == f"batch {newest}"
    with pytest.raises(NotFound, match="no longer kept"):
        hf.cost(f"{folder}@99999999999999999999")
    assert hf.cost(f"{folder}@{newest}").states == hf.cost(folder).states


def test_the_interval_is_measured_or_given(tmp_path: Path) -> None:
    folder = golden_on_disk("4.2/aggregate-format2", tmp_path / "checkpoint")
    measured = hf.cost(folder)
    assert measured.interval_from is Origin.MEASURED
    planned = [batch.planned_ms for batch in hf.checkpoints.history(folder)]
    apart = sorted(later - earlier for earlier, later in itertools.pairwise(planned))
    assert measured.interval_ms == pytest.approx(apart[len(apart) // 2], rel=0.5)
    given = hf.cost(folder, interval="1 minute")
    assert (given.interval_ms, given.interval_from) == (60_000, Origin.GIVEN)


def test_the_shape_of_a_query_is_read_from_its_files() -> None:
    def shape(name: str) -> tuple[int, bool, bool, bool, int]:
        found = measure(MemoryStorage(golden_files(name), uri="memory://x")).shape
        return found.stores, found.incremental, found.rocksdb, found.checksums, found.log_sources

    assert shape("4.2/aggregate-format2") == (2, True, True, True, 1)
    assert shape("4.2/aggregate-rocksdb")[1:3] == (False, True)
    assert shape("4.2/aggregate-memory")[1:3] == (True, False)
    assert shape("4.2/join-format2")[0] == 8


def test_a_query_without_state_has_logs_alone(tmp_path: Path) -> None:
    folder = golden_on_disk(STATELESS, tmp_path / "checkpoint")
    report = hf.cost(folder)
    assert report.states == ()
    assert report.checkpoint_bytes == report.other_bytes == bytes_below(folder)
    assert (report.memory_bytes, report.provider) == (None, None)


def situation(name: str, medium: str = "s3", **given: object) -> Situation:
    measured = measure(MemoryStorage(golden_files(name), uri="memory://x"))
    prices = Prices(writes=5e-6, reads=4e-7)
    usual: dict[str, object] = {"interval_ms": 10_000, "packed": 0.4, "codec": "lz4", **given}
    return Situation(measured, prices, medium, "here", **usual)  # type: ignore[arg-type]


def test_changes_say_what_they_save_and_what_they_cost() -> None:
    by_kind = {change.kind: change for change in changes(situation("4.2/aggregate-rocksdb"))}
    assert set(by_kind) == {"changelog", "interval", "ttl", "compression"}
    assert not by_kind["changelog"].safe
    assert by_kind["changelog"].recovery_ms == 10 * 50
    assert by_kind["compression"].safe
    half = by_kind["interval"]
    assert half.recovery_ms == 10_000
    assert half.how == "hf.every('20s'), or trigger(processingTime='20000 milliseconds')"
    assert half.saves_requests is not None
    assert half.saves_requests > 0
    assert half.saves_money > 0
    money = [change.saves_money for change in changes(situation("4.2/aggregate-rocksdb"))]
    assert money == sorted(money, reverse=True)


def test_changes_without_an_object_store_save_no_requests() -> None:
    found = changes(situation("4.2/aggregate-rocksdb", "local"))
    assert {change.saves_requests for change in found} == {None}
    assert "interval" not in {change.kind for change in found}
    assert "compression" not in {
        change.kind for change in changes(situation("4.2/aggregate-memory", packed=0.01))
    }


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound):
        hf.cost(tmp_path / "empty")
    with pytest.raises(NotFound):
        hf.cost(tmp_path / "nowhere")
    with pytest.raises(Invalid):
        hf.cost(golden_on_disk("4.2/aggregate-format2", tmp_path / "checkpoint"), interval="soon")
    with pytest.raises(NotFound):
        hf.cost(tmp_path / "checkpoint", prices=tmp_path / "nofile.toml")


def test_state_of_another_vendor_is_refused(tmp_path: Path) -> None:
    folder = golden_on_disk("4.2/aggregate-rocksdb", tmp_path / "checkpoint")
    for file in (folder / "offsets").iterdir():
        if not file.name.startswith("."):
            text = file.read_text(encoding="utf-8")
            spark = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            file.write_text(text.replace(spark, "com.vendor.Provider"), encoding="utf-8")
    with pytest.raises(Unsupported):
        hf.cost(folder)


def test_a_forecast_is_that_of_its_plan() -> None:
    found = hf.forecast_cost(rate=10, keys=100, interval="10s", partitions=4, medium="hdfs")
    assert (found.plan.interval_ms, found.plan.partitions, found.plan.medium) == (10_000, 4, "hdfs")
    assert found.prices == Prices()
