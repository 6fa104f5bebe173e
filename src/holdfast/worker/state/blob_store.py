"""A store with its blobs in a database, under names recorded in Spark's store.

Each key group has an index in the database: the names of its blobs, each with the last batch that recorded
it. Every request may be repeated after a lost answer.

A blob is written under a unique name before the store records the name. So a blob becomes part of the state
when Spark commits the batch, and a blob written by a failed, repeated or frozen task stays unreferenced.
Names and blobs are distinguished by their first bytes: both may be in one group, so that the state of a query
can move to the database and back, one group at a time as groups are folded.

Cleaning. For each key group the index has every blob, with the last batch in which a task wrote it or gave
the group a new base without it. A task records that before its store can reference or drop a blob, and never
lowers a recorded batch. A task of batch C that folds a group reads the blobs referenced at the start of C,
records C for them, and then deletes all blobs in the index with a batch before C - RETAINED - MARGIN.

No blob is deleted that a restart may need: names are unique, so a blob is referenced from the batch that
wrote it to the batch that replaced it, without a gap. Blobs referenced at the start of C have just been
recorded with C. Any other blob was never referenced, or was replaced by a batch committed before C: the index
has that batch or a later one, and all batches that Spark retains come after it. This also holds for a
repeated or late task, which sees the state at the start of its own batch. A query has its own indexes, so it
deletes only its own blobs.
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
_DAMAGED: Final = (
    "restore a savepoint, or create one from a batch that `holdfast checkpoint verify CHECKPOINT` lists as"
    " one that can still be restored"
)


@dataclass(frozen=True, slots=True)
class BlobName:
    """A blob in a database.

    Attributes:
        key: Its name in the database, which is never reused.
        size_bytes: Its size.
        digest: The hash of its bytes.
    """

    key: str
    size_bytes: int
    digest: bytes

    @classmethod
    def of(cls, key: str, blob: bytes) -> BlobName:
        """Return the name of these bytes."""
        return cls(key, len(blob), xxhash.xxh3_128_digest(blob))

    def encode(self) -> bytes:
        """Return the stored form."""
        return _HEAD.pack(MAGIC, self.size_bytes, self.digest) + self.key.encode()

    @classmethod
    def decode(cls, data: bytes, where: str | None = None) -> BlobName:
        """Read back what `encode` wrote.

        Args:
            data: The stored form.
            where: The operator and the key group, for messages.

        Raises:
            Corrupt: It is truncated, or its key is not text.
        """
        try:
            _, size_bytes, digest = _HEAD.unpack_from(data)
            return cls(data[_HEAD.size :].decode(), size_bytes, digest)
        except (struct.error, UnicodeDecodeError) as error:
            size = len(data)
            short = size < _HEAD.size
            raise Corrupt(
                "keyed state contains a damaged reference to a blob",
                code="HF-E6057",
                where=where,
                found=f"{size} bytes" if short else "a key that is not UTF-8",
                expected=f"at least {_HEAD.size} bytes" if short else "text",
                hint=_DAMAGED,
            ) from error

    def checked(self, blob: bytes | None, group: int, where: str, product: str) -> bytes:
        """Return a blob fetched from a database after checking it.

        Raises:
            Corrupt: It is missing, or its bytes differ.
        """
        if blob is None:
            fact, found = f"a blob of keyed state is missing in {product}", "nothing"
        elif len(blob) == self.size_bytes and xxhash.xxh3_128_digest(blob) == self.digest:
            return blob
        else:
            fact, found = (
                f"a blob of keyed state is damaged in {product}",
                f"{len(blob)} bytes with a different digest",
            )
        raise Corrupt(
            fact,
            code="HF-E6058",
            where=f"{where}, key group {group}, key {self.key}",
            found=found,
            expected=f"{self.size_bytes} bytes",
            hint=f"restore the data of {product} from a replica or a backup, or restore a savepoint, which"
            " contains all blobs; blobs of batches that are no longer retained have been deleted",
        )


def is_name(data: bytes) -> bool:
    """Return whether this is the name of a blob, and not a blob."""
    return data[: len(MAGIC)] == MAGIC


# The pause between two attempts doubles each time, up to this maximum.
_FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPatience:
    """The limits of retrying requests to a database.

    Attributes:
        patience_ms: The maximum time in milliseconds.
        clock: Returns the elapsed seconds.
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
        """Return the result of a request, retrying failures.

        Args:
            question: Sends the request.
            failures: The exceptions that may be retried.
            refusal: Returns the error for a permanent failure, None for any other.
            silent: Returns the error for a failure after the maximum time.
            before_pause: Called before each retry with the failure and the pause in seconds.

        Raises:
            HoldfastError: From `refusal`, `silent` or the request.
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
        before: The batch before which blobs may be deleted; see `folded`.
        noted: The names to record with the task's batch, by key group.
        blobs: The blobs by their keys; `noted` has all their names.
        folded: The key groups whose names last recorded before `before` are requested.
    """

    batch_id: int
    before: int
    noted: dict[int, list[str]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    folded: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReplacedBlobs:
    """The blobs of a key group that no batch needs any more.

    Attributes:
        group: The key group.
        names: Their names.
        before: The batch before which all of them were last recorded.
        noted_until: The time of the newest index entry read, in the database's unit; 0 if not needed.
    """

    group: int
    names: tuple[str, ...]
    before: int
    noted_until: int = 0


class BlobDatabase(Protocol):
    """The connection of this process to a database; threads may share it, processes may not.

    All methods raise `Unavailable` if it does not answer in time, and `Invalid` if it rejects the user, the
    password or a request.
    """

    @property
    def product(self) -> str:
        """The name of the database's product, for messages."""

    def write(self, home: str, writes: BlobWrites) -> list[ReplacedBlobs]:
        """Record names, then write the blobs; return the blobs that were replaced long ago.

        Never lowers the batch of a name. Records a name before writing its blob. The result does not include
        names recorded by this call.

        Args:
            home: The prefix of the keys of this operator of this query.
            writes: The names and blobs to write, and the groups to check.
        """

    def fetch(self, names: Sequence[BlobName]) -> Sequence[bytes | None]:
        """Return the blobs of these names in order, None for a missing one; does not check their content.

        All of them are in memory at once.
        """

    def delete(self, home: str, replaced: Sequence[ReplacedBlobs]) -> None:
        """Delete blobs, then their names in the indexes; an entry added since may stay."""


class BlobServer(Hashable, Protocol):
    """The address and settings of a database: a frozen value that is sent to the workers."""

    @property
    def product(self) -> str:
        """The name of the database's product, for messages."""

    @property
    def prefix(self) -> str:
        """The prefix of all keys."""

    def connect(self) -> BlobDatabase:
        """Return a new connection, which connects at its first request.

        Raises:
            Unsupported: The client is not installed.
        """

    def described(self) -> Mapping[str, Any]:
        """Return the description for an operator's note, without the password."""


def blob_key(home: str, group: int, name: str) -> str:
    """Return the key of a blob: the name of its group's index, then its own."""
    return f"{home}:{group}:{name}"


def database_at(server: BlobServer) -> BlobDatabase:
    """Return the connection of this process, which outlives batches; a forked process has its own.

    Raises:
        Unsupported: The client is not installed.
    """
    return _database(server, os.getpid())


@cache
def _database(server: BlobServer, _: int) -> BlobDatabase:
    return server.connect()


# The number of batches that Spark retains by default.
RETAINED: Final = 100
# Blobs are kept for this many batches more than Spark retains, because Spark's cleaning lags behind.
MARGIN: Final = 10
# The number of bytes sent or fetched at a time.
_TOGETHER: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Blobs:
    """The blobs of an operator that are stored in a database.

    Attributes:
        server: The database.
        least_bytes: The minimum size of blobs to store there; None writes no more and moves existing ones
            back.
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
        token: Text unique to this task, also among attempts at the same batch.
        retained: The number of batches that Spark retains.
    """

    operator: str
    query_id: str
    batch_id: int
    token: str
    retained: int = RETAINED


class BlobStore:
    """A store that puts the large blobs of another store into a database.

    Args:
        store: The store that holds the committed state, and the names.
        blobs: The database, and the minimum size of blobs to store there.
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
        """Return the records of groups, None for a group without state."""
        return self._store.metas(groups)

    def load(self, group: int) -> GroupBlobs:
        """Return all blobs of a group; those in the database are fetched.

        Raises:
            Corrupt: A blob is missing or damaged.
            Unavailable: The database does not answer.
        """
        stored = self._store.load(group)
        self._named[group] = self._own_names(group, stored)
        return resolved(stored, group, f"operator {self._task.operator}", lambda _: self._database)

    def write(self, writes: Iterable[Write]) -> None:
        """Write blobs to the database, then their names and all other data to the store.

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
        """Return the write with names instead of blobs, and collect what to write to the database first."""
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
        """Return the blobs of this query that a group references at the start of the batch."""
        if group not in self._named:
            self._named[group] = self._own_names(group, self._store.load(group))
        return self._named[group]

    def _own_names(self, group: int, stored: GroupBlobs) -> set[str]:
        start = blob_key(self._home, group, "")
        where = f"operator {self._task.operator}, key group {group}"
        keys = [BlobName.decode(blob, where).key for blob in (*stored.base, *stored.log) if is_name(blob)]
        return {key.removeprefix(start) for key in keys if key.startswith(start)}


class BlobReader:
    """Reads blobs by the names in a store, and writes none.

    Args:
        store: The store that holds the committed state.
        operator: The operator's name, for messages.
        database: The database; None if its address is not given.
    """

    def __init__(self, store: PartitionStore, operator: str, database: BlobDatabase | None = None) -> None:
        self._store = store
        self._where = f"operator {operator}"
        self._database = database

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """Return the records of groups, None for a group without state."""
        return self._store.metas(groups)

    def load(self, group: int) -> GroupBlobs:
        """Return all blobs of a group.

        Raises:
            Invalid: Some are in a database whose address is not given.
            Corrupt: A blob is missing or damaged.
            Unavailable: The database does not answer.
        """

        def database(_: BlobName) -> BlobDatabase:
            if self._database is None:
                raise blobs_elsewhere(self._where, f"blobs of key group {group} in the database")
            return self._database

        return resolved(self._store.load(group), group, self._where, database)

    def write(self, writes: Iterable[Write]) -> None:
        """Write groups."""
        self._store.write(writes)


def blobs_elsewhere(where: str, found: str, product: str | None = None) -> Invalid:
    """Return the error for state in a database whose address is not given.

    Args:
        where: The operator.
        found: The blobs that were found.
        product: The name of the database, if known.
    """
    choice = "hf.Redis(…) or hf.Cassandra(…)" if product is None else f"hf.{product}(…)"
    return Invalid(
        f"state of this operator is in {product or 'a database'}, but no address is given",
        code="HF-E2515",
        where=where,
        found=found,
        hint=f"pass process(…, blobs={choice}) as before, with blobs_from=None to move the state back to the"
        " checkpoint",
    )


def operator_of(name: BlobName) -> str:
    """Return the operator of a blob's name; empty if it has none."""
    parts = name.key.rsplit(":", 3)
    return parts[1] if len(parts) == 4 else ""


def resolved(
    stored: GroupBlobs, group: int, where: str, database: Callable[[BlobName], BlobDatabase]
) -> GroupBlobs:
    """Return a group with its blobs in place of their names.

    Args:
        stored: The stored group.
        group: Its number.
        where: The operator, for messages.
        database: Returns the database with the blobs of a group; called with one of the names, if any.

    Raises:
        Corrupt: A blob is missing or damaged.
        Unavailable: The database does not answer.
    """
    every = [*stored.base, *stored.log]
    at = [place for place, blob in enumerate(every) if is_name(blob)]
    if not at:
        return stored
    names = [BlobName.decode(every[place], f"{where}, key group {group}") for place in at]
    holder = database(names[0])
    for place, name, blob in zip(at, names, _fetched(names, holder), strict=True):
        every[place] = name.checked(blob, group, where, holder.product)
    return replace(stored, base=tuple(every[: len(stored.base)]), log=tuple(every[len(stored.base) :]))


def _fetched(names: Sequence[BlobName], database: BlobDatabase) -> Iterable[bytes | None]:
    """Yield the blobs of these names, in one request unless they are large."""
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
