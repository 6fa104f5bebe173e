"""The jobs of a state home: their state, their alerts, and their end.

`list` returns all jobs, `status` one in full, `alerts` their alerts; `stop` and `cancel` end a job, `restart`
lets a new driver continue it; `plan_stop`, `plan_cancel` and `plan_restart` return what that would do.
`holdfast run` starts a job.

Example:
    running = [status.job.name for status in hf.jobs.list() if status.supervised]
    assert running == ["visits"]
    hf.jobs.stop("visits")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.jobs.jobs_api import (
        Cancelled,
        JobAlerts,
        JobReport,
        QuerySavepoint,
        RestartReport,
        Stopped,
        StopPlan,
        alerts,
        cancel,
        list,  # noqa: A004 - as people say
        plan_cancel,
        plan_restart,
        plan_stop,
        restart,
        status,
        stop,
    )
    from holdfast.jobs.registry.client import JobStatus

__all__ = [
    "Cancelled",
    "JobAlerts",
    "JobReport",
    "JobStatus",
    "QuerySavepoint",
    "RestartReport",
    "StopPlan",
    "Stopped",
    "alerts",
    "cancel",
    "list",
    "plan_cancel",
    "plan_restart",
    "plan_stop",
    "restart",
    "status",
    "stop",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that a worker of this room loads nothing else."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "holdfast.jobs.registry.client" if name == "JobStatus" else "holdfast.jobs.jobs_api"
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
