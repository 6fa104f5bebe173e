"""The routes of the dashboard. Every page answers as HTML, in words or as JSON, from the same value."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from holdfast._version import __version__
from holdfast.errors import Invalid, NotFound
from holdfast.server.answers import JSON_SUFFIX, Form, Json, as_error, form_of
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard import forms
from holdfast.server.dashboard.alerts_page import alerts_view
from holdfast.server.dashboard.checkpoints_page import checkpoints_view
from holdfast.server.dashboard.jobs_page import job_view, jobs_view
from holdfast.server.dashboard.operations_page import operation_view
from holdfast.server.dashboard.rendering import assets, assets_digest, render
from holdfast.server.dashboard.savepoints_page import savepoints_view
from holdfast.server.dashboard.states_page import Asked, state_view
from holdfast.server.dashboard.words import words_of

# Nothing from elsewhere, nothing inline: whatever a name or a key says, it runs nowhere.
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_LOG: Final = logging.getLogger("holdfast.server")
_IMMUTABLE: Final = "public, max-age=31536000, immutable"

Look = Callable[[ControlPlane, Request], Any]


def routes(plane: ControlPlane) -> list[BaseRoute]:
    """Every page, the files that they load, and what their buttons ask for."""
    looks: dict[str, tuple[str, Look]] = {
        **dict.fromkeys(("/", "/ui", "/ui/jobs"), ("jobs.html", lambda plane, _: jobs_view(plane))),
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
            lambda plane, asked: operation_view(plane, _named(asked, "operation")),
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
            return await run_in_threadpool(_shown, plane, request, template, view)
        except Exception as error:
            return _problem(plane, request, error)

    return answer


def _shown(plane: ControlPlane, request: Request, template: str, view: Any) -> Response:
    values = asdict(view)
    form = form_of(request.url.path, request.headers)
    if form is Form.WORDS:
        return Response(words_of(view, str(request.url), str(request.base_url)), media_type="text/plain")
    if form is Form.JSON:
        return _with_policy(Json(values))
    # The clock moves all the time, and the page keeps up with it by itself.
    known = json.dumps({**values, "now_ms": 0}, sort_keys=True, default=str)
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
    """What every page shows around its view."""
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
        return Response("there is no such file", 404, media_type="text/plain")
    return Response(asset.body, media_type=asset.media_type, headers={"cache-control": _IMMUTABLE})


def _login(plane: ControlPlane) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        if plane.settings.token is None:
            return RedirectResponse("/", 303)
        given = request.query_params
        wait = given.get("wait", "")
        why, status = "", 200
        if wait.isascii() and wait.isdigit() and len(wait) < 4:
            why, status = f"Too many wrong tokens came from this address. Try again in {wait} s.", 429
        elif "wrong" in given:
            why, status = "This is not the token.", 401
        elif "used" in given:
            why, status = "This link has been used, or is of another server.", 401
        body = render("login.html", why=why, following=given.get("next", "/"), **_frame(plane, request))
        return _with_policy(Response(body, status, media_type="text/html"))

    return answer


def _ask(plane: ControlPlane) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            fields = await forms.form(request)
            job = _job(request)
            following = await run_in_threadpool(forms.ask, plane, job, fields)
        except Exception as error:
            return _problem(plane, request, error)
        return RedirectResponse(following, 303)

    return answer


def _named(request: Request, name: str) -> str:
    return str(request.path_params[name]).removesuffix(JSON_SUFFIX)


def _job(request: Request) -> str:
    return _named(request, "job")


def _query(request: Request) -> str | None:
    return request.query_params.get("query") or None


def _one_job(plane: ControlPlane, request: Request) -> Any:
    return job_view(plane, _job(request), _query(request))


def _checkpoints(plane: ControlPlane, request: Request) -> Any:
    return checkpoints_view(plane, _job(request), _query(request))


def _state(plane: ControlPlane, request: Request) -> Any:
    given = request.query_params
    offset = given.get("offset", "0")
    if not (offset.isascii() and offset.isdigit() and len(offset) < 10):
        raise Invalid("this is no number of rows", where="offset", found=offset[:40], expected="0, 50, …")
    asked = Asked(
        query=_query(request),
        savepoint=given.get("savepoint") or None,
        state=given.get("state") or None,
        key=given.get("key") or None,
        offset=int(offset),
    )
    return state_view(plane, _job(request), asked)


def _nowhere(plane: ControlPlane, request: Request) -> Any:
    del plane
    raise NotFound("there is no such page", where=request.url.path, hint="all jobs are at /")
