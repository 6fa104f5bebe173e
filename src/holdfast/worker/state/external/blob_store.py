"""A store whose blobs are in a database: the store that holds the truth has their names.

A blob is written under a name that is never given twice, before the store is told the name. So the name
counts when Spark commits the batch and not before, and what a failed, repeated or frozen task has written is
a blob that nothing names. Names and blobs are told apart by their first bytes: both may be in one group, so
that the state of a query can move to the database and back, a group at a time as groups are folded.

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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.errors import Invalid
from holdfast.worker.state.external.blob_database import BlobDatabase, BlobServer, BlobWrites, blob_key
from holdfast.worker.state.external.blob_name import BlobName, is_name
from holdfast.worker.state.store import Meta, Store, Stored, Write

# Spark's own number of batches that it retains, where nobody has set another.
RETAINED: Final = 100
# So many batches more are kept than Spark retains, whose own cleaning is late by some.
MARGIN: Final = 10
# Blobs are sent and fetched so many bytes at a time.
_TOGETHER: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Blobs:
    """Which blobs of an operator are kept in a database.

    Attributes:
        server: Where the database is.
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


class BlobStore:
    """Keeps the large blobs of another store in a database.

    Args:
        store: The store that holds the truth, and the names.
        blobs: Which blobs are kept in the database.
        task: The task.
        database: The database.
    """

    def __init__(self, store: Store, blobs: Blobs, task: BlobTask, database: BlobDatabase) -> None:
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

    def load(self, group: int) -> Stored:
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

    def _own_names(self, group: int, stored: Stored) -> set[str]:
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

    def __init__(self, store: Store, operator: str, database: BlobDatabase | None = None) -> None:
        self._store = store
        self._where = f"operator {operator}"
        self._database = database

    def metas(self, groups: Sequence[int]) -> list[Meta | None]:
        """The records of groups, None for one without state."""
        return self._store.metas(groups)

    def load(self, group: int) -> Stored:
        """All blobs of a group.

        Raises:
            Invalid: Some are in a database, and nobody has said where that is.
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
    """The error for state that is in a database, where nobody says where that is.

    Args:
        where: The operator.
        found: What is there.
        product: Which database it is, where that is known.
    """
    choice = "hf.Redis(…) or hf.Cassandra(…)" if product is None else f"hf.{product}(…)"
    return Invalid(
        f"the state of this operator is in {product or 'a database'}, and the operator is not told where",
        where=where,
        found=found,
        hint=f"write process(…, blobs={choice}), as before; with blobs_from=None beside it the state comes "
        "back",
    )


def operator_of(name: BlobName) -> str:
    """The operator whose blob has this name; empty where no operator's has."""
    parts = name.key.rsplit(":", 3)
    return parts[1] if len(parts) == 4 else ""


def resolved(stored: Stored, group: int, where: str, database: Callable[[BlobName], BlobDatabase]) -> Stored:
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
