"""The functions of `hf.jobs`: start, list and stop the jobs of a state home, and read their alerts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast.changes import take_and_restore
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.clock import now_ms
from holdfast.config.checks import place_word
from holdfast.config.settings import Settings
from holdfast.config.units import Duration, parse_duration
from holdfast.errors import Conflict, HoldfastError, Invalid, NotFound
from holdfast.jobs import reports
from holdfast.jobs.autoscaling import ScaleDecision, decisions
from holdfast.jobs.launching import Launch, launch
from holdfast.jobs.recovery import Prediction
from holdfast.jobs.registry.client import Control, JobDetails, JobStatus
from holdfast.jobs.registry.operation_log import RESTART
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.reports import QuerySizing
from holdfast.jobs.state_home import StateHome
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_spread
from holdfast.observe import grafana, prometheus
from holdfast.observe.alerting import Alert, AlertStore, NotedEvent
from holdfast.observe.lag import Lag
from holdfast.savepoints import savepoint_api
from holdfast.savepoints.address import Address
from holdfast.savepoints.catalog import PENDING, RECORDED, ids
from holdfast.savepoints.nesting import check_apart, check_catalog
from holdfast.savepoints.taking import Taken, check_label
from holdfast.storage import open_storage

_DECISIONS: Final = 20


@dataclass(frozen=True, slots=True)
class JobReport(JsonShape):
    """A job in full.

    Attributes:
        details: The job with its queries, attempts, batches, savepoints and recoveries.
        prediction: The expected duration of its next recovery; None without data.
        alerts: The firing alerts.
        sizing: The resources that each query has and needs, and the growth of its state.
        lag: The lag of each query by partition of its sources.
        autoscale: The newest decisions of the automatic rescale, oldest first.

    Example:
        report = hf.jobs.status("visits")
        assert report.details.status.job.state == "RUNNING"
        assert [query.name for query in report.details.queries] == ["visits"]
        assert not report.details.recoveries
    """

    details: JobDetails = field(metadata=json_spread())
    prediction: Prediction | None
    alerts: tuple[Alert, ...]
    sizing: tuple[QuerySizing, ...]
    lag: tuple[Lag, ...]
    autoscale: tuple[ScaleDecision, ...] = ()


@dataclass(frozen=True, slots=True)
class JobAlerts(JsonShape):
    """The alerts of jobs.

    Attributes:
        alerts: The firing and pending alerts, firing ones first.
        events: The times when alerts began to fire and were resolved, oldest first.

    Example:
        report = hf.jobs.alerts()
        urgent = [alert.text for alert in report.alerts if alert.severity == "critical"]
        assert not urgent
    """

    alerts: tuple[Alert, ...]
    events: tuple[NotedEvent, ...]


@dataclass(frozen=True, slots=True)
class AlertRules(JsonShape):
    """The alert rules and the dashboard of all jobs.

    Attributes:
        rules: The text of a file for Prometheus's `rule_files`.
        dashboard: The JSON of a dashboard for Grafana's import.

    Example:
        assert "groups:" in hf.jobs.alert_rules().rules
    """

    rules: str
    dashboard: str


@dataclass(frozen=True, slots=True)
class QuerySavepoint(JsonShape):
    """A savepoint of one query of a job that has stopped.

    Attributes:
        query: The query's name.
        taken: The savepoint.
        content: `recorded` or `pending`: the state of its digests.

    Example:
        stopped = hf.jobs.stop("visits", savepoint="savepoints", label="before-upgrade")
        savepoint = stopped.savepoints[0]
        assert savepoint.query == "visits"
        assert not savepoint.pending
        assert savepoint.taken.manifest.label == "before-upgrade"
    """

    query: str
    taken: Taken = field(metadata=json_spread())
    content: str

    @property
    def pending(self) -> bool:
        """True if its digests are not computed yet."""
        return self.content == PENDING


@dataclass(frozen=True, slots=True)
class StopPlan(JsonShape):
    """The plan of a stop.

    Attributes:
        status: The job.
        checkpoints: The checkpoints for savepoints, by query.
        catalog: The directory for the savepoints; None if none are requested.

    Example:
        plan = hf.jobs.plan_stop("visits", savepoint="savepoints")
        assert plan.catalog == "savepoints"
        assert list(plan.checkpoints) == ["visits"]
    """

    status: JobStatus = field(metadata=json_spread())
    checkpoints: dict[str, str] = field(metadata=NOT_IN_JSON)
    catalog: str | None = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def savepoints(self) -> tuple[QuerySavepoint, ...]:
        """Empty, since a plan takes no savepoints."""
        return ()


@dataclass(frozen=True, slots=True)
class Stopped(JsonShape):
    """A job that was stopped.

    Attributes:
        status: The job.
        savepoints: A savepoint of each query, if requested.

    Example:
        stopped = hf.jobs.stop("visits")
        assert stopped.status.job.state == "FINISHED"
        assert stopped.savepoints == ()
    """

    status: JobStatus = field(metadata=json_spread())
    savepoints: tuple[QuerySavepoint, ...]


@dataclass(frozen=True, slots=True)
class RestartReport(JsonShape):
    """A job that was restarted.

    Attributes:
        status: The job.
        warm_ms: The time from the request until the new driver was ready, while the former one continued.
        took_ms: The time from the stop of the former driver until the new one had started the queries.

    Example:
        report = hf.jobs.restart("visits")
        assert report.status.job.state == "RUNNING"
        assert report.took_ms < report.warm_ms
    """

    status: JobStatus = field(metadata=json_spread())
    warm_ms: int
    took_ms: int


@dataclass(frozen=True, slots=True)
class Cancelled(JsonShape):
    """A job that was cancelled, or would be.

    Attributes:
        deletes_checkpoint: True if the job has `on_cancel="delete"`.
        status: The job.

    Example:
        cancelled = hf.jobs.cancel("visits")
        assert cancelled.status.job.state == "CANCELED"
    """

    deletes_checkpoint: bool
    status: JobStatus = field(metadata=json_spread())


def list(*, home: Address | None = None) -> tuple[JobStatus, ...]:  # noqa: A001 - the word that people know
    """Return every job of a state home, the most recently started first.

    Args:
        home: The state home; by default the one in use.

    Raises:
        Unavailable: The registry cannot be read.
        Corrupt: The registry is damaged.

    Example:
        for status in hf.jobs.list():
            print(status.job.name, status.word)
        assert hf.jobs.list()[0].supervised
    """
    return tuple(_control(home).jobs())


def start(
    target: str | Path,
    *,
    overrides: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    savepoint: str | Path | Mapping[str, str] | None = None,
    master: str | None = None,
    standby: bool = False,
    timeout: Duration = "5m",
    home: Address | None = None,
) -> JobStatus:
    """Start a job in the background, and wait until its queries run.

    The job has a supervisor of its own, as with `holdfast run`, which outlives this process. It serves no
    REST: `holdfast serve` serves all jobs of a state home.

    Args:
        target: The job file, followed by `:JOB` if there are several jobs in it.
        overrides: Settings and parameters of the job to override.
        conf: Spark settings; they override those of the job.
        savepoint: The savepoint to start from, or one for each query by name.
        master: The Spark master.
        standby: Whether to keep a second driver ready.
        timeout: The maximum time to wait; the job continues to start after that.
        home: The state home; by default the one in use.

    Returns:
        The job, which runs or has already processed all its input.

    Raises:
        HoldfastError: The job cannot run; the error is its supervisor's.
        Unavailable: The queries do not run in time.

    Example:
        try:
            started = hf.jobs.start("hourly.py", overrides={"trigger": "1 hour"})
        except hf.NotFound as error:
            assert error.where == "hourly.py"
    """
    place = StateHome(Settings.here(home).ensure_home().resolve())
    job = Launch(
        target=str(target),
        overrides=overrides or {},
        conf=conf or {},
        savepoints=savepoint if isinstance(savepoint, Mapping) else {"": str(savepoint)} if savepoint else {},
        master=master,
        standby=standby,
    )
    return launch(place, job, parse_duration(timeout, "timeout", allow_zero=True) / 1000)


def status(job: str, *, home: Address | None = None) -> JobReport:
    """Return a job in full: queries, batches, attempts, savepoints, recoveries, sizing, lag and alerts.

    Args:
        job: The job's name or id.
        home: The state home; by default the one in use.

    Raises:
        NotFound: The job does not exist.
        Unavailable: The registry cannot be read.
        Corrupt: The registry is damaged.

    Example:
        report = hf.jobs.status("visits")
        for batch in report.details.batches[-3:]:
            print(batch.batch_id, batch.input_rows, batch.duration_ms)
        assert report.details.last_failure is None
    """
    place, at_ms = _place(home), now_ms()
    control = Control(place, now_ms)
    details = control.details(job)
    standing = reports.alerts(place, details.status.job.name)
    return JobReport(
        details,
        control.prediction(details),
        tuple(alert for alert in standing if alert.firing),
        reports.sizings(details, place, at_ms),
        reports.job_lags(details, at_ms),
        decisions(place, details.status.job.name)[-_DECISIONS:],
    )


def alerts(job: str | None = None, *, last: int = 20, home: Address | None = None) -> JobAlerts:
    """Return the alerts of one job or of all jobs, as recorded by supervisors and `hf.watch`.

    Args:
        job: The name or id of a job, or the name of a watched query; all by default.
        last: The number of newest events to return.
        home: The state home; by default the one in use.

    Raises:
        NotFound: The job does not exist.
        Unavailable: The state home cannot be read.

    Example:
        report = hf.jobs.alerts("visits", last=5)
        for alert in report.alerts:
            print(alert.severity, alert.text, alert.advice)
        assert not report.alerts
    """
    place = _place(home)
    name = None if job is None else _watched_name(place, job)
    events = reports.alert_events(place, name, last) if last else ()
    return JobAlerts(reports.alerts(place, name), tuple(events))


def alert_rules() -> AlertRules:
    """Return the alert rules for Prometheus and a dashboard for Grafana.

    The rules contain no thresholds: each job exports its own as a metric.

    Example:
        exported = hf.jobs.alert_rules()
        with open("holdfast-rules.yml", "w") as file:
            file.write(exported.rules)
    """
    return AlertRules(prometheus.rule_file(), grafana.dashboard())


def plan_stop(
    job: str,
    *,
    savepoint: Address | bool = False,
    label: str | None = None,
    drop_expired: bool = False,
    home: Address | None = None,
) -> StopPlan:
    """Return what `stop` would do; nothing is changed.

    Args:
        job: The job's name or id.
        savepoint: As in `stop`.
        label: As in `stop`.
        drop_expired: As in `stop`.
        home: The state home; by default the one in use.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job does not run, or has not started a query yet.
        Invalid: An argument is not valid.

    Example:
        plan = hf.jobs.plan_stop("visits", savepoint="savepoints", label="before-upgrade")
        assert plan.checkpoints["visits"].endswith("checkpoints/visits")
    """
    control = _control(home)
    if savepoint is False:
        if label is not None:
            raise Invalid(
                "a label can be given only with a savepoint", code="HF-E2219", hint="give --savepoint as well"
            )
        if drop_expired:
            raise Invalid(
                "--drop-expired can be given only with --savepoint",
                code="HF-E2220",
                hint="give --savepoint as well",
            )
        return StopPlan(control.running(job), {}, None)
    running = control.running(job)
    details = control.details(running.job.name, batches=1)
    checkpoints = _checkpoints(details)
    catalog = details.require_savepoint_directory() if savepoint is True else os.fspath(savepoint)
    _check_takes(checkpoints, catalog, label)
    return StopPlan(running, checkpoints, catalog)


def stop(
    job: str,
    *,
    savepoint: Address | bool = False,
    label: str | None = None,
    digest: bool = True,
    drop_expired: bool = False,
    timeout: Duration = "5m",
    home: Address | None = None,
    tell: ProgressCallback | None = None,
    on_savepoint: Callable[[QuerySavepoint], None] | None = None,
) -> Stopped:
    """Stop a job after the running batch; when it is run again, it continues from there.

    Args:
        job: The job's name or id.
        savepoint: The directory for a savepoint of the last batch of each query; True for the configured
            directory, else that of the job's last savepoint, else the one next to its checkpoint. False, the
            default, takes none.
        label: The savepoints' label.
        digest: True to count and hash the rows of the savepoints; otherwise their digests are pending.
        drop_expired: True to omit expired rows from the savepoints.
        timeout: The maximum time to wait for the end of the job.
        home: The state home; by default the one in use.
        tell: Called with files done, files in all, and a note, for each savepoint.
        on_savepoint: Called with each savepoint as soon as it is taken.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job does not run, has not started a query, or its supervisor ended before it did.
        Invalid: An argument is not valid.
        Unavailable: The job has not ended in time.

    Example:
        stopped = hf.jobs.stop("visits", savepoint="savepoints", label="before-upgrade", timeout="10m")
        taken = stopped.savepoints[0].taken
        assert hf.health(taken.uri).ok
    """
    plan = plan_stop(job, savepoint=savepoint, label=label, drop_expired=drop_expired, home=home)
    control = _control(home)
    ended = control.stop(plan.status.job.name, parse_duration(timeout, "timeout", allow_zero=True) / 1000)
    if plan.catalog is None:
        return Stopped(ended, ())
    if not ended.job.state.terminal:
        raise Conflict(
            f"the supervisor of job {ended.job.name!r} ended before the job did",
            code="HF-E4020",
            found=ended.job.state.value,
            hint="wait until the driver has stopped, then take a savepoint with"
            f" `holdfast savepoint take {ended.job.name}`",
        )
    made = []
    for query, checkpoint in plan.checkpoints.items():
        began = time.monotonic()
        try:
            taken = take_and_restore.take(
                checkpoint,
                plan.catalog,
                label=label,
                digest=False,
                gentle=False,
                drop_expired=drop_expired,
                tell=tell,
            )
        except HoldfastError as error:
            take = f"holdfast savepoint take {place_word(checkpoint)} {place_word(plan.catalog)}"
            raise type(error)(
                f"job {ended.job.name!r} has stopped, but no savepoint of query {query!r} was taken:"
                f" {error.fact}",
                **(error.facts() | {"hint": error.hint or f"take it with `{take}`"}),
            ) from error
        made.append(QuerySavepoint(query, taken, RECORDED if taken.manifest.has_content else PENDING))
        if on_savepoint is not None:
            on_savepoint(made[-1])
        with suppress(HoldfastError):  # it is there, whether the registry knows of it or not
            control.note_savepoint(ended.job.name, query, taken, int((time.monotonic() - began) * 1000))
    return Stopped(ended, tuple(_digested(each, tell) if digest else each for each in made))


def plan_restart(job: str, *, home: Address | None = None) -> JobStatus:
    """Return the job that `restart` would restart; nothing is changed.

    Args:
        job: The job's name or id.
        home: The state home; by default the one in use.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job does not run.

    Example:
        plan = hf.jobs.plan_restart("visits")
        assert plan.job.target.endswith("visits.py")
    """
    return _control(home).running(job, RESTART)


def restart(job: str, *, timeout: Duration = "6m", home: Address | None = None) -> RestartReport:
    """Restart a running job with the job file as it is now, with a pause of about a second.

    A second driver starts Spark, loads the job file and runs batches without rows, while the first one
    continues. Then the first one stops after its batch, and the second one continues from the checkpoint. If
    the second driver cannot start, or the job's function fails, the first one is not stopped.

    Args:
        job: The job's name or id.
        timeout: The maximum time to wait for the new driver.
        home: The state home; by default the one in use.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job does not run, or has ended meanwhile.
        HoldfastError: The new driver could not start; the error is the driver's. The job continues.
        Unavailable: The new driver has not taken over in time.

    Example:
        report = hf.jobs.restart("visits")
        print(f"paused for {report.took_ms} ms")
        assert hf.jobs.status("visits").details.status.job.state == "RUNNING"
    """
    control = _control(home)
    ended = control.restart(
        job, os.urandom(16).hex(), parse_duration(timeout, "timeout", allow_zero=True) / 1000
    )
    result = ended.result or {}
    return RestartReport(control.running(job), int(result["warm_ms"]), int(result["took_ms"]))


def plan_cancel(job: str, *, home: Address | None = None) -> Cancelled:
    """Return what `cancel` would do; nothing is changed.

    Args:
        job: The job's name or id.
        home: The state home; by default the one in use.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job does not run.

    Example:
        plan = hf.jobs.plan_cancel("visits")
        assert not plan.deletes_checkpoint
    """
    return _cancelled(_control(home).running(job, "cancel"))


def cancel(job: str, *, timeout: Duration = "1m", home: Address | None = None) -> Cancelled:
    """End a job's driver at once and keep its checkpoint, unless the job has `on_cancel="delete"`.

    The running batch is interrupted; when the job is run again, it starts with that batch.

    Args:
        job: The job's name or id.
        timeout: The maximum time to wait for the end of the job.
        home: The state home; by default the one in use.

    Raises:
        NotFound: The job does not exist.
        Conflict: The job does not run.
        Unavailable: The job has not ended in time.

    Example:
        cancelled = hf.jobs.cancel("visits")
        assert not cancelled.deletes_checkpoint
    """
    wait_ms = parse_duration(timeout, "timeout", allow_zero=True)
    return _cancelled(_control(home).cancel(job, wait_ms / 1000))


def _digested(made: QuerySavepoint, tell: ProgressCallback | None) -> QuerySavepoint:
    """Record a savepoint's digests; they stay pending if that fails."""
    if made.pending:
        with suppress(HoldfastError):
            recorded = savepoint_api.digest(made.taken.uri, gentle=False, tell=tell)
            return replace(made, content=recorded.content)
    return made


def _cancelled(found: JobStatus) -> Cancelled:
    return Cancelled(found.job.on_cancel == "delete", found)


def _checkpoints(details: JobDetails) -> dict[str, str]:
    """Return the checkpoint of each query of a running job."""
    name, queries = details.status.job.name, details.queries
    if not queries:
        raise Conflict(
            f"job {name!r} has not started a query yet",
            code="HF-E4021",
            hint=f"check the job with `holdfast status {name}`, and repeat the command when its query runs",
        )
    return {query.name: query.checkpoint for query in queries}


def _check_takes(checkpoints: dict[str, str], catalog: str, label: str | None) -> None:
    """Check the directory and the label before the job is stopped."""
    check_label(label)
    into = open_storage(catalog, "catalog")
    for checkpoint in checkpoints.values():
        check_apart(open_storage(checkpoint), into)
    check_catalog(into)
    ids(into)


def _watched_name(place: StateHome, job: str) -> str:
    """Return a job's name from its name or id; a query watched without a supervisor has only a name."""
    try:
        return Registry(place.registry).job(job).name
    except NotFound:
        if job in AlertStore(place.path).numbers():
            return job
        raise


def _place(home: Address | None) -> StateHome:
    return StateHome(Settings.here(home).real_home)


def _control(home: Address | None) -> Control:
    return Control(_place(home), now_ms)
