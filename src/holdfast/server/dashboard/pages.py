"""The routes of the dashboard, its forms, and its error pages."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast._version import __version__
from holdfast.errors import Invalid, NotFound
from holdfast.jobs.registry.client import JobDetails
from holdfast.jobs.registry.operation_log import (
    Arguments,
    Diff,
    Dispose,
    MakeCheckpoint,
    TakeSavepoint,
    Verify,
)
from holdfast.savepoints.taking import check_label
from holdfast.server.access import path_policy
from holdfast.server.answers import JSON_SUFFIX, OWN, Form, Json, as_error, form_fields, form_of, is_page
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard.charts import ALL, RANGES
from holdfast.server.dashboard.job_pages import STATES, alerts_view, job_view, jobs_view, operation_view
from holdfast.server.dashboard.rendering import assets, assets_digest, job_path, render
from holdfast.server.dashboard.state_pages import StateRequest, checkpoints_view, savepoints_view, state_view
from holdfast.server.dashboard.words import error_words, words_of

Fields = Mapping[str, list[str]]
Reader = Callable[[ControlPlane, Fields, JobDetails], Arguments]
_LONGEST: Final = 4096
_MOST: Final = 50


async def form(request: Request) -> Fields:
    """Return the fields of a form that a page of this server submitted.

    A browser sends the origin of a form; a request without one comes from a program, which must use the REST
    resources.

    Raises:
        Invalid: The request is not a form, or its origin is not this server.
    """
    if not {"origin", "sec-fetch-site"} & set(request.headers):
        raise Invalid(
            "the form was not sent by a page of the dashboard",
            code="HF-E2269",
            found="no Origin header",
            hint="use the resources below /api/v1 from a program",
        )
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Invalid(
            "the request body is not a submitted form",
            code="HF-E2270",
            expected="application/x-www-form-urlencoded",
            hint="send the form from a page of the dashboard, or use the resources below /api/v1",
        )
    return form_fields(await request.body(), _MOST)


def ask(plane: ControlPlane, job: str, fields: Fields) -> str:
    """Request the operation of a form, and return the address for the redirect.

    Raises:
        Invalid: The button is unknown, or a field is missing or not allowed.
        NotFound: The job does not exist.
        Conflict: The job does not accept the request.
    """
    details = plane.details(job, 1)
    name = details.status.job.name
    button = _one(fields, "verb")
    if button in ("stop", "cancel"):
        plane.registry.request(plane.control.running(name, button).job.name, button, plane.clock())
        return job_path(details.status.job)
    if button not in _BUTTONS:
        raise Invalid(
            "unknown action of a form",
            code="HF-E2271",
            found=button[:80],
            expected=", ".join(_BUTTONS),
            hint="reload the page, and use one of its buttons",
        )
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
    return TakeSavepoint(catalog, label, deep="deep" in fields, drop_expired="drop_expired" in fields)


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
        raise Invalid(
            "a comparison needs exactly two savepoints",
            code="HF-E2272",
            found=f"{len(chosen)} chosen",
            hint="choose two savepoints in the list",
        )
    # Ids start with the time, so the smaller id is the older one.
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
        raise Invalid(
            "the value of a form field is too long",
            code="HF-E2273",
            where=name,
            found=f"{len(text)} characters",
            expected=f"at most {_LONGEST} characters",
            hint="shorten the value",
        )
    return text or None


def _one(fields: Fields, name: str) -> str:
    text = _some(fields, name)
    if text is None:
        raise Invalid(
            "a required form field has no value", code="HF-E2274", where=name, hint="fill in the field"
        )
    return text


# Only files of this server and no inline scripts, so that names and keys are never executed.
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_LOG: Final = logging.getLogger("holdfast.server")
_IMMUTABLE: Final = "public, max-age=31536000, immutable"

Look = Callable[[ControlPlane, Request], Any]


def routes(plane: ControlPlane) -> list[BaseRoute]:
    """Return the routes of the pages, their assets and their forms."""
    looks: dict[str, tuple[str, Look]] = {
        **dict.fromkeys(("/", "/ui", "/ui/jobs"), ("jobs.html", _jobs)),
        "/ui/alerts": ("alerts.html", lambda plane, _: alerts_view(plane)),
        "/ui/jobs/{job}/checkpoints": ("checkpoints.html", _checkpoints),
        "/ui/jobs/{job}/savepoints": (
            "savepoints.html",
            lambda plane, asked: savepoints_view(plane, _job(asked)),
        ),
        "/ui/jobs/{job}/state": ("state.html", _state),
        "/ui/jobs/{job}": ("job.html", _one_job),
        "/ui/operations/{operation}": (
            "operation.html",
            lambda plane, asked: operation_view(plane, _path_parameter(asked, "operation")),
        ),
    }
    pages: list[BaseRoute] = [Route("/static/{digest}/{name}", _asset, methods=["GET"])]
    for path, (template, look) in looks.items():
        handler = _page(plane, template, look)
        if path not in ("/", "/ui") and not path.endswith("}"):
            pages.append(Route(f"{path}{JSON_SUFFIX}", handler, methods=["GET"]))
        pages.append(Route(path, handler, methods=["GET"]))
    pages.append(Route("/ui/jobs/{job}/ask", _ask(plane), methods=["POST"]))
    pages.append(Route("/login", _login(plane), methods=["GET"]))
    pages.append(Route("/ui/{rest:path}", _page(plane, "", _nowhere), methods=["GET"]))
    return pages


def _page(plane: ControlPlane, template: str, look: Look) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            view = await run_in_threadpool(look, plane, request)
            return await run_in_threadpool(_render, plane, request, template, view)
        except Exception as error:
            return _problem(plane, request, error)

    return answer


def _render(plane: ControlPlane, request: Request, template: str, view: Any) -> Response:
    form = form_of(request.url.path, request.headers)
    if form is Form.WORDS:
        return Response(words_of(view, str(request.url), str(request.base_url)), media_type="text/plain")
    if form is Form.JSON:
        return _with_policy(Json(asdict(view)))
    # Scripts keep relative times up to date, so a later clock alone does not change a page.
    known = repr(replace(view, now_ms=0))
    tag = f'"{hashlib.sha256(f"{template}{assets_digest()}{known}".encode()).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache", "vary": "accept, cookie"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    body = render(template, view=view, **_frame(plane, request))
    return _with_policy(Response(body, media_type="text/html", headers=headers))


def _problem(plane: ControlPlane, request: Request, raised: Exception) -> Response:
    error = as_error(raised)
    if error is not raised:
        _LOG.error("a page could not be shown: %s", request.url.path, exc_info=raised)
    if form_of(request.url.path, request.headers) is not Form.PAGE:
        return _with_policy(Json(error.as_dict(), error.http_status))
    body = render("error.html", error=error.as_dict(), **_frame(plane, request))
    return _with_policy(Response(body, error.http_status, media_type="text/html"))


def _frame(plane: ControlPlane, request: Request) -> dict[str, Any]:
    """Return the values that every page has in addition to its view."""
    path = request.url.path
    query = f"?{request.url.query}" if request.url.query else ""
    as_json = f"{'/ui/jobs' if path in ('/', '/ui') else path}{JSON_SUFFIX}{query}"
    return {
        "version": __version__,
        "path": path,
        "here": f"{path}{query}",
        "as_json": as_json,
        "has_token": plane.settings.token is not None,
        "home": str(plane.home.path),
    }


def _with_policy(answer: Response) -> Response:
    answer.headers.setdefault("content-security-policy", POLICY)
    return answer


async def _asset(request: Request) -> Response:
    asset = assets().get(request.path_params["name"])
    if asset is None or request.path_params["digest"] != assets_digest():
        return Response("unknown file", 404, media_type="text/plain")
    return Response(asset.body, media_type=asset.media_type, headers={"cache-control": _IMMUTABLE})


def _login(plane: ControlPlane) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        if plane.settings.token is None:
            return RedirectResponse("/", 303)
        given = request.query_params
        wait = given.get("wait", "")
        why, status = "", 200
        if wait.isascii() and wait.isdigit() and len(wait) < 4:
            why, status = f"Too many wrong tokens from this address. Try again in {wait} s.", 429
        elif "wrong" in given:
            why, status = "Wrong token.", 401
        elif "used" in given:
            why, status = "This link has already been used, or belongs to a different server.", 401
        body = render("login.html", why=why, following=given.get("next", "/"), **_frame(plane, request))
        return _with_policy(Response(body, status, media_type="text/html"))

    return answer


def _ask(plane: ControlPlane) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            fields = await form(request)
            job = _job(request)
            following = await run_in_threadpool(ask, plane, job, fields)
        except Exception as error:
            return _problem(plane, request, error)
        return RedirectResponse(following, 303)

    return answer


def _path_parameter(request: Request, name: str) -> str:
    return str(request.path_params[name]).removesuffix(JSON_SUFFIX)


def _job(request: Request) -> str:
    return _path_parameter(request, "job")


def _query(request: Request) -> str | None:
    return request.query_params.get("query") or None


def _choice(request: Request, name: str, allowed: Iterable[str]) -> str | None:
    """Return a query parameter with a fixed set of values; None if it is missing."""
    value = request.query_params.get(name) or None
    if value is not None and value not in allowed:
        raise Invalid(
            "unknown value of a query parameter",
            code="HF-E2526",
            where=name,
            found=value[:40],
            expected=", ".join(allowed),
            hint="open the page again from the list of jobs at /",
        )
    return value


def _jobs(plane: ControlPlane, request: Request) -> Any:
    name = request.query_params.get("name", "").strip()[:_LONGEST]
    return jobs_view(plane, _choice(request, "state", STATES), name or None)


def _one_job(plane: ControlPlane, request: Request) -> Any:
    time_range = _choice(request, "range", RANGES) or ALL
    return job_view(plane, _job(request), _query(request), time_range)


def _checkpoints(plane: ControlPlane, request: Request) -> Any:
    return checkpoints_view(plane, _job(request), _query(request))


def _state(plane: ControlPlane, request: Request) -> Any:
    given = request.query_params
    offset = given.get("offset", "0")
    if not (offset.isascii() and offset.isdigit() and len(offset) < 10):
        raise Invalid(
            "invalid row offset",
            code="HF-E2275",
            where="offset",
            found=offset[:40],
            expected="a row number from 0",
            hint="open the first page of the rows, and continue with its links",
        )
    asked = StateRequest(
        query=_query(request),
        savepoint=given.get("savepoint") or None,
        state=given.get("state") or None,
        key=given.get("key") or None,
        offset=int(offset),
    )
    return state_view(plane, _job(request), asked)


def _nowhere(plane: ControlPlane, request: Request) -> Any:
    del plane
    raise NotFound("unknown page", code="HF-E3057", where=request.url.path, hint="open the list of jobs at /")


class ErrorPages:
    """ASGI middleware around the whole application that converts JSON errors to the requested format.

    Errors stay JSON below `/api`, for requests that accept JSON, and for Flink's resources unless the client
    is a browser.

    Args:
        app: The wrapped application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = str(scope.get("path", ""))
        form = Form.JSON if scope["type"] != "http" else form_of(path, Headers(scope=scope))
        if form is Form.JSON or path.startswith(OWN) or not (form is Form.PAGE or _read(scope, path)):
            await self._app(scope, receive, send)
            return
        begun: Message | None = None
        body = b""

        async def hold_error(message: Message) -> None:
            nonlocal begun, body
            if message["type"] == "http.response.start" and _is_error(message):
                begun = message
            elif begun is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await _tell(scope, send, begun, body, form)

        await self._app(scope, receive, hold_error)


def _read(scope: Scope, path: str) -> bool:
    return is_page(path) and scope["method"] in ("GET", "HEAD")


def _is_error(message: Message) -> bool:
    kind = Headers(raw=message.get("headers", [])).get("content-type", "")
    return int(message["status"]) >= 400 and kind.startswith("application/json")


async def _tell(scope: Scope, send: Send, begun: Message, body: bytes, form: Form) -> None:
    error = _error(json.loads(body or b"{}"), str(scope["path"]))
    if form is Form.PAGE:
        # A refused client receives no fact about the server except its version.
        text = render("error.html", error=error, version=__version__, path="", has_token=False, home="")
    else:
        text = error_words(error)
    made = text.encode("utf-8", "replace")
    headers = MutableHeaders(raw=list(begun.get("headers", [])))
    headers["content-type"] = f"text/{'html' if form is Form.PAGE else 'plain'}; charset=utf-8"
    headers["content-length"] = str(len(made))
    headers.setdefault("content-security-policy", POLICY)
    await send({**begun, "headers": headers.raw})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else made})


def _error(answer: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return an error in Holdfast's format, converting Flink's."""
    nothing = dict.fromkeys(("code", "where", "found", "expected", "hint"))
    if "errors" not in answer:
        return {"error": "internal error", **nothing, **answer}
    text = str(answer["errors"][-1])
    if text.startswith("Unable to load requested file"):
        return {**nothing, "error": "unknown page", "where": path, "hint": "the list of jobs is at `/`"}
    first, _, hint = text.partition("\nhint: ")
    return {**nothing, "error": first.rpartition("Exception: ")[2], "hint": hint or None}
