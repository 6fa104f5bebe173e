"""State by key, row by row and in SQL: of a running job as of its newest commit, and of savepoints."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from holdfast.at_rest.reading import StateReader
from holdfast.checkpoints.reading import read
from holdfast.errors import Invalid, NotFound, Unavailable
from holdfast.formats.plain import plain
from holdfast.savepoints.places import place_of
from holdfast.server import places
from holdfast.server.own.jobs import JobName, QueryName
from holdfast.server.own.models import Shape
from holdfast.server.plane import Plane

LARGEST_FOR_SQL: Final = 512 << 20
SQL_S: Final = 20.0
_SQL_AT_ONCE: Final = 2
_WAIT_S: Final = 10.0
_FURTHEST: Final = 100_000

StateName = Annotated[
    str, Path(description="A state, OPERATOR.STATE, or an operator with one state.", max_length=400)
]


class At(Shape):
    """Which state is looked at, and how old it is."""

    job: str
    query: str
    place: str = Field(description="The checkpoint or savepoint.")
    batch: int = Field(description="The batch whose state it is.")
    committed_ms: int | None = Field(description="When that was committed, as far as it is known.")
    age_ms: int | None = Field(description="How long ago.")


class States(At):
    """The stateful operators of a query."""

    operators: list[dict[str, Any]] = Field(description="With their states, and the columns of these.")


class Value(At):
    """What a state holds for one key."""

    operator: str
    state: str
    form: str = Field(description="What the state holds: a value, a list, a map, timers, rows.")
    key: Any
    exists: bool = Field(description="Whether the state knows the key.")
    value: Any
    expires_ms: list[int | None] | None
    partition: int | None
    size_bytes: int


class Rows(At):
    """Rows of a state, in no order that means anything."""

    state: str
    rows: list[dict[str, Any]]
    more: bool = Field(description="Whether there are more of them.")


class WantedSql(BaseModel):
    """A question to states."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(
        description="One SELECT in DuckDB's dialect; states are its tables.", min_length=1, max_length=20_000
    )
    limit: int = Field(default=1000, ge=1, le=10_000, description="So many rows at most.")


class Answer(At):
    """What a query says of states."""

    columns: list[str]
    rows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Which:
    """Which of a job's states is meant."""

    query: QueryName = None
    batch: Annotated[
        int | None, Query(description="A committed batch that is still kept; the newest one.", ge=0)
    ] = None
    savepoint: Annotated[
        str | None, Query(description="A savepoint's address, in place of the checkpoint.", max_length=4096)
    ] = None


def router(plane: Plane) -> APIRouter:
    """The resources of state."""
    api = APIRouter(tags=["state"])
    turns = threading.BoundedSemaphore(_SQL_AT_ONCE)

    @api.get("/jobs/{job}/state", summary="The states of a query")
    def states(job: JobName, which: Annotated[Which, Depends()]) -> States:
        """The stateful operators of a query, their states, and the columns of these."""
        reader, at = _opened(plane, job, which)
        return States(**at, operators=[each.as_dict() for each in reader.operators])

    @api.get("/jobs/{job}/state/{state}", summary="A key's value")
    def value(
        job: JobName,
        state: StateName,
        which: Annotated[Which, Depends()],
        key: Annotated[
            list[str],
            Query(
                description="The key: `column=value` for each column, or JSON, or the value of the only one.",
                min_length=1,
                max_length=50,
            ),
        ],
    ) -> Value:
        """What a state holds for one key, out of the newest commit of a job that may be running."""
        reader, at = _opened(plane, job, which)
        found = reader.get_written(state, key).as_dict()
        return Value.model_validate({**found, **at})

    @api.get("/jobs/{job}/state/{state}/rows", summary="Rows of a state")
    def rows(
        job: JobName,
        state: StateName,
        which: Annotated[Which, Depends()],
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        skip: Annotated[int, Query(description="Leave out so many of the first.", ge=0, le=_FURTHEST)] = 0,
    ) -> Rows:
        """Some rows of a state. Name the batch to go on in the same state with the next ones."""
        reader, at = _opened(plane, job, which)
        found = [each.as_dict() for each in islice(reader.scan(state), skip, skip + limit + 1)]
        return Rows(**at, state=state, rows=found[:limit], more=len(found) > limit)

    @api.post("/jobs/{job}/sql", summary="SQL over state")
    def sql(job: JobName, wanted: WantedSql, which: Annotated[Which, Depends()]) -> Answer:
        """What a SELECT says of a query's states. It reads no file and changes nothing."""
        reader, at = _opened(plane, job, which)
        _small_enough(reader)
        if not turns.acquire(timeout=_WAIT_S):
            raise Unavailable("others are asking in SQL", hint="try again")
        try:
            found = reader.ask(wanted.sql, most_rows=wanted.limit, timeout_s=SQL_S)
        finally:
            turns.release()
        shown = [plain(each) for each in found.to_pylist()]
        return Answer(**at, columns=list(found.column_names), rows=shown)

    return api


def _opened(plane: Plane, job: str, which: Which) -> tuple[StateReader, dict[str, Any]]:
    """What reads the state that is meant, and what it is."""
    details = plane.details(job)
    query = plane.query(details, which.query)
    address = query.checkpoint
    if which.savepoint is not None:
        address = places.savepoint(plane, which.savepoint, "savepoint")
    place = place_of(address, which.batch)
    reader = StateReader(place.storage, place.batch_id)
    if not reader.operators:
        raise NotFound("this query has no state", where=place.name, found="no stateful operator")
    heard = [
        each.committed_ms
        for each in details.batches
        if each.query == query.name and each.batch_id == reader.batch_id
    ]
    committed = heard[-1] if heard and which.savepoint is None else None
    return reader, {
        "job": details.status.job.name,
        "query": query.name,
        "place": place.name,
        "batch": reader.batch_id,
        "committed_ms": committed,
        "age_ms": None if committed is None else max(0, plane.clock() - committed),
    }


def _small_enough(reader: StateReader) -> None:
    """States are read whole for SQL: no request may fill the memory of the process that keeps a job alive."""
    size = read(reader.storage).size_bytes
    if size > LARGEST_FOR_SQL:
        raise Invalid(
            "this state is too large to be asked in SQL over HTTP",
            found=f"{size:,} bytes",
            expected=f"{LARGEST_FOR_SQL:,} at most",
            hint="ask with `holdfast state scan CHECKPOINT --sql`, which has a process of its own",
        )
