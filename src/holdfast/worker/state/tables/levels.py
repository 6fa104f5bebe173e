"""A table of state as settled segments and a tail of recent rows over them.

Rows come in by the batch and are looked up by key. What came last wins: the tail over the settled rows.
Each batch settles the part of the tail that is large beside its segment, at most so many rows, so that no
batch pays for all of them. Everything is immutable: what a batch changes is a new run beside the old one,
which is what lets runs be files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.worker.arrays import numbers
from holdfast.worker.state.tables.runs import Run, concatenated, merged, sorted_run, united
from holdfast.worker.state.tables.segments import SEGMENT_BYTES, SEGMENT_ROWS, Segment, Segments, with_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes, Places

# The tail's part is settled when it has this share of its segment's rows …
SHARE = 0.125
# … and in one batch at most so many rows are copied for it, and at least one segment …
SETTLE_ROWS = 6 * SEGMENT_ROWS
# … where so many bytes count as one row at least.
_ROW_BYTES = SEGMENT_BYTES // SEGMENT_ROWS


class Levels:
    """One table: what is settled, and the tail over it."""

    def __init__(
        self, schema: pa.Schema, settled: Sequence[Segment] = (), tail: Sequence[Segment] = ()
    ) -> None:
        self.schema = schema
        self.settled = Segments(schema, settled)
        self.tail = Segments(schema, tail)

    def runs(self) -> Iterator[Run]:
        """All runs, the tail first: where a row is in two of them, the first is right."""
        yield from self.tail
        yield from self.settled

    @property
    def rows(self) -> int:
        """How many rows are held, counting one twice that the tail replaces."""
        return len(self.tail) + len(self.settled)

    def find(self, h: Hashes, ordinal: NDArray[np.int32]) -> Found:
        """Look up the rows of keys, sorted by (h, ord); only in a table of one row a key."""
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
        """Which elements of another run are alive here, and their stamps; only in a table with slots."""
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
        """All live rows whose hash is one of `h`, which is sorted and has no repeats."""
        return merged(self.settled.of_hashes(h), self.tail.of_hashes(h)).alive()

    def bytes_of(self, h: Hashes) -> NDArray[np.float64]:
        """About how many bytes the rows of each hash have; `h` is sorted and has no repeats."""
        sizes = np.zeros(len(h), np.float64)
        for run in self.runs():
            if len(run):
                count = np.searchsorted(run.h, h, side="right") - np.searchsorted(run.h, h, side="left")
                sizes += count * (run.batch.nbytes / len(run))
        return sizes

    def between(self, low: int, high: int | None) -> Run:
        """All live rows with low <= h < high, in order."""
        return merged(self.settled.between(low, high), self.tail.between(low, high)).alive()

    def put(self, batch: pa.RecordBatch) -> None:
        """Take in rows in any order; they replace what has their identity."""
        self.tail.put(sorted_run(batch))

    def extend(self, run: Run) -> None:
        """Take in rows that come after all there are, settled at once."""
        self.settled.append(run)

    def drop(self, low: int, high: int | None) -> None:
        """Forget all rows with low <= h < high."""
        self.settled.drop(low, high)
        self.tail.drop(low, high)

    def settle(self, rows: int = SETTLE_ROWS) -> None:
        """Move the tail's rows to their segments where they are many, copying about `rows` at most.

        A row of more than a kilobyte counts as several.
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
            if batch.get_total_buffer_size() > weight * _ROW_BYTES:  # a slice's are those of the whole
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
        """The live rows with at most this number in a column; only in a table of one row a key. Reads all."""
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
        return concatenated(parts).take(self._order)
