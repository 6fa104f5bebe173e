"""State declarations for the body of a processor class.

```python
class Regulars(hf.Keyed):
    visits = hf.value(int, default=0)
    drinks = hf.map("string", "long", ttl="30 days")
    spend = hf.reducing("decimal(12,2)", hf.add)
```

The factories check durations and options, so that an error is reported at the line of the declaration.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from holdfast.config.checks import refused
from holdfast.config.units import Duration, parse_duration
from holdfast.worker.declarations.declaration import check_state, check_ttl
from holdfast.worker.declarations.handler_arguments import Clock
from holdfast.worker.declarations.state_descriptors import (
    AgeFrom,
    Aggregate,
    OnDisable,
    State,
    StateKind,
    Ttl,
    TtlUpdate,
    TtlVisibility,
    add,
    greatest,
    least,
)
from holdfast.worker.declarations.types import parse_type

if TYPE_CHECKING:
    from holdfast.worker.runtime.handles import AggregatingState, ListState, MapState, ReducingState

__all__ = [
    "Aggregate",
    "Ttl",
    "add",
    "aggregating",
    "greatest",
    "least",
    "list_state",
    "map_state",
    "reducing",
    "ttl",
    "union_list",
    "value",
]

T = TypeVar("T")
K = TypeVar("K")
Lifetime = Duration | Ttl
_MEANT: tuple[tuple[Any, Callable[[Any, Any], Any]], ...] = ((min, least), (max, greatest))
Former = str | Sequence[str]
FieldsWere = Mapping[str, Former]


@overload
def value(
    type: type[T],
    *,
    default: T,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[T]: ...


@overload
def value(
    type: type[T],
    *,
    default: None = None,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[T | None]: ...


@overload
def value(
    type: Any,
    *,
    default: Any = None,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[Any]: ...


def value(
    type: Any,  # noqa: A002 - the word that a declaration reads best with
    *,
    default: Any = None,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a state with one value per key.

    A handler reads and writes the value as an attribute: `state.visits += 1`; `del state.visits` clears it.

    Args:
        type: The type: Spark DDL ("long", "struct<a: int, b: string>"), a Python type (int, float, str, bool,
            bytes, datetime, date or Decimal) or a pyspark `DataType`.
        default: The value that is read while the state is unset or after it has expired. Each key gets its
            own copy; nothing is stored until a value is written.
        ttl: The TTL of a value: a duration such as "7 days", or `hf.ttl(…)`.
        was: The former name of the state, or several, newest first; values stored under them are read as this
            state.
        fields_were: The former name, or names, of each renamed struct field, by the new path of the field.
        field_defaults: The value of each later added struct field in older values, by the path of the field.

    Raises:
        Invalid: An argument is invalid, or does not match the type.

    Example:
        from holdfast.testing import Harness


        class Visits(hf.Keyed):
            visits = hf.value(int, default=0, ttl="24h")

            def on_event(self, event, state, ctx):
                state.visits += 1


        shop = Harness(Visits(), by="customer", events="customer string", output="visits long")
        shop.send({"customer": "ann"})
        assert shop.state("ann") == {"visits": 1}
    """
    default = copy.deepcopy(default)
    return _declared(StateKind.VALUE, type, ttl, was, fields_were, field_defaults, default=default)


@overload
def list_state(
    type: type[T],
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[ListState[T]]: ...


@overload
def list_state(
    type: Any,
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[ListState[Any]]: ...


def list_state(
    type: Any,  # noqa: A002
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a state with a list per key, each element of which expires separately.

    Appending costs the same for any length of the list. `type` is the type of an element; the other arguments
    are those of `hf.value`. If new values replace old ones, use a map, because a list without a TTL only
    grows.

    Raises:
        Invalid: An argument is invalid, or does not match the type.

    Example:
        from holdfast.testing import Harness


        class Receipts(hf.Keyed):
            drinks = hf.list("string", ttl="7 days")

            def on_event(self, event, state, ctx):
                state.drinks.append(event.drink)


        shop = Harness(
            Receipts(), by="customer", events="customer string, drink string", output="drink string"
        )
        shop.send({"customer": "ann", "drink": "tea"}, {"customer": "ann", "drink": "mocha"})
        assert shop.state("ann") == {"drinks": ["tea", "mocha"]}
    """
    return _declared(StateKind.LIST, type, ttl, was, fields_were, field_defaults)


@overload
def union_list(
    type: type[T],
    *,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[ListState[T]]: ...


@overload
def union_list(
    type: Any,
    *,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[ListState[Any]]: ...


def union_list(
    type: Any,  # noqa: A002
    *,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a list per instance; when the number of instances changes, each gets the elements of all lists.

    Use it for state of which an instance must have all elements before it can drop those that are not its
    own, such as positions in a side input. Each change of the number multiplies the stored elements, unless
    `on_restore` drops those that are not needed. The arguments are those of `hf.list`.

    Raises:
        Invalid: An argument is invalid, or does not match the type.

    Example:
        from holdfast.testing import Harness


        class Positions(hf.Operator):
            positions = hf.union_list("struct<shop: int, at: long>")

            def on_event(self, event, state, ctx):
                state.positions.append((event.shop, event.at))

            def on_end(self, state, ctx):
                yield {"known": len(state.positions)}


        shops = Harness(Positions(), events="shop int, at long", output="known int", instances=1)
        shops.send({"shop": 1, "at": 7}, {"shop": 2, "at": 5})
        shops.restart(instances=2)  # each instance gets both positions
        assert shops.send({"shop": 3, "at": 1}) == [{"known": 3}]
    """
    return _declared(StateKind.LIST, type, None, was, fields_were, field_defaults, union=True)


@overload
def map_state(
    key_type: type[K],
    type: type[T],
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[MapState[K, T]]: ...


@overload
def map_state(
    key_type: Any,
    type: Any,
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[MapState[Any, Any]]: ...


def map_state(
    key_type: Any,
    type: Any,  # noqa: A002
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a state with a map per key, each entry of which expires separately.

    `key_type` is a simple type, and `type` is the type of the values; the other arguments are those of
    `hf.value`. The type of the keys cannot change: the job does not start with a different one.

    Raises:
        Invalid: An argument is invalid or does not match the type, or `key_type` is a nested type.

    Example:
        from holdfast.testing import Harness


        class Drinks(hf.Keyed):
            drinks = hf.map("string", "long")

            def on_event(self, event, state, ctx):
                state.drinks[event.drink] = state.drinks.get(event.drink, 0) + 1


        shop = Harness(Drinks(), by="customer", events="customer string, drink string", output="drink string")
        shop.send({"customer": "ann", "drink": "tea"}, {"customer": "ann", "drink": "tea"})
        assert shop.state("ann") == {"drinks": {"tea": 2}}
    """
    keys = parse_type(key_type)
    return _declared(StateKind.MAP, type, ttl, was, fields_were, field_defaults, key_type=keys)


@overload
def reducing(
    type: type[T],
    function: Callable[[T, T], T],
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[ReducingState[T]]: ...


@overload
def reducing(
    type: Any,
    function: Callable[[Any, Any], Any],
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[ReducingState[Any]]: ...


def reducing(
    type: Any,  # noqa: A002
    function: Callable[[Any, Any], Any],
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a state with one value per key, into which new values are merged: `state.spend.add(amount)`.

    `function` merges two values into one; it must be commutative and associative. With `hf.add`, `hf.least`
    and `hf.greatest` (or `operator.add`, `min` and `max`, which have the same meaning here) complete batches
    are merged at once. The other arguments are those of `hf.value`.

    Raises:
        Invalid: An argument is invalid or does not match the type, or `function` does not take two values.

    Example:
        from holdfast.testing import Harness


        class Spend(hf.Keyed):
            spend = hf.reducing("decimal(12,2)", hf.add)

            def on_event(self, event, state, ctx):
                state.spend.add(event.price)
                yield {"spend": state.spend.get()}


        shop = Harness(
            Spend(),
            by="customer",
            events="customer string, price decimal(12,2)",
            output="spend decimal(12,2)",
        )
        assert shop.send({"customer": "ann", "price": 2}, {"customer": "ann", "price": 3})[-1] == {"spend": 5}
    """
    # With a NaN, the result of min and max depends on the order of values; these two functions avoid that.
    meant = next((ours for theirs, ours in _MEANT if theirs is function), function)
    return _declared(StateKind.REDUCING, type, ttl, was, fields_were, field_defaults, function=meant)


def aggregating(
    accumulator_type: Any,
    aggregate: Aggregate,
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> State[AggregatingState]:
    """Declare a state with an accumulator per key, whose type may differ from the input and the result.

    `state.average.add(x)` adds a value; `state.average.get()` returns the result, or None while there is no
    accumulator. `accumulator_type` is the stored type, which `create` and `add` of the aggregate return.
    `aggregate` is an instance of a subclass of `hf.Aggregate`; this function calls its `create` once, to
    check the type of the result. The other arguments are those of `hf.value`.

    Raises:
        Invalid: An argument is invalid, or the aggregate is not an `hf.Aggregate` or does not match the type.

    Example:
        from holdfast.testing import Harness


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
                yield {"average": state.average.get()}


        till = Harness(Till(), by="shop", events="shop int, amount double", output="average double")
        assert till.send({"shop": 1, "amount": 2.0}, {"shop": 1, "amount": 4.0})[-1] == {"average": 3.0}
    """
    kind = StateKind.AGGREGATING
    return _declared(kind, accumulator_type, ttl, was, fields_were, field_defaults, aggregate=aggregate)


def ttl(
    duration: Duration,
    *,
    update: TtlUpdate = "create_and_write",
    visibility: TtlVisibility = "never_return_expired",
    clock: Clock = "processing",
    age_from: AgeFrom | dt.datetime = "restore",
    on_disable: OnDisable = "keep",
) -> Ttl:
    """Return a TTL for the values of a state, with all options.

    A value expires at the millisecond at which its clock reaches its timestamp plus the duration. Each
    element of a list and each entry of a map has its own timestamp. Timers do not expire.

    Args:
        duration: The duration, such as "7 days".
        update: The event that sets the timestamp: "create_and_write" is the last write, "read_and_write" the
            last write or read.
        visibility: "never_return_expired" hides an expired value immediately; "return_if_not_cleaned_up"
            returns an expired value to the read that removes it.
        clock: The clock for expiry: "processing" is the batch's processing time; "event" is the watermark,
            with the times of events as timestamps. In event time the same values expire at any speed of a
            replay.
        age_from: The timestamp of values written before the state had a TTL: "restore" is the start of the
            first run with the TTL, or, in event time, the watermark at their first read; otherwise an aware
            `datetime` or epoch milliseconds.
        on_disable: The values to keep when a later version removes the TTL: "keep" also keeps expired values
            that have not been removed yet, "drop_expired" drops them.

    Raises:
        Invalid: The duration is invalid, or an option has an unknown value.

    Example:
        from datetime import datetime, timezone

        from holdfast.testing import Harness


        class Visits(hf.Keyed):
            visits = hf.value(int, default=0, ttl=hf.ttl("24h", update="read_and_write"))

            def on_event(self, event, state, ctx):
                state.visits += 1


        shop = Harness(Visits(), by="customer", events="customer string", output="visits long")
        shop.send({"customer": "ann"})
        shop.set_clocks(now=datetime(1970, 1, 2, tzinfo=timezone.utc))  # 24 hours after the clock's start
        assert shop.state("ann") == {"visits": 0}
    """
    if isinstance(age_from, dt.datetime):
        if age_from.tzinfo is None:
            expected = '"restore", epoch milliseconds or a datetime with a time zone'
            raise refused("age_from", age_from, expected, hint="add tzinfo=timezone.utc")
        age_from = (age_from - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(
            milliseconds=1
        )
    made = Ttl(parse_duration(duration, "ttl"), update, visibility, clock, age_from, on_disable)
    check_ttl(made, "hf.ttl(…)")
    return made


def _declared(
    kind: StateKind,
    type_: Any,
    lifetime: Lifetime | None,
    was: Former | None,
    fields_were: FieldsWere | None,
    field_defaults: Mapping[str, Any] | None,
    **more: Any,
) -> State:
    """Return a checked declaration for the arguments of its factory."""
    if lifetime is not None and not isinstance(lifetime, Ttl):
        lifetime = Ttl(parse_duration(lifetime, "ttl"))
    former = {
        path: _former(names, "fields_were", {path: names}, "a field's new path and its former name, or names")
        for path, names in (fields_were or {}).items()
    }
    defaults = copy.deepcopy(dict(field_defaults or {}))
    state = State(
        kind,
        parse_type(type_),
        ttl=lifetime,
        was=None if was is None else _former(was, "was", was, "the former name of the state, or several"),
        fields_were=former,
        field_defaults=defaults,
        **more,
    )
    check_state(state, f"hf.{kind.value}(…)")
    return state


def _former(names: Any, argument: str, given: Any, expected: str) -> str | tuple[str, ...]:
    if isinstance(names, str) and names:
        return names
    if isinstance(names, Sequence) and names and all(isinstance(name, str) and name for name in names):
        return tuple(names)
    raise refused(argument, given, expected)
