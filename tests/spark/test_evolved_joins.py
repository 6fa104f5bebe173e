"""New code of a join goes on with the waiting rows of the old: every row put out is that of a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grid import WHOLE
from grid_runs import PARTITIONS_KEY, PROVIDERS
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import holdfast as hf
from holdfast import checkpoints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("guards_wait_no_time")]

JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
START = datetime(2026, 3, 5, 8, tzinfo=timezone.utc)
NEAR = timedelta(minutes=1)
Event = dict[str, Any]


def event(number: int, minute: float, **more: Any) -> Event:
    at = (START + timedelta(minutes=minute)).isoformat()
    return {"id": number, "customer": f"c{number % 4}", "at": at, **more}


class Shop:
    """Orders and payments in files, and what the join of both puts out."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.files = spark, folder, 0
        self.orders: list[Event] = []
        self.payments: list[Event] = []

    def add(self, orders: Iterable[Event], payments: Iterable[Event]) -> None:
        for side, rows in (("orders", list(orders)), ("payments", list(payments))):
            getattr(self, side).extend(rows)
            (self.folder / side).mkdir(exist_ok=True)
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (self.folder / side / f"{self.files}.json").write_text(text)
        self.files += 1

    def joined(self, order: str, payment: str) -> DataFrame:
        """The join, with columns of orders and payments besides customer, id and time."""
        left = self.spark.readStream.schema(f"id long, customer string, at timestamp, {order}")
        right = self.spark.readStream.schema(f"id long, customer string, at timestamp, {payment}")
        orders = left.json(str(self.folder / "orders")).withWatermark("at", "10 minutes")
        payments = right.json(str(self.folder / "payments")).withWatermark("at", "10 minutes")
        for name in ("id", "customer", "at"):
            payments = payments.withColumnRenamed(name, f"paid_{name}")
        near = F.expr(
            "customer = paid_customer and paid_at between at - interval 1 minute and at + interval 1 minute"
        )
        return orders.join(payments, near, "left_outer")

    def run(self, frame: DataFrame, checkpoint: str) -> list[Event]:
        found: list[Event] = []

        def keep(rows: DataFrame, _: int) -> None:
            found.extend(row.asDict() for row in rows.collect())

        writer = frame.writeStream.foreachBatch(keep).option(
            "checkpointLocation", str(self.folder / checkpoint)
        )
        writer.trigger(availableNow=True).start().awaitTermination()
        return found

    def matches(self) -> set[tuple[int, int]]:
        """The orders with their payments, among all events so far."""
        time = datetime.fromisoformat
        return {
            (order["id"], payment["id"])
            for order in self.orders
            for payment in self.payments
            if order["customer"] == payment["customer"]
            and abs(time(order["at"]) - time(payment["at"])) <= NEAR
        }


FORMATS = [("2", "2"), ("2", "3"), ("3", "3"), ("3", "2")]
CASES = [
    (place, *formats) for place in PROVIDERS for formats in FORMATS if "3" not in formats or place != "memory"
]


@pytest.mark.parametrize(("place", "join_format", "new_format"), CASES if WHOLE else [("rocksdb2", "2", "3")])
def test_columns_of_both_sides_change(
    spark: SparkSession,
    tmp_path: Path,
    settings: Callable[[dict[str, str]], None],
    place: str,
    join_format: str,
    new_format: str,
) -> None:
    settings({**PROVIDERS[place], PARTITIONS_KEY: "2" if WHOLE else "1", JOIN_FORMAT: join_format})
    shop = Shop(spark, tmp_path)
    shop.add(
        [event(number, number, shop=f"s{number}", amount=number * 10) for number in range(8)],
        [event(number, number + 0.5, cents=number) for number in range(4)],
    )
    old = shop.joined("shop string, amount int", "cents int")
    first = shop.run(old, "old")
    before = shop.matches()
    assert {(row["id"], row["paid_id"]) for row in first} == before
    # Orders lose the shop, have an amount of another type and a note; payments have a currency.
    new = shop.joined("note string, amount long", "currency string, cents int")
    done = hf.evolve(
        tmp_path / "old",
        tmp_path / "new",
        to=new.writeStream,
        initial={"left.note": "none", "right.currency": None},
        conf={JOIN_FORMAT: new_format},
        master="local[2]" if new_format == "3" else None,
        spark=spark,
        stopped=True,
    )
    assert done.rows == sum(state.rows for state in done.before) > 0
    pinned = checkpoints.read(tmp_path / "new").confs
    assert pinned[JOIN_FORMAT] == new_format
    # Payments for orders that wait, orders for payments that wait, and both of now.
    shop.add(
        [event(number + 100, number + 0.75, note="now", amount=2**40) for number in range(12)],
        [event(number + 100, number + 0.25, cents=7, currency="EUR") for number in range(6, 12)],
    )
    second = shop.run(new, "new")
    assert len(second) == len({(row["id"], row["paid_id"]) for row in second})
    assert {(row["id"], row["paid_id"]) for row in second} == shop.matches() - before != set()
    # Far later, each order that never met a payment comes out once, and none that met one before the change.
    late = [event(1_000, 600, note="late", amount=1)]
    shop.add(late, [event(1_000, 600, cents=1, currency="EUR")])
    third = shop.run(new, "new")
    met = {order for order, _ in shop.matches()}
    unmet = {row["id"] for row in shop.orders} - met
    assert {row["id"] for row in third if row["paid_id"] is None} == unmet != set()
    for row in [*second, *third]:
        number, paid = row["id"], row["paid_id"]
        assert row["note"] == ("none" if number < 100 else "late" if number == 1_000 else "now")
        assert row["amount"] == (number * 10 if number < 100 else 1 if number == 1_000 else 2**40)
        assert row["currency"] == (None if paid is None or paid < 100 else "EUR")
    assert checkpoints.verify(tmp_path / "new").ok


@pytest.mark.skipif(not WHOLE, reason="HOLDFAST_GRID=all runs it")
def test_another_key_is_refused(
    spark: SparkSession, tmp_path: Path, settings: Callable[[dict[str, str]], None]
) -> None:
    settings({**PROVIDERS["rocksdb2"], PARTITIONS_KEY: "2"})
    shop = Shop(spark, tmp_path)
    shop.add([event(1, 1, amount=1)], [event(1, 1, cents=1)])
    shop.run(shop.joined("amount int", "cents int"), "old")
    new = shop.joined("amount int", "cents int").where("true")
    changed = new.sparkSession.readStream.schema("id long, at timestamp").json(str(tmp_path / "orders"))
    other = shop.spark.readStream.schema("id long, at timestamp").json(str(tmp_path / "payments"))
    other = other.selectExpr("id as paid_id", "at as paid_at")
    keyed = changed.withWatermark("at", "10 minutes").join(
        other.withWatermark("paid_at", "10 minutes"), F.expr("id = paid_id and paid_at >= at"), "inner"
    )
    with pytest.raises(hf.Unsupported, match="key of a join cannot be changed"):
        hf.evolve(tmp_path / "old", tmp_path / "new", to=keyed.writeStream, spark=spark, stopped=True)
    assert not (tmp_path / "new").exists()
