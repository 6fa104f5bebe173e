"""The changes of a source's position, and the parsing of offsets in text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.changes.offsets.positions import SourceKind, SourcePosition, is_of_kafka, kind_of, positions_of
from holdfast.errors import Invalid, NotFound
from holdfast.formats.logs.batch_logs import DELTA_VERSION
from holdfast.formats.text import HIGHEST_NUMBER
from holdfast.json_shapes import JsonShape, in_json

Offsets = dict[str, str | None]
# The source, topic and partition.
Key = tuple[str, str | None, int | None]
# The value before, and the value after.
Renamed = Mapping[Key, Key]
_HINT = "list the offsets of each source with `holdfast offsets show CHECKPOINT`"


class OffsetChange(Protocol):
    """A change to the offsets of a query's sources.

    Example:
        changes: list[hf.OffsetChange] = [hf.ToRecord("orders", 0, at=12), hf.SkipRecords("refunds", 0, 1)]
        plan = hf.plan_offsets("checkpoints/orders", changes=changes)
        assert (plan.repeated, plan.skipped) == (28, 1)
    """

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Change the offsets of all sources, by name.

        Returns:
            The new names and numbers of renamed partitions, by the old ones.

        Raises:
            Invalid: The change does not match the sources.
            NotFound: The source, topic or partition does not exist.
        """


@dataclass(frozen=True, slots=True)
class ToRecord:
    """A move of a topic partition to a record.

    Attributes:
        topic: The topic.
        partition: The partition.
        at: The offset of the record.
        source: The source; None for the one that reads the topic.

    Example:
        plan = hf.plan_offsets("checkpoints/orders", changes=[hf.ToRecord("orders", 0, at=12)])
        assert plan.repeated == 28  # records 12 to 39 are read again
    """

    topic: str
    partition: int
    at: int
    source: str | None = None

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Replace the offset of the partition."""
        if not 0 <= self.at <= HIGHEST_NUMBER:
            raise Invalid(
                "invalid record offset",
                code="HF-E2090",
                where=where,
                found=str(self.at),
                expected=f"0 to {HIGHEST_NUMBER}",
                hint=_HINT,
            )
        for name in _reading(offsets, self.topic, self.source, where):
            value = _parsed(offsets[name])
            _require_partition(value, self.topic, self.partition, where)
            value[self.topic][str(self.partition)] = self.at
            offsets[name] = _written(value)
        return {}


@dataclass(frozen=True, slots=True)
class SkipRecords:
    """A skip of the next records of a topic partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        count: The number of records to skip; negative to read records again.
        source: The source; None for the one that reads the topic.

    Example:
        plan = hf.plan_offsets("checkpoints/orders", changes=[hf.SkipRecords("refunds", 0, 1)])
        assert plan.skipped == 1
    """

    topic: str
    partition: int
    count: int
    source: str | None = None

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Move the offset of the partition by the count."""
        for name in _reading(offsets, self.topic, self.source, where):
            value = _parsed(offsets[name])
            _require_partition(value, self.topic, self.partition, where)
            at = value[self.topic][str(self.partition)] + self.count
            ToRecord(self.topic, self.partition, at, name).apply(offsets, where)
        return {}


@dataclass(frozen=True, slots=True)
class ToVersion:
    """A move of a Delta source to a table version, from its first file.

    Attributes:
        version: The version.
        source: The source; None for the only Delta source.

    Example:
        changes = [hf.ToVersion(9)]  # for a query that reads one Delta table
        try:
            hf.plan_offsets("checkpoints/orders", changes=changes)
        except hf.Invalid as error:
            assert error.fact == "the query has no Delta sources"  # this query reads Kafka
    """

    version: int
    source: str | None = None

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Replace the position with the start of the version."""
        names = [
            name
            for name, offset in offsets.items()
            if kind_of(offset) is SourceKind.DELTA and self.source in (None, name)
        ]
        if len(names) != 1:
            raise _which(names, "Delta sources", where)
        value = _parsed(offsets[names[0]])
        # Delta's index for a version of which no file has been read.
        value |= {DELTA_VERSION: self.version, "index": -1, "isStartingVersion": False}
        offsets[names[0]] = _written(value)
        return {}


@dataclass(frozen=True, slots=True)
class ToOffset:
    """A move of a source to an offset in the source's own format.

    The files of a file source are skipped with `skip_files` of `hf.move_offsets` instead.

    Attributes:
        offset: The offset, as JSON.
        source: The source; None for the only source.

    Example:
        change = hf.ToOffset('{"orders": {"0": 42}, "refunds": {"0": 3}}')
        plan = hf.plan_offsets("checkpoints/orders", changes=[change])
        assert (plan.positions[0].before, plan.positions[0].after) == (40, 42)
    """

    offset: str
    source: str | None = None

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Replace the offset of the source."""
        names = [name for name in offsets if self.source in (None, name)]
        if len(names) != 1:
            raise _which(names, "sources", where)
        try:
            given = _written(json.loads(self.offset))
        except ValueError as error:
            raise Invalid(
                "the offset is not valid JSON", code="HF-E2091", where=where, found=self.offset, hint=_HINT
            ) from error
        before = offsets[names[0]]
        if before is not None and kind_of(before) is not kind_of(given):
            raise Invalid(
                "the offset does not have the format of this source",
                code="HF-E2092",
                where=f"{where}, source {names[0]}",
                found=given,
                expected=f"an offset such as {before}",
                hint=_HINT,
            )
        if kind_of(before) is SourceKind.FILES:
            raise Invalid(
                "a file source has no offset to set: it logs the files that it has read",
                code="HF-E2093",
                where=f"{where}, source {names[0]}",
                found=given,
                hint="skip files with `holdfast offsets skip CHECKPOINT NEW --file FILE`",
            )
        offsets[names[0]] = given
        return {}


@dataclass(frozen=True, slots=True)
class RenameTopic:
    """A change of a topic's name that keeps the offsets.

    Attributes:
        old: The current name.
        new: The new name.

    Example:
        plan = hf.plan_offsets("checkpoints/orders", changes=[hf.RenameTopic("refunds", "returns")])
        [position] = plan.positions
        assert (position.topic, position.new_topic, position.after) == ("refunds", "returns", 3)
    """

    old: str
    new: str

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Replace the name of the topic."""
        renamed: dict[Key, Key] = {}
        for name in _readers(offsets, self.old, None, where):
            value = _parsed(offsets[name])
            if self.new in value:
                raise Invalid(
                    "the topic cannot be renamed, because the source already reads a topic with the new name",
                    code="HF-E2094",
                    where=f"{where}, source {name}",
                    found=self.new,
                    hint="give a topic that the source does not read yet",
                )
            renamed |= {(name, self.old, int(each)): (name, self.new, int(each)) for each in value[self.old]}
            offsets[name] = _written(
                {self.new if topic == self.old else topic: at for topic, at in value.items()}
            )
        return renamed


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """A record that exists in two Kafka clusters, with topic, partition and offset in each.

    Attributes:
        topic: The topic in the old cluster.
        partition: The partition in the old cluster.
        at: The offset in the old cluster.
        new_topic: The topic in the new cluster.
        new_partition: The partition in the new cluster.
        new_at: The offset in the new cluster.

    Example:
        point = hf.SyncPoint("orders", 0, 38, new_topic="orders", new_partition=0, new_at=30)
        assert str(point) == "orders,0,38,orders,0,30"  # a line of a mapping file
    """

    topic: str
    partition: int
    at: int
    new_topic: str
    new_partition: int
    new_at: int

    def __str__(self) -> str:
        """Return the point as a line of a mapping file."""
        old = f"{self.topic},{self.partition},{self.at}"
        return f"{old},{self.new_topic},{self.new_partition},{self.new_at}"


@dataclass(frozen=True, slots=True)
class Translate:
    """A translation of offsets from one Kafka cluster to a different one.

    A position moves to the newest point at or before it. Between two points, the offset of a record in the
    other cluster is unknown, so records after the point may be read again, but none is skipped.

    Attributes:
        points: The records that exist in both clusters.

    Example:
        points = (
            hf.SyncPoint("orders", 0, 38, "orders", 0, 30),
            hf.SyncPoint("orders", 1, 25, "orders", 1, 20),
            hf.SyncPoint("orders", 10, 7, "orders", 10, 7),
            hf.SyncPoint("refunds", 0, 3, "refunds", 0, 1),
        )
        plan = hf.plan_offsets("checkpoints/orders", changes=[hf.Translate(points)])
        assert plan.positions[0].after == 30  # the record that the old cluster has as 38
    """

    points: tuple[SyncPoint, ...]

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Replace the offsets with those of the other cluster."""
        renamed: dict[Key, Key] = {}
        for name, offset in list(offsets.items()):
            value = _parsed(offset)
            if not is_of_kafka(value):
                continue
            moved: dict[str, dict[str, int]] = {}
            taken: dict[tuple[str, int], SyncPoint] = {}
            for topic, partitions in value.items():
                for partition, at in partitions.items():
                    point = self._point(topic, int(partition), at, where)
                    other = taken.setdefault((point.new_topic, point.new_partition), point)
                    if other is not point:
                        raise Invalid(
                            "the mapping merges two partitions into one",
                            code="HF-E2095",
                            where=f"{where}, source {name}",
                            found=f"{other} and {point}",
                            expected="a different target partition for each source partition",
                            hint="correct these two lines of the mapping",
                        )
                    moved.setdefault(point.new_topic, {})[str(point.new_partition)] = point.new_at
                    renamed[name, topic, int(partition)] = name, point.new_topic, point.new_partition
            offsets[name] = _written(moved)
        return renamed

    def _point(self, topic: str, partition: int, at: int, where: str) -> SyncPoint:
        known = [point for point in self.points if (point.topic, point.partition) == (topic, partition)]
        before = [point for point in known if point.at <= at]
        if not before:
            raise Invalid(
                "the mapping has no record at or before the offset of a partition",
                code="HF-E2096",
                where=where,
                found=f"topic {topic}, partition {partition}, offset {at}",
                expected=f"a record at or before offset {at}"
                + (f"; the first record given is at {min(point.at for point in known)}" if known else ""),
                hint="add a line for this partition to the mapping",
            )
        return max(before, key=lambda point: point.at)


@dataclass(frozen=True, slots=True)
class PositionChange(JsonShape):
    """The change of one position.

    Attributes:
        source: The source.
        topic: The topic before the change; null for sources other than Kafka.
        partition: The partition before the change; null for sources other than Kafka.
        before: The next record or version before the change; null if the checkpoint had no offset for the
            partition.
        after: The next record or version after the change; null if there is no offset any more, so that Spark
            reads the partition from its first record.
        new_topic: The topic after the change, if it has a new name.
        new_partition: The partition after the change, if it has a new number.
    """

    source: str
    topic: str | None
    partition: int | None
    before: int | None
    after: int | None
    new_topic: str | None = None
    new_partition: int | None = None

    @property
    @in_json
    def skipped(self) -> int | None:
        """The maximum number of skipped records; fewer if offsets are used by transactions or compaction."""
        return self._by(1)

    @property
    @in_json
    def repeated(self) -> int | None:
        """The maximum number of records read again; null if the new offsets are of a different cluster."""
        return self._by(-1)

    def _by(self, sign: int) -> int | None:
        if self.topic is None or (self.new_topic, self.new_partition) != (None, None):
            return None
        # A partition without an offset starts with the first record of the broker: record 0 or later.
        return max(sign * ((self.after or 0) - (self.before or 0)), 0)


def changed(
    before: Mapping[str, str | None], changes: Sequence[OffsetChange], where: str
) -> tuple[Offsets, tuple[PositionChange, ...]]:
    """Return the offsets after some changes, and the change of each position.

    Args:
        before: The current offsets.
        changes: The changes, in order.
        where: The address of the offsets, for messages.

    Raises:
        Invalid: A change does not match the sources.
        NotFound: The source, topic or partition does not exist.
    """
    after = dict(before)
    renamed = {_key(position): _key(position) for position in positions_of(before)}
    for change in changes:
        step = change.apply(after, where)
        renamed = {old: step.get(new, new) for old, new in renamed.items()}
    return after, tuple(_differing(before, after, renamed))


def _differing(
    before: Mapping[str, str | None], after: Mapping[str, str | None], renamed: Renamed
) -> Iterator[PositionChange]:
    now = {_key(position): position for position in positions_of(after)}
    for old in positions_of(before):
        key = renamed[_key(old)]
        new = now.pop(key, None)
        if key == _key(old) and _same(old, new):
            continue
        _, topic, partition = key
        yield PositionChange(
            old.source,
            old.topic,
            old.partition,
            old.next,
            None if new is None else new.next,
            topic if topic != old.topic else None,
            partition if partition != old.partition else None,
        )
    for new in now.values():
        yield PositionChange(new.source, new.topic, new.partition, None, new.next)


def _same(old: SourcePosition, new: SourcePosition | None) -> bool:
    if new is None:  # a source without an offset now has one of Kafka, so all its positions are new
        return old.topic is None
    return old.next == new.next if old.topic is not None else _parsed(old.offset) == _parsed(new.offset)


def _key(position: SourcePosition) -> Key:
    return position.source, position.topic, position.partition


def _readers(offsets: Offsets, topic: str, source: str | None, where: str) -> list[str]:
    """Return the sources that read a topic."""
    found = [
        name
        for name, offset in offsets.items()
        if source in (None, name) and is_of_kafka(value := _parsed(offset)) and topic in value
    ]
    if not found:
        known = sorted({position.topic for position in positions_of(offsets) if position.topic is not None})
        raise NotFound(
            "no source of the query has read the topic",
            code="HF-E3013",
            where=where,
            found=topic if source is None else f"{topic}, source {source}",
            expected=", ".join(known) or "a Kafka source",
            hint=_HINT,
        )
    return found


def _reading(offsets: Offsets, topic: str, source: str | None, where: str) -> list[str]:
    """Return the sources that read a topic at the same offset; several if a stream is in the plan twice."""
    found = _readers(offsets, topic, source, where)
    if len({offsets[name] for name in found}) > 1:
        raise _which(found, f"sources of the topic {topic}", where)
    return found


def _require_partition(value: Mapping[str, Any], topic: str, partition: int, where: str) -> None:
    if str(partition) not in value[topic]:
        raise NotFound(
            "the checkpoint has no offset for a partition of the topic",
            code="HF-E3014",
            where=where,
            found=f"{topic}, partition {partition}",
            expected=f"partition {', '.join(sorted(value[topic], key=int))}",
            hint=_HINT,
        )


def _which(names: list[str], what: str, where: str) -> Invalid:
    return Invalid(
        f"the query has several {what}" if names else f"the query has no {what}",
        code="HF-E2097",
        where=where,
        found=", ".join(names) or None,
        hint="choose one of these sources with --source" if names else _HINT,
    )


def _parsed(offset: str | None) -> Any:
    return None if offset is None else json.loads(offset)


def _written(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


_TOOL = "kafka-get-offsets --bootstrap-server HOST:PORT --topic TOPIC"


def listed_offsets(text: str, where: str) -> tuple[ToRecord, ...]:
    """Parse the lines `topic:partition:offset` that Kafka's `kafka-get-offsets` prints.

    Args:
        text: The lines; empty lines and lines that start with `#` are ignored.
        where: The origin of the text, for messages.

    Raises:
        Invalid: A line has a different form, or there are no lines.
    """
    found = []
    for number, line in _lines(text):
        topic, _, rest = line.rpartition(":")
        topic, _, partition = topic.rpartition(":")
        if not topic or not (partition.isdecimal() and rest.isdecimal()):
            raise Invalid(
                "a line of the offset list is not a valid partition offset",
                code="HF-E2098",
                where=f"{where}, line {number}",
                found=line,
                expected="topic:partition:offset",
                hint=f"print such lines with `{_TOOL}`; with --time, -1 is the end and -2 the beginning",
            )
        found.append(ToRecord(topic, int(partition), int(rest)))
    if not found:
        raise Invalid(
            "the list of offsets is empty",
            code="HF-E2099",
            where=where,
            expected="lines of topic:partition:offset",
            hint=f"print such lines with `{_TOOL}`",
        )
    return tuple(found)


def sync_points(text: str, where: str) -> tuple[SyncPoint, ...]:
    """Parse lines `topic,partition,offset,new topic,new partition,new offset` of a mapping.

    Args:
        text: The lines; empty lines and lines that start with `#` are ignored.
        where: The origin of the text, for messages.

    Raises:
        Invalid: A line has a different form, or there are no lines.
    """
    found = []
    for number, line in _lines(text):
        parts = [part.strip() for part in line.split(",")]
        numbers = parts[1:3] + parts[4:]
        if len(parts) != 6 or not (parts[0] and parts[3]) or not all(each.isdecimal() for each in numbers):
            raise Invalid(
                "a line of the mapping between clusters is invalid",
                code="HF-E2100",
                where=f"{where}, line {number}",
                found=line,
                expected="topic,partition,offset,new topic,new partition,new offset",
                hint="take the partitions and offsets from MirrorMaker's offset-syncs topic",
            )
        partition, at, new_partition, new_at = map(int, numbers)
        found.append(SyncPoint(parts[0], partition, at, parts[3], new_partition, new_at))
    if not found:
        raise Invalid(
            "the mapping is empty",
            code="HF-E2101",
            where=where,
            expected="lines of topic,partition,offset,new topic,new partition,new offset",
            hint="add a line for each partition, with a record that exists in both clusters",
        )
    return tuple(found)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped
