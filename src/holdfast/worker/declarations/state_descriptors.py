"""The declarations of states and TTLs, and the base classes of processors.

Declarations are plain values with checked Arrow types and numbers. The factories in
`holdfast.stream.keyed.state_declarations` create them from the arguments of users.
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

    # The type that a handler reads from a state.
    Seen = TypeVar("Seen", default=Any)
    T = TypeVar("T")
else:
    from typing import TypeVar

    Seen, T = TypeVar("Seen"), TypeVar("T")

MAX_MS = 2**63 - 1
# Handler names shorter than this are not checked: too many words differ from them by one letter.
_LEAST_LETTERS = 7
# Below every possible timestamp: one less than the lowest timestamp that fits in eight bytes.
NEVER_EXPIRED = -(2**63) - 1
# Stands for a missing timestamp within a pass, while its clock has no time yet; stored as null.
UNSTAMPED = -(2**63)

TtlUpdate: TypeAlias = Literal["create_and_write", "read_and_write"]
TtlVisibility: TypeAlias = Literal["never_return_expired", "return_if_not_cleaned_up"]
OnDisable: TypeAlias = Literal["keep", "drop_expired"]
# A number is a time in epoch milliseconds.
AgeFrom: TypeAlias = Literal["restore"] | int


class StateKind(str, Enum):
    """The kind of a state."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    BROADCAST = "broadcast"  # shared by all keys; created by the library, never declared


@dataclass(frozen=True, slots=True)
class Ttl:
    """The TTL of a state's values, as returned by `hf.ttl`.

    Args:
        duration_ms: The lifetime in milliseconds. A value expires when the clock reaches its timestamp plus
            the lifetime.
        update: "create_and_write" sets the timestamp at a write, "read_and_write" also at a read.
        visibility: "never_return_expired" hides a value as soon as it expires; "return_if_not_cleaned_up"
            returns an expired value until it is removed.
        clock: The clock for expiry: "processing" is the batch's processing time, "event" the stream's
            watermark.
        age_from: The timestamp of values written without one: "restore" is the start of the first run with
            the TTL, a number is a time in epoch milliseconds.
        on_disable: The values that remain after the TTL is removed: "keep" keeps all, "drop_expired" drops
            those already expired.

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
    """Return the latest expired timestamp: a value with this timestamp or an earlier one has expired.

    `ttl.expired` applies the same rule; here it is computed once per pass. Without a current time nothing
    expires.
    """
    if now_ms is None:
        return NEVER_EXPIRED
    return now_ms - duration_ms if now_ms < MAX_MS else MAX_MS


def origin_ms(age_from: AgeFrom, now_ms: int | None) -> int | None:
    """Return the timestamp to give a value that has none, or None while its clock has no time."""
    return age_from if isinstance(age_from, int) else now_ms


class Aggregate(ABC):
    """The base class of the aggregate of an aggregating state; subclass it and pass an instance to the state.

    The state stores the accumulator in its declared type. `add` returns the new accumulator; it may change
    the old one in place and return it. Define `merge(self, one, other)` so that accumulators can be merged.

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
        """Add a value to the accumulator and return the accumulator to store."""

    def result(self, accumulator: Any) -> Any:
        """Return the value that reading the state gives; it is computed at each read and never stored."""
        return accumulator


@dataclass(frozen=True)
class State(Generic[Seen]):
    """A declared state; the type argument is the type that a handler reads, for example `State[int]`.

    On the class or an instance of a processor, the attribute is this declaration. On a handler's `state`
    argument, annotated with the class of the processor, it is the value or handle of the current key.

    Args:
        kind: The kind of state.
        type: The type of the value, of a list's element, of a map's value or of the accumulator.
        name: The name of the class attribute.
        key_type: The type of a map's keys.
        default: The value that reading an unset value state returns.
        function: The function that merges the values of a reducing state.
        aggregate: The aggregate of an aggregating state.
        ttl: The TTL of the state's values, or None to keep them forever.
        was: The former names of the state, newest first; values stored under them are read, too.
        fields_were: The former names of struct fields, newest first, by new name. The name of a nested field
            is a dotted path: "address.street", "items.element.price", "prices.value.net".
        field_defaults: The values of struct fields that are missing in stored values.
        union: Whether each instance of an operator gets the lists of all instances when their number changes.

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
        # If one declaration is assigned to two names, the first is kept here; the class is rejected when it
        # is read.
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
        """Return the former names of the state, newest first."""
        return (self.was,) if isinstance(self.was, str) else self.was or ()

    def stored_as(self, names: Container[str], dropped: Container[str] = ()) -> str | None:
        """Return the name under which the state is stored: its own, the newest former one, or None.

        A dropped name is returned only if no other name matches.
        """
        known = [name for name in (self.name, *self.former_names) if name in names]
        return next((name for name in known if name not in dropped), known[0] if known else None)

    @property
    def has_elements(self) -> bool:
        """Return whether a key may have several values of this state, each in a separate row."""
        return self.kind in (StateKind.LIST, StateKind.MAP, StateKind.BROADCAST)

    @property
    def of_keys(self) -> bool:
        """Return whether each key has its own values of this state."""
        return self.kind is not StateKind.BROADCAST


def _not_of_a_processor(name: str, processor: object) -> Invalid:
    """Return the error for a state that is assigned on the processor, which serves many keys."""
    return Invalid(
        f"state {name!r} cannot be changed on the processor, which serves all keys",
        code="HF-E2524",
        where=type(processor).__qualname__,
        hint=f"change state.{name}, where state is the argument of the handler",
    )


def add(a: T, b: T) -> T:
    """Return the sum of two values; use it as the function of a reducing state.

    Example:
        class Spend(hf.Keyed):
            spend = hf.reducing("decimal(12,2)", hf.add)

            def on_event(self, event, state, ctx):
                state.spend.add(event.price)


        assert hf.add(2, 3) == 5
    """
    return a + b  # type: ignore[operator, no-any-return]  # whatever has a sum


def least(a: T, b: T) -> T:
    """Return the smaller of two values; as in Spark SQL, NaN is larger than every number.

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
    """Return the larger of two values; as in Spark SQL, NaN is larger than every number.

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
    """Return the numpy function equivalent to a merge function, or None if the function must be called per
    value.

    `fmin` and `maximum` treat NaN as `least` and `greatest` do. Integers wrap around in numpy, so check the
    range before adding arrays.
    """
    return next((ufunc for known, ufunc in _UFUNCS if known is function), None)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


# The internal states of an operator's instance: the operator, and the number of instances at the last write.
SETTLED = "holdfast_settled"
SETTLED_STATE = State(
    StateKind.VALUE,
    pa.struct([pa.field("operator", pa.string()), pa.field("instances", pa.int32())]),
    name=SETTLED,
)


# The handlers of each family, and those of both. With connected streams a processor has one `on_<stream>` per
# stream.
KEYED: Final = ("on_event", "on_key", "on_timer", "on_start", "on_end", "merge", "on_restore")
TABLE: Final = ("on_batch", "on_timers", "combine")
BOTH: Final = ("on_broadcast",)


def check_handler_names(processor: type, family: Sequence[str]) -> None:
    """Raise an error for a method whose name differs from a handler's by one missing, extra or swapped
    letter.

    Other names, including plurals, may belong to streams: `on_events` handles a stream named `events`.

    Raises:
        Invalid: The name of a method is a misspelt handler name.
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
    """Return whether a name differs from a known one by one missing, extra or swapped letter."""
    if not name.startswith("on_") or len(known) < _LEAST_LETTERS or name.rstrip("s") == known.rstrip("s"):
        return False
    if abs(len(name) - len(known)) > 1 or name == known:
        return False
    at = next((at for at, (a, b) in enumerate(zip(name, known)) if a != b), min(len(name), len(known)))  # noqa: B905
    rest, known_rest = name[at:], known[at:]
    swapped = rest[:2] == known_rest[:2][::-1] and rest[2:] == known_rest[2:]
    return swapped or rest[1:] == known_rest or rest == known_rest[1:]


class Keyed:
    """The base class of a processor that handles events one at a time or key by key, with state for each key.

    States are class attributes: `visits = hf.value(int, default=0)`. Handlers are methods. Define one handler
    of events:

    - `on_event(self, event, state, ctx)`: called for each event, in the order in which the events of its key
      arrived; or
    - `on_key(self, key, events, state, ctx)`: called once per batch for each key with events, with the list
      of those events.

    For connected streams, define `on_<stream>(self, event, state, ctx)` for each stream instead; it is called
    like `on_event`. All other methods are optional, but a processor that sets timers needs `on_timer`:

    - `on_timer(self, timer, state, ctx)`: called once for each due timer, in the order of their times,
      also for keys without events. Due timers fire before the batch's events.
    - `on_end(self, state, ctx)`: called once per batch for each key with events, after all of them; use it to
      return rows that report the resulting state rather than single events.
    - `merge(self, state, part)`: merges the state that `on_event` built from a part of a batch's events
      into the key's state. With it, the events of a hot key can be merged before the shuffle, see
      `split_hot`. `on_event` then returns no rows; return them from `on_end`. The result must not depend
      on how events are divided into parts, or on the order of merges.
    - `on_start(self, ctx)`: called once in each task before any other handler, to open resources. `ctx`
      has no key.
    - `on_broadcast(self, row, rows, ctx)`: called for each row of the broadcast stream, to change the shared
      rows; by default the row replaces the one with its key.

    `on_start`, `on_broadcast` and `merge` return nothing. Every other handler returns nothing, one row or an
    iterable of rows, or it is a generator of rows. A row is a dict with the names of the output columns, or a
    tuple in their order. `state` and `event` are valid until the handler returns.

    The order of keys is not defined, and a batch may run more than once: after a failure it runs again from
    the state before it, so other side effects of a handler are repeated. Every task has its own instance,
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
        """Prepare a task; override this method to open resources. `ctx` has no key."""

    def on_event(self, event: Event, state: Any, ctx: Context) -> Any:
        """Handle one event; return nothing, a row or rows, or yield rows.

        Args:
            event: The event as a row: `event.amount`.
            state: The state of the event's key; annotate it with the class of the processor.
            ctx: The key and its timers, and the times of the batch.
        """

    def on_key(self, key: Event, events: Sequence[Event], state: Any, ctx: Context) -> Any:
        """Handle all events of a key in a batch at once; return the same as `on_event`.

        Args:
            key: The key as a row of the key columns.
            events: The events of the key, in the order of their arrival.
            state: The state of the key.
            ctx: The timers of the key, and the times of the batch.
        """

    def on_timer(self, timer: Timer, state: Any, ctx: Context) -> Any:
        """Handle a due timer; return the same as `on_event`.

        Args:
            timer: The timer, with `name`, `at` and `clock`.
            state: The state of the key.
            ctx: The key and its other timers, and the times of the batch.
        """

    def on_end(self, state: Any, ctx: Context) -> Any:
        """Report the resulting state once per batch for each key with events; return the same as `on_event`.

        Args:
            state: The state of the key.
            ctx: The key and its timers, and the times of the batch.
        """

    def on_broadcast(self, row: Event, rows: MutableMapping[Any, Any], ctx: Context) -> None:
        """Apply a row of the broadcast stream to the shared rows; by default the row replaces the one with
        its key.

        Args:
            row: The row that arrived.
            rows: The shared rows by key, to be changed in place.
            ctx: The times of the batch; there is no key.
        """

    def merge(self, state: Any, part: Any) -> None:
        """Merge the state built from a part of a batch's events into the state of the key.

        Args:
            state: The state of the key.
            part: The state after the events of the part, starting from empty state.
        """


class Operator(Keyed):
    """The base class of a processor with state per parallel instance instead of per key; see `hf.operate`.

    Its states must be lists: `hf.list(…)` is split evenly when the number of instances changes;
    `hf.union_list(…)` is given whole to each instance. Its handlers are those of `Keyed`, with the instance
    as key: `ctx.key.instance` is its number, counted from zero. It may also define:

    - `on_restore(self, state, ctx)`: called for each instance, with its new lists, in the first batch after
      the number of instances has changed; use it to drop unneeded elements, or to set timers, because
      instances do not inherit timers.

    Do not buffer events in `self`: the events of a failed batch would be lost, and those of a repeated batch
    would be buffered twice.

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
            ctx: The instance as key, its timers, and the times of the batch.
        """


class KeyedTable:
    """The base class of a processor that handles all events of a partition's batch as one Arrow table.

    States are class attributes and belong to keys, as in `Keyed`. Define:

    - `on_batch(self, events, state)`: called once per batch and partition with a `pyarrow.Table` of the
      events, in the order of their arrival within each key. It returns a table in the output's schema,
      or None. Connected streams have one `on_<stream>(self, events, state)` for each stream instead.
    - `on_timers(self, timers, state)`, if the processor uses timers: called before `on_batch` with a table of
      the key columns, `name`, `clock` and `at`, in the order of the times. It returns a table or None.
    - `combine(self, events)`, optionally: merges events of one stream before the shuffle, which avoids most
      of the shuffle if keys repeat often.

    Which keys are in one call is not defined: a large batch may be divided by keys into several calls. As
    with `Keyed`, a batch may run more than once.

    Do not loop over the rows in Python; `Keyed` is faster for processing single events.

    Attributes:
        combined: The columns that `combine` returns, for example "customer string, spend double", if they
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

        Each call gets a part of a batch, without state. It need not have all events of a key, and how events
        are divided among calls is not defined, so `on_batch` must merge the results again.
        """
        return events

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table | None:
        """Handle the events of a partition's batch; return a table of results, or None.

        Args:
            events: The events as a `pyarrow.Table`.
            state: The state of the events' keys, an `hf.StateTable`.
        """

    def on_broadcast(self, row: Event, rows: MutableMapping[Any, Any], ctx: Context) -> None:
        """Apply a row of the broadcast stream to the shared rows, as in `Keyed`."""

    def on_timers(self, timers: pa.Table, state: Any) -> pa.Table | None:
        """Handle the due timers; return a table of results, or None.

        Args:
            timers: A table with the key columns, `name`, `clock` and `at`.
            state: The state of the timers' keys, an `hf.StateTable`.
        """
