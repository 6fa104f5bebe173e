"""The query whose savepoints are measured, in a process of its own: a count and a sum by key over files.

Prints a line of JSON for each committed batch; ends when its standard input is closed, or after as many
batches as it was told.
"""

from __future__ import annotations

import json
import os
import queue
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA: Final = "user long, amount long"
_EPOCH_S: Final = 1_767_225_600
# Snapshots come by maintenance; a minute apart, as by default, there would be one in the whole measurement.
_CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
}


@dataclass(frozen=True, slots=True)
class Task:
    """What the process is to do.

    Attributes:
        events: The files; each is a batch.
        checkpoint: The query's checkpoint.
        home: A state home.
        batches: It ends after so many; None to go on until standard input is closed.
    """

    events: str
    checkpoint: str
    home: str
    batches: int | None = None

    def as_text(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))


def write(folder: Path, keys: int, changed: int, files: int, seed: int = 1) -> None:
    """Write the events: one for each key in the first file, `changed` keys of all in each after it."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for number in range(files):
        users = np.arange(keys) if number == 0 else random.choice(keys, changed, replace=False)
        amounts = random.integers(1, 100, len(users))
        path = folder / f"{number:05}.parquet"
        pq.write_table(pa.table({"user": users, "amount": amounts}), path)
        os.utime(path, (_EPOCH_S + number,) * 2)  # the order in which Spark takes them


def _run(task: Task) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it; needs Spark

    from holdfast.engine.queries.watch import listen
    from holdfast.engine.session.session import session

    spark = session("holdfast-bench", home=task.home, conf=_CONF)
    spark.sparkContext.setLogLevel("ERROR")
    told: queue.SimpleQueue[int] = queue.SimpleQueue()
    listen(spark, lambda kind, facts: told.put(facts["batchId"]) if _tell(kind, facts) else None)
    events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").parquet(task.events)
    totals = events.groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("spent"))
    writer = totals.writeStream.format("noop").outputMode("update")
    query = writer.option("checkpointLocation", task.checkpoint).start()
    if task.batches is None:
        sys.stdin.read()
    else:
        for _ in range(task.batches):
            told.get()
        sys.stdout.write("committed\n")
        sys.stdout.flush()
    query.stop()
    spark.stop()


def _tell(kind: str, facts: Mapping[str, Any]) -> bool:
    """Print a committed batch."""
    if kind != "progress" or not facts["numInputRows"]:
        return False
    took = facts["durationMs"]["triggerExecution"]
    sys.stdout.write(json.dumps({"batch": facts["batchId"], "began": facts["timestamp"], "ms": took}) + "\n")
    sys.stdout.flush()
    return True


if __name__ == "__main__":
    _run(Task(**json.loads(sys.argv[1])))
