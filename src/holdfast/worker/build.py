"""The assembly of an operator from a processor, its streams and its options, for Spark and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

import pyarrow as pa

from holdfast.errors import Invalid
from holdfast.worker.declarations.processor import ProcessorDefinition, names_any
from holdfast.worker.declarations.state_descriptors import Keyed, KeyedTable
from holdfast.worker.interface import Placing
from holdfast.worker.operator import TaskOperator
from holdfast.worker.packets import SIDE_COLUMNS, InputStream, Lane
from holdfast.worker.runtime.broadcast import Broadcast, Keeper
from holdfast.worker.runtime.partial_aggregates import (
    EVENTS,
    Split,
    Splitter,
    apart,
    check_split,
    parts_schema,
)
from holdfast.worker.runtime.row_runner import RowRunner
from holdfast.worker.runtime.runner_spec import Instances, RunnerSpec
from holdfast.worker.runtime.table_runner import TableRunner, check_name
from holdfast.worker.state.blob_store import Blobs
from holdfast.worker.state.group_numbers import EVEN, Numbering
from holdfast.worker.state.layout import Layout, form_of

EVENT, PROCESSING = "event", "processing"
# The name in error messages for the stream of parts of hot keys.
PARTS = "parts of hot keys"
INSTANCES = "instances"
# The names by which a handler reads the batch's time.
TIME_WORDS = frozenset({"now", "now_ms"})

LateEvents: TypeAlias = Literal["drop", "keep"]
OnError: TypeAlias = Literal["fail", "dead-letter"]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an operator.

    Attributes:
        name: The operator's name.
        key_groups: The number of key groups.
        event_time: Whether any stream has a watermark.
        late: The handling of late events: "drop" or "keep".
        on_error: The handling of events whose handler raises: "fail" or "dead-letter".
        side_outputs: Whether late and failed events are returned in side outputs.
        drop: The former states to delete.
        memory_bytes: The approximate memory limit of a worker for one pass.
        split: The hot keys whose events are merged before the shuffle, or None.
        placement: The function that places keys into key groups, or None to place them by hash.
        instances: The instances of an hf.Operator, or None.
        numbering: The numbering of the stored key groups.
        blobs: The database for blobs of its state, or None.
    """

    name: str
    key_groups: int
    event_time: bool
    late: LateEvents = "drop"
    on_error: OnError = "fail"
    side_outputs: bool = False
    drop: tuple[str, ...] = ()
    memory_bytes: int = 256 << 20
    split: Split | None = None
    placement: Placing | None = None
    instances: Instances | None = None
    numbering: Numbering = EVEN
    blobs: Blobs | None = None


def assemble(
    processor: Keyed | KeyedTable,
    definition: ProcessorDefinition,
    streams: Sequence[InputStream],
    output: pa.Schema,
    options: Options,
    started_ms: int,
    broadcast: Broadcast | None = None,
) -> TaskOperator:
    """Build the operator that runs in the workers.

    Args:
        processor: The user's processor.
        definition: The definition of the processor's class.
        streams: The input streams; the key columns are those of the first.
        output: The output columns.
        options: The operator's options.
        started_ms: The start of this run in epoch milliseconds; values without a timestamp count their age
            from it.
        broadcast: The stream that is sent to every key group, or None.

    Raises:
        Invalid: The processor, streams, output and options contradict each other.
    """
    _check_clocks(definition, event_time=options.event_time)
    if definition.kind == "table":
        for state in definition.states:
            check_name(definition.name, state)
    names = streams[0].keys
    keys = pa.schema([streams[0].schema.field(key) for key in names])
    states = definition.states if broadcast is None else (*definition.states, broadcast.state)
    form = form_of(states, keys, timers=definition.has_timers)
    layout = Layout(
        options.name,
        options.key_groups,
        states,
        form,
        names,
        options.drop,
        started_ms,
        options.memory_bytes,
        options.placement,
        options.numbering,
    )
    sides = [pa.field(name, pa.string()) for name in SIDE_COLUMNS] if options.side_outputs else []
    taken = {side.name for side in sides} & set(output.names)
    if taken:
        raise Invalid(
            "an output column has the name of a side output column",
            code="HF-E2408",
            where=f"operator {options.name}",
            found=", ".join(sorted(taken)),
            hint="rename the column in `output`, or remove `side_outputs`",
        )
    lane = Lane(
        layout,
        (*streams, *_more(definition, streams[0], keys, options)),
        # Spark would trust a NOT NULL column, although its values are not checked.
        pa.schema([field.with_nullable(True) for field in (*output, *sides)]),
        keep_late=options.late == "keep",
        side_outputs=options.side_outputs,
        broadcast=broadcast,
    )
    spec = RunnerSpec(
        options.name,
        output,
        names,
        tuple(stream.name for stream in streams),
        tuple(stream.time for stream in streams),
        EVENT if options.event_time else PROCESSING,
        options.on_error,
        parts=None if options.split is None else PARTS,
        instances=options.instances,
        delay_ms=max(stream.delay_ms for stream in streams),
        chained=tuple(at for at, stream in enumerate(streams) if stream.chained),
    )
    make = TableRunner if definition.kind == "table" else RowRunner
    runner = partial(make, definition, processor, spec)
    keeper = None
    if broadcast is not None:
        keeper = partial(Keeper, broadcast, processor, options.name, options.on_error, options.memory_bytes)
    return TaskOperator(lane, runner, keeper, options.event_time, options.blobs, definition.has_timers)


def splitter_of(
    processor: Keyed | KeyedTable,
    definition: ProcessorDefinition,
    streams: Sequence[InputStream],
    options: Options,
) -> Splitter | None:
    """Return the function that merges events of hot keys before the shuffle, or None if splitting is off."""
    if options.split is None:
        return None
    stream, alone = streams[0], apart(definition)
    output = pa.schema([])
    spec = RunnerSpec(
        options.name, output, stream.keys, (stream.name,), (stream.time,), PROCESSING, before=True
    )
    runner = partial(RowRunner, alone, processor, spec)
    handlers = [getattr(processor, name) for name in (*definition.handlers, "on_start")]
    timed = names_any(handlers, type(processor), TIME_WORDS)
    keys = pa.schema([stream.schema.field(key) for key in stream.keys])
    return Splitter(options.split, runner, alone.states, keys, timed)


def _more(
    definition: ProcessorDefinition, stream: InputStream, keys: pa.Schema, options: Options
) -> tuple[InputStream, ...]:
    """Return the internal streams: parts of hot keys, or rows that touch the instances of an hf.Operator."""
    if options.instances is not None:
        return (InputStream(INSTANCES, keys, stream.keys),)
    if options.split is None:
        return ()
    check_split(definition, event_time=options.event_time, late=options.late, on_error=options.on_error)
    return (InputStream(PARTS, parts_schema(definition.states, keys), stream.keys, counts=EVENTS),)


def _check_clocks(definition: ProcessorDefinition, *, event_time: bool) -> None:
    for state in definition.states:
        if state.ttl is not None and state.ttl.clock == EVENT and not event_time:
            raise Invalid(
                "a TTL in event time needs a watermark",
                code="HF-E2409",
                where=f"{definition.name}.{state.name}",
                hint="call .withWatermark(column, delay) on the stream before hf.keyed",
            )
