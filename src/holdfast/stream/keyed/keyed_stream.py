"""`hf.keyed`: state by key in Python, over packets of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import now_ms
from holdfast.config.checks import one_of, whole
from holdfast.config.spark_defaults import MOST_PARTITIONS
from holdfast.config.units import Size, parse_size
from holdfast.engine.cluster import send_package
from holdfast.engine.connect import is_connect, refuse_connect
from holdfast.engine.queries.watch import KEYED_METRIC
from holdfast.errors import Invalid
from holdfast.stream.event_time import (
    NOT_KEYS,
    key_columns,
    names_of,
    quoted,
    require_stream,
    type_of,
    watermarks,
)
from holdfast.stream.keyed.blobs_in_database import BLOBS_FROM, blobs_of, refuse_external_provider
from holdfast.stream.keyed.broadcast_stream import BroadcastStream, not_an_identifier
from holdfast.stream.keyed.hot_keys import checked_key
from holdfast.stream.operator_check import SPREAD_KEY, Defined, checked_name, define, same_name
from holdfast.worker.state.group_numbers import MOST_GROUPS, Numbering

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from holdfast.config.database_stores import Cassandra, Redis
    from holdfast.worker.build import Options
    from holdfast.worker.declarations.state_descriptors import Keyed, KeyedTable
    from holdfast.worker.operator import TaskOperator
    from holdfast.worker.packets import Combiner, InputStream, Lane, Packer
    from holdfast.worker.runtime.partial_aggregates import Split


@dataclass(frozen=True, slots=True)
class Input:
    """One stream of a keyed operator: its frame, key columns and name."""

    frame: DataFrame
    by: tuple[str, ...]
    name: str


def stream_of(source: Input, processor: Keyed | KeyedTable, *, combines: bool) -> InputStream:
    """A stream as it reaches the state: its rows, or what a processor combines them to."""
    from holdfast.worker.declarations.types import schema_of
    from holdfast.worker.packets import InputStream

    time_column = next(iter(watermarks(source.frame)), None)
    schema = schema_of(source.frame.schema)
    if combines:
        schema = schema_of(getattr(processor, "combined", None) or schema)
        missing = [key for key in source.by if key not in schema.names]
        if missing:
            raise Invalid(
                "combined events have lost their key", code="HF-E2322", where="combined",
                found=", ".join(schema.names), expected=", ".join(source.by),
            hint="name the columns of the key in `combined`, and return them from combine")  # fmt: skip
    return InputStream(source.name, schema, source.by, time_column if time_column in schema.names else None)


def packed(source: Input, packer: Packer, combiner: Combiner | None) -> DataFrame:
    """A stream's events as packets."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.engine.keyed_operator import batch_time_ms
    from holdfast.worker.declarations.types import type_text
    from holdfast.worker.packets import HASH, NOW

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
    """The hash by which keys are distinguished and put into groups."""
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
    from holdfast.worker.packets import Waker

    ticks = frame.sparkSession.readStream.format("rate").option("rowsPerSecond", 1)
    touching = packer.touching if packer.of_instances else None
    waker = Waker(packer.layout, touching)
    return ticks.option("numPartitions", 1).load().mapInArrow(waker.__call__, packer.columns)


def unpacked(answers: DataFrame, metric: str, lane: Lane, marked: Column) -> DataFrame:
    """The answers as rows, with the counts of each batch beside them as an observed metric."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.worker.declarations.types import schema_text
    from holdfast.worker.packets import Unpacker

    counts = [F.sum(F.get("counts", F.lit(at))).alias(name) for at, name in enumerate(lane.count_names)]
    # The definition's number first: Spark prints no more than some 25 columns of a plan's node.
    watched = answers.observe(metric, marked, *counts)
    if "rows" in watched.columns:
        return watched.select(F.inline("rows"))
    return watched.select("payload").mapInArrow(Unpacker(lane.output).__call__, schema_text(lane.output))


_WHERE = "holdfast.keyed(…)"
KEY_GROUPS = MOST_PARTITIONS
_NO_GROUPS: Final = f"leave key_groups=… out, or write {KEY_GROUPS}; or start the query in a classic session"
_NO_BLOBS: Final = (
    "leave blobs=… out, and the state is in the checkpoint; or start the query in a classic session"
)
MEMORY = "256m"


@dataclass(frozen=True, slots=True)
class Hot:
    """The keys whose events are merged before the shuffle.

    Attributes:
        keys: The keys, or None for those that a task finds.
        share: The share of a task's events that makes a key hot.
    """

    keys: tuple[Any, ...] | None
    share: float

    def described(self, stream: Input) -> Split:
        """The same as the workers know it: by the keys' hashes, which Spark works out."""
        from holdfast.worker.runtime.partial_aggregates import Split

        if self.keys is None:
            return Split(None, self.share)
        rows = [checked_key(stream.frame, stream.by, key, f"{_WHERE}.split_hot") for key in self.keys]
        schema = stream.frame.select(*(quoted(name) for name in stream.by)).schema
        frame = stream.frame.sparkSession.createDataFrame(rows, schema)
        hashed = frame.select(hash_of(frame, stream.by).alias("h")).collect()
        return Split(frozenset(row["h"] for row in hashed), self.share)


@dataclass(frozen=True, slots=True)
class KeyedStream:
    """Streams with a key, waiting for a processor; made by `keyed`."""

    inputs: tuple[Input, ...]
    key_groups: int
    broadcast: BroadcastStream | None = None
    split: Hot | None = None
    placement: Callable[..., int] | None = None
    instances: int | None = None

    def connect(self, df: DataFrame, *, by: str | Iterable[str], name: str) -> KeyedStream:
        """Add a stream that shares the state; its events go to the processor's `on_<name>`.

        The key columns must have the types of the first stream's, in the same order; their names may
        differ, and the processor sees the first stream's names in `ctx.key`.

        Raises:
            Invalid: The keys do not match, or the name is taken.
        """
        added = _input(df, by, name)
        first = self.inputs[0]
        self._refuse_taken(name)
        ours, theirs = ([type_of(source.frame, key) for key in source.by] for source in (first, added))
        if ours != theirs:
            raise Invalid(
                "the key of a connected stream is of another type",
                code="HF-E2323",
                where=f"{_WHERE}.connect(…, name={name!r})",
                found=", ".join(theirs),
                expected=", ".join(ours),
                hint="cast its key columns before connect, or name them in the order of the first stream's",
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
                code="HF-E2324",
                where=f"{_WHERE}.with_broadcast",
                found=f"{self.broadcast.described.name} and {rules.described.name}",
                hint="union the two, with a column that says which is which as a part of the key",
            )
        self._refuse_taken(rules.described.name)
        return replace(self, broadcast=rules)

    def split_hot(self, hot: Iterable[Any] | None = None, *, share: float = 0.01) -> KeyedStream:
        """Let the events of hot keys be taken together before the shuffle, in many tasks.

        Each task runs the processor's `on_event` over such a key's events from nothing, and what came of
        them is merged into the key's state by the processor's `merge`. The answers are those of the unsplit
        run, as long as `merge` keeps its promise that it does not matter how events are divided. The state
        does not show what was split, so this can be changed at every start.

        A part knows the batch's time, which travels with the events if `on_event`, or what it calls by name,
        says `now` or `now_ms`. One that asks for it in another way has its events go unsplit.

        It helps where the events of a key come from several tasks. Where the source itself is divided by
        the key, as a topic may be, put a `repartition(n)` before `hf.keyed`.

        Args:
            hot: The hot keys: values of the key column, tuples where there are several. By default each
                task finds its own, batch by batch.
            share: A task takes a key for hot that has this share of the events at hand.

        Raises:
            Invalid: There are connected streams, or an argument is wrong.
        """
        if len(self.inputs) > 1:
            raise Invalid(
                "parts of connected streams cannot be merged: their order among each other would be lost",
                code="HF-E2325",
                where=f"{_WHERE}.split_hot",
                found=", ".join(source.name for source in self.inputs),
                hint="split one stream before it is connected, or process the streams one by one",
            )
        check_share(share, f"{_WHERE}.split_hot: share")
        return replace(self, split=Hot(None if hot is None else tuple(hot), share))

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
        blobs: Redis | Cassandra | None = None,
        blobs_from: Size | None = BLOBS_FROM,
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
            late: How events are treated that the watermark has passed: "drop" counts them, "keep" hands
                them to the processor.
            on_error: How an event is treated that the processor raises for: "fail" stops the query;
                "dead-letter" puts it out at the side and runs the key again without it.
            side_outputs: Add the columns `side` ("late", "failed", or null for a row of the
                processor's own), `side_stream`, `side_event` (JSON) and `side_error`.
            drop: Former states whose values may be thrown away.
            memory: What a worker may use, about, whatever the size of the state.
            blobs: A Redis or a Cassandra for the rows of the state, which come in blobs; Spark's store then
                keeps a short record of each key group and the names of the blobs. Start the query with
                Holdfast for it. Its `retain` and `cache` are not used here, and `trust_store` is a PEM file.
            blobs_from: Blobs of this size or more go to the database. None writes no more there, and
                brings back what exists, a key group at a time as groups are folded.

        Raises:
            Invalid: The processor, the output, a name or a choice is wrong; it says which.
            Unsupported: The session keeps all state in a database, or the client for that of `blobs` is not
                installed.
        """
        from pyspark.sql import DataFrame

        from holdfast.engine.keyed_operator import grafts_into, has_operator, mark, stateful
        from holdfast.worker.build import Options
        from holdfast.worker.packets import Placement
        from holdfast.worker.runtime.runner_spec import Instances

        self._check_kind(processor)
        if self.instances is None and (self.key_groups != KEY_GROUPS or not self._numbering().even):
            # A start with another number would find no key again, and no note could tell it.
            refuse_connect(
                self.inputs[0].frame,
                "key groups of another number or order than by default",
                where=f"{_WHERE}: key_groups={self.key_groups}",
                hint=_NO_GROUPS,
            )
        if blobs is not None:
            refuse_connect(
                self.inputs[0].frame,
                "keyed state in a database",
                where=f"{_WHERE}.process: blobs",
                hint=_NO_BLOBS,
            )
        if not is_connect(self.inputs[0].frame):
            send_package(self.inputs[0].frame.sparkSession)
        refuse_external_provider(self.inputs[0].frame.sparkSession, f"{_WHERE}.process")
        instances = None if self.instances is None else Instances(name, self.instances)
        placement = None
        if self.placement is not None:
            placement = Placement(self.placement, self.key_groups, name)
        options = Options(
            checked_name(name, where=f"{_WHERE}.process(…, name=…)"),
            self.key_groups,
            event_time=any(watermarks(source.frame) for source in self.inputs),
            late=one_of(late, f"{_WHERE}.process: late", ("drop", "keep")),
            on_error=one_of(on_error, f"{_WHERE}.process: on_error", ("fail", "dead-letter")),
            side_outputs=side_outputs,
            drop=tuple(names_of(drop, where=f"{_WHERE}.process: drop")),
            memory_bytes=parse_size(memory, f"{_WHERE}.process: memory"),
            split=None if self.split is None else self.split.described(self.inputs[0]),
            placement=placement,
            instances=instances,
            numbering=self._numbering(),
            blobs=blobs_of(blobs, blobs_from, f"{_WHERE}.process"),
        )
        operator, packers, ticking = _prepared(self, processor, output, options, ticks=ticks)
        lane = operator.lane
        metric = f"{KEYED_METRIC}{name}"
        for source in self.inputs:
            if has_operator(source.frame, metric):
                raise same_name(name, _WHERE)
        inputs = [
            packed(source, packer, combiner)
            for source, (packer, combiner) in zip(self.inputs, packers, strict=True)
        ]
        if self.broadcast is not None:
            inputs.append(self.broadcast.packed(lane.layout, len(lane.streams)))
        if ticking:
            inputs.append(ticks_of(self.inputs[0].frame, packers[0][0]))
        together = reduce(DataFrame.union, inputs)
        answers = stateful(together, operator, event_time=operator.event_time, graft=grafts_into(together))
        number = define(Defined(lane.layout, instances, options.blobs))
        return unpacked(answers, metric, lane, mark(number))

    def _check_kind(self, processor: object) -> None:
        from holdfast.worker.declarations.state_descriptors import Operator

        if isinstance(processor, Operator) is (self.instances is not None):
            return
        if self.instances is None:
            raise Invalid(
                "an operator has state of instances, and the stream has a key",
                code="HF-E2326",
                where=f"{_WHERE}.process",
                found=type(processor).__name__,
                hint="use hf.operate(df, instances=…), or inherit from hf.Keyed",
            )
        raise Invalid(
            "a processor has state of keys, and the stream has instances",
            code="HF-E2327",
            where="holdfast.operate(…).process",
            found=type(processor).__name__,
            hint="inherit from hf.Operator, or use hf.keyed(df, by=…)",
        )

    def _refuse_taken(self, name: str) -> None:
        if name in {source.name for source in self.inputs}:
            raise Invalid(
                "two connected streams have one name",
                code="HF-E2328",
                where=_WHERE,
                found=name,
                hint='give one of them another: name="…"; its handler is called on_<name>',
            )

    def _numbering(self) -> Numbering:
        """Return the numbering of key groups that the session requests."""
        conf = self.inputs[0].frame.sparkSession.conf
        word = (conf.get(SPREAD_KEY, None) or "true").lower()
        return Numbering(even=one_of(word, SPREAD_KEY, ("true", "false")) == "true")


def keyed(
    df: DataFrame,
    *,
    by: str | Iterable[str],
    name: str = "event",
    key_groups: int = KEY_GROUPS,
    placement: Callable[..., int] | None = None,
) -> KeyedStream:
    """Give a stream a key, so that a processor can keep state for each of its values.

    Null is a key like any other. NaN is one key, and 0.0 and -0.0 are one.

    Args:
        df: A stream. With `withWatermark`, timers and event-time TTL run on its watermark.
        by: The key columns.
        name: The stream's name, which its handler bears where several are connected: `on_<name>`.
        key_groups: How many groups the keys are put into, fixed at the first start. A group is the unit
            that moves between partitions, so there cannot be more useful partitions than groups. Group g
            is in partition g modulo the number of partitions.
        placement: A function that gives the group of a key, from 0 to `key_groups` - 1, called with the
            values of the key columns; by default the key's hash decides. It must depend on the key alone
            and be the same in every run: keys are asked for again where their state is, and a query whose
            function has changed its mind is ended before it commits anything.

    Raises:
        Invalid: The frame is not a stream, or a key column is missing or of a type that cannot be one.
    """
    whole(key_groups, f"{_WHERE}: key_groups", least=1, most=MOST_GROUPS)
    if placement is not None and not callable(placement):
        raise Invalid(
            "a placement is a function",
            code="HF-E2329",
            where=f"{_WHERE}: placement",
            found=type(placement).__name__,
            expected="a function of the key columns' values",
            hint=f"write one that gives a group's number: placement=lambda key: key % {key_groups}",
        )
    return KeyedStream((_input(df, by, name),), key_groups, placement=placement)


def _input(df: DataFrame, by: str | Iterable[str], name: str) -> Input:
    keys = key_columns(df, by, where=_WHERE, refused=NOT_KEYS)
    if not name.isidentifier():
        raise not_an_identifier(name, _WHERE)
    hint = "run a processor over rows at rest with holdfast.testing, without Spark"
    require_stream(df, where=_WHERE, hint=hint)
    return Input(df, tuple(keys), name)


def _prepared(
    keyed: KeyedStream,
    processor: Keyed | KeyedTable,
    output: Any,
    options: Options,
    *,
    ticks: bool | None,
) -> tuple[TaskOperator, list[tuple[Packer, Combiner | None]], bool]:
    """Return the checked operator for the workers, the packer, and whether ticks are needed."""
    from holdfast.worker.build import assemble, splitter_of
    from holdfast.worker.declarations.processor import definition_of
    from holdfast.worker.declarations.types import schema_of
    from holdfast.worker.packets import Combiner, Packer

    broadcast = keyed.broadcast.described if keyed.broadcast is not None else None
    names = [source.name for source in keyed.inputs]
    definition = definition_of(processor, names, broadcast.name if broadcast is not None else None)
    if ticks and not definition.has_timers:
        raise Invalid(
            "ticks wake timers, and the processor has none",
            code="HF-E2330",
            where=_WHERE,
            hint="write an on_timer",
        )
    streams = [stream_of(source, processor, combines=definition.combines) for source in keyed.inputs]
    columns = schema_of(output)
    operator = assemble(processor, definition, streams, columns, options, now_ms(), broadcast)
    ticking = definition.has_timers and not options.event_time if ticks is None else ticks
    splitter = splitter_of(processor, definition, streams, options)
    packers = [
        (
            Packer(stream, at, operator.lane.layout, splitter, options.instances),
            Combiner(processor, stream.schema) if definition.combines else None,
        )
        for at, stream in enumerate(streams)
    ]
    return operator, packers, ticking


def check_share(share: float, where: str) -> None:
    """Refuse what is no share of rows.

    Raises:
        Invalid: It is not above 0, or above 1.
    """
    if not 0 < share <= 1:
        raise Invalid(
            "a share lies between 0 and 1",
            code="HF-E2331",
            where=where,
            found=repr(share),
            expected="more than 0, at most 1",
            hint="write 0.05 for five of a hundred rows",
        )
