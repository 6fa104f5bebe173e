"""What the progress of a query says of keyed operators, and what it does not."""

from __future__ import annotations

from typing import Any

from holdfast.engine.queries.watch import committed_batch, keyed_names_in
from holdfast.model import BatchProgress

PLAN = """
Union false, false
:- Project [rows#1]
:  +- CollectMetrics holdfast.visits, [sum(counts#2) AS events#3L], 12
:     +- TransformWithStateInPySpark call(key_group#4L), 1
:        +- CollectMetrics mine, [count(1) AS n#5L], 7
+- Project [rows#6]
   +- TransformWithStateInPySpark theirs(who#7), 1
      +- CollectMetrics holdfast.items-2, [sum(counts#8) AS events#9L], 13
         +- TransformWithStateInPySpark call(key_group#10L), 1
"""
COUNTS = {
    "events": 9,
    "late": 1,
    "keys": 4,
    "keys_added": 3,
    "keys_removed": 1,
    "keys_written": 4,
    "read_us": 2_000,
    "write_us": 6_000,
    "total_keys": 12,
    "total_timers": 2,
    "total_bytes": 4_096,
    "uncounted_groups": 0,
    "state.n.expired": 5,
    "state.n.entries": 11,
    "state.n.bytes": 88,
}


def progress(*operators: str, **metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        "batchId": 3,
        "durationMs": {"addBatch": 5, "triggerExecution": 9},
        "stateOperators": [
            {"operatorName": name, "numRowsTotal": 128, "numRowsUpdated": 77} for name in operators
        ],
        "observedMetrics": {f"holdfast.{name}": {"counts": counts} for name, counts in metrics.items()},
    }


def test_a_plan_tells_which_operators_are_ours() -> None:
    assert keyed_names_in(PLAN) == ("visits", None, "items-2")


def test_an_operator_has_its_users_name_and_rows_that_are_keys() -> None:
    tws = "transformWithStateInPySparkExec"
    told = progress(tws, "dedupe", tws, visits=COUNTS, items={**COUNTS, "total_keys": 30})
    made = committed_batch("q", told, 0, ("items", "visits"))
    assert made is not None
    assert [(each.name, each.rows, each.updated, each.removed) for each in made.operators] == [
        ("items", 30, 4, 1),
        ("dedupe", 128, 77, 0),
        ("visits", 12, 4, 1),
    ]
    keyed = made.operators[2].keyed
    assert keyed is not None
    assert (keyed.timers, keyed.expired, keyed.size_bytes, keyed.late) == (2, 5, 4_096, 1)
    assert [(each.name, each.entries, each.size_bytes, each.expired) for each in keyed.states] == [
        ("n", 11, 88, 5)
    ]
    assert made.operators[2].spark_name == tws
    assert BatchProgress.from_dict(made.as_dict()) == made


def test_what_an_older_checkpoint_does_not_tell_is_unknown_and_not_0() -> None:
    for counts in ({**COUNTS, "uncounted_groups": 2}, {"events": 9, "keys": 4}):
        made = committed_batch("q", progress("transformWithState", visits=counts), 0)
        assert made is not None
        (operator,) = made.operators
        assert (operator.name, operator.rows, made.state_rows) == ("visits", None, None)
        assert operator.keyed is not None
        assert operator.keyed.timers is None
        assert all(each.entries is None for each in operator.keyed.states)


def test_two_operators_that_nothing_tells_apart_are_left_as_spark_has_them() -> None:
    made = committed_batch("q", progress("transformWithState", "transformWithState", a=COUNTS, b=COUNTS), 0)
    assert made is not None
    assert [(each.name, each.rows, each.keyed) for each in made.operators] == [
        ("transformWithState", 128, None)
    ] * 2
