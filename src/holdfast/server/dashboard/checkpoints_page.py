"""What the files of a query's checkpoint tell, as a page shows it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.advice.cost.report import CostReport
from holdfast.checkpoints.batches import FROM_FILES
from holdfast.checkpoints.state.shares import StoreShares, shares
from holdfast.checkpoints.values import Batch, Checkpoint
from holdfast.errors import HoldfastError, Unsupported
from holdfast.formats.text import foreign_json
from holdfast.jobs.registry.client import JobDetails
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard.charts import Chart, Point, chart
from holdfast.server.dashboard.jobs_page import chosen_query, head_of
from holdfast.server.dashboard.views import (
    CheckpointsView,
    FilesLine,
    PartitionLine,
    StoreLine,
    view_of,
)

_LAST: Final = 100
_SHOWN: Final = 20


def checkpoints_view(plane: ControlPlane, job: str, query: str | None) -> CheckpointsView:
    """The checkpoint of one of a job's queries: the one that is named, else its first.

    Cost: a listing of each store's folder, as `holdfast checkpoint history` has it.

    Raises:
        NotFound: There is no such job, or no such query of it.
    """
    details = plane.details(job)
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
        view, charts=_charts(files) if view.charts else (), batches=tuple(reversed(files))[:_SHOWN]
    )


def _cost(plane: ControlPlane, details: JobDetails, checkpoint: str) -> CostReport | None:
    """What the state costs; None of state in a database, of which only its owner knows."""
    try:
        return plane.cost(details, checkpoint)
    except Unsupported:
        return None


def _with_files(view: CheckpointsView, checkpoint: Checkpoint) -> CheckpointsView:
    """The view with what the newest batch says."""
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


def _files(batch: Batch, size_bytes: int) -> FilesLine:
    return view_of(
        FilesLine,
        batch,
        batch=batch.batch_id,
        estimated=batch.duration_source == FROM_FILES,
        failures=None if batch.failures is None else len(batch.failures),
        size_bytes=size_bytes,
    )


def _charts(files: Sequence[FilesLine]) -> tuple[Chart, ...]:
    def points(name: str) -> list[Point]:
        return [Point(file.batch, file.batch, file.planned_ms, getattr(file, name)) for file in files]

    return (
        chart("size_bytes", "What a restart reads", "bytes", "newest", points("size_bytes")),
        chart("new_bytes", "Written by each batch", "bytes", "largest", points("new_bytes")),
    )


def _store(store: StoreShares, checkpoint: Checkpoint) -> StoreLine:
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
    """A source's own JSON, in lines where it is long."""
    if offset is None:
        return "–"
    try:
        value = foreign_json(offset)
    except ValueError:
        return offset
    return json.dumps(value, indent=2 if len(offset) > 60 else None, ensure_ascii=False)
