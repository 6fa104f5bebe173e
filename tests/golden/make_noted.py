"""Make the golden checkpoints with Holdfast's own notes in them: `python tests/golden/make_noted.py`.

Each is of a query that Holdfast itself started, so it has the notes of its plan and of its operators: keyed
state with rules of a broadcast stream, lists of instances, and hot keys that are split. They stay as they
are: what was noted once must stay readable, and must be of the same query.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from golden_queries import STREAMING
from noted_queries import NOTED
from pyspark.sql import SparkSession
from written_state import PACKED, pack

import holdfast as hf

Write = Callable[[SparkSession, Path], None]


def main() -> None:
    place = Path(tempfile.mkdtemp(prefix="noted-"))
    spark = hf.session(
        "noted",
        master="local[2]",
        home=place / "home",
        conf={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            f"{STREAMING}.stateStore.maintenanceInterval": "300ms",
        },
    )
    for name in sys.argv[1:] or NOTED:
        folder = place / name
        query = NOTED[name]
        query.write(folder)
        sink = hf.sink(query.build(spark, folder), mode=query.mode).foreach_batch(passed_over)
        sink.start(checkpoint=str(folder / "checkpoint"), trigger=hf.available_now()).awaitTermination()
        pack(folder / "checkpoint", PACKED / f"{name}.tar.xz")
        print(PACKED / f"{name}.tar.xz")  # noqa: T201 - says what it has made
    spark.stop()
    shutil.rmtree(place, ignore_errors=True)


def passed_over(frame: object, batch_id: int) -> None:
    frame.count()  # type: ignore[attr-defined]  # a DataFrame


if __name__ == "__main__":
    main()
