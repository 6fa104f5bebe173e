"""A store of keyed state that keeps its blobs in a database, under names recorded in Spark's state store.

Each key group has an index in the database with the names of its blobs, each with the last batch that
recorded it. Every request can be repeated if its answer was lost.

A blob is written under a unique name before Spark's store records the name. So a blob becomes part of the
state when Spark commits the batch, and a blob written by a failed, repeated or frozen task is never
referenced. Names and blobs are distinguished by their first bytes. One group may have both, so that the state
of a query can move to the database and back, one group at a time, when groups are folded.

Deletion of old blobs: for each key group the index has every blob, with the last batch in which a task wrote
it or gave the group a new base without it. A task records this batch before its store can reference or drop a
blob, and never lowers a recorded batch. A task of batch C that folds a group reads the blobs referenced at
the start of C, records C for them, and then deletes all blobs in the index with a batch before C - RETAINED -
MARGIN.

No blob that a restart may need is deleted. Names are unique, so a blob is referenced from the batch that
wrote it to the batch that replaced it, without a gap. Blobs referenced at the start of C have just been
recorded with C. Any other blob was never referenced, or was replaced by a batch committed before C: the index
has that batch or a later one, and all batches that Spark retains come after it. This also applies to a
repeated or late task, which reads the state at the start of its own batch. A query has its own indexes, so it
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

# A blob begins with the eight-byte fingerprint of its schema, a hash that never equals this value.
MAGIC: Final = b"\0HF-BLOB"
_HEAD: Final = struct.Struct("<8sQ16s")
_DAMAGED: Final = (
    "restore a savepoint, or an undamaged batch, as listed by `holdfast checkpoint verify CHECKPOINT`"
)


@dataclass(frozen=True, slots=True)
class BlobName:
    """The name of a blob in a database, with its size and hash.

    Attributes:
        key: The key in the database, which is never reused.
        size_bytes: The size of the blob.
        digest: The hash of the blob's bytes.
    """

    key: str
    size_bytes: int
    digest: bytes

    @classmethod
    def of(cls, key: str, blob: bytes) -> BlobName:
        """Return the name for a blob under this key."""
        return cls(key, len(blob), xxhash.xxh3_128_digest(blob))

    def encode(self) -> bytes:
        """Return the name as bytes, for Spark's store."""
        return _HEAD.pack(MAGIC, self.size_bytes, self.digest) + self.key.encode()

    @classmethod
    def decode(cls, data: bytes, where: str | None = None) -> BlobName:
        """Decode a name from the bytes of `encode`.

        Args:
            data: The encoded name.
            where: The operator and the key group, for error messages.

        Raises:
            Corrupt: The bytes are truncated, or the key is not valid UTF-8.
        """
        try:
            _, size_bytes, digest = _HEAD.unpack_from(data)
            return cls(data[_HEAD.size :].decode(), size_bytes, digest)
        except (struct.error, UnicodeDecodeError) as error:
            size = len(data)
            short = size < _HEAD.size
            raise Corrupt(
                "the reference from keyed state to a blob is truncated"
                if short
                else "the reference from keyed state to a blob is not valid UTF-8",
                code="HF-E6057",
                where=where,
                found=f"{size} bytes" if short else repr(data[_HEAD.size :][:80]),
                expected=f"at least {_HEAD.size} bytes" if short else "a key in UTF-8",
                hint=_DAMAGED,
            ) from error

    def checked(self, blob: bytes | None, group: int, where: str, product: str) -> bytes:
        """Return a blob fetched from a database, after checking its size and hash.

        Raises:
            Corrupt: The blob is missing, or its size or hash differs.
        """
        found: str | None = None
        expected: str | None = None
        if blob is None:
            fact = f"a blob of keyed state is missing in {product}"
        elif len(blob) == self.size_bytes and xxhash.xxh3_128_digest(blob) == self.digest:
            return blob
        else:
            digest = xxhash.xxh3_128_digest(blob)
            fact = f"a blob of keyed state is damaged in {product}"
            found = f"{len(blob)} bytes with the hash {digest.hex()}"
            expected = f"{self.size_bytes} bytes with the hash {self.digest.hex()}"
        raise Corrupt(
            fact,
            code="HF-E6058",
            where=f"{where}, key group {group}, key {self.key}",
            found=found,
            expected=expected,
            hint=f"restore the data of {product} from a replica or a backup; or restore a savepoint, which"
            " contains all blobs",
        )


def is_name(data: bytes) -> bool:
    """Return whether stored bytes are the name of a blob instead of a blob."""
    return data[: len(MAGIC)] == MAGIC


# The pause before a retry doubles each time, up to this maximum.
_FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPatience:
    """The limits for retrying requests to a database.

    Attributes:
        patience_ms: The maximum total time in milliseconds.
        clock: Returns a time in seconds that only increases.
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
        """Return the result of a request, retrying it after failures.

        Args:
            question: Sends the request.
            failures: The exceptions after which the request may be retried.
            refusal: Returns the error for a permanent failure, or None for any other.
            silent: Returns the error for a failure after the maximum time.
            before_pause: Called before each retry with the failure and the pause in seconds.

        Raises:
            HoldfastError: The request failed permanently or for longer than the maximum time; the error is
                from `refusal`, `silent` or the request.
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
        batch_id: The batch of the task.
        before: The batch before which blobs may be deleted; see `folded`.
        noted: The names to record in the index with the task's batch, by key group.
        blobs: The blobs by key; `noted` includes all of their names.
        folded: The key groups for which to return the names that were last recorded before `before`.
    """

    batch_id: int
    before: int
    noted: dict[int, list[str]] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    folded: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReplacedBlobs:
    """The blobs of a key group that no retained batch needs.

    Attributes:
        group: The key group.
        names: The names of the blobs.
        before: The batch before which all of them were last recorded.
        noted_until: The time of the newest index entry read, in the database's unit; 0 if not needed.
    """

    group: int
    names: tuple[str, ...]
    before: int
    noted_until: int = 0


class BlobDatabase(Protocol):
    """The connection of a process to a database; threads may share it, processes may not.

    All methods raise `Unavailable` if the database does not answer in time, and `Invalid` if it rejects the
    user, the password or a request.
    """

    @property
    def product(self) -> str:
        """Return the product name of the database, for error messages."""

    def write(self, home: str, writes: BlobWrites) -> list[ReplacedBlobs]:
        """Record names, then write the blobs; return the blobs that can be deleted.

        The recorded batch of a name is never lowered, and a name is recorded before its blob is written. The
        result does not include names recorded by this call.

        Args:
            home: The prefix of the keys of this operator in this query.
            writes: The names and blobs to write, and the groups to check.
        """

    def fetch(self, names: Sequence[BlobName]) -> Sequence[bytes | None]:
        """Return the blobs with these names in order, None for a missing one, without checking their content.

        All blobs of a call are in memory at the same time.
        """

    def delete(self, home: str, replaced: Sequence[ReplacedBlobs]) -> None:
        """Delete blobs, then their names in the indexes; index entries added since may remain."""


class BlobServer(Hashable, Protocol):
    """The address and settings of a database: a frozen value that is sent to the workers."""

    @property
    def product(self) -> str:
        """Return the product name of the database, for error messages."""

    @property
    def prefix(self) -> str:
        """Return the prefix of all keys."""

    def connect(self) -> BlobDatabase:
        """Return a new connection, which is opened at its first request.

        Raises:
            Unsupported: The client library of the database is not installed.
        """

    def described(self) -> Mapping[str, Any]:
        """Return the fields of the address for an operator's note, without the password."""


def blob_key(home: str, group: int, name: str) -> str:
    """Return the key of a blob: the key of its group's index, followed by its name."""
    return f"{home}:{group}:{name}"


def database_at(server: BlobServer) -> BlobDatabase:
    """Return the connection of this process, which is reused by later batches; a forked process gets its own.

    Raises:
        Unsupported: The client library of the database is not installed.
    """
    return _database(server, os.getpid())


@cache
def _database(server: BlobServer, _: int) -> BlobDatabase:
    return server.connect()


# The number of batches that Spark retains by default.
RETAINED: Final = 100
# Blobs are kept for this many more batches than Spark retains, because Spark deletes old files late.
MARGIN: Final = 10
# The number of bytes sent or fetched in one request.
_TOGETHER: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Blobs:
    """The blobs of an operator that are stored in a database.

    Attributes:
        server: The address of the database.
        least_bytes: The minimum size of blobs to store in the database; None stores no new blobs there and
            moves existing ones back.
    """

    server: BlobServer
    least_bytes: int | None


@dataclass(frozen=True, slots=True)
class BlobTask:
    """The identity of a task that writes blobs.

    Attributes:
        operator: The operator's name.
        query_id: The query's id.
        batch_id: The batch.
        token: A string unique to this task, also between attempts at the same batch.
        retained: The number of batches that Spark retains.
    """

    operator: str
    query_id: str
    batch_id: int
    token: str
    retained: int = RETAINED


class BlobStore:
    """A store that puts the large blobs of an underlying store into a database.

    Args:
        store: The store with the committed state and the names.
        blobs: The address of the database, and the minimum size of blobs to store there.
        task: The identity of the task.
        database: The connection to the database.
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
        """Return the records of groups; None for a group without state."""
        return self._store.metas(groups)

    def load(self, group: int) -> GroupBlobs:
        """Return all blobs of a group; those in the database are fetched.

        Raises:
            Corrupt: A blob in the database is missing or differs from its recorded hash.
            Unavailable: The database does not answer in time.
        """
        stored = self._store.load(group)
        self._named[group] = self._own_names(group, stored)
        return resolved(stored, group, f"operator {self._task.operator}", lambda _: self._database)

    def write(self, writes: Iterable[Write]) -> None:
        """Write blobs to the database, then their names and all other data to the underlying store.

        Raises:
            Unavailable: The database does not answer in time.
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
        """Return the write with names instead of blobs, and add to `sent` what must be written to the
        database first.
        """
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
        """Return the names of this query's blobs that a group references at the start of the batch."""
        if group not in self._named:
            self._named[group] = self._own_names(group, self._store.load(group))
        return self._named[group]

    def _own_names(self, group: int, stored: GroupBlobs) -> set[str]:
        start = blob_key(self._home, group, "")
        where = f"operator {self._task.operator}, key group {group}"
        keys = [BlobName.decode(blob, where).key for blob in (*stored.base, *stored.log) if is_name(blob)]
        return {key.removeprefix(start) for key in keys if key.startswith(start)}


class BlobReader:
    """A store that reads blobs from a database by name and never writes any there.

    Args:
        store: The store with the committed state.
        operator: The operator's name, for error messages.
        database: The connection to the database, or None without an address.
    """

    def __init__(self, store: PartitionStore, operator: str, database: BlobDatabase | None = None) -> None:
        self._store = store
        self._where = f"operator {operator}"
        self._database = database

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """Return the records of groups; None for a group without state."""
        return self._store.metas(groups)

    def load(self, group: int) -> GroupBlobs:
        """Return all blobs of a group; those in the database are fetched.

        Raises:
            Invalid: Some blobs are in a database, but no address was given.
            Corrupt: A blob in the database is missing or differs from its recorded hash.
            Unavailable: The database does not answer in time.
        """

        def database(_: BlobName) -> BlobDatabase:
            if self._database is None:
                raise blobs_elsewhere(self._where, f"blobs of key group {group} in the database")
            return self._database

        return resolved(self._store.load(group), group, self._where, database)

    def write(self, writes: Iterable[Write]) -> None:
        """Write groups to the underlying store."""
        self._store.write(writes)


def blobs_elsewhere(where: str, found: str, product: str | None = None) -> Invalid:
    """Return the error for state in a database without an address.

    Args:
        where: The operator.
        found: A description of the blobs that were found.
        product: The product name of the database, if known.
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
    """Return the operator in the key of a blob, or an empty string without one."""
    parts = name.key.rsplit(":", 3)
    return parts[1] if len(parts) == 4 else ""


def resolved(
    stored: GroupBlobs, group: int, where: str, database: Callable[[BlobName], BlobDatabase]
) -> GroupBlobs:
    """Return a group with its blobs in place of their names.

    Args:
        stored: The stored group.
        group: The number of the group.
        where: The operator, for error messages.
        database: Returns the connection to the database; called with one of the names, if there are any.

    Raises:
        Corrupt: A blob in the database is missing or differs from its recorded hash.
        Unavailable: The database does not answer in time.
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
    """Yield the blobs with these names; several small blobs are fetched in one request."""
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
