"""The control plane as one ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from holdfast._version import __version__
from holdfast.clock import now_ms
from holdfast.errors import HoldfastError, Invalid
from holdfast.jobs.state_home import StateHome
from holdfast.server.access import login
from holdfast.server.access.guard import AccessGuard, GuessLimit, Sessions
from holdfast.server.answers import as_error, flink_problem, is_own, problem, refusal
from holdfast.server.api_v1 import jobs, operations, state
from holdfast.server.api_v1.models import describe, problems
from holdfast.server.control_plane import Clock, ControlPlane
from holdfast.server.dashboard import pages
from holdfast.server.dashboard.pages import ErrorPages
from holdfast.server.flink import resources
from holdfast.server.server_settings import ServerSettings

API: Final = "/api/v1"
_PROBLEMS: Final = {
    400: "The request is invalid.",
    401: "A token is required.",
    403: "Access is denied.",
    404: "The resource does not exist.",
    409: "The request conflicts with the current state.",
    429: "Too many wrong tokens; `Retry-After` has the seconds to wait.",
    413: "The request body is too large.",
    500: "Stored data is damaged, or an internal error occurred.",
    501: "This version or feature does not support the request.",
    503: "A needed service is temporarily unavailable.",
}


def app(home: Path, settings: ServerSettings | None = None, clock: Clock = now_ms) -> FastAPI:
    """Return the application that serves one state home; no data is read before the first request.

    Args:
        home: The state home.
        settings: The server's settings; by default those of `holdfast serve` without options.
        clock: The function that returns epoch milliseconds.
    """
    settings = settings or ServerSettings()
    plane = ControlPlane(StateHome(home), settings, clock)
    sessions = Sessions(settings.login_code)
    limit = None if settings.token is None else GuessLimit(settings.token)
    made = FastAPI(
        title="Holdfast",
        summary="The control plane of streaming jobs on Spark.",
        version=__version__,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # the page would load files from other hosts
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        middleware=[
            Middleware(ErrorPages),
            Middleware(AccessGuard, settings=settings, sessions=sessions, limit=limit),
        ],
    )
    made.state.plane = plane
    _tell_errors(made)
    api = APIRouter(prefix=API, responses=problems(_PROBLEMS))
    routers = (jobs.job_router, operations.router, jobs.savepoint_router, state.router, jobs.metric_router)
    for router in routers:
        api.include_router(router(plane))
    made.include_router(api)
    made.add_api_route("/health", _health, include_in_schema=False)
    made.router.routes.extend(
        [
            jobs.for_prometheus(plane),
            *login.routes(settings, sessions, limit),
            *pages.routes(plane),
            *resources.routes(plane),
        ]
    )
    describe(made)
    return made


async def _health() -> Any:
    """Answer the health check, without waiting for a worker thread."""
    return {"status": "ok"}


def _tell_errors(made: FastAPI) -> None:
    """Register handlers that answer each error in the format of its path, without a traceback."""
    handlers: dict[type[Exception], Callable[[Request, Any], Awaitable[Response]]] = {
        HoldfastError: _answer_error,
        RequestValidationError: _unfit,
        HTTPException: _plain,
        Exception: _answer_error,
    }
    for kind, handler in handlers.items():
        made.add_exception_handler(kind, handler)


async def _answer_error(request: Request, error: Exception) -> Response:
    return problem(request.url.path, as_error(error))


async def _unfit(request: Request, error: RequestValidationError) -> Response:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    fact = "a parameter or a field of the request has an invalid value"
    found: str | None = repr(first.get("input"))[:200]
    expected: str | None = str(first["msg"]).removeprefix("Input should be ")
    if first["type"] == "missing":
        fact, found, expected = "a required parameter or field of the request is missing", None, None
    elif first["type"] == "json_invalid":
        fact, expected = "the body of the request is not valid JSON", None
        found = str(first.get("ctx", {}).get("error", first["msg"]))
    told = Invalid(
        fact,
        code="HF-E2267",
        where=place,
        found=found,
        expected=expected,
        hint=f"compare the request with the description of the API at {API}/openapi.json",
    )
    return problem(request.url.path, told)


async def _plain(request: Request, error: HTTPException) -> Response:
    path = request.url.path
    if error.status_code == 404:
        if not is_own(path):
            return flink_problem(404, f"Unable to load requested file {path}.")
        return refusal(path, 404, "not-found", "unknown resource", f"see {API}/openapi.json")
    kind = {405: "invalid", 400: "invalid"}.get(error.status_code, "internal")
    return refusal(path, error.status_code, kind, str(error.detail), headers=error.headers)
