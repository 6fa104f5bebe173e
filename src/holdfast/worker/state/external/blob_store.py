"""A store whose blobs are in Redis: the store that holds the truth has their names.

A blob is written under a name that is never given twice, before the store is told the name. So the name
counts when Spark commits the batch and not before, and what a failed, repeated or frozen task has written is
a blob that nothing names. Names and blobs are told apart by their first bytes: both may be in one group, so
that the state of a query can move to Redis and back, a group at a time as groups are folded.

How blobs are cleaned. For each key group Redis has a sorted set, its index: every blob of the group, with the
last batch in which any task wrote it or gave the group a new base without it. A task notes that before its
store can name or forget a blob, and never a lower batch than is noted. A task of batch C that folds a group
reads which blobs the group names at the start of C, notes C for them, and then deletes what is in the index
with a batch before C - RETAINED - MARGIN.

Why nothing is deleted that a batch needs from which the query may start again: names are not given twice, so
a blob is named from the batch that wrote it to the batch that replaced it, without a gap. What the state at
the start of C names has just been noted with C. A blob that it does not name was never named, or was replaced
by a batch that was committed before C: the index has that batch or a later one, and all batches that Spark
retains come after it. This holds for a task that is repeated or late, too: it sees the state at the start of
its own batch. Blobs of another query are in no index of this one: a query deletes nothing but its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Invalid
from holdfast.worker.state.external.blob_name import BlobName, is_name
from holdfast.worker.state.external.blob_server import BlobServer, Connection
from holdfast.worker.state.store import Meta, Store, Stored, Write

if TYPE_CHECKING:
    from holdfast.worker.state.external.blob_server import Command

# Spark's own number of batches that it retains, where nobody has set another.
RETAINED: Final = 100
# So many batches more are kept than Spark retains, whose own cleaning is late by some.
MARGIN: Final = 10
# Blobs are sent and fetched so many bytes at a time.
_TOGETHER: Final = 16 << 20
# A fold deletes so many blobs at most.
_DELETED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Blobs:
    """Which blobs of an operator are kept in Redis.

    Attributes:
        server: Where it is.
        least_bytes: Blobs of so many bytes or more are; None where no more are written there, and those that
            are there come back.
    """

    server: BlobServer
    least_bytes: int | None


@dataclass(frozen=True, slots=True)
class BlobTask:
    """What a task must know to write blobs.

    Attributes:
        operator: The operator's name.
        query_id: The query's id.
        batch_id: The batch.
        token: Text that no other task has, not another try at the same batch either.
        retained: How many batches Spark retains.
    """

    operator: str
    query_id: str
    batch_id: int
    token: str
    retained: int = RETAINED


@dataclass(slots=True)
class _Sending:
    """Commands that go out together, and what is to be done with some of the answers."""

    commands: list[Command] = field(default_factory=list)
    blobs: list[Any] = field(default_factory=list)
    folded: dict[int, int] = field(default_factory=dict)


class BlobStore:
    """Keeps the large blobs of another store in Redis.

    Args:
        store: The store that holds the truth, and the names.
        blobs: Which blobs are kept in Redis.
        task: The task.
        connection: The way to it.
    """

    def __init__(self, store: Store, blobs: Blobs, task: BlobTask, connection: Connection) -> None:
        self._store = store
        self._least = blobs.least_bytes
        self._task = task
        self._connection = connection
        self._home = f"{blobs.server.prefix}:keyed:{task.query_id}:{task.operator}"
        self._before = task.batch_id - task.retained - MARGIN
        self._count = 0
        self._named: dict[int, set[str]] = {}

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """The records of groups, None for one without state."""
        return self._store.metas(groups)

    def load(self, group: int) -> Stored:
        """All blobs of a group; those in Redis are fetched.

        Raises:
            Corrupt: A blob is gone or damaged.
            Unavailable: Redis does not answer.
        """
        stored = self._store.load(group)
        self._named[group] = self._own_names(group, stored)
        return resolved(stored, group, f"operator {self._task.operator}", lambda: self._connection)

    def write(self, writes: Iterable[Write]) -> None:
        """Write blobs to Redis, then everything else and their names to the store.

        Raises:
            Unavailable: Redis does not answer.
        """
        waiting: list[Write] = []
        size = 0
        for write in writes:
            waiting.append(write)
            size += sum(map(len, _blobs_of(write)))
            if size >= _TOGETHER:
                self._write(waiting)
                waiting, size = [], 0
        self._write(waiting)

    def _write(self, writes: Sequence[Write]) -> None:
        sending = _Sending()
        named = [self._sent(write, sending) for write in writes]
        if sending.blobs:
            # Behind the indexes: no blob is there that none has.
            sending.commands.append(("MSET", *sending.blobs))
        answers = self._connection.ask(sending.commands)
        self._store.write(named)
        self._connection.ask([command for found in self._garbage(sending, answers) for command in found])

    def _sent(self, write: Write, sending: _Sending) -> Write:
        """The write with names for blobs, and what Redis has to be told before."""
        noted: list[str] = []

        def kept(blob: bytes) -> bytes:
            if self._least is None or len(blob) < self._least:
                return blob
            noted.append(f"{self._task.batch_id}-{self._task.token}-{self._count}")
            self._count += 1
            name = BlobName.of(self._blob_key(write.group, noted[-1]), blob)
            sending.blobs += (name.key, blob)
            return name.encode()

        append = None if write.append is None else kept(write.append)
        base = None if write.base is None else [kept(blob) for blob in write.base]
        had: set[str] = set()
        if base is not None and write.before is not None:
            had = self._names(write.group)
        scored = [part for name in (*noted, *sorted(had)) for part in (self._task.batch_id, name)]
        if scored:
            sending.commands.append(("ZADD", self._index(write.group), "GT", *scored))
        if base is not None and self._before > 0 and (noted or had):
            sending.folded[write.group] = len(sending.commands)
            limits = ("-inf", f"({self._before}", "LIMIT", 0, _DELETED)
            sending.commands.append(("ZRANGEBYSCORE", self._index(write.group), *limits))
        return replace(write, append=append, base=base)

    def _garbage(self, sending: _Sending, answers: Sequence[Any]) -> Iterable[Sequence[Command]]:
        """What deletes blobs of folded groups that no batch needs any more: see the module's docstring."""
        for group, at in sending.folded.items():
            gone = [bytes(name).decode() for name in answers[at]]
            if gone:
                # The index last: a blob that is there stays in it.
                yield (
                    ("UNLINK", *(self._blob_key(group, name) for name in gone)),
                    ("ZREM", self._index(group), *gone),
                )

    def _names(self, group: int) -> set[str]:
        """The blobs of this query that a group names at the start of the batch."""
        if group not in self._named:
            self._named[group] = self._own_names(group, self._store.load(group))
        return self._named[group]

    def _own_names(self, group: int, stored: Stored) -> set[str]:
        start = self._blob_key(group, "")
        keys = [BlobName.decode(blob).key for blob in (*stored.base, *stored.log) if is_name(blob)]
        return {key.removeprefix(start) for key in keys if key.startswith(start)}

    def _index(self, group: int) -> str:
        return f"{self._home}:{group}"

    def _blob_key(self, group: int, name: str) -> str:
        return f"{self._home}:{group}:{name}"


class BlobReader:
    """Reads names in a store, and writes none.

    Args:
        store: The store that holds the truth.
        operator: The operator's name, for messages.
        connection: The way to Redis; None for an operator that is not told where its blobs are.
    """

    def __init__(self, store: Store, operator: str, connection: Connection | None = None) -> None:
        self._store = store
        self._where = f"operator {operator}"
        self._connection = connection

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """The records of groups, None for one without state."""
        return self._store.metas(groups)

    def load(self, group: int) -> Stored:
        """All blobs of a group.

        Raises:
            Invalid: Some are in Redis, and nobody has said where that is.
            Corrupt: A blob is gone or damaged.
            Unavailable: Redis does not answer.
        """

        def connection() -> Connection:
            if self._connection is None:
                raise blobs_elsewhere(self._where, f"blobs of key group {group} there")
            return self._connection

        return resolved(self._store.load(group), group, self._where, connection)

    def write(self, writes: Iterable[Write]) -> None:
        """Write groups."""
        self._store.write(writes)


def blobs_elsewhere(where: str, found: str) -> Invalid:
    """The error for state that is in Redis, where nobody says where that is."""
    return Invalid(
        "the state of this operator is in Redis, and the operator is not told where",
        where=where,
        found=found,
        hint="write process(…, blobs=hf.Redis(…)); with blobs_from=None beside it the state comes back",
    )


def resolved(stored: Stored, group: int, where: str, connection: Callable[[], Connection]) -> Stored:
    """A group with its blobs in place of their names.

    Args:
        stored: The group as it is stored.
        group: Its number.
        where: The operator, for messages.
        connection: Gives the way to Redis; called where there is a name.

    Raises:
        Corrupt: A blob is gone or damaged.
        Unavailable: Redis does not answer.
    """
    every = [*stored.base, *stored.log]
    at = [place for place, blob in enumerate(every) if is_name(blob)]
    if not at:
        return stored
    names = [BlobName.decode(every[place]) for place in at]
    for place, name, blob in zip(at, names, fetched(names, connection()), strict=True):
        every[place] = name.checked(blob, group, where)
    return replace(stored, base=tuple(every[: len(stored.base)]), log=tuple(every[len(stored.base) :]))


def fetched(names: Sequence[BlobName], connection: Connection) -> Iterable[bytes | None]:
    """The blobs of these names, in one go unless they are large."""
    start = 0
    while start < len(names):
        stop, size = start, 0
        while stop < len(names) and (stop == start or size + names[stop].size_bytes <= _TOGETHER):
            size += names[stop].size_bytes
            stop += 1
        (blobs,) = connection.ask([("MGET", *(name.key for name in names[start:stop]))])
        yield from blobs
        start = stop


def _blobs_of(write: Write) -> Iterable[bytes]:
    if write.append is not None:
        yield write.append
    yield from write.base or ()
