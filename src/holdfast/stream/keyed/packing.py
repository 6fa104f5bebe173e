"""From a stream's rows to packets before the shuffle, and from packed answers to rows behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import Invalid
from holdfast.stream.event_time import quoted, type_of, watermarks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from holdfast.worker.declarations.base_classes import Keyed, KeyedTable
    from holdfast.worker.lane import Combiner, Lane, Stream
    from holdfast.worker.packer import Packer


@dataclass(frozen=True, slots=True)
class Input:
    """One stream of a keyed operator: its frame, key columns and name."""

    frame: DataFrame
    by: tuple[str, ...]
    name: str


def stream_of(source: Input, processor: Keyed | KeyedTable, *, combines: bool) -> Stream:
    """A stream as it reaches the state: its rows, or what a processor combines them to."""
    from holdfast.worker.declarations.types import schema_of
    from holdfast.worker.lane import Stream

    time_column = next(iter(watermarks(source.frame)), None)
    schema = schema_of(source.frame.schema)
    if combines:
        schema = schema_of(getattr(processor, "combined", None) or schema)
        missing = [key for key in source.by if key not in schema.names]
        if missing:
            raise Invalid(
                "combined events have lost their key", where="combined", found=", ".join(schema.names),
                expected=", ".join(source.by),
            hint="name the columns of the key in `combined`, and return them from combine")  # fmt: skip
    return Stream(source.name, schema, source.by, time_column if time_column in schema.names else None)


def packed(source: Input, packer: Packer, combiner: Combiner | None) -> DataFrame:
    """A stream's events as packets."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.engine.plans.keyed_operator import batch_time_ms
    from holdfast.worker.declarations.types import type_text
    from holdfast.worker.lane import HASH, NOW

    frame, schema = source.frame, packer.stream.schema
    if combiner is not None:
        columns = ", ".join(f"{quoted(field.name)} {type_text(field.type)}" for field in schema)
        frame = frame.mapInArrow(combiner.__call__, columns)
    # An instance is where its group is: it needs no hash.
    added = [(F.lit(0).cast("long") if packer.of_instances else hash_of(frame, source.by)).alias(HASH)]
    if packer.timed:
        added.append(batch_time_ms().alias(NOW))
    hashed = frame.select(*(F.col(quoted(name)) for name in schema.names), *added)
    return hashed.mapInArrow(packer.__call__, packer.columns)


def hash_of(frame: DataFrame, keys: Sequence[str]) -> Column:
    """The hash by which keys are told apart and put into groups."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    return F.xxhash64(*(_one_zero(frame, key) for key in keys))


def _one_zero(frame: DataFrame, key: str) -> Column:
    """A key column whose equal values are equal bytes: one zero and one NaN."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    column = F.col(quoted(key))
    if type_of(frame, key) not in ("float", "double"):
        return column
    return F.when(F.isnan(column), F.lit(float("nan"))).otherwise(column + F.lit(0.0))


def ticks_of(frame: DataFrame, packer: Packer) -> DataFrame:
    """A packet for each key group, once a second, that wakes it."""
    from holdfast.worker.lane import Waker

    ticks = frame.sparkSession.readStream.format("rate").option("rowsPerSecond", 1)
    touching = packer.touching if packer.of_instances else None
    waker = Waker(packer.layout, touching)
    return ticks.option("numPartitions", 1).load().mapInArrow(waker.__call__, packer.columns)


def unpacked(answers: DataFrame, metric: str, lane: Lane, marked: Column) -> DataFrame:
    """The answers as rows, with the counts of each batch beside them as an observed metric."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.worker.declarations.types import schema_text
    from holdfast.worker.lane import Unpacker

    counts = [F.sum(F.get("counts", F.lit(at))).alias(name) for at, name in enumerate(lane.count_names)]
    # The definition's number first: Spark prints no more than some 25 columns of a plan's node.
    watched = answers.observe(metric, marked, *counts)
    if "rows" in watched.columns:
        return watched.select(F.inline("rows"))
    return watched.select("payload").mapInArrow(Unpacker(lane.output).__call__, schema_text(lane.output))
