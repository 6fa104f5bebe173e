"""Two states key by key, against a model of what their queries hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import golden_model as model
import pytest
from catalogs import Hands, catalog

from golden import KEYED, golden, golden_files, golden_on_disk
from holdfast import savepoints
from holdfast.errors import Corrupt, NotFound
from holdfast.savepoints import key_diff
from holdfast.savepoints.key_diff import StateDifference, StatesDifference, compare_states
from holdfast.savepoints.view import StateLocation
from holdfast.storage.memory import MemoryStorage


def state(name: str, batch: int | None = None) -> StateLocation:
    return StateLocation(golden(name), batch, name)


def by_label(found: StatesDifference) -> dict[str, StateDifference]:
    return {each.state.label: each for each in found.states}


def counts(found: StateDifference) -> tuple[int, int, int]:
    return found.added, found.removed, found.changed


def test_the_same_state_of_another_provider() -> None:
    found = compare_states(state("4.2/aggregate-memory"), state("4.2/aggregate-changelog"))
    assert found.same
    assert [counts(each) for each in found.states] == [(0, 0, 0)]
    assert [each.samples for each in found.states] == [()]


def test_two_batches() -> None:
    name = "4.2/aggregate-format2"
    files = model.taken(golden_files(name))
    before, after = model.aggregate(files[:9]), model.aggregate(files)
    [found] = compare_states(state(name, 8), state(name), samples=20).states
    assert counts(found) == (0, 0, 10)
    shown = {each.key["customer"]: (each.first, each.second) for each in found.samples}
    assert shown == {
        customer: (
            dict(zip(("count", "sum"), before[customer], strict=True)),
            dict(zip(("count", "sum"), after[customer], strict=True)),
        )
        for customer in after
    }
    assert {each.change for each in found.samples} == {"changed"}


@pytest.mark.parametrize("held", [1 << 21, 3])
@pytest.mark.parametrize("batches", [(9, 12), (12, 9), (6, 10)])
def test_keys_that_come_and_go(held: int, batches: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """With few rows in memory the others wait in files."""
    monkeypatch.setattr(key_diff, "_HELD", held)
    name = "4.2/dedupe-changelog"
    files = model.taken(golden_files(name))
    before, after = (model.seen_within_watermark(files, batch + 1) for batch in batches)
    [found] = compare_states(state(name, batches[0]), state(name, batches[1]), samples=20).states
    gone, new = before.keys() - after.keys(), after.keys() - before.keys()
    changed = {key for key in before.keys() & after.keys() if before[key] != after[key]}
    assert counts(found) == (len(new), len(gone), len(changed))
    for change, keys in (("added", new), ("removed", gone), ("changed", changed)):
        shown = [each for each in found.samples if each.change == change]
        assert {each.key["customer"] for each in shown} == keys
        assert all((each.first is None) == (change == "added") for each in shown)
        assert all((each.second is None) == (change == "removed") for each in shown)


def test_samples_are_few() -> None:
    name = "4.2/join-format2"
    found = by_label(compare_states(state(name, 10), state(name), samples=2))
    indexed = found["left-keyWithIndexToValue"]
    assert [each.change for each in indexed.samples].count("changed") == 2
    assert indexed.changed > 2
    assert compare_states(state(name, 10), state(name), samples=0).states[1].samples == ()


def test_partitions_do_not_count() -> None:
    """The two partitions of a memory store, the one in the place of the other."""
    swapped = {}
    for path, data in golden_files("4.2/aggregate-memory").items():
        for one, other in (("state/0/0/", "state/0/1/"), ("state/0/1/", "state/0/0/")):
            if path.startswith(one) and path.endswith((".delta", ".snapshot")):
                swapped[path.replace(one, other)] = data
                break
        else:
            swapped[path] = data
    assert swapped != golden_files("4.2/aggregate-memory")
    assert compare_states(
        state("4.2/aggregate-memory"), StateLocation(MemoryStorage(swapped), None, "swapped")
    ).same


def test_a_key_that_is_there_twice() -> None:
    """As after a repartition gone wrong: partition 0's file in both places."""
    files = dict(golden_files("4.2/aggregate-memory"))
    for path in list(files):
        if path.startswith("state/0/1/") and path.endswith((".delta", ".snapshot")):
            files[path] = files[path.replace("state/0/1/", "state/0/0/")]
    [found] = compare_states(
        state("4.2/aggregate-memory"), StateLocation(MemoryStorage(files), None, "x")
    ).states
    here = found.first_rows - found.removed
    assert (found.first_rows, found.second_rows) == (10, 2 * here)
    assert counts(found) == (here, 10 - here, 0)


@pytest.mark.parametrize("name", KEYED)
def test_keyed_state_is_shown_by_the_keys_of_its_users(name: str) -> None:
    """Visits and spend by customer, out of the blobs of four key groups; events too late do not count."""
    files = model.taken(golden_files(name))
    [found] = compare_states(state(name, 9), state(name), samples=20).states
    assert (found.state.label, found.first_rows, found.second_rows) == ("keyed", 10, 10)
    expected = keyed(files, 10), keyed(files, 12)
    differing = {key for key in expected[0] if expected[0][key] != expected[1][key]}
    assert counts(found) == (0, 0, len(differing))
    assert {each.key: (each.first, each.second) for each in found.samples} == {
        key: (expected[0][key], expected[1][key]) for key in differing
    }


def keyed(files: list[int], batches: int) -> dict[str, dict[str, int]]:
    """What the keyed processor holds; an event is late at the watermark already, as everywhere in Spark."""
    held: dict[str, dict[str, int]] = {}
    for batch in range(batches):
        passed = model.watermark(files[:batch]) if batch else None
        for event in model.events(files[batch]):
            if passed is not None and event.ts <= passed:
                continue
            of = held.setdefault(event.customer, {"visits": 0, "spend": 0})
            of["visits"] += 1
            of["spend"] += event.amount
    return held


def test_by_address(tmp_path: Path) -> None:
    """A checkpoint, one of its batches, and savepoints of them."""
    place = golden_on_disk("4.2/aggregate-format2", tmp_path / "ck")
    taken = savepoints.take(place, tmp_path / "catalog")
    older = savepoints.take(place, tmp_path / "catalog", batch=9)
    assert savepoints.diff(taken.uri, place).same
    assert savepoints.diff(older.uri, f"{place}@9").same
    found = savepoints.diff(f"{place}@9", taken.uri, samples=1)
    assert found.first.endswith("ck@9")
    assert counts(found.states[0]) == (0, 0, 10)
    assert json.loads(json.dumps(found.as_dict()))["states"][0]["changed"] == 10
    assert savepoints.diff_files(older.uri, taken.uri).changes
    with pytest.raises(NotFound, match="not committed"):
        savepoints.diff(place, f"{place}@99")
    with pytest.raises(NotFound, match="no checkpoint in this directory"):
        savepoints.diff(place, tmp_path / "nowhere")


def test_damage_has_a_name() -> None:
    files = dict(golden_files("4.2/aggregate-memory"))
    path = "state/0/1/12.delta"
    files[path] = b"nothing"
    with pytest.raises(Corrupt) as raised:
        compare_states(state("4.2/aggregate-memory"), StateLocation(MemoryStorage(files), None, "damaged"))
    assert path in str(raised.value)


def test_json_has_what_json_can_hold() -> None:
    name = "4.2/windowed-memory"
    found: dict[str, Any] = compare_states(state(name, 10), state(name)).as_dict()
    text = json.dumps(found)
    assert "2026-03-05T08:10:00+00:00" in text


def test_hands_take_what_diff_reads() -> None:
    """A savepoint's view is a side like any other."""
    hands, into = Hands(), catalog()
    hands.take(golden("4.3/state-format2"), into)
    assert compare_states(state("4.3/state-format2"), state("4.3/state-format2")).same
