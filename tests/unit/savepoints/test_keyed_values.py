"""Keys out of the blobs of key groups, against the harness that wrote them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import holdfast as hf
from holdfast.checkpoints.keyed import KeyGroups
from holdfast.errors import Corrupt
from holdfast.formats.key_groups import BASE, FORMS, LOG
from holdfast.savepoints.key_diff import KeyedRow, keyed_rows
from holdfast.storage.memory import MemoryStorage
from holdfast.testing import Harness
from holdfast.worker.state.store import MemoryStore

EVENTS = "shop string, till int, op string, amount long, drink string, ts timestamp"


class Everything(hf.Keyed):
    """A state of each kind, some of them with a time to live, and timers."""

    visits = hf.value("long", default=0)
    spend = hf.reducing("long", hf.add)
    last = hf.value("string", ttl="1h")
    orders = hf.list("long")
    drinks = hf.map("string", "long")
    recent = hf.list("long", ttl="1h")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        if event.op == "clear":
            state.clear()
            return
        state.visits += 1
        state.spend.add(event.amount)
        state.last = event.drink
        state.orders.append(event.amount)
        state.recent.append(event.amount)
        state.drinks[event.drink] = state.drinks.get(event.drink, 0) + 1
        if event.op == "forget":
            state.orders.clear()
            state.drinks.pop(event.drink)
        ctx.timer(10_000_000 + event.amount, name="nudge", clock="processing")
        yield (event.shop,)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        yield ("timer",)


def groups_of(store: MemoryStore) -> KeyGroups:
    """As they would have been read from Spark's store."""
    found = KeyGroups(MemoryStorage())
    for group in store.groups:
        stored = store.load(group)
        if stored.forms is not None:
            found.blobs[FORMS][group] = (stored.forms,)
        if stored.base:
            found.blobs[BASE][group] = tuple(stored.base)
        if stored.log:
            found.blobs[LOG][group] = tuple(stored.log)
    return found


def event(number: int, op: str = "buy") -> dict[str, Any]:
    return {
        "shop": f"s{number % 5}",
        "till": number % 2,
        "op": op,
        "amount": number,
        "drink": ("tea", "latte", "mocha")[number % 3],
        "ts": None,
    }


@pytest.fixture
def harness() -> Harness:
    return Harness(Everything(), by=["shop", "till"], events=EVENTS, output="said string")


def rows_of(harness: Harness) -> Iterator[KeyedRow]:
    return keyed_rows(groups_of(harness.inspect.store).groups(), "here")


@pytest.mark.parametrize("batches", [1, 4, 40])
@pytest.mark.slow
def test_every_key_with_every_state(harness: Harness, batches: int) -> None:
    """After many batches most rows are in the bases."""
    for batch in range(batches):
        harness.send(*(event(batch * 7 + each) for each in range(9)))
    harness.send(event(3, "clear"), event(4, "forget"))
    found = {tuple(key): value for key, value in rows_of(harness)}
    assert sorted(found) == sorted(harness.keys())
    for key, value in found.items():
        # Where there is nothing, a state reads as its default.
        for name, read in harness.state(*key).items():
            assert value.get(name, read) == read, (key, name)
            assert name in value or not read, (key, name)
        assert len(value.get("recent.stamp_ms", [])) == len(value.get("recent", []))
        assert value.get("timers", []) == [
            {"name": each.name, "clock": each.clock, "at_ms": each.at_ms} for each in harness.timers(*key)
        ]


def test_a_group_that_was_folded(harness: Harness) -> None:
    harness.send(*(event(each) for each in range(20)))
    folded = harness.cleaned()
    assert any(groups_of(folded.inspect.store).blobs[BASE].values())
    assert not any(groups_of(folded.inspect.store).blobs[LOG].values())
    before, after = (
        sorted((repr(key), repr(value)) for key, value in rows_of(each)) for each in (harness, folded)
    )
    assert before == after


def test_a_blob_that_is_damaged(harness: Harness) -> None:
    harness.send(*(event(each) for each in range(20)))
    groups = groups_of(harness.inspect.store)
    group, (first, *others) = next(iter(groups.blobs[LOG].items()))
    groups.blobs[LOG][group] = (first[:-40], *others)
    with pytest.raises(Corrupt):
        list(keyed_rows(groups.groups(), "operator 0"))
    groups = groups_of(harness.inspect.store)
    groups.blobs[FORMS].clear()
    with pytest.raises(Corrupt, match=r"key group \d+ cannot be read"):
        list(keyed_rows(groups.groups(), "operator 0"))
