"""The lookup of the keys that a pass touches, and of their existing rows.

Keys are found by a 64-bit hash. Keys with equal hashes are distinguished by comparing the keys, and each gets
its own ordinal. Equal hashes are rare by chance, but an attacker can choose any number of keys with the same
hash, and a seed for xxHash64 does not prevent that. Therefore the cost of a key must not grow with the number
of keys that share its hash.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import Unsupported
from holdfast.worker.arrays import comparable, comparable_key, numbers, same_cells, starts_of, whole
from holdfast.worker.interface import Elements
from holdfast.worker.state.layout import KEY_PREFIX, ROWS, Layout
from holdfast.worker.state.tables import Levels, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes, Places

# The size of elements as Python objects, as a multiple of their stored size.
_OBJECTS = 3
_IDENTITY_COLUMNS = ("h", "ord", "slot", "dead")


class Keys:
    """The keys of one pass, ordered by (h, ord), with their stored state.

    Attributes:
        size: The number of keys.
        keys: The key columns under the user's names.
        h: The hashes of the keys.
        ord: The ordinals of the keys.
        positions: Per stream, the index of each event's key.
        unstamped: For each state with a TTL, the hashes of elements that were read and have no timestamp.
        read_ns: The time spent reading columns and elements since the keys were found, in nanoseconds.
    """

    def __init__(
        self,
        layout: Layout,
        levels: Mapping[str, Levels],
        keys: pa.Table,
        identity: tuple[Hashes, NDArray[np.int32]],
        positions: Sequence[Places],
    ) -> None:
        self.keys = keys
        self.unstamped: dict[str, Hashes] = {}
        self.read_ns = 0
        self._layout = layout
        self.h, self.ord = identity
        self.positions = positions
        self._levels = levels
        self._found = levels[ROWS].find(self.h, self.ord)
        self._columns: dict[str, pa.Array] = {}
        self._elements: dict[str, Elements] = {}

    @property
    def size(self) -> int:
        """Return the number of keys."""
        return len(self.h)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Return a mask of the keys without a row."""
        return self._found.missing

    def stored(self, column: str) -> pa.Array:
        """Return a column of the row table, one cell per key; null for a key without a value."""
        if column not in self._columns:
            began = time.perf_counter_ns()
            self._columns[column] = self._found.column(column)
            self.read_ns += time.perf_counter_ns() - began
        return self._columns[column]

    def elements(self, state: str) -> Elements:
        """Return the live elements of a list or map state; the first call reads them from the store."""
        if state not in self._elements:
            began = time.perf_counter_ns()
            self._elements[state] = self._read(state)
            self.read_ns += time.perf_counter_ns() - began
        return self._elements[state]

    def _read(self, state: str) -> Elements:
        levels = self._levels[state]
        self._check_room(state, levels)
        run = levels.of_hashes(self.h if _unique(self.h) else np.unique(self.h))
        if len(run) and (run.ord.any() or self.ord.any()):
            place = {
                (int(h), int(ordinal)): at
                for at, (h, ordinal) in enumerate(zip(self.h, self.ord, strict=True))
            }
            of = np.array([place.get((int(h), int(o)), -1) for h, o in zip(run.h, run.ord, strict=True)])
            run, of = run.take(of >= 0), of[of >= 0]
            starts = np.searchsorted(of, np.arange(self.size + 1))
        else:
            starts = np.append(np.searchsorted(run.h, self.h), len(run))
        if "t" in levels.schema.names and run.column("t").null_count:
            self.unstamped[state] = run.h[numbers(run.column("t").is_null())]
        names = [name for name in levels.schema.names if name not in _IDENTITY_COLUMNS or name == "slot"]
        table = pa.Table.from_batches([run.batch.select(names)])
        return Elements(starts.astype(np.int64), table)

    def _check_room(self, state: str, levels: Levels) -> None:
        """Raise an error if the elements of a state do not fit in a worker's memory."""
        sizes = levels.bytes_of(np.unique(self.h))
        if sizes.sum() * _OBJECTS <= self._layout.memory_bytes:
            return
        largest = int(np.searchsorted(self.h, np.unique(self.h)[sizes.argmax()]))
        key = ", ".join(
            f"{name}={self.keys.column(name)[largest].as_py()!r}" for name in self.keys.column_names
        )
        raise Unsupported(
            "a list or map does not fit in the worker's memory",
            code="HF-E7122",
            where=f"operator {self._layout.operator}, state {state}, {key}",
            found=f"about {sizes.sum() / (1 << 20):.0f} MiB of elements, most of them of this key",
            expected=f"at most {self._layout.memory_bytes / _OBJECTS / (1 << 20):.0f} MiB",
            hint="raise process(…, memory=…), let elements expire with a TTL, or append without reading",
        )


def resolve(
    layout: Layout, levels: Mapping[str, Levels], streams: Sequence[tuple[Hashes, pa.Table]], due: Run
) -> Keys:
    """Return the keys of a pass: the keys of all events, and the keys with a due timer.

    Args:
        layout: The layout of the operator's state.
        levels: The tables by name.
        streams: The hash of each event and its key columns, per stream.
        due: The due rows of the table of keys.
    """
    rows, names = levels[ROWS], layout.key_names
    due_keys = pa.Table.from_arrays(
        [due.column(f"{KEY_PREFIX}{at}") for at in range(len(names))], names=list(names)
    )
    h = np.concatenate([hashes for hashes, _ in streams] + [due.h])
    # The schema of a stream may declare a column or a part of it NOT NULL; stored columns are always
    # nullable.
    alike = [
        keys if keys.schema.equals(due_keys.schema) else keys.cast(due_keys.schema) for _, keys in streams
    ]
    table = pa.concat_tables([*alike, due_keys]).combine_chunks()
    order = np.argsort(h, kind="stable")
    ordered = h[order]
    starts = starts_of(ordered)
    position = np.empty(len(h), np.int64)
    position[order] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(h))))
    first = order[starts]
    unique = ordered[starts]
    ordinals = np.zeros(len(unique), np.int32)
    shared = _shared(rows, table, first, position, unique, due)
    if shared.any():
        first, ordinals, position = _separate(rows, table, h, unique, first, position, shared)
        unique = h[first]
    keys = table.take(pa.array(first))
    bounds = np.cumsum([len(hashes) for hashes, _ in streams])
    positions = np.split(position, bounds)[: len(streams)]
    return Keys(layout, levels, keys, (unique, ordinals), positions)


def _shared(
    rows: Levels, table: pa.Table, first: Places, position: Places, unique: Hashes, due: Run
) -> NDArray[np.bool_]:
    """Return a mask of the hashes that belong to more than one key, among the events or in the state."""
    shared = np.zeros(len(unique), np.bool_)
    for column in table.columns:
        same = same_keys(column, column.take(pa.array(first[position])))
        if not same.all():
            shared[position[~same]] = True
    stored = rows.find(unique, np.zeros(len(unique), np.int32))
    here = np.flatnonzero(~stored.missing)
    if len(here):
        chosen = pa.array(first[here])
        for at, column in enumerate(table.columns):
            same = same_keys(column.take(chosen), stored.column(f"{KEY_PREFIX}{at}").take(pa.array(here)))
            shared[here[~same]] = True
    if due.ord.any() or not all(run.zero for run in rows.runs()):
        several = np.concatenate([run.h[run.ord > 0] for run in rows.runs()] + [due.h[due.ord > 0]])
        shared |= np.isin(unique, several)
    return shared


def _separate(
    rows: Levels,
    table: pa.Table,
    h: Hashes,
    unique: Hashes,
    first: Places,
    position: Places,
    shared: NDArray[np.bool_],
) -> tuple[Places, NDArray[np.int32], Places]:
    """Assign an ordinal to each key of a shared hash: the stored one, or the next free one."""
    taken: dict[int, KeyOrdinals] = {}
    run = rows.of_hashes(unique[shared])
    columns = [run.column(f"{KEY_PREFIX}{at}").to_pylist() for at in range(table.num_columns)]
    for h_of, ordinal, *known in zip(run.h.tolist(), run.ord.tolist(), *columns, strict=True):
        taken.setdefault(h_of, KeyOrdinals()).add(known, ordinal)
    # The rows of each key, by hash and ordinal.
    places: dict[tuple[int, int], list[int]] = {}
    at_shared = np.flatnonzero(shared[position])
    some = table.take(pa.array(at_shared))
    cells_of = zip(*(column.to_pylist() for column in some.columns), strict=True)
    for at, h_of, cells in zip(at_shared.tolist(), h[at_shared].tolist(), cells_of, strict=True):
        ordinal = taken.setdefault(h_of, KeyOrdinals()).of(cells)
        places.setdefault((h_of, ordinal), []).append(at)
    own = np.flatnonzero(~shared)
    firsts = np.concatenate([first[own], np.array([members[0] for members in places.values()], np.int64)])
    all_ordinals = np.concatenate(
        [np.zeros(len(own), np.int32), np.array([ordinal for _, ordinal in places], np.int32)]
    )
    order = np.lexsort((all_ordinals, h[firsts]))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    of_hash = np.full(len(unique), -1, np.int64)
    of_hash[own] = rank[: len(own)]
    moved = of_hash[position]
    for number, members in enumerate(places.values(), len(own)):
        moved[members] = rank[number]
    return firsts[order], all_ordinals[order], moved


class KeyOrdinals:
    """The ordinals of the keys that share one hash."""

    __slots__ = ("_by_cells", "_by_key", "_free", "_taken")

    def __init__(self) -> None:
        self._by_key: dict[tuple[Hashable, ...], int] = {}
        # State of earlier versions may have two keys that differ in the sign of a zero: each keeps its row.
        self._by_cells: dict[str, int] = {}
        self._taken: set[int] = set()
        self._free = 0

    def add(self, cells: Sequence[Any], ordinal: int) -> None:
        """Register a stored key, given by the cells of its columns."""
        self._by_cells[repr(tuple(cells))] = ordinal
        self._by_key.setdefault(comparable_key(cells), ordinal)
        self._taken.add(ordinal)

    def find(self, cells: Sequence[Any]) -> int | None:
        """Return the ordinal of a key, or None."""
        ordinal = self._by_key.get(comparable_key(cells))
        return None if ordinal is None else self._by_cells.get(repr(tuple(cells)), ordinal)

    def of(self, cells: Sequence[Any]) -> int:
        """Return the ordinal of a key; a new key gets the lowest free ordinal."""
        ordinal = self.find(cells)
        if ordinal is None:
            while self._free in self._taken:
                self._free += 1
            ordinal = self._free
            self.add(cells, ordinal)
        return ordinal


def same_keys(left: pa.ChunkedArray | pa.Array, right: pa.ChunkedArray | pa.Array) -> NDArray[np.bool_]:
    """Return a mask of cells with equal keys: null equals null, NaN equals NaN, and 0.0 equals -0.0."""
    left, right = whole(left), whole(right)
    if not left.null_count and not right.null_count and pa.types.is_integer(left.type):
        return np.asarray(numbers(left) == numbers(right))
    if pa.types.is_nested(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.array([comparable(one) == comparable(other) for one, other in pairs], np.bool_)
    same = same_cells(left, right)
    if pa.types.is_floating(left.type):
        same |= numbers(pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    return same


def _unique(h: Hashes) -> bool:
    return bool((h[1:] != h[:-1]).all()) if len(h) > 1 else True
