"""The queries of `holdfast bench operators`, each written twice, and the streams that they read."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.stream import key_skew
from holdfast.stream.dedupe import dedupe
from holdfast.stream.joins import enrich, join_within
from holdfast.stream.keyed.keyed_stream import keyed
from holdfast.stream.windows import windowed
from holdfast_bench.skew.skew_processors import OUTPUT, Spend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOINS = {
    "inner": "inner",
    "left": "left_outer",
    "right": "right_outer",
    "full": "full_outer",
    "semi": "left_semi",
}
# A look at the keys of a stream on its way: before a windowed sum, which needs no split of hot keys since
# Spark sums before the shuffle, and before what has to move every row.
WATCHED = ("watched", "watched_keyed", "watched_join")
NAMES = (
    "control",
    *WATCHED,
    "tumbling",
    "sliding",
    "session",
    "dedupe",
    "enrich",
    *(f"join_{kind}" for kind in JOINS),
)

_USERS = 50_000
_BATCH_S = 600
_DISORDER_S = 60
_LATE = "2 minutes"
_EPOCH_US = 1_767_225_600_000_000  # 2026-01-01; the times only have to be plausible
_SCHEMAS = {
    "orders": "order_id long, user long, amount double, ts timestamp",
    "payments": "order_id long, paid double, paid_at timestamp",
}


@dataclass(frozen=True, slots=True)
class Streams:
    """What the queries read: a file a batch."""

    spark: SparkSession
    folder: Path

    def read(self, name: str) -> DataFrame:
        """A stream."""
        reader = self.spark.readStream.schema(_SCHEMAS[name]).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder / name))

    def users(self) -> DataFrame:
        """A table at rest."""
        return self.spark.read.parquet(str(self.folder / "users"))


def write(folder: Path, rows: int, batches: int, seed: int = 1) -> None:
    """Write the streams: orders of users in slight disorder, a payment for most of them soon after."""
    chance = np.random.default_rng(seed)
    for name in ("orders", "payments", "users"):
        (folder / name).mkdir()
    ids = pa.array(np.arange(_USERS))
    pq.write_table(
        pa.table({"user": ids, "city": pa.array(np.arange(_USERS) % 100)}), folder / "users" / "0.parquet"
    )
    for number in range(batches):
        order = np.arange(rows) + number * rows
        at = number * _BATCH_S + np.sort(chance.integers(0, _BATCH_S, rows))
        at = np.maximum(at - chance.integers(0, _DISORDER_S, rows), 0)
        orders = {
            "order_id": order,
            "user": chance.integers(0, _USERS, rows),
            "amount": np.round(chance.random(rows) * 10, 2),
            "ts": _times(at),
        }
        paid = chance.random(rows) < 0.9
        payments = {
            "order_id": order[paid],
            "paid": orders["amount"][paid],
            "paid_at": _times(at[paid] + chance.integers(0, _DISORDER_S, int(paid.sum()))),
        }
        for name, table in (("orders", orders), ("payments", payments)):
            path = folder / name / f"{number:05}.parquet"
            pq.write_table(pa.table(table), path)
            # Spark reads files in the order of their times.
            os.utime(path, (_EPOCH_US // 1_000_000 + number,) * 2)


def _times(seconds: Any) -> pa.Array:
    return pa.array(_EPOCH_US + seconds * 1_000_000).cast(pa.timestamp("us", "UTC"))


def pairs(streams: Streams) -> dict[str, Callable[[], tuple[DataFrame, DataFrame]]]:
    """What makes each query, in Holdfast's words and by hand."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    orders, payments, users = streams.read("orders"), streams.read("payments"), streams.users()
    marked = orders.withWatermark("ts", _LATE)
    sums = [F.count("*").alias("orders"), F.sum("amount").alias("spent")]

    def by_hand(window: Any, name: str) -> DataFrame:
        counted = marked.groupBy(window, "user").agg(*sums)
        ends = [F.col(f"{name}.start").alias("window_start"), F.col(f"{name}.end").alias("window_end")]
        return counted.select(*ends, "user", "orders", "spent")

    def ours(events: DataFrame = orders, **how: Any) -> DataFrame:
        return windowed(events, time="ts", by="user", watermark=_LATE, **how).agg(*sums)

    def tumbling_by_hand() -> DataFrame:
        return by_hand(F.window("ts", "10 minutes"), "window")

    def joins(kind: str) -> tuple[DataFrame, DataFrame]:
        return _joined(orders, payments, kind), _joined_by_hand(marked, payments, kind, JOINS[kind])

    return {
        "control": lambda: (tumbling_by_hand(),) * 2,
        "watched": lambda: (ours(watched(orders, "user"), size="10 minutes"), ours(size="10 minutes")),
        "watched_keyed": lambda: (_keyed(watched(orders, "user")), _keyed(orders)),
        "watched_join": lambda: (
            _joined(watched(orders, "order_id"), payments, "inner"),
            _joined(orders, payments, "inner"),
        ),
        "tumbling": lambda: (ours(size="10 minutes"), tumbling_by_hand()),
        "sliding": lambda: (
            ours(size="10 minutes", slide="5 minutes"),
            by_hand(F.window("ts", "10 minutes", "5 minutes"), "window"),
        ),
        "session": lambda: (
            ours(gap="2 minutes"),
            by_hand(F.session_window("ts", "2 minutes"), "session_window"),
        ),
        "dedupe": lambda: (
            dedupe(orders, by="order_id", time="ts", watermark=_LATE),
            marked.dropDuplicatesWithinWatermark(["order_id"]),
        ),
        "enrich": lambda: (
            enrich(orders, users, by="user"),
            orders.join(users, "user", "left").select(*orders.columns, "city"),
        ),
        **{f"join_{kind}": partial(joins, kind) for kind in JOINS},
    }


def watched(events: DataFrame, key: str) -> DataFrame:
    """A stream with a look at its keys."""
    return key_skew.watch(events, by=key, name="keys")


def _keyed(events: DataFrame) -> DataFrame:
    whole = events.selectExpr("user", "CAST(amount AS long) AS amount")
    return keyed(whole, by="user").process(Spend(), output=OUTPUT, name="spend")


def _joined(orders: DataFrame, payments: DataFrame, kind: Any) -> DataFrame:
    return join_within(
        orders,
        payments,
        by="order_id",
        times=("ts", "paid_at"),
        bound="5 minutes",
        kind=kind,
        watermark=_LATE,
    )


def _joined_by_hand(orders: DataFrame, payments: DataFrame, kind: str, name: str) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    within = "l.order_id = r.order_id AND r.paid_at >= l.ts AND r.paid_at <= l.ts + INTERVAL 5 minutes"
    paid = payments.withWatermark("paid_at", _LATE).alias("r")
    joined = orders.alias("l").join(paid, F.expr(within), name)
    key = {"right": "r.order_id", "full": "coalesce(l.order_id, r.order_id) AS order_id"}.get(
        kind, "l.order_id"
    )
    right = [] if kind == "semi" else ["r.paid", "r.paid_at"]
    return joined.selectExpr(key, "l.user", "l.amount", "l.ts", *right)
