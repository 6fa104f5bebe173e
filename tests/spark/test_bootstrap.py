"""A query that starts warm puts out what it puts out when it has read the history itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grid_queries
import pyarrow as pa
import pytest
from grid import WHOLE
from grid_queries import KINDS, SCHEMA
from grid_runs import PARTITIONS_KEY, PROVIDERS, run
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from typer.testing import CliRunner

import holdfast as hf
from holdfast import checkpoints, savepoints
from holdfast.at_rest.keyed_reader import keyed_contents
from holdfast.cli import app, next_step
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Failed, Invalid, Unsupported
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship_by_value(grid_queries)

KEYS = ["join"]
if WHOLE:
    KEYS = list(KINDS)


def sides(kind: str) -> list[str]:
    return ["left", "right"] if kind == "join" else ["left"]


def past(spark: SparkSession, folder: Path, side: str = "left") -> DataFrame:
    return spark.read.schema(SCHEMA).json(str(folder / side))


def writer(spark: SparkSession, kind: str, folder: Path) -> Any:
    return KINDS[kind].build(spark, folder).writeStream.outputMode(KINDS[kind].mode).format("console")


@pytest.mark.parametrize("kind", KEYS)
def test_as_if_it_had_read_the_history(
    spark: SparkSession,
    settings: Callable[[dict[str, str]], None],
    tmp_path: Path,
    kind: str,
) -> None:
    settings({**PROVIDERS["rocksdb2"], PARTITIONS_KEY: "2"})
    made = grid_queries.files(11, count=4, size=20)
    for number, each in enumerate(made[:3]):
        grid_queries.write(tmp_path, number, each)
    run(spark, kind, tmp_path, tmp_path / "cold")
    history = {number: past(spark, tmp_path, side) for number, side in enumerate(sides(kind))}
    warm = hf.bootstrap(writer(spark, kind, tmp_path), tmp_path / "catalog", history=history, label="warm")
    assert savepoints.verify(warm.uri, deep=True).ok
    assert warm.rows > 0
    savepoints.restore(warm.uri, tmp_path / "warm")
    for number, each in enumerate(made[3:], start=3):
        grid_queries.write(tmp_path, number, each)
    expected = run(spark, kind, tmp_path, tmp_path / "cold")
    assert Counter(run(spark, kind, tmp_path, tmp_path / "warm")) == Counter(expected)
    assert expected
    assert checkpoints.verify(tmp_path / "warm").problems == ()


def test_a_source_begins_where_it_is_told_to(
    spark: SparkSession, settings: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    """A history from elsewhere: no file counts as read, or only those that are named."""
    settings({**PROVIDERS["rocksdb2"], PARTITIONS_KEY: "2"})
    made = grid_queries.files(12, count=2, size=20)
    for number, each in enumerate(made[:2]):
        grid_queries.write(tmp_path, number, each)
    left = made[0][0]
    history = spark.createDataFrame(
        [(who, amount, grid_queries.moment(ts)) for who, amount, ts in left], SCHEMA
    )
    query = writer(spark, "aggregate", tmp_path)
    with pytest.raises(Invalid, match="files to mark as read are unknown"):
        hf.bootstrap(query, tmp_path / "catalog", history=history)
    first = hf.bootstrap(query, tmp_path / "catalog", history=history, start="first")
    savepoints.restore(first.uri, tmp_path / "twice")
    twice = run(spark, "aggregate", tmp_path, tmp_path / "twice")
    seen = [str(tmp_path / "left" / "000.json")]
    named = hf.bootstrap(query, tmp_path / "catalog", history=history, start=seen)
    savepoints.restore(named.uri, tmp_path / "once")
    once = run(spark, "aggregate", tmp_path, tmp_path / "once")
    rest = made[1][0]
    again = grid_queries.in_the_end(twice, 1)
    touched = {who for who, _, _ in left + rest}
    assert again == grid_queries.aggregated(left + left + rest, [])
    assert {row[0] for row in again} == touched
    whole = grid_queries.aggregated(left + rest, [])
    assert set(grid_queries.in_the_end(once, 1)) == {row for row in whole if row[0] in {e[0] for e in rest}}


def test_offsets_of_other_sources(
    spark: SparkSession, settings: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    settings({**PROVIDERS["rocksdb2"], PARTITIONS_KEY: "2"})
    options = {"rowsPerBatch": "10", "startTimestamp": "0", "advanceMillisPerBatch": "1000"}
    stream = spark.readStream.format("rate-micro-batch").options(**options).load()
    counts = stream.groupBy((stream.value % 3).alias("rest")).count()
    query = counts.writeStream.outputMode("update").format("console")
    history = spark.range(10).selectExpr("timestamp_seconds(0) as timestamp", "id as value")
    with pytest.raises(Invalid, match="starting offset of a source is unknown"):
        hf.bootstrap(query, tmp_path / "catalog", history=history)
    warm = hf.bootstrap(
        query, tmp_path / "catalog", history=history, start={"offset": 1000, "timestamp": 100_000}
    )
    assert warm.as_dict()["sources"][0]["offset"] == {"offset": 1000, "timestamp": 100_000}
    savepoints.restore(warm.uri, tmp_path / "warm")
    rows: list[tuple[int, int]] = []
    live = (
        counts.writeStream.outputMode("update")
        .foreachBatch(lambda batch, _: rows.extend(tuple(row) for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path / "warm"))
        .trigger(once=True)
        .start()
    )
    live.awaitTermination()
    # 0 to 9 were read before; from 1,000 on each batch has ten more.
    first = Counter(value % 3 for value in range(10))
    assert sorted(rows) == sorted(
        (rest, first[rest] + n) for rest, n in Counter(value % 3 for value in range(1000, 1010)).items()
    )


def test_what_cannot_be(spark: SparkSession, tmp_path: Path) -> None:
    made = grid_queries.files(13, count=1, size=5)
    grid_queries.write(tmp_path, 0, made[0])
    query = writer(spark, "aggregate", tmp_path)
    history = past(spark, tmp_path)
    to = tmp_path / "catalog"
    with pytest.raises(Invalid, match="the columns of the history differ") as missing:
        hf.bootstrap(query, to, history=history.drop("amount"))
    assert missing.value.found == "no column amount"
    with pytest.raises(Invalid, match="neither history nor states"):
        hf.bootstrap(query, to, history=None)
    with pytest.raises(Invalid, match="no source with this number or type") as unknown:
        hf.bootstrap(query, to, history={"kafka": history})
    assert unknown.value.expected == "0 (files)"
    stateless = grid_queries.read(spark, tmp_path, late=None).writeStream.format("console")
    with pytest.raises(Invalid, match="keeps no state"):
        hf.bootstrap(stateless, to, history=history)
    failing = grid_queries.read(spark, tmp_path, late=None).selectExpr("who", "assert_true(amount < 0) as a")
    with pytest.raises(Failed, match="failed while it read the history"):
        hf.bootstrap(failing.dropDuplicates(["who"]).writeStream.format("console"), to, history=history)
    assert not [each for each in tmp_path.rglob("*.json") if "savepoints" in str(each)]
    assert not list(tmp_path.glob(".holdfast-*"))


def test_tables_of_states_are_what_a_history_would_have_made(
    spark: SparkSession, settings: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    """Of Spark's operator and of Holdfast's: worked out by SQL here, and by the query itself there."""
    settings({**PROVIDERS["rocksdb2"], PARTITIONS_KEY: "3"})
    made = grid_queries.files(14, count=1, size=40)
    grid_queries.write(tmp_path, 0, made[0])
    history = past(spark, tmp_path)
    seen = sorted(history.inputFiles())
    aggregate = history.groupBy("who").agg(
        F.count("*").alias("count"), F.sum("amount").alias("sum"), F.max("amount").alias("max")
    )
    query = writer(spark, "aggregate", tmp_path)
    replayed = hf.bootstrap(query, tmp_path / "catalog", history=history)
    given = hf.bootstrap(query, tmp_path / "catalog", states={"aggregate": aggregate}, start=seen)
    assert given.states == replayed.states
    assert given.rows == len(grid_queries.aggregated(made[0][0], []))
    keyed = writer(spark, "keyed", tmp_path)
    by_who = history.groupBy("who")
    states = {
        "visits.visits": by_who.agg(F.count("*").alias("value")),
        "visits.spent": by_who.agg(F.sum("amount").alias("value")),
        "often": history.groupBy("who", F.col("amount").alias("map_key")).agg(F.count("*").alias("value")),
    }
    replayed = hf.bootstrap(keyed, tmp_path / "catalog", history=history)
    given = hf.bootstrap(keyed, tmp_path / "catalog", states=states, start=seen, watermark=1_000)
    assert given.watermark_ms == 1_000
    for each in (replayed, given):
        savepoints.restore(each.uri, tmp_path / each.savepoint_id)
    [expected] = keyed_contents(LocalStorage(tmp_path / replayed.savepoint_id))
    [found] = keyed_contents(LocalStorage(tmp_path / given.savepoint_id))
    assert found == expected
    assert found.keys > 0


def test_what_tables_cannot_give(
    spark: SparkSession, settings: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    settings({**PROVIDERS["rocksdb2"], PARTITIONS_KEY: "2"})
    grid_queries.write(tmp_path, 0, grid_queries.files(13, count=1, size=5)[0])
    to = tmp_path / "catalog"
    table = pa.table({"who": ["a"], "count": [1], "sum": [2], "max": [2]})
    aggregate = writer(spark, "aggregate", tmp_path)
    with pytest.raises(Invalid, match="duplicate key") as twice:
        hf.bootstrap(aggregate, to, states={"aggregate": pa.concat_tables([table, table])})
    assert twice.value.found == "who='a'"
    with pytest.raises(Invalid, match="differ from the columns of the state") as columns:
        hf.bootstrap(aggregate, to, states={"aggregate": table.drop_columns(["max"])})
    assert columns.value.expected == "who string, count int64, sum int64, max int64"
    wrong = table.set_column(1, "count", pa.array(["many"]))
    with pytest.raises(Invalid, match="type of the column"):
        hf.bootstrap(aggregate, to, states={"aggregate": wrong})
    with pytest.raises(Invalid, match="history and states cannot"):
        hf.bootstrap(aggregate, to, states={"aggregate": table}, history=past(spark, tmp_path))
    rows = pa.table({"who": ["a"], "amount": [1]})
    with pytest.raises(Unsupported, match="cannot be filled from a table"):
        hf.bootstrap(writer(spark, "join", tmp_path), to, states={"left": rows})


JOB = """
import holdfast as hf
from pyspark.sql import functions as F

@hf.job(name="spending", checkpoint="./checkpoint", conf={{"spark.sql.shuffle.partitions": "2"}})
def spending(spark):
    seen = spark.readStream.schema("{schema}").json("{folder}/left").groupBy("who").agg(F.sum("amount"))
    return hf.sink(seen, mode="update").console()
"""
PLAN = """
def warm(spark):
    return {{"history": spark.read.schema("{schema}").json("{folder}/left")}}
"""


def test_the_command(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, whose session it takes."""
    monkeypatch.chdir(tmp_path)
    left = grid_queries.files(15, count=1, size=30)[0][0]
    grid_queries.write(tmp_path, 0, (left, []))
    (tmp_path / "job.py").write_text(JOB.format(schema=SCHEMA, folder=tmp_path))
    (tmp_path / "plan.py").write_text(PLAN.format(schema=SCHEMA, folder=tmp_path))
    words = ["state", "bootstrap", "job.py", "catalog", "--from", "plan.py", "--home", "home"]
    planned = CliRunner().invoke(app, [*words, "--dry-run", "--json"])
    assert json.loads(planned.stdout)["sources"] == [
        {"kind": "files", "history": True, "offset": None, "files_read": 1}
    ]
    assert not (tmp_path / "catalog").exists()
    said = CliRunner().invoke(app, [*words, "--label", "warm", "--json"])
    made = json.loads(said.stdout)
    assert made["rows"] == len({who for who, _, _ in left})
    assert made["input_rows"] == len(left)
    assert savepoints.show(made["savepoint"]).fields["label"] == "warm"
    assert spark.conf.get("spark.sql.shuffle.partitions") is not None
    monkeypatch.setattr(next_step, "on_terminal", lambda: True)
    shown = CliRunner().invoke(app, words)
    newest = max(path.name for path in (tmp_path / "catalog" / "savepoints").iterdir())
    start = f"next: holdfast run job.py -s catalog/savepoints/{newest} --home home"
    assert shown.stderr.splitlines()[-1] == start
    unsaid = CliRunner().invoke(app, [*words[:5], "job.py", *words[6:]])
    assert unsaid.exit_code == 2
    assert "def warm(spark)" in unsaid.stderr
