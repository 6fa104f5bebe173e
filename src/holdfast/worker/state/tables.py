"""Tables of state: sorted runs, segments, and levels of recent rows.

A row's identity is (`h`, `ord`, `slot`): the hash of its key, an ordinal that distinguishes keys with the
same hash, and, in the table of a list or a map, the slot of the element. Newer rows replace older ones with
the same identity; a `dead` row marks a deletion.

Rows are added in batches and looked up by key. The newest row is current: rows of the tail replace settled
rows. Each batch merges into the settled rows the part of the tail that is large relative to its segment, up
to a limit, so that no single batch rewrites all rows. All data is immutable: a batch adds new runs and keeps
the old ones, so that runs can be files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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
    """A batch of rows ordered by identity; each identity occurs once."""

    __slots__ = ("batch", "h", "ord", "slot", "zero")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.h: Hashes = numbers(batch.column(batch.schema.get_field_index("h")))
        self.ord: NDArray[np.int32] = numbers(batch.column(batch.schema.get_field_index("ord")))
        slot = batch.schema.get_field_index("slot")
        self.slot: Places | None = None if slot < 0 else numbers(batch.column(slot))
        # If there are no slots and no two keys with the same hash, the hash alone is the identity.
        self.zero = self.slot is None and not self.ord.any()

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, name: str) -> pa.Array:
        """Return the column with this name."""
        return self.batch.column(self.batch.schema.get_field_index(name))

    def take(self, places: Places | Mask) -> Run:
        """Return the rows at these indices or in a mask, which must be in ascending order."""
        if places.dtype == np.bool_:
            if places.all():
                return self
            places = np.flatnonzero(places)
        return Run(self.batch.take(pa.array(places)))

    def slice(self, start: int, stop: int) -> Run:
        """Return the rows from start to stop, without copying."""
        return Run(self.batch.slice(start, stop - start))

    def between(self, low: int, high: int | None) -> tuple[int, int]:
        """Return the start and stop index of the rows with low <= h < high; None means no upper limit."""
        start = int(np.searchsorted(self.h, np.uint64(low)))
        stop = len(self.h) if high is None else int(np.searchsorted(self.h, np.uint64(high)))
        return start, stop

    def alive(self) -> Run:
        """Return the rows that are not marked as deleted."""
        dead = numbers(self.column("dead"))
        return self.take(~dead) if dead.any() else self

    def find(self, h: Hashes, ordinal: NDArray[np.int32]) -> Places:
        """Return the index of each key's row, or -1; valid only for a table with one row per key."""
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
        """Return the index of each element of a run by identity, or -1; valid only for a table with slots."""
        slot, other = self.slot, wanted.slot
        if slot is None or other is None:
            raise ValueError("a table without slots has no elements")

        def compare(at: Places) -> tuple[Mask, Mask]:
            same = self.ord[at] == wanted.ord
            return (self.ord[at] < wanted.ord) | (same & (slot[at] < other)), same & (slot[at] == other)

        return self._search(wanted.h, compare)

    def _search(self, h: Hashes, compare: Callable[[Places], tuple[Mask, Mask]]) -> Places:
        """Return the index of each wanted row by binary search, or -1.

        Args:
            h: The hash of each wanted row.
            compare: Takes an index for each wanted row; returns a mask of the rows that come before the
                wanted row, and a mask of those equal to it.
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
        """Return the indices of all rows with a hash in `h`, which is sorted and has no duplicates."""
        starts = np.searchsorted(self.h, h, side="left")
        stops = np.searchsorted(self.h, h, side="right")
        return spans(starts, stops - starts)


def spans(starts: NDArray[Any], counts: NDArray[Any]) -> Places:
    """Return the indices start, start + 1, … of all ranges, concatenated."""
    total = int(counts.sum())
    ends = np.cumsum(counts)
    offsets = np.repeat(starts - (ends - counts), counts)
    return np.asarray(np.arange(total) + offsets, np.int64)


def empty_run(schema: pa.Schema) -> Run:
    """Return a run without rows, with this schema."""
    return Run(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema))


def sorted_run(batch: pa.RecordBatch) -> Run:
    """Sort rows into a run; of rows with the same identity, the last one is kept."""
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
    """Merge two runs; of two rows with the same identity, the newer one is kept."""
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
    """Merge runs that may have the same identities; the last row of each identity is kept."""
    if len(runs) > 1:
        return sorted_run(concatenated([run.batch for run in runs]))
    return joined(runs, schema)


def joined(runs: Sequence[Run], schema: pa.Schema) -> Run:
    """Join consecutive runs into one."""
    filled = [run for run in runs if len(run)]
    if not filled:
        return empty_run(schema)
    if len(filled) == 1:
        return filled[0]
    return Run(concatenated([run.batch for run in filled]))


def concatenated(parts: Sequence[Any]) -> Any:
    """Concatenate arrays or record batches.

    Raises:
        Unsupported: A column has more than 2 GiB, the maximum of an Arrow array.
    """
    if len(parts) == 1:
        return parts[0]
    try:
        return pa.concat_batches(parts) if isinstance(parts[0], pa.RecordBatch) else pa.concat_arrays(parts)
    except pa.ArrowInvalid as error:
        raise Unsupported(
            "keyed state rows exceed 2 GiB in one column",
            code="HF-E7124",
            found=f"{sum(map(len, parts)):,} rows of {sum(part.nbytes for part in parts) >> 20:,} MiB",
            hint="make values smaller, give elements a TTL, or use more key groups with a new checkpoint",
        ) from error


# A segment of this many rows is searched and copied in a few milliseconds; larger ones are split …
SEGMENT_ROWS = 1 << 16
# … and so are segments of this many bytes: a column of an Arrow array has at most 2 GiB.
SEGMENT_BYTES = 64 << 20
# Neighbouring segments are joined if their common size is at most a segment's divided by this.
_SMALL = 4


@dataclass(slots=True)
class Segment:
    """The rows of one range of hashes, from `low` up to the start of the next segment."""

    low: int
    run: Run


class Segments:
    """One level of a table: segments with consecutive ranges, the first starting at 0."""

    __slots__ = ("parts", "schema")

    def __init__(self, schema: pa.Schema, parts: Sequence[Segment] = ()) -> None:
        self.schema = schema
        self.parts = list(parts) or [Segment(0, empty_run(schema))]

    def __len__(self) -> int:
        return sum(len(segment.run) for segment in self.parts)

    def __iter__(self) -> Iterator[Run]:
        return (segment.run for segment in self.parts)

    @property
    def lows(self) -> Hashes:
        """Return the start of each segment's range."""
        return np.array([segment.low for segment in self.parts], np.uint64)

    def ranges(self) -> Iterator[tuple[Segment, int, int | None]]:
        """Yield each segment with the start and end of its range; the end of the last one is None."""
        for segment, following in zip(self.parts, [*self.parts[1:], None], strict=True):
            yield segment, segment.low, following.low if following is not None else None

    def shares(self, h: Hashes) -> Iterator[tuple[Run, int, int]]:
        """Yield the runs that may have some of these sorted hashes, each with the range of these hashes."""
        bounds = np.append(np.searchsorted(h, self.lows), len(h)).tolist()
        for segment, start, stop in zip(self.parts, bounds, bounds[1:], strict=False):
            if start < stop and len(segment.run):
                yield segment.run, start, stop

    def has(self, h: Hashes, ordinal: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return a mask of the keys with a row; `h` and `ordinal` are sorted, and the table has one row per
        key.
        """
        present = np.zeros(len(h), np.bool_)
        for run, start, stop in self.shares(h):
            present[start:stop] = run.find(h[start:stop], ordinal[start:stop]) >= 0
        return present

    def of_hashes(self, h: Hashes) -> Run:
        """Return all rows with a hash in `h`, which is sorted and has no duplicates."""
        runs = [run.take(run.of_hashes(h[start:stop])) for run, start, stop in self.shares(h)]
        return joined(runs, self.schema)

    def between(self, low: int, high: int | None) -> Run:
        """Return the rows with low <= h < high, in order."""
        runs = []
        for segment in self._over(low, high):
            start, stop = segment.run.between(low, high)
            if start < stop:
                runs.append(segment.run.slice(start, stop))
        return joined(runs, self.schema)

    def below(self, bounds: Hashes) -> NDArray[np.int64]:
        """Return the number of rows with a hash below each bound."""
        count = np.zeros(len(bounds), np.int64)
        for run in self:
            count += np.searchsorted(run.h, bounds)
        return count

    def put(self, run: Run) -> None:
        """Add rows; each replaces the row with the same identity."""
        self.parts = _fewer(with_rows(self.parts, run), self.schema)

    def pieces(self, low: int, high: int | None) -> Iterator[Run]:
        """Yield the rows with low <= h < high in order, in runs of about one segment's size."""
        together: list[Run] = []
        for segment in self._over(low, high):
            start, stop = segment.run.between(low, high)
            if start == stop:
                continue
            run = segment.run.slice(start, stop)
            if together and _exceeds([one.batch for one in (*together, run)], SEGMENT_BYTES):
                yield joined(together, self.schema)
                together = []
            together.append(run)
        if together:
            yield joined(together, self.schema)

    def append(self, run: Run) -> None:
        """Append rows that come after all existing rows."""
        if not len(run):
            return
        low = int(run.h[0])
        if not len(self.parts[-1].run):
            low = self.parts.pop().low
        self.parts.extend(divided(low, run))

    def drop(self, low: int, high: int | None) -> None:
        """Remove all rows with low <= h < high."""
        for segment in self._over(low, high):
            run = segment.run
            start, stop = run.between(low, high)
            if start < stop:
                segment.run = joined([run.slice(0, start), run.slice(stop, len(run))], self.schema)

    def tidy(self) -> None:
        """Join small neighbouring segments."""
        self.parts = _fewer(self.parts, self.schema)

    def _over(self, low: int, high: int | None) -> Iterator[Segment]:
        """Yield the segments whose range overlaps low <= h < high."""
        for segment, start, stop in self.ranges():
            if (stop is None or stop > low) and (high is None or start < high):
                yield segment


def with_rows(parts: Iterable[Segment], run: Run, *, alive: bool = False) -> list[Segment]:
    """Return segments with the rows of a run added, which replace rows with the same identity.

    Args:
        parts: The segments; the range of the first starts before all rows of the run.
        run: The rows.
        alive: Whether to remove rows marked as deleted from the changed segments.
    """
    before = list(parts)
    bounds = np.searchsorted(run.h, np.array([segment.low for segment in before], np.uint64))
    after: list[Segment] = []
    for segment, start, stop in zip(before, bounds.tolist(), [*bounds.tolist()[1:], len(run)], strict=True):
        if start == stop:
            after.append(segment)
            continue
        news = list(divided(segment.low, run.slice(start, stop)))
        for new, following in zip(news, [*news[1:], None], strict=True):
            old = segment.run
            if len(news) > 1:
                old = old.slice(*old.between(new.low, following.low if following is not None else None))
            rows = merged(old, new.run)
            after.extend(divided(new.low, rows.alive() if alive else rows))
    return after


def divided(low: int, run: Run) -> Iterator[Segment]:
    """Yield a run as one segment, or as several of half the maximum size if it is too large."""
    if len(run) <= SEGMENT_ROWS and not _exceeds([run.batch], SEGMENT_BYTES):
        yield Segment(low, run)
        return
    start = 0
    while start < len(run):
        stop = start + _rows_within(run.batch.slice(start, SEGMENT_ROWS // 2), SEGMENT_BYTES // 2)
        if stop < len(run):
            # Rows with the same hash stay in one segment.
            stop = int(np.searchsorted(run.h, run.h[stop - 1], side="right"))
        yield Segment(low if start == 0 else int(run.h[start]), run.slice(start, stop))
        start = stop


def pages(run: Run, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches with at most `rows` rows and a segment's bytes; a larger row gets its own batch."""
    start = 0
    while start < len(run):
        page = run.batch.slice(start, rows)
        page = page.slice(0, _rows_within(page, SEGMENT_BYTES))
        yield page
        start += page.num_rows


def oversized(batch: pa.RecordBatch) -> int | None:
    """Return the index of a row with more bytes than a segment may have, or None."""
    if not _exceeds([batch], SEGMENT_BYTES):
        return None
    if batch.num_rows == 1:
        return 0
    half = batch.num_rows // 2
    found = oversized(batch.slice(0, half))
    if found is None:
        found = oversized(batch.slice(half))
        return None if found is None else half + found
    return found


def _rows_within(batch: pa.RecordBatch, size: int) -> int:
    """Return the number of leading rows, at least one, with at most `size` bytes; found by halving."""
    rows = int(batch.num_rows)
    while rows > 1 and _exceeds([batch.slice(0, rows)], size):
        rows = (rows + 1) // 2
    return rows


def _fewer(parts: Iterable[Segment], schema: pa.Schema) -> list[Segment]:
    """Return the segments with small neighbours joined."""
    joined_parts: list[Segment] = []
    for segment in parts:
        before = joined_parts[-1] if joined_parts else None
        if before is not None and _small(before.run, segment.run):
            joined_parts[-1] = Segment(before.low, joined([before.run, segment.run], schema))
        else:
            joined_parts.append(segment)
    return joined_parts


def _small(one: Run, other: Run) -> bool:
    """Return whether two neighbouring runs are small enough to join, or one of them is empty."""
    if not len(one) or not len(other):
        return True
    if (len(one) + len(other)) * _SMALL > SEGMENT_ROWS:
        return False
    return not _exceeds([one.batch, other.batch], SEGMENT_BYTES // _SMALL)


def _exceeds(batches: Sequence[pa.RecordBatch], size: int) -> bool:
    """Return whether batches have more than `size` bytes in total."""
    # The buffers of a slice are those of the whole batch: fast to add up, and an upper bound.
    if sum(batch.get_total_buffer_size() for batch in batches) <= size:
        return False
    return bool(sum(batch.nbytes for batch in batches) > size)


# A part of the tail is settled when its rows reach this share of its segment's rows …
SHARE = 0.125
# … and each batch copies at most this many rows for it, but at least one segment …
SETTLE_ROWS = 6 * SEGMENT_ROWS
# … where a row counts as one row per this many bytes.
_ROW_BYTES = SEGMENT_BYTES // SEGMENT_ROWS


class Levels:
    """One table: its settled rows, and a tail of newer rows that replace settled ones."""

    def __init__(
        self, schema: pa.Schema, settled: Sequence[Segment] = (), tail: Sequence[Segment] = ()
    ) -> None:
        self.schema = schema
        self.settled = Segments(schema, settled)
        self.tail = Segments(schema, tail)

    def runs(self) -> Iterator[Run]:
        """Yield all runs, the tail first; of several rows with the same identity, the first is current."""
        yield from self.tail
        yield from self.settled

    @property
    def rows(self) -> int:
        """Return the number of rows; a settled row that was replaced in the tail counts separately."""
        return len(self.tail) + len(self.settled)

    def find(self, h: Hashes, ordinal: NDArray[np.int32]) -> Found:
        """Return the rows of keys sorted by (h, ord); valid only for a table with one row per key."""
        places = np.full(len(h), -1, np.int64)
        sources: list[tuple[Run, Places]] = []
        offset = 0
        for level in (self.tail, self.settled):
            for run, start, stop in level.shares(h):
                at = run.find(h[start:stop], ordinal[start:stop])
                at[places[start:stop] >= 0] = -1
                hits = np.flatnonzero(at >= 0)
                if len(hits):
                    sources.append((run, at[hits]))
                    places[hits + start] = offset + np.arange(len(hits))
                    offset += len(hits)
        return Found(self.schema, places, sources)

    def held(self, wanted: Run) -> tuple[NDArray[np.bool_], pa.Array | None]:
        """Return a mask of the live elements, and their timestamps; valid only for a table with slots."""
        seen = np.zeros(len(wanted), np.bool_)
        alive = np.zeros(len(wanted), np.bool_)
        stamps = np.full(len(wanted), _NEVER)
        timed = "t" in self.schema.names
        for level in (self.tail, self.settled):
            for run, start, stop in level.shares(wanted.h):
                at = run.find_elements(wanted.slice(start, stop))
                hits = np.flatnonzero((at >= 0) & ~seen[start:stop])
                if not len(hits):
                    continue
                places = pa.array(at[hits])
                seen[hits + start] = True
                alive[hits + start] = ~numbers(run.column("dead").take(places))
                if timed:
                    stamps[hits + start] = numbers(run.column("t").take(places).fill_null(_NEVER))
        return alive, pa.array(stamps) if timed else None

    def of_hashes(self, h: Hashes) -> Run:
        """Return all live rows with a hash in `h`, which is sorted and has no duplicates."""
        return merged(self.settled.of_hashes(h), self.tail.of_hashes(h)).alive()

    def bytes_of(self, h: Hashes) -> NDArray[np.float64]:
        """Estimate the bytes of the rows of each hash; `h` is sorted and has no duplicates."""
        sizes = np.zeros(len(h), np.float64)
        for run in self.runs():
            if len(run):
                count = np.searchsorted(run.h, h, side="right") - np.searchsorted(run.h, h, side="left")
                sizes += count * (run.batch.nbytes / len(run))
        return sizes

    def between(self, low: int, high: int | None) -> Run:
        """Return all live rows with low <= h < high, in order."""
        return merged(self.settled.between(low, high), self.tail.between(low, high)).alive()

    def put(self, batch: pa.RecordBatch) -> None:
        """Add rows in any order; each replaces the row with the same identity."""
        self.tail.put(sorted_run(batch))

    def extend(self, run: Run) -> None:
        """Append settled rows that come after all existing rows."""
        self.settled.append(run)

    def drop(self, low: int, high: int | None) -> None:
        """Remove all rows with low <= h < high."""
        self.settled.drop(low, high)
        self.tail.drop(low, high)

    def settle(self, rows: int = SETTLE_ROWS) -> None:
        """Merge the tail into the settled segments for which it has the most rows relative to their size.

        A segment is rewritten if the tail has at least `SHARE` of its number of rows. Rewriting stops after
        about `rows` copied rows, but includes at least one segment. A row of more than a kilobyte counts as
        several.
        """
        below = self.tail.below(self.settled.lows)
        counts = np.diff(np.append(below, len(self.tail)))
        sizes = np.array([len(run) for run in self.settled])
        shares = counts / np.maximum(sizes, 1)
        chosen: set[int] = set()
        copied = 0
        for at in np.argsort(-shares, kind="stable").tolist():
            if shares[at] < SHARE:
                break
            weight, batch = int(sizes[at]), self.settled.parts[at].run.batch
            if batch.get_total_buffer_size() > weight * _ROW_BYTES:  # a slice has the buffers of the whole
                weight = max(weight, batch.nbytes // _ROW_BYTES)
            if chosen and copied + weight > rows:
                break
            chosen.add(at)
            copied += weight + int(counts[at])
        if not chosen:
            return
        segments: list[Segment] = []
        for at, (segment, low, high) in enumerate(self.settled.ranges()):
            if at not in chosen:
                segments.append(segment)
                continue
            settled = [segment]
            for piece in self.tail.pieces(low, high):
                settled = with_rows(settled, piece, alive=True)
            segments.extend(settled)
            self.tail.drop(low, high)
        self.settled.parts = segments
        self.tail.tidy()

    def until(self, column: str, most: int) -> Run:
        """Return the live rows with at most this value in a column; reads all rows. Needs one row per key."""
        runs = []
        for level in (self.tail, self.settled):
            for run in level:
                values = run.column(column)
                if values.null_count == len(values):
                    continue
                hit = numbers(values.fill_null(_NEVER)) <= most
                if level is self.settled and hit.any():
                    places = np.flatnonzero(hit)
                    newer = self.tail.has(run.h[places], run.ord[places])
                    hit[places[newer]] = False
                if hit.any():
                    runs.append(run.take(hit))
        return united(runs, self.schema).alive()


_NEVER = np.iinfo(np.int64).max


class Found:
    """The rows of some keys in a table; columns are read at the first use."""

    def __init__(self, schema: pa.Schema, places: Places, sources: list[tuple[Run, Places]]) -> None:
        self._schema = schema
        self._sources = sources
        self.places = places
        self.missing = places < 0
        self._order = pa.array(places, mask=self.missing) if self.missing.any() else pa.array(places)

    def column(self, name: str) -> pa.Array:
        """Return a column with one cell per key; null for a key without a row."""
        if not self._sources:
            return pa.nulls(len(self.places), self._schema.field(name).type)
        parts = [run.column(name).take(pa.array(at)) for run, at in self._sources]
        return concatenated(parts).take(self._order)
