"""Keys of map states that are equal, or become so where they are stored, have one entry."""

from __future__ import annotations

import datetime as dt
import struct
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from passes import INSTANT, Passes, event

from holdfast.worker.declarations.processor import Keyed, KeyedTable
from holdfast.worker.declarations.state_descriptors import State, StateKind

FLOAT, DOUBLE, LONG = pa.float32(), pa.float64(), pa.int64()
A = ("a",)
(OTHER_NAN,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))
NAN = float("nan")
HALF_PAST_ONE = dt.datetime(2024, 11, 3, 1, 30, tzinfo=ZoneInfo("America/New_York"), fold=1)
THE_SAME_IN_UTC = dt.datetime(2024, 11, 3, 6, 30, tzinfo=dt.timezone.utc)


def passes_of(kind: pa.DataType, keys: list[Any], table: bool) -> Passes:
    """A processor that counts its keys at each event, one after the other."""

    class Rows(Keyed):
        seen = State(StateKind.MAP, LONG, key_type=kind)

        def on_event(self, event: Any, state: Any, ctx: Any) -> None:
            for key in keys:
                assert (key in state.seen) == (state.seen.get(key) is not None)
                state.seen[key] = state.seen.get(key, 0) + 1

    class Tables(KeyedTable):
        seen = State(StateKind.MAP, LONG, key_type=kind)

        def on_batch(self, events: Any, state: Any) -> None:
            for key in keys:
                before = [count for held, count in state.seen.get()[0].as_py() if held != 1.0]
                state.seen.put([key], [max(before, default=0) + 1])

    return Passes(Tables() if table else Rows(), {}, table=table)


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize(
    ("kind", "keys", "stored"),
    [
        (FLOAT, [0.1, np.float32(0.1), np.float64(0.1)], 0.10000000149011612),
        (FLOAT, [0.0, -0.0], 0.0),
        (FLOAT, [NAN, OTHER_NAN], NAN),
        (DOUBLE, [-0.0, 0.0], 0.0),
        (DOUBLE, [NAN, OTHER_NAN, np.float64("nan")], NAN),
        (INSTANT, [HALF_PAST_ONE, THE_SAME_IN_UTC, dt.datetime(2024, 11, 3, 6, 30)], THE_SAME_IN_UTC),
    ],
)
def test_keys_that_are_one_where_they_are_stored(
    kind: pa.DataType, keys: list[Any], stored: Any, table: bool
) -> None:
    passes = passes_of(kind, keys, table)
    for batch in range(1, 4):
        passes.run([event("a")])
        (entry,) = passes.memory.elements["seen"][A].values()
        assert (str(entry["k"]), entry["v"]) == (str(stored), batch * len(keys))


@pytest.mark.parametrize("table", [False, True])
def test_entries_that_a_former_version_wrote_of_one_key_become_one(table: bool) -> None:
    passes = passes_of(DOUBLE, [0.0], table)
    passes.memory.elements["seen"] = {
        A: {0: {"k": 1.0, "v": 7}, 1: {"k": -0.0, "v": 3}, 2: {"k": 0.0, "v": 5}}
    }
    passes.memory.rows[A] = {"n:seen": 3}
    passes.run([event("a")])
    assert passes.memory.elements["seen"][A] == {0: {"k": 1.0, "v": 7}, 2: {"k": 0.0, "v": 6}}
