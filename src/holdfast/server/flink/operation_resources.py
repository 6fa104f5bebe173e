"""Flink's asynchronous operations: savepoints, stop, disposal, checkpoints, and rescales."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.jobs.pending_rescale import VERB
from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.registry.operation_log import (
    ID,
    Arguments,
    AwaitCheckpoint,
    Dispose,
    Operation,
    OperationState,
    Rescale,
    TakeSavepoint,
)
from holdfast.jobs.rescaler import moves_of
from holdfast.model import JobKind
from holdfast.server.access import path_policy
from holdfast.server.answers import Json
from holdfast.server.control_plane import ControlPlane
from holdfast.server.flink.calls import (
    MAX_PARALLELISM,
    Call,
    FlinkRefusal,
    Resource,
    Vertex,
    failure_cause,
    stats,
    unfit,
    vertices,
)
from holdfast.server.flink.checkpoint_resources import number_of

_FORMATS: Final = ("CANONICAL", "NATIVE")
_TYPES: Final = ("CONFIGURED", "FULL", "INCREMENTAL")


def savepoint(call: Call) -> Any:
    """Take a savepoint of a running job, or stop it with one."""
    call.choice("formatType", _FORMATS)
    verb = "stop" if call.flag("cancel-job") else "savepoint"
    return _of_job(call, verb, call.text("target-directory"))


def stop(call: Call) -> Any:
    """Stop a job after the running batch, with a savepoint; `drain` has no effect."""
    call.choice("formatType", _FORMATS)
    call.flag("drain")
    return _of_job(call, "stop", call.text("targetDirectory"))


def savepoint_status(call: Call) -> Any:
    """Return the progress of a savepoint."""
    return _status(call, ("savepoint", "stop"), "savepoint", _location)


def checkpoint(call: Call) -> Any:
    """Wait until the running batch is committed."""
    kind = call.choice("checkpointType", _TYPES)
    if kind == "INCREMENTAL":
        text = (
            "java.lang.IllegalStateException: Flink does not support triggering incremental checkpoint"
            " explicitly. See FLINK-33723."
        )
        return Json({"errors": ["Internal server error.", f"<Exception on server side:\n{text}"]}, 500)
    return _request_operation(call, "checkpoint", call.job_id(), AwaitCheckpoint(), 202)


def checkpoint_status(call: Call) -> Any:
    """Return the progress of a requested checkpoint, and its id once it is complete."""
    return _status(call, ("checkpoint",), "checkpoint", lambda done: _checkpoint(call, done))


def dispose(call: Call) -> Any:
    """Delete a savepoint; for a job with several queries, the savepoints at all given addresses."""
    path = call.text("savepoint-path")
    if path is None:
        raise FlinkRefusal(400, "Field savepoint-path must not be omitted or be null.")
    try:
        given = tuple(path_policy.savepoint(call.plane, one, "savepoint-path") for one in path.split(","))
    except Invalid as error:
        raise FlinkRefusal(400, str(error)) from None
    return _request_operation(call, "dispose", None, Dispose(given), 200)


def dispose_status(call: Call) -> Any:
    """Return the progress of a deletion."""
    return _status(call, ("dispose",), "savepoint disposal", lambda _: {})


def _of_job(call: Call, verb: str, directory: str | None) -> Any:
    job, running = call.job_id(), True
    try:
        details = call.plane.brief(job)
        running = details.status.job.kind is not JobKind.CHECKPOINT
        catalog = path_policy.catalog_of(call.plane, details, directory, "target-directory")
    except NotFound:
        catalog = ""  # Flink also accepts this and reports it in the operation's status
    except Invalid as error:
        raise FlinkRefusal(400, str(error)) from None
    return _request_operation(call, verb, job, TakeSavepoint(catalog, running=running), 202)


def _request_operation(call: Call, verb: str, job: str | None, arguments: Arguments, status: int) -> Any:
    wanted = call.text("triggerId")
    if wanted is not None and not ID.fullmatch(wanted):
        raise unfit(call.what, f'triggerId is "{wanted[:60]}", expected 32 hexadecimal digits')
    name = job
    if job is not None:
        with suppress(NotFound):
            name = call.plane.status(job).job.name
    operation = call.plane.ask(verb, name, arguments, wanted)
    return Json({"request-id": operation.operation_id}, status)


def _status(
    call: Call, verbs: tuple[str, ...], what: str, result: Callable[[Operation], dict[str, Any]]
) -> Any:
    operation_id = call.id("triggerid")
    job = call.job_id() if "jobid" in call.path else None
    asked: Operation | None = None
    with suppress(NotFound):
        asked = call.plane.operation(operation_id)
    if asked is None or asked.verb not in verbs or not (job is None or _is_job(call, asked.job, job)):
        whose = "" if job is None else f" for job {job}"
        raise FlinkRefusal(404, f"There is no {what} operation with triggerId={operation_id}{whose}.")
    if not asked.state.ended:
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    operation = result(asked) if asked.error is None else {"failure-cause": failure_cause(asked.error)}
    return {"status": {"id": "COMPLETED"}, "operation": operation}


def _is_job(call: Call, name: str | None, job_id: str) -> bool:
    if name == job_id:
        return True
    try:
        return call.plane.status(name or "").job.job_id == job_id
    except HoldfastError:
        return False


def _location(done: Operation) -> dict[str, Any]:
    """Return the addresses of the savepoints, joined into one text if the job has several queries."""
    taken = (done.result or {}).get("savepoints", [])
    return {"location": ",".join(savepoint["savepoint"] for savepoint in taken)}


def _checkpoint(call: Call, done: Operation) -> dict[str, Any]:
    batches = (done.result or {}).get("batches", {})
    nodes = vertices(call.job())
    numbers = [
        number_of(nodes, index, batches[node.query.name])
        for index, node in enumerate(nodes)
        if node.query.name in batches
    ]
    return {"checkpointId": max(numbers, default=max(batches.values(), default=0))}


OPERATION_RESOURCES: Final = (
    Resource("POST", "/jobs/{jobid}/savepoints", savepoint, "SavepointTriggerRequestBody"),
    Resource("GET", "/jobs/{jobid}/savepoints/{triggerid}", savepoint_status),
    Resource("POST", "/jobs/{jobid}/stop", stop, "StopWithSavepointRequestBody"),
    Resource("POST", "/jobs/{jobid}/checkpoints", checkpoint, "CheckpointTriggerRequestBody"),
    Resource("GET", "/jobs/{jobid}/checkpoints/{triggerid}", checkpoint_status),
    Resource("POST", "/savepoint-disposal", dispose, "SavepointDisposalRequest"),
    Resource("GET", "/savepoint-disposal/{triggerid}", dispose_status),
)


_HISTORY: Final = 100


def requirements(call: Call) -> Any:
    """Return the number of partitions of each query."""
    return {
        vertex.vertex_id: {"parallelism": {"lowerBound": 1, "upperBound": vertex.parallelism}}
        for vertex in vertices(call.job())
    }


def require(call: Call) -> Any:
    """Change the number of partitions of queries; the job stops between two batches and continues."""
    details = call.job()
    nodes = {vertex.vertex_id: vertex for vertex in vertices(details)}
    wanted = _requested_partitions(call, nodes)
    changed = {nodes[key].query.name: n for key, n in wanted.items() if n != nodes[key].parallelism}
    if not changed:
        return {}
    call.plane.control.running(details.status.job.name, VERB)
    ask(call.plane, details, changed)
    return {}


def ask(
    plane: ControlPlane,
    details: JobDetails,
    partitions: Mapping[str, int],
    operation_id: str | None = None,
) -> Operation:
    """Ask a running job to change the number of partitions of queries.

    Raises:
        HoldfastError: The change is not possible; this is checked before the job is stopped.
    """
    name = details.status.job.name
    moves_of("0" * 32, partitions, {query.name: query for query in details.queries})
    before = {vertex.query.name: vertex.parallelism for vertex in vertices(details)}
    operation = plane.ask(VERB, name, Rescale(dict(partitions), before), operation_id)
    plane.registry.request(name, VERB, plane.clock())
    return operation


def overview(call: Call) -> Any:
    """Return the number of rescales by result, and the last rescale of each result."""
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
    """Return the newest rescales, newest first."""
    return [_brief(operation) for operation in _rescales(call)]


def details(call: Call) -> Any:
    """Return one rescale."""
    wanted = call.id("rescaleuuid")
    for operation in _rescales(call):
        if operation.operation_id == wanted:
            return _full(call, operation)
    raise FlinkRefusal(404, f"There is no rescale {wanted}.")


def summary(call: Call) -> Any:
    """Return statistics of the durations of rescales."""
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
    """Return Flink's scheduler settings with the values that apply here: a rescale waits only for a batch."""
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
    """Answer the rescale resource of older Flink versions, which is disabled."""
    call.job()
    raise FlinkRefusal(503, "Rescaling is temporarily disabled. See FLINK-12312.")


def _requested_partitions(call: Call, nodes: Mapping[str, Vertex]) -> dict[str, int]:
    """Return the requested partitions of each vertex.

    Raises:
        Refused: A vertex is missing or unknown, or a number is invalid.
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
        raise FlinkRefusal(400, "\n".join(problems))
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


RESCALE_RESOURCES: Final = (
    Resource("GET", "/jobs/{jobid}/resource-requirements", requirements),
    Resource("PUT", "/jobs/{jobid}/resource-requirements", require, "JobResourceRequirementsBody"),
    Resource("GET", "/jobs/{jobid}/rescales/config", config),
    Resource("GET", "/jobs/{jobid}/rescales/overview", overview),
    Resource("GET", "/jobs/{jobid}/rescales/history", history),
    Resource("GET", "/jobs/{jobid}/rescales/summary", summary),
    Resource("GET", "/jobs/{jobid}/rescales/details/{rescaleuuid}", details),
    Resource("PATCH", "/jobs/{jobid}/rescaling", old_way),
)
