"""The stored state of a partition: one record per key group, in the store that holds the committed state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from holdfast.formats.key_groups import NEVER, Meta


@dataclass(frozen=True, slots=True)
class GroupBlobs:
    """All of a group's rows as blobs: the base, and the changes since in their order."""

    forms: bytes | None
    base: Sequence[bytes]
    log: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Write:
    """The writes of a batch for one group.

    Attributes:
        group: The key group.
        meta: Its new record.
        before: Its former record, or None.
        append: A change to append to the log.
        base: A new base that replaces the former base and the log.
        forms: The known forms, if they changed.
    """

    group: int
    meta: Meta
    before: Meta | None
    append: bytes | None = None
    base: Sequence[bytes] | None = None
    forms: bytes | None = None

    @property
    def timer_moves(self) -> tuple[int | None, int | None]:
        """The event-time timer to delete, and the one to set instead."""
        before = self.before.wake_event if self.before else NEVER
        if before == self.meta.wake_event:
            return None, None
        gone, set_ = (None if at == NEVER else at for at in (before, self.meta.wake_event))
        return gone, set_


class PartitionStore(Protocol):
    """The state store of one partition, during one task.

    Writes take effect when the task is committed; a failed task changes nothing. Reads within a task see the
    state at its start.
    """

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """Return the records of groups, None for one without state."""
        ...

    def load(self, group: int) -> GroupBlobs:
        """Return all blobs of a group."""
        ...

    def write(self, writes: Iterable[Write]) -> None:
        """Write groups, and move the timer of each as its record requires."""
        ...


class MemoryStore:
    """A store in memory: for tests, and for running a processor without Spark."""

    def __init__(self) -> None:
        self._metas: dict[int, bytes] = {}
        self._stored: dict[int, GroupBlobs] = {}

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """Return the records of groups, None for one without state."""
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
        """Have a group as it was found elsewhere."""
        self._metas[group] = meta
        self._stored[group] = stored

    def clear(self) -> None:
        """Forget all groups."""
        self._metas.clear()
        self._stored.clear()

    @property
    def groups(self) -> list[int]:
        """The groups that have state, ascending."""
        return sorted(self._metas)

    def waking(self, watermark_ms: int | None, now_ms: int) -> list[int]:
        """Return the groups with a timer that is due."""
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
