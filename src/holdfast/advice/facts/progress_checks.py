"""What in the newest batches of a query tells that it hurts already, or will."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from holdfast.model import BatchProgress

# Fewer batches than this tell nothing of a habit.
_FEWEST: Final = 20
_LATE_SHARE: Final = 0.001
_GROWTH: Final = 1.2
_MANY_STATE_ROWS: Final = 1_000
_HEAVY: Final = 0.3
_MANY_KEYED_ROWS: Final = 1_000
_EMPTY_SHARE: Final = 0.9
_COMMIT_SHARE: Final = 0.5
_SLOW_MS: Final = 1_000
# What Spark does to note a batch, beside working it off.
_NOTING: Final = ("walCommit", "commitOffsets", "commitBatch")

# A rule's id, and what was seen.
Seen = tuple[str, str]


def progress_findings(batches: Sequence[BatchProgress]) -> list[Seen]:
    """Everything that the batches of one query are evidence for, by rule; oldest batch first."""
    return sorted({seen for check in CHECKS for seen in check(batches)})


def _late(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    late, rows = sum(each.late_rows for each in batches), sum(each.input_rows for each in batches)
    if late and late >= rows * _LATE_SHARE:
        times = sum(each.late_rows > 0 for each in batches)
        share = f", {late / rows:.1%} of the input" if rows >= late else ""
        dropped = "1 row was" if late == 1 else f"{late:,} rows were"
        yield "HF701", f"{dropped} dropped as late{share}, in {times} of {_span(batches)}"


def _growth(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    """State whose rows never became fewer, and still become more."""
    worked = [each for each in batches if each.input_rows]
    if len(worked) < _FEWEST:
        return
    names = dict.fromkeys(operator.display_name or operator.name for operator in worked[-1].operators)
    for position, name in enumerate(names):
        rows = [each.operators[position].rows if position < len(each.operators) else None for each in worked]
        counts = [count for count in rows if count is not None]
        removed = sum(each.operators[position].removed for each in worked if position < len(each.operators))
        falls = any(later < earlier for earlier, later in pairwise(counts))
        if len(counts) < len(rows) or removed or falls or counts[-1] < _MANY_STATE_ROWS:
            continue
        middle = counts[len(counts) // 2]
        if counts[0] < middle and counts[-1] >= middle * _GROWTH:
            grew = f"{name} grew from {counts[0]:,} to {counts[-1]:,} rows"
            yield "HF702", f"{grew} in {_span(worked)} with input, and lost none"


def _hot(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    newest = {
        report.name: report
        for each in batches
        for report in each.skew
        if report.looked_at >= _MANY_KEYED_ROWS
    }
    for report in newest.values():
        if report.heavy and report.heavy[0].share - report.error >= _HEAVY:
            first = report.heavy[0]
            key = ", ".join(str(value) for value in first.key)
            yield (
                "HF703",
                f"key {key} of `{report.name}` had {first.share:.0%} of the rows of the newest batch",
            )


def _commits(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    worked = [each for each in batches if each.input_rows]
    if len(worked) < _FEWEST:
        return
    whole = sum(each.duration_ms for each in worked)
    noting = sum(each.phases_ms.get(phase, 0) for each in worked for phase in _NOTING)
    if whole and whole >= _SLOW_MS * len(worked) and noting >= whole * _COMMIT_SHARE:
        mean = whole // len(worked)
        yield "HF704", f"{noting / whole:.0%} of {mean:,} ms a batch went into its logs, in {_span(worked)}"


def _stores(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    """Stores whose commits take longer than all else.

    Spark adds up what the tasks of all partitions took. What one of them took at the mean is less than the
    batch spent on it, since tasks that find no core wait for others.
    """
    worked = [each for each in batches if each.input_rows]
    if len(worked) < _FEWEST:
        return
    whole = sum(each.phases_ms.get("addBatch", 0) for each in worked)
    if whole < _SLOW_MS * len(worked):
        return
    commits = sum(
        operator.commit_ms / max(operator.partitions, 1) for each in worked for operator in each.operators
    )
    if commits >= whole * _COMMIT_SHARE:
        share = commits / whole
        yield "HF704", f"a partition took {share:.0%} of a batch to commit its state, in {_span(worked)}"


def _empty(batches: Sequence[BatchProgress]) -> Iterator[Seen]:
    if len(batches) < _FEWEST:
        return
    empty = sum(each.input_rows == 0 for each in batches)
    if empty >= len(batches) * _EMPTY_SHARE:
        yield "HF705", f"{empty} of {_span(batches)} had no input"


def _span(batches: Sequence[BatchProgress]) -> str:
    return f"{len(batches)} batches"


CHECKS: Final[tuple[Callable[[Sequence[BatchProgress]], Iterator[Seen]], ...]] = (
    _late,
    _growth,
    _hot,
    _commits,
    _stores,
    _empty,
)
