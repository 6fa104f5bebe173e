"""The offset log, the commit log, and the file `metadata` of a checkpoint.

A file of the commit log has a version line and a line of metadata. Version 2 has the unique ids of the
batch's state files; version 3 also has facts about the sink.

A file of the offset log has a version line, a line of metadata, and a line for each source: by position in
version 1, as `name:offset` in version 2. An offset is the source's JSON, or `-` before the first one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import Conflict
from holdfast.formats.text import (
    HIGHEST_NUMBER,
    PARTITIONS,
    compact,
    damaged,
    decoded,
    is_plain,
    json_object,
    json_value,
    string,
    version_of,
    whole_number,
)
from holdfast.storage.successors import replaced_by

COMMIT_LOG_VERSIONS: Final = (1, 2, 3)
_COMMIT_LOG = "the commit log"

# By operator, partition and store, in the order in which the operator's metadata lists its stores.
StateIds = Mapping[int, tuple[tuple[str, ...], ...]]


@dataclass(frozen=True, slots=True)
class CommitLog:
    """One batch of the commit log.

    Attributes:
        version: The version of the file format: 1, 2 or 3.
        fields: The fields of the metadata, unchanged, including unknown ones.
        state_ids: The unique ids of the batch's state files, or None in state-checkpoint format 1.
    """

    version: int
    fields: Mapping[str, Any]
    state_ids: StateIds | None

    @property
    def next_watermark_ms(self) -> int:
        """Return the watermark of the next batch, in epoch milliseconds."""
        return int(self.fields.get("nextBatchWatermarkMs", 0))

    def render(self) -> bytes:
        """Return the bytes of the file."""
        return f"v{self.version}\n{compact(self.fields)}".encode()


def parse_commit(data: bytes, where: str) -> CommitLog:
    """Parse a file of the commit log.

    Raises:
        Corrupt: The file is not in the format that Spark writes.
        Unsupported: The version of the file is unknown.
    """
    version_line, *lines = decoded(data, _COMMIT_LOG, where).split("\n")
    version = version_of(version_line.strip(), COMMIT_LOG_VERSIONS, _COMMIT_LOG, where)
    if len(lines) != 1:
        raise damaged(_COMMIT_LOG, where, f"{len(lines) + 1} lines", "a version line and a metadata line")
    place = f"{where}, line 2"
    fields = json_object(lines[0], _COMMIT_LOG, place)
    whole_number(fields, "nextBatchWatermarkMs", _COMMIT_LOG, place, 0)
    given = fields.get("stateUniqueIds")
    return CommitLog(version, fields, None if given is None else _state_ids(given, place))


def _state_ids(given: Any, where: str) -> StateIds:
    try:
        found = {
            int(operator): tuple(tuple(partition) for partition in partitions)
            for operator, partitions in given.items()
        }
        ids = [store_id for parts in found.values() for part in parts for store_id in part]
        # Each id is a part of a file's name.
        if all(isinstance(store_id, str) and is_plain(store_id) for store_id in ids):
            return found
    except (AttributeError, TypeError, ValueError):  # not an id that Spark writes
        pass
    raise damaged(_COMMIT_LOG, where, f"`stateUniqueIds` is {given!r}", "lists of ids per operator")


OFFSET_LOG_VERSIONS: Final = (1, 2)
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
CODEC: Final = "spark.sql.streaming.stateStore.compression.codec"
ROW_CHECKSUM: Final = "spark.sql.streaming.stateStore.rowChecksum.enabled"
ENCODING: Final = "spark.sql.streaming.stateStore.encodingFormat"
MERGE_OPERATOR: Final = "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion"
NO_OFFSET: Final = "-"
# The only field in an offset of Holdfast's source of ticks, which is added to a stream that may be idle.
TICK_AT: Final = "at_ms"
# The field in an offset of a Delta table with the version that is read next.
DELTA_VERSION: Final = "reservoirVersion"
_OFFSET_LOG = "the offset log"


@dataclass(frozen=True, slots=True)
class OffsetLog:
    """One batch of the offset log.

    Attributes:
        version: The version of the file format: 1 or 2.
        fields: The fields of the metadata, unchanged, including unknown ones; None if the line is empty.
        offsets: The end offset of each source in the batch, as the source's JSON, by position or name.
    """

    version: int
    fields: Mapping[str, Any] | None
    offsets: Mapping[str, str | None]

    @property
    def watermark_ms(self) -> int:
        """Return the watermark of the batch in epoch milliseconds, or 0 without one."""
        return int((self.fields or {}).get("batchWatermarkMs", 0))

    @property
    def timestamp_ms(self) -> int:
        """Return the time at which the batch was planned, in epoch milliseconds."""
        return int((self.fields or {}).get("batchTimestampMs", 0))

    @property
    def confs(self) -> Mapping[str, str]:
        """Return the settings that the checkpoint fixes, which override those of the session."""
        confs: Mapping[str, str] = (self.fields or {}).get("conf", {})
        return confs

    @property
    def partitions(self) -> int | None:
        """Return the number of state partitions, or None if not recorded."""
        text = self.confs.get(SHUFFLE_PARTITIONS, "")
        known = text.isascii() and text.isdigit() and len(text) <= len(str(PARTITIONS))
        return int(text) if known and 0 < int(text) <= PARTITIONS else None

    @property
    def notes_operators(self) -> bool:
        """Return whether the version of Spark that planned the batch writes operator metadata."""
        return of_spark_4(self.confs)

    def is_maintenance_after(self, before: OffsetLog) -> bool:
        """Return whether this batch read nothing and changed only state, as a repartition does.

        Such a batch has the offsets, the watermark and the time of the previous batch. Sinks do not receive
        it.
        """
        return (
            self.offsets == before.offsets
            and self.watermark_ms == before.watermark_ms
            and self.timestamp_ms == before.timestamp_ms
        )

    def render(self) -> bytes:
        """Return the bytes of the file."""
        lines = [f"v{self.version}", "" if self.fields is None else compact(self.fields)]
        for name, offset in self.offsets.items():
            text = NO_OFFSET if offset is None else offset
            lines.append(text if self.version == 1 else f"{name}:{text}")
        return "\n".join(lines).encode()


def of_spark_4(confs: Mapping[str, str]) -> bool:
    """Return whether the fixed settings of a batch are those of Spark 4.0 or later.

    Since 4.0 Spark fixes the encoding of state, writes operator metadata, and has a second state format.
    """
    return ENCODING in confs


def fixes_partitions(version: int, confs: Mapping[str, str]) -> bool:
    """Return whether a log of this version with these fixed settings fixes the number of state partitions.

    Only the offset log of version 2 that Spark 4.2 begins does not.
    """
    return version == 1 or SHUFFLE_PARTITIONS in confs


def parse_offsets(data: bytes, where: str) -> OffsetLog:
    """Parse a file of the offset log.

    Raises:
        Corrupt: The file is not in the format that Spark writes.
        Unsupported: The version of the file is unknown.
    """
    version_line, *lines = decoded(data, _OFFSET_LOG, where).split("\n")
    version = version_of(version_line, OFFSET_LOG_VERSIONS, _OFFSET_LOG, where)
    if not lines:
        raise damaged(_OFFSET_LOG, where, "one line", "a metadata line and one line per source")
    fields = _metadata(lines[0], f"{where}, line 2") if lines[0].strip() else None
    offsets: dict[str, str | None] = {}
    for number, line in enumerate(lines[1:]):
        place = f"{where}, line {number + 3}"
        name, text = (str(number), line) if version == 1 else _split_line(line, place)
        if name in offsets:
            raise damaged(_OFFSET_LOG, place, f"duplicate source {name!r}")
        if text != NO_OFFSET:
            json_value(text, _OFFSET_LOG, place)
        offsets[name] = None if text == NO_OFFSET else text
    return OffsetLog(version, fields, offsets)


def log_offset(offset: str | None) -> int | None:
    """Return the newest entry of a source's log that an offset includes, or None without a log."""
    if offset is None:
        return None
    value = json_value(offset, _OFFSET_LOG, "an offset")
    number = value.get("logOffset") if isinstance(value, dict) else None
    known = isinstance(number, int) and not isinstance(number, bool) and -1 <= number <= HIGHEST_NUMBER
    return number if known else None


def is_tick(offset: str | None) -> bool:
    """Return whether an offset is from Holdfast's source of ticks, which has no log."""
    value = None if offset is None else json_value(offset, _OFFSET_LOG, "an offset")
    return isinstance(value, dict) and list(value) == [TICK_AT]


def _metadata(line: str, where: str) -> dict[str, Any]:
    fields = json_object(line, _OFFSET_LOG, where)
    whole_number(fields, "batchWatermarkMs", _OFFSET_LOG, where, 0)
    whole_number(fields, "batchTimestampMs", _OFFSET_LOG, where, 0)
    confs = fields.get("conf", {})
    if not isinstance(confs, dict) or not all(isinstance(value, str) for value in confs.values()):
        raise damaged(_OFFSET_LOG, where, f"`conf` is {confs!r}", "settings as text")
    return fields


def _split_line(line: str, where: str) -> tuple[str, str]:
    name, colon, text = line.partition(":")
    if not colon or not name:
        raise damaged(_OFFSET_LOG, where, repr(line), "name:offset")
    return name, text


_QUERY_ID = "the query's metadata"


@dataclass(frozen=True, slots=True)
class QueryMetadata:
    """The permanent id of a query, by which sinks such as Delta identify committed batches."""

    query_id: str

    def render(self) -> bytes:
        """Return the bytes of the file."""
        return compact({"id": self.query_id}).encode()


def parse_query(data: bytes, where: str) -> QueryMetadata:
    """Parse the file `metadata` of a checkpoint.

    Raises:
        Corrupt: The file has no valid id.
        Conflict: The checkpoint was replaced by a successor.
    """
    fields = json_object(decoded(data, _QUERY_ID, where), _QUERY_ID, where)
    successor = replaced_by(fields)
    if successor is not None:
        raise Conflict(
            "this checkpoint was replaced, and is kept for reference only",
            code="HF-E4090",
            where=where,
            found=f"replaced by {successor!r}, a directory next to it",
            hint=f"give the address of {successor}",
        )
    query_id = string(fields, "id", _QUERY_ID, where)
    try:
        uuid.UUID(query_id)
    except ValueError as error:
        raise damaged(_QUERY_ID, where, repr(query_id), "a UUID") from error
    return QueryMetadata(query_id)
