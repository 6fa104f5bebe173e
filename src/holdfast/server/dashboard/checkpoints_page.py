"""What the files of a query's checkpoint tell, as a page shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.checkpoints.batches import FROM_FILES
from holdfast.checkpoints.state.shares import StoreShares, shares
from holdfast.checkpoints.values import Batch, Checkpoint
from holdfast.errors import HoldfastError
from holdfast.jobs.monitoring.checkpoint_history import measured_batches
from holdfast.server.control_plane import ControlPlane
from holdfast.server.dashboard.charts import Chart, Point, chart
from holdfast.server.dashboard.jobs_page import chosen_query, firing_by_job, line_of
from holdfast.server.dashboard.views import CheckpointsView, FilesLine, PartitionLine, SourceLine, StoreLine

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
    found: Checkpoint | None = None
    batches: tuple[Batch, ...] = ()
    sizes: Mapping[int, Mapping[int, int]] = {}
    problem: Mapping[str, Any] | None = None
    if chosen is not None:
        try:
            found = plane.checkpoint(chosen.checkpoint)
            heard = [each for each in details.batches if each.query == chosen.name]
            batches = measured_batches(
                plane.batches(chosen.checkpoint, _LAST), heard, details.attempts, chosen.name
            )
            sizes = plane.sizes(chosen.checkpoint, tuple(each.batch_id for each in batches))
        except HoldfastError as error:
            problem = error.as_dict()
    files = [_files(each, sizes) for each in batches]
    firing = firing_by_job(plane)
    return CheckpointsView(
        now_ms=plane.clock(),
        job=line_of(details, firing),
        queries=tuple(each.name for each in details.queries),
        query=None if chosen is None else chosen.name,
        checkpoint=None if chosen is None else chosen.checkpoint,
        problem=problem,
        batch=None if found is None else found.batch_id,
        uncommitted=None if found is None else found.uncommitted,
        oldest_batch=found.committed[0] if found and found.committed else None,
        kept=0 if found is None else len(found.committed),
        watermark_ms=None if found is None else found.watermark_ms or None,
        planned_ms=None if found is None else found.planned_ms,
        provider=None if found is None else found.provider,
        size_bytes=0 if found is None else found.size_bytes,
        new_bytes=0 if found is None else found.new_bytes,
        charts=_charts(files) if found is not None and found.operators else (),
        stores=() if found is None else tuple(_store(each, found) for each in shares(found)),
        sources=()
        if found is None
        else tuple(SourceLine(each.name, each.offset, each.planned) for each in found.sources),
        settings={} if found is None else dict(sorted(found.confs.items())),
        batches=tuple(reversed(files))[:_SHOWN],
        firing=sum(firing.values()),
    )


def _files(batch: Batch, sizes: Mapping[int, Mapping[int, int]]) -> FilesLine:
    size = sum(sizes.get(batch.batch_id, {}).values())
    return FilesLine(
        batch.batch_id,
        batch.planned_ms,
        batch.duration_ms,
        batch.duration_source == FROM_FILES,
        None if batch.failures is None else len(batch.failures),
        batch.files,
        batch.new_bytes,
        size,
    )


def _charts(files: Sequence[FilesLine]) -> tuple[Chart, ...]:
    def points(name: str) -> list[Point]:
        return [Point(each.batch, each.batch, each.planned_ms, getattr(each, name)) for each in files]

    return (
        chart("size_bytes", "What a restart reads", "bytes", "newest", points("size_bytes")),
        chart("new_bytes", "Written by each batch", "bytes", "largest", points("new_bytes")),
    )


def _store(store: StoreShares, checkpoint: Checkpoint) -> StoreLine:
    versions = {each.operator_id: each.format_version for each in checkpoint.operators}
    count = len(store.partitions)
    return StoreLine(
        operator_id=store.operator,
        operator=store.operator_name,
        store=store.store,
        format_version=versions[store.operator],
        size_bytes=store.bytes,
        rows=store.rows,
        largest=None if store.largest is None else store.largest.partition,
        largest_share=store.largest_share,
        times_mean=store.largest_share * count,
        partitions=tuple(PartitionLine(each.partition, each.bytes, each.rows) for each in store.partitions),
    )


def shown_offset(offset: str | None) -> str:
    """A source's own JSON, in lines where it is long."""
    if offset is None:
        return "–"
    try:
        found = json.loads(offset)
    except ValueError:
        return offset
    return json.dumps(found, indent=2 if len(offset) > 60 else None, ensure_ascii=False)
