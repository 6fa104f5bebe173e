"""The charts of a query: their values, thresholds and events."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.registry.registry import Attempt
from holdfast.model import RECORDS, VERSIONS, BatchProgress
from holdfast.observe.batch_numbers import watermark_ms
from holdfast.observe.job_metrics import state_bytes
from holdfast.observe.lag import behind, wait_by_batch
from holdfast.observe.rules import BY_RULE, shown_value
from holdfast.server.dashboard import figures
from holdfast.server.dashboard.charts import Chart, Marker, Threshold, Timeline, chart

# The maximum length of an event's cause, in characters.
_CAUSE_LENGTH: Final = 200


def query_charts(
    batches: Sequence[BatchProgress], line: Timeline[BatchProgress], thresholds: Mapping[str, float]
) -> tuple[Chart, ...]:
    """Return the charts of a query; charts of lag, watermark and state are included only if reported."""
    rates = {later.batch_id: rows_per_second((former, later)) for former, later in pairwise(batches)}
    newest = batches[-1] if batches else None
    # In real-time mode a batch always lasts one interval; only a longer one is slow.
    meant_ms = (newest.interval_ms or 0) if newest is not None and newest.real_time else 0
    longest = _limits(thresholds, ("checkpoint_duration",), 1000, meant_ms / 1000)
    charts = [
        chart("duration", "Batch duration", "ms", line, lambda batch: batch.took_ms, longest),
    ]
    if newest is None or newest.measured:
        charts.append(
            chart("rate", "Rows per second", "rows/s", line, lambda batch: rates.get(batch.batch_id))
        )
    if any(batch.sources for batch in batches):
        charts += _lag_charts(batches, line, thresholds)
    if any(_watermark_lag_ms(batch) is not None for batch in batches):
        charts.append(chart("watermark_lag", "Watermark lag", "ms", line, _watermark_lag_ms))
    if any(batch.operators for batch in batches):
        size = _limits(thresholds, ("state_size",), 1)
        charts += [
            # A batch whose rows are not counted has no point.
            *(
                [chart("state_rows", "Rows in state", "rows", line, lambda batch: batch.state_rows)]
                if newest is None or newest.measured
                else []
            ),
            chart("state_bytes", "State size", "bytes", line, state_bytes, size),
        ]
    return tuple(charts)


def _lag_charts(
    batches: Sequence[BatchProgress], line: Timeline[BatchProgress], thresholds: Mapping[str, float]
) -> list[Chart]:
    waits = wait_by_batch(batches)
    units = {position.unit for batch in batches for source in batch.sources for position in source.positions}

    def left(unit: str) -> Callable[[BatchProgress], float | None]:
        return lambda batch: behind(batch, unit) if batch.batch_id in waits else None

    charts = [
        chart(f"lag_{unit}", f"Lag in {unit}", unit, line, left(unit))
        for unit in (RECORDS, VERSIONS)
        if unit in units
    ]
    if waits:
        limits = _limits(thresholds, ("lag", "offsets_expiring"), 1000)
        charts.append(
            chart("lag", "Lag in time", "ms", line, lambda batch: waits.get(batch.batch_id), limits)
        )
    return charts


def _limits(
    thresholds: Mapping[str, float], rules: Iterable[str], scale: float, added: float = 0.0
) -> list[Threshold]:
    """Return the thresholds of enabled rules, in the unit of a chart."""
    limits = ((rule, thresholds[rule] + added) for rule in rules if rule in thresholds)
    return [
        Threshold(rule, value * scale, short_threshold(shown_value(value, BY_RULE[rule].unit)))
        for rule, value in limits
    ]


def _watermark_lag_ms(batch: BatchProgress) -> int | None:
    """Return the time from the watermark to the commit of a batch, in ms; None before the first event."""
    watermark = watermark_ms(batch)
    return max(batch.committed_ms - watermark, 0) if watermark and watermark > 0 else None


def query_markers(details: JobDetails, query: str) -> tuple[Marker, ...]:
    """Return the restarts of a job and the savepoints of a query, oldest first."""
    restarts = [_restart(former, later) for former, later in pairwise(details.attempts)]
    savepoints = [
        Marker(
            "savepoint",
            note.at_ms,
            f"Savepoint of batch {note.batch_id}, {figures.size(note.size_bytes)}",
        )
        if note.problem is None
        else Marker("savepoint-failed", note.at_ms, f"Savepoint failed: {note.problem[:_CAUSE_LENGTH]}")
        for note in details.savepoints
        if note.query == query
    ]
    return tuple(sorted((*restarts, *savepoints), key=lambda marker: marker.at_ms))


def _restart(former: Attempt, later: Attempt) -> Marker:
    cause = "" if former.failure is None else f" after {former.failure}"[:_CAUSE_LENGTH]
    return Marker("restart", later.began_ms, f"Restart: attempt {later.number}{cause}")


def rows_per_second(batches: Sequence[BatchProgress]) -> float | None:
    """Return the rate at which rows were read after the first of these batches, in rows per second."""
    if len(batches) < 2 or any(batch.rows_read is None for batch in batches):
        return None
    took_ms = batches[-1].committed_ms - batches[0].committed_ms
    return sum(batch.input_rows for batch in batches[1:]) * 1000 / took_ms if took_ms > 0 else None


def short_threshold(threshold: str) -> str:
    """Shorten `1 min 0 s` to `1 min`."""
    return re.sub(r" 0 (s|min|h)$", "", threshold)
