"""A checkpoint whose sources go on elsewhere: changed on a copy, of which a new checkpoint is made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.guard.checkpoint_guard import CheckpointGuard
from holdfast.checkpoints.guard.usage import CheckpointUsage
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.checkpoints.values import ProgressCallback
from holdfast.errors import Internal, Invalid
from holdfast.formats.logs.offset_log import OffsetLog, parse_offsets
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as, json_spread
from holdfast.layout import HadoopChecksum, Log, LogFile
from holdfast.savepoints.offsets.position_changes import (
    OffsetChange,
    PositionChange,
    changed,
)
from holdfast.savepoints.offsets.positions import newest_offsets
from holdfast.savepoints.offsets.skipped_files import FilesOfSource
from holdfast.savepoints.restoring import Operation, free
from holdfast.savepoints.rewrite.working_copy import Source, WorkingCopy
from holdfast.savepoints.taking.planning import changing
from holdfast.storage.port import Storage

_LOG: Final = logging.getLogger("holdfast.savepoints")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to become of the sources.

    Attributes:
        changes: Changes to offsets, one after the other.
        files: Files that a source of files is to leave out.
        source: The source of these files; None for the only one.
    """

    changes: Sequence[OffsetChange] = ()
    files: Sequence[str] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetPlan(JsonShape):
    """What a move of offsets would do.

    Attributes:
        source: The checkpoint or savepoint.
        original: The checkpoint; of a savepoint, the one that it was taken of.
        checkpoint: The checkpoint that is to be made.
        batch_id: The batch whose state it has.
        query_id: The query, which stays the same.
        positions: Every position that changes.
        skipped_files: The files that are left out, as Spark notes them.
        watermark_ms: The watermark of the next batch; rows that are read again and are older than it are
            dropped as late. Null without one.
        wanted: What is to be done.
        uncommitted: A batch that is planned and not committed; the new checkpoint plans it anew.
        usage: Who may be using the checkpoint, where that was asked; a person has to say that nobody does.
    """

    source: str
    original: str = field(metadata=NOT_IN_JSON)
    checkpoint: str
    batch_id: int = field(metadata=json_as("from_batch"))
    query_id: str
    positions: tuple[PositionChange, ...]
    skipped_files: tuple[str, ...]
    watermark_ms: int | None
    wanted: Wanted = field(metadata=NOT_IN_JSON)
    uncommitted: int | None = None
    usage: CheckpointUsage | None = None

    @property
    @in_json
    def skipped(self) -> int:
        """How many records of Kafka are left out at most."""
        return sum(change.skipped or 0 for change in self.positions)

    @property
    @in_json
    def repeated(self) -> int:
        """How many records of Kafka are read again at most."""
        return sum(change.repeated or 0 for change in self.positions)


@dataclass(frozen=True, slots=True)
class OffsetsMoved(JsonShape):
    """A checkpoint whose sources go on elsewhere.

    Attributes:
        plan: What was done.
        states: What each state holds: the same as before.
    """

    plan: OffsetPlan = field(metadata=json_spread())
    states: tuple[StateContent, ...]

    @property
    def checkpoint(self) -> str:
        """The checkpoint's address."""
        return self.plan.checkpoint


def plan_offsets(source: Source, target: Storage, wanted: Wanted) -> OffsetPlan:
    """Look at what is to be changed, and where to; changes nothing.

    Args:
        source: A checkpoint, or a savepoint.
        target: The checkpoint that is to be made.
        wanted: What is to become of the sources.

    Raises:
        NotFound: There is no such checkpoint or savepoint, source, topic or partition.
        Conflict: Something is at the target.
        Invalid: The change does not fit the sources, or changes nothing.
    """
    view, original = source.view()
    free(target, source.uri, Operation.OFFSETS)
    found = read(view)
    batch_id, offsets = newest_offsets(view)
    _, positions = changed(offsets.offsets, wanted.changes, source.uri)
    files: tuple[str, ...] = ()
    if wanted.files:
        files = FilesOfSource(view, wanted.source, source.uri).unread(wanted.files)
    if not positions and not files:
        raise Invalid(
            "the sources go on there already",
            where=source.uri,
            found="nothing that would change",
            hint="`holdfast offsets show` shows where each source goes on",
        )
    return OffsetPlan(
        source.uri,
        original,
        target.uri,
        batch_id,
        found.query_id,
        positions,
        files,
        found.watermark_ms,
        wanted,
        found.uncommitted,
    )


def move_offsets(
    source: Source,
    target: Storage,
    plan: OffsetPlan,
    folder: Path,
    *,
    tell: ProgressCallback | None = None,
    guard: CheckpointGuard | None = None,
) -> OffsetsMoved:
    """Make the checkpoint that was planned.

    The source is copied into a directory of its own, by hard links where that is possible; the target is
    written after the proof that every state is what it was, its `metadata` last.

    Cost: all state is read twice, and copied.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint.
        plan: What `plan_offsets` gave for these.
        folder: A local directory to work in, which is the caller's to remove.
        tell: Called with what is done, what there is in all, and what is being done.
        guard: The guard of the source, where that is a checkpoint.

    Raises:
        Conflict: The source has moved on since the plan, or somebody has begun to write to the target.
        Corrupt: The source is damaged.
        Internal: A state is not what it was; nothing was written.
    """
    work = WorkingCopy(folder, changing("no offsets were moved", "offsets"), tell)
    work.copied_at(source, plan.batch_id)
    with work.standing_for(plan.source):
        before = contents(work.checkpoint, tell=tell)
        _write(work.checkpoint, plan)
        after = contents(work.checkpoint, tell=tell)
    if before != after:
        raise Internal(
            "a state is not what it was, and nothing was written",
            where=plan.source,
            hint="the source is as it was; please report this",
        )
    work.published(target, Operation.OFFSETS, (plan.source, plan.original), guard)
    _LOG.info("moved the offsets of %s: %s", plan.source, target.uri)
    return OffsetsMoved(plan, after)


def _write(checkpoint: Storage, plan: OffsetPlan) -> None:
    path = LogFile(Log.OFFSETS, plan.batch_id).render()
    written = parse_offsets(checkpoint.read(path), path)
    after, _ = changed(written.offsets, plan.wanted.changes, plan.source)
    if plan.skipped_files:
        files = FilesOfSource(checkpoint, plan.wanted.source, plan.source)
        newest_ms = max((file.timestamp_ms for file in files.read_files()), default=0)
        changed_ms = [_changed_ms(file, newest_ms) for file in plan.skipped_files]
        files.leave_out(plan.skipped_files, changed_ms, after)
    # Spark asks some sources for the batch between the last two offsets once more when it starts. Where they
    # are the same, nothing is in it.
    for batch_id in (plan.batch_id, plan.batch_id - 1):
        place = LogFile(Log.OFFSETS, batch_id).render()
        if checkpoint.size(place) is None:
            continue
        log = parse_offsets(checkpoint.read(place), place)
        moved = {
            name: after[name] if written.offsets.get(name) != after.get(name, offset) else offset
            for name, offset in log.offsets.items()
        }
        checkpoint.delete(HadoopChecksum(place).render())
        checkpoint.write(place, OffsetLog(log.version, log.fields, moved).render(), replace=True)


def _changed_ms(address: str, otherwise: int) -> int:
    """When a file was last changed, if it is on this machine; Spark forgets files by this."""
    parts = urlsplit(address)
    path = Path(unquote(parts.path))
    if parts.scheme == "file" and path.exists():
        return path.stat().st_mtime_ns // 1_000_000
    return otherwise
