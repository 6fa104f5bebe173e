"""Late rows, counted from a progress."""

from __future__ import annotations

from holdfast.stream.late import late_rows


def test_operators_add_up() -> None:
    progress = {"stateOperators": [{"numRowsDroppedByWatermark": 3}, {"numRowsDroppedByWatermark": 4}]}
    assert late_rows(progress) == 7


def test_a_query_without_state_drops_nothing() -> None:
    assert late_rows({"stateOperators": []}) == 0
    assert late_rows({}) == 0


def test_an_operator_that_does_not_count_adds_nothing() -> None:
    assert late_rows({"stateOperators": [{"numRowsTotal": 5}]}) == 0


def test_keyed_operators_count_their_late_events_in_a_metric() -> None:
    metrics = {
        "holdfast.visits": {"counts": {"late": 2, "events": 9}},
        "holdfast.empty": {"counts": {"late": None}},
        "mine": {"late": 5},
    }
    assert late_rows({"stateOperators": [{"numRowsDroppedByWatermark": 1}], "observedMetrics": metrics}) == 3
