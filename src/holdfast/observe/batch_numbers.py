"""What the newest batches of a query tell."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from holdfast.model import BatchProgress, OperatorProgress
from holdfast.observe.forecast import full_in_ms
from holdfast.observe.metrics import LATELY_MS, Sample, sample
from holdfast.observe.totals import accesses, operator_label, repaired


def query_samples(
    job: str,
    history: Sequence[BatchProgress],
    now_ms: int,
    *,
    limit_bytes: float | None = None,
    busy_since_ms: int | None = None,
) -> list[Sample]:
    """The numbers of one query.

    Args:
        job: The job's name.
        history: The query's last batches, oldest first; at least one.
        now_ms: The clock.
        limit_bytes: How large its state may be, for the forecast.
        busy_since_ms: When the batch began that runs.
    """
    batch = history[-1]
    lately = [each for each in history if each.committed_ms > now_ms - LATELY_MS]
    found = [
        *_speed(job, batch, now_ms, busy_since_ms),
        *_time(job, history, now_ms),
        *_late(job, batch.query, lately),
    ]
    for index, operator in enumerate(batch.operators):
        found += _operator(job, batch.query, index, operator)
        sums = (repaired(each.operators[index]) for each in lately if len(each.operators) > index)
        label = operator_label(index, operator)
        found.append(sample("holdfast_snapshots_repaired_lately", sum(sums), job, batch.query, label))
    if batch.operators and limit_bytes is not None:
        # Memory fills up to its bounds at first, which is no growth of state.
        points = [
            (each.committed_ms, float(state_bytes(each)))
            for each in history
            if each.operators and all(_stored_bytes(operator) for operator in each.operators)
        ]
        left_ms = full_in_ms(points, limit_bytes)
        if left_ms:
            found.append(sample("holdfast_state_full_seconds", left_ms / 1000, job, batch.query))
    for report in batch.skew:
        if report.heavy:
            share = report.heavy[0].share
            found.append(sample("holdfast_key_share_ratio", share, job, batch.query, report.name))
    return found


def state_bytes(batch: BatchProgress) -> int:
    """What the stores of all operators take."""
    return sum(operator_bytes(each) for each in batch.operators)


def operator_bytes(operator: OperatorProgress) -> int:
    """What the store of an operator takes.

    RocksDB has nothing in files before it writes the first; until then its memory is what there is.
    """
    return _stored_bytes(operator) or operator.memory_bytes


def access_seconds(operator: OperatorProgress) -> float | None:
    """What one get or put took on average; of a keyed operator, to look up or to write one key."""
    made = accesses(operator).values()
    count = sum(number for number, _ in made)
    return sum(seconds for _, seconds in made) / count if count else None


def _stored_bytes(operator: OperatorProgress) -> int:
    """The state alone, without caches and buffers; 0 where it is in no file yet."""
    files = operator.store.get("rocksdbSstFileSize", 0)
    return files or operator.store.get("stateOnCurrentVersionSizeBytes", 0)


def watermark_ms(batch: BatchProgress) -> int | None:
    """The watermark that a batch ran under, in epoch milliseconds."""
    if batch.watermark is None:
        return None
    return int(dt.datetime.fromisoformat(batch.watermark.replace("Z", "+00:00")).timestamp() * 1000)


def _speed(job: str, batch: BatchProgress, now_ms: int, busy_since_ms: int | None) -> list[Sample]:
    labels = (job, batch.query)
    running_ms = 0 if busy_since_ms is None else now_ms - busy_since_ms
    found = [
        sample("holdfast_batch_id", batch.batch_id, *labels),
        sample("holdfast_last_commit_timestamp_seconds", batch.committed_ms / 1000, *labels),
        sample("holdfast_checkpoint_duration_seconds", max(batch.duration_ms, running_ms) / 1000, *labels),
    ]
    if batch.input_rate is not None:
        found.append(sample("holdfast_input_rows_per_second", batch.input_rate, *labels))
    if batch.processed_rate is not None:
        found.append(sample("holdfast_processed_rows_per_second", batch.processed_rate, *labels))
    for phase, ms in batch.phases_ms.items():
        found.append(sample("holdfast_batch_phase_seconds", ms / 1000, *labels, phase))
    return found


def _time(job: str, history: Sequence[BatchProgress], now_ms: int) -> list[Sample]:
    batch = history[-1]
    at_ms = watermark_ms(batch)
    if at_ms is None:
        return []
    labels = (job, batch.query)
    found = [sample("holdfast_watermark_stuck_seconds", _stuck_ms(history) / 1000, *labels)]
    # Before the first event the watermark is the epoch, and no lag behind it would mean anything.
    if at_ms > 0:
        found.append(sample("holdfast_watermark_timestamp_seconds", at_ms / 1000, *labels))
        found.append(sample("holdfast_watermark_lag_seconds", (now_ms - at_ms) / 1000, *labels))
    return found


def _stuck_ms(history: Sequence[BatchProgress]) -> int:
    """From the first batch under the newest watermark to the last one of them that had rows."""
    under = []
    for batch in reversed(history):
        if batch.watermark != history[-1].watermark:
            break
        under.append(batch)
    with_rows = [each.committed_ms for each in under if each.input_rows]
    return max(with_rows[0] - under[-1].committed_ms, 0) if with_rows else 0


def _late(job: str, query: str, lately: Sequence[BatchProgress]) -> list[Sample]:
    rows = sum(each.input_rows for each in lately)
    late = sum(each.late_rows for each in lately)
    # What is dropped has often been aggregated before, and with joins a row may be dropped twice.
    return [sample("holdfast_late_rows_ratio", min(late / rows, 1.0), job, query)] if rows else []


def _operator(job: str, query: str, index: int, operator: OperatorProgress) -> list[Sample]:
    labels = (job, query, operator_label(index, operator))
    found = [
        *_keyed(labels, operator),
        sample("holdfast_state_bytes", operator_bytes(operator), *labels),
        sample("holdfast_state_memory_bytes", operator.memory_bytes, *labels),
        sample("holdfast_state_commit_seconds", operator.commit_ms / 1000, *labels),
    ]
    if operator.rows is not None:
        found.append(sample("holdfast_state_rows", operator.rows, *labels))
    access_s = access_seconds(operator)
    if access_s is not None:
        found.append(sample("holdfast_state_access_seconds", access_s, *labels))
    store = operator.store
    if "rocksdbLoadLatencyMs" in store:
        load_s = store["rocksdbLoadLatencyMs"] / 1000
        found.append(sample("holdfast_state_load_seconds", load_s, *labels))
    hits = store.get("rocksdbReadBlockCacheHitCount", 0) + store.get("loadedMapCacheHitCount", 0)
    misses = store.get("rocksdbReadBlockCacheMissCount", 0) + store.get("loadedMapCacheMissCount", 0)
    if hits + misses:
        found.append(sample("holdfast_cache_hit_ratio", hits / (hits + misses), *labels))
    return found


def _keyed(labels: tuple[str, str, str], operator: OperatorProgress) -> list[Sample]:
    """What a keyed operator has counted; of totals that are not known there is no number."""
    keyed = operator.keyed
    if keyed is None:
        return []
    counts = [
        ("holdfast_state_timers", keyed.timers, labels),
        ("holdfast_state_uncounted_groups", keyed.uncounted_groups, labels),
    ]
    found = [sample(metric, value, *names) for metric, value, names in counts if value is not None]
    for state in keyed.states:
        if state.entries is not None:
            found.append(sample("holdfast_state_entries", state.entries, *labels, state.name))
        if state.size_bytes is not None:
            found.append(sample("holdfast_state_entries_bytes", state.size_bytes, *labels, state.name))
    return found
