"""What a checkpoint holds, as values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.formats.logs.offset_log import PROVIDER
from holdfast.formats.providers import PROVIDERS
from holdfast.layout import StoreFile, StoreId

# Told of progress: what is done, what there is in all, and a note.
ProgressCallback = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """A source of the query.

    Attributes:
        name: Its number in the query, or the name that the query gave it.
        offset: Where the newest committed batch ended, as the source's own JSON; None before its first row.
        planned: Where the batch ends that is planned but not committed, if there is one.
    """

    name: str
    offset: str | None
    planned: str | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"name": self.name, "offset": _plain(self.offset), "planned": _plain(self.planned)}


@dataclass(frozen=True, slots=True)
class Store:
    """One store at the newest committed batch.

    Attributes:
        id: Operator, partition and name.
        version: The version that the batch made: one more than its id.
        files: What has to be read for it: a base, then one change for each batch since, oldest first.
        missing: The first file that is not there though it is needed.
        size_bytes: The bytes of those files, and of the data files that the base shares.
        new_bytes: The bytes that the newest batch added.
        base_keys: The keys in the base, where RocksDB counts them.
    """

    id: StoreId
    version: int
    files: tuple[StoreFile, ...]
    missing: str | None
    size_bytes: int
    new_bytes: int
    base_keys: int | None

    @property
    def base_version(self) -> int:
        """The version of the base; 0 where the changes begin with the first batch."""
        first = self.files[0] if self.files else None
        return first.version if first is not None and first.kind.whole else 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "partition": self.id.partition,
            "store": self.id.name,
            "version": self.version,
            "base_version": self.base_version,
            "files": len(self.files),
            "size_bytes": self.size_bytes,
            "new_bytes": self.new_bytes,
            "base_keys": self.base_keys,
            "missing": self.missing,
        }


@dataclass(frozen=True, slots=True)
class Operator:
    """A stateful operator.

    Attributes:
        operator_id: Its number in the plan.
        name: Spark's name for what it does.
        partitions: How many partitions its state has.
        gathered: Whether one task has all of it, since it goes by no key, however many are set.
        store_names: Its stores in each partition.
        format_version: 2 where state files have unique names, else 1.
        variables: The state variables of transformWithState.
        stores: Every store of every partition.
        oldest: The oldest version that partition 0 has a file of; the others are cleaned up with it.
    """

    operator_id: int
    name: str
    partitions: int
    gathered: bool
    store_names: tuple[str, ...]
    format_version: int
    variables: tuple[str, ...]
    stores: tuple[Store, ...]
    oldest: int | None

    @property
    def size_bytes(self) -> int:
        """The bytes that a restart reads."""
        return sum(store.size_bytes for store in self.stores)

    @property
    def new_bytes(self) -> int:
        """The bytes that the newest batch added."""
        return sum(store.new_bytes for store in self.stores)

    @property
    def base_keys(self) -> int | None:
        """The keys in the bases, if all of them are counted."""
        keys = [store.base_keys for store in self.stores]
        return sum(each for each in keys if each is not None) if keys and None not in keys else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "operator_id": self.operator_id,
            "name": self.name,
            "partitions": self.partitions,
            "gathered": self.gathered,
            "stores": list(self.store_names),
            "format_version": self.format_version,
            "variables": list(self.variables),
            "size_bytes": self.size_bytes,
            "new_bytes": self.new_bytes,
            "base_keys": self.base_keys,
            "oldest_version": self.oldest,
            "partition_stores": [store.as_dict() for store in self.stores],
        }


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint as its files tell it.

    Attributes:
        uri: Where it is.
        query_id: The id of its query, for life.
        offered: The batches in the offset log that are still kept, ascending.
        committed: The batches in the commit log that are still kept, ascending.
        batch_id: The newest committed batch; None before the first.
        watermark_ms: The watermark of the next batch; None without one.
        planned_ms: When the newest committed batch was planned, in epoch milliseconds.
        confs: The settings that the checkpoint has fixed.
        sources: The query's sources.
        operators: Its stateful operators.
        log_versions: Version of the offset log and of the commit log.
    """

    uri: str
    query_id: str
    offered: tuple[int, ...]
    committed: tuple[int, ...]
    batch_id: int | None
    watermark_ms: int | None
    planned_ms: int | None
    confs: Mapping[str, str]
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    log_versions: tuple[int, int] | None

    @property
    def uncommitted(self) -> int | None:
        """The batch that is planned and not committed: it runs now, or runs again at the next start."""
        newest = self.offered[-1] if self.offered else None
        return newest if newest is not None and newest != self.batch_id else None

    @property
    def provider(self) -> str | None:
        """The short name of the state store provider if it is one of Spark's, else that of its class."""
        name = self.confs.get(PROVIDER)
        return None if name is None or not self.operators else PROVIDERS.get(name, name)

    @property
    def size_bytes(self) -> int:
        """The bytes of state that a restart reads."""
        return sum(operator.size_bytes for operator in self.operators)

    @property
    def new_bytes(self) -> int:
        """The bytes of state that the newest batch added."""
        return sum(operator.new_bytes for operator in self.operators)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "checkpoint": self.uri,
            "query_id": self.query_id,
            "batch": self.batch_id,
            "uncommitted": self.uncommitted,
            "oldest_batch": self.committed[0] if self.committed else None,
            "batches": len(self.committed),
            "watermark_ms": self.watermark_ms,
            "planned_ms": self.planned_ms,
            "provider": self.provider,
            "size_bytes": self.size_bytes,
            "new_bytes": self.new_bytes,
            "sources": [source.as_dict() for source in self.sources],
            "operators": [operator.as_dict() for operator in self.operators],
            "confs": dict(self.confs),
            "log_versions": None
            if self.log_versions is None
            else {"offsets": self.log_versions[0], "commits": self.log_versions[1]},
        }


@dataclass(frozen=True, slots=True)
class OperatorBatch:
    """What a batch did to one operator."""

    operator_id: int
    name: str
    files: int
    new_bytes: int


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """A driver that failed before a batch was committed.

    Attributes:
        attempt: The number of the driver, over the job's whole life.
        at_ms: When it ended, in epoch milliseconds.
        cause: Whose it is to mend: `user code`, `source`, `sink`, `state`, `resources`, or `unknown`.
        error: The error in a line.
    """

    attempt: int
    at_ms: int
    cause: str
    error: str


@dataclass(frozen=True, slots=True)
class Batch:
    """A committed batch, as far as the files still tell.

    Attributes:
        batch_id: Its id.
        planned_ms: When it was planned, in epoch milliseconds.
        watermark_ms: The watermark it ran under; None without one.
        next_watermark_ms: The watermark that it made for the next.
        offsets: The end of each source, as its own JSON.
        operators: What it did to each operator; empty where its state files are gone.
        committed_ms: When it was committed, in epoch milliseconds; None where nothing tells.
        duration_ms: How long it took; None where nothing tells.
        duration_source: `registry` where a supervisor measured it, `files` where the times of its log files
            are all there is: an estimate, from the end of its planning to its commit.
        failures: The drivers that failed before it was committed; None where no registry knows the batch.
    """

    batch_id: int
    planned_ms: int
    watermark_ms: int | None
    next_watermark_ms: int | None
    offsets: Mapping[str, str | None]
    operators: tuple[OperatorBatch, ...]
    committed_ms: int | None = None
    duration_ms: int | None = None
    duration_source: str | None = None
    failures: tuple[BatchFailure, ...] | None = None

    @property
    def new_bytes(self) -> int:
        """The bytes of state that it added."""
        return sum(each.new_bytes for each in self.operators)

    @property
    def files(self) -> int:
        """The state files that it added."""
        return sum(each.files for each in self.operators)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "batch": self.batch_id,
            "planned_ms": self.planned_ms,
            "watermark_ms": self.watermark_ms,
            "next_watermark_ms": self.next_watermark_ms,
            "committed_ms": self.committed_ms,
            "duration_ms": self.duration_ms,
            "duration_source": self.duration_source,
            "failures": None if self.failures is None else [asdict(each) for each in self.failures],
            "files": self.files,
            "new_bytes": self.new_bytes,
            "offsets": {name: _plain(offset) for name, offset in self.offsets.items()},
            "operators": [
                {
                    "operator_id": each.operator_id,
                    "name": each.name,
                    "files": each.files,
                    "new_bytes": each.new_bytes,
                }
                for each in self.operators
            ],
        }


def _plain(offset: str | None) -> Any:
    return None if offset is None else json.loads(offset)
