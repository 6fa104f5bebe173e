"""Keyed state written in Python, moved in tables: `hf.keyed(df, by=…).process(…)`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from holdfast.config.check import whole
from holdfast.config.units import Size, parse_size
from holdfast.engine.watch import KEYED_METRIC
from holdfast.errors import Invalid
from holdfast.stream.broadcast import BroadcastStream
from holdfast.stream.event_time import names_of, quoted, require_columns, watermarks
from holdfast.stream.operators import Defined, define

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from holdfast.worker.build import Options
    from holdfast.worker.declared.bases import Keyed, KeyedTable
    from holdfast.worker.declared.states import State
    from holdfast.worker.lane import Lane, Stream
    from holdfast.worker.operator import Operator

_WHERE = "holdfast.keyed(…)"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_MOST_GROUPS = 1 << 15
_NO_KEY = ("array", "map", "struct", "variant", "interval")
KEY_GROUPS = 128
MEMORY = "256m"


@dataclass(frozen=True, slots=True)
class Input:
    """One stream of a keyed operator: its frame, key columns and name."""

    frame: DataFrame
    by: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class KeyedStream:
    """Streams with a key, waiting for a processor; made by `keyed`."""

    inputs: tuple[Input, ...]
    key_groups: int
    broadcast: BroadcastStream | None = None

    def connect(self, df: DataFrame, *, by: str | Iterable[str], name: str) -> KeyedStream:
        """Add a stream that shares the state; its events go to the processor's `on_<name>`.

        The key columns must have the types of the first stream's, in the same order; their names may
        differ, and the processor sees the first stream's names in `ctx.key`.

        Raises:
            Invalid: The keys do not match, or the name is taken.
        """
        added = _input(df, by, name)
        first = self.inputs[0]
        if name in {each.name for each in self.inputs}:
            raise Invalid("two connected streams have one name", where=_WHERE, found=name)
        ours, theirs = ([_type(each.frame, key) for key in each.by] for each in (first, added))
        if ours != theirs:
            raise Invalid(
                "the key of a connected stream is of another type",
                where=f"{_WHERE}.connect(…, name={name!r})",
                found=", ".join(theirs),
                expected=", ".join(ours),
            )
        return replace(self, inputs=(*self.inputs, added))

    def with_broadcast(self, rules: BroadcastStream) -> KeyedStream:
        """Let the processor read all rows of another stream: `ctx.broadcast`, a mapping by their key.

        The rows of a batch are taken in before its events and timers. A `KeyedTable` reads them as a
        table, `state.broadcast`. See `holdfast.broadcast`.

        Raises:
            Invalid: There is one already, or a stream has its name.
        """
        if self.broadcast is not None:
            raise Invalid(
                "an operator has one broadcast stream",
                where=f"{_WHERE}.with_broadcast",
                found=f"{self.broadcast.name} and {rules.name}",
                hint="union the two, with a column that says which is which as a part of the key",
            )
        if rules.name in {each.name for each in self.inputs}:
            raise Invalid("two connected streams have one name", where=_WHERE, found=rules.name)
        return replace(self, broadcast=rules)

    def process(
        self,
        processor: Keyed | KeyedTable,
        *,
        output: Any,
        name: str,
        ticks: bool | None = None,
        late: str = "drop",
        on_error: str = "fail",
        side_outputs: bool = False,
        drop: Iterable[str] = (),
        memory: Size = MEMORY,
    ) -> DataFrame:
        """Run a processor over the streams, and give what it puts out as a stream.

        Within a key and a batch, timers that are due come first, in the order of their time, then the
        events: stream by stream as connected, each in its order of arrival. Between keys no order is
        promised. The result has no watermark.

        Write the result in output mode `append` or `update`; they do the same.

        Args:
            processor: An instance of a class of yours.
            output: The columns that it puts out: "customer string, visits long", or a schema.
            name: What the operator is called, in errors, metrics and savepoints; one in each query.
            ticks: Whether a source with one tick a second is added, so that timers in processing time
                fire when nothing arrives. By default it is where a processor has timers and no stream
                has a watermark. A query's sources cannot change, so neither can this.
            late: What becomes of events that the watermark has passed: "drop" counts them, "keep" hands
                them to the processor.
            on_error: What becomes of an event that the processor raises for: "fail" stops the query;
                "dead-letter" puts it out at the side and runs the key again without it.
            side_outputs: Add the columns `side` ("late", "failed", or null for a row of the
                processor's own), `side_stream`, `side_event` (JSON) and `side_error`.
            drop: Former states whose values may be thrown away.
            memory: What a worker may use, about, whatever the size of the state.

        Raises:
            Invalid: The processor, the output, a name or a choice is wrong; it says which.
        """
        from pyspark.sql import DataFrame  # noqa: PLC0415 - the package imports without Spark

        from holdfast.engine.keyed_operator import grafts, has_operator, mark, stateful  # noqa: PLC0415 - as above
        from holdfast.worker.build import Options  # noqa: PLC0415 - as above

        options = Options(
            _checked_name(name),
            self.key_groups,
            event_time=any(watermarks(each.frame) for each in self.inputs),
            late=_word(late, "late", ("drop", "keep")),
            on_error=_word(on_error, "on_error", ("fail", "dead-letter")),
            side_outputs=side_outputs,
            drop=tuple(names_of(drop, where=f"{_WHERE}.process: drop")),
            memory_bytes=parse_size(memory, f"{_WHERE}.process: memory"),
        )
        lane, operator, states, combine, ticking = _prepared(self, processor, output, options, ticks=ticks)
        metric = f"{KEYED_METRIC}{name}"
        for each in self.inputs:
            if has_operator(each.frame, metric):
                raise Invalid("two operators of a query have one name", where=_WHERE, found=name)
        packed = [
            _packed(each, stream, at, self.key_groups, combine)
            for at, (each, stream) in enumerate(zip(self.inputs, lane.streams, strict=True))
        ]
        if self.broadcast is not None:
            packed.append(self.broadcast.packed(self.key_groups, len(self.inputs)))
        if ticking:
            packed.append(_ticks(self.inputs[0].frame, self.key_groups))
        together = reduce(DataFrame.union, packed)
        answers = stateful(together, operator, event_time=operator.event_time, graft=grafts())
        number = define(Defined(lane.layout, states, options.drop))
        return _unpacked(answers, metric, lane, mark(number))


def keyed(
    df: DataFrame, *, by: str | Iterable[str], name: str = "event", key_groups: int = KEY_GROUPS
) -> KeyedStream:
    """Give a stream a key, so that a processor can keep state for each of its values.

    Null is a key like any other. NaN is one key, and 0.0 and -0.0 are one.

    Args:
        df: A stream. With `withWatermark`, timers and event-time TTL run on its watermark.
        by: The key columns.
        name: The stream's name, which its handler bears where several are connected: `on_<name>`.
        key_groups: How many groups the keys are put into, fixed at the first start. A group is the unit
            that moves between partitions, so there cannot be more useful partitions than groups.

    Raises:
        Invalid: The frame is not a stream, or a key column is missing or of a type that cannot be one.
    """
    if whole(key_groups, f"{_WHERE}: key_groups", least=1) > _MOST_GROUPS:
        raise Invalid(
            "the number of key groups is out of range",
            where=_WHERE,
            found=repr(key_groups),
            expected=f"1 to {_MOST_GROUPS}",
        )
    return KeyedStream((_input(df, by, name),), key_groups)


def _input(df: DataFrame, by: str | Iterable[str], name: str) -> Input:
    keys = names_of(by, where=_WHERE)
    if not keys:
        raise Invalid("a key is needed", where=_WHERE, found="none", expected="by=… with a column")
    if not name.isidentifier():
        raise Invalid(
            "a stream's name is part of its handler's name",
            where=_WHERE,
            found=name,
            expected="an identifier",
        )
    require_columns(df, keys, where=_WHERE)
    if not df.isStreaming:
        raise Invalid(
            "the frame is not a stream",
            where=_WHERE,
            hint="run a processor over rows at rest with holdfast.testing, without Spark",
        )
    for key in keys:
        if _type(df, key).startswith(_NO_KEY):
            raise Invalid(
                "a column of this type cannot be a key",
                where=f"{_WHERE}: by={key!r}",
                found=_type(df, key),
                expected="a plain type",
                hint="name the fields that make the key as columns of their own",
            )
    return Input(df, tuple(keys), name)


def _prepared(
    keyed: KeyedStream,
    processor: Keyed | KeyedTable,
    output: Any,
    options: Options,
    *,
    ticks: bool | None,
) -> tuple[Lane, Operator, tuple[State, ...], Keyed | KeyedTable | None, bool]:
    """What the workers must know, checked; the states; what combines; and whether ticks are wanted."""
    from holdfast.worker.build import assemble  # noqa: PLC0415 - importing holdfast must stay cheap
    from holdfast.worker.declared.processor import definition_of  # noqa: PLC0415 - as above
    from holdfast.worker.declared.types import schema_of  # noqa: PLC0415 - as above
    from holdfast.worker.operator import Operator  # noqa: PLC0415 - as above

    broadcast = keyed.broadcast.described() if keyed.broadcast is not None else None
    names = [each.name for each in keyed.inputs]
    definition = definition_of(processor, names, broadcast.name if broadcast is not None else None)
    if ticks and not definition.has_timers:
        raise Invalid("ticks wake timers, and the processor has none", where=_WHERE, hint="write an on_timer")
    streams = [_stream(each, processor, combines=definition.combines) for each in keyed.inputs]
    started_ms = int(time.time() * 1000)
    lane, parts = assemble(processor, definition, streams, schema_of(output), options, started_ms, broadcast)
    operator = Operator(lane, parts, event_time=options.event_time)
    ticking = definition.has_timers and not options.event_time if ticks is None else ticks
    states = definition.states if broadcast is None else (*definition.states, broadcast.state)
    return lane, operator, states, processor if definition.combines else None, ticking


def _stream(each: Input, processor: Keyed | KeyedTable, *, combines: bool) -> Stream:
    from holdfast.worker.declared.types import schema_of  # noqa: PLC0415 - as above
    from holdfast.worker.lane import Stream  # noqa: PLC0415 - importing holdfast must stay cheap

    time_column = next(iter(watermarks(each.frame)), None)
    schema = schema_of(each.frame.schema)
    if combines:
        schema = _combined(processor, schema)
        missing = [key for key in each.by if key not in schema.names]
        if missing:
            raise Invalid(
                "combined events have lost their key", where="combined", found=", ".join(schema.names),
                expected=", ".join(each.by),
            )  # fmt: skip
    return Stream(each.name, schema, each.by, time_column if time_column in schema.names else None)


def _combined(processor: Keyed | KeyedTable, schema: pa.Schema) -> pa.Schema:
    """The columns of events that were combined before the shuffle."""
    from holdfast.worker.declared.types import schema_of  # noqa: PLC0415 - importing holdfast must stay cheap

    combined = getattr(processor, "combined", None)
    return schema_of(combined) if combined else schema


def _packed(
    each: Input, stream: Stream, number: int, key_groups: int, combine: KeyedTable | Keyed | None
) -> DataFrame:
    """A stream's events as packets."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the package imports without Spark

    from holdfast.worker.declared.types import type_text  # noqa: PLC0415 - as above
    from holdfast.worker.lane import HASH, PACKED, Combiner, Packer  # noqa: PLC0415 - as above

    frame = each.frame
    if combine is not None:
        columns = ", ".join(f"{quoted(field.name)} {type_text(field.type)}" for field in stream.schema)
        frame = frame.mapInArrow(Combiner(combine, stream.schema).__call__, columns)
    hashed = frame.select(
        *(F.col(quoted(name)) for name in stream.schema.names),
        F.xxhash64(*(_one_zero(frame, key) for key in each.by)).alias(HASH),
    )
    packer = Packer(stream.schema, key_groups, number)
    return hashed.mapInArrow(packer.__call__, PACKED)


def _one_zero(frame: DataFrame, key: str) -> Column:
    """A key column whose equal values are equal bytes: one zero and one NaN."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the package imports without Spark

    column = F.col(quoted(key))
    if _type(frame, key) not in ("float", "double"):
        return column
    return F.when(F.isnan(column), F.lit(float("nan"))).otherwise(column + F.lit(0.0))


def _ticks(frame: DataFrame, key_groups: int) -> DataFrame:
    """A packet for each key group, once a second, that wakes it."""
    from holdfast.worker.lane import PACKED, Waker  # noqa: PLC0415 - importing holdfast must stay cheap

    ticks = frame.sparkSession.readStream.format("rate").option("rowsPerSecond", 1)
    return ticks.option("numPartitions", 1).load().mapInArrow(Waker(key_groups).__call__, PACKED)


def _unpacked(answers: DataFrame, metric: str, lane: Lane, marked: Column) -> DataFrame:
    """The answers as rows, with the counts of each batch beside them as an observed metric."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - the package imports without Spark

    from holdfast.worker.declared.types import type_text  # noqa: PLC0415 - as above
    from holdfast.worker.lane import COUNTS, Unpacker  # noqa: PLC0415 - as above

    counts = [F.sum(F.get("counts", F.lit(at))).alias(name) for at, name in enumerate(COUNTS)]
    columns = ", ".join(f"{quoted(field.name)} {type_text(field.type)}" for field in lane.output)
    watched = answers.observe(metric, *counts, marked).select("payload")
    return watched.mapInArrow(Unpacker(lane.output).__call__, columns)


def _type(frame: DataFrame, name: str) -> str:
    return str(frame.schema[name].dataType.simpleString())


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(str(name)):
        raise Invalid(
            "an operator's name is needed to find its state again",
            where=f"{_WHERE}.process(…, name=…)",
            found=repr(name),
            expected="a letter, then letters, digits, '-', '_' and '.'",
        )
    return name


def _word(value: str, setting: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise Invalid(
            f"`{setting}` is none of the words it can be",
            where=f"{_WHERE}.process(…)",
            found=repr(value),
            expected=" or ".join(map(repr, allowed)),
        )
    return value
