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
