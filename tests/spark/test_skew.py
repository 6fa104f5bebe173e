"""What is told of skew: by a batch frame, by a stream, and by what a driver passes on."""

# ruff: noqa: N812 - functions are F wherever PySpark is written

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf
from holdfast.engine.queries import skew_metric
from holdfast.engine.queries.skew_metric import SKETCH_ERROR
from holdfast.engine.queries.watch import committed_batch
from holdfast.formats.rows.murmur3 import hash_int

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


def rows_of(seed: int) -> list[tuple[str | None, int]]:
    """Two thousand rows of which one key has half, and no other a twentieth."""
    rng = Random(seed)
    return [
        ("hot" if rng.random() < 0.5 else rng.choice(["a", "b", None]), rng.randrange(30))
        for _ in range(2000)
    ]


@pytest.fixture(scope="module")
def uneven(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(rows_of(1), "who string, n int").coalesce(2)


def test_a_batch_frame_is_counted_exactly_while_its_keys_are_few(uneven: DataFrame) -> None:
    report = hf.skew.report(uneven, by="who", partitions=3)
    counted = Counter(who for who, _ in rows_of(1))
    assert {each.key: each.rows for each in report.heavy} == {(who,): n for who, n in counted.items()}
    assert report.heavy[0].key == ("hot",)
    assert report.heavy[0].share == counted["hot"] / 2000
    assert (report.rows, report.looked_at, report.error) == (2000, 2000, SKETCH_ERROR)
    assert report.as_dict()["by"] == ["who"]


def test_partitions_are_those_that_spark_shuffles_into(uneven: DataFrame) -> None:
    from pyspark.sql import functions as F

    report = hf.skew.report(uneven, by=["who", "n"], partitions=5, heavy=7)
    assert len(report.heavy) == 7
    shuffled = uneven.repartition(5, "who", "n").withColumn("p", F.spark_partition_id())
    places = {(row.who, row.n): row.p for row in shuffled.distinct().collect()}
    assert {each.key: each.partition for each in report.heavy} == {
        each.key: places[each.key[0], each.key[1]] for each in report.heavy
    }
    sizes = Counter(row.p for row in shuffled.select("p").collect())
    assert report.partitions == tuple(sizes[place] / 2000 for place in range(5))
    assert not report.estimated


def test_more_keys_than_the_sketch_keeps_are_estimated_within_its_error(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    many = spark.range(200_000, numPartitions=2).select(
        F.when(F.col("id") % 10 == 0, F.lit(-1)).otherwise(F.col("id")).alias("k")
    )
    report = hf.skew.report(many, by="k")
    assert report.heavy[0].key == (-1,)
    assert 20_000 <= report.heavy[0].rows <= 20_000 + report.error * 200_000
    assert hf.skew.find(many, by="k", share=0.05) == [-1]


def test_a_sample_says_how_far_off_it_may_be(uneven: DataFrame) -> None:
    report = hf.skew.report(uneven, by="who", every=4)
    assert report.rows == 2000
    assert 300 < report.looked_at < 700
    share = Counter(who for who, _ in rows_of(1))["hot"] / 2000
    assert abs(report.heavy[0].share - share) <= report.error
    assert report == hf.skew.report(uneven, by="who", every=4)


def test_hot_keys_are_found_in_their_own_types(spark: SparkSession) -> None:
    moment = dt.datetime(2026, 3, 5, 9, 0, 0, 123456)
    key = (5, 'a"b', True, 2.5, Decimal("1.50"), dt.date(2026, 3, 5), moment, b"\x00\xff", None)
    schema = (
        "i long, s string, b boolean, d double, m decimal(9,2), day date, at timestamp, raw binary, no int"
    )
    other = (6, "x", False, 0.5, Decimal("2.00"), dt.date(2026, 3, 6), moment, b"", 1)
    frame = spark.createDataFrame([key] * 3 + [other], schema)
    found = hf.skew.find(frame, by=frame.columns, share=0.5)
    assert [tuple(bytes(each) if isinstance(each, bytearray) else each for each in one) for one in found] == [
        key
    ]
    # What is found can be split.
    assert hf.split_hot(frame, by=frame.columns, hot=found).agg(hf.skew.count()).count() == 2


def test_spark_s_hash_goes_on_from_column_to_column(spark: SparkSession) -> None:
    numbers = spark.range(50).selectExpr("int(id) AS id")
    for row in numbers.selectExpr("id", "hash('ann', 7) AS seed", "hash('ann', 7, id) AS h").collect():
        assert hash_int(row.id, row.seed) == row.h


@pytest.fixture
def watched(spark: SparkSession, tmp_path: Path) -> Iterator[StreamingQuery]:
    """A stopped query over two files, with a dedupe in it, whose keys were watched twice."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(2):
        lines = [
            json.dumps({"who": who, "n": n, "ts": f"2026-03-05T09:00:{n:02}Z"}) for who, n in rows_of(number)
        ]
        (folder / f"{number}.json").write_text("\n".join(lines))
    stream = (
        spark.readStream.schema("who string, n int, ts timestamp")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder))
    )
    every_row = hf.skew.watch(stream, by="who", name="customers", every=1, heavy=3)
    sampled = hf.skew.watch(every_row, by=["who", "n"], name="pairs", every=8)
    seen = hf.dedupe(sampled, by="who", time="ts", watermark="1 minute")
    assert seen.columns == ["who", "n", "ts"]
    query = (
        seen.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    yield query
    query.stop()


def test_a_stream_reports_its_newest_batch_with_rows(watched: StreamingQuery) -> None:
    customers, pairs = hf.skew.report(watched)
    counted = [Counter(who for who, _ in rows_of(number)) for number in range(2)]
    assert customers.batch_id in (0, 1)
    # Which file came first is not told; each batch has one.
    assert customers.heavy[0].rows in [each["hot"] for each in counted]
    assert len(customers.heavy) == 3
    assert customers.heavy[0].partition is not None
    assert sum(customers.partitions) == pytest.approx(1)
    assert (pairs.name, pairs.rows) == ("pairs", 2000)
    assert 100 < pairs.looked_at < 400
    assert len(pairs.heavy) == 10


def test_a_driver_passes_on_what_spark_s_listener_is_told(watched: StreamingQuery) -> None:
    progress: Any = next(each for each in reversed(watched.recentProgress) if each["numInputRows"])
    batch = committed_batch("shop", json.loads(progress.json), now_ms=1)
    assert batch is not None
    assert batch.skew == hf.skew.report(watched)
    assert len(json.dumps(batch.as_dict())) < 5000


def test_what_cannot_be_watched_is_refused(spark: SparkSession, uneven: DataFrame) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(hf.Invalid, match="not a stream") as caught:
        hf.skew.watch(uneven, by="who", name="x")
    assert "hf.skew.report" in str(caught.value.hint)
    with pytest.raises(hf.Invalid, match="only while it runs"):
        hf.skew.report(stream, by="value")
    with pytest.raises(hf.Invalid, match="no key column given"):
        hf.skew.report(uneven, by=[])
    with pytest.raises(hf.Invalid, match="no name given"):
        hf.skew.watch(stream, by="value", name="")
    for wrong in ({"every": 0}, {"heavy": 0}, {"heavy": 10_000}, {"partitions": 0}):
        with pytest.raises(hf.Invalid):
            hf.skew.report(uneven, by="who", **wrong)
    with pytest.raises(hf.Invalid, match="the share is out of range"):
        hf.skew.find(uneven, by="who", share=5)
    with pytest.raises(hf.Invalid, match="cannot be a key"):
        hf.skew.report(spark.sql("SELECT array(1) AS k"), by="k")


def test_a_watch_does_without_spark_s_inner_parts(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = spark.readStream.format("rate").load()

    def looks() -> str:
        watched = hf.skew.watch(stream, by="value", name="values")
        return str(watched._jdf.queryExecution().analyzed().toString())

    def absent(_: Any) -> Any:
        raise AttributeError("_jvm")

    assert "ThreadLocalRandom" in looks()
    monkeypatch.setattr(skew_metric, "_any_number", absent)
    assert "rand(" in looks()


def test_a_query_that_watches_nothing_says_how_to(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    query.processAllAvailable()
    query.stop()
    with pytest.raises(hf.NotFound) as caught:
        hf.skew.report(query)
    assert "hf.skew.watch" in str(caught.value.hint)
