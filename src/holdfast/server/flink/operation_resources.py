"""Flink's asynchronous operations: savepoints, stopping with one, disposal, and checkpoints on request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.jobs.registry.operation_arguments import Arguments, AwaitCheckpoint, Dispose, TakeSavepoint
from holdfast.jobs.registry.operation_log import ID, Operation
from holdfast.server.access import path_policy
from holdfast.server.answers import Json
from holdfast.server.flink.calls import Call, Refused, Resource, unfit
from holdfast.server.flink.checkpoint_resources import number_of
from holdfast.server.flink.throwable import failure_cause
from holdfast.server.flink.vertices import vertices

_FORMATS: Final = ("CANONICAL", "NATIVE")
_TYPES: Final = ("CONFIGURED", "FULL", "INCREMENTAL")


def savepoint(call: Call) -> Any:
    """Take a savepoint of a running job, or stop it with one."""
    call.choice("formatType", _FORMATS)
    verb = "stop" if call.flag("cancel-job") else "savepoint"
    return _of_job(call, verb, call.text("target-directory"))


def stop(call: Call) -> Any:
    """Stop a job after its batch, with a savepoint. There is nothing to drain: a batch ends as it began."""
    call.choice("formatType", _FORMATS)
    call.flag("drain")
    return _of_job(call, "stop", call.text("targetDirectory"))


def savepoint_status(call: Call) -> Any:
    """How far a savepoint is."""
    return _status(call, ("savepoint", "stop"), "savepoint", _location)


def checkpoint(call: Call) -> Any:
    """Wait for the batch that runs to be committed."""
    kind = call.choice("checkpointType", _TYPES)
    if kind == "INCREMENTAL":
        text = (
            "java.lang.IllegalStateException: Flink does not support triggering incremental checkpoint"
            " explicitly. See FLINK-33723."
        )
        return Json({"errors": ["Internal server error.", f"<Exception on server side:\n{text}"]}, 500)
    return _asked(call, "checkpoint", call.job_id(), AwaitCheckpoint(), 202)


def checkpoint_status(call: Call) -> Any:
    """Which checkpoint it has become."""
    return _status(call, ("checkpoint",), "checkpoint", lambda done: _checkpoint(call, done))


def dispose(call: Call) -> Any:
    """Delete a savepoint; of a job with several queries, all that it was told the addresses of."""
    path = call.text("savepoint-path")
    if path is None:
        raise Refused(400, "Field savepoint-path must not be omitted or be null.")
    try:
        given = tuple(path_policy.savepoint(call.plane, one, "savepoint-path") for one in path.split(","))
    except Invalid as error:
        raise Refused(400, str(error)) from None
    return _asked(call, "dispose", None, Dispose(given), 200)


def dispose_status(call: Call) -> Any:
    """Whether it is gone."""
    return _status(call, ("dispose",), "savepoint disposal", lambda _: {})


def _of_job(call: Call, verb: str, directory: str | None) -> Any:
    job = call.job_id()
    try:
        details = call.plane.brief(job)
        catalog = path_policy.catalog_of(call.plane, details, directory, "target-directory")
    except NotFound:
        catalog = ""  # Flink accepts this too, and tells in the operation's status
    except Invalid as error:
        raise Refused(400, str(error)) from None
    return _asked(call, verb, job, TakeSavepoint(catalog, running=True), 202)


def _asked(call: Call, verb: str, job: str | None, arguments: Arguments, status: int) -> Any:
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
        raise Refused(404, f"There is no {what} operation with triggerId={operation_id}{whose}.")
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
    """The addresses, one behind the other where a job has several queries."""
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


RESOURCES: Final = (
    Resource("POST", "/jobs/{jobid}/savepoints", savepoint, "SavepointTriggerRequestBody"),
    Resource("GET", "/jobs/{jobid}/savepoints/{triggerid}", savepoint_status),
    Resource("POST", "/jobs/{jobid}/stop", stop, "StopWithSavepointRequestBody"),
    Resource("POST", "/jobs/{jobid}/checkpoints", checkpoint, "CheckpointTriggerRequestBody"),
    Resource("GET", "/jobs/{jobid}/checkpoints/{triggerid}", checkpoint_status),
    Resource("POST", "/savepoint-disposal", dispose, "SavepointDisposalRequest"),
    Resource("GET", "/savepoint-disposal/{triggerid}", dispose_status),
)
