"""The views for the pages of checkpoints, savepoints and states."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from holdfast.advice.cost_report import CostReport
from holdfast.at_rest.insight import key_history
from holdfast.at_rest.model import KeyState, NamedOperator, NamedState, StateEntry
from holdfast.at_rest.state_reader import StateReader, key_in, sample_key, written_key
from holdfast.checkpoints.checkpoint import FROM_FILES, CheckpointReport, CommittedBatch
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.state.contents import StoreShares, shares
from holdfast.errors import HoldfastError, Invalid, NotFound, Unsupported
from holdfast.formats.rows.plain import plain
from holdfast.formats.text import foreign_json
from holdfast.jobs.registry.client import JobDetails
from holdfast.layout import FORK_BESIDE, beside
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.catalog import Listed
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard.charts import ALL, Chart, chart, timeline
from holdfast.server.dashboard.job_pages import chosen_query, head_of, operation_line
from holdfast.server.dashboard.views import (
    CatalogView,
    CheckpointsView,
    FilesLine,
    FoundLine,
    MomentLine,
    PartitionLine,
    RowLine,
    SavepointLine,
    SavepointsView,
    StateLine,
    StateLook,
    StateView,
    StoreLine,
    view_of,
)
from holdfast.storage import open_storage

_LAST: Final = 100
_SHOWN: Final = 20


def checkpoints_view(plane: ControlPlane, job: str, query: str | None) -> CheckpointsView:
    """Return the checkpoint of a job's query, by default of the first query.

    Cost: lists each store's directory, as `holdfast checkpoint history` does.

    Raises:
        NotFound: The job or the query does not exist.
    """
    details = plane.reported(job)
    chosen = chosen_query(plane, details, query)
    view = CheckpointsView(
        **head_of(plane, details),
        queries=tuple(query.name for query in details.queries),
    )
    if chosen is None:
        return view
    view = replace(view, query=chosen.name, checkpoint=chosen.checkpoint)
    try:
        view = _with_files(view, plane.checkpoint(chosen.checkpoint))
        view = replace(view, cost=_cost(plane, details, chosen.checkpoint))
        files = [_files(batch, size) for batch, size in plane.measured(details, chosen, _LAST)]
    except HoldfastError as error:
        return replace(view, problem=error.as_dict())
    return replace(
        view,
        charts=_charts(files) if view.charts else (),
        batches=tuple(reversed(files))[:_SHOWN],
    )


def _cost(plane: ControlPlane, details: JobDetails, checkpoint: str) -> CostReport | None:
    """Return the cost of the state; None for state in a database."""
    try:
        return plane.cost(details, checkpoint)
    except Unsupported:
        return None


def _with_files(view: CheckpointsView, checkpoint: CheckpointReport) -> CheckpointsView:
    """Return the view with the data of the newest batch added."""
    return replace(
        view,
        batch=checkpoint.batch_id,
        uncommitted=checkpoint.uncommitted,
        oldest_batch=checkpoint.committed[0] if checkpoint.committed else None,
        kept=len(checkpoint.committed),
        watermark_ms=checkpoint.watermark_ms or None,
        planned_ms=checkpoint.planned_ms,
        provider=checkpoint.provider,
        size_bytes=checkpoint.size_bytes,
        new_bytes=checkpoint.new_bytes,
        charts=_charts(()) if checkpoint.operators else (),
        stores=tuple(_store(store, checkpoint) for store in shares(checkpoint)),
        sources=checkpoint.sources,
        settings=dict(sorted(checkpoint.confs.items())),
    )


def _files(batch: CommittedBatch, size_bytes: int) -> FilesLine:
    return view_of(
        FilesLine,
        batch,
        batch=batch.batch_id,
        estimated=batch.duration_source == FROM_FILES,
        failures=None if batch.failures is None else len(batch.failures),
        size_bytes=size_bytes,
    )


def _charts(files: Sequence[FilesLine]) -> tuple[Chart, ...]:
    # A checkpoint keeps its batches after the end of its query, so the range ends with the newest batch.
    end_ms = max((file.planned_ms for file in files), default=0)
    line = timeline(files, lambda file: file.planned_ms, lambda file: file.batch, ALL, end_ms)
    return (
        chart("size_bytes", "Read by a restart", "bytes", line, lambda file: file.size_bytes),
        chart("new_bytes", "Written by each batch", "bytes", line, lambda file: file.new_bytes),
    )


def _store(store: StoreShares, checkpoint: CheckpointReport) -> StoreLine:
    versions = {operator.operator_id: operator.format_version for operator in checkpoint.operators}
    count = len(store.partitions)
    return StoreLine(
        operator_id=store.operator,
        operator=store.operator_name,
        display_name=store.named.display_name,
        operator_kind=store.named.operator_kind,
        store=store.store,
        state_name=store.state_name,
        format_version=versions[store.operator],
        size_bytes=store.bytes,
        rows=store.rows,
        largest=None if store.largest is None else store.largest.partition,
        largest_share=store.largest_share,
        times_mean=store.largest_share * count,
        partitions=tuple(
            PartitionLine(partition.partition, partition.bytes, partition.rows)
            for partition in store.partitions
        ),
    )


def shown_offset(offset: str | None) -> str:
    """Return the JSON of a source's offset, on several lines if it is long."""
    if offset is None:
        return "–"
    try:
        value = foreign_json(offset)
    except ValueError:
        return offset
    return json.dumps(value, indent=2 if len(offset) > 60 else None, ensure_ascii=False)


_OPERATIONS: Final = 100
_OPERATIONS_SHOWN: Final = 10
_SAVEPOINTS_SHOWN: Final = 200


# The verdict and the time of verifications, by savepoint.
_Proofs = Mapping[str, tuple[str, int]]


def savepoints_view(plane: ControlPlane, job: str) -> SavepointsView:
    """Return the savepoints in a job's catalogs, and its recent operations.

    Cost: reads the manifests of these catalogs.

    Raises:
        NotFound: The job does not exist.
    """
    details = plane.reported(job, 40)
    name = details.status.job.name
    operations = plane.operations.newest(name, _OPERATIONS)
    catalogs = catalogs_of(plane, details)
    queries = {query.query_id: query.name for query in details.queries}
    proofs: dict[str, tuple[str, int]] = {}
    for operation in reversed(operations):
        if operation.verb == "verify" and operation.result is not None and operation.ended_ms is not None:
            verdict = "whole" if operation.result.get("ok") else "damaged"
            proofs[str(operation.arguments.get("savepoint"))] = verdict, operation.ended_ms
    now = plane.clock()
    return SavepointsView(
        **head_of(plane, details),
        directory=plane.settings.savepoints or details.savepoint_directory,
        beside=beside(details.status.job.checkpoint, FORK_BESIDE),
        can_take=bool(details.queries),
        can_stop="stop" in details.status.accepts,
        catalogs=tuple(_catalog(plane, catalog, queries, proofs) for catalog in catalogs),
        operations=tuple(operation_line(operation, now) for operation in operations[:_OPERATIONS_SHOWN]),
    )


def catalogs_of(plane: ControlPlane, details: JobDetails) -> list[str]:
    """Return a job's catalogs: those that the job has used, and the one in the server's settings."""
    catalogs = dict.fromkeys(details.catalogs)
    if plane.settings.savepoints is not None:
        catalogs.setdefault(plane.settings.savepoints)
    return list(catalogs)


def _catalog(plane: ControlPlane, catalog: str, queries: Mapping[str, str], proofs: _Proofs) -> CatalogView:
    try:
        savepoints = plane.savepoints(catalog)
    except HoldfastError as error:
        return CatalogView(catalog, (), error.as_dict())
    lines = [_line(savepoint, queries, proofs) for savepoint in reversed(savepoints[-_SAVEPOINTS_SHOWN:])]
    return CatalogView(catalog, tuple(lines), None)


def _line(listed: Listed, queries: Mapping[str, str], proofs: _Proofs) -> SavepointLine:
    proved, proved_ms = proofs.get(listed.uri, (None, None))
    line = SavepointLine(
        listed.uri, listed.savepoint_id, listed.content, listed.problem, proved=proved, proved_ms=proved_ms
    )
    manifest = listed.manifest
    if manifest is None:
        return line
    query = queries.get(manifest.query_id)
    return replace(
        line,
        label=manifest.label,
        created_ms=manifest.created_ms,
        query=query,
        batch=manifest.batch_id,
        files=len(manifest.files),
        size_bytes=manifest.size_bytes,
        new_bytes=manifest.new_bytes,
        mine=query is not None,
    )


PAGE: Final = 50
# The maximum number of rows before a page, which must also be read; use an export for more.
FARTHEST: Final = 20_000
_MOMENTS: Final = 50
_FRESH_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class StateRequest:
    """The parameters of a state page.

    Attributes:
        query: The name of the query.
        savepoint: The id of a savepoint in a catalog of the job, to read instead of the running query.
        state: The full name of the state.
        key: The key, as written on a command line.
        offset: The number of rows to skip.
    """

    query: str | None = None
    savepoint: str | None = None
    state: str | None = None
    key: str | None = None
    offset: int = 0


def state_view(plane: ControlPlane, job: str, asked: StateRequest) -> StateView:
    """Return the state of a job's query or of a savepoint: one key, or some rows.

    Raises:
        NotFound: The job or query does not exist.
    """
    details = plane.reported(job, 40)
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


def _address(
    plane: ControlPlane, details: JobDetails, asked: StateRequest, checkpoint: str | None
) -> str | None:
    """Return the address of the requested state; only addresses that the job uses are allowed."""
    if asked.savepoint is None:
        return checkpoint
    for catalog in catalogs_of(plane, details):
        for savepoint in plane.savepoints(catalog):
            if savepoint.savepoint_id == asked.savepoint:
                return savepoint.uri
    raise NotFound(
        "unknown savepoint in the job's catalogs",
        code="HF-E3058",
        where=asked.savepoint,
        hint="choose a savepoint on the page of the job's savepoints",
    )


def _shared(plane: ControlPlane, details: JobDetails, address: str, asked: StateRequest) -> StateLook:
    """Return the content of a state page, cached for all requests because it is read from files."""
    catalog = next(iter(catalogs_of(plane, details)), None)
    return plane.cache.get(("state", address, asked), lambda: _look(address, asked, catalog), _FRESH_S)


def _look(address: str, asked: StateRequest, catalog: str | None) -> StateLook:
    place = StateAddress.resolve(address).open_state()
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
            found = _line_of(reader.read_key(state, key))
            moments = () if place.is_savepoint else _history(reader, operator, state, key, catalog)
            return replace(seen, found=found, history=moments, example=sample_key(state))
        rows, more = _rows(reader, state, asked.offset)
    except HoldfastError as error:
        return replace(seen, problem=error.as_dict())
    return replace(seen, rows=rows, more=more, example=rows[0].written if rows else None)


def _rows(reader: StateReader, state: NamedState, offset: int) -> tuple[tuple[RowLine, ...], bool]:
    if offset > FARTHEST:
        raise Invalid(
            "the row offset is too large",
            code="HF-E2276",
            found=f"row {offset}",
            expected=f"at most row {FARTHEST}",
            hint="export the state with `holdfast state scan CHECKPOINT STATE --output FILE`, or query it"
            " with SQL",
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
    """Return each value of a key in the retained batches and in savepoints, newest first."""
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


def _line_of(known: KeyState) -> FoundLine:
    expires: Sequence[int] = [entry.expires_ms for entry in known.entries if entry.expires_ms is not None]
    earliest = min(expires, default=None)
    return view_of(FoundLine, known, key=plain(known.key), value=plain(known.value), expires_ms=earliest)


def _row(state: NamedState, entry: StateEntry) -> RowLine:
    key, sub, value = plain(entry.key), plain(entry.sub), plain(entry.value)
    written = written_key(state, entry.key)
    return view_of(RowLine, entry, key=key, sub=sub, value=value, written=written)
