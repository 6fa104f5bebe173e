"""Savepoints in their catalogs, as our own resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from holdfast.formats.savepoint.savepoint_content import RecordedState
from holdfast.savepoints.access import opened
from holdfast.savepoints.catalog.catalog import PENDING, RECORDED, Listed
from holdfast.savepoints.proof.digests import recorded_states
from holdfast.savepoints.savepoint_api import show
from holdfast.server.access import path_policy
from holdfast.server.api_v1.shapes import Shape
from holdfast.server.control_plane import ControlPlane


class Savepoint(Shape, of=Listed):
    """A savepoint in a catalog."""


class Savepoints(Shape):
    """Savepoints by catalog, in each the newest first."""

    catalogs: dict[str, list[Savepoint]] = Field(description="Savepoints by their catalog.")


class SavedState(Shape, of=RecordedState):
    """What was recorded of one state."""


class Manifest(Shape):
    """What a savepoint says of itself."""

    manifest: dict[str, Any] = Field(
        description="Its manifest with the newest label, files included if they were asked for."
    )
    content: str = Field(
        description="Whether row counts and digests of its states are `recorded`, or `pending`."
    )
    states: list[SavedState] | None = Field(description="Rows and digest of each state, once recorded.")


def router(plane: ControlPlane) -> APIRouter:
    """The resources of savepoints."""
    api = APIRouter(tags=["savepoints"])

    @api.get("/savepoints", summary="The savepoints of catalogs")
    def savepoints(
        job: Annotated[str | None, Query(description="Those of a job's catalogs.", max_length=64)] = None,
        catalog: Annotated[str | None, Query(description="Those of this one.", max_length=4096)] = None,
        limit: Annotated[int, Query(description="So many of each catalog.", ge=1, le=1000)] = 100,
    ) -> Savepoints:
        """The savepoints of one catalog, of those that a job uses, or of all that jobs use."""
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
        files: Annotated[bool, Query(description="With the list of its files.")] = False,
    ) -> Manifest:
        """What a savepoint's manifest says, and what was recorded of its rows."""
        uri = path_policy.savepoint(plane, savepoint, "savepoint")
        manifest = show(uri)
        states = recorded_states(opened(uri)[0], manifest)
        return Manifest.model_validate(
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
