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

# A segment of this many rows is searched and copied in a few milliseconds; larger ones are split.
SEGMENT_ROWS = 1 << 16
# Neighbours that have this many rows together become one, so that there are few.
_SMALL_ROWS = SEGMENT_ROWS // 4


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
        bounds = np.append(np.searchsorted(run.h, self.lows), len(run)).tolist()
        parts: list[Segment] = []
        for segment, start, stop in zip(self.parts, bounds, bounds[1:], strict=False):
            new = (
                [segment]
                if start == stop
                else divided(segment.low, merged(segment.run, run.slice(start, stop)))
            )
            parts.extend(new)
        self.parts = _fewer(parts, self.schema)

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


def divided(low: int, run: Run) -> Iterator[Segment]:
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


def _fewer(parts: Iterable[Segment], schema: pa.Schema) -> list[Segment]:
    """The same rows with small neighbours joined."""
    joined_parts: list[Segment] = []
    for segment in parts:
        before = joined_parts[-1] if joined_parts else None
        if before is not None and (
            not len(before.run) or not len(segment.run) or len(before.run) + len(segment.run) <= _SMALL_ROWS
        ):
            joined_parts[-1] = Segment(before.low, joined([before.run, segment.run], schema))
        else:
            joined_parts.append(segment)
    return joined_parts
