from __future__ import annotations

import copy
import datetime as dt
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.worker.declarations.handler_arguments import Event, record_class
from holdfast.worker.runtime.columns import freezer, plain, records, values_of

UTC = dt.timezone.utc
INSTANT = pa.timestamp("us", "UTC")
PLACE = pa.struct([("city", pa.string()), ("tags", pa.list_(pa.string()))])
COUNTS = pa.map_(pa.string(), pa.int64())


def test_fields_are_read_by_name_and_place() -> None:
    (event,) = records(pa.table({"customer": ["ann"], "amount": [2.5]}))
    assert event.customer == event["customer"] == event[0] == "ann"
    assert tuple(event) == ("ann", 2.5)
    customer, amount = event
    assert (customer, amount) == ("ann", 2.5)
    assert repr(event) == "(customer='ann', amount=2.5)"


def test_a_field_may_be_called_like_anything() -> None:
    event: Any = records(pa.table({"count": [1], "class": [2], "two words": [3], "index": [4]}))[0]
    assert (event.count, event["class"], event["two words"], event.index) == (1, 2, 3, 4)


def test_an_unknown_field_is_named_with_the_known_ones() -> None:
    (event,) = records(pa.table({"a": [1], "b": [2]}))
    with pytest.raises(AttributeError, match="unknown field 'c'; expected a, b"):
        _ = event.c
    with pytest.raises(KeyError, match="unknown field 'c'; expected a, b"):
        _ = event["c"]


def test_an_event_cannot_be_changed() -> None:
    event: Any = records(pa.table({"a": [1]}))[0]
    with pytest.raises(AttributeError):
        event.a = 2
    with pytest.raises(AttributeError):
        event.b = 2


# Each column with a null in it, with what Python must see, by hand.
@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None, -(2**63)]), [1, None, -(2**63)]),
        (pa.array([1, None], pa.int8()), [1, None]),
        (pa.array([0.5, None]), [0.5, None]),
        (pa.array([True, None, False]), [True, None, False]),
        (pa.array(["é", None, ""]), ["é", None, ""]),
        (pa.array([b"x", None]), [b"x", None]),
        (pa.array([Decimal("1.20"), None], pa.decimal128(5, 2)), [Decimal("1.20"), None]),
        (pa.array([-1, None, 0], pa.date32()), [dt.date(1969, 12, 31), None, dt.date(1970, 1, 1)]),
        (
            pa.array([-1, None, 1_500_000], INSTANT),
            [
                dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
                None,
                dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
            ],
        ),
        (pa.array([0], pa.timestamp("us")), [dt.datetime(1970, 1, 1)]),
        (pa.array([0], pa.timestamp("us", "Europe/Berlin")), [dt.datetime(1970, 1, 1, tzinfo=UTC)]),
        (pa.array([2_000_000, None], pa.duration("us")), [dt.timedelta(seconds=2), None]),
        (pa.nulls(2), [None, None]),
        (pa.array([[1, None], None, []], pa.list_(pa.int64())), [[1, None], None, []]),
        (pa.array([[("a", 1)], None, []], COUNTS), [{"a": 1}, None, {}]),
        (pa.array([("x", ["t"]), None, (None, None)], PLACE), [("x", ["t"]), None, (None, None)]),
        (pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    ],
)
def test_columns_become_python_values(column: pa.Array, expected: list[Any]) -> None:
    assert values_of(column) == expected
    # A slice must not give its neighbours' parts.
    assert values_of(column.slice(1)) == expected[1:]


def test_nan_is_no_null() -> None:
    values = values_of(pa.array([float("nan"), None]))
    assert values[0] != values[0]
    assert values[1] is None


def test_a_null_row_hides_what_is_under_it() -> None:
    column = pa.StructArray.from_arrays([pa.array([1, 2])], ["a"], mask=pa.array([False, True]))
    assert values_of(column) == [(1,), None]


@pytest.mark.parametrize("column", [pa.array([2**60], INSTANT), pa.array([2**30], pa.date32())])
def test_a_time_that_python_does_not_have_is_refused(column: pa.Array) -> None:
    with pytest.raises(Invalid, match="out of Python's range") as refused:
        records(pa.table({"ts": column}))
    assert refused.value.where == "column ts"


def test_the_first_and_the_last_instant_are_read() -> None:
    first, last = dt.datetime.min.replace(tzinfo=UTC), dt.datetime.max.replace(tzinfo=UTC)
    assert values_of(pa.array([first, last], INSTANT)) == [first, last]
    assert values_of(pa.array([dt.date.min, dt.date.max])) == [dt.date.min, dt.date.max]


def nested() -> Any:
    column = pa.array([{"city": "x", "tags": ["t"]}], PLACE)
    return records(pa.table({"place": column, "n": pa.array([[("a", 1)]], COUNTS)}))[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda event: event.place.tags.append("u"),
        lambda event: event.place.tags.__setitem__(0, "u"),
        lambda event: event.place.tags.sort(),
        lambda event: event.n.update(b=2),
        lambda event: event.n.__setitem__("a", 2),
        lambda event: event.n.pop("a"),
    ],
)
def test_what_was_read_cannot_be_changed(change: Callable[[Any], None]) -> None:
    with pytest.raises(TypeError, match="cannot be changed in place: assign a new"):
        change(nested())


def test_structs_are_rows() -> None:
    event = nested()
    assert event.place.city == event["place"]["city"] == "x"
    assert event.n == {"a": 1}
    assert plain(event) == {"place": {"city": "x", "tags": ["t"]}, "n": {"a": 1}}
    plain(event)["place"]["tags"].append("u")
    assert event.place.tags == ["t"]


def test_rows_are_pickled_and_copied() -> None:
    event = nested()
    again = pickle.loads(pickle.dumps(event))
    assert again == event
    assert again.place.city == "x"
    assert copy.deepcopy(event) == event


def test_thawed_values_can_be_changed() -> None:
    (value,) = values_of(pa.array([{"city": "x", "tags": ["t"]}], PLACE), frozen=False)
    value["tags"].append("u")
    assert value == {"city": "x", "tags": ["t", "u"]}


def test_freezing_gives_what_reading_gives() -> None:
    freeze = freezer(PLACE)
    assert freeze is not None
    (stored,) = values_of(pa.array([("x", ["t"])], PLACE))
    for given in ({"city": "x", "tags": ["t"]}, ("x", ("t",)), stored):
        frozen = freeze(given)
        assert frozen == stored
        assert type(frozen) is type(stored)
        assert type(frozen.tags) is type(stored.tags)
    assert freeze({"city": "x"}) == ("x", None)
    assert freezer(pa.int64()) is None


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (PLACE, {"town": "x"}, "has no field 'town'"),
        (PLACE, ("x",), "takes a dict or a tuple of city, tags"),
        (PLACE, "x", "takes a dict or a tuple of city, tags"),
        (COUNTS, [("a", 1)], "a map takes a dict"),
        (pa.list_(pa.int64()), "ab", "an array takes a list"),
    ],
)
def test_what_has_another_shape_cannot_be_frozen(kind: pa.DataType, value: Any, message: str) -> None:
    freeze = freezer(kind)
    assert freeze is not None
    with pytest.raises(TypeError, match=message):
        freeze(value)


def test_rows_of_the_same_names_have_one_class() -> None:
    assert record_class(("a", "b")) is record_class(("a", "b"))
    assert issubclass(record_class(("a",)), Event)


def test_rows_without_columns_are_counted() -> None:
    empty = pa.table({"a": [1, 2]}).select([])
    assert len(records(empty)) == empty.num_rows
