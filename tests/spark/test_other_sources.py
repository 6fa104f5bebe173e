"""A query with other sources goes on with its state: every count is that of a model in plain Python."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from grid import WHOLE
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import holdfast as hf
from holdfast import checkpoints

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("guards_wait_no_time")]

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
OFFSET_LOG = "spark.sql.streaming.offsetLog.formatVersion"
NAMED = {EVOLUTION: "true", OFFSET_LOG: "2"}
# A directory, and the name that the code gives to the source of its files.
Source = tuple[str, str | None]


def read(rows: DataFrame, _: int) -> None:
    """Read a batch, as a sink does."""
    rows.collect()


class Shop:
    """Orders in several directories, counted by customer, and the model of the counts."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.files = 0
        self.unread: dict[str, list[str]] = {}
        self.model: Counter[str] = Counter()

    def write(self, *sources: str) -> None:
        """Add a file to each source: two customers of its own, and one whom all have."""
        for source in sources:
            customers = [f"{source}{self.files % 3}", f"{source}x", "all"]
            (self.folder / source).mkdir(exist_ok=True)
            text = "".join(json.dumps({"customer": customer}) + "\n" for customer in customers)
            (self.folder / source / f"{self.files:03}.json").write_text(text)
            self.unread.setdefault(source, []).extend(customers)
            self.files += 1

    def run(self, checkpoint: str, sources: Sequence[Source]) -> None:
        """Run new code until it has read everything, and compare its output and its state with the model."""
        frames = []
        for folder, name in sources:
            reader = self.spark.readStream.schema("customer string").option("maxFilesPerTrigger", "1")
            frames.append((reader if name is None else reader.name(name)).json(str(self.folder / folder)))
            self.model.update(self.unread.pop(folder, []))
        union = frames[0]
        for frame in frames[1:]:
            union = union.union(frame)
        counts: dict[str, int] = {}

        def keep(rows: DataFrame, _: int) -> None:
            counts.update({row["customer"]: row["count"] for row in rows.collect()})

        place = self.folder / checkpoint
        writer = union.groupBy("customer").count().writeStream.outputMode("complete").foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(place)).trigger(availableNow=True)
        writer.start().awaitTermination()
        assert counts == self.model
        rows = hf.state(place).scan("aggregate")
        assert {row.key["customer"]: row.value["count"] for row in rows} == self.model
        assert checkpoints.verify(place).ok


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path)


def test_sources_are_added_removed_named_and_renamed(
    shop: Shop, settings: Callable[[dict[str, str]], None]
) -> None:
    settings({"spark.sql.shuffle.partitions": "2"})
    shop.write("a", "a", "b")
    shop.run("one", [("a", None), ("b", None)])
    # A source comes before the others, the first one goes, and its last file is never read; all have names.
    shop.write("a", "b", "c", "c")
    settings(NAMED)
    named = {"cee": None, "bee": "1"}
    hf.change(shop.folder / "one").sources(named, drop=["0"]).to(shop.folder / "two", stopped=True)
    shop.run("two", [("c", "cee"), ("b", "bee")])
    # A source gets another name: plain Spark would count its files again.
    shop.write("b", "c", "d")
    renamed = {"sea": "cee", "bee": "bee"}
    hf.change(shop.folder / "two").sources(renamed).to(shop.folder / "three", stopped=True)
    shop.run("three", [("b", "bee"), ("d", "dee"), ("c", "sea")])


@pytest.mark.skipif(not WHOLE, reason="HOLDFAST_GRID=all runs it")
def test_positions_move(shop: Shop, settings: Callable[[dict[str, str]], None]) -> None:
    settings({"spark.sql.shuffle.partitions": "2"})
    shop.write("a", "a", "b")
    shop.run("one", [("a", None), ("b", None)])
    shop.write("a", "b", "c", "c")
    hf.change(shop.folder / "one").sources(["1", None, "0"]).to(shop.folder / "two", stopped=True)
    shop.run("two", [("b", None), ("c", None), ("a", None)])
    shop.write("c")
    hf.change(shop.folder / "two").sources(["1"], drop=["0", "2"]).to(shop.folder / "three", stopped=True)
    shop.run("three", [("c", None)])


@pytest.mark.skipif(not WHOLE, reason="HOLDFAST_GRID=all runs it")
def test_names_are_taken_away(shop: Shop, settings: Callable[[dict[str, str]], None]) -> None:
    settings({"spark.sql.shuffle.partitions": "2", **NAMED})
    shop.write("a", "b")
    shop.run("one", [("a", "ay"), ("b", "bee")])
    settings({EVOLUTION: "false", OFFSET_LOG: "1"})
    shop.write("a", "b", "b")
    hf.change(shop.folder / "one").sources(["bee", "ay"]).to(shop.folder / "two", stopped=True)
    shop.run("two", [("b", None), ("a", None)])


@pytest.mark.skipif(not WHOLE, reason="HOLDFAST_GRID=all runs it")
def test_names_in_an_offset_log_by_position(shop: Shop, settings: Callable[[dict[str, str]], None]) -> None:
    """Spark 4.2 writes the offset log by position unless it is told to write it by name."""
    settings({"spark.sql.shuffle.partitions": "2", EVOLUTION: "true"})
    shop.write("a", "b", "b")
    shop.run("one", [("a", "ay"), ("b", "bee")])
    settings(NAMED)
    shop.write("a", "b", "c")
    hf.change(shop.folder / "one").sources({"ay": "0", "bee": "1", "cee": None}).to(
        shop.folder / "two", stopped=True
    )
    shop.run("two", [("c", "cee"), ("b", "bee"), ("a", "ay")])


@pytest.mark.skipif(not WHOLE, reason="HOLDFAST_GRID=all runs it")
def test_sources_and_columns_change_at_once(
    spark: SparkSession, tmp_path: Path, settings: Callable[[dict[str, str]], None]
) -> None:
    """Spark plans the new aggregate with one source more, on the state of the old code."""
    settings({"spark.sql.shuffle.partitions": "2"})
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text('{"customer": "ann", "amount": 3}\n' * 2)

    def query(*functions: Column, sources: str) -> DataStreamWriter:
        frames = [
            spark.readStream.schema("customer string, amount long").json(str(tmp_path / name))
            for name in sources
        ]
        union = frames[0] if len(frames) == 1 else frames[0].union(frames[1])
        return union.groupBy("customer").agg(*functions).writeStream.outputMode("update")

    def run(writer: DataStreamWriter, checkpoint: Path) -> None:
        writer = writer.foreachBatch(read).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    count, total = F.count("*").alias("n"), F.sum("amount").alias("total")
    run(query(count, sources="a"), tmp_path / "old")
    new = query(count, total, sources="ba")
    change = hf.change(tmp_path / "old").code(new, spark=spark, initial={"total": 100}).sources([None, "0"])
    done = change.to(tmp_path / "new", stopped=True)
    assert [report.step for report in done.reports] == ["sources", "code"]
    run(query(count, total, sources="ba"), tmp_path / "new")
    [row] = hf.state(tmp_path / "new").scan("aggregate")
    assert list(row.value.values()) == [4, 106]
