"""The resources of state: values by key, rows, and SQL, at a job's newest commit or in a savepoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from holdfast.at_rest.model import KeyState, NamedOperator, NamedState, StateEntry
from holdfast.at_rest.state_reader import StateReader
from holdfast.checkpoints.checkpoint import read
from holdfast.errors import Invalid, NotFound, Unavailable
from holdfast.external.named_addresses import named_databases
from holdfast.savepoints.address import StateAddress
from holdfast.server.access import path_policy
from holdfast.server.api_v1.jobs import JobName, QueryName
from holdfast.server.api_v1.models import Shape
from holdfast.server.bounded import Limits, Lines, ask
from holdfast.server.bounded_work import MODULE
from holdfast.server.control_plane import ControlPlane

LARGEST_FOR_SQL: Final = 512 << 20
SQL_LIMITS: Final = Limits(seconds=20.0, memory_bytes=2 << 30, answer_bytes=8 << 20)
SQL_AT_ONCE: Final = 2
_WAIT_S: Final = 10.0
_PIECE: Final = 1 << 16
_FURTHEST: Final = 100_000
_SQL: Final = (
    "Run a SELECT over a query's states. It reads no file and changes nothing. It runs in a process of its "
    f"own, with at most {SQL_LIMITS.seconds:g} s and {SQL_LIMITS.memory_bytes >> 20} MiB of memory for "
    f"reading the states, planning and running. At most {SQL_AT_ONCE} run at the same time; a request that "
    f"waits longer than {_WAIT_S:g} s gets 503. An answer has at most {SQL_LIMITS.answer_bytes >> 20} MiB of "
    "rows; `more` is true if rows were left out."
)

StateName = Annotated[
    str, Path(description="A state, OPERATOR.STATE, or an operator with one state.", max_length=400)
]


class At(Shape):
    """The base class of answers with the batch of the state and its age."""

    job: str = Field(description="The job.")
    query: str = Field(description="The sink's name.")
    place: str = Field(description="The checkpoint or savepoint.")
    batch_id: int = Field(description="The batch of the state.")
    committed_ms: int | None = Field(description="The time of that batch's commit; null if unknown.")
    age_ms: int | None = Field(description="The time since then.")


class StateColumns(Shape, of=NamedState):
    """A state, and the columns of its keys and values."""


class StateOperator(Shape, of=NamedOperator):
    """A stateful operator with its states."""


class States(At):
    """The stateful operators of a query."""

    operators: list[StateOperator] = Field(description="The operators, with their states and columns.")


class Value(At, of=KeyState):
    """The state of one key."""


class Row(Shape, of=StateEntry):
    """A row of a state; for a list state, one element."""


class Rows(At):
    """Rows of a state, in no defined order."""

    state: str = Field(description="The state, as requested.")
    rows: list[Row] = Field(description="The rows.")
    more: bool = Field(description="True if there are more rows.")


class WantedSql(BaseModel):
    """A request to run an SQL query over states."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(
        description="One SELECT in DuckDB's dialect; states are its tables.", min_length=1, max_length=20_000
    )
    limit: int = Field(default=1000, ge=1, le=10_000, description="The maximum number of rows.")


class Answer(At):
    """The result of an SQL query over states."""

    columns: list[str] = Field(description="The names of the columns.")
    more: bool = Field(description="True if rows were left out.")
    left_out: Literal["rows", "bytes"] | None = Field(
        description=f"The limit reached: the request's, or {SQL_LIMITS.answer_bytes >> 20} MiB of rows."
    )
    rows: list[dict[str, Any]] = Field(description="The rows, by column.")


@dataclass(frozen=True, slots=True)
class Which:
    """The parameters that select the state of a job: query, savepoint and batch."""

    query: QueryName = None
    batch: Annotated[
        int | None, Query(description="A committed batch in the checkpoint; by default the newest.", ge=0)
    ] = None
    savepoint: Annotated[
        str | None,
        Query(
            description="A savepoint's address, or `DIR@LABEL`, instead of the checkpoint.", max_length=4096
        ),
    ] = None


def router(plane: ControlPlane) -> APIRouter:
    """Return the resources of state."""
    api = APIRouter(tags=["state"])
    turns = asyncio.Semaphore(SQL_AT_ONCE)

    @api.get("/jobs/{job}/state", summary="The states of a query")
    def states(job: JobName, which: Annotated[Which, Depends()]) -> States:
        """Return the stateful operators of a query, their states, and their columns."""
        reader, at = _open_state(plane, job, which)
        operators = [operator.as_dict() for operator in reader.operators]
        return States.model_validate({**at, "operators": operators})

    @api.get("/jobs/{job}/state/{state}", summary="A key's value")
    def value(
        job: JobName,
        state: StateName,
        which: Annotated[Which, Depends()],
        key: Annotated[
            list[str],
            Query(
                description="The key: `column=value` per column, or JSON, or the value of a single column.",
                min_length=1,
                max_length=50,
            ),
        ],
    ) -> Value:
        """Return the state of one key at the job's newest commit; the job may be running."""
        reader, at = _open_state(plane, job, which)
        known = reader.get_written(state, key).as_dict()
        return Value.model_validate({**known, **at})

    @api.get("/jobs/{job}/state/{state}/rows", summary="Rows of a state")
    def rows(
        job: JobName,
        state: StateName,
        which: Annotated[Which, Depends()],
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        skip: Annotated[int, Query(description="The number of rows to skip.", ge=0, le=_FURTHEST)] = 0,
    ) -> Rows:
        """Return some rows of a state. To read further rows of the same version, pass its batch id."""
        reader, at = _open_state(plane, job, which)
        entries = [entry.as_dict() for entry in islice(reader.scan(state), skip, skip + limit + 1)]
        return Rows.model_validate(
            {**at, "state": state, "rows": entries[:limit], "more": len(entries) > limit}
        )

    @api.post("/jobs/{job}/sql", summary="SQL over state", response_model=Answer, description=_SQL)
    async def sql(
        request: Request, job: JobName, wanted: WantedSql, which: Annotated[Which, Depends()]
    ) -> Any:
        """Run an SQL query over states in a separate process, which ends when the client disconnects."""
        reader, at = await run_in_threadpool(_open_state, plane, job, which)
        await run_in_threadpool(_check_small_enough, reader)
        question = {
            "address": at["place"],
            "batch": at["batch_id"],
            "sql": wanted.sql,
            "rows": wanted.limit,
            "bytes": SQL_LIMITS.answer_bytes,
            "databases": sorted(named_databases()),
        }
        async with _turn(turns):
            answer = await _unless_gone(request, ask(MODULE, question, SQL_LIMITS))
        return StreamingResponse(_pieces(at, answer), media_type="application/json")

    return api


def _open_state(plane: ControlPlane, job: str, which: Which) -> tuple[StateReader, dict[str, Any]]:
    """Open the selected state, and return its batch and age."""
    details = plane.reported(job)
    query = plane.query(details, which.query)
    address = query.checkpoint
    if which.savepoint is not None:
        address = path_policy.savepoint(plane, which.savepoint, "savepoint")
    place = StateAddress.resolve(address).open_state(which.batch)
    reader = StateReader(place.storage, place.batch_id)
    if not reader.operators:
        raise NotFound(
            "the query has no operator with state",
            code="HF-E3055",
            where=place.name,
            hint="for a job with several queries, choose a different query with `query=NAME`",
        )
    heard = [
        batch.committed_ms
        for batch in details.batches
        if batch.query == query.name and batch.batch_id == reader.batch_id
    ]
    committed = heard[-1] if heard and which.savepoint is None else None
    return reader, {
        "job": details.status.job.name,
        "query": query.name,
        "place": place.name,
        "batch_id": reader.batch_id,
        "committed_ms": committed,
        "age_ms": None if committed is None else max(0, plane.clock() - committed),
    }


@asynccontextmanager
async def _turn(turns: asyncio.Semaphore) -> AsyncIterator[None]:
    """Wait for a free slot for an SQL query.

    Raises:
        Unavailable: No slot became free within the time limit.
    """
    try:
        await asyncio.wait_for(turns.acquire(), _WAIT_S)
    except (asyncio.TimeoutError, TimeoutError) as error:
        raise Unavailable(
            "too many SQL queries are running",
            code="HF-E5039",
            expected=f"at most {SQL_AT_ONCE} at the same time",
            hint="repeat the request later",
        ) from error
    try:
        yield
    finally:
        turns.release()


async def _unless_gone(request: Request, asking: Coroutine[Any, Any, Lines]) -> Lines:
    """Await an answer, and cancel the work if the client disconnects.

    Raises:
        Unavailable: The client has disconnected.
    """
    answer = asyncio.ensure_future(asking)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Unavailable(
                "the client has disconnected",
                code="HF-E5040",
            )
        return answer.result()
    finally:
        for task in (answer, gone):
            task.cancel()
        await asyncio.gather(answer, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _pieces(at: dict[str, Any], answer: Lines) -> Iterator[bytes]:
    """Yield the answer as chunks of JSON, so that a slow client needs no second copy in memory."""
    head = json.dumps({**at, **answer.facts}, ensure_ascii=False)
    held = [head[:-1].encode("utf-8", "surrogatepass"), b', "rows": [']
    size = 0
    for number, line in enumerate(answer.lines):
        held += [b",", line] if number else [line]
        size += len(line)
        if size >= _PIECE:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join([*held, b"]}"])


def _check_small_enough(reader: StateReader) -> None:
    """Check that the states fit into the memory of an SQL process."""
    size = read(reader.storage).size_bytes
    if size > LARGEST_FOR_SQL:
        raise Invalid(
            "the state is too large for SQL over HTTP",
            code="HF-E2266",
            found=f"{size:,} bytes",
            expected=f"at most {LARGEST_FOR_SQL:,} bytes",
            hint="run `holdfast state scan CHECKPOINT --sql` on the server's machine",
        )
