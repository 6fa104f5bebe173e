"""The sizing of a query: partitions, cores and memory compared with the needs of its batches.

As in Qubole's StreamingLens, the duration of a batch and its shortest duration with any number of cores
(its critical time) are compared with its maximum duration.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.json_shapes import JsonShape
from holdfast.model import BatchProgress
from holdfast.observe.job_metrics import cache_hit_ratio, operator_bytes
from holdfast.observe.metrics import LATELY_MS
from holdfast.quantities import counted, rounded_duration, rounded_size

# The number of newest batches with rows to examine.
BATCHES: Final = 50
# Shares of the maximum duration of a batch: over-provisioned below the first, under-provisioned above the
# second; cores are computed for the third.
OVER_BELOW: Final = 0.3
UNDER_ABOVE: Final = 0.7
AIM: Final = 0.5
# The minimum share of time for tasks; if the driver takes longer, no number of cores is enough.
_LEAST_FOR_TASKS: Final = 0.1
# A task of this many rows takes as long for its rows as for its start, load and commit.
ROWS_A_TASK: Final = 10_000
# With more data in a partition, its restart, and a task after the loss of an executor, wait for the download.
BYTES_A_PARTITION: Final = 512 * 1024 * 1024
# Splitting work into shorter tasks does not make it faster.
_SHORTEST_TASK_MS: Final = 100
# The maximum factor by which a recommendation exceeds the current number; measure again after a change.
_STEP: Final = 4
# Up to this factor, too many partitions are kept, because a change requires a rescale.
TOLERATED: Final = 4
_HEADROOM: Final = 1.25
_GOOD_CACHE: Final = 0.8
_MIB: Final = 1024 * 1024
_SURE_BATCHES: Final = 20
_FAIR_BATCHES: Final = 5
_EVEN: Final = 2.0


class Provision(str, Enum):
    """The comparison of a query's resources with its needs."""

    NO_NEW_BATCHES = "no_new_batches"
    OVER_PROVISIONED = "over_provisioned"
    RIGHT = "right"
    UNDER_PROVISIONED = "under_provisioned"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        """Return the verdict as text for display."""
        return self.value.replace("_provisioned", "-provisioned").replace("_", " ")


class Sureness(str, Enum):
    """The confidence of a verdict."""

    HIGH = "high"
    FAIR = "fair"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Sizing(JsonShape):
    """The present and the recommended resources of a query.

    Attributes:
        state: `no_new_batches`, `over_provisioned`, `right`, `under_provisioned` (more cores help),
            `unhealthy` (no number of cores is enough), or `unknown` if no maximum duration is set.
        sureness: `high`, `fair` or `low`.
        batches: The number of batches with rows that were examined.
        interval_ms: The trigger interval; None without one.
        allowed_ms: The maximum duration of a batch: the trigger interval, or the threshold of the alert
            `checkpoint_duration`.
        batch_ms: The 90th percentile of the batches' durations.
        critical_ms: The shortest possible duration of a batch with unlimited cores and the present
            partitions.
        critical_known: Whether `critical_ms` was measured in tasks; otherwise it is only the driver's part.
        partitions: The number of partitions of the state; None without state.
        recommended_partitions: The recommended number of partitions; None without state.
        cores: The number of tasks that can run at the same time; None if unknown.
        recommended_cores: The recommended number of cores; None if unknown, or if no number is enough.
        memory_bytes: The largest memory of the state's stores, in bytes; None without state.
        recommended_memory_bytes: The recommended memory for the stores, in bytes; None without state.
        why: The reasons for the verdict, as sentences.
    """

    state: Provision
    sureness: Sureness
    batches: int
    interval_ms: int | None
    allowed_ms: int | None
    batch_ms: int | None
    critical_ms: int | None
    critical_known: bool
    partitions: int | None
    recommended_partitions: int | None
    cores: int | None
    recommended_cores: int | None
    memory_bytes: int | None
    recommended_memory_bytes: int | None
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Load:
    """The load of the examined batches; each value is a 90th percentile."""

    batches: tuple[BatchProgress, ...]
    allowed_ms: int
    batch_ms: int
    critical_ms: int
    driver_ms: int
    run_ms: int | None
    measured: int
    rows: int
    state_bytes: int
    partitions: int | None
    cores: int | None


def batch_limit_ms(thresholds: Mapping[str, float]) -> float | None:
    """Return the maximum duration of a batch from the thresholds of a job's alerts."""
    seconds = thresholds.get("checkpoint_duration")
    return None if seconds is None else seconds * 1000


def sizing(history: Sequence[BatchProgress], now_ms: int, limit_ms: float | None) -> Sizing:
    """Return the sizing of a query.

    Args:
        history: The newest batches of the query, oldest first.
        now_ms: The current time in epoch milliseconds; for an ended job, the time of its end.
        limit_ms: The maximum duration of a batch if the trigger has no interval; None without one.
    """
    with_rows = tuple(batch for batch in history if batch.input_rows)[-BATCHES:]
    interval_ms = history[-1].interval_ms if history else None
    # In real-time mode a batch always lasts its interval, so its duration is not informative.
    allowed = None if history and history[-1].real_time else interval_ms or limit_ms
    quiet_ms = max(LATELY_MS, 10 * (interval_ms or 0))
    if not with_rows or now_ms - with_rows[-1].committed_ms > quiet_ms:
        return _without_batches(history, with_rows, now_ms, interval_ms)
    load = _load(with_rows, int(allowed) if allowed else 0)
    state = _state(load, interval_ms)
    cores = _cores(load, state)
    partitions = _partitions(load)
    memory, memory_right = _memory(with_rows)
    return Sizing(
        state,
        _sureness(load, state),
        len(with_rows),
        interval_ms,
        load.allowed_ms or None,
        load.batch_ms,
        load.critical_ms,
        load.measured > 0,
        load.partitions,
        partitions,
        load.cores,
        cores,
        memory,
        memory_right,
        tuple(_why(load, state, interval_ms, cores, partitions)),
    )


def _without_batches(
    history: Sequence[BatchProgress], with_rows: Sequence[BatchProgress], now_ms: int, interval_ms: int | None
) -> Sizing:
    if with_rows:
        ago = rounded_duration(now_ms - with_rows[-1].committed_ms)
        why = f"the newest batch with rows is {ago} old; if rows do arrive, a batch or a source hangs"
    else:
        why = f"none of {counted(len(history), 'batch')} had rows"
    newest = history[-1] if history else None
    operators = newest.operators if newest else ()
    return Sizing(
        Provision.NO_NEW_BATCHES,
        Sureness.HIGH if with_rows else Sureness.FAIR,
        len(with_rows),
        interval_ms,
        interval_ms,
        None,
        None,
        critical_known=False,
        partitions=max((operator.partitions for operator in operators), default=None),
        recommended_partitions=None,
        cores=newest.cores if newest else None,
        recommended_cores=None,
        memory_bytes=sum(operator.memory_bytes for operator in operators) if operators else None,
        recommended_memory_bytes=None,
        why=(why,),
    )


def _load(batches: tuple[BatchProgress, ...], allowed_ms: int) -> _Load:
    measured = [batch for batch in batches if batch.tasks is not None]
    cores = next((batch.cores for batch in reversed(batches) if batch.cores), None)
    timed = measured or batches
    newest = batches[-1]
    run_ms = _most_of(batch.tasks.run_ms for batch in measured if batch.tasks is not None)
    if not measured and cores is not None:
        # All cores may have been busy during the whole time that Spark worked on the rows.
        run_ms = _most_of(batch.phases_ms.get("addBatch", batch.duration_ms) * cores for batch in batches)
    return _Load(
        batches,
        allowed_ms,
        batch_ms=_most_of(batch.duration_ms for batch in batches) or 0,
        critical_ms=_most_of(critical_ms(batch) for batch in timed) or 0,
        driver_ms=_most_of(driver_ms(batch) for batch in timed) or 0,
        run_ms=run_ms,
        measured=len(measured),
        rows=_most_of(_rows(batch) for batch in batches) or 0,
        state_bytes=max((operator_bytes(operator) for operator in newest.operators), default=0),
        partitions=max((operator.partitions for operator in newest.operators), default=0) or None,
        cores=cores,
    )


def driver_ms(batch: BatchProgress) -> int:
    """Return the time that a batch spends only in the driver; if unknown, the time outside `addBatch`."""
    if batch.tasks is None:
        return max(batch.duration_ms - batch.phases_ms.get("addBatch", batch.duration_ms), 0)
    return max(batch.duration_ms - batch.tasks.jobs_ms, 0)


def critical_ms(batch: BatchProgress) -> int:
    """Return the shortest duration of a batch with unlimited cores: driver time plus the longest tasks."""
    longest = 0 if batch.tasks is None else batch.tasks.longest_ms
    return min(driver_ms(batch) + longest, batch.duration_ms)


def _rows(batch: BatchProgress) -> int:
    return max([batch.input_rows, *(operator.updated for operator in batch.operators)])


def _most_of(values: Iterable[int]) -> int | None:
    """Return the 90th percentile of the values; None without values."""
    ordered = sorted(values)
    return ordered[math.ceil(0.9 * len(ordered)) - 1] if ordered else None


def _state(load: _Load, interval_ms: int | None) -> Provision:
    if not load.allowed_ms:
        return Provision.UNKNOWN
    if load.batch_ms <= UNDER_ABOVE * load.allowed_ms:
        # Without an interval the cores are never idle while there are rows.
        idle = interval_ms and load.batch_ms <= OVER_BELOW * load.allowed_ms
        return Provision.OVER_PROVISIONED if idle else Provision.RIGHT
    unhealthy = load.critical_ms > UNDER_ABOVE * load.allowed_ms
    return Provision.UNHEALTHY if unhealthy else Provision.UNDER_PROVISIONED


def _by_data(load: _Load) -> int:
    """Return the number of partitions that the rows and the state need, regardless of time."""
    return max(1, math.ceil(load.rows / ROWS_A_TASK), math.ceil(load.state_bytes / BYTES_A_PARTITION))


def _by_time(load: _Load) -> int | None:
    """Return the number of cores that do the work in half the maximum duration; None if unknown.

    The time of a task with few rows is mostly its fixed cost, which fewer partitions reduce. A task of
    `ROWS_A_TASK` rows is assumed to spend half its time on it.
    """
    if load.run_ms is None or load.cores is None or not load.allowed_ms:
        return None
    work_ms = float(load.run_ms)
    if load.partitions:
        filled = load.rows / (load.partitions * ROWS_A_TASK)
        needed = min(_by_data(load) / load.partitions, 1.0)
        work_ms *= (needed + filled) / (1 + filled)
    time_ms = max(AIM * load.allowed_ms - load.driver_ms, _LEAST_FOR_TASKS * load.allowed_ms)
    most = min(math.ceil(work_ms / _SHORTEST_TASK_MS), _STEP * load.cores)
    return max(1, min(math.ceil(work_ms / time_ms), most))


def _cores(load: _Load, state: Provision) -> int | None:
    if state is Provision.RIGHT:
        return load.cores
    # If the driver alone takes that long, no number of cores is enough.
    return None if load.driver_ms >= AIM * load.allowed_ms else _by_time(load)


def _partitions(load: _Load) -> int | None:
    """Return the recommended number of partitions: a power of two, or the present number if close enough."""
    if load.partitions is None:
        return None
    needed = max(_by_data(load), _by_time(load) or 1)
    right = 1 << (needed - 1).bit_length()
    return load.partitions if right <= load.partitions <= TOLERATED * right else right


def _memory(batches: Sequence[BatchProgress]) -> tuple[int | None, int | None]:
    """Return the largest memory of the stores, and the recommended memory: more if reads miss the cache."""
    if not batches[-1].operators:
        return None, None
    used = max(sum(operator.memory_bytes for operator in batch.operators) for batch in batches)
    more = 0
    for operator in batches[-1].operators:
        hits = cache_hit_ratio(operator)
        if hits is not None and hits < _GOOD_CACHE:
            more += max(min(operator.memory_bytes, operator_bytes(operator) - operator.memory_bytes), 0)
    return used, math.ceil((used + more) * _HEADROOM / _MIB) * _MIB


def _sureness(load: _Load, state: Provision) -> Sureness:
    number = len(load.batches)
    if state is Provision.UNKNOWN or number < _FAIR_BATCHES:
        return Sureness.LOW
    if not load.measured:
        # Without measured tasks, the verdict that resources are too small is less certain than others.
        return Sureness.LOW if state is Provision.UNDER_PROVISIONED else Sureness.FAIR
    times = sorted(batch.duration_ms for batch in load.batches)
    even = load.batch_ms <= _EVEN * max(times[(len(times) - 1) // 2], 1)
    enough = number >= _SURE_BATCHES and load.measured >= _FAIR_BATCHES
    return Sureness.HIGH if enough and even else Sureness.FAIR


def _why(
    load: _Load, state: Provision, interval_ms: int | None, cores: int | None, partitions: int | None
) -> Iterable[str]:
    took = rounded_duration(load.batch_ms)
    if load.batches[-1].real_time:
        yield "in real-time mode a batch lasts for the whole trigger interval, whatever arrives"
    elif not load.allowed_ms:
        yield "without a trigger interval or the alert checkpoint_duration, a batch has no maximum duration"
    else:
        part = load.batch_ms / load.allowed_ms
        limit = "the trigger interval" if interval_ms else "the threshold of checkpoint_duration"
        shown = f"{part:.1%} of" if part < 2 else f"{part:,.0f} times"
        yield f"a batch takes {took}, {shown} {rounded_duration(load.allowed_ms)}, {limit}"
    yield from _compared(load, state)
    if not load.measured:
        yield "task times are unknown, so the shortest duration of a batch and its work are only bounds"
    elif state in (Provision.UNDER_PROVISIONED, Provision.UNHEALTHY) and _uneven(load):
        yield "a few tasks do most of the work: check for hot keys with `holdfast skew`"
    if partitions is not None and load.partitions and partitions != load.partitions:
        each = load.rows // load.partitions
        rows = counted(each, "row") if each else "less than one row"
        size = rounded_size(load.state_bytes // load.partitions)
        has = f"has {rows} per batch and {size} of state"
        right = f"{counted(partitions, 'partition')} recommended, with `holdfast rescale`"
        yield f"each of {counted(load.partitions, 'partition')} {has}: {right}"
    if cores is not None and load.cores and cores != load.cores:
        yield f"{counted(cores, 'core')} would do the work in half of the time; there are {load.cores}"


def _uneven(load: _Load) -> bool:
    """Return whether the longest tasks take more than twice their share of all tasks' time."""
    if not load.cores:
        return False
    tasks = [batch.tasks for batch in load.batches if batch.tasks is not None]
    longest, run = sum(task.longest_ms for task in tasks), sum(task.run_ms for task in tasks)
    return longest > 2 * run / max(min(load.partitions or load.cores, load.cores), 1)


def _compared(load: _Load, state: Provision) -> Iterable[str]:
    least = rounded_duration(load.critical_ms)
    at_least = f"with any number of cores it would take at least {least}"
    if state is Provision.RIGHT:
        yield f"that is enough headroom; {at_least}"
    elif state is Provision.OVER_PROVISIONED:
        yield f"the cores are mostly idle; {at_least}, so a shorter interval is possible"
    elif state is Provision.UNDER_PROVISIONED:
        yield f"{at_least}: use more cores, or reduce the work"
    elif state is Provision.UNHEALTHY:
        yield f"{at_least}, which alone is too long"
        longer = f"set a trigger interval of at least {rounded_duration(load.critical_ms / AIM)}"
        if load.driver_ms >= AIM * load.allowed_ms:
            yield f"the driver alone takes {rounded_duration(load.driver_ms)} of that: {longer}"
        else:
            yield f"the longest tasks take the rest: use more partitions to shorten them, or {longer}"
