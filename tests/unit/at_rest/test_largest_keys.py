"""The largest keys of state, against what the golden queries must hold by a model in plain Python."""

from __future__ import annotations

from collections import Counter

import golden_model as model
import pytest

from golden import KEYED, NAMES, golden, golden_files
from holdfast.at_rest.insight import HeavyKeys, heaviest
from holdfast.at_rest.state_reader import StateReader

JOINS = [name for name in NAMES if "join" in name]


def found_in(name: str, state: str = "", most: int = 100) -> HeavyKeys:
    reader = StateReader(golden(name))
    return heaviest(reader.pick(state)[1], most=most)


@pytest.mark.parametrize("name", JOINS)
def test_a_key_of_a_join_has_the_rows_that_wait_for_a_partner(name: str) -> None:
    waiting = Counter(event.customer for event in model.joinable())
    found = found_in(name, "left")
    assert {each.key["field0"]: each.rows for each in found.heaviest} == waiting
    assert found.keys == len(waiting)
    sizes = [each.size_bytes for each in found.heaviest]
    assert sizes == sorted(sizes, reverse=True)
    assert found.heaviest[0].rows == max(waiting.values())
    assert sum(sizes) == found.size_bytes
    assert sum(each.share for each in found.heaviest) == pytest.approx(1)


@pytest.mark.parametrize("name", JOINS)
def test_only_so_many_are_named_and_all_are_counted(name: str) -> None:
    every, two = found_in(name, "left"), found_in(name, "left", most=2)
    assert two.heaviest == every.heaviest[:2]
    assert (two.keys, two.size_bytes) == (every.keys, every.size_bytes)


@pytest.mark.parametrize("name", ["4.2/aggregate-memory", "4.2/aggregate-changelog"])
def test_a_key_of_an_aggregate_is_where_a_look_at_it_finds_it(name: str) -> None:
    customers = set(model.aggregate(model.taken(golden_files(name))))
    found = found_in(name)
    assert {each.key["customer"] for each in found.heaviest} == customers
    reader = StateReader(golden(name))
    for each in found.heaviest:
        looked = reader.get("aggregate", each.key)
        assert (looked.partition, looked.size_bytes, 1) == (each.partition, each.size_bytes, each.rows)


@pytest.mark.parametrize("name", KEYED)
def test_a_key_of_a_keyed_operator_is_the_user_s(name: str) -> None:
    found = found_in(name)
    assert {tuple(each.key.values()) for each in found.heaviest} == {
        (customer,) for customer in model.aggregate()
    }
    assert all(each.size_bytes > 0 for each in found.heaviest)
