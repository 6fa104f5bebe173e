"""Cells of the grid of `sink_grid` in a session with the jars of a sink; prints what each cell has found.

The first argument is JSON: a folder, the cells, settings of the session and its extras.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import guard_time
import sink_grid

import holdfast as hf
from holdfast.config.spark_defaults import FORMAT_KEY
from holdfast.engine.session.workers import ship_by_value
from holdfast.ownership import checkpoint_guard


def main(asked: dict[str, Any]) -> None:
    folder = Path(asked["folder"])
    ship_by_value(sink_grid)
    checkpoint_guard.MACHINE_TIMING = guard_time.passing_time()
    spark = hf.session(
        "moved", home=folder / "home", master="local[2]", conf=asked["conf"], extras=asked["extras"]
    )
    spark.sparkContext.setLogLevel("ERROR")
    found = {}
    given = str(spark.conf.get(FORMAT_KEY))
    for sink, move in asked["cells"]:
        spark.conf.set(FORMAT_KEY, given)  # a move to the heap leaves that of the heap
        expected, rows = sink_grid.run_cell(spark, folder / f"{sink}-{move}", sink, move)
        wrong = [[*map(list, side.items())] for side in (expected - rows, rows - expected)]
        found[f"{sink}-{move}"] = {"rows": rows.total(), "lost": wrong[0], "too many": wrong[1]}
    spark.stop()
    print(json.dumps(found))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
