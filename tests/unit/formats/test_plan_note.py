"""The note of a query's plans: which of them a batch ran under."""

from __future__ import annotations

import json

import pytest

from holdfast.errors import Corrupt
from holdfast.formats.logs.notes import PlanNote, PlanSink, PlanSource, PlanStep, QueryPlan, parse_note


def plan(condition: str) -> QueryPlan:
    return QueryPlan(
        sources=(PlanSource("0", "json", {"path": "/in"}, {"customer": "STRING"}),),
        steps=(PlanStep("Filter", condition, condition, stateful=False),),
        operators=("visits",),
        sink=PlanSink("parquet", "append", "/out"),
        trigger="every 1 minute",
    )


def test_a_note_reads_back() -> None:
    note = PlanNote().with_plan(plan("a > 1"), 0).with_plan(plan("a > 2"), 7)
    assert parse_note(note.render(), "plan.json") == note
    assert parse_note(note.render().encode(), "plan.json") == note


def test_each_batch_has_the_plan_that_it_ran_under() -> None:
    note = PlanNote().with_plan(plan("a > 1"), 3).with_plan(plan("a > 2"), 7)
    found = [note.at(batch_id) for batch_id in (2, 3, 6, 7, 20)]
    assert found == [None, plan("a > 1"), plan("a > 1"), plan("a > 2"), plan("a > 2")]


def test_a_start_that_ran_no_batch_says_nothing_of_those_before() -> None:
    note = PlanNote().with_plan(plan("right"), 0).with_plan(plan("wrong"), 5)
    # It failed, and the code was put right: the next start begins with the same batch.
    assert note.with_plan(plan("right"), 5) == PlanNote(((0, plan("right")),))
    assert note.with_plan(plan("third"), 5).at(5) == plan("third")


def test_the_same_plan_is_noted_once() -> None:
    note = PlanNote().with_plan(plan("a"), 0)
    assert note.with_plan(plan("a"), 9) == note


def test_old_plans_are_let_go() -> None:
    note = PlanNote()
    for number in range(30):
        note = note.with_plan(plan(f"a > {number}"), number)
    assert [first for first, _ in note.plans] == list(range(10, 30))


def test_a_note_of_another_version_tells_nothing() -> None:
    assert parse_note(json.dumps({"version": 2, "plans": "who knows"}), "plan.json") is None


@pytest.mark.parametrize("text", ["", "[]", '{"version":1}', '{"version":1,"plans":[{"from_batch":0}]}'])
def test_what_is_no_note_is_damaged(text: str) -> None:
    with pytest.raises(Corrupt, match="note of a plan"):
        parse_note(text, "plan.json")
