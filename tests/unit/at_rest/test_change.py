"""Several changes of one query's state in one copy: each is proved, and one checkpoint is made."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from catalogs import Hands

import holdfast as hf
from golden import golden, golden_files, golden_on_disk
from holdfast.changes.rewriting import rewrite
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Conflict, Internal, Invalid
from holdfast.storage.local import LocalStorage

JOIN = "4.2/join-memory"
WINDOWED = "4.2/windowed-memory"
SESSIONS = "4.2/session-rocksdb"


@pytest.fixture
def savepoint(tmp_path: Path) -> Callable[[str], str]:
    """Take a savepoint of a golden checkpoint, and return its address."""

    def taken(name: str) -> str:
        return Hands().take(golden(name), LocalStorage(tmp_path / "catalog")).uri

    return taken


def rows(address: str | Path, state: str) -> list[tuple[Any, ...]]:
    """All rows of a state, sorted, without where they are stored."""
    found = [
        (tuple(row.key.items()), tuple(row.sub.items()), tuple(row.value.items()))
        for row in hf.state(address).scan(state)
    ]
    return sorted(found, key=repr)


def times(address: str | Path, state: str, column: str) -> list[datetime]:
    """The values of one column, by the reader and not by the code under test."""
    entries = hf.state(address).scan(state)
    return sorted({**row.key, **row.sub, **row.value}[column] for row in entries)


def test_rows_partitions_and_backend_in_one_change(savepoint: Callable[[str], str], tmp_path: Path) -> None:
    source, new = savepoint(JOIN), tmp_path / "new"
    left, right = times(source, "join.left", "ts"), times(source, "join.right", "at")
    middle = left[len(left) // 2]
    kept = [row for row in rows(source, "join.left") if dict(row[2])["ts"] >= middle]
    changed = (
        hf.change(source)
        .partitions(5)
        .keep_newer_than(middle, column="ts")
        .backend("rocksdb")
        .state_format(2)
        .to(new)
    )
    assert [report.step for report in changed.reports] == ["keep_newer_than", "layout"]
    [deleted] = changed.reports[0].report
    assert (deleted.state, deleted.rows_before, deleted.rows_after) == ("join.left", len(left), len(kept))
    assert 0 < deleted.deleted == len(left) - len(kept)
    # What stays is what it was, whatever it is stored in.
    assert [dict(row[2])["ts"] for row in rows(new, "join.left")] == [dict(row[2])["ts"] for row in kept]
    assert times(new, "join.right", "at") == right
    found = read(LocalStorage(new))
    assert {operator.partitions for operator in found.operators} == {5}
    assert found.batch_id == changed.batch_id == read(golden(JOIN)).batch_id
    assert verify(LocalStorage(new)).problems == ()


def test_each_step_alone_gives_what_its_verb_gives(savepoint: Callable[[str], str], tmp_path: Path) -> None:
    source = savepoint(SESSIONS)
    hf.change(source).partitions(3).to(tmp_path / "one")
    hf.savepoints.rescale(source, tmp_path / "other", partitions=3)
    assert contents(LocalStorage(tmp_path / "one")) == contents(LocalStorage(tmp_path / "other"))
    hf.change(source).backend("rocksdb").state_format(2).to(tmp_path / "two")
    hf.migrate(source, tmp_path / "three", backend="rocksdb", state_format=2)
    assert contents(LocalStorage(tmp_path / "two")) == contents(LocalStorage(tmp_path / "three"))


def test_the_order_of_calls_does_not_matter(savepoint: Callable[[str], str], tmp_path: Path) -> None:
    source = savepoint(WINDOWED)
    more = {"count": "count + 1"}
    one = hf.change(source).edit("aggregate", where="true", set=more).partitions(3)
    other = hf.change(source).partitions(3).edit("aggregate", where="true", set=more)
    assert one.plan(tmp_path / "x").as_dict() == other.plan(tmp_path / "x").as_dict()
    one.to(tmp_path / "one")
    other.to(tmp_path / "other")
    assert contents(LocalStorage(tmp_path / "one")) == contents(LocalStorage(tmp_path / "other"))


def test_the_source_stays_as_it_is(tmp_path: Path) -> None:
    checkpoint = golden_on_disk(JOIN, tmp_path / "ck")
    with pytest.raises(Conflict, match="a query may still be using the checkpoint"):
        hf.change(checkpoint).partitions(3).to()
    assert not (tmp_path / "ck-changed").exists()
    plan = hf.change(checkpoint).partitions(3).plan()
    assert plan.usage is not None
    assert plan.checkpoint == f"file://{tmp_path}/ck-changed"
    assert not (tmp_path / "ck-changed").exists()
    files = {path: (checkpoint / path).read_bytes() for path in golden_files(JOIN)}
    assert files == golden_files(JOIN)


def test_a_change_without_steps_or_with_one_that_does_not_fit(
    savepoint: Callable[[str], str], tmp_path: Path
) -> None:
    source = savepoint(JOIN)
    with pytest.raises(Invalid, match="no step"):
        hf.change(source).to(tmp_path / "new")
    with pytest.raises(Invalid, match="no state has a column 'when'") as caught:
        hf.change(source).keep_newer_than("2024-01-01", column="when").to(tmp_path / "new")
    assert caught.value.expected == "join.left: ts; join.right: at"
    with pytest.raises(Invalid, match="invalid point in time 'soon'"):
        hf.change(source).keep_newer_than("soon", column="ts").plan(tmp_path / "new")
    with pytest.raises(Invalid, match="the edit changes nothing") as caught:
        hf.change(source).edit("join.left", where="false", delete=True).partitions(3).to(tmp_path / "new")
    assert caught.value.where == f"{source}, state join.left"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("zone", [timezone.utc, timezone(timedelta(hours=-5))])
def test_a_point_in_time_is_in_utc_unless_it_has_a_zone(
    savepoint: Callable[[str], str], tmp_path: Path, zone: timezone
) -> None:
    source, new = savepoint(JOIN), tmp_path / "new"
    before = times(source, "join.right", "at")
    middle = before[len(before) // 2]
    changed = hf.change(source).keep_newer_than(middle.astimezone(zone), column="at").to(new)
    [report] = changed.reports[0].report
    assert report.deleted == sum(time < middle for time in before) > 0
    assert times(new, "join.right", "at") == [time for time in before if time >= middle]


def test_the_fields_of_a_window_are_columns_too(savepoint: Callable[[str], str], tmp_path: Path) -> None:
    source = savepoint(WINDOWED)
    ends = {entry.key["window"]["end"] for entry in hf.state(source).scan("aggregate")}
    last = max(ends)
    kept = hf.change(source).keep_newer_than(last, column="window.end").to(tmp_path / "all")
    assert kept.reports[0].report[0].deleted == 0
    assert contents(LocalStorage(tmp_path / "all")) == contents(golden(WINDOWED))
    later = last.date() + timedelta(days=1)
    gone = hf.change(source).keep_newer_than(later, column="window.end").to(tmp_path / "none")
    [report] = gone.reports[0].report
    assert (report.deleted, report.rows_after) == (report.rows_before, 0)
    assert rows(tmp_path / "none", "aggregate") == []


def test_a_failed_proof_of_the_second_step_makes_nothing(
    savepoint: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loses_a_partition(checkpoint: Any, shape: Any, folder: Path, tell: Any, *, tasks: Any) -> object:
        made = rewrite(checkpoint, shape, folder, tell, tasks=tasks)
        monkeypatch.setattr(
            "holdfast.changes.layouts.contents", lambda *args, **more: contents(*args, **more)[:-1]
        )
        return made

    monkeypatch.setattr("holdfast.changes.layouts.rewrite", loses_a_partition)
    more = {"amount": "amount + 1"}
    change = hf.change(savepoint(JOIN)).edit("join.left", where="true", set=more).partitions(3)
    with pytest.raises(Internal, match="the rows of a state have changed"):
        change.to(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".holdfast-change")]


def test_a_change_prepares_the_table_of_another_sink(savepoint: Callable[[str], str], tmp_path: Path) -> None:
    source, table = savepoint(SESSIONS), tmp_path / "table"
    plan = hf.change(source).table(table).partitions(3).plan(tmp_path / "new")
    assert (plan.table, [step.step for step in plan.steps]) == (table.as_uri(), ["partitions"])
    assert not table.exists()
    changed = hf.change(source).table(table).to(tmp_path / "new")
    assert {file.name for file in (table / "_spark_metadata").iterdir()} >= {str(changed.batch_id)}
    assert contents(LocalStorage(tmp_path / "new")) == contents(golden(SESSIONS))
    (table / "part-0.parquet").write_text("rows of somebody else")
    with pytest.raises(Conflict, match="not empty"):
        hf.change(source).table(table).to(tmp_path / "other")
    assert not (tmp_path / "other").exists()
