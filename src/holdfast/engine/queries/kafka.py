"""The access to Kafka topics and consumer groups with the client of Spark's connector.

Spark has no public call for a topic's partitions, so the client's consumer reads them from the brokers. Spark
stores its offsets in the checkpoint and commits none to Kafka. The offsets committed here are a copy from
which no query resumes. The connector's own client commits them, in the JVM that runs the query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.jvm_lock import java_cause, java_message
from holdfast.engine.queries.watch import offsets_in
from holdfast.errors import HoldfastError, Invalid, NotFound, Unavailable, Unsupported
from holdfast.formats.record_header import RECORD_HEADER, parse_header

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.engine.queries.watch import Offsets


# The number of records at the end of each partition that are read.
TAIL: Final = 1000
SERVERS: Final = "kafka.bootstrap.servers"
_PREFIX: Final = "kafka."
_PATIENCE_MS: Final = "20000"
_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
_NO_ANSWER: Final = (
    "check that the brokers run, and that this machine reaches them at their advertised addresses"
)


@dataclass(frozen=True, slots=True)
class WrittenQuery:
    """A query of Holdfast with records at the end of a topic.

    Attributes:
        query_id: The id of the query.
        batch_id: The newest batch of the query in the topic.
        generation: The highest generation in the topic, or None if the sink has no ledger.
    """

    query_id: str
    batch_id: int
    generation: int | None


def ends_of(spark: SparkSession, topic: str, options: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    """Return the first offset and the next one of each partition of a topic; creates no topic.

    Args:
        spark: A session with Spark's connector.
        topic: The topic.
        options: The options of Spark's Kafka source or sink.

    Raises:
        Invalid: The Kafka client rejects an option.
        NotFound: The topic does not exist.
        Unavailable: No broker answers.
        Unsupported: The session lacks the Kafka connector.
    """
    consumer = _consumer(spark, options)
    try:
        listed = consumer.partitionsFor(topic)
        if listed is None or listed.isEmpty():
            raise _missing(topic, options)
        jvm: Any = spark._jvm
        partitions = jvm.java.util.ArrayList()
        for info in listed:
            partitions.add(jvm.org.apache.kafka.common.TopicPartition(topic, info.partition()))
        first, following = consumer.beginningOffsets(partitions), consumer.endOffsets(partitions)
        return {
            int(each.partition()): (int(first.get(each)), int(following.get(each))) for each in partitions
        }
    except HoldfastError:
        raise
    except Exception as error:
        text = f"{type(getattr(error, 'java_exception', error)).__name__} {error}"
        if "UnknownTopicOrPartition" in text:
            raise _missing(topic, options) from error
        raise _silent(options, java_message(error)) from error
    finally:
        consumer.close()


def newest_in_topic(spark: SparkSession, topic: str, options: Mapping[str, str]) -> list[WrittenQuery]:
    """Return the queries of Holdfast with records among the last thousand of each partition.

    It runs one Spark job. A query that has only earlier records is not found.

    Raises:
        Invalid: The Kafka client rejects an option.
        NotFound: The topic does not exist.
        Unavailable: No broker answers.
        Unsupported: The session lacks the Kafka connector.
    """
    from pyspark.sql import functions as F  # noqa: N812

    ends = ends_of(spark, topic, options)
    if all(first == after for first, after in ends.values()):
        return []
    places = {
        "assign": {topic: sorted(ends)},
        "startingOffsets": {topic: {at: max(first, after - TAIL) for at, (first, after) in ends.items()}},
        "endingOffsets": {topic: {at: after for at, (_, after) in ends.items()}},
    }
    reader = spark.read.format("kafka").options(**options).option("includeHeaders", "true")
    for name, place in places.items():
        reader = reader.option(name, json.dumps(place))
    told = F.filter(F.col("headers"), lambda header: header["key"] == RECORD_HEADER)
    found: dict[str, WrittenQuery] = {}
    words = F.split(F.element_at(told, -1)["value"].cast("string"), " ")
    rows = (
        reader.load().where(F.size("headers") > 0).select(F.concat_ws(" ", F.slice(words, 1, 3)).alias("w"))
    )
    for row in rows.where("w <> ''").distinct().collect():
        header = parse_header(f"{row.w} -".encode())
        if header is not None:
            former = found.get(header.query_id, WrittenQuery(header.query_id, -1, None))
            generations = [g for g in (former.generation, header.generation) if g is not None]
            found[header.query_id] = WrittenQuery(
                header.query_id, max(former.batch_id, header.batch_id), max(generations, default=None)
            )
    return sorted(found.values(), key=lambda written: written.query_id)


def client_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of the Kafka client among the options of Spark's source or sink."""
    return {
        name[len(_PREFIX) :]: value for name, value in options.items() if name.lower().startswith(_PREFIX)
    }


def _consumer(spark: SparkSession, options: Mapping[str, str]) -> Any:
    jvm: Any = spark._jvm
    settings = jvm.java.util.HashMap()
    settings.put("default.api.timeout.ms", _PATIENCE_MS)
    settings.put("allow.auto.create.topics", "false")
    for name, value in client_settings(options).items():
        settings.put(name, value)
    settings.put("key.deserializer", _BYTES)
    settings.put("value.deserializer", _BYTES)
    make = jvm.org.apache.kafka.clients.consumer.KafkaConsumer
    if type(make).__name__ != "JavaClass":
        raise Unsupported(
            "the session lacks the data source 'kafka'",
            code="HF-E7046",
            hint="add extras=['kafka'] to @hf.job or hf.session",
        )
    try:
        return make(settings)
    except Exception as error:
        raise Invalid(
            "the Kafka client rejected the options",
            code="HF-E2189",
            where=options.get(SERVERS),
            found=_innermost(error),
            hint='give the brokers as servers="host:port,host:port", and other settings of the client as'
            ' **{"kafka.security.protocol": "SSL"}',
        ) from error


def _innermost(error: Exception) -> str:
    java = java_cause(error)
    return str(error).partition("\n")[0] if java is None else str(java.getMessage())


def _missing(topic: str, options: Mapping[str, str]) -> NotFound:
    return NotFound(
        f"the topic {topic!r} does not exist",
        code="HF-E3034",
        where=options.get(SERVERS),
        hint=f"create the topic: kafka-topics.sh --create --topic {topic}"
        f" --bootstrap-server {options.get(SERVERS)}",
    )


def _silent(options: Mapping[str, str], said: str) -> Unavailable:
    return Unavailable(
        "no Kafka broker answers", code="HF-E5012", where=options.get(SERVERS), found=said, hint=_NO_ANSWER
    )


# The name of a source in Spark's plan of a batch, with a path that ends with its number in the offset log.
_SCAN: Final = "StreamingDataSourceV2ScanRelation"
_SOURCE: Final = re.compile(r"/sources/(\d+)/?$")
_SERVERS: Final = "bootstrap.servers"
_LONGEST_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ClusterOffsets:
    """The offsets of a query in the topics of one Kafka cluster.

    Attributes:
        client: The query's settings of the Kafka client for the cluster.
        offsets: The next offset of each partition.
    """

    client: Mapping[str, str]
    offsets: Offsets


def read_offsets(query: StreamingQuery, progress: Mapping[str, Any]) -> tuple[ClusterOffsets, ...]:
    """Return the offsets of a batch in the Kafka sources of a running query, one value per source.

    Other sources are not included. The result is empty if the sources cannot be read from this version of
    Spark.
    """
    ends = [offsets_in(source.get("endOffset")) for source in progress.get("sources") or ()]
    return tuple(
        ClusterOffsets(client, ends[number])
        for number, client in _clients(query)
        if number < len(ends) and ends[number]
    )


def commit_offsets(group: str, read: ClusterOffsets) -> None:
    """Commit the offsets of one cluster to a consumer group.

    Raises:
        Unavailable: The cluster does not answer or rejects the request, or the group has active consumers.
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
    except (Py4JError, TypeError) as error:  # for Py4J a missing class is a package, which is not callable
        raise Unavailable(
            "cannot commit offsets to the consumer group",
            code="HF-E5013",
            where=where,
            found=_reason(error),
            hint="check that the group has no consumers, and that the Kafka user may commit to the group",
        ) from error


def _clients(query: StreamingQuery) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the number of each Kafka source of a query, and the settings of its client."""
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
    """Return the innermost cause of a Java error, on one line."""
    java = java_cause(error)
    text = str(error) if java is None else str(java.toString())
    return text.splitlines()[0] if text else type(error).__name__
