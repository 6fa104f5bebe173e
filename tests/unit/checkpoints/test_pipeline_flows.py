"""The flows of a declarative pipeline: real checkpoints, which Spark 4.2 has written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pipeline_runs import orders_of

import holdfast as hf
from golden import files_on_disk, golden_files
from holdfast.checkpoints.discovery import CheckpointAddress
from holdfast.errors import Conflict, NotFound
from holdfast.jobs.registry.plain_queries import unique_names

FLOWS = [
    ("spark_catalog.default.copies", "copies", 0, ()),
    ("spark_catalog.default.first_orders", "first_orders", 0, ()),
    ("spark_catalog.default.totals", "by_minute", 1, (0,)),
]


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return files_on_disk(golden_files("pipeline-4.2"), tmp_path / "storage")


def test_each_flow_has_the_checkpoint_of_its_newest_version(storage: Path) -> None:
    flows = hf.checkpoints.flows(storage)
    assert [(flow.table, flow.name, flow.version, flow.older) for flow in flows] == FLOWS
    assert all(flow.started and hf.checkpoints.read(flow.checkpoint).batch_id is not None for flow in flows)
    assert {flow.storage for flow in flows} == {f"file://{storage}"}


def test_a_part_of_the_storage_has_its_own_flows(storage: Path) -> None:
    totals = storage / "_checkpoints" / "spark_catalog" / "default" / "totals"
    for part in (totals, totals / "by_minute"):
        [flow] = hf.checkpoints.flows(part)
        assert (flow.label, flow.storage) == ("spark_catalog.default.totals/by_minute", f"file://{storage}")
    assert len(hf.checkpoints.flows(storage / "_checkpoints")) == 3
    assert hf.checkpoints.flows(totals / "by_minute" / "1") == ()  # a checkpoint as any
    assert hf.checkpoints.flows(storage.parent) == ()


def test_tables_without_catalog_and_schema(storage: Path) -> None:
    deep = storage / "_checkpoints" / "spark_catalog" / "default"
    for table in list(deep.iterdir()):
        table.rename(storage / "_checkpoints" / table.name)
    assert [flow.label for flow in hf.checkpoints.flows(storage)] == [
        "copies/copies",
        "first_orders/first_orders",
        "totals/by_minute",
    ]


def test_a_version_that_no_run_has_started_on(storage: Path) -> None:
    """A full refresh that is killed before its first batch leaves one; a catalog next to it is no version."""
    flow = storage / "_checkpoints" / "spark_catalog" / "default" / "totals" / "by_minute"
    (flow / "2").mkdir()
    (flow / "1.savepoints").mkdir()
    [found] = hf.checkpoints.flows(flow)
    assert (found.version, found.started, found.older) == (2, False, (0, 1))
    [refresh] = hf.checkpoints.full_refresh(flow)
    assert (refresh.batch_id, refresh.rows, refresh.size_bytes, refresh.sources) == (None, 0, 0, ())


def test_versions_are_compared_as_numbers(storage: Path) -> None:
    flow = storage / "_checkpoints" / "spark_catalog" / "default" / "totals" / "by_minute"
    (flow / "0").rename(flow / "9")
    (flow / "1").rename(flow / "10")
    [found] = hf.checkpoints.flows(flow)
    assert (found.version, found.older) == (10, (9,))


def test_what_a_full_refresh_discards(storage: Path) -> None:
    refreshes = {refresh.flow.name: refresh for refresh in hf.checkpoints.full_refresh(storage)}
    orders = [order for minute in (1, 2, 3) for order in orders_of(minute)]
    assert refreshes["copies"].rows == 0
    assert refreshes["copies"].size_bytes == 0
    assert refreshes["first_orders"].rows == len({order["id"] for order in orders})
    assert refreshes["by_minute"].rows == 4  # of minutes 3 and 4 after 00:03:19, for two drinks
    assert refreshes["first_orders"].sources[0].offset == '{"logOffset":2}'
    for name in ("first_orders", "by_minute"):
        states = hf.checkpoints.read(refreshes[name].flow.checkpoint).operators
        assert refreshes[name].size_bytes == sum(operator.size_bytes for operator in states)


def test_a_directory_that_is_no_pipeline(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no flow of a pipeline"):
        hf.checkpoints.full_refresh(tmp_path)


def test_a_checkpoint_is_asked_for_where_only_one_helps(storage: Path) -> None:
    with pytest.raises(NotFound) as caught:
        hf.state(storage)
    assert "spark_catalog.default.totals/by_minute" in (caught.value.found or "")


def test_a_server_finds_each_flow_once_under_its_name(storage: Path) -> None:
    found = CheckpointAddress(storage.parent).find()
    assert found == tuple(flow.checkpoint for flow in hf.checkpoints.flows(storage))
    assert list(unique_names(found).values()) == ["copies", "first_orders", "by_minute"]
    totals = storage / "_checkpoints" / "spark_catalog" / "default" / "totals"
    assert CheckpointAddress(totals).find() == found[2:]
    assert CheckpointAddress(f"{storage.parent}/stor*").find() == found


@pytest.fixture
def flow(storage: Path) -> Path:
    return storage / "_checkpoints" / "spark_catalog" / "default" / "first_orders" / "first_orders"


def test_a_flow_is_not_restored_at_a_batch_before_those_of_its_table(flow: Path, tmp_path: Path) -> None:
    older = hf.savepoints.take(flow / "0", tmp_path / "saved", batch=1, digest=False).uri
    changes = (
        lambda: hf.savepoints.plan_restore(older, flow / "1"),
        lambda: hf.savepoints.restore(older, flow / "1"),
        lambda: hf.savepoints.fork(older, flow / "1"),
        lambda: hf.savepoints.plan_rescale(older, flow / "1", partitions=3),
        lambda: hf.change(older).keep_newer_than("2026-01-01", column="at").plan(flow / "1"),
    )
    for change in changes:
        with pytest.raises(Conflict, match="later batches") as caught:
            change()
        assert caught.value.found == f"state of batch 1, and batch 2 in file://{flow}/0"
        assert "--accept-loss" in (caught.value.hint or "")
    assert [version.name for version in flow.iterdir()] == ["0"]
    # Anywhere else, and with the person's word, it is made.
    assert hf.savepoints.restore(older, tmp_path / "elsewhere").batch_id == 1
    assert hf.savepoints.restore(older, flow / "1", accept_loss=True).batch_id == 1


def test_a_flow_is_restored_at_its_newest_batch(flow: Path, tmp_path: Path) -> None:
    newest = hf.savepoints.take(flow / "0", tmp_path / "saved", digest=False).uri
    assert hf.savepoints.restore(newest, flow / "1").batch_id == 2
    (flow / "1" / "offsets" / "3").write_bytes((flow / "1" / "offsets" / "2").read_bytes())
    with pytest.raises(Conflict, match="later batches"):  # batch 3 may be in the table, though not committed
        hf.savepoints.restore(newest, flow / "2")
    shutil.rmtree(flow / "1")
    assert hf.savepoints.restore(newest, flow / "2").batch_id == 2


def test_versions_from_before_a_full_refresh_do_not_count(storage: Path, tmp_path: Path) -> None:
    """The table was emptied, so only the batches of the newest version are in it."""
    flow = storage / "_checkpoints" / "spark_catalog" / "default" / "totals" / "by_minute"
    saved = hf.savepoints.take(flow / "1", tmp_path / "saved", digest=False).uri
    for log in ("offsets", "commits"):
        (flow / "0" / log / "99").write_bytes(b"")
    assert hf.savepoints.restore(saved, flow / "2").query_id == hf.checkpoints.read(flow / "1").query_id
    # Nor if the newest version was lost.
    shutil.rmtree(flow / "2")
    (flow / "1").rename(tmp_path / "lost")
    assert hf.savepoints.restore(saved, flow / "4").batch_id is not None
    shutil.rmtree(flow / "4")
    (tmp_path / "lost").rename(flow / "1")
    # Those of the same query count: they were planned after the refresh.
    (flow / "0" / "metadata").write_bytes((flow / "1" / "metadata").read_bytes())
    with pytest.raises(Conflict, match="later batches"):
        hf.savepoints.restore(saved, flow / "3")
