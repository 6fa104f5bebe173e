"""What Holdfast's defaults cost or gain against Spark's own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from holdfast_bench.measure import Bench, Series, note

ROWS = 20_000


def defaults(runs: int) -> Bench:
    """Time the batches of a running count, in a session of Spark's defaults and in one of Holdfast's.

    Each side is a process of its own; its first batch is left out, since it pays for the start.
    """
    series = tuple(
        Series(f"a batch with {side}'s defaults", tuple(_batches(side, runs)))
        for side in ("spark", "holdfast")
    )
    ratio = series[0].median / series[1].median
    return Bench("defaults", f"a running count of {ROWS:,} rows a batch", series, {"spark / holdfast": ratio})


def _batches(side: str, count: int) -> list[float]:
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "holdfast_bench.defaults", side, str(count)],
        check=True,
        capture_output=True,
        text=True,
    )
    taken: list[float] = json.loads(done.stdout.splitlines()[-1])
    note(f"a batch with {side}'s defaults", *taken)
    return taken


def _measure(side: str, count: int) -> list[float]:
    """Run the count to its end in this process and return its batches' seconds."""
    import os

    from pyspark.sql import SparkSession, functions

    from holdfast.config.settings import Settings
    from holdfast.engine.session.java import no_jvm_left
    from holdfast.engine.session.session import configure, prepare_environment

    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        prepare_environment(Settings.resolve({"home": folder}, os.environ, Path.cwd()))
        builder = SparkSession.builder.appName("bench").master("local[*]").config("spark.ui.enabled", "false")
        with no_jvm_left():
            spark = (configure(builder, home=folder) if side == "holdfast" else builder).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        counts = rows.groupBy((functions.col("value") % 5000).alias("k")).count()
        query = (
            counts.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .start()
        )
        while query.lastProgress is None or query.lastProgress["batchId"] < count:
            if query.awaitTermination(1):
                break
        counted = query.recentProgress[1 : count + 1]
        taken = [each["durationMs"]["triggerExecution"] / 1000 for each in counted]
        query.stop()
        spark.stop()
    return taken


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(sys.argv[1], int(sys.argv[2]))) + "\n")
