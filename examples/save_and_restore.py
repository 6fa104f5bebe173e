"""Read the state of a plain PySpark query without Spark, save it, lose it, and continue from the savepoint.

    pip install 'holdfast[spark,java,sql]'
    python save_and_restore.py ./counts

The query does not use Holdfast: it counts orders per customer. The program runs it, reads its state from
the files of its checkpoint, takes a savepoint, deletes the checkpoint, restores it, and runs the query once
more: no order is counted twice and none is lost.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MORNING = '{"customer": "ann"}\n{"customer": "bob"}\n{"customer": "ann"}\n'
EVENING = '{"customer": "ann"}\n{"customer": "eve"}\n'


def count(spark: SparkSession, folder: Path) -> None:
    """Run the query over new orders; `foreachBatch` stands for any sink."""

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").json(str(folder / "batches" / str(batch_id)))

    orders = spark.readStream.schema("customer string").json(str(folder / "orders"))
    query = (
        orders.groupBy("customer")
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def counts(checkpoint: Path) -> dict[str, int]:
    """Return the counts in a checkpoint, without Spark."""
    rows = hf.state(checkpoint).scan("aggregate")
    return {row.key["customer"]: row.value["count"] for row in rows}


def main(folder: Path) -> None:
    """Run the query, save its state, lose it, restore it, and run the query again."""
    spark = (
        SparkSession.builder.appName("counts")
        .master("local[2]")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .getOrCreate()
    )
    (folder / "orders").mkdir(parents=True, exist_ok=True)
    (folder / "orders" / "1.json").write_text(MORNING)
    count(spark, folder)

    checkpoint = folder / "checkpoint"
    verification: hf.checkpoints.Verification = hf.checkpoints.verify(checkpoint)
    print(f"batch {verification.batch_id}, whole: {verification.ok}")
    ann: hf.KeyState = hf.state(checkpoint).get("aggregate", "ann")
    print(f"ann has come {ann.value['count']} times")

    saved: hf.savepoints.Taken = hf.savepoints.take(checkpoint, folder / "savepoints", label="noon")
    proof: hf.savepoints.Proof = hf.savepoints.verify(saved.uri, deep=True)
    print(f"savepoint of batch {saved.manifest.batch_id}, proved: {proof.ok}")

    shutil.rmtree(checkpoint)  # the disk is lost
    hf.savepoints.restore(f"{folder / 'savepoints'}@noon", checkpoint)
    (folder / "orders" / "2.json").write_text(EVENING)
    count(spark, folder)
    print(" ".join(f"{customer}={number}" for customer, number in sorted(counts(checkpoint).items())))


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
