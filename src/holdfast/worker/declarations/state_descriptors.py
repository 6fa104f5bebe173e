"""The states, TTLs and base classes of processors.

These are plain values with checked Arrow types and numbers; the factories in
`holdfast.stream.keyed.state_declarations` parse the arguments of users.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, overload

import numpy as np
import pyarrow as pa

from holdfast.errors import Invalid
from holdfast.worker.declarations.handler_arguments import Clock, Context, Event, Timer

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # What a handler reads of a state.
    Seen = TypeVar("Seen", default=Any)
    T = TypeVar("T")
else:
    from typing import TypeVar

    Seen, T = TypeVar("Seen"), TypeVar("T")

MAX_MS = 2**63 - 1
# Shorter names of handlers are one letter away from too many words.
_LEAST_LETTERS = 7
# No stamp is as early as this, which is why it is one below the least number of eight bytes.
NEVER_EXPIRED = -(2**63) - 1
# What counts in a pass as the stamp of a value that none can be given yet; it is stored as null.
UNSTAMPED = -(2**63)

TtlUpdate: TypeAlias = Literal["create_and_write", "read_and_write"]
TtlVisibility: TypeAlias = Literal["never_return_expired", "return_if_not_cleaned_up"]
OnDisable: TypeAlias = Literal["keep", "drop_expired"]
# A number is a time in epoch milliseconds.
AgeFrom: TypeAlias = Literal["restore"] | int


class StateKind(str, Enum):
    """The kinds of state."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    BROADCAST = "broadcast"  # the same for all keys; made by the library, not declared


@dataclass(frozen=True, slots=True)
class Ttl:
    """The TTL of a state's values, as `hf.ttl` returns it.

    Args:
        duration_ms: The lifetime in milliseconds. A value expires when the clock reaches its
            timestamp plus this.
        update: "create_and_write" sets the timestamp at a write, "read_and_write" also at a read.
        visibility: "never_return_expired" hides a value as soon as it expires,
            "return_if_not_cleaned_up" may return it once more.
        clock: "processing" is the batch's time, "event" the stream's watermark.
        age_from: The start of the TTL for values written without one: "restore" counts from the start of
            the first run with the TTL, a number counts from that time in epoch milliseconds.
        on_disable: The values that stay after the TTL is removed: "keep" keeps all,
            "drop_expired" drops those already expired.

    Example:
        day = hf.ttl("24h", clock="event")
        assert (day.duration_ms, day.clock) == (86_400_000, "event")


        class Visits(hf.Keyed):
            visits = hf.value(int, default=0, ttl=day)
            spend = hf.reducing(float, hf.add, ttl=day)

            def on_event(self, event, state, ctx):
                state.visits += 1
                state.spend.add(event.amount)
    """

    duration_ms: int
    update: TtlUpdate = "create_and_write"
    visibility: TtlVisibility = "never_return_expired"
    clock: Clock = "processing"
    age_from: AgeFrom = "restore"
    on_disable: OnDisable = "keep"


def cutoff_ms(duration_ms: int, now_ms: int | None) -> int:
    """Return the latest expired stamp: a value with this stamp or an earlier one has expired.

    This is the rule of `ttl.expired`, computed once per pass. Without a time nothing expires.
    """
    if now_ms is None:
        return NEVER_EXPIRED
    return now_ms - duration_ms if now_ms < MAX_MS else MAX_MS


def origin_ms(age_from: AgeFrom, now_ms: int | None) -> int | None:
    """Return the stamp of a value that has none; None as long as its clock has no time."""
    return age_from if isinstance(age_from, int) else now_ms


class Aggregate(ABC):
    """An aggregate of values for an aggregating state; subclass it and give the state an instance.

    The state stores the accumulator in its declared type. `add` returns the new accumulator; it may change
    the old one in place and return it. Define `merge(self, one, other)` to allow accumulators to be
    merged.

    Do not keep sums in `self`: one instance serves all keys of a task.

    Example:
        class Average(hf.Aggregate):
            def create(self):
                return [0.0, 0.0]

            def add(self, accumulator, value):
                return [accumulator[0] + value, accumulator[1] + 1]

            def result(self, accumulator):
                return accumulator[0] / accumulator[1]


        class Till(hf.Keyed):
            average = hf.aggregating("array<double>", Average())

            def on_event(self, event, state, ctx):
                state.average.add(event.amount)


        assert [state.name for state in hf.explain(Till()).states] == ["average"]
    """

    @abstractmethod
    def create(self) -> Any:
        """Return the initial accumulator of a key."""

    @abstractmethod
    def add(self, accumulator: Any, value: Any) -> Any:
        """Add a value and return the accumulator to store."""

    def result(self, accumulator: Any) -> Any:
        """Return the value that a read returns; it is computed at each read and never stored."""
        return accumulator


@dataclass(frozen=True)
class State(Generic[Seen]):
    """One declared state; the type argument is what a handler reads: `State[int]`.

    Reading it on the class or on a processor gives this declaration. A handler's `state` argument, annotated
    with the class of the processor, gives the value or handle of the key.

    Args:
        kind: The kind of state.
        type: The type of the value, of a list's element, of a map's value or of the accumulator.
        name: The name of its class attribute.
        key_type: The type of a map's keys.
        default: The value that an unset value state reads as.
        function: The function that merges the values of a reducing state.
        aggregate: The aggregate of an aggregating state.
        ttl: The TTL of its values; None keeps them forever.
        was: The former names of the state, newest first; stored values are also read by these names.
        fields_were: The former names of struct fields, newest first, by new name. A nested field is a
            dotted path: "address.street", "items.element.price", "prices.value.net".
        field_defaults: The values of struct fields in values stored without them.
        union: Whether each instance of an operator gets the lists of all when their number changes.

    Example:
        class Visits(hf.Keyed):
            visits = hf.value(int, default=0)

        assert isinstance(Visits.visits, hf.State)
        assert Visits.visits.default == 0
    """

    kind: StateKind
    type: pa.DataType
    name: str = ""
    key_type: pa.DataType | None = None
    default: Any = field(default=None, hash=False)
    function: Callable[[Any, Any], Any] | None = None
    aggregate: Aggregate | None = None
    ttl: Ttl | None = None
    was: str | tuple[str, ...] | None = None
    fields_were: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict, hash=False)
    field_defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    union: bool = False

    def __set_name__(self, owner: type, name: str) -> None:
        # One declaration assigned to two names keeps the first here; the class is refused when it is read.
        if not self.name:
            object.__setattr__(self, "name", name)

    @overload
    def __get__(self, instance: None, owner: Any) -> State[Seen]: ...

    @overload
    def __get__(self, instance: object, owner: Any) -> Seen: ...

    def __get__(self, instance: object | None, owner: Any) -> Any:
        return self

    def __set__(self, instance: object, value: Seen) -> None:
        raise _not_of_a_processor(self.name, instance)

    def __delete__(self, instance: object) -> None:
        raise _not_of_a_processor(self.name, instance)

    @property
    def former_names(self) -> tuple[str, ...]:
        """Its former names, newest first."""
        return (self.was,) if isinstance(self.was, str) else self.was or ()

    def stored_as(self, names: Container[str], dropped: Container[str] = ()) -> str | None:
        """Return the name under which it is stored: its own, or the newest former one; None if none matches.

        A dropped name counts only if no other matches.
        """
        known = [name for name in (self.name, *self.former_names) if name in names]
        return next((name for name in known if name not in dropped), known[0] if known else None)

    @property
    def has_elements(self) -> bool:
        """Return whether a key may have several values of this state, each in a separate row."""
        return self.kind in (StateKind.LIST, StateKind.MAP, StateKind.BROADCAST)

    @property
    def of_keys(self) -> bool:
        """Return whether each key has its own."""
        return self.kind is not StateKind.BROADCAST


def _not_of_a_processor(name: str, processor: object) -> Invalid:
    """Return the error for a state that is changed on the processor, which serves many keys."""
    return Invalid(
        f"state {name!r} cannot be changed on the processor, which serves all keys",
        code="HF-E2524",
        where=type(processor).__qualname__,
        hint=f"change state.{name}, where state is the argument of the handler",
    )


def add(a: T, b: T) -> T:
    """Return the sum of two values, for a reducing state.

    Example:
        class Spend(hf.Keyed):
            spend = hf.reducing("decimal(12,2)", hf.add)

            def on_event(self, event, state, ctx):
                state.spend.add(event.price)


        assert hf.add(2, 3) == 5
    """
    return a + b  # type: ignore[operator, no-any-return]  # whatever has a sum


def least(a: T, b: T) -> T:
    """Return the smaller of two values; NaN counts as larger than every number, as in Spark SQL.

    Example:
        class Cheapest(hf.Keyed):
            price = hf.reducing("double", hf.least)

            def on_event(self, event, state, ctx):
                state.price.add(event.amount)


        assert hf.least(2.6, float("nan")) == 2.6
    """
    if a <= b:  # type: ignore[operator]  # whatever has an order
        return a
    return a if _is_nan(b) else b


def greatest(a: T, b: T) -> T:
    """Return the larger of two values; NaN counts as larger than every number, as in Spark SQL.

    Example:
        class Dearest(hf.Keyed):
            price = hf.reducing("double", hf.greatest)

            def on_event(self, event, state, ctx):
                state.price.add(event.amount)


        assert hf.greatest(2.6, 4.3) == 4.3
    """
    if a >= b:  # type: ignore[operator]  # whatever has an order
        return a
    return a if _is_nan(a) else b


_UFUNCS: tuple[tuple[Callable[..., Any], np.ufunc], ...] = (
    (add, np.add),
    (operator.add, np.add),
    (least, np.fmin),
    (min, np.fmin),
    (greatest, np.maximum),
    (max, np.maximum),
)


def ufunc_of(function: Callable[..., Any] | None) -> np.ufunc | None:
    """Return the numpy function equal to a merge function; None if it must be called value by value.

    `fmin` and `maximum` treat NaN as `least` and `greatest` do. Integers wrap around in numpy: check the
    range before adding arrays.
    """
    return next((ufunc for known, ufunc in _UFUNCS if known is function), None)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


# What an operator's instance knows besides the user's states: the operator, and how many instances there were
# when its state was last written.
SETTLED = "holdfast_settled"
SETTLED_STATE = State(
    StateKind.VALUE,
    pa.struct([pa.field("operator", pa.string()), pa.field("instances", pa.int32())]),
    name=SETTLED,
)


# The handlers of each family, and those of both. With connected streams a processor has one `on_<stream>` for
# each.
KEYED: Final = ("on_event", "on_key", "on_timer", "on_start", "on_end", "merge", "on_restore")
TABLE: Final = ("on_batch", "on_timers", "combine")
BOTH: Final = ("on_broadcast",)


def check_handler_names(processor: type, family: Sequence[str]) -> None:
    """Refuse a method that is named like a handler with a letter too many, too few or swapped.

    Other names may be those of streams, and so may plurals: `on_events` handles a stream named `events`.

    Raises:
        Invalid: A method is misspelt.
    """
    handlers = (*family, *BOTH)
    for name in vars(processor):
        known = next((known for known in handlers if _is_misspelt(name, known)), None)
        if known is not None and name not in handlers:
            raise Invalid(
                f"method {name} is named almost like the handler {known}",
                code="HF-E2525",
                where=processor.__qualname__,
                expected=", ".join(handlers),
                hint=f"rename the method to {known}; if it handles a stream, rename the stream",
            )


def _is_misspelt(name: str, known: str) -> bool:
    """Return whether a name becomes a known one by one letter that is missing, extra or swapped."""
    if not name.startswith("on_") or len(known) < _LEAST_LETTERS or name.rstrip("s") == known.rstrip("s"):
        return False
    if abs(len(name) - len(known)) > 1 or name == known:
        return False
    at = next((at for at, (a, b) in enumerate(zip(name, known)) if a != b), min(len(name), len(known)))  # noqa: B905
    rest, known_rest = name[at:], known[at:]
    swapped = rest[:2] == known_rest[:2][::-1] and rest[2:] == known_rest[2:]
    return swapped or rest[1:] == known_rest or rest == known_rest[1:]


class Keyed:
    """A processor of events, one by one or key by key, with state for each key.

    States are class attributes: `visits = hf.value(int, default=0)`. Handlers are methods; define

    - `on_event(self, event, state, ctx)`: called for each event, in the order in which the events of its
      key arrived, or instead of it
    - `on_key(self, key, events, state, ctx)`: called once per batch for each key with events, with the
      list of them. Connected streams have one `on_<stream>(self, event, state, ctx)` for each stream
      instead of these two.
    - `on_timer(self, timer, state, ctx)`: called once for each due timer, in the order of their times,
      also for keys without events. Due timers fire before the batch's events.
    - `on_end(self, state, ctx)`: called once per batch for each key with events, after all of them; use
      it for rows that report the resulting state rather than single events.
    - `merge(self, state, part)`: merges the state that `on_event` built from a part of a batch's events
      into the key's state. With it, the events of a hot key can be merged before the shuffle, see
      `split_hot`. `on_event` then returns no rows; return them from `on_end`. The result must not depend
      on how events are divided into parts, or on the order of merges.
    - `on_start(self, ctx)`: called once in each task before any other handler, to open resources. `ctx`
      has no key.

    A handler returns nothing, one row, an iterable of rows, or is a generator. A row is a dict by the
    names of the output's columns, or a tuple in their order. `state` and `event` are valid until
    the handler returns.

    Not guaranteed: an order between keys; that a batch runs once. After a failure it runs again from the
    state before it, so other side effects of a handler are repeated. Every task has its own instance,
    unpickled from the one you passed.

    Do not keep data per key in `self`: one instance serves many keys, and a checkpoint does not include
    it.

    Example:
        from holdfast.testing import Harness


        class Visits(hf.Keyed):
            visits = hf.value(int, default=0)

            def on_event(self, event, state, ctx):
                state.visits += 1
                yield {"customer": ctx.key.customer, "visits": state.visits}


        shop = Harness(
            Visits(), by="customer", events="customer string", output="customer string, visits long"
        )
        assert shop.send({"customer": "ann"}) == [{"customer": "ann", "visits": 1}]
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_handler_names(cls, KEYED)

    def on_start(self, ctx: Context) -> None:
        """Prepare a task; override it to open resources. `ctx` has no key."""

    def on_event(self, event: Event, state: Any, ctx: Context) -> Any:
        """Handle one event; return nothing, a row or rows, or yield rows.

        Args:
            event: The event, a row: `event.amount`.
            state: The state of the event's key; annotate it with the class of the processor.
            ctx: The key, the times and the timers of the key.
        """

    def on_key(self, key: Event, events: Sequence[Event], state: Any, ctx: Context) -> Any:
        """Handle all events of a key in a batch at once; results as of `on_event`.

        Args:
            key: The key, a row of its columns.
            events: The events, in the order of their arrival.
            state: The state of the key.
            ctx: The times and the timers of the key.
        """

    def on_timer(self, timer: Timer, state: Any, ctx: Context) -> Any:
        """Handle a timer that is due; results as of `on_event`.

        Args:
            timer: The timer, with `name`, `at` and `clock`.
            state: The state of the key.
            ctx: The key, the times and the other timers of the key.
        """

    def on_end(self, state: Any, ctx: Context) -> Any:
        """Report the resulting state once per batch for each key with events; results as of `on_event`.

        Args:
            state: The state of the key.
            ctx: The key, the times and the timers of the key.
        """

    def on_broadcast(self, row: Event, rows: MutableMapping[Any, Any], ctx: Context) -> None:
        """Apply a row of the broadcast stream to the rows that all tasks see; without it the row is set.

        Args:
            row: The row that arrived.
            rows: The rows by key, to be changed in place.
            ctx: The times; it has no key.
        """

    def merge(self, state: Any, part: Any) -> None:
        """Merge the state that a part of a batch's events led to into the state of the key.

        Args:
            state: The state of the key.
            part: The state after the part, starting from nothing.
        """


class Operator(Keyed):
    """A processor of events with state of parallel instances instead of keys; see `hf.operate`.

    Its states must be lists: `hf.list(…)` is split evenly when the number of instances changes;
    `hf.union_list(…)` is given whole to each instance. Its handlers are those of `Keyed`, with the instance
    as key: `ctx.key.instance` is its number, from zero. It may also define

    - `on_restore(self, state, ctx)`: called for each instance in the first batch after their number has
      changed, with its new lists; use it to drop unneeded elements, or to set timers, which instances do
      not inherit.

    Do not buffer events in `self`: a failed batch would be lost, and a repeated batch would be in the
    buffer twice.

    Example:
        from holdfast.testing import Harness


        class Trays(hf.Operator):
            waiting = hf.list("string")

            def on_event(self, event, state, ctx):
                state.waiting.append(event.drink)
                if len(state.waiting) == 2:
                    yield {"drinks": list(state.waiting)}
                    state.waiting.clear()


        bar = Harness(Trays(), events="drink string", output="drinks array<string>", instances=1)
        assert bar.send({"drink": "tea"}) == []
        assert bar.send({"drink": "mocha"}) == [{"drinks": ["tea", "mocha"]}]
    """

    def on_restore(self, state: Any, ctx: Context) -> Any:
        """Adjust the lists of an instance after the number of instances has changed.

        Args:
            state: The lists of the instance.
            ctx: The instance as key, the times and the timers.
        """


class KeyedTable:
    """A processor of all events of a partition's batch as one Arrow table, with state for each key.

    States are class attributes, as in `Keyed`. Define

    - `on_batch(self, events, state)`: called once per batch and partition with a `pyarrow.Table` of the
      events, in the order of their arrival within each key. It returns a table in the output's schema,
      or None. Connected streams have one `on_<stream>(self, events, state)` for each stream instead.
    - `on_timers(self, timers, state)`, to use timers: called before `on_batch` with a table of the key
      columns, `name`, `clock` and `at`, in the order of the times. It returns a table or None.
    - `combine(self, events)`, to merge events of one stream before the shuffle, which saves most of the
      shuffle if keys repeat often.

    Not guaranteed: which keys are in one call, and that a batch runs once, as in `Keyed`. A large batch
    may be divided by keys into several calls.

    Do not loop over the rows in Python: `Keyed` is faster at that.

    Attributes:
        combined: The columns that `combine` returns, as in "customer string, spend double", if they
            differ from those of the events. They must include the key columns.

    Example:
        from holdfast.testing import Harness


        class Spend(hf.KeyedTable):
            spend = hf.reducing("double", hf.add)

            def on_batch(self, events, state):
                state.spend.add(events["amount"])
                return state.table(spend=state.spend)


        shop = Harness(
            Spend(),
            by="customer",
            events="customer string, amount double",
            output="customer string, spend double",
        )
        assert shop.send({"customer": "ann", "amount": 2.6}) == [{"customer": "ann", "spend": 2.6}]
    """

    combined: str | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_handler_names(cls, TABLE)

    def combine(self, events: pa.Table) -> pa.Table:
        """Merge events before the shuffle; called only if overridden.

        Called with a part of a batch. It has no state and not all events of a key, and the division of
        events among calls is undefined, so `on_batch` must merge again.
        """
        return events

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table | None:
        """Handle the events of a partition's batch; return a table of results, or None.

        Args:
            events: The events, a `pyarrow.Table`.
            state: The state of their keys, an `hf.StateTable`.
        """

    def on_broadcast(self, row: Event, rows: MutableMapping[Any, Any], ctx: Context) -> None:
        """Apply a row of the broadcast stream, as in `Keyed`."""

    def on_timers(self, timers: pa.Table, state: Any) -> pa.Table | None:
        """Handle the timers that are due; return a table of results, or None.

        Args:
            timers: The key columns, `name`, `clock` and `at`.
            state: The state of their keys, an `hf.StateTable`.
        """
