"""Labels that a savepoint is given after it was taken."""

from __future__ import annotations

import json

import pytest
from catalogs import Hands, catalog, file_query

from holdfast.errors import Conflict, Corrupt, HoldfastError, Invalid, NotFound
from holdfast.savepoints.catalog import label_path, listed, manifest_path
from holdfast.savepoints.labels import current_label, label_changes, plan_label, redact_labels, set_label
from holdfast.savepoints.periodic import take_and_retain
from holdfast.savepoints.proof import prove
from holdfast.storage.memory import MemoryStorage
from holdfast.testing.failing_storage import FaultyStorage, Killed


def taken(hands: Hands, into: MemoryStorage, label: str | None = None) -> str:
    return hands.take(MemoryStorage(file_query(2)), into, label=label).manifest.savepoint_id


def labelled(into: MemoryStorage) -> list[str | None]:
    return [None if each.manifest is None else each.manifest.label for each in listed(into)]


def test_the_newest_counts_and_the_manifest_stays() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = taken(hands, into, "first")
    manifest = into.files[manifest_path(savepoint_id)]
    assert set_label(into, savepoint_id, "second", who="ann@home", when_ms=7).before == "first"
    assert labelled(into) == ["second"]
    set_label(into, savepoint_id, None, who="bob@home", when_ms=8)
    assert labelled(into) == [None]
    set_label(into, savepoint_id, "über Nacht", who="cid@home", when_ms=9)
    assert labelled(into) == ["über Nacht"]
    assert into.files[manifest_path(savepoint_id)] == manifest
    assert prove(into, savepoint_id, workers=1).ok
    assert [
        (each.before, each.label, each.who, each.when_ms) for each in label_changes(into, savepoint_id)
    ] == [
        ("first", "second", "ann@home", 7),
        ("second", None, "bob@home", 8),
        (None, "über Nacht", "cid@home", 9),
    ]


def test_ten_and_more() -> None:
    """Numbers are numbers, and not text."""
    hands, into = Hands(), catalog()
    savepoint_id = taken(hands, into)
    for number in range(12):
        set_label(into, savepoint_id, f"label {number}", who="ann", when_ms=number)
    assert labelled(into) == ["label 11"]


def test_the_same_label_writes_nothing_and_a_plan_neither() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = taken(hands, into, "first")
    before = into.files
    set_label(into, savepoint_id, "first", who="ann", when_ms=1)
    plan = plan_label(into, savepoint_id, "second", who="ann", when_ms=1)
    assert (plan.before, plan.label) == ("first", "second")
    assert into.files == before


@pytest.mark.parametrize("label", ["", "  ", "two\nlines", "x" * 201])
def test_what_is_no_label(label: str) -> None:
    hands, into = Hands(), catalog()
    savepoint_id = taken(hands, into)
    before = into.files
    with pytest.raises(Invalid, match="invalid label"):
        set_label(into, savepoint_id, label, who="ann", when_ms=1)
    assert into.files == before


def test_no_savepoint_no_label() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = taken(hands, into)
    hands.delete(into, savepoint_id)
    with pytest.raises(NotFound, match="the savepoint does not exist"):
        set_label(into, savepoint_id, "late", who="ann", when_ms=1)
    assert not [path for path in into.files if savepoint_id in path]


class Raced(MemoryStorage):
    """Somebody else is quicker by one label, or deletes the savepoint, at the moment of a write."""

    def __init__(self, files: dict[str, bytes], savepoint_id: str, *, deletes: bool) -> None:
        super().__init__(files, "memory://catalog")
        self._id = savepoint_id
        self._deletes = deletes

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        if self._deletes:
            self.delete(manifest_path(self._id))
        else:
            super().write(label_path(self._id, 1), data.replace(b"mine", b"hers"))
        super().write(path, data, replace=replace)


def test_of_two_at_once_one_is_told() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = taken(hands, into)
    raced = Raced(into.files, savepoint_id, deletes=False)
    with pytest.raises(Conflict, match="another process changed it"):
        set_label(raced, savepoint_id, "mine", who="ann", when_ms=1)
    assert labelled(raced) == ["hers"]


def test_a_label_of_what_is_deleted_meanwhile_is_taken_back() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = taken(hands, into)
    raced = Raced(into.files, savepoint_id, deletes=True)
    with pytest.raises(NotFound):
        set_label(raced, savepoint_id, "mine", who="ann", when_ms=1)
    assert label_path(savepoint_id, 1) not in raced.files


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kill", [False, True])
def test_killed_it_is_the_old_or_the_new(kill: bool, late: bool) -> None:
    hands, into = Hands(), catalog()
    savepoint_id = taken(hands, into, "old")
    with pytest.raises((Killed, HoldfastError)):
        set_label(FaultyStorage(into, 1, kill=kill, late=late), savepoint_id, "new", who="ann", when_ms=1)
    assert labelled(into) == ["new" if late else "old"]
    set_label(into, savepoint_id, "next", who="ann", when_ms=2)
    assert labelled(into) == ["next"]


def test_a_damaged_label_hides_nothing() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = taken(hands, into, "first")
    into.write(label_path(savepoint_id, 1), b'{"label":"x')
    [one] = listed(into)
    assert one.manifest is not None
    assert (one.manifest.label, "damaged" in (one.problem or "")) == ("first", True)
    assert prove(into, savepoint_id, workers=1).ok
    with pytest.raises(Corrupt):
        current_label(into, one.manifest)
    other = {"savepoint": "another", "label": "x", "before": None, "who": "ann", "when_ms": 1}
    into.write(label_path(savepoint_id, 1), json.dumps(other).encode(), replace=True)
    with pytest.raises(Corrupt, match="a different savepoint"):
        current_label(into, one.manifest)


def test_a_periodic_one_with_another_label_is_kept() -> None:
    hands, into = Hands(), catalog()

    def turn(batches: int) -> None:
        take_and_retain(
            MemoryStorage(file_query(batches)), into, retained=1, clock=hands.clock, chance=hands.chance
        )

    turn(1)
    [first] = [each.savepoint_id for each in listed(into)]
    set_label(into, first, "before the upgrade", who="ann", when_ms=1)
    for batches in (2, 3, 4):
        turn(batches)
    assert labelled(into) == ["before the upgrade", "periodic"]
    set_label(into, first, "periodic", who="ann", when_ms=1)
    turn(5)
    assert labelled(into) == ["periodic"]
    [left] = listed(into)
    assert left.manifest is not None
    assert left.manifest.batch_id == 4


def test_removals_know_labels() -> None:
    hands, into = Hands(), catalog()
    kept, gone = taken(hands, into), taken(hands, into)
    for each in (kept, gone):
        set_label(into, each, "mine", who="ann", when_ms=1)
    hands.sweep(into)
    assert labelled(into) == ["mine", "mine"]
    hands.delete(into, gone)
    assert not [path for path in into.files if gone in path]
    assert labelled(into) == ["mine"]
    assert prove(into, kept, workers=1).ok


def test_a_name_is_taken_out_of_labels() -> None:
    hands, into = Hands(), catalog()
    savepoint_id = taken(hands, into)
    for text in ("before carla left", "after"):
        set_label(into, savepoint_id, text, who="bob", when_ms=1)
    redact_labels(into, savepoint_id, lambda text: text and text.replace("carla", "[erased]"))
    assert [(each.before, each.label) for each in label_changes(into, savepoint_id)] == [
        (None, "before [erased] left"),
        ("before [erased] left", "after"),
    ]
    assert not [path for path, data in into.files.items() if b"carla" in data]
