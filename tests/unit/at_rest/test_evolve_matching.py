"""Operators and columns found again in new code: by names, by the plan, by what a person says."""

from __future__ import annotations

import json
from decimal import Decimal as Number
from typing import Any

import pytest
from spark_structs import fields

from holdfast.changes.column_values import value_from_text, widening
from holdfast.changes.evolving import OperatorChange, operator_columns, steps_for
from holdfast.changes.operator_matching import Wishes
from holdfast.changes.state_columns import kept_columns, parse_step
from holdfast.checkpoints.state.states import OperatorShape, StoreShape
from holdfast.errors import HoldfastError, Invalid, Unsupported
from holdfast.formats.logs.notes import PlanStep, QueryPlan
from holdfast.formats.logs.operator_metadata import ColumnFamily
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Struct

AGGREGATE, DEDUPE, JOIN = "stateStoreSave", "dedupe", "symmetricHashJoin"
GROUPS = "flatMapGroupsWithState"
LONG, INT, DOUBLE, FLOAT = Atom("long"), Atom("integer"), Atom("double"), Atom("float")


def struct(text: str) -> str:
    """`a long, b string!`, with a `!` behind what cannot be null."""
    return fields(*(field.strip() for field in text.split(",") if field.strip()))


def operator(number: int, kind: str, key: str, value: str) -> OperatorShape:
    family = ColumnFamily("default", struct(key), struct(value))
    return OperatorShape(number, kind, (StoreShape("default", (family,)),), {}, {})


def plan(*texts: str) -> QueryPlan:
    steps = [PlanStep("Aggregate" if text.startswith("[") else "Dedupe", text, text, True) for text in texts]
    return QueryPlan((), tuple(steps))


def steps(
    old: list[OperatorShape],
    new: list[OperatorShape],
    plans: tuple[QueryPlan | None, QueryPlan | None],
    **said: Any,
) -> list[OperatorChange]:
    wishes = Wishes(
        said.get("rename", {}), frozenset(said.get("drop", ())), said.get("initial", {}), merge=False
    )
    before, after = (
        operator_columns(shapes, it, {}, "sp") for shapes, it in zip((old, new), plans, strict=True)
    )
    return [step.describe() for step in steps_for(before, after, wishes, "sp")]


def columns(change: OperatorChange) -> dict[str, tuple[str, str | None]]:
    return {each.column: (each.change, each.initial) for each in change.columns}


TOTALS = operator(0, AGGREGATE, "customer string", "count long!, sum long")
TOTALS_PLAN = plan("[customer], [customer, count(1) AS n, sum(amount) AS total]")


def test_the_functions_of_a_step_in_the_order_of_their_columns() -> None:
    step = parse_step(
        "[window, upper(k)], [window, upper(k) AS kk, (sum(v) / count(1)) AS ratio, count(1) AS n,"
        " sum(cast(d as decimal(20,2))) AS s, count(v) FILTER (WHERE (v > 2)) AS large,"
        " approx_count_distinct(v, 0.05, 0, 0) AS about]"
    )
    assert step is not None
    assert (step.keys, step.key_names) == (("window", "upper(k)"), ("window", "kk"))
    assert [(each.text, each.alias) for each in step.functions] == [
        ("sum(v)", None),
        ("count(1)", "n"),
        ("sum(cast(d as decimal(20,2)))", "s"),
        ("count(v) FILTER (WHERE (v > 2))", "large"),
        ("approx_count_distinct(v, 0.05, 0, 0)", "about"),
    ]
    kept = kept_columns(step.functions, ["sum", "count", "sum", "isEmpty", "count", "MS[0]", "MS[1]"])
    assert kept is not None
    assert [list(each) for each in kept] == [
        ["sum"],
        ["count"],
        ["sum", "isEmpty"],
        ["count"],
        ["MS[0]", "MS[1]"],
    ]
    # One column more than the functions have, or one less: then nobody knows whose which is.
    assert kept_columns(step.functions, ["sum", "count"]) is None
    assert kept_columns(step.functions[:2], ["sum", "count", "count"]) is None


@pytest.mark.parametrize("text", ["[k], [k, count(1) AS n", "[k], [k, sum(v) AS q)]", "k, count(1)", ""])
def test_a_step_that_cannot_be_taken_apart(text: str) -> None:
    assert parse_step(text) is None


def test_a_step_without_keys() -> None:
    step = parse_step("[count(1) AS n]")
    assert step is not None
    assert (step.keys, [each.alias for each in step.functions]) == ((), ["n"])


def test_an_aggregate_is_known_by_its_name_wherever_its_columns_are() -> None:
    new = operator(0, AGGREGATE, "customer string", "max integer, sum long, count long!, count long!")
    code = plan(
        "[customer], [customer, max(amount) AS most, sum(amount) AS total, count(amount) AS paid,"
        " count(1) AS n]"
    )
    with pytest.raises(Invalid) as refused:
        steps([TOTALS], [new], (TOTALS_PLAN, code))
    assert refused.value.found == "paid long"
    assert "--initial paid=0" in str(refused.value.hint)
    [made] = steps([TOTALS], [new], (TOTALS_PLAN, code), initial={"paid": "7"})
    assert columns(made) == {
        "customer": ("kept", None),
        "most": ("new", "null"),
        "total": ("kept", None),
        "paid": ("new", "7"),
        "n": ("kept", None),
    }


def test_without_the_old_plan_columns_are_known_by_sparks_names_where_these_are_clear() -> None:
    new = operator(0, AGGREGATE, "customer string", "sum long, max integer, count long!")
    code = plan("[customer], [customer, sum(amount) AS total, max(amount) AS most, count(1) AS n]")
    [made] = steps([TOTALS], [new], (None, code))
    assert columns(made)["total"] == ("renamed", None)
    assert columns(made)["most"] == ("new", "null")
    twice = operator(0, AGGREGATE, "customer string", "sum long, sum long, count long!")
    code = plan("[customer], [customer, sum(amount) AS total, sum(fee) AS fees, count(1) AS n]")
    with pytest.raises(Invalid, match="the column of the state cannot be matched") as refused:
        steps([TOTALS], [twice], (None, code))
    assert (refused.value.found, refused.value.expected) == (
        "sum in the state",
        "total, fees in the new code",
    )
    [made] = steps([TOTALS], [twice], (None, code), rename={"sum": "total"})
    assert columns(made)["fees"] == ("new", "null")


def test_two_aggregates_that_could_be_one_are_refused_with_their_names() -> None:
    old = operator(0, AGGREGATE, "k string", "sum long, sum long")
    new = operator(0, AGGREGATE, "k string", "sum long")
    plans = (plan("[k], [k, sum(a) AS x, sum(b) AS y]"), plan("[k], [k, sum(b) AS x]"))
    with pytest.raises(Invalid, match="the aggregate of the state cannot be matched") as refused:
        steps([old], [new], plans)
    assert refused.value.found == "x, y in the state"
    [made] = steps([old], [new], plans, rename={"y": "x"})
    assert [(each.change, each.before, each.after) for each in made.columns] == [
        ("kept", "k string", "k string"),
        ("renamed", "y long", "x long"),
        ("dropped", "x long", None),
    ]
    # Where one goes, the other is meant.
    [made] = steps([old], [new], plans, drop=["x"])
    assert [each.before for each in made.columns if each.change == "renamed"] == ["y long"]


def test_an_aggregate_of_another_column_is_shown() -> None:
    code = plan("[customer], [customer, count(1) AS n, sum(net) AS total]")
    [made] = steps([TOTALS], [TOTALS], (TOTALS_PLAN, code))
    assert made.change == "changed"
    assert [(each.before, each.after) for each in made.columns if each.column == "total"] == [
        ("total long, sum(amount)", "total long, sum(net)")
    ]


def test_another_function_under_the_same_name_starts_anew() -> None:
    old = operator(0, AGGREGATE, "k string", "sum long")
    new = operator(0, AGGREGATE, "k string", "sum double, count long")
    plans = (plan("[k], [k, sum(a) AS x]"), plan("[k], [k, avg(a) AS x]"))
    [made] = steps([old], [new], plans)
    assert [(each.column, each.change, each.initial) for each in made.columns] == [
        ("k", "kept", None),
        ("x.sum", "new", "0.0"),
        ("x.count", "new", "0"),
        ("x", "dropped", None),
    ]


def test_a_grouping_column_is_renamed_only_where_it_is_said() -> None:
    new = operator(0, AGGREGATE, "shop string", "count long!, sum long")
    code = plan("[shop], [shop, count(1) AS n, sum(amount) AS total]")
    with pytest.raises(Invalid, match="operators cannot be matched") as refused:
        steps([TOTALS], [new], (TOTALS_PLAN, code))
    assert "--map 0=0" in str(refused.value.hint)
    with pytest.raises(Invalid, match="the grouping column of the state cannot be matched") as refused:
        steps([TOTALS], [new], (TOTALS_PLAN, code), rename={"0": "0"})
    assert "--map customer=shop" in str(refused.value.hint)
    [made] = steps([TOTALS], [new], (TOTALS_PLAN, code), rename={"customer": "shop"})
    assert columns(made)["shop"] == ("renamed", None)
    # The same expression under another name is the same column, and the same name of another is not.
    code = plan("[customer], [customer AS who, count(1) AS n, sum(amount) AS total]")
    [made] = steps([TOTALS], [TOTALS], (TOTALS_PLAN, code))
    assert columns(made)["who"] == ("renamed", None)
    code = plan("[shop], [shop AS customer, count(1) AS n, sum(amount) AS total]")
    with pytest.raises(Invalid, match="a different expression") as refused:
        steps([TOTALS], [TOTALS], (TOTALS_PLAN, code))
    assert refused.value.found == "customer was customer, and is shop in the new code"
    [made] = steps([TOTALS], [TOTALS], (TOTALS_PLAN, code), rename={"customer": "customer"})
    assert made.change == "kept"


def test_a_new_grouping_column_needs_what_the_rows_have() -> None:
    new = operator(0, AGGREGATE, "customer string, shop string", "count long!, sum long")
    code = plan("[customer, shop], [customer, shop, count(1) AS n, sum(amount) AS total]")
    with pytest.raises(Invalid, match="no initial value"):
        steps([TOTALS], [new], (TOTALS_PLAN, code))
    [made] = steps([TOTALS], [new], (TOTALS_PLAN, code), initial={"shop": "the first"})
    assert columns(made)["shop"] == ("new", "the first")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"rename": {"nobody": "total"}}, "nobody=total"),
        ({"drop": ["nobody"]}, "nobody"),
        ({"initial": {"total": "3"}}, "total"),
    ],
)
def test_what_stands_for_nothing_is_refused(said: dict[str, Any], found: str) -> None:
    with pytest.raises(Invalid, match="does not name an operator or a column") as refused:
        steps([TOTALS], [TOTALS], (TOTALS_PLAN, TOTALS_PLAN), **said)
    assert refused.value.found == found


def test_operators_move_are_inserted_and_go() -> None:
    ids = operator(1, DEDUPE, "id long", "__dummy__ void")
    serials = operator(1, DEDUPE, "serial long", "__dummy__ void")
    moved = operator(2, DEDUPE, "id long", "__dummy__ void")
    made = steps([TOTALS, ids], [TOTALS, serials, moved], (None, None))
    assert [(each.change, each.before, each.after) for each in made] == [
        ("kept", "0 aggregate by (customer string)", "0 aggregate by (customer string)"),
        ("inserted", None, "1 dedupe_1 by (serial long)"),
        ("kept", "1 dedupe by (id long)", "2 dedupe_2 by (id long)"),
    ]
    back = steps([TOTALS, serials, moved], [TOTALS, ids], (None, None))
    assert [each.change for each in back] == ["kept", "kept", "removed"]
    assert steps([TOTALS, ids], [], (None, None), drop=["1"])[-1].change == "removed"


def test_several_operators_that_are_alike() -> None:
    one, other = (operator(number, DEDUPE, "id long", "__dummy__ void") for number in (0, 1))
    assert [each.before for each in steps([one, other], [one, other], (None, None))] == [
        "0 dedupe_0 by (id long)",
        "1 dedupe_1 by (id long)",
    ]
    with pytest.raises(Invalid, match="operators cannot be matched") as refused:
        steps([one, other], [one], (None, None))
    assert refused.value.found == (
        "0 dedupe_0 by (id long) in the state; 1 dedupe_1 by (id long) in the state"
    )
    made = steps([one, other], [one], (None, None), rename={"1": "0"})
    assert [(each.change, each.before) for each in made] == [
        ("kept", "1 dedupe_1 by (id long)"),
        ("removed", "0 dedupe_0 by (id long)"),
    ]
    made = steps([one, other], [one], (None, None), drop=["dedupe_0"])
    assert made[0].before == "1 dedupe_1 by (id long)"


def test_what_cannot_change_is_refused_by_name() -> None:
    def groups(value: str) -> OperatorShape:
        store = StoreShape("default", (ColumnFamily("default", struct("id long"), struct(value)),))
        return OperatorShape(0, GROUPS, (store,), {}, {})

    with pytest.raises(Unsupported, match="flatMapGroupsWithState cannot be converted"):
        steps([groups("a long")], [groups("a long, b long")], (None, None), rename={"0": "0"})
    assert steps([groups("a long")], [groups("a long")], (None, None))[0].change == "kept"


def test_a_join_may_have_new_columns() -> None:
    def join(value: str) -> OperatorShape:
        store = StoreShape(
            "left-keyWithIndexToValue",
            (ColumnFamily("default", struct("id long, index long"), struct(value)),),
        )
        return OperatorShape(0, JOIN, (store,), {}, {})

    with pytest.raises(Invalid, match="no value for the waiting rows"):
        steps([join("a long")], [join("a long, b long")], (None, None))
    [changed] = steps([join("a long")], [join("b long, a long")], (None, None), initial={"left.b": "7"})
    assert [(column.column, column.change, column.initial) for column in changed.columns] == [
        ("left.b", "new", "7"),
        ("left.a", "kept", None),
    ]
    assert steps([join("a long")], [join("a long")], (None, None))[0].change == "kept"


@pytest.mark.parametrize(
    ("old", "new", "given", "wanted"),
    [
        (INT, LONG, -7, -7),
        (INT, DOUBLE, 2_147_483_647, 2_147_483_647.0),
        (FLOAT, DOUBLE, 0.5, 0.5),
        (INT, Decimal(12, 2), 7, Number(7)),
        (Decimal(10, 2), Decimal(14, 4), Number("1.25"), Number("1.25")),
        (Array(INT), Array(LONG), [1, None], [1, None]),
        (Struct(("a",), (INT,)), Struct(("b",), (LONG,)), {"a": 3}, {"b": 3}),
        (LONG, INT, None, None),
        (LONG, DOUBLE, None, None),
        (DOUBLE, FLOAT, None, None),
        (INT, Decimal(11, 2), None, None),
        (Decimal(10, 2), Decimal(11, 3), Number("1.25"), Number("1.25")),
        (Decimal(10, 2), Decimal(10, 3), None, None),
        (Atom("string"), LONG, None, None),
    ],
)
def test_a_type_is_widened_only_where_nothing_is_lost(
    old: DataType, new: DataType, given: Any, wanted: Any
) -> None:
    convert = widening(old, new)
    assert (None if convert is None else convert(given)) == wanted


def test_a_sum_is_not_taken_for_one_with_a_point() -> None:
    """Spark keeps sums of short decimals as whole numbers: 12.50 as 1250, and of longer ones as decimals."""
    old = operator(0, AGGREGATE, "k string", "sum long")
    new = operator(0, AGGREGATE, "k string", "sum decimal(22;2), isEmpty boolean!".replace(";", ""))
    field = json.loads(new.stores[0].families[0].value_schema)
    field["fields"][0]["type"] = "decimal(22,2)"
    family = ColumnFamily("default", struct("k string"), json.dumps(field))
    new = OperatorShape(0, AGGREGATE, (StoreShape("default", (family,)),), {}, {})
    plans = (plan("[k], [k, sum(d) AS x]"), plan("[k], [k, sum(d) AS x]"))
    with pytest.raises(Unsupported, match="without loss"):
        steps([old], [new], plans)


@pytest.mark.parametrize(("initial", "empty"), [({}, "True"), ({"spent": "4.50"}, "False")])
def test_a_new_sum_of_decimals_is_empty_unless_it_has_an_initial_value(
    initial: dict[str, str], empty: str
) -> None:
    """Spark returns null for a sum that it has marked as empty, whatever number is next to the mark."""
    old = operator(0, AGGREGATE, "k string", "count long!")
    new = operator(0, AGGREGATE, "k string", "count long!, sum decimal(22;2), isEmpty boolean!")
    family = new.stores[0].families[0]
    family = ColumnFamily("default", family.key_schema, family.value_schema.replace("(22;2)", "(22,2)"))
    new = OperatorShape(0, AGGREGATE, (StoreShape("default", (family,)),), {}, {})
    plans = (plan("[k], [k, count(1) AS n]"), plan("[k], [k, count(1) AS n, sum(d) AS spent]"))
    [made] = steps([old], [new], plans, initial=initial)
    assert columns(made) == {
        "k": ("kept", None),
        "n": ("kept", None),
        "spent.sum": ("new", initial.get("spent", "0")),
        "spent.isEmpty": ("new", empty),
    }


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("null", LONG, None),
        ("-3", LONG, -3),
        ("1.5", DOUBLE, 1.5),
        ("1.50", Decimal(5, 2), Number("1.50")),
        ("true", Atom("boolean"), True),
        ("a b", Atom("string"), "a b"),
    ],
)
def test_values_from_text(text: str, type_: DataType, value: Any) -> None:
    assert value_from_text(text, type_) == value


@pytest.mark.parametrize(
    ("text", "type_"), [("x", LONG), ("1.5", LONG), ("x", Decimal(3, 0)), ("1", Array(INT))]
)
def test_values_that_are_none(text: str, type_: DataType) -> None:
    with pytest.raises(ValueError, match=r"."):
        value_from_text(text, type_)


def test_a_start_that_does_not_fit_its_column() -> None:
    new = operator(0, AGGREGATE, "customer string", "count long!, sum long, count long!")
    code = plan("[customer], [customer, count(1) AS n, sum(amount) AS total, count(amount) AS paid]")
    for value in ("many", "null"):
        with pytest.raises(
            HoldfastError, match=r"does not fit the type of the new column|cannot start with null"
        ):
            steps([TOTALS], [new], (TOTALS_PLAN, code), initial={"paid": value})
