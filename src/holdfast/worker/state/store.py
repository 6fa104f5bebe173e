"""The stored state of a partition: a record and blobs for each key group, in a store of committed state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from holdfast.formats.key_groups import NEVER, Meta


@dataclass(frozen=True, slots=True)
class GroupBlobs:
    """All rows of a group as blobs: the base, and the later changes in their order."""

    forms: bytes | None
    base: Sequence[bytes]
    log: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Write:
    """The writes of a batch for one key group.

    Attributes:
        group: The key group.
        meta: The new record of the group.
        before: The former record of the group, or None.
        append: A change to append to the log, or None.
        base: A new base that replaces the former base and the log, or None.
        forms: The known schemas as JSON, if they changed, or None.
    """

    group: int
    meta: Meta
    before: Meta | None
    append: bytes | None = None
    base: Sequence[bytes] | None = None
    forms: bytes | None = None

    @property
    def timer_moves(self) -> tuple[int | None, int | None]:
        """Return the event-time timer to delete and the one to set, each or None."""
        before = self.before.wake_event if self.before else NEVER
        if before == self.meta.wake_event:
            return None, None
        gone, set_ = (None if at == NEVER else at for at in (before, self.meta.wake_event))
        return gone, set_


class PartitionStore(Protocol):
    """The state store of one partition, during one task.

    Writes take effect when the task is committed; a failed task changes nothing. Reads within a task return
    the state at its start.
    """

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """Return the records of groups; None for a group without state."""
        ...

    def load(self, group: int) -> GroupBlobs:
        """Return all blobs of a group."""
        ...

    def write(self, writes: Iterable[Write]) -> None:
        """Write groups, and set or delete each group's timer as its record requires."""
        ...


class MemoryStore:
    """A store in memory, for tests and for running a processor without Spark."""

    def __init__(self) -> None:
        self._metas: dict[int, bytes] = {}
        self._stored: dict[int, GroupBlobs] = {}

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """Return the records of groups; None for a group without state."""
        records = [self._metas.get(group) for group in groups]
        return [None if record is None else Meta.decode(record) for record in records]

    def load(self, group: int) -> GroupBlobs:
        """Return all blobs of a group."""
        return self._stored.get(group, GroupBlobs(None, (), ()))

    def write(self, writes: Iterable[Write]) -> None:
        """Write groups."""
        for write in writes:
            stored = self.load(write.group)
            if write.forms is not None:
                stored = replace(stored, forms=write.forms)
            if write.base is not None:
                stored = replace(stored, base=tuple(write.base), log=())
            if write.append is not None:
                stored = replace(stored, log=(*stored.log, write.append))
            self._metas[write.group] = write.meta.encode()
            self._stored[write.group] = stored

    def put(self, group: int, meta: bytes, stored: GroupBlobs) -> None:
        """Add a group as read from a different store."""
        self._metas[group] = meta
        self._stored[group] = stored

    def clear(self) -> None:
        """Remove all groups."""
        self._metas.clear()
        self._stored.clear()

    @property
    def groups(self) -> list[int]:
        """Return the groups with state, in ascending order."""
        return sorted(self._metas)

    def waking(self, watermark_ms: int | None, now_ms: int) -> list[int]:
        """Return the groups with a due timer."""
        due = []
        for group, data in sorted(self._metas.items()):
            meta = Meta.decode(data)
            by_event = watermark_ms is not None and meta.wake_event <= watermark_ms
            if by_event or meta.wake_processing <= now_ms:
                due.append(group)
        return due

    def snapshot(self) -> MemoryStore:
        """Return a copy that later writes do not change."""
        copy = MemoryStore()
        copy._metas = dict(self._metas)
        copy._stored = dict(self._stored)
        return copy
