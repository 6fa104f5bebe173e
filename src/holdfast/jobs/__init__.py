"""The jobs of a state home: their start, their state, their alerts, and their end.

`start` starts a job in the background. `list` returns all jobs, `status` one in full, `alerts` their alerts,
and `alert_rules` the rules for Prometheus and the dashboard for Grafana. `stop` and `cancel` end a job,
`restart` lets a new driver continue it, `upgrade` replaces its code, and `apply` does what a deployment file
needs of these. `plan_stop`, `plan_cancel`, `plan_restart`, `plan_upgrade` and `plan_apply` return what that
would do.

Example:
    running = [status.job.name for status in hf.jobs.list() if status.supervised]
    assert running == ["visits"]
    hf.jobs.stop("visits")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.jobs.autoscaling import ScaleDecision
    from holdfast.jobs.jobs_api import (
        AlertRules,
        Cancelled,
        JobAlerts,
        JobReport,
        QuerySavepoint,
        RestartReport,
        Stopped,
        StopPlan,
        alert_rules,
        alerts,
        cancel,
        list,  # noqa: A004 - as people say
        plan_cancel,
        plan_restart,
        plan_stop,
        restart,
        start,
        status,
        stop,
    )
    from holdfast.jobs.registry.client import JobStatus
    from holdfast.jobs.upgrades.apply_api import (
        Applied,
        ApplyPlan,
        JobApplied,
        JobPlan,
        apply,
        plan_apply,
    )
    from holdfast.jobs.upgrades.planning import UpgradePlan
    from holdfast.jobs.upgrades.upgrade_api import Upgraded, plan_upgrade, upgrade
    from holdfast.jobs.upgrades.upgrade_record import UpgradeStep

__all__ = [
    "AlertRules",
    "Applied",
    "ApplyPlan",
    "Cancelled",
    "JobAlerts",
    "JobApplied",
    "JobPlan",
    "JobReport",
    "JobStatus",
    "QuerySavepoint",
    "RestartReport",
    "ScaleDecision",
    "StopPlan",
    "Stopped",
    "UpgradePlan",
    "UpgradeStep",
    "Upgraded",
    "alert_rules",
    "alerts",
    "apply",
    "cancel",
    "list",
    "plan_apply",
    "plan_cancel",
    "plan_restart",
    "plan_stop",
    "plan_upgrade",
    "restart",
    "start",
    "status",
    "stop",
    "upgrade",
]

_HOMES = {
    "JobStatus": "registry.client",
    "ScaleDecision": "autoscaling",
    "UpgradePlan": "upgrades.planning",
    "UpgradeStep": "upgrades.upgrade_record",
    **dict.fromkeys(
        ("Applied", "ApplyPlan", "JobApplied", "JobPlan", "apply", "plan_apply"), "upgrades.apply_api"
    ),
    **dict.fromkeys(("Upgraded", "plan_upgrade", "upgrade"), "upgrades.upgrade_api"),
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that a worker of this room loads nothing else."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "jobs_api")
    value: object = getattr(importlib.import_module(f"holdfast.jobs.{home}"), name)
    globals()[name] = value
    return value
