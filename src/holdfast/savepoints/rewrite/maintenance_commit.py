"""A batch that reads nothing and changes only state: how state at rest is changed within a checkpoint.

It follows the newest committed batch and has the same offsets, as in Spark's own repartitioning. Its offsets
are written first, its commit last. No sink ever sees it, and Spark's file sink fails for good at a batch
number that its log lacks. So a checkpoint that is published has the changed state under the number of the
batch before: `copy_as_batch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast import layout
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.states import operator_states
from holdfast.checkpoints.tree import Tree
from holdfast.checkpoints.values import Checkpoint
from holdfast.errors import Internal, NotFound
from holdfast.formats.logs.commit_log import CommitLog, StateIds, parse_commit
from holdfast.formats.logs.offset_log import OffsetLog, parse_offsets
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.layout import Log, LogFile, OperatorMetadataFile, SparkChecksum, StoreFile, StoreId
from holdfast.storage.hadoop_address import hadoop_address
from holdfast.storage.port import Storage, full

_IDS = "stateUniqueIds"


@dataclass(frozen=True, slots=True)
class MaintenanceCommit:
    """The batch that is under way.

    Attributes:
        checkpoint: The checkpoint; no query may use it.
        found: What was in it before.
        before: The batch before.
        offsets: What it is fixed to.
    """

    checkpoint: Storage
    found: Checkpoint
    before: int
    offsets: OffsetLog

    @property
    def batch_id(self) -> int:
        """Its number."""
        return self.before + 1

    @property
    def version(self) -> int:
        """The version of the stores that it writes."""
        return self.before + 2

    def commit(self, ids: StateIds | None) -> None:
        """Write its commit: from now on its state is the checkpoint's.

        Args:
            ids: The unique ids of its state files, as `CommitLog.state_ids` has them; None under
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
    """Write the offsets of a batch that reads nothing.

    Args:
        checkpoint: The checkpoint. No query may use it, and its newest batch has to be committed.
        confs: What it is fixed to in place of what the batch before was; None leaves a setting out.

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

    Every batch after the earlier one must be a maintenance batch. What the sources have read, and the batch
    with which the query resumes, are then those of the earlier batch.

    Cost: a copy of each file, which is a hard link on a local disk.

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
        if isinstance(place, (layout.HadoopChecksum, layout.Temporary)):
            continue  # names what has a new name; Hadoop reads a file that has no checksum
        name = path
        of = layout.parse(place.of) if isinstance(place, SparkChecksum) else place
        if isinstance(of, LogFile):
            if of.batch_id == newest:
                name = LogFile(of.log, batch_id).render()
            elif of.batch_id != batch_id - 1:
                continue
        elif isinstance(of, StoreFile):
            if of.render() not in stores:
                continue
            name = StoreFile(of.store, batch_id + 1, of.kind, of.unique_id).render()
            name = SparkChecksum(name).render() if isinstance(place, SparkChecksum) else name
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
        for partition in range(operator.partitions):
            for name in operator.store_names:
                store = StoreId(operator.operator_id, partition, name)
                chain = operator.chain(checkpoint, store)
                if len(chain) != 1 or not chain[0].kind.whole or chain[0].version != batch_id + 1:
                    raise Internal(
                        "a maintenance batch has not written the whole state of a store",
                        where=full(checkpoint.uri, store.folder),
                        found=", ".join(file.name for file in chain) or "no file",
                        expected=f"a snapshot of version {batch_id + 1}",
                        hint="the source is as it was; please report this",
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


def no_batch(checkpoint: Storage) -> NotFound:
    """The error for a checkpoint that has no state to be changed."""
    return NotFound(
        "no batch is committed",
        where=checkpoint.uri,
        hint="let the query finish a batch; `holdfast checkpoint show` says which it has committed",
    )
