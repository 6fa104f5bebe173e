"""Checks before a run from savepoints, made before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast import layout
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.config.spark_defaults import FORMAT_KEY
from holdfast.jobs.candidacy import live_leader
from holdfast.jobs.definition import Job
from holdfast.jobs.processes.restore_on_start import not_restored, other_format
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock, led_already, running_already
from holdfast.ownership.checkpoint_lock import holder, in_use, lock_path
from holdfast.savepoints.savepoint_api import plan_restore_once
from holdfast.storage import open_storage


def check_run(
    job: Job,
    savepoints: Mapping[str, str],
    conf: Mapping[str, str],
    home: StateHome,
    clock: Callable[[], int],
    *,
    alone: bool,
    tell: ProgressCallback | None = None,
) -> None:
    """Check that a job can be started from savepoints now, as far as possible without Spark.

    An unknown query name is not detected, since the job's function has to run first. Every byte of the
    savepoints is read. Nothing is changed.

    Args:
        job: The job.
        savepoints: The savepoint of each query; the name of a job's only query may be empty.
        conf: Spark settings that override the job's own.
        home: The state home.
        clock: Returns epoch milliseconds.
        alone: True if the job is to have a single supervisor.
        tell: Called with files done, files in all, and the current step.

    Raises:
        Conflict: The job runs already, a different job uses the checkpoint, or the checkpoint exists.
        Corrupt: A savepoint is damaged.
        Invalid: The job's state-checkpoint format differs from a savepoint's.
    """
    base = job.checkpoint.uri(Path.cwd())
    if alone:
        _refuse_running(job.name, home, clock())
    lock = lock_path(base, home.path)
    owner = holder(lock)
    if owner is not None and (owner.verb or (owner.job, owner.home) != (job.name, str(home.path))):
        raise in_use(lock, owner)
    given = {**job.conf, **conf}
    for name, savepoint in savepoints.items():
        place = _place(base, name, job.name)
        with not_restored(name or job.name):
            plan = plan_restore_once(savepoint, place, tell=tell)
        if plan.state_format is not None and given.get(FORMAT_KEY, str(plan.state_format)) != str(
            plan.state_format
        ):
            raise other_format(place, given[FORMAT_KEY], plan.state_format)


def _refuse_running(job: str, home: StateHome, now_ms: int) -> None:
    leader = live_leader(Registry(home.registry), job, now_ms) if home.registry.is_file() else None
    if leader is not None:
        raise led_already(home, job, leader.holder, leader.address)
    if SupervisorLock(home, job).is_held():
        raise running_already(home, job)


def _place(base: str, query: str, job: str) -> str:
    """Return the checkpoint of a query: that of a job's only query is the job's, others are below it."""
    alone = query in ("", job) or open_storage(base).size(layout.METADATA) is not None
    return base if alone else f"{base}/{query}"
