"""The common parts of all Flink resources: requests, vertices, refusals, and errors for Java clients."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.errors import HoldfastError, Internal, NotFound
from holdfast.formats.files.compression import modified_utf8
from holdfast.jobs.registry.client import JobDetails
from holdfast.model import BatchProgress, JobState, QueryStarted
from holdfast.observe.job_metrics import shown_name
from holdfast.server.answers import Json, flink_problem
from holdfast.server.control_plane import ControlPlane

CLASS: Final = "org.apache.flink.util.FlinkException"
_MARK: Final = b"@@MSG@@"
_TEXT: Final = b"t"  # TC_STRING, followed by two bytes of length
_STREAM: Final = b"\xac\xed\x00\x05"
_LONGEST: Final = 8000


def failure_cause(error: Mapping[str, Any]) -> dict[str, str]:
    """Return the error of a failed operation in Flink's format.

    Args:
        error: The error as returned by `HoldfastError.as_dict`.
    """
    text = describe_error(error)
    return {
        "class": CLASS,
        "stack-trace": f"{CLASS}: {text}",
        "serialized-throwable": base64.b64encode(serialized(text)).decode(),
    }


def describe_error(error: Mapping[str, Any]) -> str:
    """Return an error as text: the fact and its details."""
    names = ("where", "found", "expected", "hint")
    facts = [f"{name}: {error[name]}" for name in names if error.get(name)]
    return "\n".join([str(error["error"]), *facts])


def serialized(text: str) -> bytes:
    """Return a Java exception with this message in Java's serialization format.

    Raises:
        Internal: The template of the exception is damaged.
    """
    data = _template()
    inner = data.find(_STREAM, 1)
    if inner < 4:
        raise Internal(
            "the template of Java's exceptions is damaged",
            code="HF-E9033",
            hint="please report this",
        )
    head, body = data[: inner - 4], data[inner:]
    message = modified_utf8(text[:_LONGEST])
    # The outer stream may continue after the nested one, whose length determines where.
    size = int.from_bytes(data[inner - 4 : inner], "big")
    nested = _with_message(body[:size], message)
    parts = (_with_message(head, message), len(nested).to_bytes(4, "big"), nested)
    return b"".join(parts) + _with_message(body[size:], message)


@cache
def _template() -> bytes:
    place = files("holdfast.server") / "data" / "serialized_throwable_template.b64"
    return base64.b64decode(place.read_bytes())


def _with_message(data: bytes, message: bytes) -> bytes:
    """Replace the mark with the message in every text, and adjust the length that precedes the text."""
    written = bytearray()
    while (mark := data.find(_MARK)) >= 0:
        start = _start_of_text(data, mark)
        length = int.from_bytes(data[start + 1 : start + 3], "big")
        text = data[start + 3 : start + 3 + length].replace(_MARK, message)
        if len(text) > 0xFFFF:
            raise Internal(
                "the message is too long for a Java UTF string",
                code="HF-E9034",
                found=f"{len(text)} bytes",
                hint="please report this",
            )
        written += data[:start] + _TEXT + len(text).to_bytes(2, "big") + text
        data = data[start + 3 + length :]
    return bytes(written) + data


def _start_of_text(data: bytes, mark: int) -> int:
    """Return the start of the serialized text that contains a mark."""
    start = data.rfind(_TEXT, 0, mark - 2)
    while start >= 0:
        end = start + 3 + int.from_bytes(data[start + 1 : start + 3], "big")
        if mark + len(_MARK) <= end <= len(data):
            return start
        start = data.rfind(_TEXT, 0, start)
    raise Internal(
        "the template of Java's exceptions is damaged",
        code="HF-E9033",
        found="a mark outside any text",
        hint="please report this",
    )


_PERCENTILES: Final = (("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p999", 99.9))
NOT_A_NUMBER: Final = "NaN"


def stats(values: Sequence[int], *, percentiles: bool = True) -> dict[str, Any]:
    """Return the statistics of a sample; percentiles are the text `NaN` if omitted.

    Args:
        values: The sample.
        percentiles: Whether to compute percentiles, which Flink omits for the tasks of a single checkpoint.
    """
    ordered = sorted(values)
    known = percentiles and bool(ordered)
    return {
        "min": ordered[0] if ordered else 0,
        "max": ordered[-1] if ordered else 0,
        "avg": sum(ordered) // len(ordered) if ordered else 0,
        **{name: percentile(ordered, part) if known else NOT_A_NUMBER for name, part in _PERCENTILES},
    }


def percentile(ordered: Sequence[int], part: float) -> float:
    """Return a percentile, interpolated at position part * (n + 1) of the ordered sample."""
    position = part * (len(ordered) + 1) / 100
    below = int(position)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    low, high = ordered[below - 1], ordered[below]
    return low + (position - below) * (high - low)


# The maximum number of key groups in Flink; Spark has no such limit.
MAX_PARALLELISM: Final = 1 << 15
SUSPENDED: Final = "SUSPENDED"

_JOB_STATES: Final = (
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
)
_TASK_STATES: Final = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
)
# The states of tasks whose names differ from the job's state.
_TASK_OF_JOB: Final = {"RESTARTING": "SCHEDULED", "CANCELLING": "CANCELING", SUSPENDED: "CANCELED"}


@dataclass(frozen=True, slots=True)
class Vertex:
    """A query of a job as a vertex of Flink's job graph.

    Attributes:
        vertex_id: The id: 32 hexadecimal digits derived from the names of job and query.
        query: The query.
        parallelism: The number of partitions of the state; 1 without state or before the first batch.
        batches: The newest batches, oldest first.
    """

    vertex_id: str
    query: QueryStarted
    parallelism: int
    batches: tuple[BatchProgress, ...]

    @property
    def name(self) -> str:
        """The query's name, and its operators in the order of the plan."""
        operators = self.batches[-1].operators if self.batches else ()
        return " -> ".join([self.query.name, *(shown_name(operator) for operator in operators), "Sink"])


def vertices(details: JobDetails) -> list[Vertex]:
    """Return the vertices of a job, in the order in which its queries were started."""
    job_id = details.status.job.job_id
    nodes = []
    for query in details.queries:
        batches = tuple(details.batches_of(query.name))
        partitions = [operator.partitions for operator in batches[-1].operators] if batches else []
        nodes.append(Vertex(vertex_id(job_id, query.name), query, max(partitions, default=0) or 1, batches))
    return nodes


def vertex_id(job_id: str, query: str) -> str:
    """Return the id of a query as a vertex."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"holdfast:{job_id}:{query}").hex


def state_of(details: JobDetails) -> str:
    """Return the state of a job in Flink's terms; a job whose supervisor died is `SUSPENDED`."""
    status = details.status
    return SUSPENDED if status.lost else status.job.state.value


def job_counts(state: str, tasks: int) -> dict[str, int]:
    """Return the number of a job's tasks in each state, for the overview of jobs."""
    return {"total": tasks, **{name.lower(): count for name, count in task_counts(state, tasks).items()}}


def task_counts(state: str, tasks: int) -> dict[str, int]:
    """Return the number of tasks in each state."""
    return {name: tasks * (name == task_state(state)) for name in _TASK_STATES}


def task_state(state: str) -> str:
    """Return the state of a job's tasks."""
    return _TASK_OF_JOB.get(state, state)


def timestamps(details: JobDetails) -> dict[str, int]:
    """Return the time at which a job entered each state; 0 if never."""
    job = details.status.job
    times = dict.fromkeys(_JOB_STATES, 0)
    times["INITIALIZING"] = times["CREATED"] = job.started_ms
    own = [attempt for attempt in details.attempts if attempt.began_ms >= job.started_ms]
    for attempt in own:
        times["RUNNING"] = attempt.running_ms or times["RUNNING"]
        if attempt.ending == "failed":
            times["FAILING"] = attempt.ended_ms or times["FAILING"]
        if attempt.recovers:
            times["RESTARTING"] = attempt.began_ms
    if job.state.terminal or job.state is JobState.CANCELLING:
        times[job.state.value] = job.ended_ms or job.updated_ms
    return times


def traffic(vertex: Vertex) -> dict[str, Any]:
    """Return the rows that a query has read and its busy time, over the stored batches."""
    rows = sum(batch.input_rows for batch in vertex.batches)
    whole = bool(vertex.batches) and vertex.batches[0].batch_id == 0 and vertex.batches[0].measured
    return {
        "read-bytes": 0,
        "read-bytes-complete": False,
        "write-bytes": 0,
        "write-bytes-complete": False,
        "read-records": rows,
        "read-records-complete": whole,
        "write-records": 0,
        "write-records-complete": False,
        "accumulated-backpressured-time": 0,
        "accumulated-idle-time": 0,
        "accumulated-busy-time": float(sum(batch.duration_ms for batch in vertex.batches)),
    }


ID: Final = re.compile(r"[0-9a-f]{32}")
NO_BODY: Final = "EmptyRequestBody"
_REST = "org.apache.flink.runtime.rest.handler.RestHandlerException"
_NOT_FOUND = "org.apache.flink.runtime.rest.NotFoundException"


class FlinkRefusal(Exception):
    """An exception for a request that is answered with an error in Flink's format."""

    def __init__(self, status: int, text: str, thrower: str = _REST) -> None:
        super().__init__(text)
        self.status = status
        self.text = f"{thrower}: {text}"


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request.

    Attributes:
        plane: The control plane.
        path: The path parameters.
        query: The query parameters; of a repeated parameter, the last value.
        body: The JSON object of the body; empty without a body. Unknown fields are ignored.
        what: Flink's name for the body.
    """

    plane: ControlPlane
    path: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    what: str = NO_BODY

    def id(self, name: str) -> str:
        """Return an id in the path.

        Raises:
            Refused: The value is not 32 hexadecimal digits.
        """
        text = self.path[name]
        if not ID.fullmatch(text):
            raise unreadable("path", name, text)
        return text

    def job_id(self) -> str:
        """Return the id of the job in the path, which may also have the job's name.

        Raises:
            Refused: The value is neither 32 hexadecimal digits nor the name of a job.
        """
        text = self.path["jobid"]
        if ID.fullmatch(text):
            return text
        try:
            return self.plane.status(text).job.job_id
        except NotFound:
            raise unreadable("path", "jobid", text) from None

    def number(self, name: str) -> int:
        """Return a number in the path."""
        text = self.path[name]
        if not re.fullmatch(r"-?[0-9]{1,18}", text):
            raise unreadable("path", name, text)
        return int(text)

    def job(self, batches: int | None = None) -> JobDetails:
        """Return the job in the path with its newest batches; by default one of each query.

        Raises:
            Refused: The job does not exist, or the id is invalid.
        """
        job_id = self.job_id()
        try:
            return self.plane.brief(job_id) if batches is None else self.plane.details(job_id, batches)
        except NotFound:
            raise FlinkRefusal(404, f"Job {job_id} not found", _NOT_FOUND) from None

    def vertex(self, batches: int) -> tuple[JobDetails, Vertex]:
        """Return the job in the path with its newest batches, and the query in the path as a vertex.

        Raises:
            Refused: The query does not exist.
        """
        wanted = self.id("vertexid")
        details = self.job(batches)
        for vertex in vertices(details):
            if vertex.vertex_id == wanted:
                return details, vertex
        raise FlinkRefusal(404, f"JobVertex {wanted} not found")

    def listed(self, name: str, default: str = "") -> list[str]:
        """Return the comma-separated values of a query parameter."""
        return [part for part in self.query.get(name, default).split(",") if part]

    def text(self, name: str) -> str | None:
        """Return a text of the body; None if missing or null."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, str):
            raise unfit(self.what, f"{name} is {json.dumps(value)[:60]}, expected text")
        return value

    def choice(self, name: str, allowed: tuple[str, ...]) -> str | None:
        """Return a choice in the body; None if missing or null."""
        value = self.text(name)
        if value is not None and value not in allowed:
            names = ", ".join(allowed)
            raise unfit(self.what, f'"{value}": not one of the values accepted for Enum class: [{names}]')
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean of the body; False if missing or null."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, bool):
            raise unfit(self.what, f"{name} is {json.dumps(value)[:60]}, expected true or false")
        return bool(value)


def unreadable(kind: str, name: str, value: str) -> FlinkRefusal:
    """Return the refusal of a parameter; `kind` is `path` or `query`."""
    return FlinkRefusal(
        400,
        "Bad request, could not parse parameters:"
        f' Cannot resolve {kind} parameter ({name}) from value "{value}".',
    )


def unfit(what: str, why: str) -> FlinkRefusal:
    """Return the refusal of a body."""
    return FlinkRefusal(400, f"Request did not match expected format {what}.\n{why}")


Handler = Callable[[Call], Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of Flink's REST API.

    Attributes:
        method: The HTTP method.
        path: The path.
        handler: The function that returns plain values for JSON or a whole response; it runs on a separate
            thread.
        what: Flink's name for the body.
    """

    method: str
    path: str
    handler: Handler
    what: str = NO_BODY

    def routes(self, plane: ControlPlane) -> list[Route]:
        """Return the resource's routes, with and without `/v1`."""

        async def answer(request: Request) -> Response:
            try:
                body = _body(await request.body(), self.what)
                call = Call(plane, request.path_params, dict(request.query_params), body, self.what)
                result = await run_in_threadpool(self.handler, call)
            except FlinkRefusal as refused:
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
