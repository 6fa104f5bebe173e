"""Keyed streams (`hf.keyed`): state per key, with handlers in Python, over packets of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, get_args

from holdfast.clock import now_ms
from holdfast.config.checks import one_of, whole
from holdfast.config.spark_defaults import MOST_PARTITIONS
from holdfast.config.spark_versions import refuse_older_spark
from holdfast.config.units import Size, parse_size
from holdfast.engine.cluster import send_package
from holdfast.engine.connect import is_connect, refuse_connect
from holdfast.engine.planned_state import has_state
from holdfast.engine.queries.watch import KEYED_METRIC
from holdfast.errors import Invalid
from holdfast.stream.event_time import (
    NOT_KEYS,
    key_columns,
    names_of,
    quoted,
    require_time,
    type_of,
    watermarks,
    with_event_time,
)
from holdfast.stream.keyed.blobs_in_database import BLOBS_FROM, blobs_of, refuse_external_provider
from holdfast.stream.keyed.broadcast_stream import BroadcastStream, not_an_identifier, pack_rows
from holdfast.stream.keyed.hot_keys import checked_key
from holdfast.stream.operator_check import SPREAD_KEY, Defined, checked_name, define, same_name
from holdfast.worker.counts import COLUMN
from holdfast.worker.state.group_numbers import MOST_GROUPS, Numbering

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from holdfast.config.database_stores import Cassandra, Redis
    from holdfast.worker.build import LateEvents, OnError, Options
    from holdfast.worker.declarations.state_descriptors import Keyed, KeyedTable
    from holdfast.worker.operator import TaskOperator
    from holdfast.worker.packets import Combiner, InputStream, Lane, Packer
    from holdfast.worker.runtime.partial_aggregates import Split


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a keyed operator: its frame, key columns and name.

    Attributes:
        frame: The frame, a stream or a batch frame.
        by: The key columns.
        name: The name of the input.
        time: The event-time column of a batch frame; a stream has it in its watermark.
    """

    frame: DataFrame
    by: tuple[str, ...]
    name: str
    time: str | None = None

    @property
    def delays(self) -> dict[str, int]:
        """The event-time column with the delay of its watermark in milliseconds; empty without one."""
        return watermarks(self.frame) if self.time is None else {self.time: 0}


def stream_of(source: Input, processor: Keyed | KeyedTable, *, combines: bool) -> InputStream:
    """Return a stream as it reaches the state: its rows, or those that the processor's `combine` returns."""
    from holdfast.worker.declarations.types import schema_of
    from holdfast.worker.packets import InputStream

    time_column, delay_ms = next(iter(source.delays.items()), (None, 0))
    schema = schema_of(source.frame.schema)
    if combines:
        schema = schema_of(getattr(processor, "combined", None) or schema)
        missing = [key for key in source.by if key not in schema.names]
        if missing:
            raise Invalid(
                "combined events lack a key column", code="HF-E2322", where="combined",
                found=", ".join(schema.names), expected=", ".join(source.by),
            hint="list the key columns in `combined`, and return them from combine")  # fmt: skip
    time = time_column if time_column in schema.names else None
    chained = time is not None and source.frame.isStreaming and has_state(source.frame)
    return InputStream(source.name, schema, source.by, time, chained=chained, delay_ms=delay_ms)


def packed(source: Input, packer: Packer, combiner: Combiner | None) -> DataFrame:
    """Return a stream's events as packets."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.engine.keyed_operator import batch_time_ms
    from holdfast.worker.declarations.types import type_text
    from holdfast.worker.packets import HASH, NOW

    frame, schema = source.frame, packer.stream.schema
    if combiner is not None:
        columns = ", ".join(f"{quoted(field.name)} {type_text(field.type)}" for field in schema)
        frame = frame.mapInArrow(combiner.__call__, columns)
    # An instance's key group is its number, so it needs no hash.
    added = [(F.lit(0).cast("long") if packer.of_instances else hash_of(frame, source.by)).alias(HASH)]
    if packer.timed:
        added.append(batch_time_ms().alias(NOW))
    hashed = frame.select(*(F.col(quoted(name)) for name in schema.names), *added)
    return hashed.mapInArrow(packer.__call__, packer.columns)


def hash_of(frame: DataFrame, keys: Sequence[str]) -> Column:
    """Return the hash that identifies a key and assigns it to a group."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    return F.xxhash64(*(_one_zero(frame, key) for key in keys))


def _one_zero(frame: DataFrame, key: str) -> Column:
    """Return a key column with equal bytes for equal values: a single zero and a single NaN."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    column = F.col(quoted(key))
    if type_of(frame, key) not in ("float", "double"):
        return column
    return F.when(F.isnan(column), F.lit(float("nan"))).otherwise(column + F.lit(0.0))


def ticks_of(frame: DataFrame, packer: Packer) -> DataFrame:
    """Return a stream of packets that wake each key group once a second."""
    from holdfast.worker.packets import Waker

    ticks = frame.sparkSession.readStream.format("rate").option("rowsPerSecond", 1)
    touching = packer.touching if packer.of_instances else None
    waker = Waker(packer.layout, touching)
    return ticks.option("numPartitions", 1).load().mapInArrow(waker.__call__, packer.columns)


def unpacked(answers: DataFrame, metric: str, lane: Lane, marked: Column) -> DataFrame:
    """Return the operator's results as rows, with the counts of each batch as an observed metric."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.worker.declarations.types import schema_text
    from holdfast.worker.packets import Unpacker

    # The definition's number comes first, because Spark prints only about 25 columns of a plan's node.
    watched = answers.observe(metric, marked, _summed(lane.count_names))
    if "rows" in watched.columns:
        return watched.select(F.inline("rows"))
    return watched.select("payload").mapInArrow(Unpacker(lane.output).__call__, schema_text(lane.output))


def _summed(names: Sequence[str]) -> Column:
    """Return the sums of the tasks' counts by name, each null if no task has it.

    The lists of counts are added on the driver, because Spark generates and compiles code in each task for
    each aggregate.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    def added(sums: Column, counts: Column) -> Column:
        return F.zip_with(sums, counts, lambda left, right: F.coalesce(left + right, left, right))

    none = F.array_repeat(F.lit(None).cast("bigint"), len(names))
    sums = F.aggregate(F.collect_list(F.col(COLUMN)), none, added)
    return F.map_from_arrays(F.array(*map(F.lit, names)), sums).alias(COLUMN)


_WHERE = "holdfast.keyed(…)"
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
KEY_GROUPS = MOST_PARTITIONS
_NO_GROUPS: Final = f"remove key_groups=… and {SPREAD_KEY}, or start the query in a classic session"
_NO_BLOBS: Final = (
    "remove blobs=… to keep the state in the checkpoint, or start the query in a classic session"
)
MEMORY = "256m"


@dataclass(frozen=True, slots=True)
class Hot:
    """The user's choice of keys whose events are merged before the shuffle.

    Attributes:
        keys: The hot keys, or None if each task detects its own.
        share: The minimum share of a task's events for a detected hot key.
    """

    keys: tuple[Any, ...] | None
    share: float

    def described(self, stream: Input) -> Split:
        """Return the choice for the workers, with the hashes of the keys as computed by Spark."""
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
    """One or more streams with a key, ready for a processor; returned by `hf.keyed`.

    Example:
        stream: hf.KeyedStream = hf.keyed(events, by="customer")
        stream = stream.connect(events, by="customer", name="again")
    """

    inputs: tuple[Input, ...]
    key_groups: int
    broadcast: BroadcastStream | None = None
    split: Hot | None = None
    placement: Callable[..., int] | None = None
    instances: int | None = None

    def connect(
        self, df: DataFrame, *, by: str | Iterable[str], name: str, time: str | None = None
    ) -> KeyedStream:
        """Add a stream that shares the state; its events are handled by the processor's `on_<name>`.

        The key columns must have the same types as those of the first stream, in the same order. Their names
        may differ; `ctx.key` has the names of the first stream. A batch frame is connected with batch frames;
        `time` is its event-time column, as in `hf.keyed`.

        Raises:
            Invalid: The key columns do not match in number or type, the name is in use, or one of the frames
                is a stream and the other is not.
        """
        added = _input(df, by, name, time)
        first = self.inputs[0]
        self._refuse_taken(name)
        if df.isStreaming is not first.frame.isStreaming:
            raise Invalid(
                "a stream cannot be connected with a batch frame",
                code="HF-E2541",
                where=f"{_WHERE}.connect(…, name={name!r})",
                found=f"{name} is a {_kind(df)}, {first.name} is a {_kind(first.frame)}",
                hint="read both with spark.readStream, or both with spark.read",
            )
        ours, theirs = ([type_of(source.frame, key) for key in source.by] for source in (first, added))
        if ours != theirs:
            raise Invalid(
                "the key of a connected stream has a different type than the key of the first stream",
                code="HF-E2323",
                where=f"{_WHERE}.connect(…, name={name!r})",
                found=", ".join(theirs),
                expected=", ".join(ours),
                hint="cast the key columns before connect, or list them in the order of the first stream",
            )
        return replace(self, inputs=(*self.inputs, added))

    def with_broadcast(self, rules: BroadcastStream) -> KeyedStream:
        """Make the rows of a broadcast stream available to the processor in `ctx.broadcast`, a mapping by
        key.

        The rows of a batch are applied before its events and timers. A `KeyedTable` reads them as a table,
        `state.broadcast`. See `hf.broadcast`.

        Raises:
            Invalid: The operator already has a broadcast stream, or a stream has the same name.
        """
        if self.broadcast is not None:
            raise Invalid(
                "an operator can have only one broadcast stream",
                code="HF-E2324",
                where=f"{_WHERE}.with_broadcast",
                found=f"{self.broadcast.described.name} and {rules.described.name}",
                hint="union the two streams, and add to the key a column that distinguishes the streams",
            )
        self._refuse_taken(rules.described.name)
        return replace(self, broadcast=rules)

    def split_hot(self, hot: Iterable[Any] | None = None, *, share: float = 0.01) -> KeyedStream:
        """Merge the events of hot keys in each task, before the shuffle.

        Each task runs the processor's `on_event` over such a key's events, starting from empty state, and the
        processor's `merge` merges the result into the key's state. The results equal those without a split if
        `merge` does not depend on how the events are divided. The state does not record which keys were
        split, so the setting can change at every start.

        The batch's time is available in a part: it is sent with the events if `on_event`, or a function that
        it calls by name, uses `now` or `now_ms`. If `on_event` reads the time in a different way, its events
        are not split.

        A split is useful if the events of a key come from several tasks. If the source is partitioned by the
        key, as a topic may be, call `repartition(n)` before `hf.keyed`.

        Args:
            hot: The hot keys: values of the key column, or tuples for several key columns. By default each
                task detects hot keys in each batch.
            share: The minimum share of a task's events for a detected hot key.

        Raises:
            Invalid: There are connected streams, or an argument is invalid.
        """
        if len(self.inputs) > 1:
            raise Invalid(
                "split_hot does not support connected streams: the order between the streams would be lost",
                code="HF-E2325",
                where=f"{_WHERE}.split_hot",
                found=", ".join(source.name for source in self.inputs),
                hint="split one stream before it is connected, or process the streams separately",
            )
        check_share(share, f"{_WHERE}.split_hot: share")
        return replace(self, split=Hot(None if hot is None else tuple(hot), share))

    def process(
        self,
        processor: Keyed | KeyedTable,
        *,
        output: Any,
        name: str,
        event_time: str | None = None,
        ticks: bool | None = None,
        late: LateEvents = "drop",
        on_error: OnError = "fail",
        side_outputs: bool = False,
        drop: Iterable[str] = (),
        memory: Size = MEMORY,
        blobs: Redis | Cassandra | None = None,
        blobs_from: Size | None = BLOBS_FROM,
    ) -> DataFrame:
        """Run a processor over the streams, and return its output as a stream.

        For each key, a batch first fires the due timers, in the order of their times, and then handles the
        events: stream by stream in the order of connection, and in the order of arrival within a stream. The
        order of keys is undefined.

        With `event_time`, the result has a watermark, so a window, a join, a deduplication or a second
        processor may follow. It is the watermark of the processor's input: in a batch, Spark's operators
        behind the processor use the same one. A row that they find behind the watermark of the previous batch
        is late: they drop it and count it. A row of a timer is never late if it has the timer's time. For a
        processor behind an operator with state, no row is late: rows that the watermark has reached are
        handled before due timers, other rows after them.

        Write the result in output mode `append` or `update`; both have the same effect.

        Args:
            processor: An instance of your processor class.
            output: The columns of the output, as text such as "customer string, visits long" or as a schema.
            name: The name of the operator in errors, metrics and savepoints; unique in the query.
            event_time: The timestamp column of the output that is the result's event time. A stream of the
                processor needs a watermark.
            ticks: Whether to add a source with one tick per second, so that timers in processing time fire
                when no rows arrive. The default adds it if the processor has timers and no stream has a
                watermark. A query's sources cannot change, so this setting cannot change either.
            late: The handling of events behind the watermark: "drop" drops and counts them, "keep" passes
                them to the processor.
            on_error: The handling of an event for which the processor raises an exception: "fail" stops the
                query; "dead-letter" returns it as a side output and runs the key again without it.
            side_outputs: Whether to add the columns `side` ("late", "failed", or null for a row of the
                processor), `side_stream`, `side_event` (JSON) and `side_error`.
            drop: The former states to delete.
            memory: The approximate memory limit of a worker, independent of the size of the state.
            blobs: A Redis or Cassandra database for the blobs with the rows of the state; Spark's store then
                has only a short record per key group and the names of the blobs. Start the query with
                Holdfast. `retain` and `cache` of the database are ignored, and `trust_store` must be a PEM
                file.
            blobs_from: The minimum size of a blob in the database. With None, no new blobs are stored there,
                and existing ones are moved back, one key group at a time, when groups are folded.

        Raises:
            Invalid: The processor, the output, a name or an option is invalid.
            Unsupported: The session stores all state in a database, the installed Spark is not supported, or
                the client library for `blobs` is not installed.
        """
        from pyspark.sql import DataFrame

        from holdfast.engine.keyed_operator import grafts_into, has_operator, mark, stateful
        from holdfast.worker.build import LateEvents, OnError, Options
        from holdfast.worker.packets import Placement
        from holdfast.worker.runtime.runner_spec import Instances

        self._check_kind(processor)
        self._check_session(blobs)
        at_rest = not self.inputs[0].frame.isStreaming
        if at_rest:
            _refuse_at_rest(
                {
                    "with_broadcast": self.broadcast is not None,
                    "split_hot": self.split is not None,
                    "ticks=True": bool(ticks),
                },
                where=f"{_WHERE}.process",
            )
            ticks, blobs = False, None
        instances = None if self.instances is None else Instances(name, self.instances)
        placement = None
        if self.placement is not None:
            placement = Placement(self.placement, self.key_groups, name)
        options = Options(
            checked_name(name, where=f"{_WHERE}.process(…, name=…)"),
            self.key_groups,
            event_time=any(source.delays for source in self.inputs),
            late=one_of(late, f"{_WHERE}.process: late", get_args(LateEvents)),
            on_error=one_of(on_error, f"{_WHERE}.process: on_error", get_args(OnError)),
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
            inputs.append(pack_rows(self.broadcast, lane.layout, len(lane.streams)))
        if ticking:
            inputs.append(ticks_of(self.inputs[0].frame, packers[0][0]))
        together = reduce(DataFrame.union, inputs)
        if at_rest:
            result = _over_history(together, operator)
            if event_time is not None:
                require_time(result, event_time, where=f"{_WHERE}.process: event_time")
            return result
        answers = stateful(together, operator, event_time=operator.event_time, graft=grafts_into(together))
        number = define(Defined(lane.layout, instances, options.blobs))
        result = unpacked(answers, metric, lane, mark(number))
        if event_time is None:
            return result
        return with_event_time(result, event_time, self._delay_ms(result, event_time))

    def _delay_ms(self, result: DataFrame, event_time: str) -> int:
        """Return the longest delay of the input watermarks, after checking the result's event time."""
        where = f"{_WHERE}.process: event_time"
        require_time(result, event_time, where=where)
        delays = [delay for source in self.inputs for delay in source.delays.values()]
        if not delays:
            raise Invalid(
                "the result cannot have a watermark, because no stream of the processor has one",
                code="HF-E2542",
                where=where,
                expected="a stream with a watermark: Spark passes the watermark of an operator's input on",
                hint="call .withWatermark(column, delay) on a stream before hf.keyed; or remove event_time="
                " and call .withWatermark(…) on the result",
            )
        return max(delays)

    def _check_session(self, blobs: Redis | Cassandra | None) -> None:
        """Raise an error for what the session does not support, and send the package to the executors."""
        if self.instances is None and (self.key_groups != KEY_GROUPS or not self._numbering().even):
            # With a different number, existing keys would not be found, and the operator's note does not
            # record it.
            refuse_connect(
                self.inputs[0].frame,
                "a number or order of key groups other than the default",
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
            if self.inputs[0].frame.isStreaming:
                refuse_older_spark()
            send_package(self.inputs[0].frame.sparkSession)
        refuse_external_provider(self.inputs[0].frame.sparkSession, f"{_WHERE}.process")

    def _check_kind(self, processor: object) -> None:
        from holdfast.worker.declarations.state_descriptors import Operator

        if isinstance(processor, Operator) is (self.instances is not None):
            return
        if self.instances is None:
            raise Invalid(
                "an hf.Operator cannot process a keyed stream",
                code="HF-E2326",
                where=f"{_WHERE}.process",
                found=type(processor).__name__,
                hint="use hf.operate(df, instances=…), or inherit from hf.Keyed",
            )
        raise Invalid(
            "a keyed processor cannot process the instances of hf.operate",
            code="HF-E2327",
            where="holdfast.operate(…).process",
            found=type(processor).__name__,
            hint="inherit from hf.Operator, or use hf.keyed(df, by=…)",
        )

    def _refuse_taken(self, name: str) -> None:
        if name in {source.name for source in self.inputs}:
            raise Invalid(
                "two streams of an operator have the same name",
                code="HF-E2328",
                where=_WHERE,
                found=name,
                hint='give one stream a different name with name="…"; its handler is on_<name>',
            )

    def _numbering(self) -> Numbering:
        """Return the numbering of key groups that the session's configuration sets."""
        conf = self.inputs[0].frame.sparkSession.conf
        word = (conf.get(SPREAD_KEY, None) or "true").lower()
        return Numbering(even=one_of(word, SPREAD_KEY, ("true", "false")) == "true")


def keyed(
    df: DataFrame,
    *,
    by: str | Iterable[str],
    name: str = "event",
    time: str | None = None,
    key_groups: int = KEY_GROUPS,
    placement: Callable[..., int] | None = None,
) -> KeyedStream:
    """Return a stream with a key, so that a processor can store state per key.

    Continue with `.process(processor, output=…, name=…)`, which returns the output as a stream; before it,
    `.connect(…)` adds a stream and `.with_broadcast(…)` a broadcast stream.

    Null is a valid key. All NaNs are the same key, and so are 0.0 and -0.0.

    Args:
        df: A stream. With `withWatermark`, timers and TTLs in event time use its watermark. Or a batch frame,
            such as a history: `process` then returns a batch frame.
        by: The key columns.
        name: The stream's name; with several connected streams its handler is `on_<name>`.
        time: The event-time column of a batch frame. A stream has it in its watermark.
        key_groups: The number of key groups, fixed at the first start. A group is the unit that moves between
            partitions, so partitions in excess of it stay empty. Group g is in partition g modulo the number
            of partitions.
        placement: A function that takes the values of the key columns and returns the key group, from 0 to
            `key_groups` - 1; by default the hash of the key decides. The result must depend on the key alone
            and be the same in every run: if it differs for a stored key, the query fails before it commits
            anything.

    Raises:
        Invalid: A key column is missing or has an unsupported type, or `time` is given for a stream.

    Example:
        class Visits(hf.Keyed):
            visits = hf.value(int, default=0)

            def on_event(self, event, state, ctx):
                state.visits += 1
                yield {"customer": event.customer, "visits": state.visits}


        visits = hf.keyed(events, by="customer").process(
            Visits(), output="customer string, visits long", name="visits"
        )
        assert visits.columns == ["customer", "visits"]
    """
    whole(key_groups, f"{_WHERE}: key_groups", least=1, most=MOST_GROUPS)
    if placement is not None and not callable(placement):
        raise Invalid(
            "placement= is not a function",
            code="HF-E2329",
            where=f"{_WHERE}: placement",
            found=type(placement).__name__,
            expected="a function of the key columns' values",
            hint=f"pass a function that returns a group number: placement=lambda key: key % {key_groups}",
        )
    return KeyedStream((_input(df, by, name, time),), key_groups, placement=placement)


def _input(df: DataFrame, by: str | Iterable[str], name: str, time: str | None) -> Input:
    keys = key_columns(df, by, where=_WHERE, refused=NOT_KEYS)
    if not name.isidentifier():
        raise not_an_identifier(name, _WHERE)
    if time is not None and df.isStreaming:
        raise Invalid(
            "time= is given for a stream, whose event time is the column of its watermark",
            code="HF-E2543",
            where=f"{_WHERE}: time={time!r}",
            hint=f'remove time=, and call .withWatermark("{time}", …) on the stream',
        )
    if time is not None:
        require_time(df, time, where=f"{_WHERE}: time")
    return Input(df, tuple(keys), name, time)


def _kind(df: DataFrame) -> str:
    return "stream" if df.isStreaming else "batch frame"


def _prepared(
    keyed: KeyedStream,
    processor: Keyed | KeyedTable,
    output: Any,
    options: Options,
    *,
    ticks: bool | None,
) -> tuple[TaskOperator, list[tuple[Packer, Combiner | None]], bool]:
    """Return the checked operator for the workers, the packers, and whether ticks are needed."""
    from holdfast.worker.build import assemble, splitter_of
    from holdfast.worker.declarations.processor import definition_of
    from holdfast.worker.declarations.types import schema_of
    from holdfast.worker.packets import Combiner, Packer

    broadcast = keyed.broadcast.described if keyed.broadcast is not None else None
    names = [source.name for source in keyed.inputs]
    definition = definition_of(processor, names, broadcast.name if broadcast is not None else None)
    if ticks and not definition.has_timers:
        raise Invalid(
            "ticks=True needs a processor with timers",
            code="HF-E2330",
            where=_WHERE,
            hint="add an on_timer method to the processor, or remove ticks=True",
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


def _over_history(packed: DataFrame, operator: TaskOperator) -> DataFrame:
    """Run the packets of a batch frame through an operator; its state ends with the query."""
    from holdfast.engine.keyed_operator import KEY_GROUP
    from holdfast.worker.declarations.types import schema_text
    from holdfast.worker.operator import HistoryTask

    partitions = int(packed.sparkSession.conf.get(_PARTITIONS) or MOST_PARTITIONS)
    sorted_ = packed.repartition(partitions, KEY_GROUP).sortWithinPartitions(KEY_GROUP)
    return sorted_.mapInArrow(HistoryTask(operator, now_ms()).__call__, schema_text(operator.lane.output))


def _refuse_at_rest(options: Mapping[str, bool], *, where: str) -> None:
    """Raise an error for options that a batch frame cannot have, given by name, if they are wanted.

    Raises:
        Invalid: One of the options is wanted.
    """
    for option, wanted in options.items():
        if wanted:
            raise Invalid(
                f"{option} is not supported over a batch frame",
                code="HF-E2540",
                where=where,
                hint=f"remove {option}, or read the frame with spark.readStream",
            )


def check_share(share: float, where: str) -> None:
    """Raise an error for a share that is out of range.

    Raises:
        Invalid: The share is not above 0, or is above 1.
    """
    if not 0 < share <= 1:
        raise Invalid(
            "the share is out of range",
            code="HF-E2331",
            where=where,
            found=repr(share),
            expected="more than 0, at most 1",
            hint="write 0.05 for 5% of the rows",
        )
