"""Hot keys in Spark: their events are taken together before the shuffle, with the same outcome."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from keyed_runs import START, read_stream, run, write_batch
from split_programs import EVENTS, OUTPUT, Basket, Dated, batches, by_length, expected

import holdfast as hf
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def ship() -> None:
    import split_programs

    ship_by_value(split_programs)


ship()


@pytest.mark.parametrize("hot", [None, ["ann", None]])
def test_random_events_with_a_hot_key_and_restarts_agree_with_the_model(
    spark: SparkSession, tmp_path: Path, hot: Any
) -> None:
    made = [batch for batch in batches(11, count=9, size=300, start=START) if batch]
    found: dict[int, set[Any]] = {}
    for number, batch in enumerate(made):
        write_batch(tmp_path / "events", number, batch)
        if number % 4 != 3 and number != len(made) - 1:
            continue
        # What is split may change with every start, and so may whether anything is.
        stream = hf.keyed(
            read_stream(spark, tmp_path / "events", EVENTS), by="who", key_groups=8, placement=by_length
        )
        if number != 7:
            stream = stream.split_hot(hot)
        frame = stream.process(Basket(), output=OUTPUT, name="basket")
        for batch_id, row in run(frame, tmp_path / "checkpoint"):
            found.setdefault(batch_id, set()).add(tuple(row.values()))
    assert [found[batch_id] for batch_id in sorted(found)] == expected(made)


def test_before_the_shuffle_the_batch_s_time_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        write_batch(tmp_path / "events", number, [{"who": who, "ts": START} for who in ("ann", "bob")])
    stream = hf.keyed(read_stream(spark, tmp_path / "events", EVENTS), by="who").split_hot(["ann"])
    frame = stream.process(Dated(), output="who string, parts long, same boolean", name="dated")
    found = [tuple(row.values()) for _, row in run(frame, tmp_path / "checkpoint")]
    assert sorted(found) == [("ann", 1, True)] * 2 + [("bob", 0, True)] * 2


def test_what_cannot_be_split_or_placed_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    stream = read_stream(spark, tmp_path / "events", EVENTS)
    keyed = hf.keyed(stream, by="who")
    with pytest.raises(Invalid, match="does not support connected streams"):
        keyed.connect(stream, by="who", name="more").split_hot()
    with pytest.raises(Invalid, match="share is out of range"):
        keyed.split_hot(share=0)
    with pytest.raises(Invalid, match="split_hot"):
        keyed.split_hot([3]).process(Basket(), output=OUTPUT, name="basket")
    with pytest.raises(Invalid, match="placement= is not a function"):
        hf.keyed(stream, by="who", placement=3)  # type: ignore[arg-type]
