"""What being watched or mirrored costs a query: its batches beside those in which it is left alone.

One query runs all the time, over the same state; in some blocks of batches it is watched, with metrics,
alerts and the record, in others `holdfast mirror` copies each batch, in others it is left alone, by turns.
`control` is left alone too, and says how much of a difference is noise.

A batch takes now a seventh less and now a seventh more for reasons of its own, so each block is held against
the one that came next to it. Where the noise is larger still than what is looked for, the processor time
tells: that of the driver's Python, in which a watch works, and that of Python and the JVM together.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from holdfast_bench.measure import Bench, Series, beside, measured_apart
from holdfast_bench.turns import in_turn, measuring

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ALONE, WATCHED, MIRRORED, CONTROL = "alone", "watched", "mirrored", "control"
SIDES = (ALONE, WATCHED, MIRRORED, CONTROL)
BOUND = 1.01
_KEYS = 50_000
_SHARE = "Python's processor time for watching / a batch"
_ALL = "processor time of driver and JVM"
# A block of each side, so often in a run.
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large it is: rows in a batch, and batches in a block."""

    rows: int = 100_000
    batches: int = 5


def overhead(sizes: Sizes, *, runs: int, say: Callable[[str], None] = lambda _: None) -> Bench:
    """Time the batches of one query, watched and not watched by turns.

    A block of each side is not counted, and neither is the first batch of a block, in which a watch begins.

    Args:
        sizes: How large it is.
        runs: How often four counted blocks of each side are run.
        say: Told what is being measured.

    Raises:
        Failed: The query did not come to its end.
    """
    blocks = runs * _ROUNDS
    say(f"measuring overhead: {blocks} blocks of {sizes.batches} batches, of {len(SIDES)} sides …")
    taken: dict[str, list[float]] = measured_apart(
        "holdfast_bench.overhead", {**asdict(sizes), "runs": runs}, "overhead"
    )
    series = {name: Series(name, tuple(taken[name])) for name in _SERIES}
    ratios = {}
    for kind in (str, _all):
        for side in (WATCHED, MIRRORED, CONTROL):
            name = f"{kind(side)} / {ALONE}"
            ratios[name] = _beside(taken[kind(side)], taken[kind(ALONE)], sizes.batches)
    # Means: what a watch does only now and then counts too.
    more = fmean(taken[_processor(WATCHED)]) - fmean(taken[_processor(ALONE)])
    ratios[_SHARE] = more / fmean(taken[ALONE])
    what = (
        f"batches of {sizes.rows:,} rows into a count by {_KEYS:,} keys; watched means hf.watch with all on,"
        " mirrored that a process copies each batch to a directory on the same disk"
    )
    bounds = {f"{side} / {ALONE}": BOUND for side in (WATCHED, MIRRORED)}
    return Bench("overhead", what, tuple(series.values()), ratios, bounds)


def _beside(seconds: Sequence[float], others: Sequence[float], batches: int) -> float:
    """How many times as long as the block next to it a block took, in the median."""
    starts = range(0, len(seconds), batches)
    ours, theirs = ([fmean(each[at : at + batches]) for at in starts] for each in (seconds, others))
    return beside(ours, theirs)


def _other_threads() -> float:
    """The processor time of all threads but this one, which makes the files and waits."""
    return time.process_time() - time.thread_time()


def _processor(side: str) -> str:
    return f"{side}, Python's processor time"


def _all(side: str) -> str:
    return f"{side}, {_ALL}"


_SERIES = (*SIDES, *map(_all, SIDES), *map(_processor, SIDES))


def _measure(task: Mapping[str, Any]) -> dict[str, list[float]]:
    """Run the query in this process."""
    with measuring() as (spark, folder):
        return _Measured(spark, folder, task["rows"]).blocks(task["runs"], task["batches"])


class _Measured:
    """The query, and the files that it reads."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        from holdfast.engine.queries.watch import java_pid

        self._spark = spark
        self._folder = folder
        self._rows = rows
        self._files = folder / "files"
        self._files.mkdir()
        self._written = 0
        self._java = java_pid(spark)

    def blocks(self, runs: int, batches: int) -> dict[str, list[float]]:
        """The seconds of each counted batch, by side."""
        query = self._start()
        taken: dict[str, list[float]] = {name: [] for name in _SERIES}
        try:
            for number in range(runs * _ROUNDS + 1):
                for side in in_turn(SIDES, number):
                    found = self._block(query, side, batches)
                    for name, seconds in zip((side, _all(side), _processor(side)), found, strict=True):
                        taken[name] += seconds if number else []
        finally:
            query.stop()
        return taken

    def _block(self, query: StreamingQuery, side: str, batches: int) -> tuple[list[float], ...]:
        """Of each batch the time, the processor time of all, and that of Python's other threads."""
        from holdfast.jobs.query_watch import watch

        watched = watch(query, port=0, record=True, home=self._folder / "home") if side == WATCHED else None
        seconds, everything, python = [], [], []
        with watched or (self._mirror() if side == MIRRORED else nullcontext()):
            for _ in range(batches + 1):
                self._write()
                began, all_began = _other_threads(), self._processor_time()
                seconds.append(self._batch(query))
                if watched is not None and watched.url is not None:
                    urllib.request.urlopen(watched.url).close()  # noqa: S310 - our own port
                python.append(_other_threads() - began)
                everything.append(self._processor_time() - all_began)
        return seconds[1:], everything[1:], python[1:]

    @contextmanager
    def _mirror(self) -> Iterator[None]:
        """Mirror the checkpoint; once the batch that is there is copied, each new one is."""
        words = [sys.executable, "-m", "holdfast", "mirror", str(self._folder / "checkpoint")]
        words += [str(self._folder / "mirror"), "--every", "200ms", "--home", str(self._folder / "home")]
        with subprocess.Popen(  # noqa: S603 - our own command
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as mirror:
            try:
                if mirror.stdout is not None:
                    mirror.stdout.readline()
                yield
            finally:
                mirror.terminate()
                mirror.communicate()

    def _processor_time(self) -> float:
        """That of this process and of the JVM."""
        ticks = Path(f"/proc/{self._java}/stat").read_text().rpartition(")")[2].split()[11:13]
        return time.process_time() + sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def _batch(query: StreamingQuery) -> float:
        query.processAllAvailable()
        progress = query.lastProgress
        if progress is None:
            return 0.0
        return float(progress["durationMs"]["triggerExecution"]) / 1000

    def _start(self) -> StreamingQuery:
        frame = self._spark.readStream.schema("key long").option("maxFilesPerTrigger", 1)
        counts = frame.parquet(str(self._files)).groupBy("key").count()
        writer = counts.writeStream.format("noop").outputMode("update").queryName("overhead")
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def _write(self) -> None:
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        keys = np.random.default_rng(self._written).integers(0, _KEYS, self._rows)
        fresh = self._files / f".{self._written}"
        pq.write_table(pa.table({"key": keys}), fresh)
        fresh.rename(self._files / f"{self._written}.parquet")
        self._written += 1


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure(json.loads(sys.stdin.read()))) + "\n")
