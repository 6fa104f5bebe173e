"""Hot keys split in batch frames: equal to the unsplit run, to plain Python and to DuckDB; and refusals."""

# ruff: noqa: N812 - functions are F wherever PySpark is written

from __future__ import annotations

import statistics
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Row = tuple["str | None", "int | None", "int | None", "Decimal | None"]
SCHEMA = "who string, day int, n int, amount decimal(9,2)"


def rows_of(seed: int) -> list[Row]:
    """Rows with nulls, repeats and a key that has most of them."""
    rng = Random(seed)
    rows: list[Row] = []
    for _ in range(400):
        who = "hot" if rng.random() < 0.6 else rng.choice(["a", "b", None])
        n = None if rng.random() < 0.1 else rng.randrange(-50, 2_000_000_000)
        amount = None if rng.random() < 0.1 else Decimal(rng.randrange(-9_999_999, 9_999_999)) / 100
        rows.append((who, rng.choice([1, 2, None]), n, amount))
    # Of one key there is nothing but nulls.
    return [*rows, *rows[:40], ("empty", 1, None, None)]


def all_of(frame: DataFrame, hot: list[Any], by: Any = "who") -> DataFrame:
    return hf.split_hot(frame, by=by, hot=hot, parts=4).agg(
        hf.skew.count().alias("rows"),
        hf.skew.count("n"),
        hf.skew.sum("n"),
        hf.skew.sum("amount"),
        hf.skew.min("amount"),
        hf.skew.max("n"),
        hf.skew.avg("n"),
        hf.skew.avg("amount"),
        hf.skew.variance("n"),
        hf.skew.variance("amount", population=True),
        hf.skew.stddev("n"),
        hf.skew.count_distinct("n"),
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_aggregates_of_split_keys_equal_the_unsplit_run_and_spark(spark: SparkSession, seed: int) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame(rows_of(seed), SCHEMA).repartition(3)
    whole = all_of(frame, [])
    parted = all_of(frame, ["hot", None, "nobody"])
    found = {row.who: row for row in parted.collect()}
    assert found == {row.who: row for row in whole.collect()}
    assert parted.dtypes == whole.dtypes
    sums, means = (
        ["rows", "count(n)", "sum(n)", "sum(amount)", "min(amount)", "max(n)"],
        ["avg(n)", "avg(amount)"],
    )
    by_hand = frame.groupBy("who").agg(
        F.count("*").alias("rows"),
        F.count("n").alias("count(n)"),
        F.sum("n").alias("sum(n)"),
        F.sum("amount").alias("sum(amount)"),
        F.min("amount").alias("min(amount)"),
        F.max("n").alias("max(n)"),
        F.avg("n").alias("avg(n)"),
        F.avg("amount").alias("avg(amount)"),
        F.count_distinct("n").alias("count_distinct(n)"),
    )
    for row in by_hand.collect():
        for name in [*sums, *means, "count_distinct(n)"]:
            assert found[row.who][name] == row[name], (row.who, name)
    exact = dict(by_hand.dtypes)
    assert {name: kind for name, kind in parted.dtypes if name in exact} == exact


def test_variances_are_worked_out_exactly(spark: SparkSession) -> None:
    rows = rows_of(3)
    found = {row.who: row for row in all_of(spark.createDataFrame(rows, SCHEMA), ["hot"]).collect()}
    groups: dict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[0]].append(row)
    for who, group in groups.items():
        numbers = [Fraction(row[2]) for row in group if row[2] is not None]
        amounts = [Fraction(row[3]) for row in group if row[3] is not None]
        if not numbers:
            assert found[who]["variance(n)"] is None
            assert found[who]["var_pop(amount)"] is None
            continue
        variance = statistics.variance(numbers)
        assert found[who]["variance(n)"] == pytest.approx(float(variance), rel=1e-15)
        assert found[who]["stddev(n)"] == pytest.approx(float(variance) ** 0.5, rel=1e-15)
        assert found[who]["var_pop(amount)"] == pytest.approx(float(statistics.pvariance(amounts)), rel=1e-15)


def test_compound_keys_are_split_by_all_their_columns(spark: SparkSession) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = rows_of(4)
    frame = spark.createDataFrame(rows, SCHEMA)
    split = hf.split_hot(frame, by=["who", "day"], hot=[("hot", 1), ("hot", None), (None, 2)], parts=3)
    found = split.agg(hf.skew.sum("amount").alias("s"), hf.skew.count_distinct("n").alias("d")).collect()
    with duckdb.connect() as db:
        db.execute("CREATE TABLE t (who TEXT, day INT, n INT, amount DECIMAL(9, 2))")
        db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        sql = "SELECT who, day, sum(amount), count(DISTINCT n) FROM t GROUP BY ALL"
        expected = db.execute(sql).fetchall()
    assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, expected))


def test_the_parts_of_a_hot_key_are_in_partitions_of_their_own(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    frame = spark.range(4000).select(F.lit("hot").alias("who"), "id")
    hot = hf.split_hot(frame, by="who", hot=["hot"], parts=8).hot
    placed = hot.split(frame).repartition(8, "who", "_holdfast_part").groupBy(F.spark_partition_id()).count()
    sizes = [row["count"] for row in placed.collect()]
    assert len(sizes) == 8
    assert max(sizes) < 650


@pytest.mark.parametrize("kind", ["inner", "left", "right", "semi"])
def test_joins_of_split_keys_equal_plain_python(spark: SparkSession, kind: Any) -> None:
    from pyspark.sql import functions as F

    rng = Random(5)
    sides = []
    for name in ("a", "b"):
        keys = ["hot", "hot", "x", "y", None]
        rows = [(rng.choice(keys), rng.choice([1, None]), rng.randrange(0, 300, 5), at) for at in range(120)]
        rows += rows[:20]
        frame = spark.createDataFrame(rows, f"who string, day int, at int, {name} int")
        sides.append((rows, frame.withColumn(f"t{name}", F.timestamp_seconds("at")).drop("at")))
    (left, one), (right, two) = sides
    split = hf.split_hot(one, by=["who", "day"], hot=[("hot", 1), (None, 1)], parts=3)
    joined = split.join_within(two, times=("ta", "tb"), bound=("-10s", "20s"), kind=kind)
    whole = hf.join_within(one, two, by=["who", "day"], times=("ta", "tb"), bound=("-10s", "20s"), kind=kind)
    assert joined.dtypes == whole.dtypes
    columns = ["who", "day", *(each for each in ("a", "b") if each in joined.columns)]
    found = sorted(map(repr, map(tuple, joined.select(columns).collect())))
    assert found == sorted(map(repr, model(left, right, kind)))
    assert found == sorted(map(repr, map(tuple, whole.select(columns).collect())))


def model(left: list[Any], right: list[Any], kind: str) -> list[tuple[Any, ...]]:
    """Every row of a list is a row of its own, whatever its values."""
    pairs = [
        (i, j)
        for i, one in enumerate(left)
        for j, two in enumerate(right)
        if None not in one[:2] and one[:2] == two[:2] and -10 <= two[2] - one[2] <= 20
    ]
    assert pairs
    met = {i for i, _ in pairs}, {j for _, j in pairs}
    if kind == "semi":
        return [(*left[i][:2], left[i][3]) for i in met[0]]
    rows = [(*left[i][:2], left[i][3], right[j][3]) for i, j in pairs]
    if kind == "left":
        rows += [(*row[:2], row[3], None) for i, row in enumerate(left) if i not in met[0]]
    if kind == "right":
        rows += [(*row[:2], None, row[3]) for j, row in enumerate(right) if j not in met[1]]
    return rows


def test_where_nothing_is_hot_the_plan_is_that_of_the_plain_join(spark: SparkSession) -> None:
    one = spark.sql("SELECT 1 AS k, timestamp_seconds(1) AS t, 1 AS a")
    two = spark.sql("SELECT 1 AS k, timestamp_seconds(1) AS u, 1 AS b")
    split = hf.split_hot(one, by="k", hot=[]).join_within(two, times=("t", "u"), bound="1m")
    whole = hf.join_within(one, two, by="k", times=("t", "u"), bound="1m")
    assert split.sameSemantics(whole)


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT 'a' AS who, 1 AS n, 2L AS big, 1.5D AS x, map('a', 1) AS m, CAST(1 AS DECIMAL(38,18)) AS wide"
    )


def test_an_aggregate_without_an_exact_split_is_refused_with_the_reason(frame: DataFrame) -> None:
    from pyspark.sql import functions as F

    hot = hf.split_hot(frame, by="who", hot=["a"])
    for unknown in (F.collect_list("n"), F.first("n"), F.percentile("n", 0.5), F.sum("n")):
        with pytest.raises(hf.Invalid, match=r"only the aggregates of hf\.skew") as caught:
            hot.agg(unknown)  # type: ignore[arg-type]
        assert str(unknown) in str(caught.value.found)
        assert "cannot be split exactly" in str(caught.value.hint)
    for floating in (hf.skew.sum("x"), hf.skew.avg("x"), hf.skew.stddev("x")):
        with pytest.raises(hf.Invalid, match="depends on their order") as caught:
            hot.agg(floating)
        assert "cast" in str(caught.value.hint)
    for wide in (hf.skew.sum("wide"), hf.skew.avg("wide"), hf.skew.variance("big"), hf.skew.sum("who")):
        with pytest.raises(hf.Invalid, match="cannot be split exactly"):
            hot.agg(wide)
    with pytest.raises(hf.Invalid, match="only one count_distinct"):
        hot.agg(hf.skew.count_distinct("n"), hf.skew.count_distinct("big"))


def test_wrong_names_are_refused(frame: DataFrame) -> None:
    hot = hf.split_hot(frame, by="who", hot=["a"])
    with pytest.raises(hf.Invalid, match="no aggregate given"):
        hot.agg()
    with pytest.raises(hf.Invalid, match="no column"):
        hot.agg(hf.skew.sum("nowhere"))
    with pytest.raises(hf.Invalid, match="the same name"):
        hot.agg(hf.skew.count().alias("who"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"by": []}, "no key column given"),
        ({"by": "nowhere"}, "no column"),
        ({"by": "m"}, "cannot be a key"),
        ({"hot": [1]}, "has the wrong type"),
        ({"hot": [True], "by": "n"}, "has the wrong type"),
        ({"hot": [("a", 1)]}, "does not match the key columns"),
        ({"hot": ["a"], "by": ["who", "n"]}, "does not match the key columns"),
        ({"hot": ["a", "a"]}, "given twice"),
        ({"hot": [str(each) for each in range(101)]}, "too many hot keys"),
        ({"hot": "a"}, "is not a list"),
        ({"parts": 1}, "parts"),
        ({"parts": 5000}, "parts"),
    ],
)
def test_a_wrong_split_is_refused(frame: DataFrame, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(hf.Invalid, match=message):
        hf.split_hot(frame, **{"by": "who", "hot": ["a"], **wrong})
