"""What a checkpoint holds, as values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.formats.logs.offset_log import PROVIDER
from holdfast.formats.operators import KEYED_WORDS, FamilyUse, OperatorName, state_name, use_of
from holdfast.formats.providers import ExternalState, external_state, provider_name
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_as, json_spread
from holdfast.layout import StoreFile, StoreId

# What JSON has of an operator's names.
NAMES: Final = ("display_name", "operator_kind", "spark_name")
# Told of progress: what is done, what there is in all, and a note.
ProgressCallback = Callable[[int, int, str], None]


def _offset(written: str | None) -> Any:
    return None if written is None else json.loads(written)


def _offsets(written: Mapping[str, str | None]) -> dict[str, Any]:
    return {name: _offset(offset) for name, offset in written.items()}


def _log_versions(versions: tuple[int, int] | None) -> dict[str, int] | None:
    return None if versions is None else {"offsets": versions[0], "commits": versions[1]}


@dataclass(frozen=True, slots=True)
class Source(JsonShape):
    """A source of the query.

    Attributes:
        name: Its number in the query, or the name that the query gave it.
        offset: Where the newest committed batch ended, as the source's own JSON; None before its first row.
        planned: Where the batch ends that is planned but not committed, if there is one.
    """

    name: str
    offset: str | None = field(metadata=json_as(convert=_offset))
    planned: str | None = field(metadata=json_as(convert=_offset))


@dataclass(frozen=True, slots=True)
class Store(JsonShape):
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

    id: StoreId = field(metadata=json_spread("partition", "store"))
    version: int
    files: tuple[StoreFile, ...] = field(
        metadata=json_as(convert=len, says="How many files are read for it.")
    )
    missing: str | None
    size_bytes: int
    new_bytes: int
    base_keys: int | None

    @property
    @in_json
    def base_version(self) -> int:
        """The version of the base; 0 where the changes begin with the first batch."""
        first = self.files[0] if self.files else None
        return first.version if first is not None and first.kind.whole else 0


@dataclass(frozen=True, slots=True)
class Operator(JsonShape):
    """A stateful operator.

    Attributes:
        operator_id: Its number in the plan.
        name: Spark's name for what it does, as `OperatorName.spark_name` has it.
        partitions: How many partitions its state has.
        gathered: Whether one task has all of it, since it goes by no key, however many are set.
        store_names: Its stores in each partition.
        format_version: 2 where state files have unique names, else 1.
        variables: The state variables of transformWithState.
        stores: Every store of every partition.
        oldest: The oldest version that partition 0 has a file of; the others are cleaned up with it.
        named: What it is called.
        noted: Whether Spark has noted anything of it, as every Spark since 4.0 does.
    """

    operator_id: int
    name: str
    partitions: int
    gathered: bool
    store_names: tuple[str, ...] = field(metadata=json_as("stores"))
    format_version: int
    variables: tuple[str, ...]
    stores: tuple[Store, ...] = field(metadata=json_as("partition_stores"))
    oldest: int | None = field(metadata=json_as("oldest_version"))
    named: OperatorName = field(metadata=json_spread(*NAMES))
    noted: bool = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def state_names(self) -> tuple[str, ...]:
        """What people call its states, without those that only serve another."""
        if self.variables and self.named.operator_kind != KEYED_WORDS:
            return self.variables
        stores = (name for name in self.store_names if use_of(self.name, name) in (None, FamilyUse.JOIN_ROWS))
        return tuple(state_name(self.named, name) for name in stores)

    @property
    @in_json
    def size_bytes(self) -> int:
        """The bytes that a restart reads."""
        return sum(store.size_bytes for store in self.stores)

    @property
    @in_json
    def new_bytes(self) -> int:
        """The bytes that the newest batch added."""
        return sum(store.new_bytes for store in self.stores)

    @property
    @in_json
    def base_keys(self) -> int | None:
        """The keys in the bases, if all of them are counted."""
        keys = [store.base_keys for store in self.stores]
        return sum(count for count in keys if count is not None) if keys and None not in keys else None


@dataclass(frozen=True, slots=True)
class Checkpoint(JsonShape):
    """A checkpoint as its files tell it.

    Attributes:
        uri: Its address.
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

    uri: str = field(metadata=json_as("checkpoint"))
    query_id: str
    offered: tuple[int, ...] = field(metadata=NOT_IN_JSON)
    committed: tuple[int, ...] = field(metadata=json_as("batches", len, "How many batches are kept."))
    batch_id: int | None = field(metadata=json_as(formerly="batch"))
    watermark_ms: int | None
    planned_ms: int | None
    confs: Mapping[str, str]
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
    log_versions: tuple[int, int] | None = field(metadata=json_as(convert=_log_versions))

    @property
    @in_json
    def uncommitted(self) -> int | None:
        """The batch that is planned and not committed: it runs now, or runs again at the next start."""
        newest = self.offered[-1] if self.offered else None
        return newest if newest is not None and newest != self.batch_id else None

    @property
    @in_json
    def provider(self) -> str | None:
        """The short name of the state store provider if Spark or Holdfast has it, else its class."""
        external = self.external
        name = self.confs.get(PROVIDER) if external is None else external.provider
        return None if name is None or not self.operators else provider_name(name)

    @property
    @in_json
    def database(self) -> str | None:
        """The database that has the state, or that had it before a savepoint; None where files have it."""
        external = self.external
        return None if external is None else external.database

    @property
    def external(self) -> ExternalState | None:
        """Where the state is or was, if that is a database."""
        return external_state(self.confs)

    @property
    @in_json
    def size_bytes(self) -> int:
        """The bytes of state that a restart reads."""
        return sum(operator.size_bytes for operator in self.operators)

    @property
    @in_json
    def new_bytes(self) -> int:
        """The bytes of state that the newest batch added."""
        return sum(operator.new_bytes for operator in self.operators)

    @property
    @in_json
    def oldest_batch(self) -> int | None:
        """The oldest committed batch that is still kept."""
        return self.committed[0] if self.committed else None


@dataclass(frozen=True, slots=True)
class OperatorBatch:
    """What a batch did to one operator.

    Attributes:
        operator_id: Its number in the plan.
        name: Spark's name for what it does.
        files: The state files that the batch added.
        new_bytes: Their bytes.
        named: What it is called.
    """

    operator_id: int
    name: str
    files: int
    new_bytes: int
    named: OperatorName = field(metadata=json_spread(*NAMES))


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
class Batch(JsonShape):
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

    batch_id: int = field(metadata=json_as(formerly="batch"))
    planned_ms: int
    watermark_ms: int | None
    next_watermark_ms: int | None
    offsets: Mapping[str, str | None] = field(metadata=json_as(convert=_offsets))
    operators: tuple[OperatorBatch, ...]
    committed_ms: int | None = None
    duration_ms: int | None = None
    duration_source: str | None = None
    failures: tuple[BatchFailure, ...] | None = None

    @property
    @in_json
    def new_bytes(self) -> int:
        """The bytes of state that it added."""
        return sum(operator.new_bytes for operator in self.operators)

    @property
    @in_json
    def files(self) -> int:
        """The state files that it added."""
        return sum(operator.files for operator in self.operators)
