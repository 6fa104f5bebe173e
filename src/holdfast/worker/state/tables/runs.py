"""Rows sorted by identity, as immutable Arrow batches: the stuff that state is made of.

A row's identity is (`h`, `ord`, `slot`): the hash of its key, an ordinal that tells apart two keys with
one hash, and in the table of a list or a map the place of the element. Newer rows replace older ones of
the same identity; a row that is `dead` marks one that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import Unsupported
from holdfast.worker.arrays import numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes, Places

    Mask = NDArray[np.bool_]


class Run:
    """A batch of rows in the order of their identities, each identity once."""

    __slots__ = ("batch", "h", "ord", "slot", "zero")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.h: Hashes = numbers(batch.column(batch.schema.get_field_index("h")))
        self.ord: NDArray[np.int32] = numbers(batch.column(batch.schema.get_field_index("ord")))
        slot = batch.schema.get_field_index("slot")
        self.slot: Places | None = None if slot < 0 else numbers(batch.column(slot))
        # Without slots and without two keys of one hash, the hash alone is the identity.
        self.zero = self.slot is None and not self.ord.any()

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> pa.Array:
        """A column by name."""
        return self.batch.column(self.batch.schema.get_field_index(name))

    def take(self, places: Places | Mask) -> Run:
        """The rows at these places, or where a mask says so, which must keep the order."""
        if places.dtype == np.bool_:
            if places.all():
                return self
            places = np.flatnonzero(places)
        return Run(self.batch.take(pa.array(places)))

    def slice(self, start: int, stop: int) -> Run:
        """The rows from start to stop, without copying."""
        return Run(self.batch.slice(start, stop - start))

    def between(self, low: int, high: int | None) -> tuple[int, int]:
        """Where the rows with low <= h < high begin and end; None is past the last."""
        start = int(np.searchsorted(self.h, np.uint64(low)))
        stop = len(self.h) if high is None else int(np.searchsorted(self.h, np.uint64(high)))
        return start, stop

    def alive(self) -> Run:
        """The rows that are not marked as gone."""
        dead = numbers(self.column("dead"))
        return self.take(~dead) if dead.any() else self

    def find(self, h: Hashes, ordinal: NDArray[np.int32]) -> Places:
        """Where each key's row is, or -1; only in a table of one row a key."""
        if not len(self):
            return np.full(len(h), -1, np.int64)
        if not self.zero or ordinal.any():
            return self._search(h, lambda at: (self.ord[at] < ordinal, self.ord[at] == ordinal))
        places = np.searchsorted(self.h, h).astype(np.int64)
        inside = places < len(self)
        inside[inside] = self.h[places[inside]] == h[inside]
        places[~inside] = -1
        return places

    def find_elements(self, wanted: Run) -> Places:
        """Where the elements of another run are, by their identities, or -1; only in a table with slots."""
        slot, other = self.slot, wanted.slot
        if slot is None or other is None:
            raise ValueError("a table without slots has no elements")

        def compare(at: Places) -> tuple[Mask, Mask]:
            same = self.ord[at] == wanted.ord
            return (self.ord[at] < wanted.ord) | (same & (slot[at] < other)), same & (slot[at] == other)

        return self._search(wanted.h, compare)

    def _search(self, h: Hashes, compare: Callable[[Places], tuple[Mask, Mask]]) -> Places:
        """Find rows by hash and by what is compared within it, by halves: the place of each, or -1.

        Args:
            h: The hash of each row that is wanted.
            compare: Returns for a place per wanted row whether its row comes before the wanted one, and
                whether it is the wanted one.
        """
        low = np.searchsorted(self.h, h, side="left").astype(np.int64)
        high = np.searchsorted(self.h, h, side="right").astype(np.int64)
        last = high.copy()
        while (unsure := low < high).any():
            middle = np.where(unsure, (low + high) // 2, 0)
            before, _ = compare(middle)
            low = np.where(unsure & before, middle + 1, low)
            high = np.where(unsure & ~before, middle, high)
        inside = low < last
        _, same = compare(np.where(inside, low, 0))
        return np.where(inside & same, low, -1)

    def of_hashes(self, h: Hashes) -> Places:
        """The places of all rows whose hash is one of `h`, which is sorted and has no repeats."""
        starts = np.searchsorted(self.h, h, side="left")
        stops = np.searchsorted(self.h, h, side="right")
        return spans(starts, stops - starts)


def spans(starts: NDArray[Any], counts: NDArray[Any]) -> Places:
    """The places start, start + 1, … of every span, one after the other."""
    total = int(counts.sum())
    ends = np.cumsum(counts)
    offsets = np.repeat(starts - (ends - counts), counts)
    return np.asarray(np.arange(total) + offsets, np.int64)


def empty_run(schema: pa.Schema) -> Run:
    """No rows."""
    return Run(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema))


def sorted_run(batch: pa.RecordBatch) -> Run:
    """Rows in any order, each identity once or more: the last of an identity stays."""
    run = Run(batch)
    if len(run) < 2:
        return run
    if run.zero:
        order = np.argsort(run.h, kind="stable")
        ordered = run.h[order]
        last = np.append(ordered[1:] != ordered[:-1], True)
    else:
        keys: tuple[NDArray[Any], ...] = (run.ord, run.h) if run.slot is None else (run.slot, run.ord, run.h)
        order = np.lexsort(keys)
        differs = np.zeros(len(run) - 1, np.bool_)
        for key in keys:
            ordered = key[order]
            differs |= ordered[1:] != ordered[:-1]
        last = np.append(differs, True)
    places = order[last]
    if len(places) == len(run) and (np.diff(places) == 1).all():
        return run
    return Run(batch.take(pa.array(places)))


def merged(old: Run, new: Run) -> Run:
    """Both runs as one; where both have an identity, the new row stays."""
    if not len(old):
        return new
    if not len(new):
        return old
    both = concatenated([old.batch, new.batch])
    if not (old.zero and new.zero):
        return sorted_run(both)
    places = np.searchsorted(old.h, new.h)
    inside = places < len(old)
    inside[inside] = old.h[places[inside]] == new.h[inside]
    if inside.all() and len(new) == len(old):
        return new
    keep = np.ones(len(old), np.bool_)
    keep[places[inside]] = False
    kept = np.flatnonzero(keep)
    at = np.searchsorted(old.h[kept], new.h) + np.arange(len(new))
    order = np.empty(len(kept) + len(new), np.int64)
    is_new = np.zeros(len(order), np.bool_)
    is_new[at] = True
    order[is_new] = len(old) + np.arange(len(new))
    order[~is_new] = kept
    return Run(both.take(pa.array(order)))


def united(runs: Sequence[Run], schema: pa.Schema) -> Run:
    """Runs that may hold the same rows, as one; of an identity the last row stays."""
    if len(runs) > 1:
        return sorted_run(concatenated([run.batch for run in runs]))
    return joined(runs, schema)


def joined(runs: Sequence[Run], schema: pa.Schema) -> Run:
    """Runs whose ranges follow one another, as one."""
    filled = [run for run in runs if len(run)]
    if not filled:
        return empty_run(schema)
    if len(filled) == 1:
        return filled[0]
    return Run(concatenated([run.batch for run in filled]))


def concatenated(parts: Sequence[Any]) -> Any:
    """Return arrays or record batches as one.

    Raises:
        Unsupported: A column has more than 2 GiB, which Arrow cannot address.
    """
    if len(parts) == 1:
        return parts[0]
    try:
        return pa.concat_batches(parts) if isinstance(parts[0], pa.RecordBatch) else pa.concat_arrays(parts)
    except pa.ArrowInvalid as error:
        raise Unsupported(
            "rows of keyed state that are needed together have more than 2 GiB in one column",
            found=f"{sum(map(len, parts)):,} rows of {sum(part.nbytes for part in parts) >> 20:,} MiB",
            hint="make values smaller, give elements a TTL, or use more key groups with a new checkpoint",
        ) from error
