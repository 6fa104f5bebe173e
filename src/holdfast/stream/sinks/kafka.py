"""Write the rows of a query to a Kafka topic, each record marked.

Spark's writer sends the rows of a batch again when the batch runs again. Their order, and how they lie in
partitions, may then be others. What stays is which rows there are. So a record is given by a digest of what
it holds and by its number among equal ones: the set of these is the same in each repeat, whatever the order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.queries.kafka import SERVERS, WrittenQuery, ends_of, newest_in_topic
from holdfast.errors import Conflict, Invalid
from holdfast.formats.record_header import HEADERS_TYPE, NO_GENERATION, RECORD_HEADER
from holdfast.stream.event_time import quoted, type_of
from holdfast.stream.sinks.batch_function import Fault
from holdfast.stream.sinks.put_back import first_unplanned, query_id_in, warn_of_fork

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


_WHERE: Final = "holdfast.sink(…).kafka(…)"
_TEXT: Final = ("string", "binary")
# Of Spark's own options, what this sink says itself.
_OURS: Final = ("topic", "includeheaders", SERVERS)
_IDENTITY_DIGITS: Final = 32
_POSITION: Final = "holdfast_position"
# What Kafka refuses for good, with its words; and what comes of a broker or a topic that is gone.
_REFUSED: Final = re.compile(
    r"kafka\.common\.errors\.(RecordTooLargeException|InvalidRecordException|\w*AuthorizationException"
    r"|InvalidTopicException|PolicyViolationException): ?(.*)"
)
_OF_KAFKA: Final = re.compile(r"org\.apache\.kafka\.")


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic that a query's rows are written to.

    Attributes:
        topic: The topic.
        options: As Spark's sink takes them.
        columns: The columns of the query.
        key: The column that becomes the key; None for the column `key`, where there is one.
        identify_by: The columns that tell a record from others of its batch; none for all that it holds.
    """

    topic: str
    options: Mapping[str, str]
    columns: tuple[str, ...]
    key: str | None = None
    identify_by: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        df: DataFrame,
        servers: str,
        topic: str,
        key: str | None,
        identify_by: Sequence[str],
        options: Mapping[str, str],
    ) -> KafkaTopic:
        """Check a query's columns and the options; asks no broker.

        Raises:
            Invalid: A column or an option is not what it should be.
        """
        if not servers or not topic:
            raise Invalid(
                "a topic needs its name and the addresses of brokers",
                code="HF-E2359",
                where=_WHERE,
                found=f"servers={servers!r}, topic={topic!r}",
                hint='write .kafka("broker:9092", "orders")',
            )
        taken = [name for name in options if name.lower() in _OURS]
        if taken:
            raise Invalid(
                "an option of Kafka's sink is said twice",
                code="HF-E2360",
                where=_WHERE,
                found=", ".join(taken),
                expected="servers=… and topic=… alone",
                hint="leave the option out",
            )
        columns = tuple(df.columns)
        named = [*identify_by, *([] if key is None else [key])]
        missing = [name for name in named if name not in columns]
        if missing:
            raise Invalid(
                "a column of a record is no column of the query",
                code="HF-E2361",
                where=_WHERE,
                found=", ".join(missing),
                expected=f"some of {', '.join(columns)}",
                hint="name columns of the frame in key=… and identify_by=…",
            )
        if "topic" in columns and "value" in columns:
            raise Invalid(
                "the topic is said once, for all records",
                code="HF-E2362",
                where=_WHERE,
                found="a column `topic`",
                hint="drop the column, and write one sink for each topic",
            )
        made = cls(topic, {**options, SERVERS: servers}, columns, key, tuple(identify_by))
        made._require_types(df)
        return made

    def partitions(self, spark: SparkSession) -> int:
        """Return the number of the topic's partitions.

        Raises:
            Invalid: The client refuses an option.
            NotFound: The topic does not exist.
            Unavailable: No broker answers.
            Unsupported: The session has no connector.
        """
        return len(ends_of(spark, self.topic, self.options))

    def newest(self, spark: SparkSession) -> list[WrittenQuery]:
        """The queries whose records are at the end of the topic; see `partitions` for what it raises."""
        return newest_in_topic(spark, self.topic, self.options)

    def write(
        self, batch: DataFrame, query_id: str, batch_id: int, generation: int | None, partitions: int
    ) -> None:
        """Send a batch's rows. Costs a shuffle of the batch by key, and one Spark job.

        Raises:
            Invalid: The brokers or their client refuse a record.
            NotFound: The topic is gone.
            Unavailable: No broker answers.
        """
        records = self.records(batch, query_id, batch_id, generation, partitions)
        try:
            records.write.format("kafka").options(**self.options).option("topic", self.topic).save()
        except Exception as error:
            self._explain(batch.sparkSession, error)
            raise

    def records(
        self, batch: DataFrame, query_id: str, batch_id: int, generation: int | None, partitions: int
    ) -> DataFrame:
        """A batch's rows as records: key, value, headers and partition.

        Records with a key are in one task, in the order that they have in the batch.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        # A record without a key goes where its identity says: in a repeat of the batch to the same partition.
        owner = NO_GENERATION if generation is None else str(generation)
        made = batch.select(*self._record(), F.monotonically_increasing_id().alias(_POSITION))
        made = made.withColumn("identity", self._identity()).withColumn("content", self._content())
        made = made.withColumn("together", F.coalesce(_digest("key"), F.col("identity")))
        apart = Window.partitionBy("together", "identity").orderBy("content")
        by_identity = F.conv(F.substring("identity", 1, 15), 16, 10).cast("long") % partitions
        words = (F.lit(f"{query_id} {batch_id} {owner}"), F.concat_ws(":", "identity", "number"))
        header = F.struct(
            F.lit(RECORD_HEADER).alias("key"), F.concat_ws(" ", *words).cast("binary").alias("value")
        )
        numbered = made.repartition("together").withColumn("number", F.row_number().over(apart) - 1)
        return numbered.sortWithinPartitions(_POSITION).select(
            "key",
            "value",
            F.concat(F.coalesce(F.col("headers"), F.array().cast(HEADERS_TYPE)), F.array(header)).alias(
                "headers"
            ),
            F.coalesce(F.col("partition"), F.when(F.col("key").isNull(), by_identity).cast("int")).alias(
                "partition"
            ),
        )

    def _explain(self, spark: SparkSession, error: Exception) -> None:
        """Raise Holdfast's error for one that is Kafka's; return for any other."""
        refusal = _REFUSED.search(str(error))
        if refusal is not None:
            raise Invalid(
                "Kafka refuses a record of the batch",
                code="HF-E2363",
                where=f"{self.topic} at {self.options[SERVERS]}",
                found=f"{refusal[1]}: {refusal[2]}",
                hint="make the records smaller or the limits of topic and client larger, and see that the"
                " client may write to the topic; what was sent of the batch is sent again, and readers that"
                " drop repeats take it once",
            ) from error
        if _OF_KAFKA.search(str(error)):
            self.partitions(spark)  # which says that the topic is gone, or that no broker answers

    def require_in_step(self, written: WrittenQuery | None, first: int, token: int | None) -> None:
        """Refuse to write what readers of the topic would take for repeats.

        Args:
            written: What the topic has of the query.
            first: The first batch that the query plans anew.
            token: What the ledger has given for this start.

        Raises:
            Conflict: The topic has batches that the checkpoint does not know, or was written under another
                ledger.
        """
        if written is None:
            return
        if written.batch_id >= first and token is None:
            raise Conflict(
                "the topic has batches that the checkpoint does not know",
                code="HF-E4063",
                where=self.topic,
                found=f"batch {written.batch_id}",
                expected=f"none after batch {first - 1}" if first else "none: the checkpoint is new",
                hint="readers that drop repeats would drop the batches that come; continue under a new query"
                " id, as a fork does, or write to a topic of its own",
            )
        if token is not None and written.generation is not None and token <= written.generation:
            raise Conflict(
                "the topic was written under another ledger",
                code="HF-E4064",
                where=self.topic,
                found=f"token {token}",
                expected=f"more than {written.generation}, which its newest records have",
                hint="readers that drop repeats would drop what comes; name the ledger that was used before,"
                " or write to a topic of its own",
            )

    def _require_types(self, df: DataFrame) -> None:
        for name, types in self._typed():
            kind = type_of(df, name)
            if kind not in types:
                raise Invalid(
                    f"column {name!r} cannot become a part of a record",
                    code="HF-E2364",
                    where=_WHERE,
                    found=kind,
                    expected=" or ".join(types),
                    hint="cast it, or leave out the column `value`: then each row is written as JSON",
                )

    def _typed(self) -> list[tuple[str, tuple[str, ...]]]:
        if "value" not in self.columns:
            return []
        wanted: list[tuple[str, tuple[str, ...]]] = [
            ("value", _TEXT),
            ("partition", ("int",)),
            ("headers", (HEADERS_TYPE,)),
        ]
        if self.key is None:
            wanted.append(("key", _TEXT))
        return [(name, types) for name, types in wanted if name in self.columns]

    def _record(self) -> list[Column]:
        from pyspark.sql import functions as F  # noqa: N812

        def column(name: str, kind: str, *, there: bool) -> Column:
            return (F.col(quoted(name)) if there else F.lit(None)).cast(kind)

        as_it_is = "value" in self.columns
        key = self.key or "key"
        # Through text: a number's own bytes are nobody's key.
        text = F.col(quoted(key)).cast("string").cast("binary") if self.key else None
        whole = F.to_json(F.struct(*(quoted(name) for name in self.columns)))
        identity = (
            F.to_json(F.struct(*(quoted(name) for name in self.identify_by)))
            if self.identify_by
            else F.lit(None).cast("string")
        )
        return [
            (text if text is not None else column("key", "binary", there=as_it_is and key in self.columns))
            .cast("binary")
            .alias("key"),
            (F.col("value") if as_it_is else whole).cast("binary").alias("value"),
            column("headers", HEADERS_TYPE, there=as_it_is and "headers" in self.columns).alias("headers"),
            column("partition", "int", there=as_it_is and "partition" in self.columns).alias("partition"),
            identity.alias("told_by"),
        ]

    def _identity(self) -> Column:
        """Return the columns that distinguish a record from others of its batch; equal ones are numbered."""
        from pyspark.sql import functions as F  # noqa: N812

        if not self.identify_by:
            return F.substring(self._content(), 1, _IDENTITY_DIGITS)
        place = F.coalesce(F.col("partition").cast("string"), F.lit("-"))
        words = F.concat_ws(" ", _digest("key"), place, _digest("told_by"))
        return F.substring(F.sha2(words.cast("binary"), 256), 1, _IDENTITY_DIGITS)

    def _content(self) -> Column:
        from pyspark.sql import functions as F  # noqa: N812

        def of_header(header: Any) -> Column:
            return F.concat_ws(":", _digest(header["key"]), F.coalesce(_digest(header["value"]), F.lit("-")))

        none = F.lit("-")
        parts = (
            F.coalesce(_digest("key"), none),
            F.coalesce(_digest("value"), none),
            F.coalesce(F.col("partition").cast("string"), none),
            F.coalesce(F.array_join(F.transform("headers", of_header), ","), none),
        )
        return F.sha2(F.concat_ws(" ", *parts).cast("binary"), 256)


def _digest(column: Any) -> Column:
    """A digest of a text or of bytes; null of null."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.sha2((F.col(column) if isinstance(column, str) else column).cast("binary"), 256)


@dataclass(slots=True)
class KafkaStart:
    """The topic as of one start of a query.

    Attributes:
        topic: The topic, and how rows become its records.
        partitions: How many partitions the topic has.
        fault: What the sink and its batches tell each other.
    """

    topic: KafkaTopic
    partitions: int = 0
    fault: Fault = field(default_factory=Fault)

    def prepare(self, spark: SparkSession) -> None:
        """Ask the brokers for the topic's partitions; see `KafkaTopic.partitions` for what it raises."""
        self.partitions = self.topic.partitions(spark)

    def write(self, batch: DataFrame, query_id: str, batch_id: int) -> None:
        """Send a batch's rows."""
        self.topic.write(batch, query_id, batch_id, self.fault.token, self.partitions)

    def require_in_step(self, spark: SparkSession, checkpoint: str) -> None:
        """Refuse a checkpoint whose batches readers would take for repeats; warn of another query's records.

        Raises:
            Conflict: The topic has batches that the checkpoint does not know, or was written under another
                ledger.
            Corrupt: The checkpoint does not tell the query's id.
            Unavailable: The storage or the brokers do not answer.
        """
        query_id = query_id_in(spark, checkpoint)
        written = {query.query_id: query for query in self.topic.newest(spark)}
        own = None if query_id is None else written.pop(query_id, None)
        self.topic.require_in_step(own, first_unplanned(spark, checkpoint), self.fault.token)
        if own is None:
            warn_of_fork(self.topic.topic, written)
