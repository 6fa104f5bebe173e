"""Operations, and the requests that start them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from holdfast.jobs.pending_rescale import VERB
from holdfast.jobs.registry import operation_log
from holdfast.jobs.registry.operation_log import (
    RESTART,
    Arguments,
    AwaitCheckpoint,
    Diff,
    Dispose,
    MakeCheckpoint,
    Restart,
    TakeSavepoint,
    Verify,
)
from holdfast.savepoints.taking import check_label
from holdfast.server.access import path_policy
from holdfast.server.api_v1.jobs import JobName
from holdfast.server.api_v1.models import Shape
from holdfast.server.control_plane import ControlPlane
from holdfast.server.flink import operation_resources
from holdfast.server.flink.calls import MAX_PARALLELISM

ID = r"^[0-9a-f]{32}$"
Address = Annotated[str, Field(min_length=1, max_length=4096)]


class Wanted(BaseModel):
    """The base class of all requests for an operation."""

    model_config = ConfigDict(extra="forbid")

    operation: str | None = Field(
        default=None,
        pattern=ID,
        description="Your own id, 32 hexadecimal digits; a repeated request with it is the same operation.",
    )


class WantedSavepoint(Wanted):
    """A request to take a savepoint of a job's queries."""

    directory: Address | None = Field(
        default=None,
        description="The catalog. By default the one given at the server's start, else the one of the job's"
        " last savepoint, else `CHECKPOINT.savepoints`.",
    )
    label: str | None = Field(default=None, description="The label.", max_length=200)
    drop_expired: bool = Field(default=False, description="Omit expired rows of keyed state.")


class WantedTake(WantedSavepoint):
    """A request to take a savepoint while the job continues."""

    queries: list[str] | None = Field(default=None, description="Only of these queries.", max_length=100)
    deep: bool = Field(default=False, description="Count and hash the rows of the state.")


class WantedRescale(Wanted):
    """A request to change the number of partitions of a running job."""

    partitions: dict[str, Annotated[int, Field(ge=1, le=MAX_PARALLELISM)]] = Field(
        description="The new number of partitions, by query.", min_length=1
    )


class WantedVerify(Wanted):
    """A request to verify a savepoint."""

    savepoint: Address = Field(description="Its address: `DIR/ID`, or `DIR@LABEL`.")
    deep: bool = Field(default=False, description="Read every row of its state.")


class WantedDiff(Wanted):
    """A request to compare two states."""

    first: Address = Field(
        description="A savepoint's address, or `DIR@LABEL`, or a checkpoint's with the suffix `@BATCH`."
    )
    second: Address = Field(description="The second address.")
    samples: int = Field(
        default=5, ge=0, le=1000, description="The number of keys of each kind of difference to show."
    )
    files: bool = Field(default=False, description="Compare the manifests of two savepoints only.")


class WantedCheckpoint(Wanted):
    """A request to create a checkpoint from a savepoint."""

    savepoint: Address = Field(description="The savepoint's address, or `DIR@LABEL`.")
    checkpoint: Address = Field(description="The new directory; it must not exist.")


class WantedDelete(Wanted):
    """A request to delete savepoints."""

    savepoints: list[Address] = Field(
        description="The addresses, or `DIR@LABEL` of each.", min_length=1, max_length=100
    )


class OperationBody(Shape, of=operation_log.Operation, schema="Operation"):
    """A requested operation and its result."""


class OperationsBody(Shape, schema="Operations"):
    """Operations, newest first."""

    operations: list[OperationBody] = Field(description="The operations, newest first.")


def router(plane: ControlPlane) -> APIRouter:
    """Return the resources of operations."""
    api = APIRouter(tags=["operations"])

    @api.get("/operations", summary="The newest operations")
    def operations(
        job: Annotated[str | None, Query(description="Only of this job.", max_length=64)] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    ) -> OperationsBody:
        """Return the operations of this state home, newest first; old operations are not kept."""
        newest = [operation.as_dict() for operation in plane.operations.newest(plane.name(job), limit)]
        return OperationsBody.model_validate({"operations": newest})

    @api.get("/operations/{operation}", summary="One operation")
    def operation(operation: Annotated[str, Path(pattern=ID)]) -> OperationBody:
        """Return the progress of an operation, and its result once it has ended."""
        return OperationBody.model_validate(plane.operation(operation).as_dict())

    _of_jobs(api, plane)
    _of_savepoints(api, plane)
    return api


def _of_jobs(api: APIRouter, plane: ControlPlane) -> None:
    @api.post("/jobs/{job}/savepoints", status_code=202, summary="Take a savepoint of a job")
    def take_savepoint(job: JobName, wanted: WantedTake) -> OperationBody:
        """Take a savepoint of each query of a job, whether the job is running or not."""
        details = plane.brief(job)
        check_label(wanted.label)
        for query in wanted.queries or ():
            plane.query(details, query)
        catalog = path_policy.catalog_of(plane, details, wanted.directory, "directory")
        queries = None if wanted.queries is None else tuple(wanted.queries)
        arguments = TakeSavepoint(
            catalog, wanted.label, queries, wanted.deep, drop_expired=wanted.drop_expired
        )
        return _request_operation(plane, wanted, "savepoint", details.status.job.name, arguments)

    @api.post("/jobs/{job}/stop-with-savepoint", status_code=202, summary="Stop a job with a savepoint")
    def stop_with_savepoint(job: JobName, wanted: WantedSavepoint) -> OperationBody:
        """Stop a job after the running batch, then take a savepoint of each of its queries."""
        details = plane.brief(job)
        check_label(wanted.label)
        name = plane.control.running(details.status.job.name).job.name
        catalog = path_policy.catalog_of(plane, details, wanted.directory, "directory")
        arguments = TakeSavepoint(catalog, wanted.label, drop_expired=wanted.drop_expired)
        return _request_operation(plane, wanted, "stop", name, arguments)

    @api.post("/jobs/{job}/checkpoints", status_code=202, summary="Wait for a checkpoint")
    def wait_for_checkpoint(job: JobName, wanted: Wanted) -> OperationBody:
        """Wait until the job's running batches are committed."""
        name = plane.control.running(job).job.name
        return _request_operation(plane, wanted, "checkpoint", name, AwaitCheckpoint())

    @api.post("/jobs/{job}/rescale", status_code=202, summary="Rescale a running job")
    def rescale(job: JobName, wanted: WantedRescale) -> OperationBody:
        """Change the number of partitions of queries; the job stops between two batches and continues."""
        name = plane.control.running(job, VERB).job.name
        asked = operation_resources.ask(plane, plane.brief(name), wanted.partitions, wanted.operation)
        return OperationBody.model_validate(asked.as_dict())

    @api.post("/jobs/{job}/restart", status_code=202, summary="Restart a running job")
    def restart(job: JobName, wanted: Wanted) -> OperationBody:
        """Let a new driver, with the job file as it is now, take over between two batches."""
        name = plane.control.running(job, RESTART).job.name
        asked = _request_operation(plane, wanted, RESTART, name, Restart())
        plane.registry.request(name, RESTART, plane.clock())
        return asked


def _of_savepoints(api: APIRouter, plane: ControlPlane) -> None:
    @api.post("/savepoints/verify", status_code=202, summary="Verify a savepoint")
    def verify_savepoint(wanted: WantedVerify) -> OperationBody:
        """Verify that a savepoint is unchanged since it was taken, and consistent."""
        savepoint = path_policy.savepoint(plane, wanted.savepoint, "savepoint")
        return _request_operation(plane, wanted, "verify", None, Verify(savepoint, wanted.deep))

    @api.post("/savepoints/diff", status_code=202, summary="Compare two states")
    def diff_states(wanted: WantedDiff) -> OperationBody:
        """Compare two savepoints or batches, key by key."""
        first = path_policy.state(plane, wanted.first, "first")
        second = path_policy.state(plane, wanted.second, "second")
        return _request_operation(
            plane, wanted, "diff", None, Diff(first, second, wanted.samples, wanted.files)
        )

    @api.post("/savepoints/restore", status_code=202, summary="Restore a checkpoint from a savepoint")
    def restore_savepoint(wanted: WantedCheckpoint) -> OperationBody:
        """Create a checkpoint from which the query resumes after the savepoint's batch."""
        return _request_operation(plane, wanted, "restore", None, _checkpoint(plane, wanted))

    @api.post("/savepoints/fork", status_code=202, summary="Fork a checkpoint for a different query")
    def fork_savepoint(wanted: WantedCheckpoint) -> OperationBody:
        """Create a checkpoint with the same state for a different query, with its own id."""
        return _request_operation(plane, wanted, "fork", None, _checkpoint(plane, wanted))

    @api.post("/savepoints/delete", status_code=202, summary="Delete savepoints")
    def delete_savepoints(wanted: WantedDelete) -> OperationBody:
        """Delete savepoints and the objects that no other savepoint of their catalogs needs."""
        given = tuple(path_policy.savepoint(plane, one, "savepoints") for one in wanted.savepoints)
        return _request_operation(plane, wanted, "dispose", None, Dispose(given))


def _request_operation(
    plane: ControlPlane, wanted: Wanted, verb: str, job: str | None, arguments: Arguments
) -> OperationBody:
    return OperationBody.model_validate(plane.ask(verb, job, arguments, wanted.operation).as_dict())


def _checkpoint(plane: ControlPlane, wanted: WantedCheckpoint) -> MakeCheckpoint:
    return MakeCheckpoint(
        path_policy.savepoint(plane, wanted.savepoint, "savepoint"),
        path_policy.new_checkpoint(plane, wanted.checkpoint, "checkpoint"),
    )
