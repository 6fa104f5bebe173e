"""Offsets in text, as people have them: what Kafka's own tool prints, and pairs of two clusters."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import Invalid
from holdfast.savepoints.offsets.position_changes import SyncPoint, ToRecord

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
                where=f"{where}, line {number}",
                found=line,
                expected="topic:partition:offset",
                hint=f"`{_TOOL}` prints such lines; with --time, -1 is the end and -2 the beginning",
            )
        found.append(ToRecord(topic, int(partition), int(rest)))
    if not found:
        raise Invalid(
            "no offsets are given",
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
