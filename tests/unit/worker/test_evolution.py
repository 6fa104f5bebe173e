from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.worker.declarations.evolution import TypeChange, change_of
from holdfast.worker.declarations.state_descriptors import State, StateKind
from holdfast.worker.declarations.types import parse_type


def compare(old: str, new: str, **options: Any) -> TypeChange:
    return change_of(State(StateKind.VALUE, parse_type(new), "s", **options), "value", parse_type(old))


def read(old: str, new: str, values: list[Any], **options: Any) -> list[Any]:
    """Values of the old type through the new one, whole, from the middle, empty and in chunks."""
    changed = compare(old, new, **options)
    stored = pa.array(values, parse_type(old))
    whole = changed.apply(stored)
    whole.validate(full=True)
    assert whole.type == parse_type(new)
    found: list[Any] = whole.to_pylist()
    for start in range(len(values) + 1):
        part = changed.apply(stored.slice(start, 2))
        part.validate(full=True)
        assert part.to_pylist() == found[start : start + 2]
    chunked = changed.apply(pa.chunked_array([stored.slice(0, 1), stored.slice(1)]))
    assert chunked.to_pylist() == found
    assert changed.apply(pa.chunked_array([], parse_type(old))).type == parse_type(new)
    return found


@pytest.mark.parametrize(
    ("old", "new", "values", "expected"),
    [
        ("byte", "short", [-128, None], [-128, None]),
        ("short", "int", [32767], [32767]),
        ("int", "long", [-(2**31)], [-(2**31)]),
        ("byte", "long", [5], [5]),
        ("int", "double", [2**31 - 1], [2147483647.0]),
        ("short", "float", [32767], [32767.0]),
        ("float", "double", [0.5], [0.5]),
        ("long", "decimal(19,0)", [2**63 - 1], [Decimal(2**63 - 1)]),
        ("byte", "decimal(5,2)", [-128], [Decimal("-128.00")]),
        ("decimal(5,2)", "decimal(7,3)", [Decimal("999.99")], [Decimal("999.990")]),
        ("date", "timestamp", [dt.date(2024, 2, 29)], [dt.datetime(2024, 2, 29, tzinfo=dt.timezone.utc)]),
        ("date", "timestamp_ntz", [dt.date(1969, 12, 31)], [dt.datetime(1969, 12, 31)]),
        ("array<int>", "array<long>", [[1, None], None, [], [2]], [[1, None], None, [], [2]]),
        ("map<string, int>", "map<string, long>", [[("a", 1)], None, [], [("b", None)]],
         [[("a", 1)], None, [], [("b", None)]]),
        ("struct<a: int>", "struct<a: long>", [{"a": 1}, None, {"a": None}], [{"a": 1}, None, {"a": None}]),
        ("struct<a: int NOT NULL>", "struct<a: int>", [{"a": 1}, None], [{"a": 1}, None]),
        ("struct<a: int NOT NULL>", "struct<a: long NOT NULL>", [{"a": 1}, None], [{"a": 1}, None]),
        ("struct<a: int, b: string>", "struct<b: string, a: int>", [{"a": 1, "b": "x"}],
         [{"b": "x", "a": 1}]),
    ],
)  # fmt: skip
def test_a_wider_type_reads_the_same_values(
    old: str, new: str, values: list[Any], expected: list[Any]
) -> None:
    assert read(old, new, values) == expected


def test_what_is_the_same_is_returned_as_it_came() -> None:
    for text in ("string", "array<struct<a: int>>", "map<string, struct<a: int, b: double>>"):
        same = compare(text, text)
        stored = pa.nulls(2, parse_type(text))
        assert same.is_same
        assert same.steps == same.lost == ()
        assert same.apply(stored) is stored


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("string", "long", "types are incompatible"),
        ("long", "string", "types are incompatible"),
        ("long", "int", "is narrower"),
        ("double", "float", "is narrower"),
        ("long", "double", "cannot hold every old number"),
        ("int", "float", "cannot hold every old number"),
        ("double", "long", "cannot hold every old number"),
        ("timestamp", "date", "is narrower"),
        ("timestamp", "timestamp_ntz", "types are incompatible"),
        ("decimal(7,3)", "decimal(5,2)", "is narrower"),
        ("decimal(5,2)", "decimal(5,3)", "cannot hold every old number"),
        ("long", "decimal(18,0)", "cannot hold every old number"),
        ("int", "decimal(10,1)", "cannot hold every old number"),
        ("boolean", "int", "types are incompatible"),
        ("array<int>", "int", "types are incompatible"),
        ("string", "binary", "types are incompatible"),
    ],
)
def test_a_change_that_loses_or_misreads_is_refused(old: str, new: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        compare(old, new)
    assert caught.value.where == "state s"
    assert (caught.value.found, caught.value.expected) == (f"{new} in the declaration", f"{old}, as stored")


def test_a_refusal_names_the_field_within() -> None:
    with pytest.raises(Invalid) as caught:
        compare(
            "struct<a: int, b: array<map<string, struct<c: string>>>>",
            "struct<a: int, b: array<map<string, struct<c: long>>>>",
        )
    assert caught.value.where == "state s, b.element.value.c"
    assert (caught.value.found, caught.value.expected) == ("long in the declaration", "string, as stored")


def test_a_maps_keys_keep_their_type() -> None:
    with pytest.raises(Invalid, match="key type of a map cannot change") as caught:
        compare("map<int, int>", "map<long, int>")
    assert caught.value.where == "state s, key"


def test_fields_are_added_dropped_and_renamed_at_once() -> None:
    old, new = "struct<a: int, b: string, c: double>", "struct<d: string, a: long, e: int, f: int NOT NULL>"
    options = {"fields_were": {"d": "b"}, "field_defaults": {"f": 7}}
    found = read(old, new, [{"a": 1, "b": "x", "c": 0.5}, None, {"a": None, "b": None, "c": 1.5}], **options)
    assert found == [
        {"d": "x", "a": 1, "e": None, "f": 7},
        None,
        {"d": None, "a": None, "e": None, "f": 7},
    ]
    changed = compare(old, new, **options)
    assert changed.lost == ("c",)
    assert sorted(changed.steps) == [
        "add e: int, None for existing values",
        "add f: int, 7 for existing values",
        "drop c",
        "rename b to d",
        "widen a: int to long",
    ]


def test_renames_and_defaults_reach_into_lists_and_maps() -> None:
    old = "struct<items: array<struct<cost: int>>, by: map<string, struct<n: int>>>"
    new = "struct<items: array<struct<price: int, tax: array<int>>>, by: map<string, struct<count: int>>>"
    found = read(
        old,
        new,
        [{"items": [{"cost": 1}, None], "by": [("k", {"n": 2})]}, {"items": None, "by": None}, None],
        fields_were={"items.element.price": "cost", "by.value.count": "n"},
        field_defaults={"items.element.tax": [0]},
    )
    assert found == [
        {"items": [{"price": 1, "tax": [0]}, None], "by": [("k", {"count": 2})]},
        {"items": None, "by": None},
        None,
    ]


def test_a_field_that_was_renamed_twice_is_found_under_each_name() -> None:
    options = {"fields_were": {"c": ("b", "a")}}
    assert read("struct<a: int>", "struct<c: int>", [{"a": 1}], **options) == [{"c": 1}]
    assert read("struct<b: int>", "struct<c: int>", [{"b": 2}], **options) == [{"c": 2}]
    assert read("struct<c: int>", "struct<c: int>", [{"c": 3}], **options) == [{"c": 3}]


def test_a_former_field_goes_before_an_older_one_of_the_new_name() -> None:
    old, new = "struct<a: int, b: int>", "struct<b: int>"
    assert read(old, new, [{"a": 1, "b": 2}], fields_were={"b": "a"}) == [{"b": 1}]
    assert compare(old, new, fields_were={"b": "a"}).lost == ("b",)


@pytest.mark.parametrize(
    ("new", "options", "fact"),
    [
        ("struct<a: int, b: int>", {"fields_were": {"b": "a"}}, "still in use"),
        ("struct<b: int, c: int>", {"fields_were": {"b": "a", "c": "a"}}, "same former name"),
        ("struct<b: int>", {"fields_were": {"x": "a"}}, "undeclared field"),
        ("struct<b: int>", {"field_defaults": {"x": 1}}, "undeclared field"),
        ("struct<a: int, b: int>", {"field_defaults": {"b": "x"}}, "does not match the declared type"),
        ("struct<a: int, b: int NOT NULL>", {}, "has no default"),
        ("struct<a: int NOT NULL>", {}, "cannot become NOT NULL"),
    ],
)
def test_a_rename_or_default_that_does_not_fit_is_refused(
    new: str, options: dict[str, Any], fact: str
) -> None:
    with pytest.raises(Invalid, match=fact):
        compare("struct<a: int>", new, **options)


def test_a_renamed_field_may_be_missing_in_older_values() -> None:
    assert read("struct<a: int>", "struct<a: int, b: int>", [{"a": 1}], fields_were={"b": "x"}) == [
        {"a": 1, "b": None}
    ]


def test_a_name_with_a_dot_is_in_backquotes() -> None:
    options = {"fields_were": {"`a.b`.c": "d"}}
    assert read(
        "struct<`a.b`: struct<d: int>>", "struct<`a.b`: struct<c: int>>", [{"a.b": {"d": 1}}], **options
    )


def test_a_state_keeps_its_kind_and_its_keys() -> None:
    state = State(StateKind.MAP, pa.int64(), "visits", key_type=pa.string())
    assert change_of(state, "map", pa.int32(), pa.string()).steps == ("widen state visits: int to long",)
    with pytest.raises(Invalid, match="the kind of state differs") as caught:
        change_of(state, "list", pa.int64())
    assert (caught.value.found, caught.value.expected) == ("map in the declaration", "list, as stored")
    with pytest.raises(Invalid, match="key type of a map cannot change") as caught:
        change_of(state, "map", pa.int64(), pa.int32())
    assert (caught.value.where, caught.value.found, caught.value.expected) == (
        "state visits, key", "string in the declaration", "int, as stored",
    )  # fmt: skip
