"""Flink's resource requirements: how many partitions the state of each query has, and is to have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.jobs.operations.rescale_spec import moves_of
from holdfast.jobs.operations.rescaler import VERB, led_by
from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.registry.operation_arguments import Rescale
from holdfast.jobs.registry.operation_log import Operation, OperationState
from holdfast.server.control_plane import ControlPlane
from holdfast.server.flink.calls import Call, Refused, Resource, unfit
from holdfast.server.flink.stats import stats
from holdfast.server.flink.vertices import MAX_PARALLELISM, Vertex, vertices

_HISTORY: Final = 100


def requirements(call: Call) -> Any:
    """How many partitions each query has."""
    return {
        vertex.vertex_id: {"parallelism": {"lowerBound": 1, "upperBound": vertex.parallelism}}
        for vertex in vertices(call.job())
    }


def require(call: Call) -> Any:
    """Bring queries into other partitions; the job stops between two batches for it."""
    details = call.job()
    nodes = {vertex.vertex_id: vertex for vertex in vertices(details)}
    wanted = _wanted(call, nodes)
    changed = {nodes[key].query.name: n for key, n in wanted.items() if n != nodes[key].parallelism}
    if not changed:
        return {}
    call.plane.control.running(details.status.job.name)
    ask(call.plane, details, changed)
    return {}


def ask(
    plane: ControlPlane,
    details: JobDetails,
    partitions: Mapping[str, int],
    operation_id: str | None = None,
) -> Operation:
    """Ask a running job to bring queries into other partitions.

    Raises:
        HoldfastError: It cannot be: that is told now, and not when the job has been stopped for it.
    """
    name = details.status.job.name
    leader = plane.registry.leader(name)
    if leader is not None and leader.lives(plane.clock()):
        raise led_by(leader, name)
    moves_of("0" * 32, partitions, {query.name: query for query in details.queries})
    before = {vertex.query.name: vertex.parallelism for vertex in vertices(details)}
    operation = plane.ask(VERB, name, Rescale(dict(partitions), before), operation_id)
    plane.registry.request(name, VERB, plane.clock())
    return operation


def overview(call: Call) -> Any:
    """How many rescales came to which end, and the last of each."""
    done = _rescales(call)
    return {
        "rescalesCounts": _counts(done),
        "latest": {
            "completed": _first(done, OperationState.COMPLETED),
            "failed": _first(done, OperationState.FAILED),
            "ignored": None,
        },
    }


def history(call: Call) -> Any:
    """The newest rescales, the newest first."""
    return [_brief(operation) for operation in _rescales(call)]


def details(call: Call) -> Any:
    """One rescale."""
    wanted = call.id("rescaleuuid")
    for operation in _rescales(call):
        if operation.operation_id == wanted:
            return _full(call, operation)
    raise Refused(404, f"There is no rescale {wanted}.")


def summary(call: Call) -> Any:
    """How long rescales took."""
    done = _rescales(call)

    def took(*states: OperationState) -> dict[str, Any]:
        return stats([_took(operation) for operation in done if operation.state in states])

    return {
        "rescalesCounts": _counts(done),
        "rescalesDurationStatsInMillis": took(OperationState.COMPLETED, OperationState.FAILED),
        "completedRescalesDurationStatsInMillis": took(OperationState.COMPLETED),
        "ignoredRescalesDurationStatsInMillis": stats([]),
        "failedRescalesDurationStatsInMillis": took(OperationState.FAILED),
    }


def config(call: Call) -> Any:
    """What Flink's scheduler would wait for; here nothing is waited for but the batch that runs."""
    call.job()
    return {
        "rescaleHistoryMax": _HISTORY,
        "schedulerExecutionMode": None,
        "submissionResourceWaitTimeoutInMillis": 0,
        "submissionResourceStabilizationTimeoutInMillis": 0,
        "slotIdleTimeoutInMillis": 0,
        "executingCooldownTimeoutInMillis": 0,
        "executingResourceStabilizationTimeoutInMillis": 0,
        "maximumDelayForTriggeringRescaleInMillis": 0,
        "rescaleOnFailedCheckpointCount": 0,
    }


def old_way(call: Call) -> Any:
    """The resource of older Flinks, which has been off for long."""
    call.job()
    raise Refused(503, "Rescaling is temporarily disabled. See FLINK-12312.")


def _wanted(call: Call, nodes: Mapping[str, Vertex]) -> dict[str, int]:
    """The partitions that each vertex is to have.

    Raises:
        Refused: Not every vertex is named, one is unknown, or a number cannot be.
    """
    wanted: dict[str, int] = {}
    problems = []
    for key, given in call.body.items():
        if key not in nodes:
            problems.append(f"Job vertex [{key}] was not found in the job graph.")
            continue
        bounds = given.get("parallelism") if isinstance(given, Mapping) else None
        limits: dict[str, Any] = {"lowerBound": 1, "upperBound": None}
        limits |= bounds if isinstance(bounds, Mapping) else {}
        low, high = limits["lowerBound"], limits["upperBound"]
        if not all(isinstance(bound, int) and not isinstance(bound, bool) for bound in (low, high)):
            raise unfit(call.what, f"parallelism of {key} needs lowerBound and upperBound")
        if not 1 <= low <= high:
            problems.append(
                f"The requested lower bound {low} and upper bound {high} of job vertex {key} are no range."
            )
        elif high > MAX_PARALLELISM:
            problems.append(
                f"The newly requested parallelism {high} for the job vertex {key} exceeds its maximum"
                f" parallelism {MAX_PARALLELISM}."
            )
        wanted[key] = high
    missing = [key for key in nodes if key not in call.body]
    if missing:
        problems.append(
            f"The request is incomplete, missing job vertex [{', '.join(missing)}] resource requirements."
        )
    if problems:
        raise Refused(400, "\n".join(problems))
    return wanted


def _rescales(call: Call) -> list[Operation]:
    name = call.job().status.job.name
    return [operation for operation in call.plane.operations.newest(name, _HISTORY) if operation.verb == VERB]


def _counts(done: list[Operation]) -> dict[str, int]:
    return {
        "ignored": 0,
        "inProgress": sum(not operation.state.ended for operation in done),
        "completed": sum(operation.state is OperationState.COMPLETED for operation in done),
        "failed": sum(operation.state is OperationState.FAILED for operation in done),
    }


def _first(done: list[Operation], state: OperationState) -> dict[str, Any] | None:
    return next((_brief(operation) for operation in done if operation.state is state), None)


def _took(operation: Operation) -> int:
    return (operation.ended_ms or operation.asked_ms) - operation.asked_ms


def _brief(operation: Operation) -> dict[str, Any]:
    ended = {OperationState.COMPLETED: "COMPLETED", OperationState.FAILED: "FAILED"}
    reason = None
    if operation.state.ended:
        reason = "SUCCEEDED" if operation.error is None else str(operation.error["error"])
    return {
        "rescaleUuid": operation.operation_id,
        "resourceRequirementsUuid": operation.operation_id,
        "rescaleAttemptId": 1,
        "startTimestampInMillis": operation.asked_ms,
        "endTimestampInMillis": operation.ended_ms or -1,
        "terminalState": ended.get(operation.state),
        "triggerCause": "UPDATE_REQUIREMENT",
        "terminatedReason": reason,
    }


def _full(call: Call, operation: Operation) -> dict[str, Any]:
    wanted, before = operation.arguments["partitions"], operation.arguments.get("before", {})
    done = operation.state is OperationState.COMPLETED
    shown = {
        node.vertex_id: {
            "jobVertexId": node.vertex_id,
            "jobVertexName": node.name,
            "desiredParallelism": wanted[node.query.name],
            "sufficientParallelism": 1,
            "preRescaleParallelism": before.get(node.query.name),
            "postRescaleParallelism": wanted[node.query.name] if done else None,
        }
        for node in vertices(call.job())
        if node.query.name in wanted
    }
    states = [
        {
            "state": "WaitingForResources" if operation.started_ms is None else "Restarting",
            "enterTimestampInMillis": operation.asked_ms,
            "leaveTimestampInMillis": operation.ended_ms or -1,
            "durationInMillis": _took(operation) if operation.state.ended else -1,
            "stringifiedException": None if operation.error is None else str(operation.error["error"]),
        }
    ]
    return {**_brief(operation), "vertices": shown, "slots": {}, "schedulerStates": states}


RESOURCES: Final = (
    Resource("GET", "/jobs/{jobid}/resource-requirements", requirements),
    Resource("PUT", "/jobs/{jobid}/resource-requirements", require, "JobResourceRequirementsBody"),
    Resource("GET", "/jobs/{jobid}/rescales/config", config),
    Resource("GET", "/jobs/{jobid}/rescales/overview", overview),
    Resource("GET", "/jobs/{jobid}/rescales/history", history),
    Resource("GET", "/jobs/{jobid}/rescales/summary", summary),
    Resource("GET", "/jobs/{jobid}/rescales/details/{rescaleuuid}", details),
    Resource("PATCH", "/jobs/{jobid}/rescaling", old_way),
)
