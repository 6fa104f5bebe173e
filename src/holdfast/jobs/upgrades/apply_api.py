"""`hf.jobs.apply`: bring about what a deployment file says of jobs, and nothing where that is so already."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.clock import now_ms
from holdfast.config.settings import Settings
from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.jobs import jobs_api
from holdfast.jobs.launching import Launch, launch
from holdfast.jobs.loader import explain_job, has_checkpoint, require_job_file
from holdfast.jobs.registry.client import Control, JobStatus
from holdfast.jobs.run_record import RunRecord, absolute_target, last_run
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.upgrades.deployment_file import DeclaredState, Deployment, read_deployments
from holdfast.jobs.upgrades.own_process import call_apart
from holdfast.jobs.upgrades.planning import NO_STATE, wanted_run
from holdfast.jobs.upgrades.upgrade_api import plan_upgrade, upgrade
from holdfast.jobs.upgrades.upgrade_record import UpgradeFile, UpgradeMode, UpgradeStep
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json
from holdfast.model import JobState
from holdfast.savepoints.address import Address

_START_S: Final = 600.0
# The reason of an end that was requested, and not that of a job which has processed all its input.
_STOPPED: Final = "stopped"

_OnStep = Callable[[str, UpgradeStep], None]


class ApplyAction(str, Enum):
    """An action of `hf.jobs.apply` on a job."""

    NOTHING = "nothing"
    START = "start"
    STOP = "stop"
    UPGRADE = "upgrade"
    REPLACE = "replace"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class JobPlan(JsonShape):
    """The plan of `hf.jobs.apply` for one job.

    Attributes:
        job: The job's name.
        action: `nothing`, `start`, `stop`, `upgrade`, `replace` for a running job without state, or
            `continue` for an unfinished upgrade.
        differs: What differs from the last run: `code`, `settings`, `conf`, `master`.
        intended: What is done, in order.
        refused: The reason why it is refused; None if it is not.
        hint: What to do about that.

    Example:
        def refused(plan: hf.jobs.ApplyPlan) -> list[str]:
            return [f"{job.job}: {job.refused}" for job in plan.jobs if job.refused]
    """

    job: str
    action: ApplyAction
    differs: tuple[str, ...] = ()
    intended: tuple[str, ...] = ()
    refused: str | None = None
    hint: str | None = None
    savepoints: Mapping[str, str] = field(default_factory=dict, metadata=NOT_IN_JSON)


@dataclass(frozen=True, slots=True)
class ApplyPlan(JsonShape):
    """The plan of `hf.jobs.apply`.

    Attributes:
        file: The deployment file.
        jobs: The jobs of the file, in its order.
        others: The running jobs of the state home that the file does not name; they are left alone.

    Example:
        try:
            plan = hf.jobs.plan_apply("deployment.toml")
        except hf.NotFound as error:
            assert error.where == "deployment.toml"
        else:
            print([job.job for job in plan.jobs if job.action != "nothing"])
    """

    file: str
    jobs: tuple[JobPlan, ...]
    others: tuple[str, ...]

    @property
    @in_json
    def ready(self) -> bool:
        """True if nothing of it is refused."""
        return not any(job.refused for job in self.jobs)

    @property
    @in_json
    def changes(self) -> int:
        """The number of jobs with something to do."""
        return sum(job.action is not ApplyAction.NOTHING for job in self.jobs)

    def require_ready(self) -> None:
        """Raise if a part of the plan is refused.

        Raises:
            Conflict: A part of it is refused.
        """
        refused = [job for job in self.jobs if job.refused]
        if refused:
            first, *rest = refused
            more = f", and {len(rest)} more" if rest else ""
            raise Conflict(
                f"nothing was changed, because job {first.job!r} would be refused: {first.refused}{more}",
                code="HF-E4088",
                where=self.file,
                hint=first.hint or "correct the file, or name the jobs to apply: `holdfast apply FILE JOB`",
            )


@dataclass(frozen=True, slots=True)
class JobApplied(JsonShape):
    """The result of `hf.jobs.apply` for one job.

    Attributes:
        job: The job's name.
        action: What was done, as in the plan.
        ok: True if the job is now as the file says.
        state: The job's state.
        reason: The reason why it is not as the file says; None if it is.
        hint: What to do about that.

    Example:
        def failed(applied: hf.jobs.Applied) -> dict[str, str | None]:
            return {job.job: job.reason for job in applied.jobs if not job.ok}
    """

    job: str
    action: ApplyAction
    ok: bool
    state: JobState | None
    reason: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Applied(JsonShape):
    """The result of `hf.jobs.apply`.

    Attributes:
        file: The deployment file.
        jobs: The jobs of the file, in its order.

    Example:
        try:
            applied = hf.jobs.apply("deployment.toml")
        except hf.NotFound as error:
            assert error.where == "deployment.toml"
        else:
            assert applied.ok, applied.jobs
    """

    file: str
    jobs: tuple[JobApplied, ...]

    @property
    @in_json
    def ok(self) -> bool:
        """True if each job is now as the file says."""
        return all(job.ok for job in self.jobs)


def plan_apply(
    file: str | os.PathLike[str],
    *,
    jobs: Sequence[str] = (),
    home: Address | None = None,
    tell: ProgressCallback | None = None,
) -> ApplyPlan:
    """Return what `apply` would do; nothing is changed.

    Args:
        file: The deployment file.
        jobs: The jobs of the file to look at; by default all.
        home: The state home; by default the one in use.
        tell: Called with jobs done, jobs in all, and the current one.

    Raises:
        NotFound: The file does not exist, or has no such job.
        Invalid: The file is not valid.

    Example:
        try:
            plan = hf.jobs.plan_apply("deployment.toml", jobs=["visits"])
        except hf.NotFound as error:
            assert error.where == "deployment.toml"
        else:
            assert plan.ready
    """
    return _planned(os.fspath(file), *_chosen(file, jobs), _Home(home), tell)


def apply(
    file: str | os.PathLike[str],
    *,
    jobs: Sequence[str] = (),
    home: Address | None = None,
    tell: ProgressCallback | None = None,
    on_plan: Callable[[ApplyPlan], None] | None = None,
    on_step: Callable[[str, UpgradeStep], None] | None = None,
    on_job: Callable[[JobApplied], None] | None = None,
) -> Applied:
    """Start, stop and upgrade jobs until they are as a deployment file says.

    All jobs are planned before the first is changed; if one of them is refused, none is changed. A job that
    is as the file says already is left alone, so a second call does nothing. A job that fails does not keep
    the others from their turn. After a kill, call it again: it continues.

    Args:
        file: The deployment file.
        jobs: The jobs of the file to bring about; by default all.
        home: The state home; by default the one in use.
        tell: Called with jobs done, jobs in all, and the current one.
        on_plan: Called with the plan before anything is changed.
        on_step: Called with the job and each step of its upgrade when it is done.
        on_job: Called with each job that has had its turn.

    Raises:
        Conflict: A job is refused; nothing was changed.
        NotFound: The file does not exist, or has no such job.
        Invalid: The file is not valid.

    Example:
        try:
            applied = hf.jobs.apply("deployment.toml", on_job=print)
        except hf.NotFound as error:
            assert error.where == "deployment.toml"
        else:
            assert [job.state for job in applied.jobs] == ["RUNNING"]
    """
    (wanted, named), place = _chosen(file, jobs), _Home(home)
    plan = _planned(os.fspath(file), wanted, named, place, tell)
    if on_plan is not None:
        on_plan(plan)
    plan.require_ready()
    done = []
    for number, (deployment, job) in enumerate(zip(wanted, plan.jobs, strict=True)):
        if tell is not None:
            tell(number, len(wanted), job.job)
        done.append(place.applied(deployment, job, on_step or (lambda *_: None)))
        if on_job is not None:
            on_job(done[-1])
    return Applied(plan.file, tuple(done))


def _chosen(
    file: str | os.PathLike[str], jobs: Sequence[str]
) -> tuple[tuple[Deployment, ...], tuple[str, ...]]:
    """Return the chosen jobs of a deployment file, and the names of all its jobs."""
    found = read_deployments(file)
    names = tuple(deployment.job for deployment in found)
    for job in jobs:
        if job not in names:
            raise NotFound(
                "the deployment file has no such job",
                code="HF-E3074",
                where=os.fspath(file),
                found=job,
                expected=", ".join(names),
                hint="name jobs of the file, or none for all",
            )
    return tuple(deployment for deployment in found if not jobs or deployment.job in jobs), names


def _planned(
    file: str,
    wanted: Sequence[Deployment],
    named: Sequence[str],
    place: _Home,
    tell: ProgressCallback | None,
) -> ApplyPlan:
    planned = []
    for number, deployment in enumerate(wanted):
        if tell is not None:
            tell(number, len(wanted), deployment.job)
        planned.append(place.plan(deployment))
    return ApplyPlan(file, tuple(planned), tuple(place.running_except(named)))


class _Home:
    """A state home, and what has to be done with the jobs in it."""

    def __init__(self, home: Address | None) -> None:
        self._place = StateHome(Settings.here(home).ensure_home().resolve())
        self._control = Control(self._place, now_ms)

    def running_except(self, names: Sequence[str]) -> Iterator[str]:
        for status in self._control.jobs():
            if status.runs and status.job.name not in names:
                yield status.job.name

    def plan(self, wanted: Deployment) -> JobPlan:
        """Return what has to be done with a job."""
        try:
            return self._plan(wanted)
        except HoldfastError as error:
            found = f": {error.found}" if error.found else ""
            return JobPlan(wanted.job, ApplyAction.NOTHING, (), (), f"{error.fact}{found}", error.hint)

    def _plan(self, wanted: Deployment) -> JobPlan:
        require_job_file(wanted.code)
        status, job = self._status(wanted.job), wanted.job
        unfinished = UpgradeFile(self._place, job).unfinished()
        if unfinished is not None:
            step = f"continue the unfinished upgrade to {unfinished.wanted.target}"
            return JobPlan(job, ApplyAction.CONTINUE, (), (step,))
        runs = status is not None and status.runs
        if wanted.state is DeclaredState.STOPPED:
            steps = (_stop_text(wanted),) if runs else ()
            return JobPlan(job, ApplyAction.STOP if runs else ApplyAction.NOTHING, (), steps)
        former = last_run(self._place, job)
        differs = () if former is None else _differences(former, wanted)
        if status is None or (former is not None and not differs):
            is_done = runs or (status is not None and _has_finished(status))
            return JobPlan(job, ApplyAction.NOTHING) if is_done else self._start_plan(wanted, status)
        return self._upgrade_plan(wanted, status, differs)

    def _upgrade_plan(self, wanted: Deployment, status: JobStatus, differs: tuple[str, ...]) -> JobPlan:
        """Return the plan for a job that has to run differently than it last did."""
        job, home = wanted.job, self._place.path
        try:
            plan = call_apart(plan_upgrade, job, wanted.code, **_upgrade_arguments(wanted), home=home)
        except Conflict as error:
            if error.code not in NO_STATE:
                raise
            start = self._start_plan(wanted, status, differs)
            if not status.runs:
                return start
            steps = (f"stop {job}, which has no state yet", *start.intended)
            return replace(start, action=ApplyAction.REPLACE, intended=steps)
        return JobPlan(job, ApplyAction.UPGRADE, differs, plan.intended, plan.refused, plan.hint)

    def _start_plan(
        self, wanted: Deployment, status: JobStatus | None, differs: tuple[str, ...] = ()
    ) -> JobPlan:
        explained = call_apart(explain_job, wanted.code, wanted.settings)
        if explained.name != wanted.job:
            raise Conflict(
                "the job in the code has a different name",
                code="HF-E4089",
                where=wanted.code,
                found=explained.name,
                expected=wanted.job,
                hint="name the table of the deployment file after the job",
            )
        # A checkpoint that exists is newer than the savepoint of the first start.
        has_run = has_checkpoint(explained.checkpoint)
        savepoints = {} if has_run or (has_run is None and status is not None) else wanted.savepoints
        origin = f" from {', '.join(savepoints.values())}" if savepoints else ""
        step = f"start {wanted.code}{origin}"
        return JobPlan(wanted.job, ApplyAction.START, differs, (step,), savepoints=savepoints)

    def applied(self, wanted: Deployment, plan: JobPlan, on_step: _OnStep) -> JobApplied:
        """Bring a job about, as planned."""
        action, reason = plan.action, None
        try:
            if action is ApplyAction.CONTINUE:
                self._upgrade(wanted, on_step, new=False)
                plan = self._plan(wanted)
                if plan.refused:
                    return self._result(wanted, action, plan.refused, plan.hint)
            if plan.action is ApplyAction.UPGRADE:
                reason = self._upgrade(wanted, on_step)
            if plan.action in (ApplyAction.STOP, ApplyAction.REPLACE):
                takes = wanted.mode is UpgradeMode.SAVEPOINT and plan.action is ApplyAction.STOP
                jobs_api.stop(wanted.job, savepoint=takes, home=self._place.path)
            if plan.action in (ApplyAction.START, ApplyAction.REPLACE):
                launch(self._place, self._start(wanted, plan), _START_S)
        except HoldfastError as error:
            return self._result(wanted, action, error.fact, error.hint)
        return self._result(wanted, action, reason, None)

    def _result(
        self, wanted: Deployment, action: ApplyAction, reason: str | None, hint: str | None
    ) -> JobApplied:
        status = self._status(wanted.job)
        state = None if status is None else status.job.state
        return JobApplied(wanted.job, action, reason is None, state, reason, hint)

    def _upgrade(self, wanted: Deployment, on_step: _OnStep, *, new: bool = True) -> str | None:
        """Upgrade a job, or continue its upgrade; returns the reason if the old code is back."""
        told = 0

        def tell(steps: Sequence[UpgradeStep]) -> None:
            nonlocal told
            for step in steps[told:]:
                on_step(wanted.job, step)
            told = max(told, len(steps))

        def look() -> None:
            record = UpgradeFile(self._place, wanted.job).unfinished()
            tell(record.steps if record is not None else ())

        arguments: Mapping[str, Any] = _upgrade_arguments(wanted) if new else {}
        done = call_apart(
            upgrade,
            wanted.job,
            wanted.code if new else None,
            **arguments,
            batches=wanted.batches,
            within=wanted.within,
            home=self._place.path,
            look=look,
        )
        tell(done.steps)
        return None if done.ok else f"the old code is back, because {done.reason}"

    def _start(self, wanted: Deployment, plan: JobPlan) -> Launch:
        former = last_run(self._place, wanted.job)
        target = absolute_target(wanted.code, Path.cwd())
        start = Launch(target) if former is None else former.launch(target)
        return replace(
            start,
            overrides=wanted.settings,
            conf=wanted.conf,
            savepoints=plan.savepoints,
            master=wanted.master or start.master,
            directory=None,
        )

    def _status(self, job: str) -> JobStatus | None:
        try:
            return self._control.details(job, batches=1).status
        except NotFound:
            return None


def _has_finished(status: JobStatus) -> bool:
    """Return True if a job has processed all its input, as one with `hf.available_now()` does."""
    return status.job.state is JobState.FINISHED and not (status.job.reason or "").startswith(_STOPPED)


def _differences(former: RunRecord, wanted: Deployment) -> tuple[str, ...]:
    new = wanted_run(former, wanted.code, _settings(wanted))
    differs = {
        "code": (new.target, new.digest) != (former.target, former.digest),
        "settings": new.overrides != former.overrides,
        "conf": new.conf != former.conf,
        "master": new.master != former.master,
    }
    return tuple(name for name, is_different in differs.items() if is_different)


def _settings(wanted: Deployment) -> dict[str, Any]:
    return {"overrides": dict(wanted.settings), "conf": dict(wanted.conf), "master": wanted.master}


def _upgrade_arguments(wanted: Deployment) -> dict[str, Any]:
    return {
        "mode": wanted.mode.value,
        "accept_loss": wanted.accept_loss,
        "initial": dict(wanted.initial),
        "rename": dict(wanted.rename),
        "drop": wanted.drop,
        "merge": wanted.merge,
        **_settings(wanted),
    }


def _stop_text(wanted: Deployment) -> str:
    takes = wanted.mode is UpgradeMode.SAVEPOINT
    return f"stop {wanted.job} after its running batch" + (", and take a savepoint" if takes else "")
