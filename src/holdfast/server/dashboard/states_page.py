"""State by key and row by row, as a page shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from holdfast.at_rest.insight.history import key_history
from holdfast.at_rest.read.model import Entry, KeyState, NamedOperator, NamedState
from holdfast.at_rest.read.state_reader import StateReader
from holdfast.at_rest.read.written_keys import key_in, sample_key, written_key
from holdfast.checkpoints.logs.logs import Logs
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.formats.rows.plain import plain
from holdfast.jobs.registry.client import JobDetails
from holdfast.savepoints.places import place_of
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard.jobs_page import chosen_query, head_of
from holdfast.server.dashboard.savepoints_page import catalogs_of
from holdfast.server.dashboard.state_views import (
    FoundLine,
    MomentLine,
    RowLine,
    StateLine,
    StateLook,
    StateView,
)
from holdfast.server.dashboard.views import view_of
from holdfast.storage import open_storage

PAGE: Final = 50
# Rows before a page have to be read too; who wants more exports them.
FARTHEST: Final = 20_000
_MOMENTS: Final = 50
_FRESH_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a page of state is asked for.

    Attributes:
        query: Whose state.
        savepoint: The id of a savepoint in one of the job's catalogs, in place of the running query.
        state: Which state, by its full name.
        key: Which key, as it is written on a command line.
        offset: How many rows to leave out.
    """

    query: str | None = None
    savepoint: str | None = None
    state: str | None = None
    key: str | None = None
    offset: int = 0


def state_view(plane: ControlPlane, job: str, asked: Asked) -> StateView:
    """The state of one of a job's queries, or of a savepoint; one key of it, or some rows.

    Raises:
        NotFound: There is no such job or query.
    """
    details = plane.details(job, 40)
    chosen = chosen_query(plane, details, asked.query)
    address: str | None = None
    try:
        address = _address(plane, details, asked, None if chosen is None else chosen.checkpoint)
        look = StateLook() if address is None else _shared(plane, details, address, asked)
    except HoldfastError as error:
        look = StateLook(problem=error.as_dict())
    return view_of(
        StateView,
        look,
        **head_of(plane, details),
        queries=tuple(started.name for started in details.queries),
        query=None if chosen is None else chosen.name,
        savepoint=asked.savepoint,
        address=address,
        key=asked.key,
        offset=asked.offset,
    )


def _address(plane: ControlPlane, details: JobDetails, asked: Asked, checkpoint: str | None) -> str | None:
    """Where to look; only what the job itself uses, whatever is asked for."""
    if asked.savepoint is None:
        return checkpoint
    for catalog in catalogs_of(plane, details):
        for savepoint in plane.savepoints(catalog):
            if savepoint.savepoint_id == asked.savepoint:
                return savepoint.uri
    raise NotFound(
        "there is no such savepoint in the job's catalogs",
        where=asked.savepoint,
        hint="the page of savepoints has them all",
    )


def _shared(plane: ControlPlane, details: JobDetails, address: str, asked: Asked) -> StateLook:
    """One look for all who look at the same: it reads files, beside a job that needs the disk itself."""
    catalog = next(iter(catalogs_of(plane, details)), None)
    return plane.cache.get(("state", address, asked), lambda: _look(address, asked, catalog), _FRESH_S)


def _look(address: str, asked: Asked, catalog: str | None) -> StateLook:
    place = place_of(address)
    reader = StateReader(place.storage, place.batch_id)
    states = tuple(_state(operator, state) for operator in reader.operators for state in operator.states)
    batch = reader.batch_id
    offsets = Logs(place.storage).offsets(batch)
    seen = StateLook(batch, None if offsets is None else offsets.timestamp_ms, states)
    if not states:
        return seen
    name = asked.state or states[0].name
    operator, state = reader.pick(name)
    seen = replace(seen, state=_state(operator, state))
    try:
        if asked.key is not None:
            key = key_in(state, [asked.key])
            found = _found(reader.found(state, key))
            moments = () if place.is_savepoint else _history(reader, operator, state, key, catalog)
            return replace(seen, found=found, history=moments, example=sample_key(state))
        rows, more = _rows(reader, state, asked.offset)
    except HoldfastError as error:
        return replace(seen, problem=error.as_dict())
    return replace(seen, rows=rows, more=more, example=rows[0].written if rows else None)


def _rows(reader: StateReader, state: NamedState, offset: int) -> tuple[tuple[RowLine, ...], bool]:
    if offset > FARTHEST:
        raise Invalid(
            "a page this far on would have to read all rows before it",
            found=f"row {offset}",
            expected=f"at most row {FARTHEST}",
            hint="export the state with `holdfast state scan`, or ask it with SQL",
        )
    entries = list(islice(reader.scan(state.full_name), offset, offset + PAGE + 1))
    return tuple(_row(state, entry) for entry in entries[:PAGE]), len(entries) > PAGE


def _history(
    reader: StateReader,
    operator: NamedOperator,
    state: NamedState,
    key: Mapping[str, Any],
    catalog: str | None,
) -> tuple[MomentLine, ...]:
    """Each value that the key has had, the newest first; savepoints tell of what the files no longer do."""
    saved = None if catalog is None else open_storage(catalog, "catalog")
    known = key_history(reader, operator, state, key, catalog=saved)
    lines = [
        MomentLine(
            batch=version.batch_id,
            at_ms=version.planned_ms,
            change=version.change,
            savepoint=None if version.savepoint is None else version.savepoint.rpartition("/")[2],
            exists=version.found.exists,
            value=plain(version.found.value),
        )
        for version in known.versions[-_MOMENTS:]
    ]
    return tuple(reversed(lines))


def _state(operator: NamedOperator, state: NamedState) -> StateLine:
    fields = state.as_dict()
    return StateLine(
        name=state.full_name,
        operator=operator.name,
        operator_id=operator.operator_id,
        kind=operator.kind,
        operator_kind=operator.named.operator_kind,
        form=state.form.value,
        partitions=operator.partitions,
        key=fields["key"],
        sub=fields["sub"],
        value=fields["value"],
        ttl=state.ttl,
    )


def _found(known: KeyState) -> FoundLine:
    expires: Sequence[int] = [entry.expires_ms for entry in known.entries if entry.expires_ms is not None]
    earliest = min(expires, default=None)
    return view_of(FoundLine, known, key=plain(known.key), value=plain(known.value), expires_ms=earliest)


def _row(state: NamedState, entry: Entry) -> RowLine:
    key, sub, value = plain(entry.key), plain(entry.sub), plain(entry.value)
    written = written_key(state, entry.key)
    return view_of(RowLine, entry, key=key, sub=sub, value=value, written=written)
