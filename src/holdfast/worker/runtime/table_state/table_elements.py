"""Lists and maps of many keys at once: what `state.basket` is in `on_batch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.arrays import first_rows, last_rows, latest, offsets_of, placed, starts_of, whole
from holdfast.worker.declarations.state_descriptors import State
from holdfast.worker.interface import SLOT_PREFIX, Moment, Touched
from holdfast.worker.runtime.table_state.vectors import arrow_of, mask_of, numbers_of
from holdfast.worker.runtime.ttl import Clocks, Rule, rule_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.runtime.table_state.table_columns import View
    from holdfast.worker.runtime.table_state.vectors import Mask, Positions


class Pool:
    """All elements of one list or map that a pass knows of, in no order.

    Stored ones are read when somebody asks for them; appending to a list does not. A row that was never
    stored and is dead leaves no trace.
    """

    def __init__(self, state: State, clocks: Clocks) -> None:
        self.state = state
        self.rule: Rule | None = rule_of(state, clocks)
        self._touched: Touched | None = None

    def begin(self, touched: Touched, moment: Moment) -> None:
        """Start a pass."""
        self._touched = touched
        self._loaded = False
        self._next: NDArray[np.int64] | None = None
        self._wrote = np.zeros(touched.size, np.bool_)
        self.position: Positions = np.zeros(0, np.int64)
        self.slot: Positions = np.zeros(0, np.int64)
        self.live: Mask = np.zeros(0, np.bool_)
        self.stored: Mask = np.zeros(0, np.bool_)
        self.dirty: Mask = np.zeros(0, np.bool_)
        self.t: NDArray[np.int64] = np.zeros(0, np.int64)
        self.k: pa.Array | None = None if self.state.key_type is None else pa.array([], self.state.key_type)
        self.v: pa.Array = pa.array([], self.state.type)
        if self.rule is not None:
            self.rule.begin(moment)

    def load(self) -> None:
        """Have the stored elements among the rows, before those of this pass."""
        if self._loaded or self._touched is None:
            return
        self._loaded = True
        elements = self._touched.elements(self.state.name)
        rows, count = elements.rows, elements.rows.num_rows
        position = np.repeat(np.arange(self._touched.size), np.diff(elements.starts))
        self.position = np.concatenate([position, self.position])
        self.slot = np.concatenate([numbers_of(whole(rows.column("slot"))), self.slot])
        self.live = np.concatenate([np.ones(count, np.bool_), self.live])
        self.stored = np.concatenate([np.ones(count, np.bool_), self.stored])
        self.dirty = np.concatenate([np.zeros(count, np.bool_), self.dirty])
        stamps = np.zeros(count, np.int64)
        if self.rule is not None:
            stamps = numbers_of(whole(rows.column("t")).fill_null(self.rule.origin))
        self.t = np.concatenate([stamps, self.t])
        self.v = pa.concat_arrays([whole(rows.column("v")), self.v])
        if self.k is not None:
            self.k = pa.concat_arrays([whole(rows.column("k")), self.k])

    def append(
        self, position: Positions, values: pa.Array, keys: pa.Array | None, stamps: NDArray[np.int64] | int
    ) -> None:
        """Add elements; those of one key get slots in the order in which they are given."""
        count = len(position)
        if not count or self._touched is None:
            return
        if self._next is None:
            self._next = numbers_of(whole(self._touched.stored(f"{SLOT_PREFIX}{self.state.name}"))).copy()
        order = np.argsort(position, kind="stable")
        ordered = position[order]
        starts = starts_of(ordered)
        rank = np.arange(count) - np.repeat(starts, np.diff(np.append(starts, count)))
        slot = np.empty(count, np.int64)
        slot[order] = self._next[ordered] + rank
        np.add.at(self._next, position, 1)
        self._wrote[position] = True
        self.position = np.concatenate([self.position, position])
        self.slot = np.concatenate([self.slot, slot])
        self.live = np.concatenate([self.live, np.ones(count, np.bool_)])
        self.stored = np.concatenate([self.stored, np.zeros(count, np.bool_)])
        self.dirty = np.concatenate([self.dirty, np.ones(count, np.bool_)])
        self.t = np.concatenate([self.t, np.broadcast_to(np.asarray(stamps, np.int64), count)])
        self.v = pa.concat_arrays([self.v, values])
        if self.k is not None and keys is not None:
            self.k = pa.concat_arrays([self.k, keys])

    def remove(self, rows: Mask) -> None:
        """Remove elements."""
        self.live &= ~rows

    def columns(self) -> dict[str, pa.Array]:
        """The next slots, if they changed; null where nothing is left."""
        gone = self.stored & ~self.live
        if self._touched is None or not (gone.any() or self._wrote.any()):
            return {}
        name = f"{SLOT_PREFIX}{self.state.name}"
        stored = whole(self._touched.stored(name))
        following = self._next if self._next is not None else numbers_of(stored)
        changed = self._wrote.copy()
        changed[self.position[gone]] = True
        left = np.zeros(len(changed), np.bool_)
        left[self.position[self.live]] = True
        # Whoever only appended did not read what is stored, and there is something now in any case.
        at = np.flatnonzero(changed)
        return {name: placed(stored, at, pa.array(following[at], mask=~left[at]))}

    def elements(self) -> pa.Table | None:
        """The writes to the side table, or None where there are none."""
        dead = self.stored & ~self.live
        rows = np.flatnonzero(dead | (self.dirty & self.live))
        if not len(rows):
            return None
        at, gone = pa.array(rows), pa.array(dead[rows])
        columns = {"position": pa.array(self.position[rows]), "slot": pa.array(self.slot[rows]), "dead": gone}
        if self.k is not None:
            columns["k"] = self.k.take(at)
        columns["v"] = self.v.take(pa.array(rows, mask=dead[rows]))
        if self.rule is not None:
            columns["t"] = pa.array(self.t[rows], mask=dead[rows])
        return pa.table(columns)


class ElementsColumn:
    """What the columns of lists and maps have in common."""

    def __init__(self, pool: Pool, view: View) -> None:
        self._pool = pool
        self._view = view
        self._where = f"state {pool.state.name}"

    def clear(self, where: Any = None) -> None:
        """Empty the lists or maps of the keys that a mask says; of all keys without one."""
        mask = mask_of(where, self._view.size, self._where)
        self._pool.load()
        chosen = self._mine()
        if mask is not None:
            chosen &= np.append(mask, False)[self._local()]
        self._pool.remove(chosen)

    def _local(self) -> Positions:
        """Which of the view's keys each element belongs to; the number of keys where to none."""
        view, position = self._view, self._pool.position
        if view.keys is None:
            return position
        at = np.minimum(np.searchsorted(view.keys, position), view.size - 1)
        return np.where(view.keys[at] == position, at, view.size)

    def _mine(self) -> Mask:
        """Which elements are live and of the view's keys."""
        mine: Mask = self._pool.live & (self._local() < self._view.size)
        return mine

    def _read(self) -> Mask:
        """Say which of the view's elements are shown, with all that reading does to them."""
        pool = self._pool
        pool.load()
        mine, rule = self._mine(), pool.rule
        if rule is None:
            return mine
        alive = mine & ~(pool.t <= rule.cutoff)
        pool.remove(mine & ~alive & self._leaves(alive, rule))
        if rule.refreshes and alive.any():
            now: NDArray[np.int64] | int = rule.clock.stamp
            if rule.event:
                times = np.append(np.broadcast_to(np.asarray(self._view.key_times), self._view.size), 0)
                now = np.maximum(pool.t, times[self._local()])
            pool.t = np.where(alive, now, pool.t)
            pool.dirty |= alive
        return mine if rule.shows_expired else alive

    def _leaves(self, alive: Mask, rule: Rule) -> Mask:  # noqa: ARG002 - lists ask for the rule
        """Which elements reading takes out once they have expired."""
        return np.ones(len(alive), np.bool_)

    def _row_now(self, mask: Mask | None) -> NDArray[np.int64] | int:
        """The stamps of what is written for each row."""
        rule = self._pool.rule
        if rule is None or not rule.event:
            return rule.clock.stamp if rule is not None else 0
        times = self._view.row_times
        return times if isinstance(times, int) or mask is None else times[mask]

    def _ordered(self, rows: Mask) -> tuple[pa.Array, pa.Array]:
        """Give offsets by key, and the places of the elements by key and slot."""
        at = np.flatnonzero(rows)
        local = self._local()[at]
        order = np.lexsort((self._pool.slot[at], local))
        counts = np.bincount(local, minlength=self._view.size)
        return pa.array(offsets_of(counts), pa.int32()), pa.array(at[order])


class ListColumn(ElementsColumn):
    """A list of each key."""

    def append(self, values: Any, where: Any = None) -> None:
        """Add a value of each event to its key's list, or of the events that a mask says."""
        rows = len(self._view.position)
        column = arrow_of(values, self._pool.state.type, rows, self._where)
        mask = mask_of(where, rows, self._where)
        position = self._view.whole_positions(self._view.position)
        if mask is not None:
            column, position = column.filter(pa.array(mask)), position[mask]
        self._pool.append(position, column, None, self._row_now(mask))

    def get(self) -> pa.Array:
        """Give the lists of all keys as an Arrow array of lists."""
        pool = self._pool
        offsets, at = self._ordered(self._read())
        return pa.ListArray.from_arrays(offsets, pool.v.take(at), pa.list_(pool.state.type))

    def _leaves(self, alive: Mask, rule: Rule) -> Mask:
        """Those of lists of which none is alive or that are written anew, as in `ttl.read_list` for one."""
        local = self._local()
        any_alive = np.zeros(self._view.size + 1, np.bool_)
        any_alive[local[alive]] = True
        leaves: Mask = ~any_alive[local] | rule.refreshes
        return leaves


class MapColumn(ElementsColumn):
    """A map of each key."""

    def put(self, keys: Any, values: Any, where: Any = None) -> None:
        """Set an entry for each event, or for those that a mask says; of several the last one stays.

        Raises:
            Invalid: A key of an entry is null, or an array does not fit.
        """
        pool, rows = self._pool, len(self._view.position)
        k = arrow_of(keys, pool.state.key_type, rows, f"{self._where}, keys")
        v = arrow_of(values, pool.state.type, rows, f"{self._where}, values")
        mask = mask_of(where, rows, self._where)
        position = self._view.whole_positions(self._view.position)
        stamps = np.broadcast_to(
            np.asarray(self._row_now(mask), np.int64), rows if mask is None else mask.sum()
        )
        if mask is not None:
            k, v, position = k.filter(pa.array(mask)), v.filter(pa.array(mask)), position[mask]
        k = _as_stored(k)
        if k.null_count:
            raise Invalid(
                "a map has no entry for null",
                where=f"{self._where}, keys",
                hint=f"leave such events out: state.{pool.state.name}.put(keys, values, where=mask)",
            )
        if not len(position):
            return
        pool.load()
        known, group = self._grouped(position, k)
        groups = int(group.max()) + 1
        first, last = first_rows(group, groups), last_rows(group, groups)
        newest = latest(group, stamps, groups)
        owner = known[first]
        old, new = np.flatnonzero(owner >= 0), np.flatnonzero(owner < 0)
        pool.v = placed(pool.v, owner[old], v.take(pa.array(last[old])))
        pool.dirty[owner[old]] = True
        if pool.rule is not None:
            before = pool.t[owner[old]]
            pool.t[owner[old]] = np.maximum(before, newest[old]) if pool.rule.event else stamps[last[old]]
        new = new[np.argsort(first[new], kind="stable")]
        at = pa.array(last[new])
        pool.append(position[first[new]], v.take(at), k.take(at), newest[new])

    def get(self) -> pa.Array:
        """Give the maps of all keys as an Arrow array of maps."""
        pool = self._pool
        offsets, at = self._ordered(self._read())
        kind = pa.map_(pool.state.key_type, pool.state.type)
        keys = pool.k.take(at) if pool.k is not None else None
        return pa.MapArray.from_arrays(offsets, keys, pool.v.take(at), kind)

    def _grouped(self, position: Positions, keys: pa.Array) -> tuple[Positions, Positions]:
        """Give for each new entry the live element of its key and entry, or -1, and a number of the two."""
        pool = self._pool
        at = np.flatnonzero(pool.live)
        held = _as_stored(pool.k.take(pa.array(at))) if pool.k is not None else keys.slice(0, 0)
        codes = pa.concat_arrays([held, keys]).dictionary_encode()
        ids = np.concatenate([pool.position[at], position]) * (len(codes.dictionary) + 1)
        ids += codes.indices.to_numpy(zero_copy_only=False)
        _, numbered = np.unique(ids, return_inverse=True)
        owner = np.full(int(numbered.max()) + 1, -1)
        owner[numbered[: len(at)]] = at
        pool.live[at[owner[numbered[: len(at)]] != at]] = False  # entries of one key, of former versions
        mine = numbered[len(at) :]
        _, group = np.unique(mine, return_inverse=True)
        return owner[mine], group


def _as_stored(keys: pa.Array) -> pa.Array:
    """Keys of which equal ones have the same bits: NaN is itself, and there is no -0.0."""
    if not kinds.is_floating(keys.type):
        return keys
    nan, zero = pa.scalar(float("nan"), keys.type), pa.scalar(0.0, keys.type)
    return pc.if_else(pc.is_nan(keys), nan, pc.add(keys, zero))
