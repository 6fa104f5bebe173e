"""A Kafka topic with a query's rows, each record with a header that identifies repeats.

Spark's writer sends the rows of a batch again when the batch runs again. Their order and their distribution
over partitions may then differ, but the set of rows is the same. So a record is identified by a digest of its
contents and its number among equal records: the set of these identities is the same in each repeat.
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
# The options of Spark's sink that this sink sets.
_OURS: Final = ("topic", "includeheaders", SERVERS)
_IDENTITY_DIGITS: Final = 32
_POSITION: Final = "holdfast_position"
# Kafka's messages for permanent rejections, and for a missing broker or topic.
_REFUSED: Final = re.compile(
    r"kafka\.common\.errors\.(RecordTooLargeException|InvalidRecordException|\w*AuthorizationException"
    r"|InvalidTopicException|PolicyViolationException): ?(.*)"
)
_RESUMES: Final = "then start the query again: it sends the whole batch again"
_TOO_LARGE: Final = (
    "raise max.message.bytes of the topic and kafka.max.request.size of the sink, or write smaller records,"
    f" {_RESUMES}"
)
_NO_PERMISSION: Final = f"allow the Kafka user of the query to write to the topic, {_RESUMES}"
_WRONG_TOPIC: Final = f"give a topic name of letters, digits, `.`, `_` and `-`, {_RESUMES}"
_WRONG_RECORD: Final = (
    "write records that the topic and the policy of the brokers accept, such as records with a key for a"
    f" compacted topic, {_RESUMES}"
)
_OF_KAFKA: Final = re.compile(r"org\.apache\.kafka\.")


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A Kafka topic that a query writes to.

    Attributes:
        topic: The name of the topic.
        options: The options of Spark's sink.
        columns: The columns of the query.
        key: The column with the key, or None for the column `key`, if it exists.
        identify_by: The columns that identify a record within its batch; empty for all of its contents.
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
        """Return a topic after checking a query's columns and the options; contacts no broker.

        Raises:
            Invalid: A column or an option is invalid.
        """
        if not servers or not topic:
            raise Invalid(
                "missing topic name or broker addresses",
                code="HF-E2359",
                where=_WHERE,
                found=f"servers={servers!r}, topic={topic!r}",
                hint='write .kafka("broker:9092", "orders")',
            )
        taken = [name for name in options if name.lower() in _OURS]
        if taken:
            raise Invalid(
                "an option conflicts with an argument of .kafka(…)",
                code="HF-E2360",
                where=_WHERE,
                found=", ".join(taken),
                expected="servers=… and topic=… only",
                hint="remove the option",
            )
        columns = tuple(df.columns)
        named = [*identify_by, *([] if key is None else [key])]
        missing = [name for name in named if name not in columns]
        if missing:
            raise Invalid(
                "the query lacks a column named in key= or identify_by=",
                code="HF-E2361",
                where=_WHERE,
                found=", ".join(missing),
                expected=f"columns of the query: {', '.join(columns)}",
                hint="name existing columns, or add the missing ones to the query",
            )
        if "topic" in columns and "value" in columns:
            raise Invalid(
                "a topic column is not supported: .kafka(…) writes all records to one topic",
                code="HF-E2362",
                where=_WHERE,
                hint="drop the column, and write one sink for each topic",
            )
        made = cls(topic, {**options, SERVERS: servers}, columns, key, tuple(identify_by))
        made._require_types(df)
        return made

    def partitions(self, spark: SparkSession) -> int:
        """Return the number of partitions of the topic.

        Raises:
            Invalid: The Kafka client rejects an option.
            NotFound: The topic does not exist.
            Unavailable: No broker answers.
            Unsupported: The session lacks the Kafka connector.
        """
        return len(ends_of(spark, self.topic, self.options))

    def newest(self, spark: SparkSession) -> list[WrittenQuery]:
        """Return the queries with records at the end of the topic; raises the errors of `partitions`."""
        return newest_in_topic(spark, self.topic, self.options)

    def write(
        self, batch: DataFrame, query_id: str, batch_id: int, generation: int | None, partitions: int
    ) -> None:
        """Send a batch's rows, in one Spark job with a shuffle of the batch by key.

        Raises:
            Invalid: The brokers or the Kafka client reject a record.
            NotFound: The topic does not exist any more.
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
        """Return a batch's rows as records with key, value, headers and partition.

        Records with the same key are in one task, in the order of the batch.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812

        # The partition of a record without a key depends on its identity, so that it is the same in a repeat.
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
        """Raise a Holdfast error in place of an error of Kafka; return for any other error."""
        refusal = _REFUSED.search(str(error))
        if refusal is not None:
            raise Invalid(
                "Kafka rejected a record of the batch",
                code="HF-E2363",
                where=f"{self.topic} at {self.options[SERVERS]}",
                found=f"{refusal[1]}: {refusal[2]}",
                hint=_TOO_LARGE
                if refusal[1] == "RecordTooLargeException"
                else _NO_PERMISSION
                if refusal[1].endswith("AuthorizationException")
                else _WRONG_TOPIC
                if refusal[1] == "InvalidTopicException"
                else _WRONG_RECORD,
            ) from error
        if _OF_KAFKA.search(str(error)):
            self.partitions(spark)  # raises the error for a missing topic, or for brokers that do not answer

    def require_in_step(self, written: WrittenQuery | None, first: int, token: int | None) -> None:
        """Raise an error if readers of the topic would drop the records of this start as repeats.

        Args:
            written: The newest records of the query in the topic, or None.
            first: The first batch that the query has not planned.
            token: The token of this start in the ledger, or None without a ledger.

        Raises:
            Conflict: The topic has batches that the checkpoint does not have, or was written with a different
                ledger.
        """
        if written is None:
            return
        if written.batch_id >= first and token is None:
            raise Conflict(
                "the topic has batches that the checkpoint does not have",
                code="HF-E4063",
                where=self.topic,
                found=f"batch {written.batch_id}",
                expected=f"no batch after batch {first - 1}"
                if first
                else "no batch, because the checkpoint is new",
                hint="continue under a new query id, as a fork does, or write to a separate topic; otherwise"
                " readers that drop repeats would drop the next batches",
            )
        if token is not None and written.generation is not None and token <= written.generation:
            raise Conflict(
                "the topic was written under a different ledger",
                code="HF-E4064",
                where=self.topic,
                found=f"token {token}",
                expected=f"a token above {written.generation}, the token of the topic's newest records",
                hint="use the former ledger, or write to a separate topic; otherwise readers that drop"
                " repeats would drop the next records",
            )

    def _require_types(self, df: DataFrame) -> None:
        for name, types in self._typed():
            kind = type_of(df, name)
            if kind not in types:
                raise Invalid(
                    f"column {name!r} has the wrong type for a Kafka record",
                    code="HF-E2364",
                    where=_WHERE,
                    found=kind,
                    expected=" or ".join(types),
                    hint="cast the column, or drop the column `value` to write each row as JSON",
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
        # Converted to text, because the binary encoding of a number is not useful as a key.
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
        """Return a digest that distinguishes a record from others of its batch; equal ones are numbered."""
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
    """Return a digest of a string or of bytes; null for null."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.sha2((F.col(column) if isinstance(column, str) else column).cast("binary"), 256)


@dataclass(slots=True)
class KafkaStart:
    """The state of a Kafka sink for one start of a query.

    Attributes:
        topic: The topic, and the conversion of rows to records.
        partitions: The number of partitions of the topic.
        fault: The state that the sink shares with its batch function.
    """

    topic: KafkaTopic
    partitions: int = 0
    fault: Fault = field(default_factory=Fault)

    def prepare(self, spark: SparkSession) -> None:
        """Read the number of partitions of the topic; raises the errors of `KafkaTopic.partitions`."""
        self.partitions = self.topic.partitions(spark)

    def write(self, batch: DataFrame, query_id: str, batch_id: int) -> None:
        """Send a batch's rows."""
        self.topic.write(batch, query_id, batch_id, self.fault.token, self.partitions)

    def require_in_step(self, spark: SparkSession, checkpoint: str) -> None:
        """Check that readers would not drop the next batches; warn if the topic has records of a different
        query.

        Raises:
            Conflict: The topic has batches that the checkpoint does not have, or was written with a different
                ledger.
            Corrupt: The metadata of the checkpoint lacks the query's id.
            Unavailable: The storage or the brokers do not answer.
        """
        query_id = query_id_in(spark, checkpoint)
        written = {query.query_id: query for query in self.topic.newest(spark)}
        own = None if query_id is None else written.pop(query_id, None)
        self.topic.require_in_step(own, first_unplanned(spark, checkpoint), self.fault.token)
        if own is None:
            warn_of_fork(self.topic.topic, written)
