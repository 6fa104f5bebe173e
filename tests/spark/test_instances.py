"""Operator state in Spark: instances, their number, and what is handed out when it changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from instance_programs import EVENTS, OUTPUT, Holds
from keyed_runs import START, read_stream, run, write_batch
from rescaled import rescale

import holdfast as hf
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def ship() -> None:
    import instance_programs

    ship_by_value(instance_programs)


ship()


class Shop:
    """Batches of numbers, an operator that keeps them, and what it tells."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.written = 0
        (folder / "in").mkdir()

    def send(self, *numbers: int) -> None:
        write_batch(self.folder / "in", self.written, [{"n": n, "ts": START} for n in numbers])
        self.written += 1

    def frame(self, instances: int, by: str | tuple[str, ...] = ()) -> DataFrame:
        events = read_stream(self.spark, self.folder / "in", EVENTS)
        stream = hf.operate(events, instances=instances, by=by)
        return stream.process(Holds(), output=OUTPUT, name="holds")

    def run(self, instances: int) -> dict[int, tuple[list[int], list[int]]]:
        """What the instances tell, in a run of its own."""
        told: dict[int, tuple[list[int], list[int]]] = {}

        def take(batch: DataFrame, _batch_id: int) -> None:
            told.update({row["instance"]: (row["items"], row["seen"]) for row in batch.collect()})

        made = hf.sink(self.frame(instances), mode="append").foreach_batch(take)
        query = made.start(checkpoint=str(self.folder / "checkpoint"), trigger=hf.available_now())
        query.awaitTermination()
        return dict(sorted(told.items()))

    def ask(self, instances: int) -> dict[int, tuple[list[int], list[int]]]:
        self.send(*[-1] * instances)
        return self.run(instances)


def test_lists_are_split_evenly_and_union_lists_given_whole_also_after_a_rescale(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(spark, tmp_path)
    shop.send(*range(5))
    shop.send(5, 6)
    assert shop.ask(2) == {0: ([0, 2, 4, 5], [0, 2, 4, 5]), 1: ([1, 3, 6], [1, 3, 6])}
    everything = list(range(7))
    more = shop.ask(4)
    assert [len(items) for items, _ in more.values()] == [1, 2, 2, 2]
    assert sorted(n for items, _ in more.values() for n in items) == everything
    assert all(seen == everything for _, seen in more.values())
    assert shop.run(4) == {}  # nothing is handed out twice
    rescale(spark, tmp_path / "checkpoint", 3)
    assert shop.ask(4) == more
    fewer = shop.ask(1)
    assert fewer[0][0] == everything
    assert Counter(fewer[0][1]) == Counter(everything * 4)
    # What the instances had that are gone does not come back with them.
    assert sorted(n for items, _ in shop.ask(3).values() for n in items) == everything


def test_a_number_that_changes_before_the_first_batch_is_no_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop(spark, tmp_path)
    assert shop.run(2) == {}
    assert shop.run(3) == {}
    shop.send(1, 2, 3)
    assert shop.ask(3) == {0: ([1], [1]), 1: ([2], [2]), 2: ([3], [3])}


def test_a_query_that_spark_started_is_ended_before_it_commits(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path)
    shop.send(1, 2, 3)
    shop.run(2)
    shop.send(4)
    committed = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    with pytest.raises(Exception, match="number of instances changed"):
        run(shop.frame(3), tmp_path / "checkpoint")
    assert sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*")) == committed
    found = shop.ask(3)
    assert sorted(n for items, _ in found.values() for n in items) == [1, 2, 3, 4]


def test_what_is_no_operator_is_refused_at_once(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path)
    events = read_stream(spark, tmp_path / "in", EVENTS)
    with pytest.raises(Invalid, match="instances"):
        hf.operate(events, instances=129)
    with pytest.raises(Invalid, match="has no column"):
        shop.frame(2, by="shop")
    with pytest.raises(Invalid, match="a column has a name that Holdfast reserves"):
        hf.operate(events.withColumnRenamed("n", "instance"), instances=2)
    with pytest.raises(Invalid, match="cannot process a keyed stream"):
        hf.keyed(events, by="n").process(Holds(), output=OUTPUT, name="holds")
    with pytest.raises(Invalid, match="cannot process the instances"):
        hf.operate(events, instances=2).process(OfKeys(), output=OUTPUT, name="holds")
    with pytest.raises(Invalid, match="not a stream"):
        hf.operate(spark.createDataFrame([(1,)], "n long"), instances=2)


class OfKeys(hf.Keyed):
    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        pass
