"""Real queries are told what they need, out of what Spark says of their batches and tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import holdfast as hf
from holdfast.observe.metrics import MetricSample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTITIONS = 64


def number(samples: tuple[MetricSample, ...], metric: str) -> float:
    [value] = [each.value for each in samples if each.metric == metric]
    return value


def test_few_rows_on_many_partitions_at_an_interval_that_no_batch_can_keep(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No batch takes less than a millisecond: its plan and its two logs take longer on any machine."""
    (tmp_path / "in").mkdir()
    rows = "\n".join(json.dumps({"customer": who, "spent": 1}) for who in ("ann", "bob", "cid"))
    (tmp_path / "in" / "0.json").write_text(rows)
    former = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    try:
        arrivals = spark.readStream.schema("customer string, spent long").json(str(tmp_path / "in"))
        writer = arrivals.groupBy("customer").sum("spent").writeStream.format("noop").outputMode("update")
        query = (
            writer.queryName("totals")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="1 millisecond")
            .start()
        )
        try:
            query.processAllAvailable()
            with hf.watch(query, home=tmp_path / "home") as watch:
                samples = watch.metrics()
                (batch,) = [each for each in watch.batches() if each.input_rows]
        finally:
            query.stop()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", former or "200")
    cores = spark.sparkContext.defaultParallelism
    assert (batch.interval_ms, batch.cores) == (1, cores)
    tasks = batch.tasks
    assert tasks is not None
    assert 0 < tasks.longest_ms <= tasks.jobs_ms <= batch.duration_ms
    # Each stage has its longest task among all tasks, and there is more than one task.
    assert tasks.longest_ms < tasks.run_ms
    assert number(samples, "holdfast_allowed_seconds") == 0.001
    assert {each.labels[2] for each in samples if each.metric == "holdfast_provisioning"} == {"unhealthy"}
    assert number(samples, "holdfast_critical_seconds") > 0.001
    assert number(samples, "holdfast_partitions") == PARTITIONS
    # Three rows are for one task; time asks for no more than four times the cores.
    right = number(samples, "holdfast_recommended_partitions")
    assert 1 <= right <= 4 * cores
    assert right < PARTITIONS
    assert not [each for each in samples if each.metric == "holdfast_recommended_cores"]
