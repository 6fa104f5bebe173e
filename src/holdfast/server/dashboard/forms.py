"""What the buttons ask for: the same operations as over REST, written down before anything is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from starlette.requests import Request

from holdfast.errors import Invalid
from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.registry.operation_arguments import (
    Arguments,
    Diff,
    Dispose,
    MakeCheckpoint,
    TakeSavepoint,
    Verify,
)
from holdfast.savepoints.taking.taking import check_label
from holdfast.server.access import path_policy
from holdfast.server.answers import form_fields
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard.rendering import job_path

Fields = Mapping[str, list[str]]
Reader = Callable[[ControlPlane, Fields, JobDetails], Arguments]
_LONGEST: Final = 4096
_MOST: Final = 50


async def form(request: Request) -> Fields:
    """The fields of a form that one of our own pages has sent.

    A browser says where a form comes from; who does not say it is none, and asks the REST resources.

    Raises:
        Invalid: It is no form, or nothing says that it is one of ours.
    """
    if not {"origin", "sec-fetch-site"} & set(request.headers):
        raise Invalid(
            "this form does not come from a page of the dashboard",
            found="no Origin header",
            hint="programs ask the resources below /api/v1",
        )
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Invalid("this is no form", expected="application/x-www-form-urlencoded")
    return form_fields(await request.body(), _MOST)


def ask(plane: ControlPlane, job: str, fields: Fields) -> str:
    """Write down what a form asks for; the answer is the address to go to.

    Raises:
        Invalid: It asks for nothing that there is, something is missing, or lies where it may not.
        NotFound: There is no such job.
        Conflict: The job cannot be asked.
    """
    details = plane.details(job, 1)
    name = details.status.job.name
    button = _one(fields, "verb")
    if button in ("stop", "cancel"):
        plane.registry.request(plane.control.running(name).job.name, button, plane.clock())
        return job_path(details.status.job)
    if button not in _BUTTONS:
        raise Invalid("nobody can ask for that here", found=button[:80], expected=", ".join(_BUTTONS))
    verb, read = _BUTTONS[button]
    operation = plane.ask(verb, name, read(plane, fields, details))
    if verb == "diff":
        return f"/ui/operations/{operation.operation_id}"
    return job_path(details.status.job, "/savepoints")


def _stop(plane: ControlPlane, fields: Fields, details: JobDetails) -> TakeSavepoint:
    plane.control.running(details.status.job.name)
    return replace(_take(plane, fields, details), deep=False)


def _take(plane: ControlPlane, fields: Fields, details: JobDetails) -> TakeSavepoint:
    label = _some(fields, "label")
    check_label(label)
    catalog = path_policy.catalog_of(plane, details, _some(fields, "catalog"), "catalog")
    return TakeSavepoint(catalog, label, deep="deep" in fields)


def _verify(plane: ControlPlane, fields: Fields, _: JobDetails) -> Verify:
    return Verify(_savepoint(plane, fields), deep="deep" in fields)


def _make(plane: ControlPlane, fields: Fields, _: JobDetails) -> MakeCheckpoint:
    checkpoint = path_policy.new_checkpoint(plane, _one(fields, "checkpoint"), "checkpoint")
    return MakeCheckpoint(_savepoint(plane, fields), checkpoint)


def _dispose(plane: ControlPlane, fields: Fields, _: JobDetails) -> Dispose:
    return Dispose((_savepoint(plane, fields),))


def _diff(plane: ControlPlane, fields: Fields, _: JobDetails) -> Diff:
    chosen = fields.get("with", [])
    if len(chosen) != 2:
        raise Invalid("two savepoints are compared", found=f"{len(chosen)} chosen", expected="2")
    # Their ids begin with the time, so the older one is the first.
    first, second = sorted(chosen, key=lambda address: address.rpartition("/")[2])
    return Diff(path_policy.state(plane, first, "with"), path_policy.state(plane, second, "with"))


_BUTTONS: Final[Mapping[str, tuple[str, Reader]]] = {
    "savepoint": ("savepoint", _take),
    "stop-with-savepoint": ("stop", _stop),
    "verify": ("verify", _verify),
    "restore": ("restore", _make),
    "fork": ("fork", _make),
    "dispose": ("dispose", _dispose),
    "diff": ("diff", _diff),
}


def _savepoint(plane: ControlPlane, fields: Fields) -> str:
    return path_policy.savepoint(plane, _one(fields, "savepoint"), "savepoint")


def _some(fields: Fields, name: str) -> str | None:
    text = fields.get(name, [""])[-1].strip()
    if len(text) > _LONGEST:
        raise Invalid("this is too long", where=name, found=f"{len(text)} characters", expected=f"{_LONGEST}")
    return text or None


def _one(fields: Fields, name: str) -> str:
    text = _some(fields, name)
    if text is None:
        raise Invalid("something was left out", where=name, expected="a value")
    return text
