from __future__ import annotations

import json

import pytest

from holdfast.errors import Invalid
from holdfast_bench.skew.skew_bench import Sizes, Skew, skew
from holdfast_bench.skew.skew_process import Measured, measured_from, slowest_tasks
from holdfast_bench.skew.skew_sides import SIDES


def job(stages: list[int], **properties: str) -> str:
    return json.dumps({"Event": "SparkListenerJobStart", "Stage IDs": stages, "Properties": properties})


def task(stage: int, ms: int, read: int) -> str:
    metrics = {"Executor Run Time": ms, "Shuffle Read Metrics": {"Total Records Read": read}}
    return json.dumps({"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Metrics": metrics})


def batch(query: str, number: int) -> dict[str, str]:
    return {"sql.streaming.queryId": query, "streaming.sql.batchId": str(number)}


def test_the_slowest_task_is_found_for_each_batch() -> None:
    lines = [
        json.dumps({"Event": "SparkListenerApplicationStart"}),
        job([0, 1], **batch("one", 0)),
        task(0, 900, 0),
        task(1, 30, 10),
        task(1, 70, 5),
        job([2, 3], **batch("one", 1)),
        task(3, 40, 5),
        job([6], **batch("two", 1)),
        task(6, 60, 5),
        job([4], **{"spark.jobGroup.id": "run"}),
        task(4, 5, 1),
        job([5]),
        task(5, 1000, 1),
        json.dumps({"Event": "SparkListenerTaskEnd", "Stage ID": 3, "Task Metrics": None}),
    ]
    assert slowest_tasks(lines) == {"one 0": 900, "one 1": 40, "two 1": 60, "run": 5}


def test_sides_are_compared_by_their_medians_and_answers() -> None:
    plain = Measured((100, 120, 80), (90, 95, 60), (1, 1, 1), 10, 77)
    split = Measured((50, 40, 60), (20, 30, 10), (1, 1, 1), 10, 77)
    found = Skew(Sizes(), {"join": [plain], "join_split": [split]})
    ratios = found.as_dict()["ratios"]
    assert ratios == {"join: slowest task / of the split one": 4.5, "join: batch / of the split one": 2.0}
    assert found.identical
    (promise,) = found.as_dict()["promises"]
    assert (promise["at_least"], promise["holds"]) == (3, True)
    other = Measured((50,), (20,), (1,), 10, 78)
    assert not Skew(Sizes(), {"join": [plain], "join_split": [other]}).identical
    # Other events have other answers.
    assert Skew(Sizes(), {"join": [plain], "join_even": [other]}).identical


def test_sides_that_run_by_turns_are_compared_batch_by_batch() -> None:
    alone = Measured((100, 200, 400), (1, 1, 1), (50, 100, 200), 10, 77)
    split = Measured((102, 202, 500), (1, 1, 1), (51, 110, 206), 10, 77)
    found = Skew(Sizes(), {"join_even": [alone], "join_even_split": [split]})
    assert found.as_dict()["ratios"] == {
        "join without skew: split / not, time": 1.02,
        "join without skew: split / not, processor": 1.03,
    }
    assert [each["holds"] for each in found.as_dict()["promises"]] == [True, True]
    assert found.as_dict()["within"]["join without skew: split / not, time"] == [1.01, 1.25]
    assert found.identical


@pytest.mark.parametrize(
    ("took", "holds", "told"),
    [((101,) * 8, True, True), ((104,) * 8, False, True), ((100, 110) * 4, False, False)],
)
def test_a_promise_that_chance_decides_is_said_to_be_untold(
    took: tuple[int, ...], holds: bool, told: bool
) -> None:
    alone, split = (Measured(ms, ms, ms, 10, 77) for ms in ((100,) * 8, took))
    found = Skew(Sizes(), {"join_even": [alone], "join_even_split": [split]})
    assert {(each.holds, each.told) for each in found.results} == {(holds, told)}


def test_a_run_survives_json() -> None:
    run = Measured((1, 2), (3, 4), (7, 8), 5, 6)
    fields = {"ms": [1, 2], "slowest_ms": [3, 4], "processor_ms": [7, 8], "rows": 5, "content": 6}
    assert measured_from(fields) == run


def test_an_unknown_side_says_which_there_are() -> None:
    with pytest.raises(Invalid) as caught:
        skew(Sizes(), sides=["join", "salted"])
    assert caught.value.found == "salted"
    assert caught.value.expected == ", ".join(SIDES)
