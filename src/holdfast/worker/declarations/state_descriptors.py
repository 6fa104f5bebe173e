"""What a processor declares: its states, how long they live, and how values are merged.

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


class Kind(str, Enum):
    """What a state holds for each key."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    BROADCAST = "broadcast"  # the same for all keys; made by the library, not declared


@dataclass(frozen=True, slots=True)
class Ttl:
    """How long a value lives, counted from its last stamp.

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

    It is the rule of `ttl.expired`, worked out once for a whole pass. Without a time nothing expires.
    """
    if now_ms is None:
        return NEVER_EXPIRED
    return now_ms - duration_ms if now_ms < MAX_MS else MAX_MS


def origin_ms(age_from: str | int, now_ms: int | None) -> int | None:
    """Give the stamp of a value that has none; None as long as its clock has no time."""
    return age_from if isinstance(age_from, int) else now_ms


class Aggregate(ABC):
    """How an aggregating state takes in values; subclass it and give the state an instance.

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
        """Give what the state reads as; it is worked out at each read and never stored."""
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

    kind: Kind
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
        """Whether a key has any number of values of this state, each in a row of its own."""
        return self.kind in (Kind.LIST, Kind.MAP, Kind.BROADCAST)

    @property
    def of_keys(self) -> bool:
        """Whether each key has its own."""
        return self.kind is not Kind.BROADCAST


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
    Kind.VALUE,
    pa.struct([pa.field("operator", pa.string()), pa.field("instances", pa.int32())]),
    name=SETTLED,
)
