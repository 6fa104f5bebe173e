"""Batches of keyed state on a cluster of two workers of one core, beside the same on two cores here.

The workers are processes of this machine too, so what is measured is what the cluster costs: other processes,
a shuffle between them, state that is written by two. It is not what a second machine would gain.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from holdfast_bench.cluster.standalone import StandaloneCluster
from holdfast_bench.measure import Bench, Series, measured_apart, note
from holdfast_bench.turns import in_turn

LOCAL: Final = "local[2]"
CLUSTER: Final = "two workers"
SIDES: Final = (LOCAL, CLUSTER)
_KEYS: Final = 5_000
_SMALL: Final = {
    "spark.ui.enabled": "false",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large it is: rows in a batch, and counted batches in a run."""

    rows: int = 20_000
    batches: int = 10


def cluster(sizes: Sizes, *, runs: int, say: Callable[[str], None] = lambda _: None) -> Bench:
    """Time the batches, and the way from the start of a session to the first commit.

    Args:
        sizes: How large it is.
        runs: How often each side is run, by turns.
        say: Told what is being measured.

    Raises:
        Failed: The cluster did not start, or a run did not come to its end.
    """
    say(f"measuring cluster: {runs} runs of {sizes.batches} batches, of {len(SIDES)} sides …")
    taken: dict[str, list[float]] = {name: [] for side in SIDES for name in (_batch(side), _first(side))}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        for number in range(runs):
            for side in in_turn(SIDES, number):
                place = Path(folder) / f"{number}-{SIDES.index(side)}"
                place.mkdir()
                first, *batches = _run(side, place, sizes)
                taken[_first(side)].append(first)
                taken[_batch(side)] += batches
                note(_batch(side), *batches)
    series = tuple(Series(name, tuple(seconds)) for name, seconds in taken.items())
    ratios = {
        f"{CLUSTER} / {LOCAL}, {kind('')}": median(taken[kind(CLUSTER)]) / median(taken[kind(LOCAL)])
        for kind in (_batch, _first)
    }
    what = f"batches of {sizes.rows:,} events into keyed state of {_KEYS:,} keys, defaults of Holdfast"
    return Bench("cluster", what, series, ratios)


def _batch(side: str) -> str:
    return f"{side} a batch".strip()


def _first(side: str) -> str:
    return f"{side} from the start to the first commit".strip()


def _run(side: str, place: Path, sizes: Sizes) -> list[float]:
    """The seconds to the first commit, and those of each other batch."""
    task = {"place": str(place), **asdict(sizes)}
    if side == LOCAL:
        return _apart({**task, "master": LOCAL}, side)
    with StandaloneCluster(place) as found:
        return _apart({**task, "master": found.address}, side)


def _apart(task: Mapping[str, Any], side: str) -> list[float]:
    taken: list[float] = measured_apart("holdfast_bench.cluster.cluster_bench", task, side)
    return taken


def _measure(task: Mapping[str, Any]) -> list[float]:
    """Run the query to its end in this process."""
    import holdfast as hf

    class Total(hf.Keyed):
        """The sum of a key's numbers: a row a batch."""

        total = hf.value("long", default=0)

        def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - Holdfast calls it
            """Add them up."""
            state.total += sum(event.number for event in events)
            yield {"key": key.key, "total": state.total}

    place = Path(task["place"])
    _write(place / "in", task["rows"], task["batches"] + 1)
    began = time.monotonic()
    spark = hf.session("holdfast-bench", master=task["master"], home=place / "home", conf=_SMALL)
    spark.sparkContext.setLogLevel("ERROR")
    events = spark.readStream.schema("key long, number long").option("maxFilesPerTrigger", 1)
    frame = events.parquet(str(place / "in"))
    totals = hf.keyed(frame, by="key").process(Total(), output="key long, total long", name="total")
    query = (
        totals.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    while not (place / "checkpoint" / "commits" / "0").exists() and query.isActive:
        time.sleep(0.01)
    first = time.monotonic() - began
    query.awaitTermination()
    progress = [batch for batch in query.recentProgress if batch["numInputRows"]]
    spark.stop()
    return [first, *(batch["durationMs"]["triggerExecution"] / 1000 for batch in progress[1:])]


def _write(folder: Path, rows: int, files: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for number in range(files):
        random = np.random.default_rng(number)
        columns = {"key": random.integers(0, _KEYS, rows), "number": random.integers(0, 100, rows)}
        pq.write_table(pa.table(columns), folder / f"{number:03d}.parquet")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(json.loads(sys.stdin.read()))) + "\n")
