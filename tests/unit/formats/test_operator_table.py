"""The table of Spark's operators, against the checkpoints that Spark wrote."""

from __future__ import annotations

import pytest

from golden import GATHERED, NAMES, UNNAMED, golden
from holdfast.checkpoints.state.states import operator_states
from holdfast.formats.operators import (
    OPERATORS,
    PROCESSOR,
    TIMER_NAMES,
    FamilyUse,
    companion,
    family_of,
    is_processor,
    operator_kind,
    use_of,
)

JOIN = "symmetricHashJoin"
PROCESSOR_NAME = "transformWithStateInPySparkExec"
# The fields behind the key that is joined by, by the label of the family; nothing else has any.
ROW_FIELDS = {"keyWithIndexToValue": ("index",)}
ALIASES = {
    "aggregate": "aggregate",
    "windowed": "aggregate",
    "global": "aggregate",
    "dedupe": "dedupe",
    "join": "join",
    "session": "sessions",
    "limit": "limit",
    "state": "processor",
    "keyed": "processor",
    "spread": "processor",
}


@pytest.mark.parametrize("name", [*NAMES, *GATHERED])
def test_operators_of_spark_are_in_the_table(name: str) -> None:
    query = name.partition("/")[2].partition("-")[0]
    for operator in operator_states(golden(name)):
        kind = operator_kind(operator.name)
        assert kind is not None
        assert kind.alias == ALIASES[query]


@pytest.mark.parametrize("name", [*NAMES, *UNNAMED])
def test_families_of_spark_are_in_the_table(name: str) -> None:
    for operator in operator_states(golden(name)):
        for codec in operator.declared_codecs():
            label = codec.name.label
            family = family_of(operator.name, label)
            # What Spark keeps for itself begins with a dollar; the stores of a join are beside its rows.
            assert (family is None) == (not label.startswith("$") and "-" not in label)
            if family is None:
                continue
            assert family.label(family.state(label)) == label
            left = codec.key_type.names[len(codec.key_type.names) - family.row_fields :]
            assert left == ROW_FIELDS.get(label.partition("-")[2], ())


def test_names_and_uses_are_in_the_table_once() -> None:
    names = [name for kind in OPERATORS for name in kind.names]
    uses = [family.use for kind in OPERATORS for family in kind.families]
    assert len(set(names)) == len(names)
    assert sorted(uses) == sorted(FamilyUse)


@pytest.mark.parametrize(
    ("operator", "label", "use", "other", "expected"),
    [
        (JOIN, "left-keyWithIndexToValue", FamilyUse.JOIN_ROWS, FamilyUse.JOIN_COUNTS, "left-keyToNumValues"),
        (
            JOIN,
            "right-keyWithTsToValues",
            FamilyUse.JOIN_ROWS_BY_TIME,
            FamilyUse.JOIN_TIMES,
            "right-tsWithKey",
        ),
        ("", "left-keyToNumValues", FamilyUse.JOIN_COUNTS, FamilyUse.JOIN_ROWS, "left-keyWithIndexToValue"),
        (PROCESSOR_NAME, "basket", None, FamilyUse.LIST_COUNTER, "$rowCounter_basket"),
        (PROCESSOR_NAME, "$ttl_basket", FamilyUse.EXPIRY_INDEX, FamilyUse.FIRST_EXPIRY, "$min_basket"),
        (PROCESSOR_NAME, "$min_basket", FamilyUse.FIRST_EXPIRY, FamilyUse.EXPIRY_COUNTER, "$count_basket"),
        (
            PROCESSOR_NAME,
            "$procTimers_keyToTimestamp",
            FamilyUse.TIMERS,
            FamilyUse.TIMER_INDEX,
            "$procTimers_timestampToKey",
        ),
    ],
)
def test_families_of_one_state(
    operator: str, label: str, use: FamilyUse | None, other: FamilyUse, expected: str
) -> None:
    assert use_of(operator, label) is use
    assert companion(operator, label, other) == expected


def test_a_state_variable_may_have_a_name_like_a_store_of_a_join() -> None:
    assert use_of(PROCESSOR_NAME, "my-tsWithKey") is None
    assert use_of(JOIN, "left-tsWithKey") is FamilyUse.JOIN_TIMES


def test_every_clock_of_timers_has_a_name() -> None:
    for clock, name in TIMER_NAMES.items():
        family = family_of(PROCESSOR_NAME, f"${clock}Timers_keyToTimestamp")
        assert family is not None
        assert (family.use, family.state(f"${clock}Timers_keyToTimestamp")) == (FamilyUse.TIMERS, clock)
        assert name.endswith("timers")


def test_transform_with_state_is_known_in_every_language() -> None:
    assert operator_kind("transformWithStateInAnotherLanguageExec") is PROCESSOR
    assert all(is_processor(name) for name in PROCESSOR.names)
    assert not is_processor("mapGroupsWithState")
    assert operator_kind("") is None
