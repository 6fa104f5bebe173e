"""What keyed operators hold and do, in the numbers of a query: equal to a model, each under its own name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import counted_programs
import pytest
from counted_programs import (
    DELAY_MS,
    EVENTS,
    OUTPUT,
    START,
    Baskets,
    BasketsModel,
    Items,
    ItemsModel,
    program,
)
from keyed_runs import batches_read, read_stream, write_batch

import holdfast as hf
from holdfast.engine.queries.watch import committed_batch, keyed_order
from holdfast.engine.session.workers import ship_by_value
from holdfast.observe.files import look
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.model import BatchProgress, KeyedProgress

pytestmark = pytest.mark.spark
ship_by_value(counted_programs)


def two(spark: SparkSession, folder: Path) -> DataFrame:
    events = read_stream(spark, folder, EVENTS).withWatermark("ts", f"{DELAY_MS} milliseconds")
    baskets = hf.keyed(events, by="who", key_groups=3).process(Baskets(), output=OUTPUT, name="baskets")
    items = hf.keyed(events, by="item", key_groups=1).process(Items(), output=OUTPUT, name="items")
    return baskets.union(items)


def run(frame: DataFrame, checkpoint: Path) -> list[BatchProgress]:
    """Run what there is, and give the batches as a supervisor is told of them."""
    query = (
        frame.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress = [plain(each) for each in query.recentProgress]
    made = [committed_batch("q", each, 0, keyed_order(query, each)) for each in progress]
    return [each for each in made if each is not None]


def plain(progress: object) -> dict[str, object]:
    import json

    found: dict[str, object] = json.loads(progress.json)  # type: ignore[attr-defined]
    return found


def of(batch: BatchProgress, name: str) -> KeyedProgress:
    (found,) = (each.keyed for each in batch.operators if each.keyed is not None and each.keyed.name == name)
    return found


def test_two_operators_are_counted_as_a_model_counts_them_over_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = program(7, batches=8, events=25)
    # Two quiet batches in the end: an operator cleans up what has expired when it writes a new base.
    quiet = {"who": "z", "item": "z", "op": "take", "n": 1}
    files += [[{**quiet, "ts": START + 500_000 + number * 1000}] for number in range(4)]
    batches: list[BatchProgress] = []
    for number, events in enumerate(files):
        write_batch(tmp_path / "in", number, events)
        if number in (3, 6, len(files) - 1):
            batches += run(two(spark, tmp_path / "in"), tmp_path / "checkpoint")
    model, items, added = BasketsModel(), ItemsModel(), 0
    read = batches_read(tmp_path / "checkpoint", files)
    for batch, (_, watermark, events) in zip(batches, read, strict=True):
        wanted = model.batch(watermark, events)
        baskets = of(batch, "baskets")
        entries = {each.name: each.entries for each in baskets.states}
        assert {"keys": baskets.keys, "timers": baskets.timers, **entries} == wanted
        assert tuple(each.name for each in batch.operators) == ("baskets", "items")
        items.batch(watermark, events)
        added += of(batch, "items").added - of(batch, "items").removed
        assert of(batch, "items").keys == added
    last = of(batches[-1], "items")
    assert items.expired > 20
    assert sum(of(each, "items").expired for each in batches) == items.expired
    assert (last.keys, last.timers, last.states[0].entries) == (len(items.seen), 0, len(items.seen))


def test_operators_one_after_the_other_go_by_their_names(spark: SparkSession, tmp_path: Path) -> None:
    """Seven customers, thirty items at most: who has which number is told by the plan alone."""
    events = program(11, batches=1, events=60)[0]
    write_batch(tmp_path / "in", 0, [{**each, "op": "add"} for each in events])
    stream = read_stream(spark, tmp_path / "in", EVENTS)
    first = hf.keyed(stream, by="who").process(Baskets(), output=OUTPUT, name="first", ticks=False)
    again = first.selectExpr(
        "name AS who",
        "if(name IS NULL, name, 'i') AS item",
        "'add' AS op",
        "n",
        "timestamp'2026-01-01' AS ts",
    )
    second = hf.keyed(again, by="item").process(Baskets(), output=OUTPUT, name="second", ticks=False)
    (batch,) = run(second, tmp_path / "checkpoint")
    customers = len({each["who"] for each in events})
    assert {each.name: each.rows for each in batch.operators} == {"second": 1, "first": customers}
    found = look(LocalStorage(tmp_path / "checkpoint"), 0)
    # Without a note of the plan nobody can tell which of two is which from the files alone.
    assert {each.operator for each in found.stores} == {"0 operator-0", "1 operator-1"}
