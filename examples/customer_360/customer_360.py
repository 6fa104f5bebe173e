"""One row per customer from three topics: profiles, orders and support tickets.

    holdfast run customer_360.py                                  # the files in data/
    holdfast run customer_360.py --set servers=broker:9092        # topics of Kafka

The three streams meet in one keyed state, so no row waits for a match: each batch updates the rows of the
customers that it has events of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPICS = {
    "profiles": "customer string, name string, city string, version long",
    "orders": "customer string, order_id string, amount double",
    "tickets": "customer string, ticket string, open boolean",
}
CUSTOMERS = "customer string, name string, city string, orders long, spent double, open_tickets long"


class Customer(hf.Keyed):
    """Per customer: the newest profile, totals of orders, and the tickets that are open."""

    profile: hf.State[Any] = hf.value("struct<name: string, city: string, version: long>")
    orders: hf.State[int] = hf.value(int, default=0)
    spent: hf.State[float] = hf.value(float, default=0.0)
    tickets: hf.State[hf.MapState[str, bool]] = hf.map(str, bool)

    def on_profiles(self, event: hf.Event, state: Customer, ctx: hf.Context) -> None:
        """Keep the newest profile, whatever the order of arrival."""
        if state.profile is None or event.version > state.profile.version:
            state.profile = (event.name, event.city, event.version)

    def on_orders(self, event: hf.Event, state: Customer, ctx: hf.Context) -> None:
        """Add an order."""
        state.orders += 1
        state.spent += event.amount

    def on_tickets(self, event: hf.Event, state: Customer, ctx: hf.Context) -> None:
        """Open or close a ticket."""
        if event.open:
            state.tickets[event.ticket] = True
        else:
            state.tickets.pop(event.ticket, None)

    def on_end(
        self, state: Customer, ctx: hf.Context
    ) -> Iterator[tuple[str, str | None, str | None, int, float, int]]:
        """Report a customer once a batch."""
        known = state.profile
        name, city = (None, None) if known is None else (known.name, known.city)
        yield ctx.key.customer, name, city, state.orders, state.spent, len(state.tickets)


def topic(spark: SparkSession, name: str, data: str, servers: str) -> DataFrame:
    """Return a topic of Kafka, or without servers the files of a directory."""
    if not servers:
        return spark.readStream.schema(TOPICS[name]).json(f"{data}/{name}")
    from pyspark.sql.functions import col, from_json

    records = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    records = records.option("subscribe", name).option("startingOffsets", "earliest")
    value = col("value").cast("string")
    return records.load().select(from_json(value, TOPICS[name]).alias("row")).select("row.*")


@hf.job(name="customer-360", checkpoint="checkpoint", trigger=hf.available_now(), extras=["kafka"])
def customer_360(spark: SparkSession, data: str = "data", servers: str = "") -> hf.Sink:
    """Connect the three streams by customer."""
    profiles, orders, tickets = (topic(spark, name, data, servers) for name in TOPICS)
    customers = (
        hf.keyed(profiles, by="customer", name="profiles")
        .connect(orders, by="customer", name="orders")
        .connect(tickets, by="customer", name="tickets")
        .process(Customer(), output=CUSTOMERS, name="customer")
    )
    return hf.sink(customers, name="customers").upsert("customers", keys=["customer"], ledger="customers.db")
