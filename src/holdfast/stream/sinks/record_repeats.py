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
        earlier: More of them, where they are kept elsewhere.
    """

    batch_id: int = -1
    generation: int = 0
    identities: set[str] = field(default_factory=set)
    earlier: Container[str] = ()

    def admits(self, header: RecordHeader) -> bool:
        """Return whether a record is new after those before it in its partition, and remember it.

        The batches of a query come one after the other: who writes one has written all of the one before. So
        what comes of an earlier batch is a repeat. And after a record of a newer owner, one of an older owner
        is of a batch that the ledger no longer takes from the older one, and that the newer one writes anew.
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
    """Tells a topic's new records from repeats, for any consumer; needs no Spark.

    Hand it each record in the order of its partition. It remembers one batch for each partition and query, so
    its memory does not grow with the topic. A record without Holdfast's header is new.

    What was seen has to last as long as the consumer's offsets: keep `state()` with them, and begin with it.

    Args:
        state: What an earlier filter gave as `state()`.

    Raises:
        Invalid: That is not such a state.
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
                "this is no state of a RepeatFilter",
                code="HF-E2376",
                found=f"{type(error).__name__}: {error}",
                hint="give what `state()` gave, or nothing to begin with the first record of the topic",
            ) from error

    def is_new(self, topic: str, partition: int, headers: Iterable[tuple[str, bytes | None]] | None) -> bool:
        """Return whether a record is to be used: the first of its kind in the order of its partition.

        Args:
            topic: The record's topic.
            partition: Its partition.
            headers: Its headers, as confluent-kafka and kafka-python give them.
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
    """The records of a topic without those that a batch of `hf.sink(…).kafka(…)` wrote again.

    Exact wherever the repeat stands, as long as each partition is read from the first record of the batch on.
    Records of other writers stay. On a stream this is an operator with keyed state, which remembers for each
    partition and query the records of one batch; the result has no watermark. On a batch frame it costs a
    shuffle by partition and a sort by offset.

    Args:
        df: What Spark's Kafka source gives with the option `includeHeaders`, with its columns `topic`,
            `partition`, `offset` and `headers`; other columns may be added or left out before.

    Raises:
        Invalid: One of these columns is missing.
    """
    _require_columns(df)
    return _of_stream(df) if df.isStreaming else _of_batch(df)


class _DropRepeats(Keyed):
    """Lets the first of each record through; one key for each partition of a topic and query."""

    batch_id: Any = value("long", default=-1)
    generation: Any = value("long", default=0)
    identities: Any = map_state("string", "boolean")

    def __init__(self, width: int, offset: int, headers: int) -> None:
        self._width = width
        self._offset = offset
        self._headers = headers

    def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Iterator[Any]:  # noqa: ARG002 - a handler's arguments
        """Go through the records of a batch in the order of their partition."""
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
            "the frame lacks columns that tell repeats of a record",
            code="HF-E2377",
            where=_WHERE,
            found=", ".join(names),
            expected=", ".join(_NEEDED),
            hint='read the topic with .option("includeHeaders", "true"), and take columns out afterwards'
            if "headers" in missing
            else f"keep {', '.join(missing)} until the repeats are gone",
        )
    if type_of(df, "headers") != HEADERS_TYPE:
        raise Invalid(
            "the column `headers` is not what Spark's Kafka source gives",
            code="HF-E2378",
            where=_WHERE,
            found=type_of(df, "headers"),
            expected=HEADERS_TYPE,
            hint="call it on the frame as it was read, before other steps",
        )
