"""`holdfast status`: one job in full, once or live."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

import holdfast as hf
from holdfast.cli import next_step, options, output
from holdfast.cli.arguments import JobName
from holdfast.cli.help_text import examples
from holdfast.cli.stop import until_stopped
from holdfast.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.text import Text

    from holdfast.jobs import JobReport, ScaleDecision
    from holdfast.jobs.recovery import Prediction, RecoveryTimes
    from holdfast.jobs.registry.client import JobDetails
    from holdfast.jobs.reports import QuerySizing
    from holdfast.model import BatchProgress
    from holdfast.observe.alerting import Alert
    from holdfast.observe.lag import Lag


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], width: int) -> str:
    """Return the newest values as bars, scaled to the largest; an unknown value is a gap.

    Args:
        values: The values, oldest first.
        width: The maximum number of bars.
    """
    shown = list(values)[-width:] if width > 0 else []
    largest = max((value for value in shown if value is not None), default=0.0)
    return "".join(" " if value is None else _bar(value, largest) for value in shown)


def _bar(value: float, largest: float) -> str:
    if largest <= 0:
        return _BARS[0]
    return _BARS[min(int(max(value, 0.0) / largest * len(_BARS)), len(_BARS) - 1)]


EVERY_S = 1.0
HISTORY = 120
_LEAST_WIDTH = 10
_DECISIONS = 3
# The width of names and numbers next to the bars.
_BESIDE = 34


@dataclass(frozen=True, slots=True)
class Look:
    """A snapshot of a job's details."""

    details: JobDetails
    alerts: tuple[Alert, ...]


def follow(look: Callable[[], Look], *, json: bool) -> None:
    """Show a job continuously until the job ends or the user presses Ctrl-C."""
    with until_stopped() as stopped:
        if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not json:
            _draw(look, stopped)
        else:
            _lines(look, stopped, json=json)


def _lines(look: Callable[[], Look], stopped: threading.Event, *, json: bool) -> None:
    """Print a line for each batch, each change of the job's state, and each alert that starts or ends."""
    seen: dict[str, int] = {}
    former: Look | None = None
    while True:
        now = look()
        for change in _changes(former, now, seen):
            if json:
                output.emit_json(change)
            else:
                output.line(str(change["text"]))
        former = now
        if now.details.status.job.state.terminal or stopped.wait(EVERY_S):
            return


def _changes(former: Look | None, now: Look, seen: dict[str, int]) -> Iterable[Mapping[str, Any]]:
    job = now.details.status.job
    if former is None or former.details.status.job.state is not job.state:
        yield {"event": "state", "text": f"{job.name}: {job.state.value}", **now.details.status.as_dict()}
    before = {alert.key: alert for alert in former.alerts} if former is not None else {}
    after = {alert.key: alert for alert in now.alerts}
    for key in after.keys() - before.keys():
        yield _alert("alert", f"{job.name}: alert: {after[key].text}", after[key])
    for key in before.keys() - after.keys():
        yield _alert("cleared", f"{job.name}: alert cleared: {before[key].text}", before[key])
    batches = now.details.batches if former is not None else now.details.newest()
    for batch in batches:
        if batch.batch_id > seen.get(batch.query, -1):
            seen[batch.query] = batch.batch_id
            yield {"event": "batch", "text": _batch_line(batch), **batch.as_dict()}


def _alert(event: str, text: str, alert: Alert) -> Mapping[str, Any]:
    return {**alert.as_dict(), "event": event, "text": text}


def _batch_line(batch: BatchProgress) -> str:
    from holdfast.observe.job_metrics import state_bytes
    from holdfast.quantities import rounded_size

    state = f", {batch.state_text}, {rounded_size(state_bytes(batch))}" if batch.operators else ""
    late = f", {batch.late_rows:,} late" if batch.late_rows else ""
    took = output.duration(batch.took_ms)
    if not batch.measured:
        return f"{batch.query} batch {batch.batch_id}: took {took}"
    return f"{batch.query} batch {batch.batch_id}: {counted(batch.input_rows, 'row')} in {took}{state}{late}"


def _draw(look: Callable[[], Look], stopped: threading.Event) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            now = look()
            live.update(_text(now, console.width), refresh=True)
            if now.details.status.job.state.terminal or stopped.wait(EVERY_S):
                return


def _text(now: Look, width: int) -> Text:
    from rich.text import Text

    colours = {"alert": "bold red", "bars": "cyan", "name": "bold", "": ""}
    made = Text(no_wrap=True, overflow="ellipsis")
    for line in screen(now, width):
        for style, part in line:
            made.append(part, colours[style])
        made.append("\n")
    return made


def screen(now: Look, width: int) -> list[list[tuple[str, str]]]:
    """Return the lines of the screen, each as parts with a style.

    Args:
        now: The job.
        width: The number of characters in a line.
    """
    job = now.details.status.job
    lines: list[list[tuple[str, str]]] = [[("name", job.name), ("", f"  {now.details.status.word}")]]
    room = max(width - _BESIDE, _LEAST_WIDTH)
    for query in now.details.queries:
        history = [earlier for earlier in now.details.batches if earlier.query == query.name]
        lines += [[("", "")], [("name", query.name)]]
        lines += _query(history, room) if history else [[("", "  no batch yet")]]
    if now.alerts:
        lines.append([("", "")])
        lines += [[("alert", f"alert  {alert.text}")] for alert in now.alerts]
    return lines


def _query(history: list[BatchProgress], room: int) -> list[list[tuple[str, str]]]:
    from holdfast.observe.job_metrics import state_bytes
    from holdfast.quantities import rounded_size

    newest = history[-1]
    rates = [batch.input_rows * 1000 / max(batch.duration_ms, 1) for batch in history]
    rows: list[tuple[str, str, list[float]]] = [
        ("batch", output.duration(newest.took_ms), [float(batch.duration_ms) for batch in history]),
    ]
    if newest.measured:
        rows.append(("rows/s", f"{rates[-1]:,.0f}", rates))
    if newest.operators:
        sizes = [float(state_bytes(batch)) for batch in history]
        rows.append(("state", rounded_size(sizes[-1]), sizes))
    if newest.operators and newest.measured:
        counted = [float(batch.state_rows) for batch in history if batch.state_rows is not None]
        known = "unknown" if newest.state_rows is None else f"{newest.state_rows:,}"
        rows.append(("state rows", known, counted))
    made = [
        [("", f"  {name:<11}{value:>14}  "), ("bars", sparkline(values, room))]
        for name, value, values in rows
    ]
    watermark = f", watermark {newest.watermark}" if newest.watermark else ""
    late = sum(batch.late_rows for batch in history)
    late_rows = f", {late:,} late rows" if newest.measured else ""
    made.append([("", f"  batch {newest.batch_id}{late_rows}{watermark}")])
    return made


@examples("visits", "visits --watch")
def status(
    job: JobName,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep updating until the job ends or Ctrl-C.")
    ] = False,
    home: options.Home = None,
    json: options.Json = False,
) -> None:
    """Show a job: state, queries, batches, sizing, savepoints, attempts, recovery times and alerts.

    With --watch the screen is redrawn every second; in a pipe each batch is a line, with --json a document.
    """
    if watch:
        _follow(job, home, json)
        return
    report = hf.jobs.status(job, home=home)
    output.show(report, json, _show)
    next_step.say_looked_up(json, lambda: _after_status(report.details, home))


def _show(report: JobReport) -> None:
    _render(report.details, report.sizing, report.lag, report.autoscale)
    _render_recoveries(report.details.recoveries, report.prediction)
    if report.alerts:
        output.line()
        output.table(
            ["ALERT", "SINCE", "SUMMARY"],
            [(alert.rule, output.moment(alert.since_ms), alert.text) for alert in report.alerts],
            below=["SUMMARY"],
        )


def _after_status(details: JobDetails, home: str | None) -> tuple[str, ...]:
    """Return the next step for a job in this state."""
    from holdfast.model import JobKind, JobState

    job, homes = details.status.job, next_step.home_words(home)
    if job.kind is JobKind.CHECKPOINT:
        return ("checkpoint", "show", next_step.typed(job.checkpoint))
    if job.kind.is_recorded and (job.state.terminal or not details.status.supervised):
        return ("checkpoint", "show", next_step.typed(job.checkpoint))
    if job.state is JobState.FAILED:
        checkpoint = details.queries[0].checkpoint if details.queries else job.checkpoint
        return ("checkpoint", "verify", next_step.typed(checkpoint))
    if job.state.terminal or not details.status.supervised:
        return next_step.run_words(job.target, home)
    if job.state is not JobState.RUNNING or not details.queries or details.savepoint_directory is None:
        return ("status", job.name, "--watch", *homes)
    place = job.name if len(details.queries) == 1 else next_step.typed(details.queries[0].checkpoint)
    return ("savepoint", "take", place, next_step.typed(details.savepoint_directory), *homes)


def _follow(job: str, home: str | None, json: bool) -> None:

    control = options.control(home)
    name = control.details(job, batches=1).status.job.name
    follow(lambda: Look(control.details(name, batches=HISTORY), _firing(name, home)), json=json)


def _firing(job: str, home: str | None) -> tuple[Alert, ...]:
    return tuple(alert for alert in hf.jobs.alerts(job, last=0, home=home).alerts if alert.firing)


def _state(details: JobDetails) -> str:
    word, reason = details.status.word, details.status.job.reason
    return f"{word}: {reason}" if reason and reason != word.lower() else word


def _last_failure(details: JobDetails) -> list[tuple[str, str]]:
    """Return the last failure as a field, unless a batch followed it or the job's state shows it."""
    from holdfast.model import JobState

    attempt, job = details.last_failure, details.status.job
    if attempt is None or job.state.terminal or (job.state is JobState.RESTARTING and job.reason):
        return []
    at_ms = attempt.ended_ms or attempt.began_ms
    return [("last failure", f"{output.moment(at_ms, in_utc=True)}: {attempt.failure}")]


def _render(
    details: JobDetails,
    sized: Sequence[QuerySizing],
    lags: Sequence[Lag],
    scaled: Sequence[ScaleDecision],
) -> None:
    from holdfast.observe.batch_numbers import watermark_ms

    output.fields(_fields(details))
    if details.queries:
        output.line()
        newest = {batch.query: batch for batch in details.newest()}
        output.table(
            ["QUERY", "BATCH", "ROWS", "TOOK", "STATE ROWS", "WATERMARK", "DELIVERY"],
            [
                (
                    query.name,
                    batch.batch_id if (batch := newest.get(query.name)) else None,
                    batch.rows_read if batch else None,
                    output.duration(batch.took_ms) if batch else None,
                    batch.state_rows if batch else None,
                    output.moment(watermark_ms(batch)) if batch else None,
                    query.promise.split(":")[0],
                )
                for query in details.queries
            ],
            spare=("DELIVERY", "STATE ROWS"),
        )
    _render_lag(lags)
    keyed = list(_keyed(details))
    if keyed:
        output.line()
        output.table(["QUERY", "OPERATOR", "STATE", "ENTRIES", "TIMERS", "EXPIRED", "BYTES"], keyed)
    _render_sizing(sized)
    if scaled:
        output.line()
    for decision in scaled[-_DECISIONS:]:
        output.prose(f"autoscale, {output.moment(decision.at_ms)}: {decision.line}")
    if details.savepoints:
        output.line()
        output.table(
            ["SAVEPOINT", "QUERY", "BATCH", "NEW BYTES", "ADDRESS"],
            [
                (
                    output.moment(savepoint.at_ms),
                    savepoint.query,
                    savepoint.batch_id,
                    savepoint.new_bytes,
                    savepoint.uri or savepoint.problem,
                )
                for savepoint in details.savepoints[-5:]
            ],
            below=["ADDRESS"],
        )
    if details.attempts:
        output.line()
        output.table(
            ["ATTEMPT", "STARTED", "FIRST COMMIT", "OUTCOME", "CAUSE", "REASON"],
            [
                (
                    attempt.number,
                    output.moment(attempt.began_ms),
                    output.duration(attempt.first_commit_ms - attempt.began_ms)
                    if attempt.first_commit_ms
                    else None,
                    attempt.ending or "running",
                    attempt.failure.cause if attempt.failure else None,
                    str(attempt.failure) if attempt.failure else None,
                )
                for attempt in details.attempts[-10:]
            ],
            spare=("FIRST COMMIT",),
            below=["REASON"],
        )


def _fields(details: JobDetails) -> list[tuple[str, Any]]:
    """Return the facts about a job as a whole."""
    from holdfast.model import JobKind

    job = details.status.job
    head = [("job", job.name), ("id", job.job_id), ("state", _state(details))]
    if job.kind is JobKind.CHECKPOINT:
        return [
            *head,
            ("known from", f"its checkpoint {job.checkpoint}, served by `holdfast serve`"),
            ("oldest batch", output.moment(job.started_ms or None, in_utc=True)),
            ("newest batch", output.moment(job.updated_ms or None, in_utc=True)),
            ("accepts", ", ".join(details.status.accepts)),
        ]
    return [
        *head,
        *_last_failure(details),
        *([("kind", job.kind.value)] if job.kind.is_recorded else []),
        ("program" if job.kind.is_recorded else "file", job.target),
        ("checkpoint", job.checkpoint),
        ("started", output.moment(job.started_ms, in_utc=True)),
        *([] if job.ended_ms is None else [("ended", output.moment(job.ended_ms, in_utc=True))]),
        ("late rows", details.late_rows),
        ("leader", _leader(details)),
        *_standby(details),
    ]


def _keyed(details: JobDetails) -> Iterator[tuple[Any, ...]]:
    """Yield the keyed operators and their states, with sizes and the expired values of the batches shown."""
    for batch in details.newest():
        before = [earlier for earlier in details.batches if earlier.query == batch.query]
        for keyed in (operator.keyed for operator in batch.operators if operator.keyed is not None):
            expired: Counter[str] = Counter()
            for former in (
                operator.keyed
                for other in before
                for operator in other.operators
                if operator.name == keyed.name and operator.keyed is not None
            ):
                expired.update({state.name: state.expired for state in former.states})
            size = _or_unknown(keyed.size_bytes)
            yield (
                batch.query,
                keyed.name,
                "(keys)",
                _or_unknown(keyed.keys),
                _or_unknown(keyed.timers),
                expired.total(),
                size,
            )
            for state in keyed.states:
                entries, size = _or_unknown(state.entries), _or_unknown(state.size_bytes)
                yield batch.query, keyed.name, state.name, entries, None, expired[state.name], size


def _render_lag(lags: Sequence[Lag]) -> None:
    """Print the lag of each query by topic, with the partitions that have the most unread records."""
    from itertools import groupby

    if not lags:
        return
    rows = []
    for (query, source, topic), group in groupby(lags, lambda lag: (lag.query, lag.source, lag.topic)):
        of_topic = list(group)
        oldest = max(of_topic, key=lambda lag: (lag.behind_ms, lag.at_least))
        most = max(of_topic, key=lambda lag: lag.left)
        waited = output.duration(oldest.behind_ms) if most.left else None
        rows.append(
            (
                query,
                source,
                topic,
                f"{sum(lag.left for lag in of_topic):,} {most.unit}",
                f"at least {waited}" if oldest.at_least else waited,
                None if not most.left or most.partition is None else most.partition,
            )
        )
    output.line()
    output.table(["QUERY", "SOURCE", "TOPIC OR TABLE", "BEHIND", "OLDEST WAITS", "MOST IN PARTITION"], rows)


def _render_sizing(sized: Sequence[QuerySizing]) -> None:
    """Print the present and the recommended size of each query, and the growth of its state."""
    from holdfast.observe.growth import Growing
    from holdfast.quantities import rounded_size

    if sized:
        output.line()
        output.table(
            [
                "QUERY",
                "SIZING",
                "CONFIDENCE",
                "BATCH TIME",
                "MIN TIME",
                "PARTITIONS",
                "CORES",
                "MEMORY",
                "REASON",
            ],
            [
                (
                    query.query,
                    one.state.words,
                    one.sureness.value,
                    output.duration(one.batch_ms),
                    output.duration(one.critical_ms),
                    _right(one.recommended_partitions, one.partitions),
                    _right(one.recommended_cores, one.cores),
                    None
                    if one.recommended_memory_bytes is None
                    else rounded_size(one.recommended_memory_bytes),
                    "; ".join(one.why),
                )
                for query in sized
                for one in (query.sizing,)
            ],
            spare=["MIN TIME", "MEMORY"],
            below=["REASON"],
        )
    grown = [
        (
            query.query,
            each.operator,
            each.growing.words,
            None if each.bytes_a_day is None else rounded_size(each.bytes_a_day),
            None if each.keys_a_day is None else round(each.keys_a_day),
            None if each.full_at_ms is None else output.moment(each.full_at_ms),
        )
        for query in sized
        for each in query.growth
        if each.growing is not Growing.TOO_LITTLE_SEEN
    ]
    if grown:
        output.line()
        output.table(["QUERY", "OPERATOR", "GROWTH", "BYTES/DAY", "KEYS/DAY", "FULL AT"], grown)


def _right(recommended: int | None, present: int | None) -> str | None:
    """Return `200 (8 advised)`, or only the present number if no other is recommended."""
    if recommended is None or present is None or recommended == present:
        return None if present is None else str(present)
    return f"{present} ({recommended} advised)"


def _or_unknown(number: int | None) -> int | str:
    return "unknown" if number is None else number


def _standby(details: JobDetails) -> list[tuple[str, str]]:
    from holdfast.quantities import rounded_size

    standby = details.standby
    if standby is None or not details.status.supervised:
        return []
    ready = output.moment(standby.ready_ms, in_utc=True)
    return [("standby", f"driver {standby.pid}, ready since {ready}, {rounded_size(standby.memory_bytes)}")]


def _leader(details: JobDetails) -> str | None:
    leader = details.leader
    return None if leader is None else f"{leader.holder}, elected at {leader.address}"


def _render_recoveries(recoveries: Sequence[RecoveryTimes], prediction: Prediction | None) -> None:
    """Print the phases of recoveries, and the prediction for the next recovery on the last line."""
    from holdfast.jobs.recovery import PHASES

    rows = [
        (
            output.moment(recovery.at_ms),
            output.duration(recovery.recovery_ms),
            *(output.duration(recovery.phases_ms[phase]) for phase in PHASES),
            recovery.cause.partition(":")[0],
        )
        for recovery in recoveries[-5:]
    ]
    if prediction is not None:
        expected = [output.duration(prediction.phases_ms[phase]) for phase in PHASES]
        rows.append(
            ("next (predicted)", output.duration(prediction.recovery_ms), *expected, _error(prediction))
        )
    if rows:
        output.line()
        output.table(
            ["RECOVERY", "TOOK", *(phase.upper() for phase in PHASES), "CAUSE"],
            rows,
            spare=[phase.upper() for phase in PHASES],
        )


def _error(prediction: Prediction) -> str:
    if prediction.error_ms is None:
        return "± unknown"
    return f"± {output.duration(prediction.error_ms)}"
