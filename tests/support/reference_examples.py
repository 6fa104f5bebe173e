"""The examples of the Python reference: where they run, and what they find there."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import python_catalogue

import holdfast as hf
from golden import golden_on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHECKPOINT = "4.2/aggregate-format2"
COLUMNS = "customer string, drink string, amount double, ts timestamp"
_NEEDS_SPARK = re.compile(r"\b(spark|events)\b")


def examples(*, with_spark: bool) -> list[Any]:
    """The names whose example needs Spark, or the others; also those without an example."""
    return [
        public
        for _, public in python_catalogue.public_names()
        if bool(_NEEDS_SPARK.search(public.example or "")) is with_spark
    ]


@contextmanager
def example_folder(folder: Path) -> Iterator[None]:
    """A directory with `checkpoints/visits` and the savepoint `savepoints@daily`, as the current one."""
    golden_on_disk(CHECKPOINT, folder / "checkpoints" / "visits")
    before = Path.cwd()
    os.chdir(folder)
    try:
        hf.savepoints.take("checkpoints/visits", "savepoints", label="daily")
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)


def run(example: str, **names: Any) -> None:
    """Run an example."""
    code = compile(example, "example", "exec")
    exec(code, {"__name__": "example", "hf": hf, **names})


def events(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of the coffee shop, from files."""
    folder.mkdir(parents=True)
    row = '{"customer": "ann", "drink": "tea", "amount": 2.6, "ts": "2026-03-05T09:00:00Z"}'
    (folder / "0.json").write_text(f"{row}\n")
    stream = spark.readStream.schema(COLUMNS).json(str(folder))
    return stream.withWatermark("ts", "10 minutes")
