"""Commit where a query has read its topics to a consumer group, for Kafka's own tools and dashboards.

Spark keeps its positions in the checkpoint and commits none to Kafka. What is committed here is a copy: no
query goes on from it. The connector's own client commits it, in the JVM that runs the query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.queries.kafka_topics import client_settings
from holdfast.engine.queries.source_progress import offsets_in
from holdfast.engine.state.ownership import java_cause
from holdfast.errors import Unavailable

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.engine.queries.source_progress import Offsets

# Spark's plan of a batch has a source as this, with a path that ends with its number in the offset log.
_SCAN: Final = "StreamingDataSourceV2ScanRelation"
_SOURCE: Final = re.compile(r"/sources/(\d+)/?$")
_SERVERS: Final = "bootstrap.servers"
_LONGEST_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ClusterOffsets:
    """Where a query has read the topics of one Kafka cluster.

    Attributes:
        client: The settings of a client of the cluster, as the query has them.
        offsets: The next record of each partition.
    """

    client: Mapping[str, str]
    offsets: Offsets


def read_offsets(query: StreamingQuery, progress: Mapping[str, Any]) -> tuple[ClusterOffsets, ...]:
    """Where a batch has read the Kafka sources of a running query, one value a source.

    Nothing of sources that are not Kafka's, or where Spark's internals do not tell what a source is.
    """
    ends = [offsets_in(source.get("endOffset")) for source in progress.get("sources") or ()]
    return tuple(
        ClusterOffsets(client, ends[number])
        for number, client in _clients(query)
        if number < len(ends) and ends[number]
    )


def commit_offsets(group: str, read: ClusterOffsets) -> None:
    """Commit what was read of one cluster to a consumer group.

    Raises:
        Unavailable: The cluster does not answer, refuses it, or the group has consumers of its own.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    settings = jvm.java.util.Properties()
    for name, value in read.client.items():
        settings.setProperty(name, value)
    settings.setProperty("default.api.timeout.ms", str(_LONGEST_MS))
    settings.setProperty("request.timeout.ms", str(_LONGEST_MS))
    where = f"{group} at {read.client.get(_SERVERS, 'Kafka')}"
    try:
        offsets = jvm.java.util.HashMap()
        for (topic, partition), offset in read.offsets.items():
            place = jvm.org.apache.kafka.common.TopicPartition(topic, partition)
            offsets.put(place, jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(offset))
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        try:
            milliseconds = jvm.java.util.concurrent.TimeUnit.MILLISECONDS
            admin.alterConsumerGroupOffsets(group, offsets).all().get(_LONGEST_MS, milliseconds)
        finally:
            admin.close(jvm.java.time.Duration.ofMillis(_LONGEST_MS))
    except (Py4JError, TypeError) as error:  # a class that is not there is no class to Py4J, and no callable
        raise Unavailable(
            "offsets cannot be committed to the consumer group",
            where=where,
            found=_reason(error),
            hint="the group must have no consumers of its own, and the user must be allowed to write to it",
        ) from error


def _clients(query: StreamingQuery) -> Iterator[tuple[int, dict[str, str]]]:
    """The number of each Kafka source of a query, and the settings of its client."""
    from py4j.protocol import Py4JError

    try:
        planned: Any = query._jsq.streamingQuery().lastExecution()
        if planned is None:
            return
        leaves = planned.analyzed().collectLeaves()
        for position in range(leaves.size()):
            leaf = leaves.apply(position)
            if str(leaf.getClass().getSimpleName()) != _SCAN:
                continue
            relation = leaf.relation()
            found = _SOURCE.search(str(relation.metadataPath()))
            options = relation.options().asCaseSensitiveMap()
            given = {str(name).lower(): str(options[name]) for name in options}
            client = client_settings(given)
            if found is not None and _SERVERS in client:
                yield int(found.group(1)), client
    except (AttributeError, Py4JError):
        return


def _reason(error: BaseException) -> str:
    """The innermost cause of a Java error, in a line."""
    java = java_cause(error)
    text = str(error) if java is None else str(java.toString())
    return text.splitlines()[0] if text else type(error).__name__
