"""A query that is cut: it counts the rows of a stream of files, and writes each batch to a ledger.

`python power_cut_query.py holdfast` runs it with Holdfast's file manager, `spark` with Spark's own one.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

from power_cuts import MARK
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.config.spark_defaults import MEMORY_PROVIDER, SHORT_LIVED
from holdfast.engine.file_manager import choose_file_manager

CHECKPOINT, LEDGER, INPUT = Path("ck"), Path("ledger/sales.db"), Path("in")
BATCHES = 3


def main(manager: str) -> None:
    """Run the batches, and say of each when Spark has reported it."""
    settings = {
        **SHORT_LIVED,
        "spark.sql.streaming.stateStore.providerClass": MEMORY_PROVIDER,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    INPUT.mkdir()
    LEDGER.parent.mkdir()
    ledger = hf.ledger(f"sqlite:///{LEDGER}")
    token = ledger.claim("till", "somebody")

    def write(rows: DataFrame, batch: int) -> None:
        found = [(row["who"], row["count"]) for row in rows.collect()]
        with ledger.transaction("till", "query", batch, token) as transaction:
            if transaction is None:
                return
            transaction.execute("create table if not exists sales (batch, who, total)")
            for who, total in found:
                transaction.execute("insert into sales values (?, ?, ?)", (batch, who, total))

    rows = spark.readStream.schema("who string").option("maxFilesPerTrigger", 1).json(str(INPUT.resolve()))
    writer = rows.groupBy("who").count().writeStream.outputMode("update").foreachBatch(write)
    checkpoint = str(CHECKPOINT.resolve())
    with choose_file_manager(spark, checkpoint) if manager == "holdfast" else nullcontext():
        query = writer.option("checkpointLocation", checkpoint).start()
    for batch in range(BATCHES):
        lines = "".join(json.dumps({"who": f"c{number % 3}"}) + "\n" for number in range(batch + 1))
        (INPUT / f".{batch}").write_text(lines)
        (INPUT / f".{batch}").rename(INPUT / f"{batch}.json")
        query.processAllAvailable()
        sys.stdout.write(f"{MARK} {batch}\n")
        sys.stdout.flush()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
