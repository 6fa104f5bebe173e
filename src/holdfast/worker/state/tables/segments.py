"""Rows in the order of their identities, in pieces that are small enough to be copied at will."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.worker.state.tables.runs import Run, empty_run, joined, merged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes

# A segment of this many rows is searched and copied in a few milliseconds; larger ones are split …
SEGMENT_ROWS = 1 << 16
# … and so are those of this many bytes: Arrow cannot put more than 2 GiB of one column together.
SEGMENT_BYTES = 64 << 20
# Neighbours that have this share of a segment together become one, so that there are few.
_SMALL = 4


@dataclass(slots=True)
class Segment:
    """The rows of one range of hashes, from `low` to the next segment's."""

    low: int
    run: Run


class Segments:
    """One level of a table: segments whose ranges follow one another, the first from 0."""

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
        """Where the ranges begin."""
        return np.array([segment.low for segment in self.parts], np.uint64)

    def ranges(self) -> Iterator[tuple[Segment, int, int | None]]:
        """Each segment with where its range begins and ends; None is past the last hash."""
        for segment, following in zip(self.parts, [*self.parts[1:], None], strict=True):
            yield segment, segment.low, following.low if following is not None else None

    def shares(self, h: Hashes) -> Iterator[tuple[Run, int, int]]:
        """Which of these hashes, which are sorted, may be in which run; empty runs are left out."""
        bounds = np.append(np.searchsorted(h, self.lows), len(h)).tolist()
        for segment, start, stop in zip(self.parts, bounds, bounds[1:], strict=False):
            if start < stop and len(segment.run):
                yield segment.run, start, stop

    def has(self, h: Hashes, ordinal: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which keys, sorted by (h, ord), have a row; only in a table of one row a key."""
        present = np.zeros(len(h), np.bool_)
        for run, start, stop in self.shares(h):
            present[start:stop] = run.find(h[start:stop], ordinal[start:stop]) >= 0
        return present

    def of_hashes(self, h: Hashes) -> Run:
        """All rows whose hash is one of `h`, which is sorted and has no repeats."""
        runs = [run.take(run.of_hashes(h[start:stop])) for run, start, stop in self.shares(h)]
        return joined(runs, self.schema)

    def between(self, low: int, high: int | None) -> Run:
        """The rows with low <= h < high, in order."""
        runs = []
        for segment in self._over(low, high):
            start, stop = segment.run.between(low, high)
            if start < stop:
                runs.append(segment.run.slice(start, stop))
        return joined(runs, self.schema)

    def below(self, bounds: Hashes) -> NDArray[np.int64]:
        """How many rows have a hash below each of these."""
        count = np.zeros(len(bounds), np.int64)
        for run in self:
            count += np.searchsorted(run.h, bounds)
        return count

    def put(self, run: Run) -> None:
        """Take in rows; they replace what has their identity."""
        self.parts = _fewer(with_rows(self.parts, run), self.schema)

    def pieces(self, low: int, high: int | None) -> Iterator[Run]:
        """The rows with low <= h < high, in order and in runs of about one segment's bytes at most."""
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
        """Take in rows that come after all there are."""
        if not len(run):
            return
        low = int(run.h[0])
        if not len(self.parts[-1].run):
            low = self.parts.pop().low
        self.parts.extend(divided(low, run))

    def drop(self, low: int, high: int | None) -> None:
        """Forget all rows with low <= h < high."""
        for segment in self._over(low, high):
            run = segment.run
            start, stop = run.between(low, high)
            if start < stop:
                segment.run = joined([run.slice(0, start), run.slice(stop, len(run))], self.schema)

    def tidy(self) -> None:
        """Join what has become small."""
        self.parts = _fewer(self.parts, self.schema)

    def _over(self, low: int, high: int | None) -> Iterator[Segment]:
        """The segments whose range meets this one."""
        for segment, start, stop in self.ranges():
            if (stop is None or stop > low) and (high is None or start < high):
                yield segment


def with_rows(parts: Iterable[Segment], run: Run, *, alive: bool = False) -> list[Segment]:
    """Return segments with the rows of a run, which replace what has their identity.

    Args:
        parts: The segments; the first begins before all rows of the run.
        run: The rows.
        alive: Whether rows that are marked as gone are left out of the segments that change.
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
    """A run as one segment, or as several of half the size where it has grown too large."""
    if len(run) <= SEGMENT_ROWS and not _exceeds([run.batch], SEGMENT_BYTES):
        yield Segment(low, run)
        return
    start = 0
    while start < len(run):
        stop = start + _rows_within(run.batch.slice(start, SEGMENT_ROWS // 2), SEGMENT_BYTES // 2)
        if stop < len(run):
            # All rows of one hash stay together.
            stop = int(np.searchsorted(run.h, run.h[stop - 1], side="right"))
        yield Segment(low if start == 0 else int(run.h[start]), run.slice(start, stop))
        start = stop


def pages(run: Run, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most `rows` rows and a segment's bytes; a larger row has its own batch."""
    start = 0
    while start < len(run):
        page = run.batch.slice(start, rows)
        page = page.slice(0, _rows_within(page, SEGMENT_BYTES))
        yield page
        start += page.num_rows


def oversized(batch: pa.RecordBatch) -> int | None:
    """Return the number of a row that has more bytes than a segment may have, or None."""
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
    """Return how many of the first rows have at most this many bytes, found by halving; at least one."""
    rows = int(batch.num_rows)
    while rows > 1 and _exceeds([batch.slice(0, rows)], size):
        rows = (rows + 1) // 2
    return rows


def _fewer(parts: Iterable[Segment], schema: pa.Schema) -> list[Segment]:
    """The same rows with small neighbours joined."""
    joined_parts: list[Segment] = []
    for segment in parts:
        before = joined_parts[-1] if joined_parts else None
        if before is not None and _small(before.run, segment.run):
            joined_parts[-1] = Segment(before.low, joined([before.run, segment.run], schema))
        else:
            joined_parts.append(segment)
    return joined_parts


def _small(one: Run, other: Run) -> bool:
    """Return True if two neighbours have few rows and few bytes together, or one is empty."""
    if not len(one) or not len(other):
        return True
    if (len(one) + len(other)) * _SMALL > SEGMENT_ROWS:
        return False
    return not _exceeds([one.batch, other.batch], SEGMENT_BYTES // _SMALL)


def _exceeds(batches: Sequence[pa.RecordBatch], size: int) -> bool:
    """Return True if batches have more than `size` bytes together."""
    # The buffers of a slice are those of the whole: quick to count, and more than the slice has.
    if sum(batch.get_total_buffer_size() for batch in batches) <= size:
        return False
    return bool(sum(batch.nbytes for batch in batches) > size)
