"""Skip the repeated records of a topic when reading it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import Invalid
from holdfast.formats.record_header import HEADERS_TYPE, RECORD_HEADER, RecordHeader, header_of
from holdfast.stream.event_time import type_of
from holdfast.stream.keyed.keyed_stream import keyed
from holdfast.stream.keyed.state_declarations import map_state, value
from holdfast.worker.declarations.state_descriptors import Keyed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_WHERE: Final = "holdfast.without_repeats(…)"
_NEEDED: Final = ("topic", "partition", "offset", "headers")
_QUERY: Final = "holdfast_query"


@dataclass(slots=True)
class Newest:
    """The newest batch of a query that a reader has seen in a partition of a topic.

    Attributes:
        batch_id: The batch; -1 before the first.
        generation: The greatest generation seen; 0 before the first.
        identities: The records of the batch that were seen.
        earlier: Further records of the batch, in a different container.
    """

    batch_id: int = -1
    generation: int = 0
    identities: set[str] = field(default_factory=set)
    earlier: Container[str] = ()

    def admits(self, header: RecordHeader) -> bool:
        """Return True if a record is new in its partition, and remember it.

        A query writes its batches one after the other, each complete before the next. So a record of an
        earlier batch is a repeat. And after a record of a newer owner, a record of an older owner belongs to
        a batch that the ledger no longer accepts from the older one, and that the newer one writes again.
        """
        if header.generation is not None:
            if header.generation < self.generation:
                return False
            if header.generation > self.generation:
                self.generation = header.generation
                # Only a ledger that was rewound on purpose lets a newer owner write an earlier batch.
                if header.batch_id < self.batch_id:
                    self.batch_id = -1
        if header.batch_id < self.batch_id:
            return False
        if header.batch_id > self.batch_id:
            self.batch_id, self.identities, self.earlier = header.batch_id, set(), ()
        elif header.identity in self.identities or header.identity in self.earlier:
            return False
        self.identities.add(header.identity)
        return True


class RepeatFilter:
    """A filter that recognises repeated records of a topic, for any consumer; needs no Spark.

    Pass it each record in the order of its partition. It remembers one batch per partition and query, so its
    memory does not grow with the topic. A record without Holdfast's header is new. Store `state()` with the
    consumer's offsets, and start the next filter with it.

    Args:
        state: The `state()` of an earlier filter.

    Raises:
        Invalid: The state is not valid.

    Example:
        headers = [("holdfast-record", b"query-1 7 - a1")]
        repeats = hf.RepeatFilter()
        assert repeats.is_new("orders", 0, headers)
        assert not repeats.is_new("orders", 0, headers)

        restarted = hf.RepeatFilter(repeats.state())
        assert not restarted.is_new("orders", 0, headers)
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._newest: dict[tuple[str, int, str], Newest] = {}
        try:
            for row in () if state is None else state["newest"]:
                key = (str(row["topic"]), int(row["partition"]), str(row["query_id"]))
                self._newest[key] = Newest(
                    int(row["batch_id"]), int(row["generation"]), set(row["identities"])
                )
        except (KeyError, TypeError, ValueError) as error:
            raise Invalid(
                "invalid state for a RepeatFilter",
                code="HF-E2376",
                found=f"{type(error).__name__}: {error}",
                hint="pass the result of `RepeatFilter.state()`, or no state to start with the first record",
            ) from error

    def is_new(self, topic: str, partition: int, headers: Iterable[tuple[str, bytes | None]] | None) -> bool:
        """Return True if a record is new, False if it repeats an earlier one of its partition.

        Args:
            topic: The record's topic.
            partition: Its partition.
            headers: Its headers, in the format of confluent-kafka and kafka-python.
        """
        header = header_of(headers)
        if header is None:
            return True
        return self._newest.setdefault((topic, partition, header.query_id), Newest()).admits(header)

    def state(self) -> dict[str, Any]:
        """Return the filter's state for JSON: store it with the consumer's offsets."""
        return {
            "newest": [
                {
                    "topic": topic,
                    "partition": partition,
                    "query_id": query_id,
                    "batch_id": newest.batch_id,
                    "generation": newest.generation,
                    "identities": sorted(newest.identities),
                }
                for (topic, partition, query_id), newest in sorted(self._newest.items())
            ]
        }


def without_repeats(df: DataFrame) -> DataFrame:
    """Return the records of a topic without those that a batch of `hf.sink(…).kafka(…)` repeated.

    Exact for a repeat at any position, if each partition is read from the first record of the batch on.
    Records of other writers are kept. On a stream this is an operator with keyed state, which remembers the
    records of one batch per partition and query; the result has no watermark. On a batch frame it costs a
    shuffle by partition and a sort by offset.

    Args:
        df: A frame of Spark's Kafka source with the option `includeHeaders`, with its columns `topic`,
            `partition`, `offset` and `headers`; other columns are optional.

    Raises:
        Invalid: One of these columns is missing.

    Example:
        # A batch frame in the shape of Spark's Kafka source; a stream has the same columns.
        headers_type = "array<struct<key: string, value: binary>>"
        columns = f"topic string, partition int, offset long, headers {headers_type}"
        headers = [("holdfast-record", bytearray(b"query-1 7 - a1"))]
        records = spark.createDataFrame([("orders", 0, 0, headers), ("orders", 0, 1, headers)], columns)
        assert [record.offset for record in hf.without_repeats(records).collect()] == [0]
    """
    _require_columns(df)
    return _of_stream(df) if df.isStreaming else _of_batch(df)


class _DropRepeats(Keyed):
    """A processor that keeps the first of each record; a key is a partition of a topic and a query."""

    batch_id: Any = value("long", default=-1)
    generation: Any = value("long", default=0)
    identities: Any = map_state("string", "boolean")

    def __init__(self, width: int, offset: int, headers: int) -> None:
        self._width = width
        self._offset = offset
        self._headers = headers

    def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Iterator[Any]:  # noqa: ARG002 - a handler's arguments
        """Filter the records of a batch in the order of their partition."""
        rows = sorted((tuple(event) for event in events), key=lambda row: row[self._offset])
        newest = Newest(state.batch_id, state.generation, earlier=state.identities)
        for row in rows:
            header = header_of(map(tuple, row[self._headers] or ()))
            if header is None or newest.admits(header):
                yield row[: self._width]
        if newest.batch_id >= 0:
            if isinstance(newest.earlier, tuple):
                state.identities.clear()
            state.batch_id, state.generation = newest.batch_id, newest.generation
            for identity in newest.identities:
                state.identities[identity] = True


def _of_stream(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    told = F.filter(F.col("headers"), lambda header: header["key"] == RECORD_HEADER)
    query = F.coalesce(F.split(F.element_at(told, -1)["value"].cast("string"), " ")[0], F.lit(""))
    columns = df.columns
    dropper = _DropRepeats(len(columns), columns.index("offset"), columns.index("headers"))
    keys = ("topic", "partition", _QUERY)
    marked = df.withColumn(_QUERY, F.when(F.size(told) > 0, query).otherwise(F.lit("")))
    return keyed(marked, by=keys).process(dropper, output=df.schema, name="without-repeats", late="keep")


def _of_batch(df: DataFrame) -> DataFrame:
    def drop(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        seen = RepeatFilter()
        for batch in batches:
            topics, partitions, headers = (
                batch.column(name).to_pylist() for name in ("topic", "partition", "headers")
            )
            new = [
                seen.is_new(topic, partition, [(each["key"], each["value"]) for each in given or ()])
                for topic, partition, given in zip(topics, partitions, headers, strict=True)
            ]
            yield batch.filter(pa.array(new, pa.bool_()))

    spread = df.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")
    return spread.mapInArrow(drop, df.schema)


def _require_columns(df: DataFrame) -> None:
    names = df.columns
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise Invalid(
            "the frame lacks columns that identify repeated records",
            code="HF-E2377",
            where=_WHERE,
            found=", ".join(names),
            expected=", ".join(_NEEDED),
            hint='read the topic with .option("includeHeaders", "true"), and drop columns afterwards'
            if "headers" in missing
            else f"drop {', '.join(missing)} only after without_repeats",
        )
    if type_of(df, "headers") != HEADERS_TYPE:
        raise Invalid(
            "the column `headers` does not have the type of Spark's Kafka source",
            code="HF-E2378",
            where=_WHERE,
            found=type_of(df, "headers"),
            expected=HEADERS_TYPE,
            hint="call without_repeats on the frame as read, before other steps",
        )
