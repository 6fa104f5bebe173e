"""A partition's tables, log, base and working copy hold what a plain dict says, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.worker.declarations.state_descriptors import State, StateKind
from holdfast.worker.interface import Moment, Outcome
from holdfast.worker.state import group_tables, group_writes, tables, upkeep
from holdfast.worker.state.key_index import Keys
from holdfast.worker.state.layout import Layout, form_of, group_of, range_of
from holdfast.worker.state.local_copies import Copies
from holdfast.worker.state.partition import Partition
from holdfast.worker.state.store import MemoryStore
from holdfast.worker.state.tables import empty_run

STATES = (
    State(StateKind.VALUE, pa.int64(), "total"),
    State(StateKind.LIST, pa.string(), "seen"),
)
KEYS = pa.schema([pa.field("who", pa.string())])
FORM = form_of(STATES, KEYS, timers=False)
GROUPS = 5
MOMENT = Moment(0, None, None)


def hash_of(key: str | None) -> int:
    """Few hashes over the whole range, so that keys share them."""
    number = 0 if key is None else sum(map(ord, key))
    return (number % 6) * 0x2AAAAAAA_AAAAAAAA % (1 << 64)


class Task:
    """One task over a store: opens the groups of some keys, sets their totals, appends to their lists."""

    def __init__(self, store: MemoryStore, folder: Path | None, tokens: Iterator[int]) -> None:
        mark = next(tokens)
        self.partition = Partition(
            Layout("op", GROUPS, STATES, FORM, ("who",)),
            store,
            token=lambda: next(tokens).to_bytes(8, "big"),
            copies=None if folder is None else Copies(folder, FORM.fingerprint, str(mark)),
        )

    def keys(self, names: list[str | None]) -> Keys:
        h = np.array([hash_of(name) for name in names], np.uint64)
        table = pa.table({"who": pa.array(names, pa.string())})
        self.partition.open(sorted(set(group_of(h, GROUPS).tolist())), MOMENT)
        return self.partition.touch([(h, table)], empty_run(FORM.tables[""]))

    def run(self, changes: list[tuple[str | None, int | None, str]]) -> None:
        """Per change: set the key's total (None clears it and the list), or append to its list."""
        keys = self.keys([name for name, _, _ in changes])
        totals = keys.stored("s:total").to_pylist()
        slots = keys.stored("n:seen").to_pylist()
        elements = keys.elements("seen")
        live = [
            elements.rows.column("slot")[start:stop].to_pylist()
            for start, stop in zip(elements.starts[:-1].tolist(), elements.starts[1:].tolist(), strict=True)
        ]
        writes: dict[tuple[int, int], tuple[bool, str | None]] = {}
        for (_, total, text), position in zip(changes, keys.positions[0].tolist(), strict=True):
            totals[position] = total
            if total is None:
                for slot in live[position]:
                    writes[position, slot] = (True, None)
                slots[position], live[position] = None, []
            elif text:
                slot = slots[position] or 0
                writes[position, slot] = (False, text)
                live[position].append(slot)
                slots[position] = slot + 1
        table = pa.table(
            {
                "position": pa.array([position for position, _ in writes], pa.int64()),
                "slot": pa.array([slot for _, slot in writes], pa.int64()),
                "dead": pa.array([dead for dead, _ in writes.values()], pa.bool_()),
                "v": pa.array([text for _, text in writes.values()], pa.string()),
            }
        )
        columns = {"s:total": pa.array(totals, pa.int64()), "n:seen": pa.array(slots, pa.int64())}
        self.partition.keep(keys, Outcome(columns, {"seen": table}, pa.table({})))
        self.partition.write(MOMENT)
        self.partition.close()

    def read(self, names: list[str | None]) -> dict[str | None, tuple[int, list[str]]]:
        keys = self.keys(names)
        found = {}
        elements = keys.elements("seen")
        values = elements.rows.column("v").to_pylist()
        for name, position in zip(names, keys.positions[0].tolist(), strict=True):
            total = keys.stored("s:total")[position].as_py()
            if total is not None:
                start, stop = elements.starts[position], elements.starts[position + 1]
                found[name] = (total, values[start:stop])
        return found


NAMES = st.one_of(st.none(), st.text("abc", max_size=3))
CHANGE = st.tuples(NAMES, st.one_of(st.none(), st.integers(0, 99)), st.sampled_from(["", "x", "y"]))
STEP = st.tuples(st.lists(CHANGE, min_size=1, max_size=8), st.sampled_from(["keep", "lose", "abort"]))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which everything happens with a handful of rows."""
    monkeypatch.setattr(tables, "SEGMENT_ROWS", 4)
    monkeypatch.setattr(tables, "SEGMENT_BYTES", 300)
    monkeypatch.setattr(tables, "SHARE", 0.5)
    monkeypatch.setattr(upkeep, "FOLD_BYTES", 900)
    monkeypatch.setattr(upkeep, "FOLD_CHANGES", 3)
    monkeypatch.setattr(upkeep, "FOLD_BUDGET", 1)
    monkeypatch.setattr(group_writes, "PAGE_ROWS", 2)
    monkeypatch.setattr(group_tables, "LOAD_BYTES", 500)


@given(st.lists(STEP, min_size=1, max_size=12))
def test_tables_hold_what_a_dict_holds(
    steps: list[tuple[list[tuple[str | None, int | None, str]], str]],
) -> None:
    store, tokens = MemoryStore(), count()
    model: dict[str | None, tuple[int, list[str]]] = {}
    names: set[str | None] = {"a", "zz"}
    with TemporaryDirectory() as place:
        for number, (changes, fate) in enumerate(steps):
            folder = Path(place) / "copy"
            if fate == "abort":
                # A try whose work the store never got: the copy it leaves must not be believed.
                Task(store.snapshot(), folder, tokens).run([(name, -1, "wrong") for name, _, _ in changes])
            Task(store, Path(place) / str(number) if fate == "lose" else folder, tokens).run(changes)
            for name, total, text in changes:
                names.add(name)
                if total is None:
                    model.pop(name, None)
                else:
                    before = model.get(name, (0, []))[1]
                    model[name] = (total, [*before, text] if text else before)
            assert Task(store, folder, tokens).read(sorted(names, key=str)) == model
            assert Task(store, None, tokens).read(sorted(names, key=str)) == model


@given(st.integers(1, 300), st.lists(st.integers(0, (1 << 64) - 1), min_size=1))
def test_a_group_is_a_range_of_hashes(key_groups: int, hashes: list[int]) -> None:
    groups = group_of(np.array(hashes, np.uint64), key_groups)
    for h, group in zip(hashes, groups.tolist(), strict=True):
        low, high = range_of(group, key_groups)
        assert low <= h
        assert high is None or h < high
        assert 0 <= group < key_groups
