"""Joins of streams with hot keys split: plain Python agrees, over late rows, a restart and a replay."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from grid import WHOLE
from grid_runs import PROVIDERS
from rescaled import rescale
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    # A join of two streams has two watermarks.
    pytest.mark.filterwarnings("ignore::holdfast.stream.cautions.WatermarkWarning"),
]

BASE = datetime(2026, 3, 5, 9, 0, tzinfo=timezone.utc)
SPAN = 300  # seconds of event time in a file
FILES = 3
DELAY = "2 minutes"
DISORDER = 60
LOW, HIGH = -5, 15
CLOSING = 86_400
# Every seed makes other rows for both sides; all of them take some minutes.
SEEDS = (11, 21, 31, 41) if WHOLE else (11,)

Key = tuple["str | None", int]


@dataclass(frozen=True)
class Row:
    who: str | None
    day: int
    at: int
    n: int


@dataclass(frozen=True)
class Side:
    """Files of rows, and the rows of them that no query may drop; every row is one of its own."""

    files: list[list[Row]]
    on_time: list[Row]


def make(seed: int) -> Side:
    """Three files in bounded disorder, with repeats and rows that are too late in the last one."""
    rng = Random(seed)
    keys: list[Key] = [("hot", 1), ("hot", 1), ("hot", 1), ("hot", 2), ("a", 1), (None, 1)]
    files: list[list[Row]] = []
    for number in range(FILES):
        begin = number * SPAN
        made = []
        for _ in range(30):
            at = begin + rng.randrange(0, SPAN, 5)
            # Few numbers: some rows are equal in every column.
            made.append((at + rng.randrange(DISORDER), Row(*rng.choice(keys), at, rng.randrange(40))))
        rows = [row for _, row in sorted(made, key=lambda each: each[0])]
        files.append([*rows, *rng.sample(rows, 4)])
    on_time = [row for file in files for row in file]
    for file in files[FILES - 1 :]:
        file += [Row(*rng.choice(keys), rng.randrange(0, 60, 5), 90 + at) for at in range(6)]
    # These keys meet nobody; they move the watermark past everything else.
    files.append([Row(f"end{seed}", 0, CLOSING, 99)])
    return Side(files, on_time)


def deliver(side: Side, folder: Path, name: str, numbers: range) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        lines = [
            json.dumps({"who": row.who, "day": row.day, f"{name}t": moment(row.at).isoformat(), name: row.n})
            for row in side.files[number]
        ]
        path = folder / f"{number}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def read(spark: SparkSession, folder: Path, name: str) -> DataFrame:
    schema = f"who string, day int, {name}t timestamp, {name} int"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))


def moment(at: int) -> datetime:
    return BASE + timedelta(seconds=at)


# The files before and after a change.
HALVES = (slice(0, 2), slice(2, FILES))


def met(left: list[Row], right: list[Row]) -> set[str | None]:
    """The first key column of the rows of day 1 that meet each other."""
    return {
        one.who
        for one in left
        for two in right
        if one.who in ("hot", "a") and (one.who, one.day, 1) == (two.who, two.day, two.day)
        if LOW <= two.at - one.at <= HIGH
    }


def model(left: list[Row], right: list[Row], kind: str) -> list[tuple[Any, ...]]:
    pairs = [
        (i, j)
        for i, one in enumerate(left)
        for j, two in enumerate(right)
        if one.who is not None and (one.who, one.day) == (two.who, two.day) and LOW <= two.at - one.at <= HIGH
    ]
    met = {i for i, _ in pairs}, {j for _, j in pairs}
    assert len(met[0]) < len(left)
    assert len(met[1]) < len(right)
    if kind == "semi":
        return [(left[i].who, left[i].day, left[i].n) for i in met[0]]
    rows: list[tuple[Any, ...]] = [(left[i].who, left[i].day, left[i].n, right[j].n) for i, j in pairs]
    if kind == "left":
        rows += [(row.who, row.day, row.n, None) for i, row in enumerate(left) if i not in met[0]]
    if kind == "right":
        rows += [(row.who, row.day, None, row.n) for j, row in enumerate(right) if j not in met[1]]
    return rows


@dataclass
class Run:
    """One join over both streams, started as often as a test likes; its answers by batch."""

    spark: SparkSession
    place: Path
    kind: str
    split: str | None
    sides: tuple[Side, Side]
    answers: dict[int, list[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(list))
    folder: str = "checkpoint"

    def frame(self, **changed: Any) -> DataFrame:
        one, two = (read(self.spark, self.place / name, name) for name in "ab")
        hot = changed.pop("hot", [("hot", 1), (None, 1)])
        waiting = hf.split_hot(one, by=["who", "day"], hot=hot, parts=changed.pop("parts", 3))
        return waiting.join_within(
            two,
            times=("at", "bt"),
            bound=(timedelta(seconds=LOW), timedelta(seconds=HIGH)),
            kind=self.kind,  # type: ignore[arg-type]
            watermark=DELAY,
            split=self.split,  # type: ignore[arg-type]
            name="meeting",
        )

    @property
    def checkpoint(self) -> Path:
        return self.place / self.folder

    def start(self, **changed: Any) -> Any:
        def note(batch: DataFrame, number: int) -> None:
            columns = [each for each in ("who", "day", "a", "b") if each in batch.columns]
            self.answers[number] = [tuple(row) for row in batch.select(columns).collect()]

        sink = hf.sink(self.frame(**changed)).foreach_batch(note)
        return sink.start(checkpoint=str(self.checkpoint), trigger=hf.available_now())

    def forget_commit(self) -> int:
        """What a crash between the sink and the commit leaves behind: the last batch runs again."""
        last = max(int(each.name) for each in (self.checkpoint / "commits").iterdir() if each.name.isdigit())
        for name in (str(last), f".{last}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)
        return last


# An inner join split on its left is the left join without the rows that it releases.
KINDS = [("inner", "right"), ("left", None), ("right", None), ("semi", None)]


@pytest.fixture(scope="module", params=SEEDS)
def runs(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> list[Run]:
    """All kinds after the first half of the files."""
    sides = make(request.param), make(request.param + 1)
    made = []
    for kind, split in KINDS:
        place = tmp_path_factory.mktemp(f"{kind}-{split}")
        for side, name in zip(sides, "ab", strict=True):
            deliver(side, place / name, name, range(2))
        made.append(Run(spark, place, kind, split, sides))
    finish(made)
    return made


def finish(runs: list[Run]) -> None:
    for query in [run.start() for run in runs]:
        assert query.awaitTermination(180)


def ordered(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(map(repr, rows))


def test_joins_with_split_keys_equal_plain_python_over_a_restart_and_a_replay(runs: list[Run]) -> None:
    for run in runs:
        before = dict(run.answers)
        run.again = run.forget_commit(), before  # type: ignore[attr-defined]
        for side, name in zip(run.sides, "ab", strict=True):
            deliver(side, run.place / name, name, range(2, FILES + 1))
    finish(runs)
    for run in runs:
        replayed, before = run.again  # type: ignore[attr-defined]
        assert ordered(run.answers[replayed]) == ordered(before[replayed])
        found = [row for rows in run.answers.values() for row in rows if not str(row[0]).startswith("end")]
        expected = model(run.sides[0].on_time, run.sides[1].on_time, run.kind)
        assert ordered(found) == ordered(expected), (run.kind, run.split)


def test_a_join_with_split_keys_goes_on_after_a_rescale(spark: SparkSession, tmp_path: Path) -> None:
    sides = make(51), make(52)
    run = Run(spark, tmp_path, "left", None, sides)
    for numbers in (range(2), range(2, FILES + 1)):
        for side, name in zip(sides, "ab", strict=True):
            deliver(side, tmp_path / name, name, numbers)
        finish([run])
        if numbers.start == 0:
            rescale(spark, run.checkpoint, 3)
    found = [row for rows in run.answers.values() for row in rows if not str(row[0]).startswith("end")]
    assert ordered(found) == ordered(model(sides[0].on_time, sides[1].on_time, "left"))


@pytest.mark.usefixtures("guards_wait_no_time")
@pytest.mark.parametrize("provider", list(PROVIDERS) if WHOLE else ["memory", "rocksdb2"])
def test_the_hot_keys_of_a_join_change_over_a_restart(
    spark: SparkSession, tmp_path: Path, settings: Callable[[dict[str, str]], None], provider: str
) -> None:
    settings(PROVIDERS[provider])
    # With these seeds, rows of both sides and of both new hot keys wait for rows after the change.
    sides, made = (make(518), make(519)), []
    left, right = ([[row for file in side.files[half] for row in file] for half in HALVES] for side in sides)
    assert met(left[0], right[1])
    assert met(left[1], right[0])
    assert {"hot", "a"} == met(left[0], right[1]) | met(left[1], right[0])
    for kind, split in KINDS:
        place = tmp_path / f"{kind}-{split}"
        for side, name in zip(sides, "ab", strict=True):
            deliver(side, place / name, name, range(2))
        made.append(Run(spark, place, kind, split, sides))
    finish(made)
    now: dict[str, Any] = {"hot": [("hot", 1), ("a", 1)], "parts": 4}
    for run in made:
        old, run.folder = run.checkpoint, "moved"
        change = hf.change(old).split("meeting", **now)
        (plan,) = change.plan(run.checkpoint).steps
        assert plan.plan["hot"] == ['["a", 1]', '["hot", 1]']
        (report,) = change.to(run.checkpoint, stopped=True).reports
        assert report.report.left_rows > 0
        assert report.report.right_rows > 0
        assert hf.checkpoints.verify(run.checkpoint).ok
        with pytest.raises(hf.Invalid, match="split of a join has changed"):
            run.start()
        with pytest.raises(hf.Invalid, match="already has these hot keys"):
            hf.change(run.checkpoint).split("meeting", **now).plan()
        for side, name in zip(sides, "ab", strict=True):
            deliver(side, run.place / name, name, range(2, FILES + 1))
    for query in [run.start(**now) for run in made]:
        assert query.awaitTermination(180)
    for run in made:
        found = [row for rows in run.answers.values() for row in rows if not str(row[0]).startswith("end")]
        assert ordered(found) == ordered(model(sides[0].on_time, sides[1].on_time, run.kind)), run.kind


def test_skew_prints_the_call_that_splits_more_keys(
    runs: list[Run], monkeypatch: pytest.MonkeyPatch, guards_wait_no_time: None
) -> None:
    run = runs[2]
    monkeypatch.setenv("COLUMNS", "1000")
    shown = CliRunner().invoke(app, ["skew", str(run.checkpoint), "--top", "20"])
    assert shown.exit_code == 0, shown.output
    calls = [line.partition("too: ")[2] for line in shown.output.splitlines() if "split these keys" in line]
    assert calls
    assert "('hot', 1)" in calls[0]
    assert "('a', 1)" in calls[0] or "('hot', 2)" in calls[0]
    changed = eval(calls[0], {"hf": hf})
    assert hf.checkpoints.verify(changed.checkpoint).ok


def test_a_change_of_hot_keys_with_bad_inputs_says_what_is_wrong(runs: list[Run]) -> None:
    place = runs[0].checkpoint
    with pytest.raises(hf.NotFound, match="no split join 'other'") as unknown:
        hf.change(place).split("other", hot=[("a", 1)]).plan()
    assert unknown.value.expected == "meeting"
    with pytest.raises(hf.Invalid, match="does not match the key columns"):
        hf.change(place).split("meeting", hot=["a"]).plan()
    with pytest.raises(hf.Invalid, match="given twice"):
        hf.change(place).split("meeting", hot=[("a", 1), ("a", 1)]).plan()
    for hot in ([], [(str(number), 1) for number in range(101)]):
        with pytest.raises(hf.Invalid, match="invalid number of hot keys"):
            hf.change(place).split("meeting", hot=hot)
    with pytest.raises(hf.Invalid, match="hot= is not a list"):
        hf.change(place).split("meeting", hot="a")
    with pytest.raises(hf.Invalid, match="parts"):
        hf.change(place).split("meeting", hot=[("a", 1)], parts=1)


def test_another_split_is_refused_before_the_first_batch(runs: list[Run]) -> None:
    run = runs[0]
    known = dict(run.answers)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"hot": [("hot", 1), ("a", 1)]}, 'no longer hot: [null, 1]; newly hot: ["a", 1]'),
        ({"parts": 4}, "parts was 3, is 4"),
        ({"hot": []}, "is None"),
    ]
    for changed, difference in changes:
        with pytest.raises(hf.Invalid, match="split of a join has changed") as caught:
            run.start(**changed)
        assert difference in str(caught.value.found)
    assert run.answers == known


def test_two_splits_of_one_name_are_refused(runs: list[Run], tmp_path: Path) -> None:
    run = runs[0]
    both = run.frame().union(run.frame())
    with pytest.raises(hf.Invalid, match="have the same name"):
        hf.sink(both).foreach_batch(lambda batch, number: None).start(checkpoint=str(tmp_path / "c"))


def test_the_aggregate_of_a_stream_is_spark_s_own(spark: SparkSession, runs: list[Run]) -> None:
    from pyspark.sql import functions

    stream = read(spark, runs[0].place / "a", "a")
    ours = hf.split_hot(stream, by="who", hot=["hot"]).agg(hf.skew.count().alias("n"), hf.skew.sum("a"))
    by_hand = stream.groupBy("who").agg(
        functions.count(functions.lit(1)).alias("n"), functions.sum("a").alias("sum(a)")
    )
    assert plan(ours) == plan(by_hand)
    with pytest.raises(hf.Invalid, match="cannot be combined with other aggregates"):
        hf.split_hot(stream, by="who", hot=["hot"]).agg(hf.skew.count(), hf.skew.count_distinct("a"))


def plan(frame: DataFrame) -> str:
    import re

    analyzed: Any = frame._jdf.queryExecution().analyzed()
    return re.sub(r"#\d+L?|@[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "#", analyzed.toString())


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_distinct_values_of_a_stream_are_counted_exactly(
    spark: SparkSession, runs: list[Run], tmp_path: Path, mode: Any
) -> None:
    side = make(11)
    folder = tmp_path / "in"
    deliver(side, folder, "a", range(FILES))
    stream = read(spark, folder, "a")
    counted = hf.split_hot(stream, by=["who", "day"], hot=[("hot", 1)]).agg(hf.skew.count_distinct("a"))
    found: dict[tuple[Any, ...], int] = {}

    def note(batch: DataFrame, number: int) -> None:
        found.update({(row[0], row[1]): row[2] for row in batch.collect()})

    sink = hf.sink(counted, mode=mode).foreach_batch(note)
    assert sink.start(checkpoint=str(tmp_path / "c"), trigger=hf.available_now()).awaitTermination(120)
    values: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    for file in side.files[:FILES]:
        for row in file:
            values[row.who, row.day].add(row.n)
    assert found == {key: len(each) for key, each in values.items()}
