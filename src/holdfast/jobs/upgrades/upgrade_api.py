"""`hf.jobs.upgrade`: replace the code of a running job, and return to the old code if the new one fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.clock import now_ms
from holdfast.config.settings import Settings
from holdfast.config.units import Duration, parse_duration
from holdfast.errors import Conflict, Invalid, NotFound
from holdfast.jobs import jobs_api, reports
from holdfast.jobs.loader import require_job_file
from holdfast.jobs.registry.client import Control, JobDetails, JobStatus
from holdfast.jobs.run_record import absolute_target, last_run
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.upgrades.planning import UpgradePlan, plan
from holdfast.jobs.upgrades.steps import RunningUpgrade
from holdfast.jobs.upgrades.upgrade_record import (
    EvolveArguments,
    Goals,
    UpgradeFile,
    UpgradeMode,
    UpgradeOutcome,
    UpgradeRecord,
    UpgradeStep,
)
from holdfast.jobs.upgrades.watching import alert_key
from holdfast.json_shapes import JsonShape, in_json, json_spread
from holdfast.savepoints.address import Address

ModeName: TypeAlias = Literal["savepoint", "last-state", "stateless"]

_LEAST_IDLE_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Upgraded(JsonShape):
    """An upgrade that has ended.

    Attributes:
        status: The job.
        outcome: `upgraded` or `went back`.
        mode: `savepoint`, `last-state` or `stateless`.
        new: The new code.
        reason: The reason for going back; None if the new code runs.
        steps: The steps, in order.
        savepoints: The savepoint of each query, by name.

    Example:
        def took_ms(upgraded: hf.jobs.Upgraded) -> int:
            assert upgraded.ok, upgraded.reason
            return sum(step.took_ms for step in upgraded.steps if step.step != "watch")
    """

    status: JobStatus = field(metadata=json_spread())
    outcome: UpgradeOutcome
    mode: UpgradeMode
    new: str
    reason: str | None
    steps: tuple[UpgradeStep, ...]
    savepoints: Mapping[str, str]

    @property
    @in_json
    def ok(self) -> bool:
        """True if the new code runs."""
        return self.outcome is UpgradeOutcome.UPGRADED


def plan_upgrade(
    job: str,
    new: str | os.PathLike[str],
    *,
    mode: ModeName = "savepoint",
    accept_loss: Sequence[str] = (),
    initial: Mapping[str, object] | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    merge: bool = False,
    overrides: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    master: str | None = None,
    home: Address | None = None,
    tell: ProgressCallback | None = None,
) -> UpgradePlan:
    """Check new code against the state of a job, and return what `upgrade` would do; nothing is changed.

    The arguments are those of `upgrade`.

    Raises:
        As `upgrade`; but a loss of state is reported in the plan.

    Example:
        try:
            plan = hf.jobs.plan_upgrade("visits", "visits_v2.py", mode="last-state")
        except hf.NotFound as error:
            assert error.where == "visits_v2.py"
        else:
            print("refused" if plan.refused else plan.intended)
    """
    wishes = _wishes(initial, rename, drop, merge=merge)
    settings = {"overrides": overrides, "conf": conf, "master": master}
    return _plan(_home(home), job, os.fspath(new), _mode(mode), wishes, accept_loss, settings, tell)[1]


def upgrade(
    job: str,
    new: str | os.PathLike[str] | None = None,
    *,
    mode: ModeName = "savepoint",
    batches: int = 3,
    within: Duration = "10m",
    savepoint: Address | None = None,
    accept_loss: Sequence[str] = (),
    initial: Mapping[str, object] | None = None,
    rename: Mapping[str, str] | None = None,
    drop: Sequence[str] = (),
    merge: bool = False,
    overrides: Mapping[str, str] | None = None,
    conf: Mapping[str, str] | None = None,
    master: str | None = None,
    back: bool = False,
    home: Address | None = None,
    tell: ProgressCallback | None = None,
    on_plan: Callable[[UpgradePlan], None] | None = None,
    on_step: Callable[[UpgradeStep], None] | None = None,
) -> Upgraded:
    """Replace the code of a job, and return to the old code and state if the new code is not healthy.

    The new code is checked against the state while the old code runs. Then the job is stopped, a savepoint is
    taken, the state is converted where the check says so, and the new code is started with the settings of
    the last run. It is healthy once each query has committed some batches, or has no input, no new alert
    fires, and the lag has not grown. If a driver fails or the time is over, the old code continues from the
    savepoint: it repeats the batches of the new code with the same input, and a sink with a ledger skips
    those that it has.

    After a kill of this process, call it again without `new`: it continues where the former call ended.

    Args:
        job: The job's name or id.
        new: The new code, `FILE.py[:JOB]`, with the same job name and checkpoint; it may have replaced the
            old file. None continues an unfinished upgrade.
        mode: `savepoint` stops the job after its running batch; `last-state` at once, and the new code
            repeats that batch; `stateless` starts the new code without state.
        batches: The number of batches that each query of the new code has to commit.
        within: The time for that.
        savepoint: The directory for the savepoints; by default that of the job's settings, else of its last
            savepoint, else the one next to its checkpoint.
        accept_loss: States that may be lost or reinterpreted, by name.
        initial: Initial values of new columns, as in `hf.evolve`.
        rename: New names of columns and operators, as in `hf.evolve`.
        drop: Columns and operators whose state is discarded, as in `hf.evolve`.
        merge: Merge rows that get the same key, as in `hf.evolve`.
        overrides: Settings and parameters of the job; by default those of the last run.
        conf: Spark settings; by default those of the last run.
        master: The Spark master; by default that of the last run.
        back: True to return from an unfinished upgrade to the old code.
        home: The state home; by default the one in use.
        tell: Called with the progress of a step.
        on_plan: Called with the plan before anything is changed.
        on_step: Called with each step when it is done.

    Raises:
        Conflict: State would be lost, the new code would not start, a different upgrade of the job is
            unfinished or under way, or the old code cannot return.
        NotFound: The job, the new code or the record of the last run does not exist.
        Invalid: An argument is not valid, or the working directory is not that of the job.
        Unsupported: The query is run by its own program, the job has several supervisors, or its checkpoint
            cannot be replaced.

    Example:
        try:
            upgraded = hf.jobs.upgrade("visits", "visits_v2.py", batches=5, on_step=print)
        except hf.NotFound as error:
            assert error.where == "visits_v2.py"
        else:
            print(upgraded.reason or "the new code runs")
    """
    place, wanted_mode = _home(home), _mode(mode)
    goals = _goals(batches, within)
    name = Control(place, now_ms).details(job, batches=1).status.job.name
    with _alone(place, name) as file:
        record = file.unfinished()
        if record is None:
            if new is None or back:
                raise NotFound(
                    f"job {name!r} has no unfinished upgrade",
                    code="HF-E3072",
                    hint=f"name the new code: `holdfast upgrade {name} NEW.py`",
                )
            wishes = _wishes(initial, rename, drop, merge=merge)
            settings = {"overrides": overrides, "conf": conf, "master": master}
            details, ready = _plan(
                place, name, os.fspath(new), wanted_mode, wishes, accept_loss, settings, tell
            )
            if on_plan is not None:
                on_plan(ready)
            ready.require_ready()
            record = _begun(place, details, ready, goals, wishes, savepoint)
            file.write(record)
        else:
            _require_same_upgrade(record, new)
            if back and record.reason is None:
                record = replace(record, reason="the return was requested")
                file.write(record)
        record = RunningUpgrade(place, record, now_ms, on_step or (lambda _: None), tell).run()
    return _result(place, record)


def _plan(
    place: StateHome,
    job: str,
    new: str,
    mode: UpgradeMode,
    wishes: EvolveArguments,
    accept_loss: Sequence[str],
    settings: Mapping[str, Any],
    tell: ProgressCallback | None,
) -> tuple[JobDetails, UpgradePlan]:
    require_job_file(new)
    details = Control(place, now_ms).details(job)
    former = last_run(place, details.status.job.name)
    return details, plan(details, former, new, mode, wishes, accept_loss, settings, place.path, tell)


def _begun(
    place: StateHome,
    details: JobDetails,
    ready: UpgradePlan,
    goals: Goals,
    wishes: EvolveArguments,
    savepoint: Address | None,
) -> UpgradeRecord:
    job = details.status.job
    catalog = details.require_savepoint_directory() if savepoint is None else os.fspath(savepoint)
    if savepoint is not None and "://" not in catalog:
        catalog = str(Path(catalog).absolute())
    if details.status.runs:
        jobs_api.plan_stop(job.name, savepoint=catalog, home=place.path)  # checks the directory
    idle_ms = max(_LEAST_IDLE_MS, 2 * (ready.interval_ms or 0))
    firing = [alert for alert in reports.alerts(place, job.name) if alert.firing]
    return UpgradeRecord(
        os.urandom(16).hex(),
        job.name,
        ready.mode,
        job.checkpoint,
        ready.checkpoints,
        dict.fromkeys(ready.checkpoints, catalog),
        ready.former,
        ready.wanted,
        not job.state.terminal,
        ready.converts,
        wishes,
        ready.repeats,
        replace(goals, idle_ms=idle_ms),
        tuple(map(alert_key, firing)),
    )


def _require_same_upgrade(record: UpgradeRecord, new: str | os.PathLike[str] | None) -> None:
    if new is None or absolute_target(os.fspath(new), Path.cwd()) == record.wanted.target:
        return
    raise Conflict(
        f"a different upgrade of job {record.job!r} is unfinished",
        code="HF-E4085",
        found=record.wanted.target,
        hint=f"continue it with `holdfast upgrade {record.job}`, or return to the old code with `holdfast"
        f" upgrade {record.job} --back`",
    )


@contextmanager
def _alone(place: StateHome, job: str) -> Iterator[UpgradeFile]:
    """Hold the lock of a job's upgrade, which ends with the process.

    Raises:
        Conflict: A different process upgrades the job.
    """
    file = UpgradeFile(place, job)
    if not file.lock.take():
        raise Conflict(
            f"a different process is upgrading job {job!r}",
            code="HF-E4086",
            where=str(place.path),
            hint=f"wait for it, and see `holdfast status {job}`",
        )
    try:
        yield file
    finally:
        file.lock.release()


def _result(place: StateHome, record: UpgradeRecord) -> Upgraded:
    assert record.outcome is not None  # noqa: S101 - the upgrade has ended
    return Upgraded(
        Control(place, now_ms).details(record.job, batches=1).status,
        record.outcome,
        record.mode,
        record.wanted.target,
        record.reason,
        record.steps,
        record.facts.get("savepoints", {}),
    )


def _goals(batches: int, within: Duration) -> Goals:
    if batches < 0:
        raise Invalid(
            "the number of batches is out of range",
            code="HF-E2538",
            found=str(batches),
            expected="0 or more",
            hint="give the number of batches that the new code has to commit",
        )
    return Goals(batches, parse_duration(within, "within"), _LEAST_IDLE_MS)


def _mode(mode: str) -> UpgradeMode:
    try:
        return UpgradeMode(mode)
    except ValueError:
        raise Invalid(
            "unknown mode of an upgrade",
            code="HF-E2539",
            found=repr(mode),
            expected=", ".join(known.value for known in UpgradeMode),
            hint="use `savepoint` for a job that runs well, `last-state` if its batches fail",
        ) from None


def _home(home: Address | None) -> StateHome:
    return StateHome(Settings.here(home).ensure_home().resolve())


def _wishes(
    initial: Mapping[str, object] | None,
    rename: Mapping[str, str] | None,
    drop: Sequence[str],
    *,
    merge: bool,
) -> EvolveArguments:
    starts = {name: "null" if value is None else str(value) for name, value in (initial or {}).items()}
    return EvolveArguments(starts, dict(rename or {}), tuple(drop), merge)
