"""The health of a checkpoint or savepoint: what a person sees of it first."""

from __future__ import annotations

from pathlib import Path

import pytest

from golden import golden_on_disk, golden_with_confs
from holdfast import health, savepoints
from holdfast.checkpoints.verification.verifying import UnreadFiles, unread_paths, verify_within
from holdfast.errors import Invalid
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage

NAME = "4.2/aggregate-rocksdb"


def test_a_whole_checkpoint(tmp_path: Path) -> None:
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    found = health(checkpoint, home=tmp_path / "home")
    # The query counted the visits of ten customers, c0 to c9, in twelve batches.
    [operator] = found.operators
    assert (operator.named.operator_kind, operator.partitions, operator.rows) == ("aggregation", 2, 10)
    assert (found.ok, found.batch_id, found.restorable[-1]) == (True, 11, 11)
    assert found.restart is not None
    assert (found.restart.state_bytes, found.restart.files) == (operator.size_bytes, 2)
    assert found.restart.recovery is None
    assert found.unread == UnreadFiles(0, 0)
    assert found.next == f"holdfast savepoint take {checkpoint} {checkpoint}.savepoints"


def test_age_is_counted_from_the_planning_of_the_newest_batch(tmp_path: Path) -> None:
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    planned_ms = health(checkpoint, home=tmp_path).planned_ms
    assert planned_ms is not None
    later = health(checkpoint, home=tmp_path, clock=lambda: planned_ms + 90_000)
    assert later.batch_age_ms == 90_000


def test_the_worst_findings_come_first_and_each_once(tmp_path: Path) -> None:
    found = health(golden_on_disk(NAME, tmp_path / "ck"), home=tmp_path)
    severities = [finding.severity.value for finding in found.findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert len(found.findings) == 3
    assert found.more_findings > 0
    # Lint's HF304 and advice AD203 see the same snapshots without a changelog.
    assert len({finding.id for finding in found.findings}) == 3


def test_a_damaged_checkpoint_names_the_file_and_the_batch_to_save(tmp_path: Path) -> None:
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    snapshot = checkpoint / "state" / "0" / "1" / "12.zip"
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    found = health(checkpoint, home=tmp_path)
    assert not found.ok
    assert [problem.file for problem in found.problems] == ["state/0/1/12.zip"]
    assert found.restorable[-1] == 10
    assert found.restart is None
    assert found.next == f"holdfast savepoint take {checkpoint} {checkpoint}.savepoints --batch 10"


def test_a_savepoint(tmp_path: Path) -> None:
    taken = savepoints.take(golden_on_disk(NAME, tmp_path / "ck"), tmp_path / "sp")
    found = health(taken.uri, home=tmp_path)
    assert (found.ok, found.is_savepoint, found.batch_id, found.operators[0].rows) == (True, True, 11, 10)
    assert found.next.startswith("holdfast restore ")
    [largest] = sorted((tmp_path / "sp" / "objects").rglob("*"), key=lambda path: path.stat().st_size)[-1:]
    largest.write_bytes(b"x" * largest.stat().st_size)
    damaged = health(taken.uri, home=tmp_path)
    assert not damaged.ok
    assert damaged.next.startswith("holdfast savepoint verify ")


def test_a_newer_spark_is_not_well(tmp_path: Path) -> None:
    storage = golden_with_confs(NAME, fromTheFuture="1")
    for path, data in storage.files.items():
        LocalStorage(tmp_path / "ck").write(path, data)
    found = health(tmp_path / "ck", home=tmp_path)
    assert not found.problems
    assert not found.ok


def test_a_batch_in_the_address_is_refused(tmp_path: Path) -> None:
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    with pytest.raises(Invalid, match="cannot be checked for a single batch"):
        health(f"{checkpoint}@7", home=tmp_path)


def test_the_smallest_files_are_read_within_the_limits() -> None:
    sizes = {"a": 5, "b": 1, "c": 30, "d": 3}
    assert unread_paths(sizes, most_bytes=9, most_files=None) == {"c": 30}
    assert unread_paths(sizes, most_bytes=1000, most_files=2) == {"a": 5, "c": 30}
    assert unread_paths(sizes, most_bytes=0, most_files=None) == sizes


def test_a_file_that_is_not_read_is_still_missed_and_measured(tmp_path: Path) -> None:
    checkpoint = golden_on_disk("4.2/aggregate-changelog", tmp_path / "ck")
    whole, unread = verify_within(open_storage(str(checkpoint)), None, most_bytes=0, most_files=None)
    assert whole.ok
    assert unread.files > 0
    newest = max(
        (checkpoint / "state" / "0" / "1").glob("*.changelog"), key=lambda path: int(path.stem.split("_")[0])
    )
    newest.unlink()
    found, _ = verify_within(open_storage(str(checkpoint)), None, most_bytes=0, most_files=None)
    assert [problem.file for problem in found.problems] == [f"state/0/1/{newest.name}"]
