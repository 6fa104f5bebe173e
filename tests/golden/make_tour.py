"""Make what `holdfast tour` walks through anew: `python tests/golden/make_tour.py`.

A day at the coffee shop with so few arrivals that a person can count them, and the checkpoint that the
demo's own query `visits` has left, with Holdfast's defaults. Both are packed into the package.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from golden_queries import BEGIN, pack

import holdfast as hf
from holdfast.demo.coffee_shop.job import ARRIVALS, read, visits

# The checkpoint has the addresses of its input in it: one that says nothing of the machine.
PLACE = Path("/tmp/coffee-shop")
TARGET = Path(__file__).parents[2] / "src/holdfast/demo/tour/coffee-shop.tar.xz"

# A file a batch: arrival, customer, seat, time. a05 and a12 come twice, the second a02 too late as well.
FILES = (
    ("a01 ann 7 08:00", "a02 bob 3 08:02", "a03 ann 7 08:20", "a04 cho 1 08:25"),
    ("a05 bob 3 09:00", "a05 bob 3 09:00", "a06 ann 7 09:05", "a07 dee 4 09:10"),
    ("a08 ann 2 12:00", "a09 eve 5 12:05", "a10 cho 1 12:10"),
    ("a11 bob 3 17:00", "a12 ann 7 17:20", "a12 ann 7 17:20", "a02 bob 3 08:02"),
)


def write_arrivals(folder: Path) -> None:
    """The files, in the order in which Spark takes them."""
    folder.mkdir(parents=True)
    for number, lines in enumerate(FILES):
        file = folder / f"{number}.json"
        file.write_text("".join(f"{json.dumps(arrival(line))}\n" for line in lines))
        os.utime(file, (BEGIN + number, BEGIN + number))


def arrival(line: str) -> dict[str, str | int]:
    """One arrival as the camera at the entrance records it."""
    name, customer, seat, time = line.split()
    return {"arrival_id": name, "customer": customer, "seat": int(seat), "ts": f"2026-03-05T{time}:00Z"}


def main() -> None:
    """Run the query to its end and pack what it leaves."""
    shutil.rmtree(PLACE, ignore_errors=True)
    write_arrivals(PLACE / "arrivals")
    with tempfile.TemporaryDirectory(prefix="tour-spark-", ignore_cleanup_errors=True) as home:
        spark = hf.session(
            "tour",
            master="local[2]",
            home=Path(home),
            conf={"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"},
        )
        counted = visits(read(spark, str(PLACE / "arrivals"), ARRIVALS))
        writer = counted.writeStream.format("noop").outputMode("update").queryName("visits")
        started = (
            writer.option("checkpointLocation", str(PLACE / "checkpoint")).trigger(availableNow=True).start()
        )
        started.awaitTermination()
        spark.stop()
    pack(PLACE, TARGET)
    shutil.rmtree(PLACE)
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")  # noqa: T201 - says what it has made


if __name__ == "__main__":
    main()
