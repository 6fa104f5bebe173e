"""All of Flink's resources, in the order in which their paths are looked at."""

from __future__ import annotations

from starlette.routing import Route

from holdfast.server.flink import checkpoints, cluster, jobs, metrics, operations, rescales
from holdfast.server.plane import Plane


def routes(plane: Plane) -> list[Route]:
    """Every resource, bare and below `/v1`; what is named in full before what a parameter would match too."""
    found = [
        *cluster.RESOURCES,
        *metrics.RESOURCES,
        *checkpoints.RESOURCES,
        *operations.RESOURCES,
        *rescales.RESOURCES,
        *jobs.RESOURCES,
    ]
    found.sort(key=lambda each: [(part.startswith("{"), part) for part in each.path.split("/")])
    return [route for each in found for route in each.routes(plane)]
