"""States compared part by part, as executors do, give the difference that one process finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from grid import WHOLE
from tasks_here import TasksHere

from golden import golden_files, golden_on_disk
from holdfast import savepoints
from holdfast.errors import HoldfastError, NotFound, Unavailable
from holdfast.savepoints import key_diff
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.key_diff import compare_states
from holdfast.savepoints.spread import SharedCheckpoint
from holdfast.savepoints.spread_diff import compare_in_tasks
from holdfast.savepoints.view import StateLocation


def located(address: str | Path) -> StateLocation:
    return StateAddress.resolve(str(address)).open_state()


def require_same(first: str | Path, second: str | Path) -> None:
    for one, other in ((first, second), (second, first)) if WHOLE else ((first, second),):
        for samples in (0, 2, 100) if WHOLE else (2,):
            expected = compare_states(located(one), located(other), samples=samples)
            found = compare_in_tasks(TasksHere(), located(one), located(other), samples=samples)
            assert found.as_dict() == expected.as_dict()


# Two batches of one query, and the same query under two providers.
PAIRS = [
    ("4.2/aggregate-format2@8", "4.2/aggregate-format2"),
    ("4.2/aggregate-memory", "4.2/aggregate-changelog@9"),
    ("4.2/join-format2@10", "4.2/join-format2"),
    ("4.2/keyed-format2@9", "4.2/keyed-format2"),
    ("4.2/session-rocksdb", "4.2/state-format2"),
    ("4.2/dedupe-changelog@9", "4.2/dedupe-changelog"),
    ("4.2/spread-format2@9", "4.2/keyed-format2"),
    ("4.2/windowed-memory", "4.2/windowed-rocksdb@10"),
    ("4.2/join-memory@10", "4.2/join-format2"),
    ("3.5/stateless-memory", "4.2/limit-memory"),
    ("4.2/global-changelog@5", "4.2/global-changelog"),
]


@pytest.mark.parametrize(("first", "second"), PAIRS if WHOLE else PAIRS[:2])
def test_the_difference_is_that_of_one_process(tmp_path: Path, first: str, second: str) -> None:
    places = []
    for number, name in enumerate((first, second)):
        golden_name, at, batch = name.partition("@")
        places.append(f"{golden_on_disk(golden_name, tmp_path / str(number))}{at}{batch}")
    require_same(*places)


def test_rows_in_other_partitions_and_rows_that_are_there_twice(tmp_path: Path) -> None:
    """Partition 0's files in the place of partition 1's, and the two exchanged."""
    plain = golden_on_disk("4.2/aggregate-memory", tmp_path / "plain")
    files = {
        path: data
        for path, data in golden_files("4.2/aggregate-memory").items()
        if path.startswith("state/0/") and path.endswith((".delta", ".snapshot"))
    }
    for name, moves in {"twice": {"0": "1"}, "swapped": {"0": "1", "1": "0"}}.items():
        damaged = golden_on_disk("4.2/aggregate-memory", tmp_path / name)
        for path, data in files.items():
            for source, target in moves.items():
                if path.startswith(f"state/0/{source}/"):
                    other = path.replace(f"state/0/{source}/", f"state/0/{target}/")
                    (damaged / other).write_bytes(data)
        require_same(plain, damaged)


def test_too_many_differing_rows_are_hashed_instead_of_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = golden_on_disk("4.2/aggregate-format2", tmp_path / "checkpoint")
    expected = compare_states(located(f"{place}@8"), located(place))
    monkeypatch.setattr(key_diff, "_MOST_HELD", 0)
    assert compare_in_tasks(TasksHere(), located(f"{place}@8"), located(place)) == expected


def test_savepoints_are_compared_with_checkpoints(tmp_path: Path) -> None:
    place = golden_on_disk("4.2/aggregate-format2", tmp_path / "checkpoint")
    older = savepoints.take(place, tmp_path / "catalog", batch=9)
    require_same(older.uri, place)


def test_a_file_that_is_missing_is_reported_as_by_one_process(tmp_path: Path) -> None:
    place = golden_on_disk("4.2/aggregate-memory", tmp_path / "checkpoint")
    for path in (place / "state" / "0").rglob("*.delta"):
        path.unlink()

    def error_of(compare: Callable[..., object], *words: object) -> Mapping[str, object]:
        with pytest.raises(HoldfastError) as caught:
            compare(*words, located(place), located(place))
        return caught.value.as_dict()

    assert error_of(compare_in_tasks, TasksHere()) == error_of(compare_states)


def test_an_executor_that_sees_another_checkpoint_says_so(tmp_path: Path) -> None:
    place = golden_on_disk("4.2/aggregate-memory", tmp_path / "checkpoint")
    shared = SharedCheckpoint.of(located(place).storage, 9)
    assert shared.open()[1] == 9
    (place / "commits" / "9").write_text("v1\n{}")
    with pytest.raises(Unavailable, match="does not see the checkpoint") as caught:
        shared.open()
    assert caught.value.found == "a batch with different logs"
    with pytest.raises(Unavailable, match="does not see the checkpoint"):
        SharedCheckpoint(f"file://{tmp_path}/elsewhere", 9, "0" * 64, "").open()


def test_a_batch_that_is_not_committed(tmp_path: Path) -> None:
    place = golden_on_disk("4.2/aggregate-memory", tmp_path / "checkpoint")
    with pytest.raises(NotFound, match="batch"):
        compare_in_tasks(TasksHere(), located(f"{place}@99"), located(place))
