from __future__ import annotations

import datetime as dt
import operator
import pickle
from typing import Any

import pyarrow as pa
import pytest

import holdfast.stream.keyed.state_declarations as hf
from holdfast.errors import Invalid
from holdfast.worker.declarations.state_descriptors import State, StateKind, Ttl


def test_each_factory_makes_its_kind() -> None:
    class Last(hf.Aggregate):
        def create(self) -> int:
            return 0

        def add(self, accumulator: int, value: int) -> int:
            return value

    last = Last()
    assert hf.value(int, default=3) == State(StateKind.VALUE, pa.int64(), default=3)
    assert hf.list_state("string") == State(StateKind.LIST, pa.string())
    assert hf.map_state(str, "int") == State(StateKind.MAP, pa.int32(), key_type=pa.string())
    assert hf.reducing("double", hf.add) == State(StateKind.REDUCING, pa.float64(), function=hf.add)
    assert hf.aggregating("long", last) == State(StateKind.AGGREGATING, pa.int64(), aggregate=last)


def test_builtins_are_taken_for_the_functions_that_know_nan() -> None:
    assert hf.reducing("double", min).function is hf.least
    assert hf.reducing("double", max).function is hf.greatest
    assert hf.reducing("double", operator.add).function is operator.add


def test_a_ttl_is_a_duration_or_all_choices() -> None:
    assert hf.value(int, ttl="7 days").ttl == Ttl(604_800_000)
    assert hf.value(int, ttl=dt.timedelta(seconds=2)).ttl == Ttl(2_000)
    given = hf.ttl(
        "1h", update="read_and_write", visibility="return_if_not_cleaned_up", clock="event",
        age_from=dt.datetime(1970, 1, 2, tzinfo=dt.timezone.utc), on_disable="drop_expired",
    )  # fmt: skip
    expected = Ttl(
        3_600_000, "read_and_write", "return_if_not_cleaned_up", "event", 86_400_000, "drop_expired"
    )
    assert given == expected
    assert hf.list_state(int, ttl=given).ttl is given
    assert hf.ttl("1s", age_from=5).age_from == 5
    assert hf.ttl("1s") == Ttl(1_000)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"update": "read"}, 'one of "create_and_write", "read_and_write"'),
        ({"visibility": "always"}, 'one of "never_return_expired", "return_if_not_cleaned_up"'),
        ({"clock": "wall"}, 'one of "processing", "event"'),
        ({"on_disable": "drop"}, 'one of "keep", "drop_expired"'),
        ({"age_from": "now"}, '"restore", epoch milliseconds or a datetime with a time zone'),
        ({"age_from": -1}, '"restore", epoch milliseconds or a datetime with a time zone'),
        ({"age_from": True}, '"restore", epoch milliseconds or a datetime with a time zone'),
        (
            {"age_from": dt.datetime(2024, 1, 1)},
            '"restore", epoch milliseconds or a datetime with a time zone',
        ),
    ],
)
def test_a_wrong_word_is_refused_with_the_right_ones(options: Any, expected: str) -> None:
    with pytest.raises(Invalid) as caught:
        hf.ttl("1h", **options)
    assert caught.value.expected == expected


@pytest.mark.parametrize("duration", ["5", "0s", "-1s", "soon", 0])
def test_a_duration_needs_a_unit_and_a_length(duration: Any) -> None:
    for make in (hf.ttl, lambda given: hf.value(int, ttl=given)):
        with pytest.raises(Invalid):
            make(duration)


@pytest.mark.parametrize(
    "make",
    [
        lambda: hf.value("intt"),
        lambda: hf.value(object),
        lambda: hf.value(int, default="x"),
        lambda: hf.value(int, was=""),
        lambda: hf.value(int, was=[]),
        lambda: hf.value(int, was=["a", ""]),
        lambda: hf.value("binary", default=pickle.dumps(1)),
        lambda: hf.map_state("array<int>", int),
        lambda: hf.reducing(int, 5),  # type: ignore[call-overload]
        lambda: hf.aggregating(int, 5),  # type: ignore[arg-type]
        lambda: hf.value("struct<a: int>", fields_were={"b": "c"}),
        lambda: hf.value("struct<a: int>", fields_were={"a": ""}),
        lambda: hf.value("struct<a: int>", fields_were={"a": ["x", ""]}),
        lambda: hf.value("struct<a: int>", field_defaults={"a": "x"}),
    ],
)
def test_a_mistake_is_refused_where_it_is_made(make: Any) -> None:
    with pytest.raises(Invalid):
        make()


def test_defaults_are_copies_of_what_was_given() -> None:
    given = [1]
    state = hf.value("array<int>", default=given)
    given.append(2)
    assert state.default == [1]


def test_former_names_are_kept_as_they_are_read_later() -> None:
    state = hf.value("struct<a: int, b: int>", was="old", fields_were={"a": "x", "b": ["z", "y"]})
    assert hf.value("long", was=["newer", "old"]).was == ("newer", "old")
    assert (state.was, state.fields_were) == ("old", {"a": "x", "b": ("z", "y")})
