"""A store whose blobs are in a database, under names that Spark's store holds.

Each key group has an index there: the names of its blobs, each with the batch in which any task noted it
last. Whatever is asked may be asked twice, where an answer was lost.

A blob is written under a name that is never given twice, before the store is told the name. So the name
counts when Spark commits the batch and not before, and what a failed, repeated or frozen task has written is
a blob that nothing names. Names and blobs are distinguished by their first bytes: both may be in one group,
so that the state of a query can move to the database and back, a group at a time as groups are folded.

How blobs are cleaned. For each key group the database has an index: every blob of the group, with the last
batch in which any task wrote it or gave the group a new base without it. A task notes that before its
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

import os
import struct
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Protocol, TypeVar

import xxhash

from holdfast.errors import Corrupt, HoldfastError, Invalid
from holdfast.formats.key_groups import Meta
from holdfast.worker.state.store import GroupBlobs, PartitionStore, Write

# A blob begins with the fingerprint of its form, of eight bytes too, which is a hash and never this.
MAGIC: Final = b"\0HF-BLOB"
_HEAD: Final = struct.Struct("<8sQ16s")
_DAMAGED: Final = "restore a savepoint, or roll the checkpoint back: see `holdfast checkpoint verify`"


@dataclass(frozen=True, slots=True)
class BlobName:
    """A blob that is kept elsewhere.

    Attributes:
        key: Its name there, which is never given twice.
        size_bytes: Its size.
        digest: The hash of its bytes.
    """

    key: str
    size_bytes: int
    digest: bytes

    @classmethod
    def of(cls, key: str, blob: bytes) -> BlobName:
        """The name of these bytes."""
        return cls(key, len(blob), xxhash.xxh3_128_digest(blob))

    def encode(self) -> bytes:
        """Return the stored form."""
        return _HEAD.pack(MAGIC, self.size_bytes, self.digest) + self.key.encode()

    @classmethod
    def decode(cls, data: bytes) -> BlobName:
        """Read back what `encode` wrote.

        Raises:
            Corrupt: It is cut short, or its key is not a text.
        """
        try:
            _, size_bytes, digest = _HEAD.unpack_from(data)
            return cls(data[_HEAD.size :].decode(), size_bytes, digest)
        except (struct.error, UnicodeDecodeError) as error:
            raise Corrupt(
                "the name of a blob cannot be read", code="HF-E6057", found=str(error), hint=_DAMAGED
            ) from error

    def checked(self, blob: bytes | None, group: int, where: str, product: str) -> bytes:
        """The blob as it was fetched from a database, if it is the one that was written.

        Raises:
            Corrupt: It is gone, or has other bytes.
        """
        if blob is None:
            fact, found = f"a blob of keyed state is gone from {product}", "nothing"
        elif len(blob) == self.size_bytes and xxhash.xxh3_128_digest(blob) == self.digest:
            return blob
        else:
            fact, found = (
                f"a blob of keyed state is damaged in {product}",
                f"{len(blob)} bytes with another digest",
            )
        raise Corrupt(
            fact,
            code="HF-E6058",
            where=f"{where}, key group {group}, key {self.key}",
            found=found,
            expected=f"{self.size_bytes} bytes",
            hint=f"bring back the data that {product} had, from its files, a replica or a backup, or start "
            "the query with a new checkpoint; a batch that is no longer retained has lost its blobs",
        )


def is_name(data: bytes) -> bool:
    """Return whether this is the name of a blob, and not a blob."""
    return data[: len(MAGIC)] == MAGIC


# Between two tries: twice as long each time, up to so long.
_FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPatience:
    """The limits of retrying requests to a database.

    Attributes:
        patience_ms: For so long.
        clock: Seconds that pass.
        pause: Waits for a number of seconds.
    """

    patience_ms: int
    clock: Callable[[], float]
    pause: Callable[[float], None]

    def ask(
        self,
        question: Callable[[], T],
        failures: tuple[type[Exception], ...],
        *,
        refusal: Callable[[Exception], HoldfastError | None],
        silent: Callable[[Exception], HoldfastError],
        before_pause: Callable[[Exception, float], None] = lambda _, __: None,
    ) -> T:
        """The answer to a question that may be asked twice.

        Args:
            question: Asks it.
            failures: What it raises where asking again may help.
            refusal: The error for a failure that asking again does not change, None for any other.
            silent: The error for a failure once patience has ended.
            before_pause: Told a failure that has neither, and how many seconds are waited now.

        Raises:
            HoldfastError: As `refusal`, `silent` and the question say.
        """
        until = self.clock() + self.patience_ms / 1000
        wait = _FIRST_PAUSE_S
        while True:
            try:
                return question()
            except HoldfastError:
                raise
            except failures as error:
                refused = refusal(error)
                if refused is not None:
                    raise refused from error
                if self.clock() + wait > until:
                    raise silent(error) from error
                before_pause(error, wait)
            self.pause(wait)
            wait = min(2 * wait, LONGEST_PAUSE_S)


@dataclass(slots=True)
class BlobWrites:
    """The blobs that a task writes together.

    Attributes:
        batch_id: The task's batch.
        before: What was noted last in a batch before this one is asked for; see `folded`.
        noted: Names that are noted with the task's batch, by key group.
        blobs: Blobs by their keys; all their names are among those noted.
        folded: The key groups that are asked for names noted last before `before`.
    """

    batch_id: int
    before: int
    noted: dict[int, list[str]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    folded: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReplacedBlobs:
    """Blobs of a key group that no batch needs any more.

    Attributes:
        group: The key group.
        names: Their names.
        before: All of them were noted last before this batch.
        noted_until: When the newest of the notes that were read was written, as the database counts it; 0 if
            it need not know.
    """

    group: int
    names: tuple[str, ...]
    before: int
    noted_until: int = 0


class BlobDatabase(Protocol):
    """The connection of this process to a database; threads may share it, and processes may not.

    All methods raise `Unavailable` where it does not answer for as long as it may, and `Invalid` where it
    refuses the user, the password or a request.
    """

    @property
    def product(self) -> str:
        """The name of the database's product, for messages."""

    def write(self, home: str, writes: BlobWrites) -> list[ReplacedBlobs]:
        """Note names, then write the blobs, and say what was replaced long ago.

        A note never makes a name's batch lower. No blob is there before its name is noted. The names that
        are given have none of the notes of this call.

        Args:
            home: What the keys of this operator of this query begin with.
            writes: What is written and asked for.
        """

    def fetch(self, names: Sequence[BlobName]) -> Sequence[bytes | None]:
        """The blobs of these names in their order, None for one that is missing; nothing is checked.

        All of them are in memory at once.
        """

    def delete(self, home: str, replaced: Sequence[ReplacedBlobs]) -> None:
        """Delete blobs, then their names in the indexes, though a note that has come since may stay."""


class BlobServer(Hashable, Protocol):
    """The address of a database and its settings: a frozen value that is sent to the workers."""

    @property
    def product(self) -> str:
        """The name of the database's product, for messages."""

    @property
    def prefix(self) -> str:
        """The prefix of all keys."""

    def connect(self) -> BlobDatabase:
        """A connection of its own, which is made when it is first asked.

        Raises:
            Unsupported: The client is not installed.
        """

    def described(self) -> Mapping[str, Any]:
        """Return the description for an operator's note, without the password."""


def blob_key(home: str, group: int, name: str) -> str:
    """The key of a blob, which has the name of its group's index before its own."""
    return f"{home}:{group}:{name}"


def database_at(server: BlobServer) -> BlobDatabase:
    """The connection of this process, which outlives batches; one that was forked has its own.

    Raises:
        Unsupported: The client is not installed.
    """
    return _database(server, os.getpid())


@cache
def _database(server: BlobServer, _: int) -> BlobDatabase:
    return server.connect()


# Spark's own number of batches that it retains, where nobody has set another.
RETAINED: Final = 100
# So many batches more are kept than Spark retains, whose own cleaning is late by some.
MARGIN: Final = 10
# Blobs are sent and fetched so many bytes at a time.
_TOGETHER: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Blobs:
    """The blobs of an operator that are stored in a database.

    Attributes:
        server: Where the database is.
        least_bytes: Blobs of this size or more are; None where no more are written there, and those that
            are there come back.
    """

    server: BlobServer
    least_bytes: int | None


@dataclass(frozen=True, slots=True)
class BlobTask:
    """The facts that a task needs to write blobs.

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


class BlobStore:
    """Keeps the large blobs of another store in a database.

    Args:
        store: The store that holds the truth, and the names.
        blobs: Which blobs are kept in the database.
        task: The task.
        database: The database.
    """

    def __init__(self, store: PartitionStore, blobs: Blobs, task: BlobTask, database: BlobDatabase) -> None:
        self._store = store
        self._least = blobs.least_bytes
        self._task = task
        self._database = database
        self._home = f"{blobs.server.prefix}:keyed:{task.query_id}:{task.operator}"
        self._before = task.batch_id - task.retained - MARGIN
        self._count = 0
        self._named: dict[int, set[str]] = {}

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """The records of groups, None for one without state."""
        return self._store.metas(groups)

    def load(self, group: int) -> GroupBlobs:
        """All blobs of a group; those in the database are fetched.

        Raises:
            Corrupt: A blob is gone or damaged.
            Unavailable: The database does not answer.
        """
        stored = self._store.load(group)
        self._named[group] = self._own_names(group, stored)
        return resolved(stored, group, f"operator {self._task.operator}", lambda _: self._database)

    def write(self, writes: Iterable[Write]) -> None:
        """Write blobs to the database, then everything else and their names to the store.

        Raises:
            Unavailable: The database does not answer.
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
        sent = BlobWrites(self._task.batch_id, self._before)
        named = [self._sent(write, sent) for write in writes]
        replaced = self._database.write(self._home, sent)
        self._store.write(named)
        self._database.delete(self._home, replaced)

    def _sent(self, write: Write, sent: BlobWrites) -> Write:
        """The write with names for blobs, and what the database has to be told before."""
        noted: list[str] = []

        def kept(blob: bytes) -> bytes:
            if self._least is None or len(blob) < self._least:
                return blob
            noted.append(f"{self._task.batch_id}-{self._task.token}-{self._count}")
            self._count += 1
            name = BlobName.of(blob_key(self._home, write.group, noted[-1]), blob)
            sent.blobs[name.key] = blob
            return name.encode()

        append = None if write.append is None else kept(write.append)
        base = None if write.base is None else [kept(blob) for blob in write.base]
        if base is not None and write.before is not None:
            noted += sorted(self._names(write.group))
        if noted:
            sent.noted.setdefault(write.group, []).extend(noted)
            if base is not None and self._before > 0:
                sent.folded.append(write.group)
        return replace(write, append=append, base=base)

    def _names(self, group: int) -> set[str]:
        """The blobs of this query that a group names at the start of the batch."""
        if group not in self._named:
            self._named[group] = self._own_names(group, self._store.load(group))
        return self._named[group]

    def _own_names(self, group: int, stored: GroupBlobs) -> set[str]:
        start = blob_key(self._home, group, "")
        keys = [BlobName.decode(blob).key for blob in (*stored.base, *stored.log) if is_name(blob)]
        return {key.removeprefix(start) for key in keys if key.startswith(start)}


class BlobReader:
    """Reads names in a store, and writes none.

    Args:
        store: The store that holds the truth.
        operator: The operator's name, for messages.
        database: The database; None for an operator that is not told where its blobs are.
    """

    def __init__(self, store: PartitionStore, operator: str, database: BlobDatabase | None = None) -> None:
        self._store = store
        self._where = f"operator {operator}"
        self._database = database

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """The records of groups, None for one without state."""
        return self._store.metas(groups)

    def load(self, group: int) -> GroupBlobs:
        """All blobs of a group.

        Raises:
            Invalid: Some are in a database, and its address is not given.
            Corrupt: A blob is gone or damaged.
            Unavailable: The database does not answer.
        """

        def database(_: BlobName) -> BlobDatabase:
            if self._database is None:
                raise blobs_elsewhere(self._where, f"blobs of key group {group} there")
            return self._database

        return resolved(self._store.load(group), group, self._where, database)

    def write(self, writes: Iterable[Write]) -> None:
        """Write groups."""
        self._store.write(writes)


def blobs_elsewhere(where: str, found: str, product: str | None = None) -> Invalid:
    """The error for state that is in a database, without its address.

    Args:
        where: The operator.
        found: What is there.
        product: Which database it is, where that is known.
    """
    choice = "hf.Redis(…) or hf.Cassandra(…)" if product is None else f"hf.{product}(…)"
    return Invalid(
        f"the state of this operator is in {product or 'a database'}, and the operator is not told where",
        code="HF-E2515",
        where=where,
        found=found,
        hint=f"write process(…, blobs={choice}), as before; with blobs_from=None beside it the state comes "
        "back",
    )


def operator_of(name: BlobName) -> str:
    """The operator whose blob has this name; empty where no operator's has."""
    parts = name.key.rsplit(":", 3)
    return parts[1] if len(parts) == 4 else ""


def resolved(
    stored: GroupBlobs, group: int, where: str, database: Callable[[BlobName], BlobDatabase]
) -> GroupBlobs:
    """A group with its blobs in place of their names.

    Args:
        stored: The group as it is stored.
        group: Its number.
        where: The operator, for messages.
        database: Gives the database that has the blobs of a group; called with one of the names, if any.

    Raises:
        Corrupt: A blob is gone or damaged.
        Unavailable: The database does not answer.
    """
    every = [*stored.base, *stored.log]
    at = [place for place, blob in enumerate(every) if is_name(blob)]
    if not at:
        return stored
    names = [BlobName.decode(every[place]) for place in at]
    holder = database(names[0])
    for place, name, blob in zip(at, names, _fetched(names, holder), strict=True):
        every[place] = name.checked(blob, group, where, holder.product)
    return replace(stored, base=tuple(every[: len(stored.base)]), log=tuple(every[len(stored.base) :]))


def _fetched(names: Sequence[BlobName], database: BlobDatabase) -> Iterable[bytes | None]:
    """The blobs of these names, in one go unless they are large."""
    start = 0
    while start < len(names):
        stop, size = start, 0
        while stop < len(names) and (stop == start or size + names[stop].size_bytes <= _TOGETHER):
            size += names[stop].size_bytes
            stop += 1
        yield from database.fetch(names[start:stop])
        start = stop


def _blobs_of(write: Write) -> Iterable[bytes]:
    if write.append is not None:
        yield write.append
    yield from write.base or ()
