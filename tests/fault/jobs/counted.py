"""Two queries over the same files: how often each customer came, and how much each spent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def lines_into(path: Path) -> Callable[[DataFrame, int], None]:
    """A line of JSON for each batch, with the number of the batch."""

    def take(batch: DataFrame, batch_id: int) -> None:
        totals = {row[0]: row[1] for row in batch.collect()}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as out:
            out.write(json.dumps({"batch": batch_id, "totals": totals}) + "\n")

    return take


@hf.job(name="counted", checkpoint=hf.Checkpoint("checkpoint"), trigger=hf.available_now())
def counted(spark: SparkSession, out: str = "out") -> list[hf.Sink]:
    reader = spark.readStream.schema("customer string, amount long").option("maxFilesPerTrigger", "1")
    seen = reader.json("arrivals")
    visits = seen.groupBy("customer").count()
    spent = seen.groupBy("customer").sum("amount")
    return [
        hf.sink(visits, name="visits", mode="update").foreach_batch(
            lines_into(Path(out, "visits").absolute())
        ),
        hf.sink(spent, name="spent", mode="update").foreach_batch(lines_into(Path(out, "spent").absolute())),
    ]
