"""The savepoints of a job, as a page shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.jobs.registry.client import JobDetails
from holdfast.layout import FORK_BESIDE, beside
from holdfast.savepoints.catalog.catalog import Listed
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard.jobs_page import head_of
from holdfast.server.dashboard.operations_page import operation_line
from holdfast.server.dashboard.views import CatalogView, SavepointLine, SavepointsView

_OPERATIONS: Final = 100
_OPERATIONS_SHOWN: Final = 10
_SHOWN: Final = 200


# What verifications said, and when, by savepoint.
_Proofs = Mapping[str, tuple[str, int]]


def savepoints_view(plane: ControlPlane, job: str) -> SavepointsView:
    """The savepoints in the catalogs that a job uses, and what was asked for lately.

    Cost: the manifests of those catalogs.

    Raises:
        NotFound: There is no such job.
    """
    details = plane.details(job, 40)
    name = details.status.job.name
    operations = plane.operations.newest(name, _OPERATIONS)
    catalogs = catalogs_of(plane, details)
    queries = {query.query_id: query.name for query in details.queries}
    proofs: dict[str, tuple[str, int]] = {}
    for operation in reversed(operations):
        if operation.verb == "verify" and operation.result is not None and operation.ended_ms is not None:
            told = "whole" if operation.result.get("ok") else "damaged"
            proofs[str(operation.arguments.get("savepoint"))] = told, operation.ended_ms
    now = plane.clock()
    return SavepointsView(
        **head_of(plane, details),
        directory=plane.settings.savepoints or details.savepoint_directory,
        beside=beside(details.status.job.checkpoint, FORK_BESIDE),
        can_take=bool(details.queries),
        can_stop=details.status.supervised and not details.status.job.state.terminal,
        catalogs=tuple(_catalog(plane, catalog, queries, proofs) for catalog in catalogs),
        operations=tuple(operation_line(operation, now) for operation in operations[:_OPERATIONS_SHOWN]),
    )


def catalogs_of(plane: ControlPlane, details: JobDetails) -> list[str]:
    """Where a job's savepoints are: those it has used, and the one of the server's settings."""
    catalogs = dict.fromkeys(details.catalogs)
    if plane.settings.savepoints is not None:
        catalogs.setdefault(plane.settings.savepoints)
    return list(catalogs)


def _catalog(plane: ControlPlane, catalog: str, queries: Mapping[str, str], proofs: _Proofs) -> CatalogView:
    try:
        savepoints = plane.savepoints(catalog)
    except HoldfastError as error:
        return CatalogView(catalog, (), error.as_dict())
    lines = [_line(savepoint, queries, proofs) for savepoint in reversed(savepoints[-_SHOWN:])]
    return CatalogView(catalog, tuple(lines), None)


def _line(listed: Listed, queries: Mapping[str, str], proofs: _Proofs) -> SavepointLine:
    proved, proved_ms = proofs.get(listed.uri, (None, None))
    line = SavepointLine(
        listed.uri, listed.savepoint_id, listed.content, listed.problem, proved=proved, proved_ms=proved_ms
    )
    manifest = listed.manifest
    if manifest is None:
        return line
    query = queries.get(manifest.query_id)
    return replace(
        line,
        label=manifest.label,
        created_ms=manifest.created_ms,
        query=query,
        batch=manifest.batch_id,
        files=len(manifest.files),
        size_bytes=manifest.size_bytes,
        new_bytes=manifest.new_bytes,
        mine=query is not None,
    )
