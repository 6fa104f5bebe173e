"""The merging of hot keys' events before the shuffle.

A key with half of all events keeps one task busy while the others wait. If a processor has a `merge`, the
tasks before the shuffle run the processor over the events of such a key, each task starting with empty state.
A task sends the resulting state of each key through the shuffle as one row, called a part, and `merge` merges
it into the key's stored state.

A part exists only within one batch, so the stored state does not depend on which keys were split.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
from pyarrow.types import is_floating

from holdfast.errors import Invalid, Unsupported
from holdfast.worker.arrays import distinct, numbers, offsets_of, whole
from holdfast.worker.declarations.handler_arguments import Clock, Event
from holdfast.worker.declarations.processor import no_rows
from holdfast.worker.declarations.state_descriptors import State, ufunc_of
from holdfast.worker.interface import SLOT_PREFIX, VALUE_PREFIX, Arrivals, Elements, Moment, Outcome
from holdfast.worker.runtime.cells import Cells
from holdfast.worker.runtime.context import KeyContext
from holdfast.worker.runtime.event_dispatcher import EventDispatcher, HandlerFailed
from holdfast.worker.runtime.state_objects import StateObject, cells_of, state_class
from holdfast.worker.runtime.ttl import Clocks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.arrays import Hashes
    from holdfast.worker.declarations.processor import ProcessorDefinition
    from holdfast.worker.interface import Runner, Touched


# The columns of parts after the key columns: the number of events in the part, and one column per state.
EVENTS = "__holdfast_events"
_VALUE, _ELEMENTS = "__holdfast_value:", "__holdfast_elements:"
# Keys are first counted by the highest bits of their hash, which needs no sorting.
_BUCKET_BITS = 12


@dataclass(frozen=True, slots=True)
class Split:
    """The choice of keys whose events are merged before the shuffle.

    Attributes:
        hot: The hashes of the hot keys, or None if each task detects hot keys.
        share: The minimum share of a task's events for a detected hot key.
        least: The minimum number of a task's events for a detected hot key.
    """

    hot: frozenset[int] | None = None
    share: float = 0.01
    least: int = 64


def check_split(definition: ProcessorDefinition, *, event_time: bool, late: str, on_error: str) -> None:
    """Raise an error for a split that would change the result.

    Raises:
        Invalid: The processor has no `merge`, or an option does not allow a split.
        Unsupported: A state or handler of the processor cannot be split exactly.
    """
    where = f"{definition.name}: split_hot"
    if not definition.merges:
        raise Invalid(
            "hot keys cannot be split: the processor has no merge",
            code="HF-E2490",
            where=where,
            expected="merge(self, state, part)",
            hint="define merge and on_end; for a KeyedTable, define combine instead",
        )
    if event_time and late == "drop":
        raise Invalid(
            "hot keys cannot be split while late events are dropped",
            code="HF-E2491",
            where=where,
            found='late="drop"',
            expected='late="keep"',
            hint="""set late="keep", and compare an event's time with ctx.watermark in on_end""",
        )
    if on_error != "fail":
        raise Invalid(
            "hot keys cannot be split while failed events are set aside",
            code="HF-E2492",
            where=where,
            found=f'on_error="{on_error}"',
            expected='on_error="fail"',
            hint="remove on_error, and filter out bad events before hf.keyed",
        )
    sums = [
        state.name
        for state in definition.states
        if ufunc_of(state.function) is np.add and is_floating(state.type)
    ]
    if sums:
        raise Unsupported(
            "a floating-point sum cannot be split exactly: it depends on the order of the values",
            code="HF-E7120",
            where=where,
            found=", ".join(sums),
            hint='sum decimals or integers, as in hf.reducing("decimal(18,2)", hf.add)',
        )
    timed = [state.name for state in definition.states if state.ttl and state.ttl.clock == "event"]
    if timed:
        raise Unsupported(
            "an event-time TTL cannot be split exactly: it starts at each event",
            code="HF-E7121",
            where=where,
            found=", ".join(timed),
            hint="give these states a processing-time TTL, or none",
        )


def parts_schema(states: Sequence[State], keys: pa.Schema) -> pa.Schema:
    """Return the columns of parts with these states and key columns."""
    fields = [*keys, pa.field(EVENTS, pa.int64())]
    for state in states:
        if not state.has_elements:
            fields.append(pa.field(f"{_VALUE}{state.name}", state.type))
            continue
        element = [pa.field("v", state.type)]
        if state.key_type is not None:
            element.insert(0, pa.field("k", state.key_type))
        fields.append(pa.field(f"{_ELEMENTS}{state.name}", pa.list_(pa.struct(element))))
    return pa.schema(fields)


def apart(definition: ProcessorDefinition) -> ProcessorDefinition:
    """Return a processor's definition for use before the shuffle, without TTLs, timers and `on_end`."""
    states = tuple(replace(state, ttl=None) for state in definition.states)
    return replace(definition, states=states, has_timers=False, ends=False)


class TimeWanted(BaseException):
    """The exception for a handler that reads the batch's time before the shuffle when events have no time
    column.

    It is a BaseException, so that a handler's `except Exception` does not catch it.
    """


class PartContext(KeyContext):
    """The `ctx` of `on_event` before the shuffle, without timers and without a watermark."""

    __slots__ = ("_now_ms",)

    def _begin(self, moment: Moment, keys: Callable[[int], Event] | None, cells: Any) -> None:  # noqa: ARG002 - as the base
        self._now_ms, self.batch_id = moment.now_ms if moment.timed else None, moment.batch_id
        self._at, self._timers, self._due = -1, None, False
        self._keys, self._cells = keys, None

    def _refuse(self, what: str) -> NoReturn:
        raise Invalid(
            f"{what} not available while the events of a hot key are merged",
            code="HF-E2493",
            hint="move this code to on_end, or remove .split_hot(…)",
        )

    @property
    def now_ms(self) -> int:
        """Return the batch's processing time.

        Raises:
            TimeWanted: The events have no column with the batch's time.
        """
        if self._now_ms is None:
            raise TimeWanted
        return self._now_ms

    @now_ms.setter
    def now_ms(self, _: int) -> None:
        """Ignore the assignment by the base class; the time is set with the moment of the pass."""

    @property
    def watermark_ms(self) -> int | None:
        """Raise `Invalid`: the watermark is not available before the shuffle."""
        self._refuse("the watermark is")

    @watermark_ms.setter
    def watermark_ms(self, _: int | None) -> None:
        """Ignore the assignment by the base class; there is no watermark."""

    @property
    def broadcast(self) -> Mapping[Any, Any]:
        """Raise `Invalid`: a broadcast stream is not available before the shuffle."""
        self._refuse("rows of a broadcast stream are")

    def timer(self, at: Any, name: str = "", clock: Clock | None = None) -> None:  # noqa: ARG002 - as the base
        """Raise `Invalid`: timers are not available before the shuffle."""
        self._refuse("timers are")

    def cancel_timer(self, name: str = "", clock: Clock | None = None) -> None:  # noqa: ARG002 - as the base
        """Raise `Invalid`: timers are not available before the shuffle."""
        self._refuse("timers are")

    def timers(self) -> tuple[Any, ...]:
        """Raise `Invalid`: timers are not available before the shuffle."""
        self._refuse("timers are")


@dataclass(slots=True)
class Splitter:
    """A function that merges the events of hot keys, in the tasks before the shuffle.

    Args:
        choice: The choice of hot keys.
        make: Creates the runner of the processor.
        states: The processor's states.
        keys: The key columns of the events.
        timed: Whether the events have a column with the batch's time. The column costs more than the search
            for hot keys, and few processors read the time before the shuffle.
    """

    choice: Split
    make: Callable[[], Runner]
    states: tuple[State, ...]
    keys: pa.Schema
    timed: bool
    _runner: Runner | None = field(default=None, init=False)
    _in_vain: bool = field(default=False, init=False)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of parts."""
        return parts_schema(self.states, self.keys)

    def split(
        self, events: pa.Table, h: Hashes, moment: Moment
    ) -> tuple[NDArray[np.bool_], pa.Table, Hashes] | None:
        """Run the events of hot keys; return a mask of these events, the parts, and the hashes of the parts'
        keys.

        The result is None, and no event is merged, if no key is hot or if the processor needs an unknown
        time.
        """
        mask = None if self._in_vain else self._is_hot(h)
        if mask is None:
            return None
        mine = events.filter(pa.array(mask)).combine_chunks()
        hashes = h[mask]
        keys = mine.select(self.keys.names)
        first, position = distinct(hashes, keys)
        keys = keys.take(pa.array(first))
        if self._runner is None:
            self._runner = self.make()
        try:
            outcome = self._runner.run([Arrivals(mine, position)], self._untouched(keys), moment)
        except TimeWanted:
            self._runner, self._in_vain = None, True
            return None
        return mask, self._table(keys, np.bincount(position), outcome), hashes[first]

    def _untouched(self, keys: pa.Table) -> PartRows:
        """Return keys without any stored state."""
        nothing = [pa.nulls(keys.num_rows, field.type) for field in list(self.schema)[keys.num_columns :]]
        return PartRows(pa.table([*keys.columns, *nothing], schema=self.schema), self.keys.names)

    def _is_hot(self, h: Hashes) -> NDArray[np.bool_] | None:
        if self.choice.hot is not None:
            mask = np.isin(h.view(np.int64), np.array(sorted(self.choice.hot), np.int64))
            return mask if mask.any() else None
        least = max(self.choice.least, int(np.ceil(self.choice.share * len(h))))
        buckets = (h >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)
        full = np.bincount(buckets, minlength=1 << _BUCKET_BITS) >= least
        if not full.any():
            return None
        values, counts = np.unique(h[full[buckets]], return_counts=True)
        heavy = values[counts >= least]
        return np.isin(h, heavy) if len(heavy) else None

    def _table(self, keys: pa.Table, events: NDArray[np.int64], outcome: Outcome) -> pa.Table:
        count = keys.num_rows
        columns = [*(whole(column) for column in keys.columns), pa.array(events, pa.int64())]
        for state in self.states:
            if state.has_elements:
                written = outcome.elements.get(state.name)
                empty = self.schema.field(f"{_ELEMENTS}{state.name}").type
                columns.append(
                    pa.array([[]] * count, empty) if written is None else _nested(written, count, state)
                )
            else:
                values = outcome.columns.get(f"{VALUE_PREFIX}{state.name}")
                columns.append(pa.nulls(count, state.type) if values is None else values)
        return pa.table(columns, schema=self.schema)


def _nested(written: pa.Table, count: int, state: State) -> pa.Array:
    """Return the elements of each key as one list value."""
    names = ["v"] if state.key_type is None else ["k", "v"]
    position = numbers(whole(written.column("position")))
    if (position[1:] < position[:-1]).any():
        order = np.argsort(position, kind="stable")
        position, written = position[order], written.take(pa.array(order))
    starts = offsets_of(np.bincount(position, minlength=count))
    element = pa.StructArray.from_arrays([whole(written.column(name)) for name in names], names)
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), element)


class PartRows:
    """Parts as a `Touched`: each part counts as one key with the states that it contains."""

    def __init__(self, parts: pa.Table, keys: Sequence[str] = ()) -> None:
        self._parts = parts
        self._keys = list(keys)

    @property
    def size(self) -> int:
        """Return the number of parts."""
        return self._parts.num_rows  # type: ignore[no-any-return]

    @property
    def keys(self) -> pa.Table:
        """Return the key columns of each part; no columns for parts that `merge` reads."""
        return self._parts.select(self._keys)

    def stored(self, column: str) -> pa.Array:
        """Return the values of a state, or the number of a list's elements, per part."""
        if column.startswith(VALUE_PREFIX):
            return whole(self._parts.column(f"{_VALUE}{column.removeprefix(VALUE_PREFIX)}"))
        lists = self._lists(column.removeprefix(SLOT_PREFIX))
        lengths = lists.value_lengths().cast(pa.int64())
        return pa.array([length or None for length in lengths.to_pylist()], pa.int64())

    def elements(self, state: str) -> Elements:
        """Return the elements of a list or map, per part."""
        lists = self._lists(state)
        lengths = numbers(lists.value_lengths().cast(pa.int64()).fill_null(0))
        starts = offsets_of(lengths)
        flat = lists.flatten()
        columns = {name: flat.field(name) for name in [field.name for field in flat.type]}
        slots = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
        return Elements(starts, pa.table({"slot": pa.array(slots, pa.int64()), **columns}))

    def _lists(self, state: str) -> pa.ListArray:
        return whole(self._parts.column(f"{_ELEMENTS}{state}"))


class PartFeed(EventDispatcher):
    """A dispatcher that calls `merge` with each part as a read-only state.

    Args:
        name: The name of the stream of parts.
        merge: The processor's `merge` method.
        states: The processor's states.
        processor: The processor's name, for error messages.
        rows: The list of output rows; `merge` must not return any.
    """

    def __init__(
        self,
        name: str,
        merge: Callable[..., Any],
        states: Sequence[State],
        processor: str,
        rows: list[Any],
    ) -> None:
        super().__init__(name, merge, rows, None, None)
        clocks = Clocks()
        self._cells: list[Cells] = [cells_of(replace(state, ttl=None), clocks) for state in states]
        self._class = state_class(f"{processor}Part", self._cells)
        self._parts: list[StateObject] = []
        self.collect = nothing_from("merge")

    def begin(self, arrivals: Arrivals, size: int, watermark_ms: int, *, by_time: bool = False) -> None:
        """Sort a pass's parts by key; the parts of one key keep their order, because they have no time."""
        super().begin(arrivals, size, watermark_ms, by_time=by_time)
        touched: Touched = PartRows(self._sorted)
        for cells in self._cells:
            cells.begin(touched, _NO_MOMENT)

    def open(self, first: int, stop: int, refuse: Callable[[int, str, dict[str, Any], str], None]) -> None:  # noqa: ARG002 - as the base
        """Load the parts of the keys from `first` to before `stop` as state objects."""
        start, end = int(self.bounds[first]), int(self.bounds[stop])
        offsets = (self.bounds[first : stop + 1] - start).tolist()
        self.starts, self.stops = offsets[:-1], offsets[1:]
        self._parts = [self._class() for _ in range(start, end)]
        for at, part in enumerate(self._parts, start):
            part._at = at
        for cells in self._cells:
            cells.load(self._parts, start)

    def run(self, key: int, state: Any, ctx: KeyContext) -> None:  # noqa: ARG002 - as the base
        """Merge the parts of one key into its state.

        Raises:
            HandlerFailed: `merge` raised an exception.
        """
        try:
            for part in self._parts[self.starts[key] : self.stops[key]]:
                self.collect(self.handler(state, part))
        except Exception as error:
            raise HandlerFailed(self.handler) from error


_NO_MOMENT = Moment(0, None, None)


def nothing_from(handler: str) -> Callable[[Any], None]:
    """Return the collector for a handler that must not return rows."""

    def collect(result: Any) -> None:
        if result is not None:
            raise no_rows(handler, type(result).__name__)

    return collect
