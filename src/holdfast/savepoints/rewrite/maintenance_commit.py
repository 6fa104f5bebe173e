"""A batch that reads nothing and changes only state: how state at rest is changed within a checkpoint.

It stands behind the newest committed batch, from whose offsets the query then goes on, as Spark's own
repartitioning does it. Its offsets are written first and its commit last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.values import Checkpoint
from holdfast.errors import NotFound
from holdfast.formats.logs.commit_log import CommitLog, StateIds, parse_commit
from holdfast.formats.logs.offset_log import OffsetLog, parse_offsets
from holdfast.layout import Log, LogFile
from holdfast.storage.port import Storage

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


def no_batch(checkpoint: Storage) -> NotFound:
    """The error for a checkpoint that has no state to be changed."""
    return NotFound(
        "no batch is committed",
        where=checkpoint.uri,
        hint="let the query finish a batch; `holdfast checkpoint show` says which it has committed",
    )
