"""State declarations for the body of a processor class.

```python
class Regulars(hf.Keyed):
    visits = hf.value(int, default=0)
    drinks = hf.map("string", "long", ttl="30 days")
    spend = hf.reducing("decimal(12,2)", hf.add)
```

Durations and choices are checked here, so that a mistake is reported at its line.
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
    """Declare one value for each key.

    A handler reads and writes it as an attribute: `state.visits += 1`; `del state.visits` clears it.

    Args:
        type: Spark DDL ("long", "struct<a: int, b: string>"), or int, float, str, bool, bytes, datetime,
            date or Decimal, or a pyspark `DataType`.
        default: The value while it is unset or after it has expired. Each key gets its own copy;
            nothing is stored until a value is written.
        ttl: The TTL of a value: a duration such as "7 days", or `hf.ttl(…)`.
        was: The former name of the state, or names, newest first; values stored under them are read
            as this state.
        fields_were: For each renamed field of a struct, its new path and its former name, or names.
        field_defaults: For each field that was added later, its path and its value in older values.

    Raises:
        Invalid: An argument is not valid, or does not fit the type.

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
    """Declare a list of values for each key; each element expires on its own.

    Appending costs the same for any length of the list. Arguments are those of `hf.value`; `type` is the
    type of an element. Use a map where new values replace old ones: a list without a TTL grows for ever.

    Raises:
        Invalid: As `hf.value`.

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
    """Declare a list per instance; when the number of instances changes, each gets the lists of all.

    For state that an instance needs from all others before it can drop the elements that are not its own,
    such as positions in a side input. Each change multiplies the stored elements, unless `on_restore` drops
    those that are not needed. Arguments are those of `hf.list`.

    Raises:
        Invalid: As `hf.list`.

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
    """Declare a map for each key; each entry expires on its own.

    Arguments are those of `hf.value`; `key_type` is a simple type, and `type` is the type of the values. The
    type of the keys cannot change: a changed one is refused when the job starts.

    Raises:
        Invalid: As `hf.value`, and if `key_type` is a nested type.

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
    """Declare one value for each key into which new values are merged: `state.spend.add(amount)`.

    `function` merges two values into one; it must be commutative and associative. With `hf.add`, `hf.least`
    and `hf.greatest` (or `operator.add`, `min` and `max`, which mean the same here) whole batches are merged
    at once. Other arguments are those of `hf.value`.

    Raises:
        Invalid: As `hf.value`, and if `function` does not take two values.

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
    # min and max would depend on the order where there is a NaN; these two do not.
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
    """Declare an accumulator for each key; its type may differ from the input and the result.

    `state.average.add(x)` adds a value; `state.average.get()` returns the result, or None while there is no
    accumulator. `accumulator_type` is the stored type, which `create` and `add` of the aggregate return;
    `aggregate` is an instance of a subclass of `hf.Aggregate`. Its `create` is called once here, to check
    the type of its result. Other arguments are those of `hf.value`.

    Raises:
        Invalid: As `hf.value`, and if the aggregate is not an `hf.Aggregate` or does not fit the type.

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
    """Return a TTL for the values of a state, with all its choices.

    A value expires when its clock has reached its timestamp plus the duration, to the millisecond. Each
    element of a list and each entry of a map has its own timestamp. Timers do not expire.

    Args:
        duration: The duration, such as "7 days".
        update: "create_and_write" counts from the last write, "read_and_write" also from the last read.
        visibility: "never_return_expired" hides an expired value at once; "return_if_not_cleaned_up" may
            return it one last time, to the read that removes it.
        clock: "processing" uses the batch's time; "event" uses the watermark, and values carry the times
            of events. Event time expires the same values at any speed of a replay.
        age_from: The timestamp of values that were written before the state had a TTL: "restore" is the
            start of the first run with it, in event time the watermark at which they are first read; or
            give an aware `datetime` or epoch milliseconds.
        on_disable: The values to keep when a later version removes the TTL: "keep" also keeps expired
            values that have not been removed yet, "drop_expired" drops these.

    Raises:
        Invalid: The duration is not valid, or a choice is unknown.

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
    """Build a declaration from the arguments of its factory, and check it."""
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
