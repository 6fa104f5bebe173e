"""A silent stream with `idle_after` does not hold back a query; watermarks by a model in plain Python."""

# ruff: noqa: N812 - functions are F wherever PySpark is written

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::holdfast.stream.cautions.WatermarkWarning"),
]

DELAY = 10
SIZE = 300


@dataclass
class Stream:
    """Files of rows, a file in each batch; a row is a number and its time in seconds since 1970."""

    folder: Path
    files: list[dict[int, int]] = field(default_factory=list)

    def frame(self, spark: SparkSession) -> DataFrame:
        self.folder.mkdir(parents=True, exist_ok=True)
        reader = spark.readStream.schema("n int, ts timestamp").option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))

    def send(self, rows: dict[int, int]) -> None:
        number = len(self.files)
        self.files.append(rows)
        lines = [
            json.dumps({"n": n, "ts": datetime.fromtimestamp(at, timezone.utc).isoformat()})
            for n, at in rows.items()
        ]
        hidden = self.folder / f".{number}"
        hidden.write_text("\n".join(lines))
        os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
        hidden.rename(self.folder / f"{number}.json")


@dataclass
class Query:
    """A query whose rows are kept by batch."""

    make: Callable[[], DataFrame]
    checkpoint: Path
    rows: dict[int, list[dict[str, Any]]] = field(default_factory=dict)

    def start(self) -> Any:
        def take(batch: DataFrame, batch_id: int) -> None:
            self.rows[batch_id] = [row.asDict() for row in batch.collect()]

        # Spark gives the process of a Python source ten seconds to start, which a busy machine exceeds.
        for _ in range(5):
            sink = hf.sink(self.make(), mode="append").foreach_batch(take)
            query = sink.start(checkpoint=str(self.checkpoint))
            while query.exception() is None and not query.recentProgress:
                time.sleep(0.05)
            if query.exception() is None:
                break
            assert "Python worker failed to connect back" in str(query.exception())
        return query

    @property
    def all(self) -> list[dict[str, Any]]:
        return [row for number in sorted(self.rows) for row in self.rows[number]]


def until(query: Any, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 100
    while not holds():
        assert query.exception() is None
        assert time.monotonic() < end
        time.sleep(0.05)


def unix(value: datetime | None) -> int | None:
    return None if value is None else int(value.astimezone(timezone.utc).timestamp())


def window_of(at: int) -> tuple[int, int]:
    start = at // SIZE * SIZE
    return start, start + SIZE


def log(checkpoint: Path, kind: str) -> dict[int, list[str]]:
    files = [file for file in (checkpoint / kind).iterdir() if file.name.isdigit()]
    return {int(file.name): file.read_text().split("\n") for file in files}


@dataclass
class Planned:
    """A batch as the offset log has it: what it read of each stream, the tick, and its watermark."""

    busy: dict[int, int]
    quiet: dict[int, int]
    tick_ms: int | None
    watermark_ms: int


def planned(checkpoint: Path, busy: Stream, quiet: Stream) -> list[Planned]:
    made: list[Planned] = []
    before = (-1, -1, 0)
    for _, lines in sorted(log(checkpoint, "offsets").items()):
        offsets = [None if line == "-" else json.loads(line) for line in lines[2:5]]
        ends = [-1 if offset is None else int(offset["logOffset"]) for offset in offsets[:2]]
        tick = before[2] if offsets[2] is None else int(offsets[2]["at_ms"])
        read = [
            {n: at for rows in stream.files[start + 1 : end + 1] for n, at in rows.items()}
            for stream, start, end in zip((busy, quiet), before, ends, strict=False)
        ]
        watermark = json.loads(lines[1])["batchWatermarkMs"]
        made.append(Planned(read[0], read[1], tick if tick > before[2] else None, watermark))
        before = (ends[0], ends[1], tick)
    return made


def watermarks(batches: list[Planned], restarts: list[int]) -> list[int]:
    """What Spark makes of the rows and ticks: the slower of two streams, each forgotten at a restart."""
    expected, watermark, of = [], 0, [0, 0]
    for number, batch in enumerate(batches):
        if number in restarts:
            of = [0, 0]
        expected.append(watermark)
        times = [
            [at * 1000 for at in batch.busy.values()],
            [at * 1000 for at in batch.quiet.values()] + ([] if batch.tick_ms is None else [batch.tick_ms]),
        ]
        of = [
            max([before, *(at - DELAY * 1000 for at in some)]) for before, some in zip(of, times, strict=True)
        ]
        watermark = max(watermark, min(of))
    return expected


def test_a_silent_stream_does_not_hold_back_the_other(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    now = int(time.time()) // SIZE * SIZE
    busy, quiet = Stream(tmp_path / "busy"), Stream(tmp_path / "quiet")

    def counted() -> DataFrame:
        one = hf.watermarked(busy.frame(spark), time="ts", delay=f"{DELAY}s")
        two = hf.watermarked(quiet.frame(spark), time="ts", delay=f"{DELAY}s", idle_after="1s")
        # A filter on a column that ticks do not have must not take them out.
        both = one.union(two).filter("n >= 0")
        windows = hf.windowed(both, time="ts", size=f"{SIZE}s", side_outputs=True)
        return windows.agg(F.sum("n").alias("s"))

    def joined() -> DataFrame:
        right = quiet.frame(spark).withColumnRenamed("ts", "r_ts")
        return hf.join_within(
            hf.watermarked(busy.frame(spark), time="ts", delay=f"{DELAY}s"),
            hf.watermarked(right, time="r_ts", delay=f"{DELAY}s", idle_after="1s"),
            by="n",
            times=("ts", "r_ts"),
            bound="60s",
            kind="left",
        )

    windows, join = Query(counted, tmp_path / "windows"), Query(joined, tmp_path / "join")
    busy.folder.mkdir()
    quiet.folder.mkdir()
    busy.send({1: now - 3600, 2: now - 1800, 4: now - SIZE})
    quiet.send({1: now - 3590})

    running = [windows.start(), join.start()]
    until(running[0], lambda: sum(row["side"] is None for row in windows.all) == 2)
    until(running[1], lambda: len(join.all) == 2)
    for query in running:
        query.stop()
    restart = len(log(windows.checkpoint, "commits"))
    # The quiet stream comes back: one row is behind the closed windows, one is not.
    quiet.send({8: now - 3000, 16: now - SIZE + 1})
    busy.send({32: now + 30})
    running = [windows.start(), join.start()]
    until(running[0], lambda: sum(row["side"] is None for row in windows.all) == 3)
    until(running[1], lambda: len(join.all) == 3)
    for query in running:
        query.stop()

    found = sorted((unix(row["window_start"]), row["s"]) for row in windows.all if row["side"] is None)
    assert found == [
        (window_of(now - 3600)[0], 1 + 1),
        (window_of(now - 1800)[0], 2),
        (window_of(now - SIZE)[0], 4 + 16),
    ]
    late = [row for row in windows.all if row["side"] == "late"]
    assert [json.loads(row["side_event"])["n"] for row in late] == [8]
    assert unix(late[0]["window_end"]) == window_of(now - 3000)[1]
    assert sorted((row["n"], unix(row["r_ts"])) for row in join.all) == [
        (1, now - 3590),
        (2, None),
        (4, None),
    ]

    for query in (windows, join):
        batches = planned(query.checkpoint, busy, quiet)
        boundary = restart if query is windows else None
        if boundary is not None:
            assert [batch.watermark_ms for batch in batches] == watermarks(batches, [boundary])
        assert any(batch.tick_ms is not None for batch in batches)
    _repeated(windows, busy, quiet)


def _repeated(windows: Query, busy: Stream, quiet: Stream) -> None:
    """The last batch with a tick and no rows, run again, sees the same tick."""
    batches = planned(windows.checkpoint, busy, quiet)
    number = max(
        number
        for number, batch in enumerate(batches)
        if batch.tick_ms is not None and not batch.busy and not batch.quiet
    )
    tick = batches[number].tick_ms
    assert tick is not None
    for kind, first in (("commits", number), ("offsets", number + 1)):
        for file in (windows.checkpoint / kind).iterdir():
            if int(file.name.strip(".").split(".")[0]) >= first:
                file.unlink()
    again = windows.start()
    until(again, lambda: any(progress["batchId"] == number for progress in again.recentProgress))
    again.stop()
    progress = next(progress for progress in again.recentProgress if progress["batchId"] == number)
    newest = datetime.fromisoformat(progress["eventTime"]["max"].replace("Z", "+00:00"))
    assert round(newest.timestamp() * 1000) == tick


def test_without_idle_after_the_silent_stream_holds_all_back(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    busy, quiet = Stream(tmp_path / "busy"), Stream(tmp_path / "quiet")
    one = hf.watermarked(busy.frame(spark), time="ts", delay="10s")
    two = hf.watermarked(quiet.frame(spark), time="ts", delay="10s")
    counted = hf.windowed(one.union(two), time="ts", size="300s").agg(F.sum("n").alias("s"))
    busy.send({1: 1_700_000_000, 2: 1_700_100_000})
    sink = hf.sink(counted).memory("held_back")
    query = sink.start(checkpoint=str(tmp_path / "checkpoint"), trigger=hf.available_now())
    assert query.awaitTermination(100)
    assert spark.table("held_back").collect() == []
    commits = log(tmp_path / "checkpoint", "commits")
    assert json.loads(commits[max(commits)][1])["nextBatchWatermarkMs"] == 0


def test_what_a_watermark_refuses(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(tmp_path / "in").frame(spark)
    with pytest.raises(hf.Invalid, match="already has a watermark"):
        hf.watermarked(stream.withWatermark("ts", "1 minute"), time="ts", delay="1m", idle_after="5m")
    with pytest.raises(hf.Invalid, match="has the wrong type"):
        hf.watermarked(stream, time="n", delay="1m")
    with pytest.raises(hf.Invalid, match="idle_after"):
        hf.watermarked(stream, time="ts", delay="1m", idle_after="soon")
    with pytest.raises(hf.Invalid, match="not a stream"):
        hf.watermarked(spark.createDataFrame([], stream.schema), time="ts", delay="1m", idle_after="5m")
