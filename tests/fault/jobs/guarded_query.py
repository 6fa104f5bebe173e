"""A plain PySpark program whose query is guarded, as a platform starts it.

`guarded_query.py PLACE CHECKPOINT SETTINGS` counts words by batch. Each batch waits for a file `gate`, and
says in `begun` which one it is.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import holdfast as hf

place, checkpoint, settings = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])


def write(batch: DataFrame, batch_id: int) -> None:
    rows = {row["word"]: row["count"] for row in batch.collect()}
    (place / "begun" / f"{batch_id}-{os.getpid()}").touch()
    look: Any = threading.Event()
    while not (place / "gate").exists():
        look.wait(0.02)
    whole = place / "out" / f".{batch_id}-{os.getpid()}"
    whole.write_text(json.dumps({"rows": rows, "process": os.getpid()}))
    whole.rename(place / "out" / str(batch_id))


for folder in ("in", "begun", "out"):
    (place / folder).mkdir(exist_ok=True)
spark = SparkSession.builder.getOrCreate()
(place / f"java-{os.getpid()}").write_text(str(spark._jvm.java.lang.ProcessHandle.current().pid()))  # type: ignore[union-attr]
words = spark.readStream.schema("word string").option("maxFilesPerTrigger", 1).json(str(place / "in"))
writer = (
    words.groupBy("word")
    .count()
    .writeStream.queryName("words")
    .outputMode("update")
    .option("checkpointLocation", checkpoint)
    .foreachBatch(write)
)
sys.exit(hf.guard(writer, home=place / "home", **settings).run())
