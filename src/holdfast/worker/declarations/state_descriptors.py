"""The states, TTLs and base classes that a processor declares.

These are plain values. They hold Arrow types and numbers that are checked already; the factories in
`holdfast.stream.keyed.state_declarations` read what people write.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

MAX_MS = 2**63 - 1
# No stamp is as early as this, which is why it is one below the least number of eight bytes.
NEVER_EXPIRED = -(2**63) - 1
# What counts in a pass as the stamp of a value that none can be given yet; it is stored as null.
UNSTAMPED = -(2**63)


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
    """The lifetime of a value, counted from its last stamp.

    Args:
        duration_ms: The life of a value. It has expired when the clock has reached stamp + duration.
        update: "create_and_write" stamps writes, "read_and_write" stamps reads too.
        visibility: "never_return_expired" hides a value from the moment it expires,
            "return_if_not_cleaned_up" may give it one last time.
        clock: "processing" is the batch's time, "event" the stream's watermark.
        age_from: What age values have that were written without a TTL: "restore" counts from the
            start of the first run with the TTL, a number of epoch milliseconds counts from then.
        on_disable: Which stamped values stay once the TTL is taken away: "keep" keeps them all,
            "drop_expired" drops those that have expired by then.
    """

    duration_ms: int
    update: str = "create_and_write"
    visibility: str = "never_return_expired"
    clock: str = "processing"
    age_from: str | int = "restore"
    on_disable: str = "keep"


def cutoff_ms(duration_ms: int, now_ms: int | None) -> int:
    """Give the latest stamp that has expired, so that a value has expired when its stamp is no later.

    It is the rule of `ttl.expired`, computed once for a whole pass. Without a time nothing expires.
    """
    if now_ms is None:
        return NEVER_EXPIRED
    return now_ms - duration_ms if now_ms < MAX_MS else MAX_MS


def origin_ms(age_from: str | int, now_ms: int | None) -> int | None:
    """Give the stamp of a value that has none; None as long as its clock has no time."""
    return age_from if isinstance(age_from, int) else now_ms


class Aggregate(ABC):
    """An aggregate of values for an aggregating state; subclass it and give the state an instance.

    The accumulator is what is stored, in the type that the state declares. `add` returns the new
    accumulator; changing the old one in place and returning it is allowed. A subclass that defines
    `merge(self, one, other)` as well lets accumulators be combined.

    The classic mistake is to keep sums in `self`: one instance serves all keys of a task.
    """

    @abstractmethod
    def create(self) -> Any:
        """Make the accumulator of a key that has none."""

    @abstractmethod
    def add(self, accumulator: Any, value: Any) -> Any:
        """Take a value in and return the accumulator to store."""

    def result(self, accumulator: Any) -> Any:
        """Give what the state reads as; it is computed at each read and never stored."""
        return accumulator


@dataclass(frozen=True)
class State:
    """One declared state. Reading it on the class gives this declaration, also on an instance.

    Args:
        kind: What it holds for each key.
        type: The type of the value, of a list's element, of a map's value or of the accumulator.
        name: The attribute it was assigned to.
        key_type: The type of a map's keys.
        default: What an unset value reads as.
        function: What merges the values of a reducing state.
        aggregate: What takes in the values of an aggregating state.
        ttl: How long its values live; None means for ever.
        was: The former name of the state, or several, newest first, under which stored values are looked
            for too.
        fields_were: New name of a struct's field to its former name, or to several, newest first. A
            nested field is a dotted path: "address.street", "items.element.price", "prices.value.net".
        field_defaults: What fields of a struct read as in values that were stored without them.
        union: Whether each instance of an operator is given the lists of all when their number changes.
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

    @property
    def former_names(self) -> tuple[str, ...]:
        """Its former names, newest first."""
        return (self.was,) if isinstance(self.was, str) else self.was or ()

    def stored_as(self, names: Container[str], dropped: Container[str] = ()) -> str | None:
        """Under which of these names it is stored: its own, or the newest of its former ones.

        A dropped name counts only where there is no other of them.
        """
        known = [name for name in (self.name, *self.former_names) if name in names]
        return next((name for name in known if name not in dropped), known[0] if known else None)

    @property
    def has_elements(self) -> bool:
        """Return whether a key has any number of values of this state, each in a row of its own."""
        return self.kind in (StateKind.LIST, StateKind.MAP, StateKind.BROADCAST)

    @property
    def of_keys(self) -> bool:
        """Return whether each key has its own."""
        return self.kind is not StateKind.BROADCAST


def add(a: Any, b: Any) -> Any:
    """Give the sum of two values, for a reducing state."""
    return a + b


def least(a: Any, b: Any) -> Any:
    """Give the smaller of two values; NaN counts as larger than every number, as in Spark SQL."""
    if a <= b:
        return a
    return a if _is_nan(b) else b


def greatest(a: Any, b: Any) -> Any:
    """Give the larger of two values; NaN counts as larger than every number, as in Spark SQL."""
    if a >= b:
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
    """Find what does the same to whole arrays; None means that the function is called value by value.

    `fmin` and `maximum` treat NaN as `least` and `greatest` do. Integers wrap around in numpy where
    Python's grow: whoever adds arrays of them has to check the range.
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


class Keyed:
    """Processes events one by one, or key by key, with state for each key.

    States are class attributes: `visits = hf.value(int, default=0)`. Handlers are methods; define

    - `on_event(self, event, state, ctx)`: called for each event, in the order in which the events of its
      key arrived, or instead of it
    - `on_key(self, key, events, state, ctx)`: called once a batch for each key that has events, with the
      list of them. With connected streams neither is there, but one `on_<stream>(self, event, state,
      ctx)` for each stream.
    - `on_timer(self, timer, state, ctx)`: called once for each timer that is due, in the order of their
      times; also for keys that have no events. Timers that are due come before the batch's events.
    - `on_end(self, state, ctx)`: called once a batch for each key that had events, after all of them; for
      rows that tell how things stand rather than what each event did.
    - `merge(self, state, part)`: brings what `on_event` made of some of a batch's events, starting from
      nothing, into the key's state. With it the events of a hot key can be taken together before the
      shuffle, see `split_hot`. `on_event` gives no rows then, `on_end` does; and it must not matter how
      events are divided into parts, or in which order these are merged.
    - `on_start(self, ctx)`: called once in each task before anything else, to open what the handlers
      use. `ctx` has no key there.

    A handler returns nothing, one row, an iterable of rows, or is a generator. A row is a dict by the
    names of the output's columns, or a tuple in their order. `state` and `event` are good until the
    handler returns.

    Not guaranteed: an order between keys; that a batch runs once. After a failure it runs again from the
    state before it, so what a handler does outside of `state` and its rows happens again. Every task has
    an instance of its own, unpickled from the one that was handed over.

    The classic mistake is to keep something per key in `self`: one instance serves many keys, and
    nothing of it is in a checkpoint.
    """

    def on_start(self, ctx: Any) -> None:
        """Prepare a task; does nothing unless it is overridden."""


class Operator(Keyed):
    """Processes events with state of a parallel instance, not of a key; see `hf.operate`.

    States are lists alone: `hf.list(…)`, which is split evenly when the number of instances changes, and
    `hf.union_list(…)`, of which each instance is given all. Handlers are those of `Keyed`, where the key is
    the instance: `ctx.key.instance` is its number, from zero. Besides, there may be

    - `on_restore(self, state, ctx)`: called for each instance in the first batch after their number has
      changed, once it has been given its lists; to drop what it does not need, or to set timers, which
      instances do not inherit.

    The classic mistake is a buffer in `self`: a batch that fails would be lost with it, and a batch that
    runs again would be in it twice.
    """


class KeyedTable:
    """Processes all events of a partition's batch as one Arrow table, with state for each key.

    States are class attributes, as in `Keyed`. Define

    - `on_batch(self, events, state)`: called once a batch and partition with a `pyarrow.Table` of the
      events, in the order of their arrival within each key. It returns a table in the output's schema,
      or None. With connected streams there is one `on_<stream>(self, events, state)` for each instead.
    - `on_timers(self, timers, state)`, if there are timers: called before it with a table of the key
      columns, `name`, `clock` and `at`, in the order of the times. It returns a table or None.
    - `combine(self, events)`, if events of one stream can be merged early, which saves most of the
      shuffle where keys come often.

    Not guaranteed: which keys come in one call, and that a batch runs once, as in `Keyed`. A large batch
    may be divided by keys and arrive in several calls.

    The classic mistake is a Python loop over the rows: `Keyed` does that faster.

    Attributes:
        combined: The columns that `combine` returns, as in "customer string, spend double", where they
            are others than those of the events. The columns of the key must be among them.
    """

    combined: str | None = None

    def combine(self, events: pa.Table) -> pa.Table:
        """Merge events before the shuffle; unless it is overridden nothing is merged or called.

        Called with part of a batch. It sees neither state nor all events of a key, and how events are
        divided among its calls is not defined, so `on_batch` has to merge again.
        """
        return events
