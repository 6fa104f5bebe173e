from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.engine.queries.skew_metric import SKETCH_ERROR, skew_in
from holdfast.engine.queries.watch import committed_batch
from holdfast.model import BatchProgress, HeavyKey


def item(hashed: int, *key: object) -> str:
    return json.dumps({"hash": hashed, "key": {f"k{at}": each for at, each in enumerate(key)}})


def metric(top: list[tuple[str | None, int]], **fields: Any) -> dict[str, Any]:
    about = {"name": "orders", "by": ["k0"], "every": 1, "heavy": 2}
    return {
        "top": [{"item": text, "count": count} for text, count in top],
        "rows": 100,
        "looked_at": 100,
        **fields,
        "about": json.dumps({**about, **fields.get("about", {})}),
    }


def progress(*operators: int, **metrics: Any) -> dict[str, Any]:
    return {
        "batchId": 7,
        "numInputRows": 100,
        "durationMs": {"addBatch": 5, "triggerExecution": 9},
        "stateOperators": [{"operatorName": "x", "numShufflePartitions": number} for number in operators],
        "observedMetrics": {f"holdfast-skew.{name}": values for name, values in metrics.items()},
    }


def test_heavy_keys_have_a_share_and_spark_s_partition() -> None:
    # A hash is signed; Spark's remainder is not.
    found = metric([(item(-1, "a"), 60), (item(6, None), 30), (item(1, "c"), 5)])
    (report,) = skew_in(progress(4, 4, orders=found))
    assert report.heavy == (HeavyKey(("a",), 60, 0.6, 3), HeavyKey((None,), 30, 0.3, 2))
    # What is left, a tenth, is taken as even.
    assert report.partitions == pytest.approx((0.025, 0.025, 0.325, 0.625))
    assert report.estimated
    assert (report.name, report.by, report.batch_id, report.error) == ("orders", ("k0",), 7, SKETCH_ERROR)


def test_partitions_that_are_not_known_are_left_out() -> None:
    found = metric([(item(-1, "a"), 60)])
    for operators in ((), (4, 8)):
        (report,) = skew_in(progress(*operators, orders=found))
        assert report.heavy[0].partition is None
        assert report.partitions == ()


def test_rows_that_were_not_looked_at_are_no_key() -> None:
    found = metric([(None, 900), (item(2, 5), 40)], rows=1000, looked_at=100, about={"every": 10})
    (report,) = skew_in(progress(orders=found))
    assert report.heavy == (HeavyKey((5,), 40, 0.4),)
    # Three standard deviations of a half, over a hundred rows.
    assert report.error == pytest.approx(0.15, abs=0.001)


def test_a_batch_without_rows_tells_nothing() -> None:
    assert skew_in(progress(orders=metric([], rows=0, looked_at=0))) == ()
    assert skew_in({"batchId": 1}) == ()
    (report,) = skew_in(progress(orders=metric([], rows=3, looked_at=0, about={"every": 64})))
    assert (report.heavy, report.error) == ((), 1.0)


def test_a_batch_carries_its_skew_through_json() -> None:
    found = progress(4, orders=metric([(item(-1, "a", 2.5), 60)], about={"by": ["k0", "k1"]}))
    batch = committed_batch("shop", found, now_ms=1)
    assert batch is not None
    assert batch.skew == skew_in(found)
    again = BatchProgress.from_dict(json.loads(json.dumps(batch.as_dict())))
    assert again == batch
    assert len(json.dumps(batch.as_dict())) < 1000


def test_a_batch_from_before_there_was_skew_can_be_read() -> None:
    batch = committed_batch("shop", progress(4), now_ms=1)
    assert batch is not None
    fields = batch.as_dict()
    del fields["skew"]
    assert BatchProgress.from_dict(fields) == batch
