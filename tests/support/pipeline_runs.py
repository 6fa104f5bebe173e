"""A small declarative pipeline, and its runs by Spark's own `spark-pipelines`.

Three streaming tables: orders without duplicates, counts by minute and drink, and a copy of the first without
state. The catalog and the tables are on disk, so that a later run continues.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

PROGRAM: Final = Path(sys.executable).parent / "spark-pipelines"
TABLES: Final = "spark_catalog.default"
STORAGE: Final = "storage"

_SPEC: Final = """\
name: cafe
storage: file://{folder}/storage
catalog: spark_catalog
database: default
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "2"
  spark.sql.streaming.stateStore.providerClass: {provider}
"""
_PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROGRAM: Final = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


def orders():
    reader = spark.readStream.schema("id long, drink string, at timestamp").option("maxFilesPerTrigger", 1)
    return reader.json("file://{folder}/orders").withWatermark("at", "1 minute")


@dp.table
def first_orders():
    return orders().dropDuplicates(["id"])


dp.create_streaming_table("totals")


@dp.append_flow(target="totals", name="by_minute")
def by_minute():
    return orders().groupBy(F.window("at", "1 minute"), "drink").count()


@dp.table
def copies():
    return spark.readStream.table("first_orders")
"""


class Pipeline:
    """A pipeline in a directory.

    Args:
        folder: The directory, which does not exist.
        environ: The environment of the runs, with JAVA_HOME.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self._environ = environ
        (folder / "transformations").mkdir(parents=True)
        (folder / "orders").mkdir()
        (folder / "spark-pipeline.yml").write_text(_SPEC.format(folder=folder, provider=_PROVIDER))
        (folder / "transformations" / "cafe.py").write_text(_PROGRAM.format(folder=folder))

    @property
    def storage(self) -> Path:
        """Where the pipeline keeps its checkpoints."""
        return self.folder / STORAGE

    def flow(self, table: str, name: str, version: int) -> Path:
        """The checkpoint of a flow."""
        return self.storage / "_checkpoints" / TABLES.replace(".", "/") / table / name / str(version)

    def add(self, minute: int) -> None:
        """Write one file of orders, all in one minute of the day."""
        lines = [json.dumps(order) for order in orders_of(minute)]
        (self.folder / "orders" / f"{minute}.json").write_text("\n".join(lines))

    def run(self, *words: str) -> None:
        """Run the pipeline until it has read all orders."""
        settings = {
            "spark.ui.enabled": "false",
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": f"{self.folder}/tables",
        }
        confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        done = subprocess.run(
            [str(PROGRAM), *confs, "run", "--spec", "spark-pipeline.yml", *words],
            cwd=self.folder,
            env={**self._environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            check=False,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]

    def rows(self, table: str) -> Iterator[dict[str, Any]]:
        """The rows of a table, read from its files."""
        from pyarrow import parquet

        for file in sorted((self.folder / "tables" / table).rglob("*.parquet")):
            yield from parquet.read_table(file).to_pylist()


def orders_of(minute: int) -> list[dict[str, Any]]:
    """Twenty orders of a minute, seven of them different; two were also in the minute before."""
    return [
        {
            "id": second % 7 + minute * 5,
            "drink": "coffee" if second % 2 else "tea",
            "at": f"2026-01-01T00:{minute:02}:{second:02}Z",
        }
        for second in range(20)
    ]
