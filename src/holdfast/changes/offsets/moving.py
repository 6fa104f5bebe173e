"""Creation of a checkpoint whose sources continue from different offsets."""

from __future__ import annotations

import json
import logging
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from holdfast import layout
from holdfast.changes.engine import ChangePlan, carry_out, require_same_rows
from holdfast.changes.offsets.position_changes import OffsetChange, Offsets, PositionChange, changed
from holdfast.changes.offsets.positions import newest_offsets
from holdfast.changes.working_copy import WorkingCopy
from holdfast.checkpoints.checkpoint import ProgressCallback, read
from holdfast.checkpoints.logs import Logs, log_files, read_again, source_folders
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.errors import Invalid, NotFound
from holdfast.formats.logs.batch_logs import OffsetLog, log_offset, parse_offsets
from holdfast.formats.logs.table_logs import SeenFile, SourceLog, compact_interval, parse_source
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_spread
from holdfast.layout import HadoopChecksumFile, Log, LogFile, SourceLogFile
from holdfast.ownership.checkpoint_guard import CheckpointGuard
from holdfast.ownership.usage import CheckpointUsage
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.planning import changing
from holdfast.savepoints.restoring import RestoreKind, free, require_newest_of_flow
from holdfast.storage.port import Storage

_LOCAL: Final = "file://"
_ADDRESS: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)", re.DOTALL)
# The characters that Java escapes in the path of a URI: beyond ASCII, only blanks and control characters.
_ESCAPED: Final = re.compile(
    r"""[\x00-\x20"#%<>?\[\\\]^`{|}\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"""
)


class FilesOfSource:
    """The log of a query's file source.

    Args:
        checkpoint: The checkpoint.
        source: The number or name of the source; None for the only file source.
        where: The address of the checkpoint, for messages.

    Raises:
        NotFound: The query has no file source, or the source has not read any file.
        Invalid: The query has several file sources, and `source` is None.
    """

    def __init__(self, checkpoint: Storage, source: str | None, where: str) -> None:
        logs = Logs(checkpoint)
        newest = 0 if logs.newest is None else logs.newest
        offsets = logs.offsets(newest) or OffsetLog(1, None, {})
        folders = checkpoint.list(layout.SOURCES).names
        kept = partial(logs.offsets_up_to, newest)
        owners = source_folders(folders, offsets, kept, where)
        found = {
            name: folder
            for folder, name in owners.items()
            if source in (None, name) and log_offset(offsets.offsets.get(name)) is not None
        }
        if len(found) > 1:
            raise Invalid(
                "the query has several file sources",
                code="HF-E2527",
                where=where,
                found=", ".join(sorted(found)),
                hint="list the sources with `holdfast offsets show CHECKPOINT`, and choose one with --source",
            )
        if not found:
            raise NotFound(
                "the query has no file source that has read a file"
                if source is None
                else f"the query has no file source {source!r} that has read a file",
                code="HF-E3069",
                where=where,
                hint="list the sources with `holdfast offsets show CHECKPOINT`, and choose one with --source",
            )
        self._checkpoint = checkpoint
        self._where = where
        [(self.source, self._folder)] = found.items()
        self._end = offsets.offsets[self.source]
        self._same = (self.source, *read_again(self.source, owners.values(), offsets, kept, where))
        self._places = log_files(self._folder, checkpoint.list(f"{layout.SOURCES}/{self._folder}").names)

    def read_files(self) -> tuple[SeenFile, ...]:
        """Return the files that the source has read, without those of a planned batch."""
        end = log_offset(self._end) or 0
        return tuple(file for file in self._noted_files() if file.entry <= end)

    def _noted_files(self) -> list[SeenFile]:
        found: dict[str, SeenFile] = {}
        for place in self._places:
            path = place.render()
            found |= {
                file.path: file for file in parse_source(self._checkpoint.read(path), path).list_files(path)
            }
        return sorted(found.values(), key=lambda file: file.entry)

    def unread(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Return the given files as Spark records them, without duplicates.

        Args:
            paths: Paths, or addresses, with or without the escapes of a URI.

        Raises:
            Invalid: The source has read one of the files, or has read no file in its directory.
            NotFound: A local file does not exist, and no batch is planned with it.
        """
        read = {file.path for file in self.read_files()}
        noted = {_parts_of_uri(file.path): file.path for file in self._noted_files()}
        whole = [self._as_noted(path, noted) for path in paths]
        for address in whole:
            if address in read:
                raise Invalid(
                    "the file cannot be skipped, because the source has read it already",
                    code="HF-E2087",
                    where=f"{self._where}, source {self.source}",
                    found=address,
                    hint="correct the effect of the file on the state with `holdfast state edit`",
                )
        return tuple(dict.fromkeys(whole))

    def _as_noted(self, given: str, noted: Mapping[tuple[str, str], str]) -> str:
        root, path = _parts(given)
        paths = [posixpath.normpath(each) for each in ((unquote(path), path) if root else (path,))]
        for each in paths:
            if len(known := _at(noted, root, each)) == 1:
                return known[0]
        # Spark records all files of a source in the same form, derived from the address of the directory.
        folders = {
            (of, posixpath.dirname(at)): posixpath.dirname(address) for (of, at), address in noted.items()
        }
        fits = [(folder, each) for each in paths for folder in _at(folders, root, posixpath.dirname(each))]
        if len({folder for folder, _ in fits}) != 1:
            raise Invalid(
                "the file cannot be skipped, because the source has read no file from its directory",
                code="HF-E2088",
                where=f"{self._where}, source {self.source}",
                found=given,
                expected=", ".join(sorted(folders.values()))
                or "a file in a directory that the source has read",
                hint="give the full address of the file, or let the query plan a batch with the file",
            )
        # If the directory is remote, the file is not checked.
        if _parts(fits[0][0])[0] == _LOCAL and Path(posixpath.dirname(paths[0])).is_dir():
            fits = [(folder, each) for folder, each in fits if Path(each).exists()]
        if not fits:
            raise NotFound(
                "the file to skip does not exist",
                code="HF-E3012",
                where=f"{self._where}, source {self.source}",
                found=paths[0],
                hint=(
                    "give the path of an existing file, relative to the directory of the source or as a"
                    " full address"
                ),
            )
        folder, found = fits[0]
        return f"{folder}/{_quoted(posixpath.basename(found))}"

    def leave_out(self, paths: Sequence[str], changed_ms: Sequence[int], offsets: Offsets) -> None:
        """Record files as read, in an additional entry of the source's log.

        Args:
            paths: The files, as Spark records them.
            changed_ms: The modification time of each file.
            offsets: The offsets of all sources; the offset of this source is moved after the entry.
        """
        entry = (log_offset(self._end) or 0) + 1
        lines = tuple(
            json.dumps({"path": path, "timestamp": at, "batchId": entry}, separators=(",", ":"))
            for path, at in zip(paths, changed_ms, strict=True)
        )
        interval = compact_interval(place.entry for place in self._places if place.compact)
        compact = (entry + 1) % interval == 0
        if compact:
            # At this position, Spark expects an entry that repeats all earlier ones.
            lines = tuple(_line(file) for file in self.read_files()) + lines
        place = SourceLogFile(self._folder, entry, compact)
        self._checkpoint.write(place.render(), SourceLog(1, lines).render())
        value = json.loads(self._end or "{}")
        for name in self._same:
            offsets[name] = json.dumps({**value, "logOffset": entry}, separators=(",", ":"))


def _parts(address: str) -> tuple[str, str]:
    """Return the scheme and host of an address (empty for a plain path), and the path as written."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        return "", posixpath.abspath(address)
    return f"{parts[1]}://{parts[2] or ''}", parts[3]


def _parts_of_uri(address: str) -> tuple[str, str]:
    root, path = _parts(address)
    return root, unquote(path)


def _at(places: Mapping[tuple[str, str], str], root: str, path: str) -> list[str]:
    return [address for (of, at), address in places.items() if at == path and root in ("", of)]


def _quoted(path: str) -> str:
    return _ESCAPED.sub(lambda found: quote(found[0], safe=""), path)


def _line(file: SeenFile) -> str:
    return json.dumps(
        {"path": file.path, "timestamp": file.timestamp_ms, "batchId": file.entry}, separators=(",", ":")
    )


_LOG: Final = logging.getLogger("holdfast.savepoints")


@dataclass(frozen=True, slots=True)
class OffsetRequest:
    """The requested positions of the sources.

    Attributes:
        changes: Changes to offsets, in order.
        files: The files that a file source must skip.
        source: The source of these files; None for the only file source.
    """

    changes: Sequence[OffsetChange] = ()
    files: Sequence[str] = ()
    source: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetPlan(ChangePlan, JsonShape):
    """The plan of a move of offsets.

    Attributes:
        positions: The positions that change.
        skipped_files: The skipped files, as Spark records them.
        watermark_ms: The watermark of the next batch; rows that are read again and are older than it are
            dropped as late. Null without one.
        wanted: The requested positions.
        uncommitted: A batch that is planned but not committed, which the new checkpoint plans again; None
            without one.
        usage: The evidence of queries that may be using the checkpoint, if collected; a person must confirm
            that none is.

    Example:
        plan = hf.plan_offsets("checkpoints/orders", changes=[hf.SkipRecords("orders", 0, 5)])
        [position] = plan.positions
        assert (position.before, position.after, plan.skipped) == (40, 45, 5)
    """

    positions: tuple[PositionChange, ...]
    skipped_files: tuple[str, ...]
    watermark_ms: int | None
    wanted: OffsetRequest = field(metadata=NOT_IN_JSON)
    uncommitted: int | None = None
    usage: CheckpointUsage | None = None

    @property
    @in_json
    def skipped(self) -> int:
        """The maximum number of Kafka records that are skipped."""
        return sum(change.skipped or 0 for change in self.positions)

    @property
    @in_json
    def repeated(self) -> int:
        """The maximum number of Kafka records that are read again."""
        return sum(change.repeated or 0 for change in self.positions)


@dataclass(frozen=True, slots=True)
class OffsetsMoved(JsonShape):
    """A checkpoint that was created with different source offsets.

    Attributes:
        plan: The executed plan.
        states: The content of each state, which is the same as before.

    Example:
        saved = hf.savepoints.take("checkpoints/orders", "savepoints")
        skip = hf.SkipRecords("orders", 0, 5)
        moved = hf.move_offsets(saved.uri, "checkpoints/orders-next", changes=[skip])
        assert moved.plan.skipped == 5
        assert [state.rows for state in moved.states] == [10]
    """

    plan: OffsetPlan = field(metadata=json_spread())
    states: tuple[StateContent, ...]

    @property
    def checkpoint(self) -> str:
        """The address of the checkpoint."""
        return self.plan.checkpoint


def plan_offsets(source: ChangeSource, target: Storage, wanted: OffsetRequest) -> OffsetPlan:
    """Plan a move of offsets; changes nothing.

    Args:
        source: A checkpoint, or a savepoint.
        target: The checkpoint to create.
        wanted: The requested positions.

    Raises:
        NotFound: The checkpoint, savepoint, source, topic or partition does not exist.
        Conflict: The target exists, or is a version of a flow whose table may have later batches.
        Invalid: The change does not match the sources, or changes nothing.
    """
    view, original = source.view()
    free(target, source.uri, RestoreKind.OFFSETS)
    found = read(view)
    batch_id, offsets = newest_offsets(view)
    require_newest_of_flow(target, original, batch_id, found.query_id)
    _, positions = changed(offsets.offsets, wanted.changes, source.uri)
    files: tuple[str, ...] = ()
    if wanted.files:
        files = FilesOfSource(view, wanted.source, source.uri).unread(wanted.files)
    if not positions and not files:
        raise Invalid(
            "the change moves no offset and skips no file",
            code="HF-E2089",
            where=source.uri,
            found="offsets equal to the current ones",
            hint="list the offsets with `holdfast offsets show CHECKPOINT`",
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
    source: ChangeSource,
    target: Storage,
    plan: OffsetPlan,
    folder: Path,
    *,
    tell: ProgressCallback | None = None,
    guard: CheckpointGuard | None = None,
) -> OffsetsMoved:
    """Create the planned checkpoint.

    The source is copied into a working directory, by hard links if possible. The target is written after the
    verification that every state is unchanged, with its `metadata` last.

    Cost: reads all state twice, and copies it.

    Args:
        source: The checkpoint or savepoint.
        target: The checkpoint to create.
        plan: The plan from `plan_offsets` for this source and target.
        folder: A local working directory, which the caller deletes.
        tell: The progress callback, called with the work done, the total, and the current step.
        guard: The guard of the source, if that is a checkpoint.

    Raises:
        Conflict: The source has advanced since the plan, or the target is no longer free.
        Corrupt: The source is damaged.
        Internal: A state has changed; nothing was written.
    """
    step = SetOffsets(plan)
    purpose = changing("no offsets were moved", "offsets")
    [states] = carry_out(
        source, target, plan, [step], RestoreKind.OFFSETS, purpose, folder, guard=guard, tell=tell
    )
    _LOG.info("moved the offsets of %s: %s", plan.source, target.uri)
    return OffsetsMoved(plan, states)


@dataclass(frozen=True, slots=True)
class SetOffsets:
    """The step that sets the offsets from which sources continue.

    Attributes:
        plan: The plan of the move.
    """

    plan: OffsetPlan
    name: str = "offsets"

    def apply(
        self,
        work: WorkingCopy,
        folder: Path,  # noqa: ARG002 - the protocol's
        tell: ProgressCallback | None,
    ) -> tuple[StateContent, ...]:
        """See `Step`; the rows of every state are counted and hashed before and after."""
        before = contents(work.checkpoint, tell=tell)
        _write(work.checkpoint, self.plan)
        after = contents(work.checkpoint, tell=tell)
        require_same_rows(before, after, self.plan.source)
        return after


def _write(checkpoint: Storage, plan: OffsetPlan) -> None:
    path = LogFile(Log.OFFSETS, plan.batch_id).render()
    written = parse_offsets(checkpoint.read(path), path)
    after, _ = changed(written.offsets, plan.wanted.changes, plan.source)
    if plan.skipped_files:
        files = FilesOfSource(checkpoint, plan.wanted.source, plan.source)
        newest_ms = max((file.timestamp_ms for file in files.read_files()), default=0)
        changed_ms = [_changed_ms(file, newest_ms) for file in plan.skipped_files]
        files.leave_out(plan.skipped_files, changed_ms, after)
    # On a restart, Spark asks some sources again for the batch between the last two offsets, which is empty
    # if they are equal.
    for batch_id in (plan.batch_id, plan.batch_id - 1):
        place = LogFile(Log.OFFSETS, batch_id).render()
        if checkpoint.size(place) is None:
            continue
        log = parse_offsets(checkpoint.read(place), place)
        moved = {
            name: after[name] if written.offsets.get(name) != after.get(name, offset) else offset
            for name, offset in log.offsets.items()
        }
        checkpoint.delete(HadoopChecksumFile(place).render())
        checkpoint.write(place, OffsetLog(log.version, log.fields, moved).render(), replace=True)


def _changed_ms(address: str, otherwise: int) -> int:
    """Return the modification time of a local file, by which Spark discards old entries."""
    parts = urlsplit(address)
    path = Path(unquote(parts.path))
    if parts.scheme == "file" and path.exists():
        return path.stat().st_mtime_ns // 1_000_000
    return otherwise
