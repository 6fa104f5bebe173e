"""A query over a source whose input two codes read from one savepoint on; tells what came of it as JSON.

Run as a process of its own, since the source's jars have to be there when Spark starts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf
from holdfast import savepoints
from holdfast.jobs.trials.comparison import compare_outputs
from holdfast.jobs.trials.state_diff import compare_states
from holdfast.storage.local import LocalStorage
from holdfast.stream.trials import Trial

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "who string, amount long"
MOST = 20


class Kafka:
    """Rows as JSON in a topic."""

    def __init__(self, spark: SparkSession, address: str, topic: str) -> None:
        self._spark = spark
        self._options = {"kafka.bootstrap.servers": address}
        self._topic = topic

    def write(self, rows: list[tuple[str, int]]) -> None:
        frame = self._spark.createDataFrame(rows, SCHEMA).select(
            F.to_json(F.struct("who", "amount")).alias("value")
        )
        frame.write.format("kafka").options(**self._options).option("topic", self._topic).save()

    def read(self) -> DataFrame:
        reader = self._spark.readStream.format("kafka").options(**self._options)
        found = reader.option("subscribe", self._topic).option("startingOffsets", "earliest")
        values = found.option("maxOffsetsPerTrigger", 3).load()
        return values.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("row")).select("row.*")


class Delta:
    """Rows in a table; each write is a version of it."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark = spark
        self._table = table

    def write(self, rows: list[tuple[str, int]]) -> None:
        frame = self._spark.createDataFrame(rows, SCHEMA).coalesce(1)
        frame.write.format("delta").mode("append").save(self._table)

    def read(self) -> DataFrame:
        return self._spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(self._table)


def summed(rows: DataFrame) -> DataFrame:
    return rows.groupBy("who").agg(F.sum("amount").alias("amount"))


def filtered(rows: DataFrame) -> DataFrame:
    return summed(rows.where("amount <> 7"))


def told(spark: SparkSession, source: Kafka | Delta, folder: Path, before: Any, after: Any) -> dict[str, Any]:
    """Run the original, take a savepoint, run both codes from there; and restore it once more."""

    def trial(name: str, frame: DataFrame) -> Trial:
        sink = hf.sink(frame, mode="update").console()
        return Trial.of(sink, str(folder / name), str(folder / f"{name}-out"))

    def at(name: str) -> LocalStorage:
        return LocalStorage(folder / name)

    for rows in before:
        source.write(rows)
    trial("checkpoint", summed(source.read())).run(MOST)
    saved = savepoints.take(folder / "checkpoint", folder / "catalog").uri
    for rows in after:
        source.write(rows)
    savepoints.fork(saved, folder / "original")
    original = trial("original", summed(source.read())).run(MOST)
    batches = [each.batch_id for each in original]
    verdicts = {}
    for name, code in {"same": summed, "other": filtered}.items():
        savepoints.fork(saved, folder / name)
        ran = [each.batch_id for each in trial(name, code(source.read())).repeat(at("original"))]
        outputs = compare_outputs(at("original-out"), at(f"{name}-out"), ran, 3)
        states = compare_states(at("original"), at(name), ran[-1], 3)
        verdicts[name] = {"ran": ran, "outputs": outputs.equal, "states": states.equal}
    savepoints.restore(saved, folder / "restored")
    trial("restored", summed(source.read())).run(MOST)
    totals: dict[str, int] = {}
    for batch in sorted((folder / "restored-out").iterdir(), key=lambda path: int(path.name)):
        totals |= {row.who: row.amount for row in spark.read.parquet(str(batch)).collect()}
    rows_read = sum(each.input_rows for each in original)
    return {"batches": batches, "input_rows": rows_read, "verdicts": verdicts, "restored": totals}


def main() -> None:
    asked = json.loads(sys.argv[1])
    folder = Path(asked["folder"])
    conf = {"spark.sql.shuffle.partitions": "2", **asked["conf"]}
    spark = hf.session("twice", master="local[2]", conf=conf, extras=asked["extras"], home=folder / "home")
    source = Kafka(spark, **asked["kafka"]) if "kafka" in asked else Delta(spark, str(folder / "table"))
    found = told(spark, source, folder, asked["before"], asked["after"])
    spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
