"""The views for the pages of jobs, alerts and operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.config.alert_settings import Alerts
from holdfast.errors import HoldfastError, NotFound
from holdfast.jobs import reports
from holdfast.jobs.registry.client import JobDetails, JobStatus
from holdfast.jobs.registry.operation_log import Operation, OperationState
from holdfast.jobs.registry.registry import Attempt
from holdfast.jobs.reports import newest_skew
from holdfast.model import (
    BatchProgress,
    JobState,
    KeyedProgress,
    KeyedState,
    OperatorProgress,
    QueryStarted,
)
from holdfast.observe.alerting import FIRING, Alert
from holdfast.observe.batch_numbers import watermark_ms
from holdfast.observe.job_metrics import (
    access_seconds,
    cache_hit_ratio,
    operator_bytes,
    shown_kind,
    shown_name,
    state_bytes,
)
from holdfast.observe.rules import BY_RULE, RULES, shown_value
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard import figures
from holdfast.server.dashboard.charts import ALL, timeline
from holdfast.server.dashboard.job_charts import (
    query_charts,
    query_markers,
    rows_per_second,
    short_threshold,
)
from holdfast.server.dashboard.views import (
    AlertLine,
    AlertsView,
    AttemptLine,
    BatchLine,
    ExpectedLine,
    HealthLevel,
    HeavyKeyLine,
    JobLine,
    JobsView,
    JobView,
    OperationLine,
    OperationView,
    OperatorLine,
    Phase,
    QueryView,
    RecoveryLine,
    RuleLine,
    SkewLine,
    StateFilter,
    view_of,
)

_EVENTS_SHOWN: Final = 100


def alerts_view(plane: ControlPlane) -> AlertsView:
    """Return the open alerts, the history of alerts, newest first, and the rules with their defaults."""
    alerts = reports.alerts(plane.home)
    events = reports.alert_events(plane.home, last=_EVENTS_SHOWN)
    history = [
        _line(event.event.alert, event.event.kind, event.event.at_ms, event.event.text)
        for event in reversed(events)
    ]
    defaults = Alerts().thresholds
    rules = tuple(
        RuleLine(
            rule.name,
            rule.alert,
            rule.severity,
            rule.above,
            short_threshold(shown_value(defaults[rule.name], rule.unit)) if rule.name in defaults else "off",
            rule.advice,
        )
        for rule in RULES
    )
    firing = sum(alert.firing for alert in alerts)
    return AlertsView(plane.clock(), alert_lines(alerts), tuple(history), rules, firing)


def standing(plane: ControlPlane) -> Sequence[Alert]:
    """Return the open alerts of all jobs, for the other pages.

    If the alerts cannot be read, the result is empty; the page of alerts shows the error.
    """
    try:
        return plane.cache.get("standing alerts", lambda: reports.alerts(plane.home))
    except HoldfastError:
        return ()


def alert_lines(alerts: Iterable[Alert]) -> tuple[AlertLine, ...]:
    """Return the alerts as lines, firing ones first, ordered by severity."""
    lines = [_line(alert, alert.phase, alert.since_ms, alert.text) for alert in alerts]
    return tuple(sorted(lines, key=lambda line: (line.phase != FIRING, line.severity, -line.at_ms)))


def _line(alert: Alert, phase: str, at_ms: int, text: str) -> AlertLine:
    rule = BY_RULE[alert.rule]
    return AlertLine(alert.job, alert.rule, phase, rule.severity, text, rule.advice, at_ms)


_HEALTH: Final = {
    OperationState.ASKED: HealthLevel.BUSY,
    OperationState.RUNNING: HealthLevel.BUSY,
    OperationState.COMPLETED: HealthLevel.OVER,
    OperationState.FAILED: HealthLevel.BAD,
}


def operation_lines(plane: ControlPlane, job: str, limit: int) -> tuple[OperationLine, ...]:
    """Return the newest operations of a job, newest first."""
    newest = plane.operations.newest(job, limit)
    return tuple(operation_line(operation, plane.clock()) for operation in newest)


def operation_view(plane: ControlPlane, operation_id: str) -> OperationView:
    """Return one operation in full.

    Raises:
        NotFound: The operation is unknown.
    """
    operation = plane.operations.get(operation_id)
    firing = sum(alert.firing for alert in standing(plane))
    return OperationView(
        plane.clock(), operation_line(operation, plane.clock()), operation.arguments, operation.result, firing
    )


def operation_line(operation: Operation, now_ms: int) -> OperationLine:
    """Return an operation as a line of a list."""
    progress = operation.progress or {}
    began = operation.started_ms or operation.asked_ms
    health = _HEALTH[operation.state]
    if health is HealthLevel.OVER and _is_bad(operation):
        health = HealthLevel.WARN
    return view_of(
        OperationLine,
        operation,
        operation=operation.operation_id,
        about=_about(operation),
        state=operation.state.value,
        health=health,
        took_ms=(operation.ended_ms or now_ms) - began if operation.started_ms else None,
        done=progress.get("done"),
        total=progress.get("total"),
        what=progress.get("what"),
        outcome=None if operation.result is None else outcome(operation.verb, operation.result),
    )


def _is_bad(operation: Operation) -> bool:
    """Return whether the result of an operation needs attention."""
    return operation.verb == "verify" and not (operation.result or {}).get("ok", True)


def _about(operation: Operation) -> str | None:
    given = operation.arguments
    if operation.verb == "diff":
        return f"{short_address(given['first'])} and {short_address(given['second'])}"
    if operation.verb == "dispose":
        return ", ".join(short_address(address) for address in given["savepoints"])
    if "savepoint" in given:
        return short_address(given["savepoint"])
    return given.get("label")


def outcome(verb: str, result: Mapping[str, Any]) -> str:
    """Return the result of an operation as a sentence."""
    if verb in ("savepoint", "stop"):
        made = result.get("savepoints") or []
        savepoints = ", ".join(
            f"batch {savepoint['batch']}, {figures.size(savepoint['bytes'])}" for savepoint in made
        )
        return f"taken: {savepoints}" if made else "stopped"
    if verb in ("restore", "fork"):
        return f"checkpoint created: {result.get('checkpoint')}"
    if verb == "verify":
        problems = result.get("problems") or []
        content = {"compared": "whole, rows compared", "pending": "whole; digests pending"}
        whole = content.get(str(result.get("content")), "whole")
        return whole if result.get("ok") else f"damaged: {len(problems)} problems"
    if verb == "dispose":
        return "deleted"
    if verb == "diff":
        counted = {name: _sum(result, name) for name in ("added", "removed", "changed")}
        changes = ", ".join(f"{figures.count(number)} {name}" for name, number in counted.items() if number)
        return "the same" if result.get("same") else changes or "different"
    return "done"


def _sum(result: Mapping[str, Any], name: str) -> int:
    return sum(state.get(name) or 0 for state in result.get("states") or ())


def short_address(address: str) -> str:
    """Return the last part of an address."""
    return address.rstrip("/").rpartition("/")[2]


# The number of batches in a list of jobs: enough for a sparkline, and fast to read for many jobs.
_LATELY: Final = 40
_BATCHES_SHOWN: Final = 20
_SHOWN: Final = 12
_LIST_FRESH_S: Final = 1.0
_URGENCY: Final = {
    HealthLevel.BAD: 0,
    HealthLevel.BUSY: 1,
    HealthLevel.WARN: 2,
    HealthLevel.GOOD: 2,
    HealthLevel.OVER: 3,
}


# The states that jobs are filtered by, in the order of display.
STATES: Final = {
    "running": HealthLevel.GOOD,
    "changing": HealthLevel.BUSY,
    "failing": HealthLevel.BAD,
    "ended": HealthLevel.OVER,
}
_STATE_LABELS: Final = {"changing": "starting or ending"}


def jobs_view(plane: ControlPlane, state: str | None = None, name: str | None = None) -> JobsView:
    """Return the jobs: failing ones first, then running ones, the most recently started first.

    Args:
        plane: The control plane.
        state: One of `STATES`, to return only jobs in this state.
        name: A part of the names of the jobs to return, case-insensitive.
    """
    firing = firing_by_job(plane)
    lines = [job_line(plane, status, firing) for status in plane.jobs()]
    lines.sort(key=lambda line: (_URGENCY[line.health], not line.firing))
    counted = Counter(line.health for line in lines)
    selected = [
        line
        for line in lines
        if (state is None or line.health is STATES[state])
        and (name is None or name.casefold() in line.name.casefold())
    ]
    return JobsView(
        plane.clock(),
        str(plane.home.path),
        tuple(selected),
        sum(firing.values()),
        filters=tuple(
            StateFilter(value, _STATE_LABELS.get(value, value), health, counted[health])
            for value, health in STATES.items()
        ),
        state=state,
        name=name,
        all_jobs=len(lines),
    )


def job_view(plane: ControlPlane, job: str, query: str | None, time_range: str = ALL) -> JobView:
    """Return one job in full.

    Args:
        plane: The control plane.
        job: The job's name or id.
        query: The query to show; None for the first.
        time_range: The range of time of the charts.

    Raises:
        NotFound: The job or the query does not exist.
    """
    details = plane.details(job)
    chosen = chosen_query(plane, details, query)
    name = details.status.job.name
    alerts = standing(plane)
    return JobView(
        **head_of(plane, details),
        queries=tuple(started.name for started in details.queries),
        query=None if chosen is None else _query(plane, details, chosen, time_range),
        recoveries=_recoveries(details)[:_SHOWN],
        expected=_expected(plane, details),
        attempts=tuple(_attempt(attempt) for attempt in reversed(details.attempts))[:_SHOWN],
        alerts=alert_lines(alert for alert in alerts if alert.job == name),
        operations=operation_lines(plane, name, 5),
        time_range=time_range,
    )


def chosen_query(plane: ControlPlane, details: JobDetails, query: str | None) -> QueryStarted | None:
    """Return the query of a page; None for a job without a started query.

    Raises:
        NotFound: The query does not exist.
    """
    if query is None:
        return details.queries[0] if details.queries else None
    return plane.query(details, query)


def head_of(plane: ControlPlane, details: JobDetails) -> dict[str, Any]:
    """Return the values of the header that all pages of a job share."""
    firing = firing_by_job(plane)
    return {"now_ms": plane.clock(), "job": line_of(details, firing), "firing": sum(firing.values())}


def firing_by_job(plane: ControlPlane) -> Counter[str]:
    """Return the number of firing alerts by job."""
    return Counter(alert.job for alert in standing(plane) if alert.firing)


def job_line(plane: ControlPlane, status: JobStatus, firing: Counter[str]) -> JobLine:
    """Return a job as a line of a list, reading only the newest batch of each query."""

    def look() -> JobLine:
        name = status.job.name
        plain = plane.control.plain(name)
        if plain is not None:
            newest = plain[1].recent(name)
            return line_of(replace(plane.brief(name), status=status, batches=newest), firing)
        details = JobDetails(
            status,
            plane.registry.queries(name),
            plane.registry.attempts(name),
            plane.registry.batches(name, _LATELY),
            [],
            [],
            None,
            None,
            plane.registry.attempt_counts(name),
        )
        return line_of(details, firing)

    return plane.cache.get(("job line", status, firing[status.job.name]), look, _LIST_FRESH_S)


def line_of(details: JobDetails, firing: Counter[str]) -> JobLine:
    """Return a job as a line of a list, from details that are already read."""
    job = details.status.job
    recent = details.batches[-_LATELY:]
    newest = recent[-1] if recent else None
    of_queries = details.newest()
    return view_of(
        JobLine,
        job,
        state=job.state.value,
        health=_health(details.status),
        supervised=details.status.supervised,
        failure=None if (failed := details.last_failure) is None else str(failed.failure),
        queries=len(details.queries),
        batch=None if newest is None else newest.batch_id,
        committed_ms=None if newest is None else newest.committed_ms,
        duration_ms=None if newest is None else newest.took_ms,
        rows_per_second=rows_per_second(recent),
        state_rows=_state_rows(of_queries),
        state_bytes=_sum_of_bytes(of_queries),
        recent_ms=tuple(batch.took_ms for batch in recent if batch.took_ms is not None),
        restarts=details.counts.restarts,
        firing=firing[job.name],
        accepts=details.status.accepts,
    )


def _health(status: JobStatus) -> HealthLevel:
    state = status.job.state
    if state is JobState.FAILED or status.lost:
        return HealthLevel.BAD
    if state.terminal:
        return HealthLevel.OVER
    return HealthLevel.GOOD if state is JobState.RUNNING else HealthLevel.BUSY


def _query(plane: ControlPlane, details: JobDetails, query: QueryStarted, time_range: str) -> QueryView:
    batches = details.batches_of(query.name)
    newest = batches[-1] if batches else None
    watermark = None if newest is None else watermark_ms(newest)
    line = timeline(
        batches,
        lambda batch: batch.committed_ms,
        lambda batch: batch.batch_id,
        time_range,
        details.judged_ms(plane.clock()),
    )
    return view_of(
        QueryView,
        query,
        batch=None if newest is None else newest.batch_id,
        watermark_ms=watermark or None,
        lag_ms=plane.clock() - watermark if watermark else None,
        late_rows=sum(batch.late_rows for batch in batches)
        if all(batch.measured for batch in batches)
        else None,
        charts=query_charts(batches, line, plane.thresholds(details)),
        markers=query_markers(details, query.name),
        operators=tuple(_operator(operator, batches) for operator in newest.operators) if newest else (),
        batches=tuple(
            view_of(
                BatchLine,
                batch,
                batch=batch.batch_id,
                duration_ms=batch.took_ms,
                input_rows=batch.rows_read,
                late_rows=batch.late_rows if batch.measured else None,
                watermark_ms=watermark_ms(batch) or None,
            )
            for batch in reversed(batches[-_BATCHES_SHOWN:])
        ),
        skew=_skew(details, query.name),
        lags=tuple(lag for lag in plane.lags(details) if lag.query == query.name),
        sizing=next((each for each in plane.sizings(details) if each.query == query.name), None),
    )


def _skew(details: JobDetails, query: str) -> tuple[SkewLine, ...]:
    """Return the key skew of the query; empty if none is watched."""
    try:
        reports = [report for name, report in newest_skew(details) if name == query]
    except NotFound:
        return ()
    lines = []
    for report in reports:
        keys = [view_of(HeavyKeyLine, key, key=", ".join(map(str, key.key))) for key in report.heavy[:5]]
        lines.append(view_of(SkewLine, report, keys=tuple(keys)))
    return tuple(lines)


def _state_rows(newest: Sequence[BatchProgress]) -> int | None:
    """Return the number of rows in the state of all queries; None if one is unknown."""
    rows = [batch.state_rows for batch in newest if batch.state_rows is not None]
    return sum(rows) if rows and len(rows) == len(newest) else None


def _sum_of_bytes(newest: Sequence[BatchProgress]) -> int | None:
    """Return the size of the state of all queries; None before the first batch, or if it is not read."""
    if not newest or any(not batch.measured and not batch.operators for batch in newest):
        return None
    return sum(state_bytes(batch) for batch in newest)


def _states(keyed: KeyedProgress, batches: Sequence[BatchProgress]) -> tuple[KeyedState, ...]:
    expired: Counter[str] = Counter()
    for former in (
        operator.keyed for batch in batches for operator in batch.operators if operator.name == keyed.name
    ):
        expired.update({} if former is None else {state.name: state.expired for state in former.states})
    return tuple(replace(state, expired=expired[state.name]) for state in keyed.states)


def _operator(operator: OperatorProgress, batches: Sequence[BatchProgress]) -> OperatorLine:
    """Return the line of an operator in a query's newest batch."""
    keyed = operator.keyed
    access_s = access_seconds(operator)
    line = view_of(
        OperatorLine,
        operator,
        display_name=shown_name(operator),
        operator_kind=shown_kind(operator),
        late_rows=operator.late_rows + (keyed.late if keyed is not None else 0),
        size_bytes=operator_bytes(operator),
        access_ms=None if access_s is None else access_s * 1000,
        cache_hits=cache_hit_ratio(operator),
        share=operator_bytes(operator) / max(1, state_bytes(batches[-1])),
        keyed=keyed is not None,
        timers=None if keyed is None else keyed.timers,
        states=() if keyed is None else _states(keyed, batches),
    )
    if batches[-1].measured:
        return line
    return replace(line, updated=None, removed=None, late_rows=None, memory_bytes=None, commit_ms=None)


def _attempt(attempt: Attempt) -> AttemptLine:
    failure = attempt.failure
    return view_of(
        AttemptLine,
        attempt,
        failure=None if failure is None else str(failure),
        detail=None if failure is None else failure.detail or None,
    )


def _recoveries(details: JobDetails) -> tuple[RecoveryLine, ...]:
    """Return the recoveries, newest first."""
    return tuple(
        view_of(RecoveryLine, recovery, took_ms=recovery.recovery_ms, phases=_phases(recovery.phases_ms))
        for recovery in reversed(details.recoveries)
    )


def _expected(plane: ControlPlane, details: JobDetails) -> ExpectedLine | None:
    """Return the expected duration of the next recovery; None if unknown."""
    if not details.recoveries:
        return None  # the page does not show it, and reading the checkpoint is expensive
    try:
        prediction = plane.prediction(details)
    except HoldfastError:
        return None
    if prediction is None:
        return None
    return ExpectedLine(prediction.recovery_ms, prediction.error_ms, _phases(prediction.phases_ms))


def _phases(phases_ms: Mapping[str, int]) -> tuple[Phase, ...]:
    return tuple(Phase(name, ms) for name, ms in phases_ms.items())
