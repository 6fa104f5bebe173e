"""The position of each source of a query: by topic and partition, table version, or log entry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from holdfast.changes.working_copy import no_batch
from holdfast.checkpoints.logs import Logs
from holdfast.formats.logs.batch_logs import DELTA_VERSION, OffsetLog, log_offset
from holdfast.json_shapes import JsonShape, json_as
from holdfast.storage.port import Storage


class SourceKind(str, Enum):
    """The type of a source, inferred from the form of its offset."""

    KAFKA = "kafka"
    DELTA = "delta"
    FILES = "files"
    OTHER = "other"


def _value(offset: str | None) -> Any:
    return None if offset is None else json.loads(offset)


@dataclass(frozen=True, slots=True)
class SourcePosition(JsonShape):
    """The position of a source.

    Attributes:
        source: The number of the source in the query, or the name that the query gave it.
        kind: `kafka`, `delta`, `files`, or `other`, inferred from the form of its offset.
        topic: The topic; null for sources other than Kafka.
        partition: The partition of the topic; null for sources other than Kafka.
        next: The next record offset, table version, or entry of the source's log; null if the offset does not
            contain it.
        offset: The offset in the source's own JSON; null before the first row.
    """

    source: str
    kind: SourceKind
    topic: str | None
    partition: int | None
    next: int | None
    offset: str | None = field(metadata=json_as(convert=_value))


@dataclass(frozen=True, slots=True)
class SourcePositions(JsonShape):
    """The positions of a query's sources after a batch.

    Attributes:
        place: The address of the checkpoint or savepoint.
        batch_id: The batch.
        sources: The position of every source; for Kafka, of every topic and partition.

    Example:
        positions: hf.SourcePositions = hf.offsets("checkpoints/orders")
        assert positions.batch_id == 11
        assert {source.topic for source in positions.sources} == {"orders", "refunds"}
    """

    place: str
    batch_id: int
    sources: tuple[SourcePosition, ...]


def read_positions(view: Storage, place: str) -> SourcePositions:
    """Return the positions of the sources after the newest committed batch.

    Args:
        view: The checkpoint, or a savepoint's view.
        place: The address of the checkpoint or savepoint.

    Raises:
        NotFound: No batch is committed.
        Corrupt: A log is damaged.
    """
    batch_id, offsets = newest_offsets(view)
    return SourcePositions(place, batch_id, positions_of(offsets.offsets))


def newest_offsets(view: Storage) -> tuple[int, OffsetLog]:
    """Return the newest committed batch, and the offsets at its end.

    Raises:
        NotFound: No batch is committed.
        Corrupt: A log is damaged.
    """
    logs = Logs(view)
    offsets = None if logs.newest is None else logs.offsets(logs.newest)
    if logs.newest is None or offsets is None:
        raise no_batch(view)
    return logs.newest, offsets


def positions_of(offsets: Mapping[str, str | None]) -> tuple[SourcePosition, ...]:
    """Return the positions of sources by their offsets."""
    return tuple(position for name, offset in offsets.items() for position in _of_source(name, offset))


def kind_of(offset: str | None) -> SourceKind:
    """Return the type of a source, inferred from the form of its offset."""
    value = _value(offset)
    if is_of_kafka(value):
        return SourceKind.KAFKA
    if isinstance(value, dict) and isinstance(value.get(DELTA_VERSION), int):
        return SourceKind.DELTA
    return SourceKind.FILES if log_offset(offset) is not None else SourceKind.OTHER


def is_of_kafka(value: Any) -> bool:
    """Return whether an offset has the form {"topic": {"0": 12}}."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(
            isinstance(partitions, dict)
            and all(name.isdecimal() and isinstance(at, int) for name, at in partitions.items())
            for partitions in value.values()
        )
    )


def _of_source(name: str, offset: str | None) -> Iterator[SourcePosition]:
    kind, value = kind_of(offset), _value(offset)
    if kind is SourceKind.KAFKA:
        for topic, partitions in sorted(value.items()):
            for partition, at in _by_number(partitions):
                yield SourcePosition(name, kind, topic, partition, at, offset)
        return
    entry = log_offset(offset)
    upcoming = value[DELTA_VERSION] if kind is SourceKind.DELTA else None if entry is None else entry + 1
    yield SourcePosition(name, kind, None, None, upcoming, offset)


def _by_number(partitions: Mapping[str, int]) -> Sequence[tuple[int, int]]:
    return sorted((int(name), at) for name, at in partitions.items())
