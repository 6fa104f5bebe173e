"""How many requests a query makes of an object store, counted from what Spark and Hadoop's S3A do.

The terms were counted at a real S3 server, request by request, and each is what one step of the code asks
for. S3A has no directories: whether a path is there is asked with a HEAD for a file of that name and, if
there is none, with a LIST for anything below it. So nearly every look costs two requests, and one file of a
checkpoint costs twenty-two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.json_shapes import JsonShape, in_json

DAY_MS: Final = 86_400_000
# Spark's own settings where nobody has changed them.
MAINTENANCE_MS: Final = 60_000
DELTAS_FOR_SNAPSHOT: Final = 10
RETAIN: Final = 100


@dataclass(frozen=True, slots=True)
class Requests(JsonShape):
    """Requests by how object stores charge for them.

    Attributes:
        writes: Objects written or copied (PUT, COPY).
        lists: Listings (LIST).
        reads: Objects read, or asked about (GET, HEAD).
        deletes: Objects deleted (DELETE), which most stores do for nothing.
    """

    writes: float = 0.0
    lists: float = 0.0
    reads: float = 0.0
    deletes: float = 0.0

    @property
    @in_json
    def total(self) -> float:
        """All of them."""
        return self.writes + self.lists + self.reads + self.deletes

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            self.writes + other.writes,
            self.lists + other.lists,
            self.reads + other.reads,
            self.deletes + other.deletes,
        )

    def times(self, factor: float) -> Requests:
        """So many times as many."""
        return Requests(self.writes * factor, self.lists * factor, self.reads * factor, self.deletes * factor)


NONE: Final = Requests()
# Whether a path is there, where it is not: HEAD, then LIST.
ABSENT: Final = Requests(reads=1, lists=1)
# The same of a path that is a file.
PRESENT: Final = Requests(reads=1)
# A rename within S3A: source and target are looked at, the source once more, then COPY and DELETE.
_RENAME: Final = PRESENT + ABSENT + PRESENT + Requests(writes=1, deletes=1)
# What Hadoop's FileContext asks before it renames, which it does twice over: source, target, target's parent.
_BEFORE_RENAME: Final = PRESENT + ABSENT + ABSENT
# All that the rename of a temporary file takes.
RENAMING: Final = _BEFORE_RENAME.times(2) + _RENAME
# A file that Spark puts in place whole: its parent, then the temporary file is looked for, and once more by
# the LIST of its creation, written, and renamed.
WHOLE_FILE: Final = ABSENT + ABSENT + Requests(lists=1) + Requests(writes=1) + RENAMING
# A file of data that RocksDB's snapshots share: looked for, then uploaded where it belongs.
DATA_FILE: Final = ABSENT + Requests(writes=1)
# A file that is deleted: looked at, deleted, and S3A looks whether its folder would be empty.
DELETED: Final = PRESENT + Requests(deletes=1, lists=1)
# The same of a file of data, for which Spark looks for a checksum that no such file has.
_DATA_DELETED: Final = DELETED + ABSENT
# What RocksDB's cleaning looks through before it deletes data: the folder of data, and the one of logs, which
# is not there.
_CLEANING: Final = Requests(lists=1) + ABSENT
# A file of the offset log or the commit log, of which Spark asks first whether it is there.
LOG_FILE: Final = ABSENT + WHOLE_FILE


@dataclass(frozen=True, slots=True)
class QueryShape:
    """What of a query decides how many requests it makes.

    Attributes:
        stores: State stores that each batch commits: those of every partition of every operator.
        incremental: Whether a batch writes its changes and a snapshot follows every so many of them; else
            each batch of RocksDB writes a snapshot.
        rocksdb: Whether the stores are RocksDB's; else they are on the heap.
        checksums: Whether each file of state has a file with its checksum beside it.
        log_sources: Sources that write a file into the checkpoint for each batch, as those of files do.
        snapshot_files: The files of data that a snapshot of RocksDB adds.
        deltas_for_snapshot: The batches from one snapshot to the next, where it is incremental.
        maintenance_ms: The time from one maintenance of the stores to the next.
    """

    stores: int
    incremental: bool = True
    rocksdb: bool = True
    checksums: bool = True
    log_sources: int = 0
    snapshot_files: float = 1.0
    deltas_for_snapshot: int = DELTAS_FOR_SNAPSHOT
    maintenance_ms: int = MAINTENANCE_MS


@dataclass(frozen=True, slots=True)
class DailyRequests(JsonShape):
    """The requests of a day, by what makes them.

    Attributes:
        per_batch: Of one batch.
        batches: How many batches a day has.
        maintenance: Of the maintenance of the stores in a day: snapshots, and what is no longer needed.
        total: All of a day.
    """

    per_batch: Requests
    batches: float
    maintenance: Requests
    total: Requests


def daily_requests(shape: QueryShape, interval_ms: float) -> DailyRequests:
    """The requests of a day.

    Args:
        shape: The query.
        interval_ms: The time from one batch to the next.
    """
    batches = DAY_MS / interval_ms
    per_batch = batch_requests(shape)
    maintenance = maintenance_requests(shape, interval_ms).times(DAY_MS / shape.maintenance_ms)
    return DailyRequests(per_batch, batches, maintenance, per_batch.times(batches) + maintenance)


def batch_requests(shape: QueryShape) -> Requests:
    """The requests that a batch makes: its two logs, the logs of sources, and what each store writes.

    Once as many batches are kept as may be, each new one lets an old one be deleted, now or with the next
    maintenance; so what a batch writes is deleted once, and counted here.
    """
    logs = (LOG_FILE + DELETED).times(2 + shape.log_sources)
    return logs + _store_requests(shape).times(shape.stores)


def snapshot_requests(shape: QueryShape) -> Requests:
    """The requests of one snapshot of one store, from its first file to its deletion.

    That is a file with its checksum and, of RocksDB, the files of data that no earlier snapshot has.
    """
    own = (WHOLE_FILE + DELETED).times(_files(shape))
    return own + (DATA_FILE + _DATA_DELETED).times(shape.snapshot_files if shape.rocksdb else 0)


def maintenance_requests(shape: QueryShape, interval_ms: float) -> Requests:
    """The requests of one maintenance of all stores.

    It lists each store, a store on the heap twice; it makes a snapshot of each for which enough batches have
    gone by, where batches make none; and it looks through the data of RocksDB when a snapshot goes.

    Args:
        shape: The query.
        interval_ms: The time from one batch to the next.
    """
    batches = shape.maintenance_ms / interval_ms
    look = Requests(lists=1 if shape.rocksdb else 2)
    snapshots = min(1.0, batches / shape.deltas_for_snapshot) if shape.incremental else 0.0
    cleanings = (snapshots if shape.incremental else min(1.0, batches)) if shape.rocksdb else 0.0
    a_store = look + snapshot_requests(shape).times(snapshots) + _CLEANING.times(cleanings)
    return a_store.times(shape.stores)


def _store_requests(shape: QueryShape) -> Requests:
    change = (WHOLE_FILE + DELETED).times(_files(shape))
    return change if shape.incremental else snapshot_requests(shape)


def _files(shape: QueryShape) -> int:
    return 2 if shape.checksums else 1
