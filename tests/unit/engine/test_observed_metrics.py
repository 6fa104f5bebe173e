from __future__ import annotations

from holdfast.engine.queries.skew_metric import observed_metrics


def test_rows_of_a_server_of_connect_get_their_names() -> None:
    inner = {"fields": [{"name": "item"}, {"name": "count"}]}
    schema = {"fields": [{"name": "top"}, {"name": "rows"}]}
    top = [{"values": ["a", 7], "schema": inner}, {"values": ["b", 6], "schema": inner}]
    progress = {"observedMetrics": {"m": {"values": [top, 13], "schema": schema}, "n": {"rows": 2}}}
    assert observed_metrics(progress) == {
        "m": {"top": [{"item": "a", "count": 7}, {"item": "b", "count": 6}], "rows": 13},
        "n": {"rows": 2},
    }
    assert observed_metrics({}) == {}
