"""Flink's resources for jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from holdfast.errors import Conflict, Unsupported
from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.registry.registry import Attempt
from holdfast.model import JobKind
from holdfast.server.answers import Json
from holdfast.server.control_plane import ControlPlane
from holdfast.server.flink.calls import (
    MAX_PARALLELISM,
    Call,
    FlinkRefusal,
    Resource,
    Vertex,
    job_counts,
    state_of,
    task_counts,
    task_state,
    timestamps,
    traffic,
    unreadable,
    vertices,
)

_EXCEPTIONS: Final = 16
_SEEN: Final = 100


def listed(call: Call) -> Any:
    """Return every job's id and state."""
    return {
        "jobs": [{"id": known.status.job.job_id, "status": state_of(known)} for known in _every(call.plane)]
    }


def overview(call: Call) -> Any:
    """Return an overview of every job, as Flink's command line reads it."""
    return {"jobs": [_line(known, call.plane.clock()) for known in _every(call.plane)]}


def details(call: Call) -> Any:
    """Return the details of one job."""
    details = call.job(_SEEN)
    job, state, now = details.status.job, state_of(details), call.plane.clock()
    nodes = vertices(details)
    return {
        "jid": job.job_id,
        "application-id": job.job_id,
        "name": job.name,
        "isStoppable": False,
        "state": state,
        "job-type": "STREAMING",
        "schedulerType": "Adaptive",
        "start-time": job.started_ms,
        "end-time": _end(details),
        "duration": (job.ended_ms or now) - job.started_ms,
        "maxParallelism": -1,
        "now": now,
        "timestamps": timestamps(details),
        "vertices": [_vertex(node, details, now) for node in nodes],
        "status-counts": task_counts(state, sum(node.parallelism for node in nodes)),
        "plan": _plan(details),
        "pending-operators": 0,
    }


def status(call: Call) -> Any:
    """Return one job's state."""
    return {"status": state_of(call.job())}


def config(call: Call) -> Any:
    """Return those settings of a job that the registry contains."""
    details = call.job()
    job = details.status.job
    return {
        "jid": job.job_id,
        "name": job.name,
        "execution-config": {
            "restart-strategy": "Cluster level default restart strategy",
            "job-parallelism": max((node.parallelism for node in vertices(details)), default=1),
            "object-reuse-mode": False,
            "user-config": {"holdfast.target": job.target, "holdfast.checkpoint": job.checkpoint},
        },
    }


def plan(call: Call) -> Any:
    """Return a job's queries as a graph."""
    return {"plan": _plan(call.job())}


def vertex(call: Call) -> Any:
    """Return one query, with its partitions as subtasks."""
    details, one = call.vertex(_SEEN)
    now = call.plane.clock()
    shown = _vertex(one, details, now)
    subtasks = [
        {
            "subtask": index,
            "status": shown["status"],
            "attempt": max((attempt.number for attempt in details.attempts), default=1) - 1,
            "endpoint": "(driver)",
            "start-time": shown["start-time"],
            "end-time": shown["end-time"],
            "duration": shown["duration"],
            "metrics": {**shown["metrics"], "read-records": 0, "read-records-complete": False},
            "taskmanager-id": "(driver)",
            "status-duration": {shown["status"]: shown["duration"]},
            "start_time": shown["start-time"],
        }
        for index in range(one.parallelism)
    ]
    return {
        "id": one.vertex_id,
        "name": one.name,
        "parallelism": one.parallelism,
        "maxParallelism": MAX_PARALLELISM,
        "now": now,
        "subtasks": subtasks,
        "aggregated": {"metrics": {}, "status-duration": {}},
    }


def exceptions(call: Call) -> Any:
    """Return the failures of a job's drivers, newest first."""
    details = call.job()
    most = call.query.get("maxExceptions", str(_EXCEPTIONS))
    if not most.isascii() or not most.isdigit():
        raise unreadable("query", "maxExceptions", most)
    wanted = _labels(call.listed("failureLabelFilter"))
    entries = [entry for attempt in reversed(details.attempts) if (entry := _exception(attempt)) is not None]
    entries = [entry for entry in entries if wanted.items() <= entry["failureLabels"].items()]
    shown = entries[: int(most)]
    return {"exceptionHistory": {"entries": shown, "truncated": len(shown) < len(entries)}}


def end(call: Call) -> Any:
    """Cancel a job: its driver is ended at once."""
    mode = call.query.get("mode", "cancel")
    if mode == "stop":
        raise FlinkRefusal(
            308,
            'The termination mode "stop" has been removed. For an ungraceful shutdown, please use "cancel"'
            ' instead. For a graceful shutdown, please use "jobs/:jobId/stop" instead.',
        )
    if mode != "cancel":
        raise unreadable("query", "mode", mode)
    call.job_id()
    try:
        details = call.job()
    except FlinkRefusal:
        raise FlinkRefusal(404, "Job could not be found.") from None
    job = details.status.job
    try:
        call.plane.control.running(job.name, "cancel")
    except (Conflict, Unsupported) as error:
        if job.kind is not JobKind.JOB:
            raise FlinkRefusal(409, f"Job cancellation failed: {error}") from None
        if job.state.terminal:
            why = f"the job has already reached another terminal state ({job.state.value})."
            raise FlinkRefusal(409, f"Job cancellation failed because {why}") from None
        raise FlinkRefusal(409, f"Job cancellation failed: {error}") from None
    call.plane.registry.request(job.name, "cancel", call.plane.clock())
    return Json({}, 202)


def _every(plane: ControlPlane) -> list[JobDetails]:
    return [plane.brief(status.job.name) for status in plane.jobs()]


def _line(details: JobDetails, now: int) -> dict[str, Any]:
    job, state = details.status.job, state_of(details)
    tasks = sum(node.parallelism for node in vertices(details))
    return {
        "jid": job.job_id,
        "name": job.name,
        "jobType": "STREAMING",
        "schedulerType": "Adaptive",
        "start-time": job.started_ms,
        "end-time": _end(details),
        "duration": (job.ended_ms or now) - job.started_ms,
        "state": state,
        "last-modification": job.updated_ms,
        "tasks": job_counts(state, tasks),
        "pending-operators": 0,
    }


def _vertex(node: Vertex, details: JobDetails, now: int) -> dict[str, Any]:
    job, state = details.status.job, state_of(details)
    running = timestamps(details)["RUNNING"] or -1
    end = _end(details)
    return {
        "id": node.vertex_id,
        "slotSharingGroupId": job.job_id,
        "name": node.name,
        "maxParallelism": MAX_PARALLELISM,
        "parallelism": node.parallelism,
        "status": task_state(state),
        "start-time": running,
        "end-time": end,
        "duration": (now if end < 0 else end) - running if running > 0 else -1,
        "tasks": task_counts(state, node.parallelism),
        "metrics": traffic(node),
    }


def _plan(details: JobDetails) -> dict[str, Any]:
    job = details.status.job
    nodes = [
        {
            "id": node.vertex_id,
            "operator": "",
            "parallelism": node.parallelism,
            "operator_strategy": "",
            "description": node.name.replace(" -> ", "<br/>+- ") + "<br/>",
            "optimizer_properties": {},
        }
        for node in vertices(details)
    ]
    return {"jid": job.job_id, "name": job.name, "type": "STREAMING", "nodes": nodes}


def _exception(attempt: Attempt) -> dict[str, Any] | None:
    failure = attempt.failure
    if failure is None:
        return None
    place = {} if failure.query is None else {"taskName": failure.query, "endpoint": "(driver)"}
    return {
        "exceptionName": failure.error_class,
        "stacktrace": failure.detail or f"{failure.error_class}: {failure.line}",
        "timestamp": attempt.ended_ms or attempt.began_ms,
        "failureLabels": {"where": failure.label},
        **place,
        "concurrentExceptions": [],
    }


def _labels(texts: Sequence[str]) -> dict[str, str]:
    """Parse Flink's label filters, `key:value` each."""
    return {key: value for key, _, value in (text.partition(":") for text in texts)}


def _end(details: JobDetails) -> int:
    ended = details.status.job.ended_ms
    return -1 if ended is None else ended


RESOURCES: Final = (
    Resource("GET", "/jobs", listed),
    Resource("GET", "/jobs/overview", overview),
    Resource("GET", "/jobs/{jobid}", details),
    Resource("PATCH", "/jobs/{jobid}", end),
    Resource("GET", "/jobs/{jobid}/status", status),
    Resource("GET", "/jobs/{jobid}/config", config),
    Resource("GET", "/jobs/{jobid}/plan", plan),
    Resource("GET", "/jobs/{jobid}/exceptions", exceptions),
    Resource("GET", "/jobs/{jobid}/vertices/{vertexid}", vertex),
)
