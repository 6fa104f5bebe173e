"""How far a batch has read its sources, as Spark reports it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.engine.queries.table_versions import offset_value, table_of, version_of
from holdfast.model import VERSIONS, PartitionPosition, SourceProgress

# Of a source with more partitions the topics are noted alone: each batch is kept for a while.
_MOST: Final = 200

Offsets = Mapping[tuple[str, int], int]


def sources_in(progress: Mapping[str, Any]) -> tuple[SourceProgress, ...]:
    """What a progress report says of each source, in the order of the offset log."""
    return tuple(
        SourceProgress(
            number,
            str(source.get("description") or ""),
            int(source.get("numInputRows") or 0),
            tuple(_positions(source)),
        )
        for number, source in enumerate(progress.get("sources") or ())
    )


def _positions(source: Mapping[str, Any]) -> Iterator[PartitionPosition]:
    table = table_of(source)
    if table is not None:
        next_, latest = version_of(source.get("endOffset")), version_of(source.get("latestOffset"))
        if next_ is not None and latest is not None:
            yield PartitionPosition(table, None, next_, latest, VERSIONS)
        return
    read, there = offsets_in(source.get("endOffset")), offsets_in(source.get("latestOffset"))
    known = sorted(read.keys() & there.keys())
    if len(known) <= _MOST:
        for topic, partition in known:
            place = (topic, partition)
            yield PartitionPosition(topic, partition, read[place], there[place])
        return
    for topic in sorted({topic for topic, _ in known}):
        of_topic = [place for place in known if place[0] == topic]
        yield PartitionPosition(
            topic, None, sum(read[place] for place in of_topic), sum(there[place] for place in of_topic)
        )


def offsets_in(given: Any) -> Offsets:
    """Offsets by topic and partition, as Kafka's source has them; nothing of another source's offset."""
    given = offset_value(given)
    if not isinstance(given, dict):
        return {}
    return {
        (topic, int(partition)): offset
        for topic, partitions in given.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
        if partition.isdecimal() and isinstance(offset, int) and not isinstance(offset, bool)
    }
