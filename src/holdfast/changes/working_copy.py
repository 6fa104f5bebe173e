"""Changes of state in a hidden copy, which is then published as a new checkpoint or savepoint.

A maintenance batch follows the newest committed batch and has the same offsets, as in Spark's own
repartitioning. Its offsets are written first, its commit last. No sink processes this batch, and Spark's file
sink fails permanently at a batch id that is missing from its log. A published checkpoint therefore has the
changed state under the id of the previous batch; see `copy_as_batch`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holdfast import layout
from holdfast.checkpoints.checkpoint import CheckpointReport, ProgressCallback, Tree, read
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.state.states import operator_states
from holdfast.config.checks import local_path
from holdfast.errors import Conflict, HoldfastError, Internal, NotFound
from holdfast.formats.files.checksums import hadoop_checksum
from holdfast.formats.logs.batch_logs import CommitLog, OffsetLog, StateIds, parse_commit, parse_offsets
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.layout import (
    Log,
    LogFile,
    OperatorMetadataFile,
    SourceLogFile,
    SparkChecksumFile,
    StoreFile,
)
from holdfast.ownership.checkpoint_guard import CheckpointGuard
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.planning import Purpose, plan_take
from holdfast.savepoints.restoring import Restored, RestoreKind, plan_restore, restore, withdraw
from holdfast.savepoints.spread import Tasks, executors
from holdfast.savepoints.taking import Taken
from holdfast.savepoints.whole_take import take
from holdfast.storage import open_storage
from holdfast.storage.atomic_swap import passing
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage, files_below, full
from holdfast.storage.remote import hadoop_address

_ReportT = TypeVar("_ReportT")
_IDS = "stateUniqueIds"


@dataclass(frozen=True, slots=True)
class MaintenanceCommit:
    """A maintenance batch that is not committed yet.

    Attributes:
        checkpoint: The checkpoint; no query may use it.
        found: The content of the checkpoint before the batch.
        before: The id of the previous batch.
        offsets: The offsets of the batch, with its pinned settings.
    """

    checkpoint: Storage
    found: CheckpointReport
    before: int
    offsets: OffsetLog

    @property
    def batch_id(self) -> int:
        """The id of the batch."""
        return self.before + 1

    @property
    def version(self) -> int:
        """The version of the stores that the batch writes."""
        return self.before + 2

    def commit(self, ids: StateIds | None) -> None:
        """Write the commit of the batch, so that its state becomes that of the checkpoint.

        Args:
            ids: The unique ids of the batch's state files, as in `CommitLog.state_ids`; None under
                state-checkpoint format 1.
        """
        path = LogFile(Log.COMMITS, self.before).render()
        last = parse_commit(self.checkpoint.read(path), path)
        fields = {name: value for name, value in last.fields.items() if name != _IDS}
        version = last.version
        if ids is not None:
            named = {str(operator): [list(stores) for stores in parts] for operator, parts in ids.items()}
            fields[_IDS], version = named, max(version, 2)
        elif version == 2:
            version = 1
        commit = CommitLog(version, fields, ids)
        self.checkpoint.write(LogFile(Log.COMMITS, self.batch_id).render(), commit.render())


def begin(checkpoint: Storage, confs: Mapping[str, str | None] | None = None) -> MaintenanceCommit:
    """Write the offsets of a batch without input.

    Args:
        checkpoint: The checkpoint. No query may use it, and its newest batch must be committed.
        confs: The settings that replace those of the previous batch; None removes a setting.

    Raises:
        NotFound: No batch is committed.
        Corrupt: A file is damaged.
    """
    found = read(checkpoint)
    if found.batch_id is None:
        raise no_batch(checkpoint)
    path = LogFile(Log.OFFSETS, found.batch_id).render()
    last = parse_offsets(checkpoint.read(path), path)
    fixed = {key: value for key, value in {**last.confs, **(confs or {})}.items() if value is not None}
    fields = {**(last.fields or {}), "conf": fixed}
    offsets = OffsetLog(last.version, fields, last.offsets)
    checkpoint.write(LogFile(Log.OFFSETS, found.batch_id + 1).render(), offsets.render())
    return MaintenanceCommit(checkpoint, found, found.batch_id, offsets)


def copy_as_batch(source: Storage, target: Storage, batch_id: int) -> None:
    """Copy a checkpoint so that the state of its newest batch belongs to an earlier batch.

    Every batch after the earlier one must be a maintenance batch. The offsets of the sources, and the batch
    with which the query resumes, are then those of the earlier batch.

    Cost: copies each file, by a hard link on a local disk.

    Args:
        source: The checkpoint; no query may use it.
        target: An empty directory.
        batch_id: The earlier batch.

    Raises:
        Internal: A store has no snapshot of the newest batch.
    """
    newest = read(source).batch_id
    if newest is None:
        raise no_batch(source)
    stores = _snapshots(source, newest)
    metadata = _newest_metadata(source)
    for path, place in Tree(source).places():
        if isinstance(place, (layout.HadoopChecksumFile, layout.Temporary)):
            continue  # contains the names of renamed files; Hadoop reads a file without a checksum
        name = path
        of = layout.parse(place.of) if isinstance(place, SparkChecksumFile) else place
        if isinstance(of, LogFile):
            if of.batch_id == newest:
                name = LogFile(of.log, batch_id).render()
            elif of.batch_id != batch_id - 1:
                continue
        elif isinstance(of, StoreFile):
            if of.render() not in stores:
                continue
            name = StoreFile(of.store, batch_id + 1, of.kind, of.unique_id).render()
            name = SparkChecksumFile(name).render() if isinstance(place, SparkChecksumFile) else name
        elif isinstance(of, OperatorMetadataFile) and of.batch_id is not None:
            if of.batch_id != metadata[of.operator_id]:
                continue
            name = OperatorMetadataFile(of.operator_id, min(of.batch_id, batch_id)).render()
            moved = parse_operator(source.read(path), path).moved_to(hadoop_address(target.uri))
            target.write(name, moved.render())
            continue
        target.copy(path, name, origin=source)


def _snapshots(checkpoint: Storage, batch_id: int) -> frozenset[str]:
    """Return the paths of the snapshots that are the whole state of a batch."""
    paths = set()
    for operator in operator_states(checkpoint, batch_id):
        for store in operator.stores():
            chain = operator.chain(checkpoint, store)
            if len(chain) != 1 or not chain[0].kind.whole or chain[0].version != batch_id + 1:
                raise Internal(
                    "a maintenance batch has not written the whole state of a store",
                    code="HF-E9014",
                    where=full(checkpoint.uri, store.folder),
                    found=", ".join(file.name for file in chain) or "no file",
                    expected=f"a snapshot of version {batch_id + 1}",
                    hint="please report this; the source is unchanged",
                )
            paths.add(chain[0].render())
    return frozenset(paths)


def _newest_metadata(checkpoint: Storage) -> dict[int, int]:
    """Return the batch of each operator's newest metadata of version 2."""
    newest: dict[int, int] = {}
    for _, place in Tree(checkpoint).places():
        if isinstance(place, OperatorMetadataFile) and place.batch_id is not None:
            newest[place.operator_id] = max(place.batch_id, newest.get(place.operator_id, 0))
    return newest


def lead_to(made: Storage, checkpoint: str) -> None:
    """Rewrite the paths in the metadata of a new checkpoint to the address that it will have."""
    root = hadoop_address(checkpoint)
    for path, place in Tree(made).places():
        if isinstance(place, OperatorMetadataFile):
            made.delete(layout.HadoopChecksumFile(path).render())
            made.write(path, parse_operator(made.read(path), path).moved_to(root).render(), replace=True)


def complete_checksums(made: Storage) -> None:
    """Write Hadoop's checksums of the logs and metadata that a change has written.

    Without them, damage of such a file is found only if it can no longer be parsed.
    """
    places = dict(Tree(made).places())
    for path, place in places.items():
        sums = layout.HadoopChecksumFile(path).render()
        written = path == layout.METADATA or isinstance(place, (LogFile, SourceLogFile, OperatorMetadataFile))
        if written and sums not in places:
            made.write(sums, hadoop_checksum(made.read(path)).render())


def no_batch(checkpoint: Storage) -> NotFound:
    """Return the error for a checkpoint without a committed batch."""
    return NotFound(
        "the query has not committed a batch yet",
        code="HF-E3015",
        where=checkpoint.uri,
        hint=(
            "run the query until it commits a batch; list the committed batches with `holdfast"
            " checkpoint show`"
        ),
    )


@dataclass(frozen=True, slots=True)
class SharedWork:
    """Executors that carry out parts of a change.

    Attributes:
        tasks: The executors.
        root: The address of an empty working directory that the executors reach.
    """

    tasks: Tasks
    root: str


@contextmanager
def on_executors(
    target: Storage, folder: Path, purpose: str, master: str | None
) -> Iterator[SharedWork | None]:
    """Start executors for a change, and open a working directory that they reach.

    For a target on a local disk, that is the working directory of this process, and the disk must be one that
    all machines mount. Otherwise it is a hidden directory next to the target. Its files are deleted at the
    end, and stay if the process is killed.

    Args:
        target: The checkpoint to create.
        folder: The working directory of this process.
        purpose: The purpose, a part of the names of the directory and of the application.
        master: The master of the executors; None for none.
    """
    if master is None:
        yield None
        return
    with executors(f"holdfast-{purpose}", master) as tasks:
        if local_path(target.uri) is not None:
            yield SharedWork(tasks, LocalStorage(folder).uri)
            return
        root = f"{target.uri.rpartition('/')[0]}/.holdfast-{purpose}-{os.urandom(8).hex()}"
        try:
            yield SharedWork(tasks, root)
        finally:
            left = open_storage(root)
            for path in list(files_below(left)):
                left.delete(path)


class WorkingCopy:
    """A modifiable copy of a checkpoint or savepoint in a hidden directory.

    Args:
        folder: The directory, which the caller deletes. It has hard links to files on the same disk.
        purpose: The purpose of the copy, for messages.
        tell: The progress callback, called with the work done, the total, and the current step.
        shared: The executors of the change, and the directory of the copy instead of `folder`.

    Attributes:
        checkpoint: The copy.
        tasks: Where parts of the change are carried out; None for this process.
    """

    def __init__(
        self,
        folder: Path,
        purpose: Purpose,
        tell: ProgressCallback | None,
        shared: SharedWork | None = None,
    ) -> None:
        self._purpose = purpose
        self.tasks = None if shared is None else shared.tasks
        self._root = LocalStorage(folder).uri if shared is None else shared.root
        self.checkpoint = self.beside("checkpoint")
        self._catalog = self.beside("catalog")
        self._replaced = 0
        self._has_checksums = False
        self._tell = tell

    @property
    def place(self) -> Path:
        """The directory of a copy on a local disk, as all copies without executors are."""
        place = local_path(self.checkpoint.uri)
        if place is None:
            raise Internal(
                "a change that needs a local working directory was given a remote one",
                code="HF-E9041",
                where=self.checkpoint.uri,
                hint="please report this; omit --master until then",
            )
        return place

    def beside(self, name: str) -> Storage:
        """Return a directory of the working directory.

        Only what is published is flushed: after a power failure the working directory is deleted.
        """
        return passing(open_storage(f"{self._root}/{name}"))

    def copied(self, source: ChangeSource) -> int:
        """Copy the source into the working directory, and return the batch of the copy."""
        if source.savepoint_id is None:
            taken = self._take(source.storage, source.record)
            batch_id = self._restore(self._catalog, taken, self.checkpoint).batch_id
        else:
            batch_id = self._restore(source.storage, source.savepoint_id, self.checkpoint).batch_id
        # Hadoop's local file system writes them, and those of object stores do not.
        places = Tree(self.checkpoint).places()
        self._has_checksums = any(isinstance(place, layout.HadoopChecksumFile) for _, place in places)
        return batch_id

    def copied_at(self, source: ChangeSource, batch_id: int) -> None:
        """Copy the source, after checking that it is still at this batch.

        Raises:
            Conflict: The source has advanced.
        """
        copy = self.copied(source)
        if copy != batch_id:
            raise Conflict(
                "the query has committed batches since the change was planned",
                code="HF-E4004",
                where=source.uri,
                found=f"batch {copy}",
                expected=f"batch {batch_id}",
                hint="stop the query, and plan the change again",
            )

    def end_at(self, batch_id: int) -> None:
        """Assign the state of the newest batch to an earlier one, if only maintenance batches follow it.

        The batch ids in a sink therefore have no gap.

        Raises:
            Internal: A maintenance batch did not write the whole state.
        """
        newest = read(self.checkpoint).batch_id
        if newest is None or newest <= batch_id:
            return
        copy = self.beside(f"{self.checkpoint.uri.rpartition('/')[2]}-at-{batch_id}")
        copy_as_batch(self.checkpoint, copy, batch_id)
        self.checkpoint = copy

    def replace_by(self, change: Callable[[Storage, str], tuple[Taken | None, _ReportT]]) -> _ReportT:
        """Continue with a savepoint that is derived from the copy.

        Args:
            change: The function that takes the catalog and the id of a savepoint of the copy, and returns the
                new savepoint and a report. If it returns no savepoint, the copy stays unchanged.
        """
        taken, report = change(self._catalog, self._take(self.checkpoint))
        if taken is not None:
            self._replaced += 1
            copy = self.beside(f"checkpoint-{self._replaced}")
            self._restore(self._catalog, taken.manifest.savepoint_id, copy)
            self.checkpoint = copy
        return report

    @contextmanager
    def standing_for(self, address: str) -> Iterator[None]:
        """Replace the address of the copy in errors by the address of its source."""
        try:
            yield
        except HoldfastError as error:
            facts = {name: text and self._original(text, address) for name, text in error.facts().items()}
            raise type(error)(self._original(error.fact, address), **facts) from error

    def _original(self, text: str, address: str) -> str:
        """Replace the addresses of the copy, and of its savepoints, in a text."""
        text = re.sub(rf"{re.escape(self._catalog.uri)}/savepoints/[\w.-]+", lambda _: address, text)
        return text.replace(self.checkpoint.uri, address)

    def published(
        self,
        target: Storage,
        operation: RestoreKind,
        named: tuple[str, str],
        guard: CheckpointGuard | None = None,
        *,
        table: Storage | None = None,
    ) -> Restored:
        """Publish the copy as a checkpoint.

        Args:
            target: The checkpoint to create.
            operation: The operation that creates it.
            named: The address that the user gave, and the address of its checkpoint.
            guard: The guard of the copied checkpoint; None for a savepoint.
            table: The directory of a new table, whose log is prepared for the query.

        Raises:
            Conflict: A query uses the copied checkpoint, or the table is not empty; nothing was created.
        """
        if guard is not None:
            guard.require_unmoved()
        if self._has_checksums:
            complete_checksums(self.checkpoint)
        with self.standing_for(named[0]):
            savepoint_id = self._take(self.checkpoint)
        made = plan_restore(
            self._catalog,
            savepoint_id,
            target,
            operation,
            named=named,
            table=table,
            tell=self._tell,
        )
        restored = restore(self._catalog, target, made, tell=self._tell)
        if guard is not None:
            try:
                guard.require_unmoved()
            except HoldfastError:
                # Two checkpoints of the same query must not exist.
                withdraw(target)
                raise
        return restored

    def _take(self, checkpoint: Storage, record: Record | None = None) -> str:
        plan = plan_take(checkpoint, self._catalog, record=record, purpose=self._purpose)
        taken = take(checkpoint, self._catalog, plan, tell=self._tell)
        return taken.manifest.savepoint_id

    def _restore(self, catalog: Storage, savepoint_id: str, target: Storage) -> Restored:
        plan = plan_restore(
            catalog, savepoint_id, target, RestoreKind.RESTORE, in_files=True, tell=self._tell
        )
        return restore(catalog, target, plan, tell=self._tell)
