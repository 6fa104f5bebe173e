"""The metrics computed from a query's newest batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from itertools import takewhile

from holdfast.model import BatchProgress, OperatorProgress
from holdfast.observe.growth import growth, state_full_in_ms
from holdfast.observe.job_metrics import (
    access_quantiles,
    access_seconds,
    batch_quantiles,
    cache_hit_ratio,
    operator_bytes,
    operator_label,
    repaired,
    update_seconds,
)
from holdfast.observe.lag import growing_ms, lags
from holdfast.observe.metrics import LATELY_MS, MetricSample, sample, samples_of
from holdfast.observe.sizing import Sizing, sizing


def query_samples(
    job: str,
    history: Sequence[BatchProgress],
    now_ms: int,
    *,
    limit_bytes: float | None = None,
    limit_ms: float | None = None,
    busy_since_ms: int | None = None,
) -> list[MetricSample]:
    """Return the metrics of one query.

    Args:
        job: The job's name.
        history: The newest batches of the query, oldest first; at least one.
        now_ms: The current time in epoch milliseconds.
        limit_bytes: The size limit of the query's state, for the forecast; None without one.
        limit_ms: The maximum duration of a batch, if the trigger has no interval.
        busy_since_ms: The start of the running batch; None if no batch is running.
    """
    batch = history[-1]
    lately = [former for former in history if former.committed_ms > now_ms - LATELY_MS]
    running_ms = 0 if busy_since_ms is None else now_ms - busy_since_ms
    # In real-time mode a batch is the time between two commits; only a longer duration is slow.
    meant_ms = (batch.interval_ms or 0) if batch.real_time else 0
    longest_ms = max(batch.duration_ms, running_ms) - meant_ms
    numbers = samples_of(
        (job, batch.query),
        {
            "holdfast_batch_id": batch.batch_id,
            "holdfast_last_commit_timestamp_seconds": batch.committed_ms / 1000,
            "holdfast_checkpoint_duration_seconds": max(longest_ms, 0) / 1000,
            "holdfast_input_rows_per_second": batch.input_rate,
            "holdfast_processed_rows_per_second": batch.processed_rate,
            **_watermark(history, now_ms),
            "holdfast_late_rows_ratio": _late_ratio(lately),
            "holdfast_state_full_seconds": _in_seconds(state_full_in_ms(history, limit_bytes)),
        },
    )
    for phase, ms in batch.phases_ms.items():
        numbers.append(sample("holdfast_batch_phase_seconds", ms / 1000, job, batch.query, phase))
    for index, operator in enumerate(batch.operators):
        labels = (job, batch.query, operator_label(index, operator))
        recent = [former.operators[index] for former in lately if len(former.operators) > index]
        numbers += _operator(labels, operator, sum(map(repaired, recent)))
        for quantile, seconds in batch_quantiles(recent).items():
            numbers.append(sample("holdfast_state_access_batches_seconds", seconds, *labels, quantile))
    numbers += _sizing((job, batch.query), sizing(history, now_ms, limit_ms))
    for each in growth(history, limit_bytes):
        if each.full_at_ms is not None and each.full_at_ms > batch.committed_ms:
            left_s = (each.full_at_ms - batch.committed_ms) / 1000
            labels = (job, batch.query, each.operator)
            numbers.append(sample("holdfast_operator_full_seconds", left_s, *labels))
    numbers += _lag((job, batch.query), history, now_ms)
    for report in batch.skew:
        if report.heavy:
            share = report.heavy[0].share
            numbers.append(sample("holdfast_key_share_ratio", share, job, batch.query, report.name))
    return numbers


def watermark_ms(batch: BatchProgress) -> int | None:
    """Return the watermark of a batch in epoch milliseconds; None without one."""
    if batch.watermark is None:
        return None
    return int(dt.datetime.fromisoformat(batch.watermark.replace("Z", "+00:00")).timestamp() * 1000)


def _watermark(history: Sequence[BatchProgress], now_ms: int) -> dict[str, float]:
    at_ms = watermark_ms(history[-1])
    if at_ms is None:
        return {}
    stuck = {"holdfast_watermark_stuck_seconds": _stuck_ms(history) / 1000}
    return stuck | watermark_numbers(at_ms, now_ms)


def watermark_numbers(at_ms: int | None, now_ms: int) -> dict[str, float]:
    """Return the metrics of a watermark; empty if it is missing or zero, as before the first event."""
    if not at_ms or at_ms < 0:
        return {}
    return {
        "holdfast_watermark_timestamp_seconds": at_ms / 1000,
        "holdfast_watermark_lag_seconds": (now_ms - at_ms) / 1000,
    }


def _stuck_ms(history: Sequence[BatchProgress]) -> int:
    """Return the time from the first to the last batch with the newest watermark, in milliseconds."""
    under = list(takewhile(lambda batch: batch.watermark == history[-1].watermark, reversed(history)))
    with_rows = [batch.committed_ms for batch in under if batch.input_rows]
    return max(with_rows[0] - under[-1].committed_ms, 0) if with_rows else 0


def _late_ratio(lately: Sequence[BatchProgress]) -> float | None:
    rows = sum(batch.input_rows for batch in lately)
    late = sum(batch.late_rows for batch in lately)
    # Dropped rows have often been aggregated before, and with joins a row may be dropped twice.
    return min(late / rows, 1.0) if rows else None


def _in_seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _sizing(labels: tuple[str, str], found: Sizing) -> list[MetricSample]:
    """Return the present and the recommended resources of a query as samples."""
    return [
        sample("holdfast_provisioning", 1, *labels, found.state.value),
        *samples_of(
            labels,
            {
                "holdfast_allowed_seconds": _in_seconds(found.allowed_ms),
                "holdfast_critical_seconds": _in_seconds(found.critical_ms),
                "holdfast_cores": found.cores,
                "holdfast_recommended_cores": found.recommended_cores,
                "holdfast_partitions": found.partitions,
                "holdfast_recommended_partitions": found.recommended_partitions,
                "holdfast_recommended_memory_bytes": found.recommended_memory_bytes,
            },
        ),
    ]


def _lag(labels: tuple[str, str], history: Sequence[BatchProgress], now_ms: int) -> list[MetricSample]:
    """Return the lag of a query as samples, in total and by partition; empty if sources do not report it."""
    found = lags(history, now_ms)
    numbers = []
    if found:
        numbers = samples_of(
            labels,
            {
                "holdfast_lag_records": _sum(lag.records for lag in found),
                "holdfast_lag_versions": _sum(lag.versions for lag in found),
                "holdfast_lag_seconds": max(lag.behind_ms for lag in found) / 1000,
                "holdfast_lag_growing_seconds": growing_ms(history, found) / 1000,
            },
        )
    for lag in found:
        partition = "all" if lag.partition is None else str(lag.partition)
        numbers += samples_of(
            (*labels, str(lag.source), lag.topic, partition),
            {
                "holdfast_source_lag_records": lag.records,
                "holdfast_source_lag_versions": lag.versions,
                "holdfast_source_lag_seconds": lag.behind_ms / 1000,
            },
        )
    return numbers


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of the known values; None if all are unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _operator(labels: tuple[str, str, str], operator: OperatorProgress, repairs: int) -> list[MetricSample]:
    """Return the metrics of an operator, except totals that a keyed operator has not counted."""
    load_ms = operator.store.get("rocksdbLoadLatencyMs")
    keyed = operator.keyed
    numbers = samples_of(
        labels,
        {
            "holdfast_state_timers": None if keyed is None else keyed.timers,
            "holdfast_state_uncounted_groups": None if keyed is None else keyed.uncounted_groups,
            "holdfast_state_bytes": operator_bytes(operator),
            "holdfast_state_memory_bytes": operator.memory_bytes,
            "holdfast_state_commit_seconds": operator.commit_ms / 1000,
            "holdfast_state_rows": operator.rows,
            "holdfast_state_access_seconds": access_seconds(operator),
            "holdfast_state_update_seconds": update_seconds(operator),
            "holdfast_state_load_seconds": None if load_ms is None else load_ms / 1000,
            "holdfast_cache_hit_ratio": cache_hit_ratio(operator),
            "holdfast_snapshots_repaired_lately": repairs,
        },
    )
    for quantile, seconds in access_quantiles(operator).items():
        numbers.append(sample("holdfast_state_access_quantile_seconds", seconds, *labels, quantile))
    for state in () if keyed is None else keyed.states:
        counted = {
            "holdfast_state_entries": state.entries,
            "holdfast_state_entries_bytes": state.size_bytes,
        }
        numbers += samples_of((*labels, state.name), counted)
    return numbers
