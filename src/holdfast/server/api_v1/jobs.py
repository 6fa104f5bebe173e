"""Jobs, their batches and their checkpoints, as our own resources."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Path, Query

from holdfast.jobs.registry.reported_skew import newest_skew
from holdfast.server.api_v1 import models
from holdfast.server.control_plane import ControlPlane

JobName = Annotated[
    str, Path(description="The job's name or id.", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
]
QueryName = Annotated[
    str | None, Query(description="Which query, of a job with several.", min_length=1, max_length=200)
]
Limit = Annotated[int, Query(description="So many of the newest.", ge=1, le=1000)]
MOST_SHOWN: Final = 20
_KEPT: Final = 1000


def router(plane: ControlPlane) -> APIRouter:
    """The resources of jobs."""
    api = APIRouter(tags=["jobs"])

    @api.get("/jobs", summary="All jobs")
    def jobs() -> models.Jobs:
        """Every job of the state home, the most recently started first."""
        return models.Jobs.model_validate({"jobs": [status.as_dict() for status in plane.jobs()]})

    @api.get("/jobs/{job}", summary="One job in full")
    def job(job: JobName, batches: Limit = MOST_SHOWN) -> models.JobDetails:
        """State, queries, attempts, the newest batches and savepoints of a job."""
        return models.JobDetails.model_validate(plane.details(job, batches).as_dict())

    @api.get("/jobs/{job}/batches", summary="The newest batches of a job")
    def batches(job: JobName, query: QueryName = None, limit: Limit = 100) -> models.Batches:
        """Committed batches as the driver reported them, oldest first."""
        details = plane.details(job, limit if query is None else _KEPT)
        if query is not None:
            plane.query(details, query)
        shown = [batch for batch in details.batches if query in (None, batch.query)][-limit:]
        return models.Batches.model_validate({"batches": [batch.as_dict() for batch in shown]})

    @api.get("/jobs/{job}/checkpoint", summary="A query's checkpoint now")
    def checkpoint(job: JobName, query: QueryName = None) -> models.Checkpoint:
        """What the files of a query's checkpoint say at its newest committed batch."""
        uri = plane.query(plane.brief(job), query).checkpoint
        return models.Checkpoint.model_validate(plane.checkpoint(uri).as_dict())

    @api.get("/jobs/{job}/checkpoints", summary="What each batch added to a checkpoint")
    def checkpoints(job: JobName, query: QueryName = None, limit: Limit = 100) -> models.CheckpointHistory:
        """The committed batches that a query's checkpoint still keeps, with files and bytes, oldest first."""
        details = plane.details(job, _KEPT)
        chosen = plane.query(details, query)
        measured = plane.measured(details, chosen, limit)
        shown = [{**batch.as_dict(), "size_bytes": size} for batch, size in measured]
        return models.CheckpointHistory.model_validate({"checkpoint": chosen.checkpoint, "batches": shown})

    @api.get("/jobs/{job}/skew", summary="Which keys have too much")
    def skew(job: JobName) -> models.JobSkew:
        """The newest report of each name that a job's plan watches with `hf.skew.watch`."""
        newest = newest_skew(plane.details(job))
        reports = [{"query": query, **report.as_dict()} for query, report in newest]
        return models.JobSkew.model_validate({"reports": reports})

    @api.post("/jobs/{job}/stop", status_code=202, summary="Stop a job after its batch")
    def stop(job: JobName) -> models.Asked:
        """Ask a job to end after the batch that runs; it can be run again and goes on where it stopped."""
        return _ask(plane, job, "stop")

    @api.post("/jobs/{job}/cancel", status_code=202, summary="End a job's driver at once")
    def cancel(job: JobName) -> models.Asked:
        """Ask a job to end its driver at once; what was not committed is done again when it is run again."""
        return _ask(plane, job, "cancel")

    return api


def _ask(plane: ControlPlane, job: str, verb: str) -> models.Asked:
    name = plane.control.running(job).job.name
    plane.registry.request(name, verb, plane.clock())
    return models.Asked(job=name, asked=verb)
