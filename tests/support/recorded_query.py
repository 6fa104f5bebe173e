"""A query of a program of its own, under `hf.watch` or `hf.guard`, until somebody asks it to stop."""

from __future__ import annotations

import sys
from pathlib import Path

from plain_session import plain_session

import holdfast as hf


def main(how: str, folder: str) -> int:
    spark = plain_session(folder)
    numbers = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    counts = numbers.groupBy((numbers.value % 5).alias("rest")).count()
    writer = counts.writeStream.format("noop").outputMode("update").queryName("counts")
    writer = writer.trigger(processingTime="500 milliseconds")
    place = Path(folder) / "checkpoints" / "counts"
    home = Path(folder) / "home"
    if how == "guard":
        return hf.guard(writer, checkpoint=place, home=home).run()
    query = writer.option("checkpointLocation", str(place)).start()
    hf.watch(query, home=home)
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
