"""A plain program with its own session, that shows what Holdfast does on this Spark, as one line of JSON.

`checked_on_older_spark.py {"place": …}` runs a watched query of three batches, then makes each of some calls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import Column, SparkSession, functions
from pyspark.sql.streaming.readwriter import DataStreamWriter

import holdfast as hf

place = Path(json.loads(sys.argv[1])["place"])
checkpoint = str(place / "ck")
spark = SparkSession.builder.getOrCreate()
words = spark.readStream.schema("word string").option("maxFilesPerTrigger", 1).json(str(place / "in"))


class Visits(hf.Keyed):
    visits = hf.value(int, default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.visits += 1
        yield {"word": ctx.key}


def writer(*columns: Column) -> DataStreamWriter:
    counted = words.groupBy("word").agg(functions.count("*").alias("n"), *columns)
    return counted.writeStream.queryName("words").outputMode("update")


def checked(*columns: Column) -> list[str | None]:
    report = hf.check(writer(*columns), against=checkpoint, home=place / "home")
    return [str(report.verdict), report.trial.spark_error]


def answer_of(call: Callable[[], Any]) -> Any:
    """The result of a call, or the error that refuses it."""
    try:
        return call()
    except hf.HoldfastError as error:
        facts = (error.found, error.expected, bool(error.hint))
        return [type(error).__name__, *facts]


def file_manager(query: Any) -> list[str]:
    """The classes with which a running query writes its checkpoint."""
    conf = query._jsq.streamingQuery().sparkSessionForStream().conf()
    keys = ("spark.sql.streaming.checkpointFileManagerClass", "fs.file.impl")
    return [str(conf.get(key, "none")).rpartition(".")[2] for key in keys]


answers: dict[str, Any] = {"spark": spark.version}
query = writer().format("noop").option("checkpointLocation", checkpoint).start()
with hf.watch(query, home=place / "home", port=0) as watch:
    query.processAllAvailable()
    query.stop()
    query.awaitTermination()
answers["watched"] = [
    [batch.batch_id, batch.input_rows, batch.operators[0].rows] for batch in watch.batches()
]
guard = hf.guard(
    writer().format("noop").option("checkpointLocation", checkpoint), home=place / "home", verify="1m"
)
with guard:
    guard.query.processAllAvailable()
    answers["files"] = file_manager(guard.query)
answers["guarded"] = guard.exit_code
calls: dict[str, Callable[[], Any]] = {
    "same code": checked,
    "one column more": lambda: checked(functions.max("word").alias("last")),
    "session": lambda: hf.session("words"),
    "configure": lambda: hf.configure(SparkSession.builder),
    "keyed": lambda: hf.keyed(words, by="word").process(Visits(), output="word string", name="visits"),
}
answers |= {name: answer_of(call) for name, call in calls.items()}
sys.stdout.write(json.dumps(answers) + "\n")
