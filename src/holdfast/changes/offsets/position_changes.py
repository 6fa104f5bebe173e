"""Changes of a source's position, and offsets as text."""

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
# Source, topic and partition.
Key = tuple[str, str | None, int | None]
# What was before, and what it is now.
Renamed = Mapping[Key, Key]
_HINT = "`holdfast offsets show` shows where each source goes on"


class OffsetChange(Protocol):
    """A change to the offsets of a query's sources."""

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Change the offsets, which are those of every source by name.

        Returns:
            The partitions that have another name or number now, and which that is.

        Raises:
            Invalid: The change does not fit the sources.
            NotFound: The source does not exist, topic or partition.
        """


@dataclass(frozen=True, slots=True)
class ToRecord:
    """A partition of a topic continues with a record.

    Attributes:
        topic: The topic.
        partition: The partition.
        at: The offset of the record.
        source: The source; None for the one that reads the topic.
    """

    topic: str
    partition: int
    at: int
    source: str | None = None

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Put the number in place of the old one."""
        if not 0 <= self.at <= HIGHEST_NUMBER:
            raise Invalid(
                "this is no offset of a record", code="HF-E2090", where=where, found=str(self.at), hint=_HINT
            )
        for name in _reading(offsets, self.topic, self.source, where):
            value = _parsed(offsets[name])
            _require_partition(value, self.topic, self.partition, where)
            value[self.topic][str(self.partition)] = self.at
            offsets[name] = _written(value)
        return {}


@dataclass(frozen=True, slots=True)
class SkipRecords:
    """A partition of a topic leaves out records: so many of those that come next.

    Attributes:
        topic: The topic.
        partition: The partition.
        count: How many; below zero to read some again.
        source: The source; None for the one that reads the topic.
    """

    topic: str
    partition: int
    count: int
    source: str | None = None

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Move the offset by so many."""
        for name in _reading(offsets, self.topic, self.source, where):
            value = _parsed(offsets[name])
            _require_partition(value, self.topic, self.partition, where)
            at = value[self.topic][str(self.partition)] + self.count
            ToRecord(self.topic, self.partition, at, name).apply(offsets, where)
        return {}


@dataclass(frozen=True, slots=True)
class ToVersion:
    """A source of a Delta table continues with a version, from its first file on.

    Attributes:
        version: The version.
        source: The source; None for the only one of a Delta table.
    """

    version: int
    source: str | None = None

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Put the version in place of the old one, behind no file of it."""
        names = [
            name
            for name, offset in offsets.items()
            if kind_of(offset) is SourceKind.DELTA and self.source in (None, name)
        ]
        if len(names) != 1:
            raise _which(names, "sources of a Delta table", where)
        value = _parsed(offsets[names[0]])
        # What Delta writes of a version of which no file has been read.
        value |= {DELTA_VERSION: self.version, "index": -1, "isStartingVersion": False}
        offsets[names[0]] = _written(value)
        return {}


@dataclass(frozen=True, slots=True)
class ToOffset:
    """A source continues at an offset of its own form, whatever that is.

    Attributes:
        offset: The offset, as JSON.
        source: The source; None for the only one.
    """

    offset: str
    source: str | None = None

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Put the offset in place of the old one."""
        names = [name for name in offsets if self.source in (None, name)]
        if len(names) != 1:
            raise _which(names, "sources", where)
        try:
            given = _written(json.loads(self.offset))
        except ValueError as error:
            raise Invalid(
                "an offset is not JSON", code="HF-E2091", where=where, found=self.offset, hint=_HINT
            ) from error
        before = offsets[names[0]]
        if before is not None and kind_of(before) is not kind_of(given):
            raise Invalid(
                "an offset is not of the form that the source has",
                code="HF-E2092",
                where=f"{where}, source {names[0]}",
                found=given,
                expected=f"such as {before}",
                hint=_HINT,
            )
        if kind_of(before) is SourceKind.FILES:
            raise Invalid(
                "a source of files keeps what it has read in a log of its own, which its offset only counts",
                code="HF-E2093",
                where=f"{where}, source {names[0]}",
                found=given,
                hint="leave files out with `holdfast offsets skip --file`",
            )
        offsets[names[0]] = given
        return {}


@dataclass(frozen=True, slots=True)
class RenameTopic:
    """A topic has another name, with the same offsets.

    Attributes:
        old: Its name so far.
        new: Its name from now on.
    """

    old: str
    new: str

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Put the name in place of the old one."""
        renamed: dict[Key, Key] = {}
        for name in _readers(offsets, self.old, None, where):
            value = _parsed(offsets[name])
            if self.new in value:
                raise Invalid(
                    "the source reads a topic of the new name too",
                    code="HF-E2094",
                    where=f"{where}, source {name}",
                    found=self.new,
                    hint="name a topic that it does not read yet",
                )
            renamed |= {(name, self.old, int(each)): (name, self.new, int(each)) for each in value[self.old]}
            offsets[name] = _written(
                {self.new if topic == self.old else topic: at for topic, at in value.items()}
            )
        return renamed


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """A record that two clusters have, by topic, partition and offset in each."""

    topic: str
    partition: int
    at: int
    new_topic: str
    new_partition: int
    new_at: int

    def __str__(self) -> str:
        """The line of a mapping that says so."""
        old = f"{self.topic},{self.partition},{self.at}"
        return f"{old},{self.new_topic},{self.new_partition},{self.new_at}"


@dataclass(frozen=True, slots=True)
class Translate:
    """Offsets of one cluster become those of another.

    A position goes to the newest point that is not behind it. Between two points the record's place in the
    other cluster is not known: from the point on, records are read again, and none is left out.

    Attributes:
        points: Records that both have.
    """

    points: tuple[SyncPoint, ...]

    def apply(self, offsets: Offsets, where: str) -> Renamed:
        """Put the other cluster's offsets in place of the old ones."""
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
                            "the mapping makes two partitions one, which has one offset only",
                            code="HF-E2095",
                            where=f"{where}, source {name}",
                            found=f"{other} and {point}",
                            expected="another partition in the other cluster for each",
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
                "the mapping does not say where a partition goes on in the other cluster",
                code="HF-E2096",
                where=where,
                found=f"{topic}, partition {partition}, at {at}",
                expected="a record at or before it"
                + (f"; the first that is given is at {min(point.at for point in known)}" if known else ""),
                hint="add a line for it to the mapping",
            )
        return max(before, key=lambda point: point.at)


@dataclass(frozen=True, slots=True)
class PositionChange(JsonShape):
    """The change of one position.

    Attributes:
        source: The source.
        topic: The topic before; null for other sources than Kafka.
        partition: The partition before; null for other sources than Kafka.
        before: What would have come next; null where the checkpoint did not know the partition.
        after: What comes next now; null where it no longer knows the partition, which Spark reads from its
            first record on.
        new_topic: The topic now, where that has another name.
        new_partition: The partition now, where that has another number.
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
        """The largest number of records left out: transactions and compaction also use numbers."""
        return self._by(1)

    @property
    @in_json
    def repeated(self) -> int | None:
        """The largest number of records read again; null if a different cluster counts them."""
        return self._by(-1)

    def _by(self, sign: int) -> int | None:
        if self.topic is None or (self.new_topic, self.new_partition) != (None, None):
            return None
        # What has no position begins with the first record that the broker has: with record 0, or later.
        return max(sign * ((self.after or 0) - (self.before or 0)), 0)


def changed(
    before: Mapping[str, str | None], changes: Sequence[OffsetChange], where: str
) -> tuple[Offsets, tuple[PositionChange, ...]]:
    """The offsets after some changes, and what differs, position by position.

    Args:
        before: The offsets as they are.
        changes: The changes, one after the other.
        where: Where the offsets are, for messages.

    Raises:
        Invalid: A change does not fit the sources.
        NotFound: The source does not exist, topic or partition.
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
    if new is None:  # a source without an offset has one of Kafka now, whose positions are all new
        return old.topic is None
    return old.next == new.next if old.topic is not None else _parsed(old.offset) == _parsed(new.offset)


def _key(position: SourcePosition) -> Key:
    return position.source, position.topic, position.partition


def _readers(offsets: Offsets, topic: str, source: str | None, where: str) -> list[str]:
    """The sources that read a topic."""
    found = [
        name
        for name, offset in offsets.items()
        if source in (None, name) and is_of_kafka(value := _parsed(offset)) and topic in value
    ]
    if not found:
        known = sorted({position.topic for position in positions_of(offsets) if position.topic is not None})
        raise NotFound(
            "no source has read from this topic",
            code="HF-E3013",
            where=where,
            found=topic if source is None else f"{topic}, source {source}",
            expected=", ".join(known) or "a source of Kafka",
            hint=_HINT,
        )
    return found


def _reading(offsets: Offsets, topic: str, source: str | None, where: str) -> list[str]:
    """The sources that read a topic at the same place: one, or one stream that is in the plan twice."""
    found = _readers(offsets, topic, source, where)
    if len({offsets[name] for name in found}) > 1:
        raise _which(found, f"sources of {topic}", where)
    return found


def _require_partition(value: Mapping[str, Any], topic: str, partition: int, where: str) -> None:
    if str(partition) not in value[topic]:
        raise NotFound(
            "the topic has no such partition, as far as the checkpoint knows",
            code="HF-E3014",
            where=where,
            found=f"{topic}, partition {partition}",
            expected=", ".join(sorted(value[topic], key=int)),
            hint=_HINT,
        )


def _which(names: list[str], what: str, where: str) -> Invalid:
    return Invalid(
        f"the query has no or several {what}",
        code="HF-E2097",
        where=where,
        found=", ".join(names) or "none",
        hint=f"name one with --source; {_HINT}",
    )


def _parsed(offset: str | None) -> Any:
    return None if offset is None else json.loads(offset)


def _written(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


_TOOL = "kafka-get-offsets --bootstrap-server HOST:PORT --topic TOPIC"


def listed_offsets(text: str, where: str) -> tuple[ToRecord, ...]:
    """The lines `topic:partition:offset` that Kafka's `kafka-get-offsets` prints.

    Args:
        text: The lines; empty ones and those that begin with `#` do not count.
        where: Where they are, for messages.

    Raises:
        Invalid: A line is something else, or there is none.
    """
    found = []
    for number, line in _lines(text):
        topic, _, rest = line.rpartition(":")
        topic, _, partition = topic.rpartition(":")
        if not topic or not (partition.isdecimal() and rest.isdecimal()):
            raise Invalid(
                "a line is no offset of a partition",
                code="HF-E2098",
                where=f"{where}, line {number}",
                found=line,
                expected="topic:partition:offset",
                hint=f"`{_TOOL}` prints such lines; with --time, -1 is the end and -2 the beginning",
            )
        found.append(ToRecord(topic, int(partition), int(rest)))
    if not found:
        raise Invalid(
            "no offsets are given",
            code="HF-E2099",
            where=where,
            expected="topic:partition:offset in a line",
            hint=f"`{_TOOL}` prints such lines",
        )
    return tuple(found)


def sync_points(text: str, where: str) -> tuple[SyncPoint, ...]:
    """Lines `topic,partition,offset,new topic,new partition,new offset`: records that two clusters have.

    Args:
        text: The lines; empty ones and those that begin with `#` do not count.
        where: Where they are, for messages.

    Raises:
        Invalid: A line is something else, or there is none.
    """
    found = []
    for number, line in _lines(text):
        parts = [part.strip() for part in line.split(",")]
        numbers = parts[1:3] + parts[4:]
        if len(parts) != 6 or not (parts[0] and parts[3]) or not all(each.isdecimal() for each in numbers):
            raise Invalid(
                "a line does not say where a record is in the other cluster",
                code="HF-E2100",
                where=f"{where}, line {number}",
                found=line,
                expected="topic,partition,offset,new topic,new partition,new offset",
                hint="the topic of offset syncs that MirrorMaker keeps has these numbers",
            )
        partition, at, new_partition, new_at = map(int, numbers)
        found.append(SyncPoint(parts[0], partition, at, parts[3], new_partition, new_at))
    if not found:
        raise Invalid(
            "the mapping is empty",
            code="HF-E2101",
            where=where,
            expected="topic,partition,offset,new topic,new partition,new offset in a line",
            hint="give a record of each partition that both clusters have",
        )
    return tuple(found)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped
