"""What every one of Flink's resources has in common: how it is asked, and how it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.errors import HoldfastError, NotFound
from holdfast.jobs.registry.client import JobDetails
from holdfast.server.answers import Json, flink_problem
from holdfast.server.control_plane import ControlPlane
from holdfast.server.flink.vertices import Vertex, vertices

ID: Final = re.compile(r"[0-9a-f]{32}")
NO_BODY: Final = "EmptyRequestBody"
_REST = "org.apache.flink.runtime.rest.handler.RestHandlerException"
_NOT_FOUND = "org.apache.flink.runtime.rest.NotFoundException"


class Refused(Exception):
    """A request that is answered with an error as Flink words it."""

    def __init__(self, status: int, text: str, thrower: str = _REST) -> None:
        super().__init__(text)
        self.status = status
        self.text = f"{thrower}: {text}"


@dataclass(frozen=True, slots=True)
class Call:
    """A request, parsed.

    Attributes:
        plane: What the server knows.
        path: The parameters in the path.
        query: The parameters behind it; of a repeated one the last.
        body: The JSON object that was sent; empty where none was. Unknown fields are left alone.
        what: What Flink calls the body.
    """

    plane: ControlPlane
    path: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    what: str = NO_BODY

    def id(self, name: str) -> str:
        """An id in the path.

        Raises:
            Refused: It is not 32 hexadecimal digits.
        """
        text = self.path[name]
        if not ID.fullmatch(text):
            raise unreadable("path", name, text)
        return text

    def job_id(self) -> str:
        """Return the id of the job in the path, which Holdfast also takes by the job's name.

        Raises:
            Refused: It is neither 32 hexadecimal digits nor the name of a job.
        """
        text = self.path["jobid"]
        if ID.fullmatch(text):
            return text
        try:
            return self.plane.status(text).job.job_id
        except NotFound:
            raise unreadable("path", "jobid", text) from None

    def number(self, name: str) -> int:
        """A number in the path."""
        text = self.path[name]
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise unreadable("path", name, text)
        return int(text)

    def job(self, batches: int | None = None) -> JobDetails:
        """The job that the path names, with so many of its newest batches; by default one of each query.

        Raises:
            Refused: There is none, or this is no id.
        """
        job_id = self.job_id()
        try:
            return self.plane.brief(job_id) if batches is None else self.plane.details(job_id, batches)
        except NotFound:
            raise Refused(404, f"Job {job_id} not found", _NOT_FOUND) from None

    def vertex(self, batches: int) -> tuple[JobDetails, Vertex]:
        """The query that the path names as a vertex, and its job with so many of the newest batches.

        Raises:
            Refused: There is none.
        """
        wanted = self.id("vertexid")
        details = self.job(batches)
        for vertex in vertices(details):
            if vertex.vertex_id == wanted:
                return details, vertex
        raise Refused(404, f"JobVertex {wanted} not found")

    def listed(self, name: str, default: str = "") -> list[str]:
        """What a parameter behind the path names, with commas between."""
        return [part for part in self.query.get(name, default).split(",") if part]

    def text(self, name: str) -> str | None:
        """A text of the body; None where it is not there or null."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, str):
            raise unfit(self.what, f"{name} is {json.dumps(value)[:60]}, expected text")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """One of several words in the body; None where it is not there or null."""
        value = self.text(name)
        if value is not None and value not in allowed:
            names = ", ".join(allowed)
            raise unfit(self.what, f'"{value}": not one of the values accepted for Enum class: [{names}]')
        return value

    def flag(self, name: str) -> bool:
        """A yes or no in the body; no where it is not there or null."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, bool):
            raise unfit(self.what, f"{name} is {json.dumps(value)[:60]}, expected true or false")
        return bool(value)


def unreadable(kind: str, name: str, value: str) -> Refused:
    """The refusal of a parameter; `kind` is `path` or `query`."""
    return Refused(
        400,
        "Bad request, could not parse parameters:"
        f' Cannot resolve {kind} parameter ({name}) from value "{value}".',
    )


def unfit(what: str, why: str) -> Refused:
    """The refusal of a body."""
    return Refused(400, f"Request did not match expected format {what}.\n{why}")


Handler = Callable[[Call], Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """One of Flink's resources.

    Attributes:
        method: How it is asked.
        path: Where it is.
        handler: What answers: plain values for JSON, or a whole answer. It runs on a thread of its own.
        what: What Flink calls the body.
    """

    method: str
    path: str
    handler: Handler
    what: str = NO_BODY

    def routes(self, plane: ControlPlane) -> list[Route]:
        """It as routes, bare and below `/v1`."""

        async def answer(request: Request) -> Response:
            try:
                body = _body(await request.body(), self.what)
                call = Call(plane, request.path_params, dict(request.query_params), body, self.what)
                result = await run_in_threadpool(self.handler, call)
            except Refused as refused:
                return flink_problem(refused.status, refused.text)
            except HoldfastError as error:
                return flink_problem(error.http_status, str(error))
            return result if isinstance(result, Response) else Json(result)

        paths = (self.path, f"/v1{self.path}")
        return [Route(path, answer, methods=[self.method], include_in_schema=False) for path in paths]


def _body(data: bytes, what: str) -> Mapping[str, Any]:
    if not data.strip():
        return {}
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise unfit(what, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise unfit(what, f"a JSON {type(body).__name__}, expected an object")
    return body
