"""Queries with named sources keep the partitions of their state: Spark 4.2 does not write the number down."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from grid_runs import PARTITIONS_KEY

from holdfast import checkpoints
from holdfast.config.policies import AvailableNow
from holdfast.savepoints.spark_upgrade import check_spark
from holdfast.stream.sinks.sinks import adopt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = pytest.mark.spark

NAMED = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}
CUSTOMERS = [f"c{number}" for number in range(10)]


def test_a_lower_number_of_the_session_loses_no_state(
    spark: SparkSession, tmp_path: Path, settings: Callable[[dict[str, str]], None]
) -> None:
    orders, checkpoint = tmp_path / "orders", tmp_path / "checkpoint"
    orders.mkdir()
    found: dict[str, int] = {}

    def keep(rows, _: int) -> None:  # type: ignore[no-untyped-def] # a DataFrame of Spark
        found.update({row["customer"]: row["count"] for row in rows.collect()})

    def visits() -> DataStreamWriter:
        reader = spark.readStream.schema("customer string").name("orders")
        counted = reader.json(str(orders)).groupBy("customer").count()
        return counted.writeStream.outputMode("update").foreachBatch(keep)

    def run(partitions: str) -> None:
        number = len(list(orders.iterdir()))
        lines = (json.dumps({"customer": customer}) for customer in CUSTOMERS)
        (orders / f"{number}.json").write_text("\n".join(lines))
        settings({**NAMED, PARTITIONS_KEY: partitions})
        query = adopt(visits()).start(checkpoint=str(checkpoint), trigger=AvailableNow())
        query.awaitTermination()
        assert spark.conf.get(PARTITIONS_KEY) == partitions

    run("3")
    assert found == dict.fromkeys(CUSTOMERS, 1)
    report = check_spark(checkpoint, "4.2")
    if checkpoints.read(checkpoint).confs.get(PARTITIONS_KEY) is None:
        assert (report.verdict, report.findings[0].what) == ("doubtful", "partitions")
    for number in (2, 3):
        run("1")
        assert found == dict.fromkeys(CUSTOMERS, number)
    [operator] = checkpoints.read(checkpoint).operators
    assert operator.partitions == 3
