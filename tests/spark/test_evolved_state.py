"""New code of a query goes on with the state of the old: every number is that of a model in plain Python."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grid import WHOLE
from grid_runs import PARTITIONS_KEY, PROVIDERS
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import holdfast as hf
from holdfast import checkpoints
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("guards_wait_no_time")]
ship_by_value(sys.modules[__name__])

VERSION = "spark.sql.streaming.aggregation.stateFormatVersion"
# Spark looks at the checksum of every row that it reads.
LOOK = {"spark.sql.streaming.stateStore.rowChecksum.readVerificationRatio": "1"}
Event = dict[str, Any]


def events(start: int, count: int) -> list[Event]:
    """Orders of a few customers in a few shops: a third comes twice, and two of each serial number."""
    ids = [number - number % 3 // 2 for number in range(start, start + count)]
    return [order(order_id) for order_id in ids]


def order(order_id: int) -> Event:
    """Orders of one serial number are alike, so that it does not matter which of them is dropped."""
    serial = order_id // 2
    return {
        "id": order_id,
        "serial": serial,
        "customer": f"c{serial * 7 % 5}",
        "shop": f"s{serial * 5 % 3}",
        "amount": serial * 13 % 11 - 4,
        "at": f"2026-03-05T08:{serial % 60:02d}:00Z",
    }


def write(folder: Path, number: int, rows: Iterable[Event]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))


class Query:
    """A query over the same files in its old and its new form, with what it puts out."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.files = 0

    def source(self, amount: str = "int", customer: str = "customer") -> DataFrame:
        schema = f"id long, serial long, customer string, shop string, amount {amount}, at timestamp"
        read = self.spark.readStream.schema(schema).json(str(self.folder / "in"))
        return read.withColumnRenamed("customer", customer)

    def add(self, rows: Iterable[Event]) -> None:
        write(self.folder / "in", self.files, rows)
        self.files += 1

    def run(self, frame: DataFrame, checkpoint: str, mode: str = "update") -> dict[tuple[Any, ...], Event]:
        """The last row of each key that a run puts out."""
        found: dict[tuple[Any, ...], Event] = {}
        keys = [name for name in frame.columns if name in ("customer", "who", "shop", "id", "region")]

        def take(batch: DataFrame, _: int) -> None:
            for row in batch.collect():
                found[tuple(row[key] for key in keys)] = row.asDict()

        writer = frame.writeStream.foreachBatch(take).outputMode(mode)
        place = str(self.folder / checkpoint)
        writer.option("checkpointLocation", place).trigger(availableNow=True).start().awaitTermination()
        return found


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


PLACES = list(PROVIDERS) if WHOLE else ["rocksdb2"]
FORMS = ["2", "1"] if WHOLE else ["2"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
def test_many_changes_in_one_query(
    query: Query, settings: Callable[[dict[str, str]], None], place: str, form: str
) -> None:
    settings({**PROVIDERS[place], **LOOK, PARTITIONS_KEY: "2", VERSION: form})
    before, after = events(0, 30), events(27, 30)
    query.add(before)
    old = (
        query.source()
        .dropDuplicates(["id"])
        .groupBy("customer", "shop")
        .agg(
            F.count("*").alias("n"),
            F.sum("amount").alias("total"),
            F.max("amount").alias("largest"),
            F.avg("amount").alias("mean"),
        )
    )
    query.run(old, "old")
    # An operator is inserted, another moves; a key is renamed, another goes; aggregates go, come and widen.
    new = (
        query.source("long", customer="who")
        .dropDuplicates(["id"])
        .dropDuplicates(["serial"])
        .groupBy("who")
        .agg(
            F.max("amount").alias("largest"),
            F.min("amount").alias("smallest"),
            F.count("*").alias("orders"),
            F.count("shop").alias("seen"),
            F.sum("amount").alias("total"),
        )
    )
    wanted: dict[str, Any] = {
        "to": new.writeStream.outputMode("update"),
        "old": old.writeStream.outputMode("update"),
        "rename": {"customer": "who"},
        "initial": {"seen": 100},
    }
    with pytest.raises(Invalid, match="rows get the same key") as refused:
        hf.evolve(query.folder / "old", query.folder / "new", **wanted, stopped=True)
    pairs = {(event["customer"], event["shop"]) for event in before}
    shared = len(pairs) - len({customer for customer, _ in pairs})
    assert f"{shared} rows with the key of another one without shop" in str(refused.value.found)
    assert not (query.folder / "new").exists()
    plan = hf.plan_evolve(query.folder / "old", query.folder / "new", **wanted, merge=True)
    told = [(each.change, each.before, each.after) for each in plan.operators]
    assert told == [
        ("changed", "0 aggregate by (customer string, shop string)", "0 aggregate by (who string)"),
        ("inserted", None, "1 dedupe_1 by (serial long)"),
        ("kept", "1 dedupe by (id long)", "2 dedupe_2 by (id long)"),
    ]
    columns = {each.column: (each.change, each.initial) for each in plan.operators[0].columns}
    assert columns == {
        "who": ("renamed", None),
        "largest": ("widened", None),
        "smallest": ("new", "null"),
        "orders": ("renamed", None),
        "seen": ("new", "100"),
        "total": ("kept", None),
        "shop": ("dropped", None),
        "mean.sum": ("dropped", None),
        "mean.count": ("dropped", None),
    }
    made = hf.evolve(query.folder / "old", query.folder / "new", **wanted, merge=True, stopped=True)
    assert made.merged == shared
    assert checkpoints.verify(query.folder / "new").problems == ()

    query.add(after)
    put_out = query.run(new, "new")
    assert put_out == model(before, after)
    [aggregate, serials, ids] = checkpoints.read(query.folder / "new").operators
    assert [aggregate.partitions, serials.name, ids.name] == [2, "dedupe", "dedupe"]


def model(before: list[Event], after: list[Event]) -> dict[tuple[Any, ...], Event]:
    ids = {event["id"] for event in before}
    kept: dict[str, list[Event]] = {}
    for event in {event["id"]: event for event in reversed(before)}.values():
        kept.setdefault(event["customer"], []).append(event)
    serials: set[int] = set()
    new: dict[str, list[Event]] = {}
    for event in after:
        if event["id"] not in ids and event["serial"] not in serials:
            ids.add(event["id"])
            serials.add(event["serial"])
            new.setdefault(event["customer"], []).append(event)
    return {
        (who,): {
            "who": who,
            "largest": max(event["amount"] for event in [*kept.get(who, []), *came]),
            "smallest": min(event["amount"] for event in came),
            "orders": len(kept.get(who, [])) + len(came),
            "seen": (100 if who in kept else 0) + len(came),
            "total": sum(event["amount"] for event in [*kept.get(who, []), *came]),
        }
        for who, came in new.items()
    }
