"""A table of state as a few sorted segments and one tail of recent rows.

Rows come in by the batch and are looked up by key. A segment holds one range of hashes; the tail holds
what came since and wins over the segments. Each batch settles the part of the tail that is large beside
its segment, at most so many rows, so that no batch pays for all of them. Everything is immutable: what a
batch changes is a new run beside the old one, which is what lets runs be files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.worker.kept.runs import Run, empty_run, joined, merged, numbers, sorted_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.kept.runs import Hashes, Places

# A segment of this many rows is searched and copied in a few milliseconds; larger ones are split.
SEGMENT_ROWS = 1 << 16
# The tail's part is settled when it has this share of its segment's rows …
SHARE = 0.125
# … and in one batch at most so many rows are copied for it, and at least one segment.
SETTLE_ROWS = 6 * SEGMENT_ROWS


class Segment:
    """The settled rows of one range of hashes, from `low` to the next segment's."""

    __slots__ = ("low", "run")

    def __init__(self, low: int, run: Run) -> None:
        self.low = low
        self.run = run


class Levels:
    """One table: segments in the order of their ranges, and the tail over them."""

    def __init__(
        self, schema: pa.Schema, segments: list[Segment] | None = None, tail: Run | None = None
    ) -> None:
        self.schema = schema
        self.segments = segments or [Segment(0, empty_run(schema))]
        self.tail = tail if tail is not None else empty_run(schema)

    def runs(self) -> Iterator[Run]:
        """All runs, the tail first: where a row is in two of them, the first is right."""
        yield self.tail
        for segment in self.segments:
            yield segment.run

    @property
    def rows(self) -> int:
        """How many rows are held, counting one twice that the tail replaces."""
        return sum(len(run) for run in self.runs())

    def find(self, h: Hashes, ordinal: NDArray[np.int32]) -> Found:
        """Look up the rows of keys, sorted by (h, ord); only in a table of one row a key."""
        places = np.full(len(h), -1, np.int64)
        sources: list[tuple[Run, Places]] = []
        offset = 0
        if len(self.tail) and len(h):
            at = self.tail.find(h, ordinal)
            offset = _note(places, sources, self.tail, at, None, offset)
        bounds = np.searchsorted(h, np.array([each.low for each in self.segments], np.uint64))
        ends = np.append(bounds[1:], len(h))
        for segment, start, stop in zip(self.segments, bounds, ends, strict=True):
            if start < stop and len(segment.run):
                at = segment.run.find(h[start:stop], ordinal[start:stop])
                at[places[start:stop] >= 0] = -1
                offset = _note(places, sources, segment.run, at, int(start), offset)
        return Found(self.schema, places, sources)

    def of_hashes(self, h: Hashes) -> Run:
        """All live rows whose hash is one of `h`, which is sorted and has no repeats."""
        old = []
        for segment, high in zip(self.segments, self._highs(), strict=True):
            start = int(np.searchsorted(h, np.uint64(segment.low)))
            stop = len(h) if high is None else int(np.searchsorted(h, np.uint64(high)))
            if start < stop and len(segment.run):
                old.append(segment.run.take(segment.run.of_hashes(h[start:stop])))
        recent = self.tail.take(self.tail.of_hashes(h)) if len(self.tail) else self.tail
        return merged(joined(old, self.schema), recent).alive()

    def bytes_of(self, h: Hashes) -> NDArray[np.float64]:
        """About how many bytes the rows of each hash have; `h` is sorted and has no repeats."""
        found = np.zeros(len(h), np.float64)
        for run in self.runs():
            if len(run):
                count = np.searchsorted(run.h, h, side="right") - np.searchsorted(run.h, h, side="left")
                found += count * (run.batch.nbytes / len(run))
        return found

    def between(self, low: int, high: int | None) -> Run:
        """All live rows with low <= h < high, in order."""
        old = []
        for segment in self._over(low, high):
            start, stop = segment.run.between(low, high)
            if start < stop:
                old.append(segment.run.slice(start, stop))
        start, stop = self.tail.between(low, high)
        return merged(joined(old, self.schema), self.tail.slice(start, stop)).alive()

    def put(self, batch: pa.RecordBatch) -> None:
        """Take in rows in any order; they replace what has their identity."""
        self.tail = merged(self.tail, sorted_run(batch))

    def extend(self, run: Run) -> None:
        """Take in rows that come after all there are, straight as segments."""
        if not len(run):
            return
        low = int(run.h[0])
        if not len(self.segments[-1].run):
            low = self.segments.pop().low
        self.segments.extend(_split(low, run))

    def drop(self, low: int, high: int | None) -> None:
        """Forget all rows with low <= h < high."""
        for segment in self._over(low, high):
            segment.run = _without(segment.run, low, high)
        self.tail = _without(self.tail, low, high)

    def settle(self, rows: int = SETTLE_ROWS) -> None:
        """Move the tail's rows to their segments where they are many, copying about `rows` at most."""
        if not len(self.tail):
            return
        lows = np.array([each.low for each in self.segments], np.uint64)
        bounds = np.append(np.searchsorted(self.tail.h, lows), len(self.tail))
        counts = np.diff(bounds)
        sizes = np.array([len(each.run) for each in self.segments])
        shares = counts / np.maximum(sizes, 1)
        chosen: set[int] = set()
        copied = 0
        for each in np.argsort(-shares, kind="stable"):
            if shares[each] < SHARE or (chosen and copied + sizes[each] > rows):
                break
            chosen.add(int(each))
            copied += int(sizes[each] + counts[each])
        if not chosen:
            return
        segments: list[Segment] = []
        rest: list[Run] = []
        for each, segment in enumerate(self.segments):
            part = self.tail.slice(int(bounds[each]), int(bounds[each + 1]))
            if each in chosen:
                segments.extend(_split(segment.low, merged(segment.run, part).alive()))
            else:
                segments.append(segment)
                rest.append(part)
        self.segments = segments
        self.tail = joined(rest, self.schema)

    def until(self, column: str, most: int) -> Run:
        """The live rows with at most this number in a column; only in a table of one row a key. Reads all."""
        found = []
        for run in self.runs():
            values = run.column(column)
            if values.null_count == len(values):
                continue
            hit = numbers(values.fill_null(_NEVER)) <= most
            if run is not self.tail and hit.any():
                places = np.flatnonzero(hit)
                newer = self.tail.find(run.h[places], run.ord[places]) >= 0
                hit[places[newer]] = False
            if hit.any():
                found.append(run.take(hit))
        if len(found) > 1:
            return sorted_run(pa.concat_batches([run.batch for run in found])).alive()
        return found[0].alive() if found else empty_run(self.schema)

    def _highs(self) -> list[int | None]:
        return [each.low for each in self.segments[1:]] + [None]

    def _over(self, low: int, high: int | None) -> Iterator[Segment]:
        """The segments whose range meets this one."""
        for segment, end in zip(self.segments, self._highs(), strict=True):
            if (end is None or end > low) and (high is None or segment.low < high):
                yield segment


_NEVER = np.iinfo(np.int64).max


class Found:
    """Where the rows of some keys are, and their columns when asked for."""

    def __init__(self, schema: pa.Schema, places: Places, sources: list[tuple[Run, Places]]) -> None:
        self._schema = schema
        self._sources = sources
        self.places = places
        self.missing = places < 0
        self._order = pa.array(places, mask=self.missing) if self.missing.any() else pa.array(places)

    def column(self, name: str) -> pa.Array:
        """A column for each key, null where there is no row."""
        if not self._sources:
            return pa.nulls(len(self.places), self._schema.field(name).type)
        parts = [run.column(name).take(pa.array(at)) for run, at in self._sources]
        return (parts[0] if len(parts) == 1 else pa.concat_arrays(parts)).take(self._order)


def _note(
    places: Places, sources: list[tuple[Run, Places]], run: Run, at: Places, start: int | None, offset: int
) -> int:
    """Remember which keys a run has; returns how many rows are noted by now."""
    hits = np.flatnonzero(at >= 0)
    if not len(hits):
        return offset
    sources.append((run, at[hits]))
    places[hits + (start or 0)] = offset + np.arange(len(hits))
    return offset + len(hits)


def _without(run: Run, low: int, high: int | None) -> Run:
    start, stop = run.between(low, high)
    if start == stop:
        return run
    return joined([run.slice(0, start), run.slice(stop, len(run))], run.batch.schema)


def _split(low: int, run: Run) -> Iterator[Segment]:
    """A run as one segment, or as several of half the size where it has grown too large."""
    if len(run) <= SEGMENT_ROWS:
        yield Segment(low, run)
        return
    start = 0
    while start < len(run):
        stop = min(start + SEGMENT_ROWS // 2, len(run))
        if stop < len(run):
            # All rows of one hash stay together.
            stop = int(np.searchsorted(run.h, run.h[stop - 1], side="right"))
        yield Segment(low if start == 0 else int(run.h[start]), run.slice(start, stop))
        start = stop
