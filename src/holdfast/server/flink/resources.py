"""All of Flink's resources, in the order in which their paths are looked at."""

from __future__ import annotations

from starlette.routing import Route

from holdfast.server.control_plane import ControlPlane
from holdfast.server.flink import (
    checkpoint_resources,
    cluster,
    job_resources,
    metric_resources,
    operation_resources,
    rescales,
)


def routes(plane: ControlPlane) -> list[Route]:
    """Every resource, bare and below `/v1`; what is named in full before what a parameter would match too."""
    resources = [
        *cluster.RESOURCES,
        *metric_resources.RESOURCES,
        *checkpoint_resources.RESOURCES,
        *operation_resources.RESOURCES,
        *rescales.RESOURCES,
        *job_resources.RESOURCES,
    ]
    resources.sort(key=lambda resource: [(part.startswith("{"), part) for part in resource.path.split("/")])
    return [route for resource in resources for route in resource.routes(plane)]
