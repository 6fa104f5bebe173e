"""How much there is of each state, in real checkpoints whose input is known: ten customers, and no more."""

from __future__ import annotations

import pytest
from catalogs import Hands, catalog

from golden import KEYED, golden
from holdfast.checkpoints.checkpoint import read
from holdfast.savepoints import planning, verdicts
from holdfast.savepoints.catalog import load
from holdfast.savepoints.digests import digest, recorded_states
from holdfast.savepoints.verdicts import Size, measured


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("4.2/aggregate-format2", {"default": 10}),
        ("4.2/aggregate-memory", {"default": 10}),
        ("4.2/state-format2", {"count": 10, "amounts": 10}),
    ],
)
def test_the_keys_of_small_state_are_counted(name: str, keys: dict[str, int]) -> None:
    storage = golden(name)
    found = measured(storage, read(storage))
    assert {state: found.states[0, state].keys for state in keys} == keys
    assert all(found.of(0, state) == found.states[0, state] for state in keys)


@pytest.mark.parametrize("name", KEYED)
def test_the_keys_of_keyed_state_are_counted_by_state(name: str) -> None:
    storage = golden(name)
    read_once = read(storage)
    found = measured(storage, read_once)
    assert (found.states[0, "visits"].keys, found.states[0, "spend"].keys) == (10, 10)
    assert found.of(0, "nobody") == Size(None, read_once.operators[0].size_bytes)


def test_large_state_is_not_read_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "SMALL_BYTES", 0)
    storage = golden("4.2/aggregate-format2")
    found = read(storage)
    assert measured(storage, found).states[0, "default"].keys is None
    assert measured(storage, found, deep=True).states[0, "default"].keys == 10
    # What was counted of a savepoint is known all the same, though the take did not read it.
    monkeypatch.setattr(planning, "SMALL_BYTES", 0)
    hands, kept = Hands(), catalog()
    savepoint_id = hands.take(storage, kept).manifest.savepoint_id
    digest(kept, savepoint_id, clock=hands.clock)
    recorded = recorded_states(kept, load(kept, savepoint_id))
    assert measured(storage, found, recorded).states[0, "default"].keys == 10
