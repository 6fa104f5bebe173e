"""What is measured of jobs, which alerts stand, and how recoveries went."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.jobs.monitoring import sizing_report
from holdfast.jobs.monitoring.metrics_snapshot import alert_events, alerts, metrics_json, metrics_text
from holdfast.jobs.recovery import prediction
from holdfast.observe import alerting, lag, metrics
from holdfast.observe.alert_store import NotedEvent
from holdfast.observe.export.prometheus import CONTENT_TYPE
from holdfast.server.api_v1.jobs import JobName
from holdfast.server.api_v1.models import Recovery
from holdfast.server.api_v1.shapes import Shape
from holdfast.server.control_plane import ControlPlane

OfJob = Annotated[str | None, Query(description="Only of this job, by name or id.", max_length=64)]


class Metric(Shape, of=metrics.Metric):
    """Something that is measured."""


class Sample(Shape, of=metrics.Sample):
    """One number."""


class Metrics(Shape):
    """The newest numbers."""

    at_ms: int = Field(description="When they were measured, in epoch milliseconds.")
    metrics: list[Metric] = Field(description="What is measured: name, unit, kind, meaning.")
    samples: list[Sample] = Field(description="The values, each with its labels.")


class Alert(Shape, of=alerting.Alert):
    """One thing that is wrong, or may be."""


class Alerts(Shape):
    """Alerts that stand, the firing ones first."""

    alerts: list[Alert] = Field(description="Each with its rule, job, phase and since when.")


class AlertEvent(Shape, of=NotedEvent):
    """An alert begins, or is over."""


class AlertEvents(Shape):
    """What has happened to alerts, oldest first."""

    events: list[AlertEvent] = Field(description="Each with its number and the alert.")


class Prediction(Shape, of=prediction.Prediction):
    """How long the next recovery is expected to take."""


class Recoveries(Shape):
    """What recoveries of a job took, and what the next one will."""

    recoveries: list[Recovery] = Field(description="Each by phase, oldest first.")
    prediction: Prediction | None = Field(
        description="How long the next one will take, and how far off that may be; none without a past."
    )


class QuerySizing(Shape, of=sizing_report.QuerySizing):
    """What a query has and needs, and how its state grows."""


class Sizings(Shape):
    """What the queries of a job have and need."""

    queries: list[QuerySizing] = Field(description="Each that has committed a batch.")


class Lag(Shape, of=lag.Lag):
    """How far a query is behind one partition of a source."""


class Lags(Shape):
    """How far the queries of a job are behind their sources."""

    partitions: list[Lag] = Field(
        description="Each partition of each topic, and each Delta table; no other sources."
    )


def router(plane: ControlPlane) -> APIRouter:
    """The resources of what is measured."""
    api = APIRouter(tags=["watching"])

    @api.get("/metrics", summary="All numbers")
    def metrics(job: OfJob = None) -> Metrics:
        """The newest numbers of all jobs, or of one. Prometheus reads the same at `/metrics`."""
        return Metrics.model_validate(metrics_json(plane.home, plane.clock(), plane.name(job)))

    @api.get("/alerts", summary="What is wrong")
    def standing_alerts(job: OfJob = None) -> Alerts:
        """The alerts that stand, of all jobs or of one."""
        standing = alerts(plane.home, plane.name(job))
        return Alerts.model_validate({"alerts": [alert.as_dict() for alert in standing]})

    @api.get("/alerts/events", summary="What was wrong")
    def events_of_alerts(
        job: OfJob = None,
        last: Annotated[int, Query(description="So many of the newest.", ge=1, le=1000)] = 100,
    ) -> AlertEvents:
        """Alerts that fired and cleared, oldest first."""
        events = alert_events(plane.home, plane.name(job), last)
        return AlertEvents.model_validate({"events": [event.as_dict() for event in events]})

    @api.get("/jobs/{job}/recovery", summary="What recoveries take")
    def recovery(job: JobName) -> Recoveries:
        """The recoveries of a job by phase, and a prediction of the next."""
        details = plane.brief(job)
        predicted = plane.prediction(details)
        return Recoveries.model_validate(
            {
                "recoveries": [recovery.as_dict() for recovery in details.recoveries],
                "prediction": None if predicted is None else predicted.as_dict(),
            }
        )

    @api.get("/jobs/{job}/sizing", summary="What a job has and needs")
    def sizing(job: JobName) -> Sizings:
        """Partitions, cores and memory of each query, what would be right, and how its state grows."""
        sized = plane.sizings(plane.details(job))
        return Sizings.model_validate({"queries": [query.as_dict() for query in sized]})

    @api.get("/jobs/{job}/lag", summary="How far a job is behind")
    def behind(job: JobName) -> Lags:
        """What is not read, by partition of a topic and by Delta table, and how long the first has waited."""
        found = plane.lags(plane.details(job))
        return Lags.model_validate({"partitions": [each.as_dict() for each in found]})

    return api


def for_prometheus(plane: ControlPlane) -> Route:
    """`/metrics` in Prometheus's text format."""

    async def scrape(_: Request) -> Response:
        text = await run_in_threadpool(metrics_text, plane.home, plane.clock())
        return Response(text, headers={"content-type": CONTENT_TYPE})

    return Route("/metrics", scrape, methods=["GET"], include_in_schema=False)
