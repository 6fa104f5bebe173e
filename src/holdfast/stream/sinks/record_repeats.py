"""The filter for repeated records when reading a topic."""

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
    """The newest batch of a query that a reader has read in a partition of a topic.

    Attributes:
        batch_id: The id of the batch; -1 before the first one.
        generation: The highest generation read; 0 before the first one.
        identities: The identities of the records of the batch that were read.
        earlier: More identities of records of the batch, in a separate container.
    """

    batch_id: int = -1
    generation: int = 0
    identities: set[str] = field(default_factory=set)
    earlier: Container[str] = ()

    def admits(self, header: RecordHeader) -> bool:
        """Return whether a record is new in its partition, and remember it.

        A query writes its batches one after the other, each completely before the next, so a record of an
        earlier batch is a repeat. After a record of a newer owner, a record of an older owner belongs to a
        batch that the ledger rejects from the older owner, and that the newer owner writes again.
        """
        if header.generation is not None:
            if header.generation < self.generation:
                return False
            if header.generation > self.generation:
                self.generation = header.generation
                # A newer owner writes an earlier batch only if the ledger was rewound on purpose.
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
    """A filter that detects repeated records of a topic, for any consumer; it needs no Spark.

    Pass it each record in the order of its partition. The filter remembers one batch per partition and query,
    so its memory does not grow with the topic. A record without Holdfast's header counts as new. Store
    `state()` with the consumer's offsets, and start the next filter with it.

    Args:
        state: The result of `state()` of an earlier filter, or None.

    Raises:
        Invalid: The state is malformed.

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
        """Return whether a record is new: True, or False if it repeats an earlier record of its partition.

        Args:
            topic: The topic of the record.
            partition: The partition of the record.
            headers: The headers of the record, in the format of confluent-kafka and kafka-python.
        """
        header = header_of(headers)
        if header is None:
            return True
        return self._newest.setdefault((topic, partition, header.query_id), Newest()).admits(header)

    def state(self) -> dict[str, Any]:
        """Return the state of the filter for JSON; store it with the consumer's offsets."""
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
    """Return the records of a topic without repeats from batches that `hf.sink(…).kafka(…)` sent again.

    The result is exact wherever a record is repeated, if each partition is read from the first record of the
    batch. Records of other writers are kept. On a stream this is an operator with keyed state, which
    remembers the records of one batch per partition and query; the result has no watermark. On a batch frame
    it costs a shuffle by partition and a sort by offset.

    Args:
        df: A frame of Spark's Kafka source with the option `includeHeaders`. The columns `topic`,
            `partition`, `offset` and `headers` are required.

    Raises:
        Invalid: A required column is missing.

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
    """A processor that returns the first of equal records; a key is a partition of a topic and a query."""

    batch_id: Any = value("long", default=-1)
    generation: Any = value("long", default=0)
    identities: Any = map_state("string", "boolean")

    def __init__(self, width: int, offset: int, headers: int) -> None:
        self._width = width
        self._offset = offset
        self._headers = headers

    def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Iterator[Any]:  # noqa: ARG002 - a handler's arguments
        """Return the new records of a batch, in the order of their partition."""
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
