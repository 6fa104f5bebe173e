"""A verdict for each state, by hand-made operators."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast.checkpoints.state.states import OperatorShape, StoreShape
from holdfast.formats.logs.operator_metadata import ColumnFamily
from holdfast.model import Effect, PlanChange, StateVerdict, Try, UpgradeReport, Verdict
from holdfast.savepoints.verdicts import (
    HOLDFAST,
    NO_DIRECTORY,
    OTHER_KEY,
    OTHER_OPERATOR,
    OTHER_VALUE,
    Size,
    Sizes,
    compare_states,
    fits,
    text_of,
    with_changes,
    with_names,
    with_trial,
)

SIZES = Sizes({0: Size(None, 900)}, {(0, "default"): Size(7, 300)})


def struct(*fields: str) -> dict[str, Any]:
    """`"name type"`, with a `!` behind what cannot be null."""
    named = (field.rstrip("!").split(" ") for field in fields)
    nullable = [not field.endswith("!") for field in fields]
    return {
        "type": "struct",
        "fields": [
            {"name": name, "type": type_, "nullable": null, "metadata": {}}
            for (name, type_), null in zip(named, nullable, strict=True)
        ],
    }


def family(name: str, key: Any, value: Any) -> ColumnFamily:
    return ColumnFamily(name, json.dumps(key), json.dumps(value))


def operator(kind: str, key: Any, value: Any, number: int = 0) -> OperatorShape:
    store = StoreShape("default", (family("default", key, value),))
    return OperatorShape(number, kind, (store,), {}, {})


def variables(*families: ColumnFamily, number: int = 0, **kinds: str) -> OperatorShape:
    store = StoreShape("default", families)
    noted = {each.name: {"stateName": each.name, "stateVariableType": "Value"} for each in families}
    for name, kind in kinds.items():
        noted[name]["stateVariableType"] = kind
    return OperatorShape(number, "tws", (store,), noted, {})


def short(found: tuple[StateVerdict, ...]) -> list[tuple[str, str, str, str | None]]:
    return [(each.operator, each.state, each.verdict.value, each.spark_error) for each in found]


KEY, VALUE = struct("who string"), struct("who string", "n long!")
COUNTS = operator("stateStoreSave", KEY, VALUE)


@pytest.mark.parametrize(
    ("new", "verdict", "error"),
    [
        (COUNTS, "MAP", None),
        (operator("stateStoreSave", KEY, struct("who string", "visits long!")), "MAP", None),
        (operator("stateStoreSave", struct("who string", "shop string"), VALUE), "INCOMPATIBLE", OTHER_KEY),
        (operator("stateStoreSave", KEY, struct("who string", "n double")), "INCOMPATIBLE", OTHER_VALUE),
        (operator("stateStoreSave", KEY, struct("who string", "n long")), "INCOMPATIBLE", OTHER_VALUE),
        (operator("dedupe", KEY, VALUE), "INCOMPATIBLE", OTHER_OPERATOR),
    ],
    ids=["same", "renamed", "key", "value", "null", "operator"],
)
def test_one_operator(new: OperatorShape, verdict: str, error: str | None) -> None:
    found = compare_states([COUNTS], [new], SIZES)
    assert short(found) == [("0 stateStoreSave", "default", verdict, error)]
    assert (found[0].keys, found[0].size_bytes) == (7, 300)


def test_a_renamed_field_is_told() -> None:
    renamed = operator("stateStoreSave", KEY, struct("who string", "visits long!"))
    assert compare_states([COUNTS], [renamed], SIZES)[0].why == "n is now named visits"


def test_operators_that_came_and_went() -> None:
    assert short(compare_states([COUNTS], [], SIZES)) == [
        ("0 stateStoreSave", "default", "INCOMPATIBLE", OTHER_OPERATOR)
    ]
    more = operator("dedupe", KEY, VALUE, number=1)
    assert short(compare_states([COUNTS], [COUNTS, more], SIZES)) == [
        ("0 stateStoreSave", "default", "MAP", None),
        ("1 dedupe", "default", "INCOMPATIBLE", NO_DIRECTORY),
    ]


def test_variables_are_found_by_name() -> None:
    def one(name: str, type_: str = "long") -> ColumnFamily:
        return family(name, KEY, struct(f"v {type_}"))

    old = variables(one("a"), one("b"), one("c"), one("d"))
    new = variables(one("e"), one("d"), one("a"), one("c", "string"), d="Map")
    found = compare_states([old], [new], SIZES)
    assert short(found) == [
        ("0 tws", "a", "MAP", None),
        ("0 tws", "b", "DROP", None),
        ("0 tws", "c", "INCOMPATIBLE", OTHER_VALUE),
        ("0 tws", "d", "INCOMPATIBLE", OTHER_VALUE),
        ("0 tws", "e", "NEW", None),
    ]
    # What is known of the whole operator alone is said of each of its states.
    assert [each.size_bytes for each in found] == [900, 900, 900, 900, None]


@pytest.mark.parametrize(
    ("new", "stored", "expected"),
    [
        ("long", "long", True),
        ("long", "integer", False),
        ("long", struct("a long"), False),
        (struct("a long"), struct("b long"), True),
        (struct("a long!"), struct("a long"), True),
        (struct("a long"), struct("a long!"), False),
        (struct("a long", "b long"), struct("a long"), False),
        (
            {"type": "array", "elementType": "long", "containsNull": False},
            {"type": "array", "elementType": "long", "containsNull": True},
            True,
        ),
        (
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
            {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": False},
            False,
        ),
    ],
)
def test_a_type_stands_where_another_was(new: Any, stored: Any, expected: bool) -> None:
    assert fits(new, stored) is expected


def test_types_for_people() -> None:
    inner = {"type": "map", "keyType": "string", "valueType": struct("a long"), "valueContainsNull": True}
    array = {"type": "array", "elementType": inner, "containsNull": True}
    given = struct("a long")
    given["fields"].append({"name": "b", "type": array, "nullable": True, "metadata": {}})
    assert text_of(given) == "a long, b array<map<string, struct<a long>>>"


def verdict(state: str, verdict: Verdict, error: str | None = None) -> StateVerdict:
    return StateVerdict("0 tws", state, verdict, "why", 1, 2, error)


def test_what_spark_accepts_is_kept() -> None:
    foreseen = [
        verdict("a", Verdict.MAP),
        verdict("b", Verdict.INCOMPATIBLE, OTHER_VALUE),
        verdict("c", Verdict.INCOMPATIBLE, HOLDFAST),
    ]
    states, changes = with_trial(foreseen, accepted=True, error=None, message=None)
    assert [(each.verdict, each.spark_error) for each in states] == [
        (Verdict.MAP, None),
        (Verdict.MIGRATE, None),
        (Verdict.INCOMPATIBLE, HOLDFAST),
    ]
    assert changes == ()


def test_what_spark_refuses_is_refused_with_its_error() -> None:
    foreseen = [verdict("a", Verdict.MAP), verdict("b", Verdict.INCOMPATIBLE, OTHER_VALUE)]
    same, changes = with_trial(foreseen, accepted=False, error=OTHER_VALUE, message="no")
    assert (list(same), changes) == (foreseen, ())
    other, changes = with_trial(foreseen, accepted=False, error=OTHER_KEY, message="no")
    assert [each.spark_error for each in other] == [None, OTHER_KEY]
    assert changes == ()
    unforeseen, changes = with_trial(foreseen[:1], accepted=False, error="NEW_IN_SPARK", message="no")
    assert list(unforeseen) == foreseen[:1]
    assert [(each.what, each.after, each.effect, each.why) for each in changes] == [
        ("start", "NEW_IN_SPARK", Effect.FAILS, "no")
    ]
    _, changes = with_trial(foreseen[:1], accepted=False, error="NEW_IN_SPARK", message=None)
    assert [each.why for each in changes] == [""]


def numbered(number: int, found: Verdict, error: str | None = None) -> StateVerdict:
    return replace(verdict("a", found, error), operator_id=number)


def changed(operator_id: int | None, affects: tuple[int, ...] | None) -> PlanChange:
    return PlanChange("step", "a", "b", Effect.MEANING, "why", operator_id, affects)


def test_rows_that_other_code_computed_are_reinterpreted_and_not_kept() -> None:
    kept = [numbered(0, Verdict.MAP), numbered(1, Verdict.MIGRATE), numbered(2, Verdict.MAP)]
    states, changes = with_changes(kept, [changed(1, (0, 1))])
    assert [each.verdict for each in states] == [Verdict.REINTERPRET, Verdict.REINTERPRET, Verdict.MAP]
    assert [(each.effect, each.why) for each in changes] == [(Effect.MEANING, "why")]
    states, _ = with_changes(kept, [changed(None, None)])  # a source feeds them all
    assert {each.verdict for each in states} == {Verdict.REINTERPRET}
    states, _ = with_changes(kept, [replace(changed(None, None), effect=Effect.OUTPUT)])
    assert list(states) == kept


def test_the_change_of_an_operator_whose_state_is_refused_is_part_of_the_refusal() -> None:
    """Nothing says of refused state that the query would use it."""
    found = [
        numbered(0, Verdict.INCOMPATIBLE, OTHER_VALUE),
        numbered(1, Verdict.MAP),
        numbered(2, Verdict.DROP),
    ]
    states, changes = with_changes(found, [changed(0, (0,)), changed(None, (0, 1))])
    assert [each.verdict for each in states] == [Verdict.INCOMPATIBLE, Verdict.REINTERPRET, Verdict.DROP]
    assert [each.effect for each in changes] == [Effect.FAILS, Effect.MEANING]
    assert "would not start" in changes[0].why


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([Verdict.MAP, Verdict.MIGRATE, Verdict.NEW], ("kept", 0)),
        ([Verdict.MAP, Verdict.REINTERPRET], ("loses", 1)),
        ([Verdict.MAP, Verdict.DROP], ("loses", 1)),
        ([Verdict.DROP, Verdict.INCOMPATIBLE], ("fails", 2)),
    ],
)
def test_the_verdict_on_all_is_the_worst(found: list[Verdict], expected: tuple[str, int]) -> None:
    states = tuple(verdict(str(at), each) for at, each in enumerate(found))
    report = UpgradeReport("job.py", "sp", None, 3, states, (), Try(ran=True, accepted=True), None)
    assert (report.verdict, report.exit_code) == expected
    assert json.loads(json.dumps(report.as_dict()))["states"][0]["size_bytes"] == 2


@pytest.mark.parametrize(("others", "kind"), [((), "keyed state"), (("visits",), "")])
def test_an_operator_of_holdfast_has_its_own_name(others: tuple[str, ...], kind: str) -> None:
    states = ("total", "default")
    found = with_names(
        [StateVerdict("visits", state, Verdict.MAP, "why") for state in states], [], [], others
    )
    assert [(each.display_name, each.operator_kind, each.state_name) for each in found] == [
        ("visits", kind, "total"),
        ("visits", kind, "visits"),
    ]
