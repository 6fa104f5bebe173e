"""State that was edited or erased from, of any kind of query and provider: every later answer is right.

The whole grid takes minutes; `HOLDFAST_GRID=all` runs it. Otherwise some kinds meet some providers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import grid_queries
import pytest
from grid import WHOLE
from grid_queries import KINDS, LAST, Event, Row

import holdfast as hf
from holdfast import savepoints
from holdfast.config.spark_defaults import FORMAT_KEY, MEMORY_PROVIDER, PROVIDER_KEY, ROCKSDB_PROVIDER
from holdfast.engine.session.workers import ship_by_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship_by_value(grid_queries)

Settings = Callable[[dict[str, str]], None]
STORE = "spark.sql.streaming.stateStore"
CHANGELOG_KEY = f"{STORE}.rocksdb.changelogCheckpointing.enabled"
JOIN_KEY = "spark.sql.streaming.join.stateFormatVersion"
PROVIDERS: dict[str, dict[str, str]] = {
    "memory": {PROVIDER_KEY: MEMORY_PROVIDER, FORMAT_KEY: "1"},
    "rocksdb1": {PROVIDER_KEY: ROCKSDB_PROVIDER, FORMAT_KEY: "1", CHANGELOG_KEY: "false"},
    "changelog1": {PROVIDER_KEY: ROCKSDB_PROVIDER, FORMAT_KEY: "1", CHANGELOG_KEY: "true"},
    "rocksdb2": {PROVIDER_KEY: ROCKSDB_PROVIDER, FORMAT_KEY: "2", CHANGELOG_KEY: "true"},
    # Families in one store for joins, and values without checksums, with commas between merged ones.
    "families": {
        PROVIDER_KEY: ROCKSDB_PROVIDER,
        FORMAT_KEY: "2",
        CHANGELOG_KEY: "true",
        JOIN_KEY: "3",
        f"{STORE}.rowChecksum.enabled": "false",
        f"{STORE}.rocksdb.mergeOperatorVersion": "1",
    },
}
ERASED = [(kind, each) for each in PROVIDERS for kind in KINDS if each != "memory" or KINDS[kind].heap]
if not WHOLE:
    ERASED = [("join", "memory"), ("state", "rocksdb2"), ("keyed", "changelog1")]
WHO = "w3"


def run(spark: SparkSession, kind: str, folder: Path, checkpoint: Path) -> list[Row]:
    """Let a query take what there is; every row it puts out, in order."""
    rows: list[Row] = []

    def take(batch: DataFrame, _: int) -> None:
        rows.extend(grid_queries.plain(row) for row in batch.collect())

    writer = KINDS[kind].build(spark, folder).writeStream.foreachBatch(take).outputMode(KINDS[kind].mode)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return rows


class Course:
    """A query that is stopped after two files, and goes on with the rest from another checkpoint."""

    def __init__(self, spark: SparkSession, kind: str, folder: Path) -> None:
        self.spark, self.kind, self.folder = spark, kind, folder
        # The model of sessions knows no event that comes after its session was closed; here there is none.
        seed, size = (7, 20) if kind == "session" else (11, 30)
        made = grid_queries.files(seed, count=3, size=size)
        self._rest = made[2:]
        for number, sides in enumerate(made[:2]):
            grid_queries.write(folder, number, sides)
        self.first = run(spark, kind, folder, folder / "first")
        self.early = tuple([event for sides in made[:2] for event in sides[side]] for side in (0, 1))
        self.late = tuple([event for sides in made[2:] for event in sides[side]] for side in (0, 1))
        self.savepoint = savepoints.take(folder / "first", folder / "catalog", deep=True).uri

    def go_on(self, savepoint: str) -> list[Row]:
        assert savepoints.verify(savepoint, deep=True).ok
        savepoints.restore(savepoint, self.folder / "second")
        for number, sides in enumerate(self._rest, start=2):
            grid_queries.write(self.folder, number, sides)
        return run(self.spark, self.kind, self.folder, self.folder / "second")

    def model(self, keep: Callable[[Event], bool], early: bool = True) -> Counter[Row]:
        """What comes out of some of the events in the end."""
        sides = [
            [event for event in (*(self.early[side] if early else ()), *self.late[side]) if keep(event)]
            for side in (0, 1)
        ]
        return KINDS[self.kind].model(*sides)

    def in_the_end(self, rows: list[Row]) -> Counter[Row]:
        return grid_queries.in_the_end(rows, KINDS[self.kind].key_columns)


@pytest.mark.parametrize(("kind", "provider"), ERASED, ids=str)
def test_a_key_that_was_erased_is_new_again(
    spark: SparkSession, settings: Settings, tmp_path: Path, kind: str, provider: str
) -> None:
    settings({**PROVIDERS[provider], "spark.sql.shuffle.partitions": "3"})
    course = Course(spark, kind, tmp_path)
    found = hf.erase(WHO, everywhere=tmp_path / "catalog", who="ada@desk")
    assert found.rewritten  # of a session that is closed there are traces only
    rows = course.go_on(course.savepoint)

    def of(all_rows: list[Row]) -> list[Row]:
        return [row for row in all_rows if WHO in row]

    assert course.in_the_end(of(rows)) == course.model(lambda event: event[0] == WHO, early=False)
    others = [row for row in (*course.first, *rows) if WHO not in row]
    assert course.in_the_end(others) == course.model(lambda event: event[0] != WHO)


@pytest.mark.parametrize("provider", PROVIDERS if WHOLE else ["changelog1"])
def test_an_aggregate_goes_on_from_other_values(
    spark: SparkSession, settings: Settings, tmp_path: Path, provider: str
) -> None:
    settings(PROVIDERS[provider])
    course = Course(spark, "aggregate", tmp_path)
    made = hf.edit(course.savepoint, "aggregate", where="count > 0", set={"count": "count + 100", "max": 500})
    made = hf.edit(made.uri, "aggregate", insert=[{"who": LAST, "count": 7, "sum": 70, "max": 10}])
    rows = course.in_the_end(course.go_on(made.uri))
    late = {event[0] for event in course.late[0]}
    expected: Counter[Row] = Counter()
    for who, n, spent, _most in course.model(lambda event: event[0] in late):
        was = any(event[0] == who for event in course.early[0])
        zoe = who == LAST
        expected[
            who, n + (100 if was else 7 * zoe), spent + 70 * zoe, 500 if was else 10 if zoe else _most
        ] += 1
    assert rows == expected


@pytest.mark.parametrize(
    "provider", [each for each in PROVIDERS if each != "memory"] if WHOLE else ["families"]
)
def test_values_lists_and_maps_go_on_from_other_values(
    spark: SparkSession, settings: Settings, tmp_path: Path, provider: str
) -> None:
    settings(PROVIDERS[provider])
    course = Course(spark, "state", tmp_path)
    made = hf.edit(course.savepoint, "count", where="n > 0", set={"n": "n * 10"})
    made = hf.edit(made.uri, "amounts", where="amount > 50", delete=True)
    made = hf.edit(made.uri, "often", where="amount > 50", delete=True)
    made = hf.edit(made.uri, "amounts", insert=[{"who": "w1", "amount": 1000}, {"who": "w1", "amount": 2000}])
    rows = course.in_the_end(course.go_on(made.uri))
    assert rows == after_edits(course)


def after_edits(course: Course) -> Counter[Row]:
    expected: Counter[Row] = Counter()
    for who in {event[0] for event in course.late[0]}:
        early = [amount for name, amount, _ in course.early[0] if name == who]
        late = [amount for name, amount, _ in course.late[0] if name == who]
        low = [each for each in early if each <= 50]
        more = 3000 if who == "w1" else 0
        expected[who, len(early) * 10 + len(late), sum(low) + sum(late) + more, len({*low, *late})] += 1
    return expected


@pytest.mark.parametrize("provider", PROVIDERS if WHOLE else ["rocksdb1"])
def test_a_join_goes_on_without_some_of_its_rows(
    spark: SparkSession, settings: Settings, tmp_path: Path, provider: str
) -> None:
    settings(PROVIDERS[provider])
    course = Course(spark, "join", tmp_path)
    view = hf.state(course.savepoint)
    held = {row["amount"] for row in view.arrow("join.left").read_all().to_pylist()}
    assert any(amount > 50 for amount in held)
    made = hf.edit(course.savepoint, "join.left", where="amount > 50", delete=True)
    rows = course.go_on(made.uri)
    begin = min(ts for _, _, ts in course.late[0])
    assert not [row for row in rows if row[1] > 50 and row[2] < begin]

    def low(row: Row) -> bool:
        return bool(row[1] <= 50 or row[2] >= begin)

    left = [event for event in (*course.early[0], *course.late[0]) if event[1] <= 50 or event[2] >= begin]
    right = [*course.early[1], *course.late[1]]
    assert Counter(row for row in (*course.first, *rows) if low(row)) == KINDS["join"].model(left, right)


@pytest.mark.parametrize("provider", ["rocksdb1", "rocksdb2"] if WHOLE else ["rocksdb2"])
def test_keyed_state_goes_on_from_other_values(
    spark: SparkSession, settings: Settings, tmp_path: Path, provider: str
) -> None:
    settings(PROVIDERS[provider])
    course = Course(spark, "keyed", tmp_path)
    made = hf.edit(
        course.savepoint, "visits", where="visits > 0", set={"visits": "visits * 10"}, why="a test"
    )
    made = hf.edit(made.uri, "0.often", key="w1", delete=True)
    rows = course.in_the_end(course.go_on(made.uri))
    expected: Counter[Row] = Counter()
    for who in {event[0] for event in course.late[0]}:
        early = [amount for name, amount, _ in course.early[0] if name == who]
        late = [amount for name, amount, _ in course.late[0] if name == who]
        distinct = {*late} if who == "w1" else {*early, *late}
        expected[who, len(early) * 10 + len(late), sum(early) + sum(late), len(distinct)] += 1
    assert rows == expected
