"""The table of all Flink resources in the order of their paths, including those of a cluster."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from starlette.routing import Route

from holdfast._version import __version__
from holdfast.server.control_plane import ControlPlane
from holdfast.server.flink import checkpoint_resources, job_resources, operation_resources
from holdfast.server.flink.calls import Call, Resource, state_of, vertices

# The Flink version whose formats are used. Flink's Kubernetes operator selects its requests by it.
FLINK_VERSION: Final = "2.3.0"
FLINK_COMMIT: Final = "c0f8d1a"
REFRESH_MS: Final = 3000


# The settings that a client reads before other requests.
_CONFIG: Final = {
    "refresh-interval": REFRESH_MS,
    "timezone-name": "Coordinated Universal Time",
    "timezone-offset": 0,
    "flink-version": FLINK_VERSION,
    "flink-revision": f"{FLINK_COMMIT} @ 2026-06-14T16:29:03+02:00",
    "features": {"web-submit": False, "web-cancel": True, "web-rescale": True, "web-history": False},
}
# The tasks are Spark's, and Spark's own UI shows the executors.
_TASK_MANAGERS: Final[dict[str, Any]] = {"taskmanagers": []}
# A job is a Python file that `holdfast run` starts.
_JARS: Final[dict[str, Any]] = {"address": "", "files": []}


def overview(call: Call) -> Any:
    """Return the number of jobs by state; a job counts as a task manager, a partition as a slot."""
    known = [call.plane.brief(status.job.name) for status in call.plane.jobs()]
    states = Counter(state_of(details) for details in known)
    running = [details for details in known if state_of(details) == "RUNNING"]
    slots = sum(vertex.parallelism for details in running for vertex in vertices(details))
    return {
        "taskmanagers": len(running),
        "slots-total": slots,
        "slots-available": 0,
        "jobs-running": states["RUNNING"],
        "jobs-finished": states["FINISHED"],
        "jobs-cancelled": states["CANCELED"],
        "jobs-failed": states["FAILED"],
        "flink-version": FLINK_VERSION,
        "flink-commit": FLINK_COMMIT,
    }


def manager_config(call: Call) -> Any:
    """Return the settings of the control plane."""
    plane = call.plane
    settings = {
        "holdfast.home": str(plane.home.path),
        "holdfast.version": __version__,
        "rest.address": plane.settings.host,
        "rest.port": str(plane.settings.port),
    }
    if plane.settings.savepoints is not None:
        settings["execution.checkpointing.savepoint-dir"] = plane.settings.savepoints
    return [{"key": key, "value": value} for key, value in settings.items()]


def job_manager_config(call: Call) -> Any:
    """Return the settings of the control plane, for a job."""
    call.job()
    return manager_config(call)


RESOURCES: Final = (
    Resource("GET", "/config", lambda _: _CONFIG),
    Resource("GET", "/overview", overview),
    Resource("GET", "/taskmanagers", lambda _: _TASK_MANAGERS),
    Resource("GET", "/jobmanager/config", manager_config),
    Resource("GET", "/jobs/{jobid}/jobmanager/config", job_manager_config),
    Resource("GET", "/jars", lambda _: _JARS),
)


def routes(plane: ControlPlane) -> list[Route]:
    """Return the routes of every resource, with and without `/v1`; fixed paths come first."""
    resources = [
        *RESOURCES,
        *checkpoint_resources.CHECKPOINT_RESOURCES,
        *checkpoint_resources.METRIC_RESOURCES,
        *operation_resources.OPERATION_RESOURCES,
        *operation_resources.RESCALE_RESOURCES,
        *job_resources.RESOURCES,
    ]
    resources.sort(key=lambda resource: [(part.startswith("{"), part) for part in resource.path.split("/")])
    return [route for resource in resources for route in resource.routes(plane)]
