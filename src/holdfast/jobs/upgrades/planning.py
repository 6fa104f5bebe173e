"""The plan of an upgrade: the verdict on each query's state, the steps, and the return to the old code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.logs import Logs
from holdfast.config.checks import local_path
from holdfast.errors import Conflict, Invalid, NotFound, Unsupported
from holdfast.jobs.definition import Job
from holdfast.jobs.processes.user_query import job_in
from holdfast.jobs.registry.client import JobDetails, JobStatus
from holdfast.jobs.rollback import under_way
from holdfast.jobs.run_record import RunRecord, absolute_target, digest_of
from holdfast.jobs.upgrades.upgrade_record import EvolveArguments, UpgradeMode
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_spread
from holdfast.model import Effect, JobKind, StateVerdict, UpgradeReport, Verdict
from holdfast.storage import open_storage

_LOST: Final = (Verdict.DROP, Verdict.REINTERPRET)
# The codes of the refusals of a job that has no state to keep.
NO_STATE: Final = ("HF-E4079", "HF-E4080")
_SAME_CHECKPOINT: Final = (
    "give the new code the same name and checkpoint; for a different checkpoint, stop the job and use"
    " `holdfast restore`"
)


@dataclass(frozen=True, slots=True)
class UpgradePlan(JsonShape):
    """The plan of an upgrade.

    Attributes:
        status: The job.
        new: The new code.
        mode: `savepoint`, `last-state` or `stateless`.
        verdicts: The verdict on the state of each query; empty with `stateless`.
        converts: The queries whose state is converted for the new code.
        intended: What the upgrade does, in order.
        returns: What happens to each query if the new code is not healthy, by name.
        refused: The reason why the upgrade is refused; None if it is not.
        hint: What to do about that.

    Example:
        def shown(plan: hf.jobs.UpgradePlan) -> str:
            verdicts = ", ".join(report.verdict for report in plan.verdicts)
            return verdicts if plan.ready else f"refused: {plan.refused}"
    """

    status: JobStatus = field(metadata=json_spread())
    new: str
    mode: UpgradeMode
    verdicts: tuple[UpgradeReport, ...]
    converts: tuple[str, ...]
    intended: tuple[str, ...]
    returns: Mapping[str, str]
    refused: str | None
    hint: str | None
    repeats: tuple[str, ...] = field(metadata=NOT_IN_JSON)
    checkpoints: Mapping[str, str] = field(metadata=NOT_IN_JSON)
    former: RunRecord = field(metadata=NOT_IN_JSON)
    wanted: RunRecord = field(metadata=NOT_IN_JSON)
    interval_ms: int | None = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def ready(self) -> bool:
        """True if the upgrade can be carried out."""
        return self.refused is None

    def require_ready(self) -> None:
        """Raise unless the upgrade can be carried out.

        Raises:
            Conflict: State would be lost, or the new code would not start.
        """
        if self.refused is not None:
            raise Conflict(
                f"job {self.status.job.name!r} was not upgraded: {self.refused}",
                code="HF-E4078",
                where=self.new,
                hint=self.hint,
            )


def plan(
    details: JobDetails,
    former: RunRecord | None,
    new: str,
    mode: UpgradeMode,
    wishes: EvolveArguments,
    accept_loss: Sequence[str],
    settings: Mapping[str, Any],
    home: Path,
    tell: ProgressCallback | None,
) -> UpgradePlan:
    """Check new code against the state of a job, and plan the upgrade. Nothing is changed.

    Args:
        details: The job.
        former: How it was last run.
        new: The new code.
        mode: The state with which it is to start.
        wishes: The arguments of a conversion of state.
        accept_loss: States that may be lost or reinterpreted.
        settings: Replaces fields of the last run, such as `overrides`; None keeps one.
        home: The state home.
        tell: Called with steps done, steps in all, and the current step.

    Raises:
        NotFound: The new code does not exist, or how the job was run is not recorded.
        Invalid: The new code is no job, or this process has a different working directory than the job.
        Conflict: The job has not committed a batch, or the new code has a different name or checkpoint.
        Unsupported: The query is run by its own program, the job has several supervisors, or its checkpoint
            is not on a local disk and would have to be replaced.
    """
    status = details.status
    name = status.job.name
    if status.job.kind is not JobKind.JOB:
        raise Unsupported(
            f"query {name!r} is run by its own program, so its code cannot be replaced with one command",
            code="HF-E7134",
            where=status.job.checkpoint,
            hint="check the new program with `holdfast check`, end the old one with `holdfast stop"
            " --savepoint`, and start the new one",
        )
    queries = _committed_queries(details)
    former = _require_run(former, details)
    wanted = wanted_run(former, new, settings)
    job = job_in(wanted.target, wanted.overrides)
    _require_same(job, details)
    # Without state there is nothing to check, to convert or to repeat.
    checks = {} if mode is UpgradeMode.STATELESS else _checks(queries, wanted, home, tell)
    converts = tuple(query for query, report in checks.items() if is_converted(report, wishes))
    refused, hint = refusal_of(checks, converts, accept_loss)
    if converts or mode is UpgradeMode.STATELESS:
        _require_local(queries)
    repeats = tuple(
        query
        for query, report in checks.items()
        if local_path(queries[query]) is not None and not _moves_sources(report)
    )
    promises = {query.name: query.promise for query in details.queries}
    return UpgradePlan(
        status,
        new,
        mode,
        tuple(checks.values()),
        converts,
        tuple(_steps(name, new, mode, converts, running=_runs(status))),
        {query: _return(query, mode, queries[query], repeats, promises[query]) for query in queries},
        refused,
        hint,
        repeats,
        queries,
        former,
        wanted,
        job.interval_ms,
    )


def _runs(status: JobStatus) -> bool:
    return not status.job.state.terminal


def _committed_queries(details: JobDetails) -> dict[str, str]:
    """Return the checkpoint of each query of a job that has state to keep."""
    name = details.status.job.name
    if details.leader is not None:
        raise Unsupported(
            "a job with several supervisors cannot be upgraded with one command",
            code="HF-E7131",
            where=name,
            found=f"a leader: {details.leader.holder}",
            hint=f"replace the job file, and use `holdfast restart {name}`",
        )
    if not details.queries:
        raise Conflict(
            f"job {name!r} has not started a query yet, so it has no state to keep",
            code="HF-E4079",
            hint="stop the job, and run the new code",
        )
    for query in details.queries:
        if Logs(open_storage(query.checkpoint)).newest is None:
            raise Conflict(
                f"query {query.name!r} has not committed a batch yet, so it has no state to keep",
                code="HF-E4080",
                where=query.checkpoint,
                hint="stop the job, and run the new code",
            )
        if under_way(query.checkpoint):
            raise Conflict(
                f"query {query.name!r} has not finished a fallback to an older state",
                code="HF-E4081",
                where=query.checkpoint,
                hint=f"run the job, and upgrade it once `holdfast status {name}` shows new batches",
            )
    return {query.name: query.checkpoint for query in details.queries}


def _require_run(former: RunRecord | None, details: JobDetails) -> RunRecord:
    name, target = details.status.job.name, details.status.job.target
    if former is None:
        raise NotFound(
            f"the settings with which job {name!r} runs are not recorded",
            code="HF-E3071",
            hint=f"the job was started by an earlier release: stop it, and run it again with `holdfast run"
            f" {target}`",
        )
    here = Path.cwd()
    if not here.is_dir() or here.resolve() != Path(former.directory).resolve():
        raise Invalid(
            f"job {name!r} runs in a different directory, to which the paths in its code are relative",
            code="HF-E2537",
            found=str(here),
            expected=former.directory,
            hint=f"run the command in {former.directory}",
        )
    return former


def wanted_run(former: RunRecord, new: str, settings: Mapping[str, Any]) -> RunRecord:
    """Return how new code is to run: as the last run, but for the settings that are not None."""
    target = absolute_target(new, Path.cwd())
    given = {name: value for name, value in settings.items() if value is not None}
    fields = {
        "overrides": former.overrides,
        "conf": former.conf,
        "master": former.master,
        "standby": former.standby,
        "fallback": former.fallback,
        **given,
    }
    return RunRecord(target, former.directory, digest_of(target) or "", **fields)


def _require_same(job: Job, details: JobDetails) -> None:
    """Check that the new code is the same job, with the same checkpoint."""
    record = details.status.job
    found = (job.name, job.checkpoint.uri(Path.cwd()))
    if found != (record.name, record.checkpoint):
        raise Conflict(
            "the new code is a different job, or has a different checkpoint",
            code="HF-E4082",
            found=f"{found[0]} in {found[1]}",
            expected=f"{record.name} in {record.checkpoint}",
            hint=_SAME_CHECKPOINT,
        )


def _require_local(queries: Mapping[str, str]) -> None:
    for query, checkpoint in queries.items():
        if local_path(checkpoint) is None:
            raise Unsupported(
                f"the checkpoint of query {query!r} has to be replaced, and it is not on a local disk",
                code="HF-E7132",
                where=checkpoint,
                hint="stop the job with a savepoint, create a new checkpoint with `holdfast evolve`, and run"
                " the new code with --set checkpoint.storage=DIR",
            )


def _checks(
    queries: Mapping[str, str],
    wanted: RunRecord,
    home: Path,
    tell: ProgressCallback | None,
) -> dict[str, UpgradeReport]:
    """Return the report on each query, by name."""
    from holdfast.jobs.trials.compatibility import check

    return {
        query: check(
            wanted.target,
            against=checkpoint,
            query=None if len(queries) == 1 else query,
            overrides=wanted.overrides,
            conf=wanted.conf,
            home=home,
            tell=tell,
        )
        for query, checkpoint in queries.items()
    }


def is_converted(report: UpgradeReport, wishes: EvolveArguments) -> bool:
    """Return True if new code needs a conversion of the state, and the conversion has all that it needs."""
    return report.verdict == "fails" and report.migration is not None and (not report.migration or wishes.any)


def refusal_of(
    reports: Mapping[str, UpgradeReport], converts: Sequence[str], accept_loss: Sequence[str]
) -> tuple[str | None, str | None]:
    """Return why the upgrade is refused, and what to do; None if it is not.

    Args:
        reports: The report on each query.
        converts: The queries whose state is converted.
        accept_loss: The states that may be lost or reinterpreted, by name.
    """
    for query, report in reports.items():
        if report.verdict == "fails" and query not in converts:
            what = next(
                (
                    f"state {_name(state)} of query {query!r}: {state.why}"
                    for state in report.states
                    if state.verdict is Verdict.INCOMPATIBLE
                ),
                None,
            ) or next(change.why for change in report.changes if change.effect is Effect.FAILS)
            if report.migration:
                return (
                    f"the new code would not start; {what}",
                    f"also needed to convert the state: {report.migration}",
                )
            return f"the new code would not start; {what}", (
                "change the new code so that it keeps the state, or start without state with --mode stateless"
            )
        for state in report.states:
            if state.verdict in _LOST and not _names(state) & set(accept_loss):
                why = state.why or next(
                    (
                        f"{change.what}: {change.why}"
                        for change in report.changes
                        if change.effect is Effect.MEANING
                    ),
                    state.verdict.means,
                )
                return (
                    f"state {_name(state)} of query {query!r} would be {state.verdict.word}; {why}",
                    f"to accept this, add --accept-loss {_name(state)}",
                )
    return None, None


def _name(state: StateVerdict) -> str:
    return state.state_name or state.state


def _names(state: StateVerdict) -> set[str]:
    return {state.operator, state.display_name, state.state, state.state_name} - {""}


def _moves_sources(report: UpgradeReport) -> bool:
    """Return True if the new code reads other sources, so that its offsets do not fit the old code."""
    return any(
        change.what.startswith("source ") and change.effect in (Effect.MEANING, Effect.FAILS)
        for change in report.changes
    )


def _steps(name: str, new: str, mode: UpgradeMode, converts: Sequence[str], *, running: bool) -> list[str]:
    stop = {
        UpgradeMode.SAVEPOINT: f"stop {name} after its running batch",
        UpgradeMode.LAST_STATE: f"stop {name} at once; the new code repeats the interrupted batch",
        UpgradeMode.STATELESS: f"stop {name} after its running batch",
    }
    convert = f"convert the state of {', '.join(converts)} into a new checkpoint" if converts else None
    if mode is UpgradeMode.STATELESS:
        convert = "move the checkpoint aside; the new code starts without state"
    return [
        *([stop[mode]] if running else []),
        "take a savepoint",
        *([convert] if convert else []),
        f"start {new}",
        "watch it until it is healthy; else return to the old code and the savepoint",
    ]


def _return(query: str, mode: UpgradeMode, checkpoint: str, repeats: Sequence[str], promise: str) -> str:
    level = promise.partition(":")[0]
    if mode is UpgradeMode.STATELESS:
        return "the old code resumes from the old checkpoint; rows that the new code wrote stay in the sink"
    if query not in repeats:
        why = (
            "its checkpoint is not on a local disk"
            if local_path(checkpoint) is None
            else "the sources differ, so the old code cannot repeat batches of the new code"
        )
        return f"the old code resumes only if the new code has not planned a batch: {why}"
    after = (
        "the sink skips those that it has"
        if level == "exactly once"
        else f"the sink's guarantee is {level}, so their rows may be written again"
    )
    return f"the old code repeats the batches of the new code with the same input; {after}"
