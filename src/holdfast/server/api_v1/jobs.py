"""Jobs, batches, checkpoints, savepoints, metrics and alerts as resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.formats.manifest import RecordedState
from holdfast.jobs import recovery, reports
from holdfast.jobs.reports import alert_events, alerts, metrics_json, metrics_text, newest_skew
from holdfast.observe import alerting, lag, metrics
from holdfast.observe.alerting import NotedEvent
from holdfast.observe.prometheus import CONTENT_TYPE
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.catalog import PENDING, RECORDED, Listed
from holdfast.savepoints.digests import recorded_states
from holdfast.savepoints.savepoint_api import show
from holdfast.server.access import path_policy
from holdfast.server.api_v1 import models
from holdfast.server.api_v1.models import RecoveryBody, Shape
from holdfast.server.control_plane import ControlPlane

JobName = Annotated[
    str, Path(description="The job's name or id.", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
]
QueryName = Annotated[
    str | None, Query(description="The query, for a job with several.", min_length=1, max_length=200)
]
Limit = Annotated[int, Query(description="The number of newest entries.", ge=1, le=1000)]
MOST_SHOWN: Final = 20
_KEPT: Final = 1000


def job_router(plane: ControlPlane) -> APIRouter:
    """Return the resources of jobs."""
    api = APIRouter(tags=["jobs"])

    @api.get("/jobs", summary="All jobs")
    def jobs() -> models.Jobs:
        """Return every job of the state home, the most recently started first."""
        return models.Jobs.model_validate({"jobs": [status.as_dict() for status in plane.jobs()]})

    @api.get("/jobs/{job}", summary="One job in full")
    def job(job: JobName, batches: Limit = MOST_SHOWN) -> models.JobDetailsBody:
        """Return a job's state, queries and attempts, and its newest batches and savepoints."""
        return models.JobDetailsBody.model_validate(plane.details(job, batches).as_dict())

    @api.get("/jobs/{job}/batches", summary="The newest batches of a job")
    def batches(job: JobName, query: QueryName = None, limit: Limit = 100) -> models.Batches:
        """Return committed batches as the driver reported them, oldest first."""
        details = plane.details(job, limit if query is None else _KEPT)
        if query is not None:
            plane.query(details, query)
        shown = [batch for batch in details.batches if query in (None, batch.query)][-limit:]
        return models.Batches.model_validate({"batches": [batch.as_dict() for batch in shown]})

    @api.get("/jobs/{job}/checkpoint", summary="A query's current checkpoint")
    def checkpoint(job: JobName, query: QueryName = None) -> models.CheckpointBody:
        """Return the files of a query's checkpoint at its newest committed batch."""
        uri = plane.query(plane.brief(job), query).checkpoint
        return models.CheckpointBody.model_validate(plane.checkpoint(uri).as_dict())

    @api.get("/jobs/{job}/checkpoints", summary="The files that each batch added to a checkpoint")
    def checkpoints(job: JobName, query: QueryName = None, limit: Limit = 100) -> models.CheckpointHistory:
        """Return the committed batches in a query's checkpoint, with files and bytes, oldest first."""
        details = plane.reported(job, _KEPT)
        chosen = plane.query(details, query)
        measured = plane.measured(details, chosen, limit)
        shown = [{**batch.as_dict(), "size_bytes": size} for batch, size in measured]
        return models.CheckpointHistory.model_validate({"checkpoint": chosen.checkpoint, "batches": shown})

    @api.get("/jobs/{job}/skew", summary="The key skew of a job")
    def skew(job: JobName) -> models.JobSkew:
        """Return the newest report of each name that the job watches with `hf.skew.watch`."""
        newest = newest_skew(plane.details(job))
        reports = [{"query": query, **report.as_dict()} for query, report in newest]
        return models.JobSkew.model_validate({"reports": reports})

    @api.post("/jobs/{job}/stop", status_code=202, summary="Stop a job after its batch")
    def stop(job: JobName) -> models.Asked:
        """Ask a job to end after the running batch; the next run resumes after that batch."""
        return _ask(plane, job, "stop")

    @api.post("/jobs/{job}/cancel", status_code=202, summary="End a job's driver at once")
    def cancel(job: JobName) -> models.Asked:
        """Ask a job to end its driver at once; the next run repeats the uncommitted batch."""
        return _ask(plane, job, "cancel")

    return api


def _ask(plane: ControlPlane, job: str, verb: str) -> models.Asked:
    name = plane.control.running(job, verb).job.name
    plane.registry.request(name, verb, plane.clock())
    return models.Asked(job=name, asked=verb)


OfJob = Annotated[str | None, Query(description="Only of this job, by name or id.", max_length=64)]


class MetricBody(Shape, of=metrics.Metric, schema="Metric"):
    """A metric."""


class SampleBody(Shape, of=metrics.MetricSample, schema="Sample"):
    """One sample of a metric."""


class Metrics(Shape):
    """The newest metrics."""

    at_ms: int = Field(description="The time of measurement, in epoch milliseconds.")
    metrics: list[MetricBody] = Field(description="The metrics: name, unit, kind, meaning.")
    samples: list[SampleBody] = Field(description="The values, each with its labels.")


class AlertBody(Shape, of=alerting.Alert, schema="Alert"):
    """One open alert, firing or pending."""


class AlertsBody(Shape, schema="Alerts"):
    """Open alerts, firing ones first."""

    alerts: list[AlertBody] = Field(description="Each with its rule, job, phase and start.")


class AlertEventBody(Shape, of=NotedEvent, schema="AlertEvent"):
    """An event: an alert has fired or is resolved."""


class AlertEvents(Shape):
    """The events of alerts, oldest first."""

    events: list[AlertEventBody] = Field(description="Each with its number and the alert.")


class PredictionBody(Shape, of=recovery.Prediction, schema="Prediction"):
    """The expected duration of the next recovery."""


class Recoveries(Shape):
    """The recoveries of a job, and the prediction for the next one."""

    recoveries: list[RecoveryBody] = Field(description="The recoveries by phase, oldest first.")
    prediction: PredictionBody | None = Field(
        description="The expected duration of the next recovery, and its error; null without data."
    )


class QuerySizingBody(Shape, of=reports.QuerySizing, schema="QuerySizing"):
    """The present and the recommended resources of a query, and the growth of its state."""


class Sizings(Shape):
    """The present and the recommended resources of a job's queries."""

    queries: list[QuerySizingBody] = Field(description="The queries with a committed batch.")


class LagBody(Shape, of=lag.Lag, schema="Lag"):
    """The lag of a query behind one partition of a source."""


class Lags(Shape):
    """The lag of a job's queries behind their sources."""

    partitions: list[LagBody] = Field(
        description="Each partition of each topic, and each Delta table; other sources are not included."
    )


def metric_router(plane: ControlPlane) -> APIRouter:
    """Return the resources of metrics and alerts."""
    api = APIRouter(tags=["watching"])

    @api.get("/metrics", summary="All metrics")
    def metrics(job: OfJob = None) -> Metrics:
        """Return the newest metrics of all jobs or of one. Prometheus reads them at `/metrics`."""
        return Metrics.model_validate(metrics_json(plane.home, plane.clock(), plane.name(job)))

    @api.get("/alerts", summary="Open alerts")
    def standing_alerts(job: OfJob = None) -> AlertsBody:
        """Return the open alerts of all jobs or of one."""
        standing = alerts(plane.home, plane.name(job))
        return AlertsBody.model_validate({"alerts": [alert.as_dict() for alert in standing]})

    @api.get("/alerts/events", summary="The history of alerts")
    def events_of_alerts(
        job: OfJob = None,
        last: Annotated[int, Query(description="The number of newest events.", ge=1, le=1000)] = 100,
    ) -> AlertEvents:
        """Return the events of alerts that fired or were resolved, oldest first."""
        events = alert_events(plane.home, plane.name(job), last)
        return AlertEvents.model_validate({"events": [event.as_dict() for event in events]})

    @api.get("/jobs/{job}/recovery", summary="The recoveries of a job")
    def recovery(job: JobName) -> Recoveries:
        """Return the recoveries of a job by phase, and a prediction for the next one."""
        details = plane.brief(job)
        predicted = plane.prediction(details)
        return Recoveries.model_validate(
            {
                "recoveries": [recovery.as_dict() for recovery in details.recoveries],
                "prediction": None if predicted is None else predicted.as_dict(),
            }
        )

    @api.get("/jobs/{job}/sizing", summary="The sizing of a job")
    def sizing(job: JobName) -> Sizings:
        """Return each query's partitions, cores and memory with recommended values, and its state growth."""
        sized = plane.sizings(plane.details(job))
        return Sizings.model_validate({"queries": [query.as_dict() for query in sized]})

    @api.get("/jobs/{job}/lag", summary="The lag of a job")
    def behind(job: JobName) -> Lags:
        """Return the unread records of each topic partition and Delta table, and the age of the oldest."""
        found = plane.lags(plane.details(job))
        return Lags.model_validate({"partitions": [each.as_dict() for each in found]})

    return api


def for_prometheus(plane: ControlPlane) -> Route:
    """Return the route `/metrics` in Prometheus's text format."""

    async def scrape(_: Request) -> Response:
        text = await run_in_threadpool(metrics_text, plane.home, plane.clock())
        return Response(text, headers={"content-type": CONTENT_TYPE})

    return Route("/metrics", scrape, methods=["GET"], include_in_schema=False)


class Savepoint(Shape, of=Listed):
    """A savepoint in a catalog."""


class Savepoints(Shape):
    """Savepoints by catalog, newest first."""

    catalogs: dict[str, list[Savepoint]] = Field(description="The savepoints, by catalog.")


class SavedState(Shape, of=RecordedState):
    """The recorded content of one state."""


class ManifestBody(Shape, schema="Manifest"):
    """The manifest of a savepoint."""

    manifest: dict[str, Any] = Field(
        description="The manifest with the newest label, and with its files if requested."
    )
    content: str = Field(description="`recorded` or `pending`: the state of its row counts and digests.")
    states: list[SavedState] | None = Field(description="The rows and digest of each state, once recorded.")


def savepoint_router(plane: ControlPlane) -> APIRouter:
    """Return the resources of savepoints."""
    api = APIRouter(tags=["savepoints"])

    @api.get("/savepoints", summary="The savepoints of catalogs")
    def savepoints(
        job: Annotated[str | None, Query(description="Only the catalogs of this job.", max_length=64)] = None,
        catalog: Annotated[str | None, Query(description="Only this catalog.", max_length=4096)] = None,
        limit: Annotated[
            int, Query(description="The number of newest savepoints per catalog.", ge=1, le=1000)
        ] = 100,
    ) -> Savepoints:
        """Return the savepoints of one catalog, of a job's catalogs, or of all catalogs of jobs."""
        if catalog is not None:
            catalogs = [path_policy.resolve(plane, catalog, "catalog")]
        else:
            catalogs = list(dict.fromkeys(_catalogs(plane, job)))
        newest = {uri: reversed(plane.savepoints(uri)[-limit:]) for uri in catalogs}
        by_catalog = {uri: [saved.as_dict() for saved in listed] for uri, listed in newest.items()}
        return Savepoints.model_validate({"catalogs": by_catalog})

    @api.get("/savepoints/show", summary="One savepoint")
    def show_savepoint(
        savepoint: Annotated[
            str, Query(description="Its address: `DIR/ID`, or `DIR@LABEL`.", min_length=1, max_length=4096)
        ],
        files: Annotated[bool, Query(description="Include the list of its files.")] = False,
    ) -> ManifestBody:
        """Return a savepoint's manifest, and the recorded content of its rows."""
        uri = path_policy.savepoint(plane, savepoint, "savepoint")
        manifest = show(uri)
        states = recorded_states(StateAddress.resolve(uri).open_savepoint()[0], manifest)
        return ManifestBody.model_validate(
            {
                "manifest": manifest.as_dict() if files else {**manifest.fields, "label": manifest.label},
                "content": PENDING if states is None else RECORDED,
                "states": None if states is None else [state.as_dict() for state in states],
            }
        )

    return api


def _catalogs(plane: ControlPlane, job: str | None) -> Iterator[str]:
    names = [status.job.name for status in plane.jobs()] if job is None else [plane.status(job).job.name]
    for name in names:
        yield from plane.brief(name).catalogs
    if plane.settings.savepoints is not None:
        yield plane.settings.savepoints
