"""The states of a processor, as people declare them in the body of its class.

```python
class Regulars(hf.Keyed):
    visits = hf.value(int, default=0)
    drinks = hf.map("string", "long", ttl="30 days")
    spend = hf.reducing("decimal(12,2)", hf.add)
```

Durations and words are checked here, so that a mistake is reported at the line that makes it.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.config.checks import refused
from holdfast.config.units import Duration, parse_duration
from holdfast.worker.declarations.declaration import check_state, check_ttl
from holdfast.worker.declarations.state_descriptors import (
    Aggregate,
    State,
    StateKind,
    Ttl,
    add,
    greatest,
    least,
)
from holdfast.worker.declarations.types import parse_type

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

Lifetime = Duration | Ttl
_MEANT: tuple[tuple[Any, Callable[[Any, Any], Any]], ...] = ((min, least), (max, greatest))
Former = str | Sequence[str]
FieldsWere = Mapping[str, Former]


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
        default: What it reads as while it is unset or once it has expired. Each key gets a copy of its
            own; nothing is stored until something is written.
        ttl: How long a value lives: a duration such as "7 days", or `hf.ttl(…)`.
        was: The former name of the state, or names, newest first; what is stored under them is read as
            this one.
        fields_were: New path of a struct's field to its former name, or names, newest first.
        field_defaults: Path of a field that was added later to what it reads as in older values.

    Raises:
        Invalid: An argument is not what it should be, or does not fit the type.
    """
    default = copy.deepcopy(default)
    return _declared(StateKind.VALUE, type, ttl, was, fields_were, field_defaults, default=default)


def list_state(
    type: Any,  # noqa: A002
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a list of values for each key, each of which lives and expires for itself.

    Appending costs the same however long the list is. Arguments are those of `hf.value`; `type` is the
    type of an element. The classic mistake is a list where a map would replace what is outdated: lists
    grow for ever unless they have a TTL.

    Raises:
        Invalid: As `hf.value`.
    """
    return _declared(StateKind.LIST, type, ttl, was, fields_were, field_defaults)


def union_list(
    type: Any,  # noqa: A002
    *,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a list of an operator's instance; when their number changes each is given the lists of all.

    For what an instance must know of all others before it can drop what is not its own, such as positions
    in what is read along. Each change multiplies what is stored, unless `on_restore` drops what is not
    needed. Arguments are those of `hf.list`.

    Raises:
        Invalid: As `hf.list`.
    """
    return _declared(StateKind.LIST, type, None, was, fields_were, field_defaults, union=True)


def map_state(
    key_type: Any,
    type: Any,  # noqa: A002
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Declare a map for each key, each entry of which lives and expires for itself.

    Arguments are those of `hf.value`; `key_type` is a simple type, and `type` that of the values. Keys
    keep their type for ever: a changed one is refused when the job starts.

    Raises:
        Invalid: As `hf.value`, and where `key_type` has parts.
    """
    keys = parse_type(key_type)
    return _declared(StateKind.MAP, type, ttl, was, fields_were, field_defaults, key_type=keys)


def reducing(
    type: Any,  # noqa: A002
    function: Callable[[Any, Any], Any],
    *,
    ttl: Lifetime | None = None,
    was: Former | None = None,
    fields_were: FieldsWere | None = None,
    field_defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Declare one value for each key into which others are merged: `state.spend.add(amount)`.

    `function` makes one value of two and must not care about order or grouping: (a, b) as (b, a). With
    `hf.add`, `hf.least` and `hf.greatest` (or `operator.add`, `min` and `max`, which mean the same here)
    whole batches are merged at once. Other arguments are those of `hf.value`.

    Raises:
        Invalid: As `hf.value`, and where `function` does not take two values.
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
) -> Any:
    """Declare an accumulator for each key, of a type that is neither what goes in nor what comes out.

    `state.average.add(x)` takes a value in, `state.average.get()` gives the result, None while there is
    no accumulator. `accumulator_type` is the type of what `create` and `add` of the aggregate return,
    which is stored; `aggregate` is an instance of a subclass of `hf.Aggregate`. Its `create` is called
    once here, to see whether its result is of that type. Other arguments are those of `hf.value`.

    Raises:
        Invalid: As `hf.value`, and where the aggregate is none or does not fit the type.
    """
    kind = StateKind.AGGREGATING
    return _declared(kind, accumulator_type, ttl, was, fields_were, field_defaults, aggregate=aggregate)


def ttl(
    duration: Duration,
    *,
    update: str = "create_and_write",
    visibility: str = "never_return_expired",
    clock: str = "processing",
    age_from: str | int | dt.datetime = "restore",
    on_disable: str = "keep",
) -> Ttl:
    """Say how long the values of a state live, with all choices.

    A value expires when its clock has reached its stamp plus the duration, to the millisecond. Each
    element of a list and each entry of a map has a stamp of its own. Timers do not expire.

    Args:
        duration: Such as "7 days".
        update: "create_and_write" counts from the last write, "read_and_write" also from the last read.
        visibility: "never_return_expired" hides an expired value at once; "return_if_not_cleaned_up" may
            give it one last time, to the read that removes it.
        clock: "processing" counts the batch's time, "event" the watermark, with values stamped by the
            times of events. Event time expires the same values however fast a stream is read again.
        age_from: From when values count that were written before the state had a TTL: "restore" is the
            start of the first run with it, in event time the watermark at which they are first read; a
            time (an aware `datetime`, or epoch milliseconds) is that time.
        on_disable: Which values stay when a later version takes the TTL away: "keep" keeps also
            those that had expired without being removed, "drop_expired" drops these.

    Raises:
        Invalid: The duration cannot be read, or a word is none of the allowed ones.
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
    """Make a declaration of what its factory was given, and check it."""
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
        was=None if was is None else _former(was, "was", was, "the name that the state had, or several"),
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
