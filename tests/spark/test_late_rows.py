"""Late rows at the side of Spark's own operators: those that Spark drops, by a model in plain Python."""

# ruff: noqa: N812 - functions are F wherever PySpark is written

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::holdfast.stream.cautions.WatermarkWarning"),
]

BASE = datetime(2026, 3, 5, 9, 0, tzinfo=timezone.utc)
EPOCH = int(BASE.timestamp())
FILES = 7
HALF = 4
DELAY = 120
DROPPED = "numRowsDroppedByWatermark"


@dataclass(frozen=True)
class Row:
    """One event; `k` may be null."""

    k: int | None
    at: int
    n: int


def make(seed: int, *, null_keys: bool = False) -> list[list[Row]]:
    """Files whose rows are anywhere within the last quarter of an hour, some a little ahead."""
    rng = Random(seed)
    files = []
    for number in range(FILES):
        rows = []
        for at in range(40):
            key = None if null_keys and rng.random() < 0.1 else rng.randrange(5)
            time = number * 300 + rng.randrange(-900, 300, 5)
            rows.append(Row(key, time, number * 1000 + at))
        files.append(rows)
    return files


@dataclass
class Stream:
    """A source of files, a file in each batch."""

    files: list[list[Row]]
    folder: Path
    prefix: str = ""

    def frame(self, spark: SparkSession) -> DataFrame:
        self.folder.mkdir(parents=True)
        schema = f"k int, {self.prefix}ts timestamp, {self.prefix}n int"
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.folder))

    def deliver(self, part: slice) -> None:
        for number in range(FILES)[part]:
            lines = [
                json.dumps(
                    {
                        "k": row.k,
                        f"{self.prefix}ts": (BASE + timedelta(seconds=row.at)).isoformat(),
                        f"{self.prefix}n": row.n,
                    }
                )
                for row in self.files[number]
            ]
            path = self.folder / f"{number}.json"
            path.write_text("\n".join(lines))
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


@dataclass(frozen=True)
class Batch:
    """A batch as Spark runs it: the rows of each stream, and the watermark by which rows are late."""

    rows: tuple[list[Row], ...]
    late_by: int


def batches(*streams: list[list[Row]]) -> list[Batch]:
    """What Spark makes of the files, read in two runs: see `WatermarkTracker` and `WatermarkPropagator`.

    The watermark is the smallest of the streams'. A run forgets those, and keeps what they came to. A batch
    judges rows by the watermark that the batch before it ran under.
    """
    made: list[Batch] = []
    ran_under: list[int] = []
    watermark = 0
    for part in (slice(HALF), slice(HALF, None)):
        seen = [0] * len(streams)
        for number in range(FILES)[part]:
            rows = tuple(files[number] for files in streams)
            made.append(Batch(rows, ran_under[-1] if ran_under else 0))
            ran_under.append(watermark)
            seen = [
                max(before, *(EPOCH + row.at - DELAY for row in some))
                for before, some in zip(seen, rows, strict=True)
            ]
            watermark = max(watermark, min(seen))
        # With nothing left to read, a batch without rows drops state by the newest watermark.
        if watermark > ran_under[-1]:
            made.append(Batch(tuple([] for _ in streams), ran_under[-1]))
            ran_under.append(watermark)
    return made


@dataclass
class Query:
    """A query with late rows at its side, and what came out of each batch of it."""

    frame: DataFrame
    checkpoint: Path
    rows: dict[int, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    dropped: Counter[int] = field(default_factory=Counter)

    def take(self, batch: DataFrame, batch_id: int) -> None:
        self.rows[batch_id] = [row.asDict() for row in batch.collect()]

    def start(self) -> Any:
        sink = hf.sink(self.frame, mode="append").foreach_batch(self.take)
        return sink.start(checkpoint=str(self.checkpoint), trigger=hf.available_now())

    def end(self, started: Any) -> None:
        assert started.awaitTermination(200)
        for progress in started.recentProgress:
            if progress["batchId"] in self.rows:
                self.dropped[progress["batchId"]] = sum(
                    operator[DROPPED] for operator in progress["stateOperators"]
                )

    def late(self, number: int) -> list[tuple[Any, ...]]:
        """The late rows of a batch: the stream, the row's number, and the window that it missed."""
        prefix = {"left": "l_", "right": "r_"}
        return sorted(
            (
                row["side_stream"],
                json.loads(row["side_event"])[f"{prefix.get(row['side_stream'], '')}n"],
                seconds(row.get("window_start")),
                seconds(row.get("window_end")),
                row["k"] if "window_end" in row else None,
            )
            for row in self.rows.get(number, [])
            if row["side"] == "late"
        )


def seconds(value: datetime | None) -> int | None:
    return None if value is None else int((value.astimezone(timezone.utc) - BASE).total_seconds())


def run(queries: Sequence[Query], *streams: Stream) -> None:
    """Run all queries over the first files, and again over the rest."""
    for part in (slice(HALF), slice(HALF, None)):
        for stream in streams:
            stream.deliver(part)
        for query, started in [(query, query.start()) for query in queries]:
            query.end(started)


def windows(row: Row, size: int, step: int, offset: int) -> Iterator[tuple[int, int]]:
    """The windows of a row."""
    first = (EPOCH + row.at - offset) // step * step + offset - EPOCH
    for start in range(first, row.at - size, -step):
        yield start, start + size


Windows = Callable[[Row], Any]
KINDS: dict[str, tuple[dict[str, str], Windows]] = {
    "tumbling": ({"size": "5m"}, lambda row: windows(row, 300, 300, 0)),
    "sliding": ({"size": "10m", "slide": "4m", "offset": "1m"}, lambda row: windows(row, 600, 240, 60)),
    "session": ({"gap": "1m"}, lambda row: [(row.at, row.at + 60)]),
}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_late_rows_are_those_that_spark_drops(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    from pyspark.sql import functions as F

    source = Stream(make(seed), tmp_path / "in")
    stream = source.frame(spark)
    queries = {
        kind: Query(
            hf.windowed(
                stream,
                time="ts",
                by="k",
                watermark="2m",
                side_outputs=True,
                **how,
            ).agg(F.count("*").alias("c")),
            tmp_path / "checkpoints" / kind,
        )
        for kind, (how, _) in KINDS.items()
    }
    deduped = hf.dedupe(stream, by=["k", "ts"], time="ts", watermark="2m", side_outputs=True)
    queries["dedupe"] = Query(deduped, tmp_path / "checkpoints" / "dedupe")
    run(list(queries.values()), source)

    planned = batches(source.files)
    total = 0
    for kind, (_, windows_of) in KINDS.items():
        query = queries[kind]
        assert sorted(query.rows) == list(range(len(planned)))
        counted = 0
        for number, batch in enumerate(planned):
            missed = [
                ("event", row.n, *window, row.k)
                for row in batch.rows[0]
                for window in windows_of(row)
                if EPOCH + window[1] <= batch.late_by
            ]
            assert query.late(number) == sorted(missed), (kind, number)
            # Spark counts what is left of these rows once each file's are aggregated.
            assert query.dropped[number] == len({row[2:] for row in missed}), (kind, number)
            total += len(missed)
            counted += len(missed)
        closed = sum(row["c"] for rows in query.rows.values() for row in rows if row["side"] is None)
        everything = sum(len(list(windows_of(row))) for file in source.files for row in file)
        assert closed < everything - counted  # some windows are open to the end
    for number, batch in enumerate(planned):
        behind = sorted(
            ("event", row.n, None, None, None) for row in batch.rows[0] if EPOCH + row.at <= batch.late_by
        )
        assert queries["dedupe"].late(number) == behind
        assert queries["dedupe"].dropped[number] == len(behind)
        total += len(behind)
    assert total > 100


@pytest.mark.parametrize("kind", ["inner", "full", "left", "right", "semi"])
def test_late_rows_of_both_sides_of_a_join(spark: SparkSession, tmp_path: Path, kind: Any) -> None:
    left = Stream(make(4, null_keys=True), tmp_path / "left", "l_")
    right = Stream(make(5, null_keys=True), tmp_path / "right", "r_")
    joined = hf.join_within(
        left.frame(spark),
        right.frame(spark),
        by="k",
        times=("l_ts", "r_ts"),
        bound="20 seconds",
        kind=kind,
        watermark="2 minutes",
        side_outputs=True,
    )
    query = Query(joined, tmp_path / "checkpoint")
    run([query], left, right)
    # Rows without a key that can match nothing are taken out below the watermark, which they do not move.
    needs_key = {"left": kind in ("inner", "right", "semi"), "right": kind in ("inner", "left", "semi")}
    reach = [
        [[row for row in file if row.k is not None or not needs_key[side]] for file in stream.files]
        for side, stream in (("left", left), ("right", right))
    ]
    total = 0
    for number, batch in enumerate(batches(*reach)):
        behind = sorted(
            (side, row.n, None, None, None)
            for side, rows in zip(("left", "right"), batch.rows, strict=True)
            for row in rows
            if EPOCH + row.at <= batch.late_by
        )
        assert query.late(number) == behind, number
        assert query.dropped[number] == len(behind), number
        total += len(behind)
    assert total > 20


def test_a_repeated_batch_gives_the_same_late_rows(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    source = Stream(make(6), tmp_path / "in")
    frame = hf.windowed(
        source.frame(spark), time="ts", size="5m", by="k", watermark="2m", side_outputs=True
    ).agg(F.count("*").alias("c"))
    query = Query(frame, tmp_path / "checkpoint")
    run([query], source)
    number = max(number for number in query.rows if query.late(number))
    before = query.late(number)
    for log, first in (("commits", number), ("offsets", number + 1)):
        for file in (tmp_path / "checkpoint" / log).iterdir():
            if int(file.name.strip(".").split(".")[0]) >= first:
                file.unlink()
    query.rows.clear()
    query.end(query.start())
    assert min(query.rows) == number
    assert query.late(number) == before


def test_a_query_that_holdfast_did_not_start_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    source = Stream(make(7), tmp_path / "in")
    frame = hf.dedupe(source.frame(spark), by="k", time="ts", watermark="2m", side_outputs=True)
    source.deliver(slice(1))
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="needs a query that is started by Holdfast"):
        query.awaitTermination(100)


def test_late_rows_that_cannot_be_told_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    stream = Stream(make(8), tmp_path / "in").frame(spark)
    once = hf.dedupe(stream, by="n", time="ts", watermark="2m")
    with pytest.raises(hf.Invalid, match="the first stateful operator"):
        hf.windowed(once, time="ts", size="5m", side_outputs=True).agg(F.count("*").alias("c"))
    with pytest.raises(hf.Invalid, match="no watermark"):
        hf.windowed(stream, time="ts", size="5m", side_outputs=True)
    other = stream.withColumnRenamed("ts", "r_ts").withColumnRenamed("n", "r_n")
    with pytest.raises(hf.Invalid, match="two streams of one source"):
        hf.join_within(
            stream, other, by="k", times=("ts", "r_ts"), bound="5m", watermark="2m", side_outputs=True
        )
    named = stream.withColumn("side", F.lit(1))
    with pytest.raises(hf.Invalid, match="has the name of a side-output column"):
        hf.dedupe(named, by="n", time="ts", watermark="2m", side_outputs=True)
    counted = hf.windowed(stream, time="ts", size="5m", watermark="2m", side_outputs=True)
    whole = hf.sink(counted.agg(F.count("*").alias("c")), mode="complete").memory("whole")
    with pytest.raises(hf.Invalid, match="Spark drops no late row"):
        whole.start(checkpoint=str(tmp_path / "checkpoint"))
