from __future__ import annotations

import datetime as dt
import math
import operator
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.worker.declarations.declaration import check_state, check_ttl, states_of
from holdfast.worker.declarations.state_descriptors import (
    Aggregate,
    State,
    StateKind,
    Ttl,
    add,
    greatest,
    least,
    ufunc_of,
)
from holdfast.worker.declarations.types import check_value, parse_type

NAN = math.nan


class Average(Aggregate):
    def create(self) -> dict[str, Any]:
        return {"n": 0, "sum": 0.0}

    def add(self, accumulator: dict[str, Any], value: float) -> dict[str, Any]:
        return {"n": accumulator["n"] + 1, "sum": accumulator["sum"] + value}

    def result(self, accumulator: dict[str, Any]) -> Any:
        return accumulator["sum"] / accumulator["n"]


class Shop:
    visits = State(StateKind.VALUE, pa.int64(), default=0)
    drinks = State(StateKind.MAP, pa.int64(), key_type=pa.string(), ttl=Ttl(1000))


def test_a_state_takes_the_name_of_its_attribute_and_reads_as_itself() -> None:
    assert Shop.visits.name == "visits"
    assert Shop().drinks is Shop.drinks
    assert [state.has_elements for state in (Shop.visits, Shop.drinks)] == [False, True]


def test_states_survive_pickling_and_compare_by_what_they_say() -> None:
    from pyspark import cloudpickle

    for state in states_of(Shop):
        for pickler in (pickle, cloudpickle):
            assert pickle.loads(pickler.dumps(state)) == state
    assert hash(Shop.drinks) == hash(pickle.loads(pickle.dumps(Shop.drinks)))
    assert State(StateKind.VALUE, pa.int64(), "a") != State(StateKind.VALUE, pa.int32(), "a")


def test_the_order_of_states_is_that_of_the_classes_from_the_base_on() -> None:
    class Base:
        first = State(StateKind.VALUE, pa.int64())
        second = State(StateKind.VALUE, pa.int64())
        third = State(StateKind.VALUE, pa.int64())

    class Derived(Base):
        fourth = State(StateKind.LIST, pa.string())
        second = State(StateKind.VALUE, pa.string())
        third = None

    assert [(state.name, state.type) for state in states_of(Derived)] == [
        ("first", pa.int64()),
        ("second", pa.string()),
        ("fourth", pa.string()),
    ]


def test_one_declaration_under_two_names_is_two_states() -> None:
    class Both:
        a = b = State(StateKind.VALUE, pa.int64())

    assert [state.name for state in states_of(Both)] == ["a", "b"]


@pytest.mark.parametrize("name", ["_hidden", "holdfast", "holdfast_x", "on_event", "clear", "combined"])
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(Invalid, match="is reserved"):
        states_of(type("P", (), {name: State(StateKind.VALUE, pa.int64())}))


def test_a_state_cannot_hide_a_method_or_be_hidden_by_one() -> None:
    state = State(StateKind.VALUE, pa.int64())
    method = type("P", (), {"total": lambda _self: 1})
    with pytest.raises(Invalid, match="have the same name") as caught:
        states_of(type("Q", (method,), {"total": state}))
    assert caught.value.where == "Q.total"
    with pytest.raises(Invalid, match="have the same name"):
        states_of(type("R", (type("P", (), {"total": state}),), {"total": lambda _self: 1}))


def test_former_names_are_of_one_state_each() -> None:
    def states(**was: str | tuple[str, ...]) -> Any:
        return states_of(
            type("P", (), {name: State(StateKind.VALUE, pa.int64(), was=w) for name, w in was.items()})
        )

    assert [state.was for state in states(a="x", b="y")] == ["x", "y"]
    assert [state.former_names for state in states(a="x", b=("z", "y"))] == [("x",), ("z", "y")]
    assert states(a=("c", "b"))[0].stored_as({"a", "b", "c"}) == "a"
    assert states(a=("c", "b"))[0].stored_as({"b", "c"}) == "c"
    assert states(a=("c", "b"))[0].stored_as({"a", "b"}, {"a"}) == "b"
    # A name that is still told to be dropped, once the state has it.
    assert states(a=("c", "b"))[0].stored_as({"a"}, {"a"}) == "a"
    with pytest.raises(Invalid, match="in use"):
        states(a="b", b="y")
    with pytest.raises(Invalid, match="same former name"):
        states(a="x", b="x")
    with pytest.raises(Invalid, match="in use"):
        states(a="a")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("long", 5), ("double", 1), ("double", 1.5), ("string", "x"), ("binary", b"x"), ("boolean", True),
        ("decimal(5,2)", Decimal("1.25")), ("decimal(5,2)", 3), ("date", dt.date(2024, 1, 1)),
        ("timestamp", dt.datetime(2024, 1, 1)), ("array<int>", [1, None]), ("map<string, int>", {"a": 1}),
        ("timestamp", dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc)),
        ("struct<a: int, b: string>", (1, "x")),
        ("struct<a: int, b: string>", {"a": 1}), ("long", None), ("long", np.int64(3)),
    ],
)  # fmt: skip
def test_values_of_a_type_are_taken(text: str, value: Any) -> None:
    assert check_value(value, parse_type(text), "here").type == parse_type(text)


@pytest.mark.parametrize(
    ("text", "value", "where"),
    [
        ("long", True, "here"), ("long", 1.0, "here"), ("long", "1", "here"), ("long", 2**63, "here"),
        ("byte", 128, "here"), ("boolean", 1, "here"), ("double", "1", "here"), ("string", b"x", "here"),
        ("string", 5, "here"), ("binary", "x", "here"), ("binary", {"a": 1}, "here"), ("date", 5, "here"),
        ("double", 2**60 + 1, "here"), ("decimal(5,2)", 1.5, "here"),
        ("decimal(5,2)", Decimal("1.234"), "here"),
        ("decimal(5,2)", Decimal("NaN"), "here"), ("date", dt.datetime(2024, 1, 1), "here"),
        ("timestamp", 5, "here"), ("timestamp", dt.date(2024, 1, 1), "here"), ("array<int>", {1}, "here"),
        ("timestamp_ntz", dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), "here"),
        ("array<int>", [1, "x"], "here[1]"), ("map<string, int>", {1: 1}, "here: a key"),
        ("map<string, int>", {"a": "x"}, "here['a']"), ("map<string, int>", {None: 1}, "here: a key"),
        ("struct<a: int>", {"b": 1}, "here"), ("struct<a: int>", (1, 2), "here"),
        ("struct<a: struct<b: long>>", {"a": {"b": "x"}}, "here.a.b"),
        ("struct<a: int NOT NULL, b: int>", {"b": 1}, "here.a"),
    ],
)  # fmt: skip
def test_values_of_another_type_are_refused_with_their_place(text: str, value: Any, where: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_value(value, parse_type(text), "here")
    assert caught.value.where == where


@pytest.mark.parametrize(
    ("state", "fact"),
    [
        (State(StateKind.LIST, pa.int64(), default=[1]), "only a value state can have a default"),
        (State(StateKind.MAP, pa.int64()), "key type does not match the kind"),
        (State(StateKind.VALUE, pa.int64(), key_type=pa.string()), "key type does not match the kind"),
        (State(StateKind.MAP, pa.int64(), key_type=parse_type("array<int>")), "simple type"),
        (State(StateKind.VALUE, pa.uint64()), "Spark has no equivalent"),
        (State(StateKind.VALUE, pa.binary(), default=pickle.dumps({"a": 1})), "pickled object"),
        (State(StateKind.REDUCING, pa.int64()), "a function"),
        (State(StateKind.REDUCING, pa.int64(), function=abs), "a function"),  # type: ignore[arg-type]
        (State(StateKind.AGGREGATING, pa.int64(), aggregate=Average), "is a class, not an instance"),  # type: ignore[arg-type]
        (State(StateKind.AGGREGATING, pa.int64()), "is not an hf.Aggregate"),
        (State(StateKind.AGGREGATING, pa.int64(), aggregate=Average()), "does not match the declared type"),
        (State(StateKind.VALUE, pa.int64(), fields_were={"a": "b"}), "undeclared field"),
        (State(StateKind.VALUE, parse_type("struct<a: int>"), field_defaults={"a": "x"}), "declared type"),
        (State(StateKind.VALUE, pa.int64(), ttl=Ttl(0)), "out of range"),
    ],
)
def test_a_declaration_that_does_not_fit_itself_is_refused(state: State, fact: str) -> None:
    with pytest.raises(Invalid, match=fact):
        check_state(state, "P.x")


def test_an_aggregate_without_create_or_add_cannot_be_made() -> None:
    class Half(Aggregate):
        def create(self) -> int:
            return 0

    with pytest.raises(TypeError, match=r"abstract.*add"):
        Half()  # type: ignore[abstract]


@pytest.mark.parametrize(
    ("type_text", "fits"),
    [
        ("struct<n: long, sum: double>", True),
        ("struct<n: double, sum: double>", True),  # a whole number is a double
        ("struct<n: string, sum: double>", False),
        ("long", False),
    ],
)
def test_an_aggregate_fits_where_its_accumulator_is_of_the_declared_type(type_text: str, fits: bool) -> None:
    state = State(StateKind.AGGREGATING, parse_type(type_text), aggregate=Average())
    try:
        check_state(state, "P.x")
        accepted = True
    except Invalid:
        accepted = False
    assert accepted is fits


@pytest.mark.parametrize(
    "wrong", [{"update": "read"}, {"visibility": "x"}, {"clock": "x"}, {"on_disable": "x"}]
)
def test_a_word_of_a_ttl_is_one_of_the_allowed(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="unknown value of"):
        check_ttl(Ttl(1, **wrong), "P.x")
    ages: tuple[Any, ...] = ("yesterday", -1, True)
    for age in ages:
        with pytest.raises(Invalid, match="age_from"):
            check_ttl(Ttl(1, age_from=age), "P.x")
    check_ttl(Ttl(2**63 - 1, age_from=0), "P.x")


@pytest.mark.parametrize(
    ("a", "b", "smaller", "larger"),
    [(1, 2, 1, 2), (2, 1, 1, 2), ("b", "a", "a", "b"), (1.0, NAN, 1.0, NAN), (NAN, 1.0, 1.0, NAN)],
)
def test_least_and_greatest_take_nan_for_the_largest(a: Any, b: Any, smaller: Any, larger: Any) -> None:
    assert repr(least(a, b)) == repr(smaller)
    assert repr(greatest(a, b)) == repr(larger)
    if isinstance(a, float):
        assert repr(float(np.fmin(a, b))) == repr(smaller)
        assert repr(float(np.maximum(a, b))) == repr(larger)


def test_known_functions_have_a_twin_for_arrays() -> None:
    assert add(2, 3) == 5
    assert [ufunc_of(each) for each in (add, operator.add, least, min, greatest, max)] == [
        np.add, np.add, np.fmin, np.fmin, np.maximum, np.maximum,
    ]  # fmt: skip
    assert ufunc_of(lambda a, b: a + b) is None
    assert ufunc_of(pickle.loads(pickle.dumps(add))) is np.add
    assert ufunc_of(None) is None
