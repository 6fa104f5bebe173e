"""The operators: plans equal to hand-written PySpark, results equal to plain Python."""

# ruff: noqa: N812 - functions are F wherever PySpark is written

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.engine.planned_state import optimised_plan
from holdfast.errors import Invalid
from holdfast.stream.dedupe import dedupe
from holdfast.stream.event_time import watermarks
from holdfast.stream.joins import enrich, join_within
from holdfast.stream.late import late_rows
from holdfast.stream.running import running
from holdfast.stream.sessions import sessions
from holdfast.stream.windows import windowed
from holdfast_bench.operators.operator_queries import NAMES, WATCHED, Streams, pairs, write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

BASE = datetime(2026, 3, 5, 9, 0, tzinfo=timezone.utc)
FILES = 5
SPAN = 600  # seconds of event time in a file
DISORDER = 90  # less than the watermark's two minutes
CLOSING = 86_400


@pytest.fixture(scope="module")
def clicks(spark: SparkSession) -> DataFrame:
    return rate(spark).selectExpr("value AS k", "timestamp AS ts", "value AS a")


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> DataFrame:
    return rate(spark).selectExpr("value AS k", "timestamp AS seen", "value AS b")


def rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


def test_a_tumbling_window_costs_what_it_costs_by_hand(spark: SparkSession, clicks: DataFrame) -> None:
    from pyspark.sql import functions as F

    ours = windowed(clicks, time="ts", size="5 minutes", by="k", watermark="10 minutes").agg(
        F.count("*").alias("n"), F.sum("a").alias("total")
    )
    by_hand = (
        clicks.withWatermark("ts", "10 minutes")
        .groupBy(F.window("ts", "5 minutes"), "k")
        .agg(F.count("*").alias("n"), F.sum("a").alias("total"))
        .select(
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            "k",
            "n",
            "total",
        )
    )
    assert optimised_plan(ours) == optimised_plan(by_hand)


def test_a_sliding_window_with_an_offset_costs_what_it_costs_by_hand(
    spark: SparkSession, clicks: DataFrame
) -> None:
    from pyspark.sql import functions as F

    ours = windowed(
        clicks.withWatermark("ts", "1 hour"),
        time="ts",
        size="7 days",
        slide=timedelta(days=1),
        offset="6 hours",
    ).agg(F.avg("a").alias("mean"))
    by_hand = (
        clicks.withWatermark("ts", "1 hour")
        .groupBy(F.window("ts", "7 days", "1 day", "6 hours"))
        .agg(F.avg("a").alias("mean"))
        .select(F.col("window.start").alias("window_start"), F.col("window.end").alias("window_end"), "mean")
    )
    assert optimised_plan(ours) == optimised_plan(by_hand)


def test_a_session_window_costs_what_it_costs_by_hand(spark: SparkSession, clicks: DataFrame) -> None:
    from pyspark.sql import functions as F

    ours = windowed(clicks, time="ts", gap="90s", by=["k"], watermark="10 minutes").agg(
        F.count("*").alias("n")
    )
    by_hand = (
        clicks.withWatermark("ts", "10 minutes")
        .groupBy(F.session_window("ts", "90 seconds"), "k")
        .agg(F.count("*").alias("n"))
        .select(
            F.col("session_window.start").alias("window_start"),
            F.col("session_window.end").alias("window_end"),
            "k",
            "n",
        )
    )
    assert optimised_plan(ours) == optimised_plan(by_hand)


@pytest.mark.parametrize(
    ("kind", "by_hand", "columns"),
    [
        ("inner", "inner", ["l.k", "l.ts", "l.a", "r.seen", "r.b"]),
        ("left", "leftOuter", ["l.k", "l.ts", "l.a", "r.seen", "r.b"]),
        ("right", "rightOuter", ["r.k", "l.ts", "l.a", "r.seen", "r.b"]),
        ("full", "fullOuter", ["coalesce(l.k, r.k) AS k", "l.ts", "l.a", "r.seen", "r.b"]),
        ("semi", "leftSemi", ["l.k", "l.ts", "l.a"]),
    ],
)
def test_a_join_costs_what_it_costs_by_hand(
    spark: SparkSession, clicks: DataFrame, views: DataFrame, kind: Any, by_hand: str, columns: list[str]
) -> None:
    from pyspark.sql import functions as F

    ours = join_within(
        clicks,
        views,
        by="k",
        times=("ts", "seen"),
        bound=("-1 minute", "5 minutes"),
        kind=kind,
        watermark=("10 minutes", "20 minutes"),
    )
    within = "l.k = r.k AND r.seen >= l.ts + INTERVAL -1 minute AND r.seen <= l.ts + INTERVAL 5 minutes"
    theirs = (
        clicks.withWatermark("ts", "10 minutes")
        .alias("l")
        .join(views.withWatermark("seen", "20 minutes").alias("r"), F.expr(within), by_hand)
        .selectExpr(*columns)
    )
    assert optimised_plan(ours) == optimised_plan(theirs)


def test_a_dedupe_costs_what_it_costs_by_hand(spark: SparkSession, clicks: DataFrame) -> None:
    ours = dedupe(clicks, by=["k", "a"], time="ts", watermark="10 minutes")
    by_hand = clicks.withWatermark("ts", "10 minutes").dropDuplicatesWithinWatermark(["k", "a"])
    assert optimised_plan(ours) == optimised_plan(by_hand)
    marked = clicks.withWatermark("ts", "10 minutes")
    assert optimised_plan(dedupe(marked, by="k")) == optimised_plan(
        marked.dropDuplicatesWithinWatermark(["k"])
    )


def test_a_plan_is_told_from_another(spark: SparkSession, clicks: DataFrame) -> None:
    ours = dedupe(clicks, by="k", time="ts", watermark="10 minutes")
    assert optimised_plan(ours) != optimised_plan(
        clicks.withWatermark("ts", "11 minutes").dropDuplicates(["k"])
    )


@dataclass(frozen=True)
class Row:
    """One event of a test stream."""

    k: int
    at: int
    n: int
    late: bool = False


@dataclass(frozen=True)
class Made:
    """A stream of several files, and the rows of it that no query may drop."""

    files: list[list[Row]]
    on_time: list[Row]

    @property
    def late(self) -> list[Row]:
        return [row for file in self.files for row in file if row.late]


def make(seed: int) -> Made:
    """Rows of five files in bounded disorder; the last two files bring rows from the first as well.

    Those are far behind every watermark that a batch of one file can see. The closing row at the end
    moves the watermark past everything else.
    """
    rng = Random(seed)
    files: list[list[Row]] = []
    number = 0
    for start in range(0, FILES * SPAN, SPAN):
        delivered = []
        for _ in range(30):
            at = start + rng.randrange(0, SPAN, 5)  # so that some rows lie exactly on a bound
            delivered.append((at + rng.randrange(DISORDER), Row(rng.randrange(6), at, number)))
            number += 1
        # What is delivered after the file is full stays in it: that is disorder, and no lateness.
        files.append([row for _, row in sorted(delivered, key=lambda each: each[0])])
    on_time = [row for file in files for row in file]
    for file in files[3:]:
        for _ in range(4):
            file.insert(rng.randrange(len(file)), Row(rng.randrange(6), rng.randrange(60), number, late=True))
            number += 1
    # A key of its own: the closing rows of two streams must not meet.
    files[-1].append(Row(100 + seed, CLOSING, number))
    return Made(files, on_time)


@dataclass
class Stream:
    """A stream of files, each a batch."""

    made: Made
    folder: Path
    prefix: str

    def frame(self, spark: SparkSession) -> DataFrame:
        """A streaming frame over the files, with a column for each field."""
        self.folder.mkdir(parents=True)
        schema = f"k int, {self.prefix}ts timestamp, {self.prefix}n int"
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(self.folder))

    def deliver(self, part: slice) -> None:
        """Write some of the files."""
        for number in range(len(self.made.files))[part]:
            path = self.folder / f"{number}.json"
            lines = [
                json.dumps(
                    {"k": row.k, f"{self.prefix}ts": moment(row.at).isoformat(), f"{self.prefix}n": row.n}
                )
                for row in self.made.files[number]
            ]
            path.write_text("\n".join(lines))
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def moment(at: int) -> datetime:
    return BASE + timedelta(seconds=at)


def seconds(value: datetime | None) -> int | None:
    """A time that Spark collected, which is naive and in this machine's zone."""
    return None if value is None else int((value.astimezone(timezone.utc) - BASE).total_seconds())


@dataclass
class Query:
    """A query that runs twice on one checkpoint, and the rows of both runs with times as seconds."""

    frame: DataFrame
    checkpoint: Path
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    late: int = 0

    def start(self) -> StreamingQuery:
        writer = self.frame.writeStream.foreachBatch(self.take).outputMode("append")
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    def take(self, batch: DataFrame, _number: int) -> None:
        self.rows += [
            tuple(seconds(value) if isinstance(value, datetime) else value for value in row)
            for row in batch.collect()
        ]

    def ended(self, begun: StreamingQuery) -> None:
        assert begun.awaitTermination(120)
        # Batch progress alone; an idle trigger reports the numbers of the batch before it.
        self.late += sum(late_rows(progress) for progress in begun.recentProgress)


def run_in_halves(queries: Iterable[Query], *streams: Stream, at_once: bool = True) -> None:
    """Run all queries over the first files, and again over the rest: a restart in the middle."""
    for part in (slice(3), slice(3, None)):
        for stream in streams:
            stream.deliver(part)
        for some in [list(queries)] if at_once else [[query] for query in queries]:
            for query, begun in [(query, query.start()) for query in some]:
                query.ended(begun)


def ordered(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def test_windows_equal_a_plain_model(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    made = make(1)
    source = Stream(made, tmp_path / "in", "")
    stream = source.frame(spark)
    count, total = F.count("*").alias("c"), F.sum("n").alias("s")
    frames = {
        "tumbling": windowed(stream, time="ts", size="5m", by="k", watermark="2 minutes").agg(count, total),
        "sliding": windowed(stream, time="ts", size="10m", slide="4m", offset="1m", watermark="2m").agg(
            count, total
        ),
        "session": windowed(stream, time="ts", gap="1 minute", by="k", watermark="2m").agg(count, total),
    }
    found = {name: Query(frame, tmp_path / name) for name, frame in frames.items()}
    run_in_halves(found.values(), source)

    tumbling = fixed_windows(made.on_time, size=300, step=300, offset=0, key=lambda row: row.k)
    assert ordered(found["tumbling"].rows) == ordered(
        (a, b, k, c, s) for (a, b, k), (c, s) in tumbling.items()
    )
    sliding = fixed_windows(made.on_time, size=600, step=240, offset=60, key=lambda _: 0)
    assert ordered(found["sliding"].rows) == ordered((a, b, c, s) for (a, b, _), (c, s) in sliding.items())
    assert ordered(found["session"].rows) == ordered(session_model(made.on_time, gap=60))
    for name, query in found.items():
        assert 0 < query.late <= len(made.late) * (3 if name == "sliding" else 1), name


def test_running_aggregates_and_sessions_equal_a_plain_model(spark: SparkSession, tmp_path: Path) -> None:
    made = make(1)
    source = Stream(made, tmp_path / "in", "")
    stream = source.frame(spark).withWatermark("ts", "2 minutes")
    how: dict[str, Any] = {"by": "k", "time": "ts", "agg": {"c": "count(*)", "s": "sum(n)"}, "key_groups": 2}
    over = Query(running(stream, size="5m", **how), tmp_path / "running")
    tracked = Query(sessions(stream, gap="1m", **how), tmp_path / "sessions")
    run_in_halves([over, tracked], source, at_once=False)
    assert ordered(over.rows) == ordered(running_model(made.on_time, size=300))
    in_sessions = session_model(made.on_time, gap=60)
    assert ordered(tracked.rows) == ordered((k, a, b, c, s) for a, b, k, c, s in in_sessions)
    assert over.late == tracked.late == len(made.late)


def fixed_windows(
    rows: list[Row], *, size: int, step: int, offset: int, key: Callable[[Row], int]
) -> dict[tuple[int, int, int], tuple[int, int]]:
    """Count and sum by window and key; windows start at multiples of the step after the offset."""
    held: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    epoch = int(BASE.timestamp())
    for row in rows:
        first = (epoch + row.at - offset) // step * step + offset - epoch
        for begin in range(first, row.at - size, -step):
            held[begin, begin + size, key(row)].append(row.n)
    return {window: (len(numbers), sum(numbers)) for window, numbers in held.items()}


def session_model(rows: list[Row], *, gap: int) -> list[tuple[int, int, int, int, int]]:
    found = []
    for k in {row.k for row in rows}:
        group: list[Row] = []
        for row in [*sorted((r for r in rows if r.k == k), key=lambda r: r.at), Row(k, CLOSING, 0)]:
            if group and row.at > group[-1].at + gap:
                found.append((group[0].at, group[-1].at + gap, k, len(group), sum(r.n for r in group)))
                group = []
            group.append(row)
    return found


def running_model(rows: list[Row], *, size: int) -> list[tuple[int, int, int, int, int]]:
    found = []
    for row in rows:
        around = [each.n for each in rows if each.k == row.k and row.at - size <= each.at <= row.at]
        found.append((row.k, row.at, row.n, len(around), sum(around)))
    return found


def test_joins_equal_a_plain_model(spark: SparkSession, tmp_path: Path) -> None:
    left, right = make(2), make(3)
    streams = Stream(left, tmp_path / "left", "l_"), Stream(right, tmp_path / "right", "r_")
    one, two = (each.frame(spark) for each in streams)
    bound = (timedelta(seconds=-5), "20 seconds")
    kinds: tuple[Any, ...] = ("inner", "left", "right", "full", "semi")
    found = {}
    for kind in kinds:
        joined = join_within(
            one, two, by="k", times=("l_ts", "r_ts"), bound=bound, kind=kind, watermark="2 minutes"
        )
        found[kind] = Query(joined, tmp_path / "checkpoints" / kind)
    run_in_halves(found.values(), *streams)
    for kind, query in found.items():
        assert ordered(query.rows) == ordered(join_model(left.on_time, right.on_time, -5, 20, kind)), kind
        assert query.late == len(left.late) + len(right.late), kind


def join_model(
    left: list[Row], right: list[Row], low: int, high: int, kind: str
) -> list[tuple[int | None, ...]]:
    pairs = [(a, b) for a in left for b in right if a.k == b.k and low <= b.at - a.at <= high]
    met_left, met_right = {a for a, _ in pairs}, {b for _, b in pairs}
    assert pairs
    assert len(met_left) < len(left)
    assert len(met_right) < len(right)
    if kind == "semi":
        return [(a.k, a.at, a.n) for a in met_left]
    rows: list[tuple[int | None, ...]] = [(a.k, a.at, a.n, b.at, b.n) for a, b in pairs]
    if kind in {"left", "full"}:
        rows += [(a.k, a.at, a.n, None, None) for a in left if a not in met_left]
    if kind in {"right", "full"}:
        rows += [(b.k, None, None, b.at, b.n) for b in right if b not in met_right]
    return rows


def test_dedupe_is_exact_within_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    made = make(4)
    rng = Random(4)
    # A repeat comes with its row, or a file later if it is recent enough to be on time there.
    repeated = [[*file, *(row for row in file if rng.random() < 0.3)] for file in made.files]
    for number in range(FILES - 1):
        end = (number + 1) * SPAN
        repeated[number + 1] += [row for row in made.files[number] if end - DISORDER < row.at < end]
    again = [row for file in repeated for row in file]
    assert len(again) > len(set(again))
    source = Stream(Made(repeated, made.on_time), tmp_path / "in", "")
    frame = dedupe(source.frame(spark), by="n", time="ts", watermark="2 minutes")
    query = Query(frame, tmp_path / "checkpoint")
    run_in_halves([query], source)
    closing = made.files[-1][-1]
    expected = [(row.k, row.at, row.n) for row in [*made.on_time, closing]]
    assert ordered(query.rows) == ordered(expected)
    assert query.late == sum(row.late for row in again)


def test_batch_frames_join_and_window_without_a_watermark(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    left = spark.sql("SELECT 1 AS k, timestamp_seconds(100) AS ts, 5 AS amount")
    right = spark.sql("SELECT 1 AS k, timestamp_seconds(400) AS ts, 6 AS amount")
    joined = join_within(
        left, right, by="k", times=("ts", "ts"), bound="5 minutes", prefixes=("order_", "payment_")
    )
    assert joined.columns == ["k", "order_ts", "order_amount", "payment_ts", "payment_amount"]
    assert joined.select("order_amount", "payment_amount").collect() == [(5, 6)]
    short = join_within(left, right, by="k", times=("ts", "ts"), bound="299s", prefixes=("a_", "b_"))
    assert short.count() == 0
    counted = windowed(left, time="ts", size="1m").agg(F.count("*").alias("n"))
    assert counted.columns == ["window_start", "window_end", "n"]
    assert counted.select(F.unix_timestamp("window_start"), "n").collect() == [(60, 1)]


def test_names_with_dots_are_columns_and_not_fields(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    frame = spark.sql("SELECT 1 AS `a.k`, timestamp_seconds(100) AS `e.ts`, 5 AS `a.v`")
    other = spark.sql("SELECT 1 AS `a.k`, timestamp_seconds(100) AS `f.ts`")
    joined = join_within(frame, other, by="a.k", times=("e.ts", "f.ts"), bound="1s")
    assert joined.columns == ["a.k", "e.ts", "a.v", "f.ts"]
    counted = windowed(frame, time="e.ts", size="1m", by="a.k").agg(F.count("*").alias("c.n"))
    assert counted.columns == ["window_start", "window_end", "a.k", "c.n"]
    assert counted.select("`c.n`").collect() == [(1,)]


def test_the_watermark_of_a_frame_is_found(clicks: DataFrame) -> None:
    from pyspark.sql import functions as F

    assert watermarks(clicks) == {}
    marked = clicks.withWatermark("ts", "10 minutes")
    assert watermarks(marked) == {"ts": 600_000}
    assert watermarks(marked.select(F.col("ts").alias("moved"))) == {"moved": 600_000}


def test_a_second_watermark_is_refused(clicks: DataFrame, views: DataFrame) -> None:
    marked = clicks.withWatermark("ts", "10 minutes")
    wrongs: list[Callable[[], object]] = [
        lambda: windowed(marked, time="ts", size="1m", watermark="5 minutes"),
        lambda: dedupe(marked, by="k", time="ts", watermark="5 minutes"),
        lambda: join_within(
            marked, views, by="k", times=("ts", "seen"), bound="1m", watermark=("5 minutes", "5 minutes")
        ),
    ]
    for wrong in wrongs:
        with pytest.raises(Invalid, match="already has a watermark") as caught:
            wrong()
        assert caught.value.found is not None
        assert "10 minutes" in caught.value.found


def test_a_missing_watermark_is_refused_with_a_way_out(clicks: DataFrame, views: DataFrame) -> None:
    marked = clicks.withWatermark("ts", "10 minutes")
    with pytest.raises(Invalid, match="no watermark on `seen`") as caught:
        join_within(marked, views, by="k", times=("ts", "seen"), bound="5 minutes")
    assert caught.value.hint is not None
    assert 'watermark="10 minutes"' in caught.value.hint
    with pytest.raises(Invalid, match="no watermark"):
        dedupe(clicks, by="k", time="ts")
    with pytest.raises(Invalid, match="no watermark"):
        dedupe(clicks, by="k")
    with pytest.raises(Invalid, match="needs an event-time column"):
        dedupe(clicks, by="k", watermark="1 minute")


def test_a_watermark_on_another_column_is_refused(clicks: DataFrame) -> None:
    marked = clicks.selectExpr("*", "ts AS other").withWatermark("other", "10 minutes")
    with pytest.raises(Invalid, match=r"no watermark on `ts`(.|\n)*found a watermark on `other`"):
        windowed(marked, time="ts", size="1m")
    with pytest.raises(Invalid, match="no watermark on `ts`"):
        dedupe(marked, by="k", time="ts")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "no window length"),
        ({"size": "1m", "gap": "1m"}, "cannot be combined with size"),
        ({"size": "1m", "slide": "2m"}, "longer than the window"),
        ({"size": "soon"}, "size"),
        ({"size": "0s"}, "size"),
        ({"size": "1m", "time": "nowhere"}, "no column"),
        ({"size": "1m", "time": "k"}, "has the wrong type"),
        ({"size": "1m", "by": "nobody"}, "no column"),
        ({"size": "1m", "by": ["k", "k"]}, "named twice"),
    ],
)
def test_a_wrong_window_is_refused(clicks: DataFrame, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        windowed(clicks, **{"time": "ts", **wrong})


def test_a_window_without_aggregates_or_with_taken_names_is_refused(clicks: DataFrame) -> None:
    from pyspark.sql import functions as F

    waiting = windowed(clicks, time="ts", size="1m", by="k")
    with pytest.raises(Invalid, match="no aggregate given"):
        waiting.agg()
    for name in ("k", "window_start", "window"):
        with pytest.raises(Invalid, match="used twice in the result"):
            waiting.agg(F.count("*").alias(name))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "anti"}, "invalid value for .*kind"),
        ({"by": []}, "no key column given"),
        ({"by": "a"}, "no column"),
        ({"by": "word"}, "different types"),
        ({"times": ("ts", "b")}, "has the wrong type"),
        ({"bound": ("5 minutes", "1 minute")}, "ends before it begins"),
        ({"bound": "a while"}, "bound"),
    ],
)
def test_a_wrong_join_is_refused(
    clicks: DataFrame, views: DataFrame, wrong: dict[str, Any], message: str
) -> None:
    right = {"by": "k", "times": ("ts", "seen"), "bound": "5 minutes", "watermark": "1 minute"}
    one = clicks.selectExpr("*", "'x' AS word")
    two = views.selectExpr("*", "1 AS word") if wrong.get("by") == "word" else views
    with pytest.raises(Invalid, match=message):
        join_within(one, two, **{**right, **wrong})


def test_clashing_names_are_refused_with_a_way_out(clicks: DataFrame) -> None:
    with pytest.raises(Invalid, match="columns with the same name") as caught:
        join_within(clicks, clicks, by="k", times=("ts", "ts"), bound="5m", watermark="1m")
    assert caught.value.found == "ts, a"
    assert caught.value.hint is not None
    assert "prefixes=" in caught.value.hint
    with pytest.raises(Invalid, match="have the same name"):
        join_within(
            clicks, clicks, by="k", times=("ts", "ts"), bound="5m", watermark="1m", prefixes=("x_", "x_")
        )


def test_a_stream_and_a_table_are_joined_by_enrich(spark: SparkSession, clicks: DataFrame) -> None:
    table = spark.sql("SELECT 1L AS k, timestamp_seconds(1) AS seen")
    with pytest.raises(Invalid, match="cannot join a stream with a batch frame") as caught:
        join_within(clicks, table, by="k", times=("ts", "seen"), bound="5m", watermark="1m")
    assert caught.value.hint is not None
    assert "holdfast.enrich(stream, table" in caught.value.hint
    with pytest.raises(Invalid, match="not a stream"):
        dedupe(table, by="k", time="seen", watermark="1m")


@pytest.mark.parametrize(("how", "by_hand"), [("left", "leftOuter"), ("inner", "inner")])
def test_a_lookup_costs_what_it_costs_by_hand(
    spark: SparkSession, clicks: DataFrame, how: Any, by_hand: str
) -> None:
    table = spark.sql("SELECT id AS k, cast(id AS string) AS word FROM range(3)")
    theirs = clicks.join(table, "k", by_hand).select("k", "ts", "a", "word")
    assert optimised_plan(enrich(clicks, table, by="k", how=how)) == optimised_plan(theirs)
    marked = clicks.withWatermark("ts", "1 minute")
    assert watermarks(enrich(marked, table, by="k", how=how)) == {"ts": 60_000}


def test_a_lookup_adds_the_columns_of_the_row_with_the_key(spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, 'x', 'a'), (2, 'y', 'b'), (null, 'z', 'c') AS t(k, `w.n`, v)")
    table = spark.sql("SELECT * FROM VALUES ('x', 1, 10), ('y', 1, 20), (null, null, 30) AS t(`w.n`, k, v)")
    found = enrich(rows, table, by=["k", "w.n"], prefix="table_")
    assert found.columns == ["k", "w.n", "v", "table_v"]
    assert ordered(map(tuple, found.collect())) == ordered(
        [(1, "x", "a", 10), (2, "y", "b", None), (None, "z", "c", None)]
    )
    inner = enrich(rows, table, by=["k", "w.n"], how="inner", prefix="table_")
    assert list(map(tuple, inner.collect())) == [(1, "x", "a", 10)]


def test_files_that_a_table_gains_are_not_seen_by_a_query_that_reads_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    made = Made([[Row(1, 0, 0)], [Row(1, 1, 1)]], [])
    source = Stream(made, tmp_path / "in", "")
    table = str(tmp_path / "table")
    spark.sql("SELECT 1 AS k, 'old' AS word").write.parquet(table)
    words = enrich(source.frame(spark), spark.read.parquet(table), by="k").select("word")
    query = Query(words, tmp_path / "checkpoint")
    for number in (0, 1):
        source.deliver(slice(number, number + 1))
        query.ended(query.start())
        spark.sql("SELECT 1 AS k, 'new' AS word").write.mode("append").parquet(table)
    assert query.rows == [("old",), ("old",)]
    assert spark.read.parquet(table).count() == 3


def test_a_key_that_comes_twice_is_refused_where_asked(spark: SparkSession, clicks: DataFrame) -> None:
    once = spark.sql("SELECT * FROM VALUES (1L, 'x'), (2L, 'y'), (null, 'z'), (null, 'z') AS t(k, word)")
    assert enrich(clicks, once, by="k", check=True).isStreaming
    twice = once.union(once.filter("k = 2"))
    assert enrich(clicks, twice, by="k").isStreaming
    with pytest.raises(Invalid, match="has several rows for a key") as caught:
        enrich(clicks, twice, by="k", check=True)
    assert caught.value.found == "2 rows for 2"


def test_a_wrong_lookup_is_refused(spark: SparkSession, clicks: DataFrame, views: DataFrame) -> None:
    table = spark.sql("SELECT 1L AS k, 2L AS a, 'x' AS word")
    wrongs: list[tuple[Callable[[], object], str]] = [
        (lambda: enrich(clicks, views, by="k"), "the table to join is a stream"),
        (lambda: enrich(clicks, table, by=[]), "no key column given"),
        (lambda: enrich(clicks, table, by="word"), "no column"),
        (lambda: enrich(clicks, table, by="ts"), "no column"),
        (lambda: enrich(clicks, table.selectExpr("int(k) AS k"), by="k"), "different types"),
        (lambda: enrich(clicks, table, by="k", how="right"), "invalid value"),  # type: ignore[arg-type]
        (lambda: enrich(clicks, table, by="k", prefix=""), "have the same name"),
    ]
    for wrong, message in wrongs:
        with pytest.raises(Invalid, match=message):
            wrong()
    with pytest.raises(Invalid, match="columns with the same name") as caught:
        enrich(clicks, table, by="k")
    assert caught.value.hint is not None
    assert 'prefix="table_"' in caught.value.hint


@pytest.mark.parametrize(
    ("operator", "wrong", "message"),
    [
        (running, {"size": "1m", "emit": "soon"}, "emit"),
        (running, {"size": "0s"}, "size"),
        (running, {"size": "1m", "agg": {}}, "no aggregate given"),
        (running, {"size": "1m", "agg": {"a": "sum(a)"}}, "the same name as another column"),
        (running, {"size": "1m", "time": "k"}, "has the wrong type"),
        (running, {"size": "1m", "by": "ts"}, "cannot be a key"),
        (running, {"size": "1m", "watermark": None}, "no watermark on `ts`"),
        (sessions, {"gap": "0s"}, "gap"),
        (sessions, {"gap": "1m", "longest": "soon"}, "longest"),
        (sessions, {"gap": "1m", "agg": {"session_end": "sum(a)"}}, "the same name as another column"),
        (sessions, {"gap": "1m", "by": "nobody"}, "no column"),
        (sessions, {"gap": "1m", "by": "ts"}, "cannot be a key"),
        (sessions, {"gap": "1m", "watermark": None}, "no watermark on `ts`"),
    ],
)
def test_wrong_running_aggregates_and_sessions_are_refused(
    clicks: DataFrame, operator: Callable[..., object], wrong: dict[str, Any], message: str
) -> None:
    right: dict[str, Any] = {"by": "k", "time": "ts", "agg": {"n": "count(*)"}, "watermark": "1m"}
    with pytest.raises(Invalid, match=message):
        operator(clicks, **{**right, **wrong})


def test_rows_at_rest_have_no_running_aggregates_and_no_tracked_sessions(spark: SparkSession) -> None:
    table = spark.sql("SELECT 1L AS k, timestamp_seconds(1) AS ts")
    shared: dict[str, Any] = {"by": "k", "time": "ts", "agg": {"n": "count(*)"}}
    with pytest.raises(Invalid, match="not a stream"):
        running(table, size="1m", **shared)
    with pytest.raises(Invalid, match="not a stream"):
        sessions(table, gap="1m", **shared)


def test_every_query_of_the_bench_is_the_same_work_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, rows=10, batches=1)
    both = {name: made() for name, made in pairs(Streams(spark, tmp_path)).items()}
    assert set(both) == set(NAMES)
    looks = "CollectMetrics holdfast-skew."
    for name in WATCHED:  # here one side has something added
        assert [optimised_plan(each).count(looks) for each in both.pop(name)] == [1, 0], name
    for name, (ours, by_hand) in both.items():
        assert optimised_plan(ours) == optimised_plan(by_hand), name
