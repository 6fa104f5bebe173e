"""Rows put into a Delta table by key: each batch once, by MERGE, beside other writers."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from command import Holdfast
from delta_job import run_delta_job
from delta_rows import batches, operations, rows

from holdfast.engine.session.jars import has_build

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not has_build("delta"), reason="no Delta build works with this Spark"),
]

HEAD = """\
import threading
from pathlib import Path

from pyspark.sql import functions as F

import holdfast as hf

SETTINGS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "1"}


def orders(spark, columns="customer string, amount long, gone boolean"):
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json("in")
"""
TOTALS = (
    HEAD
    + """

@hf.job(name="rows", checkpoint="checkpoint", trigger=hf.available_now(), extras=["delta"],
        restart=hf.no_restart(), conf=SETTINGS)
def totals(spark):
    by = orders(spark).groupBy("customer")
    counted = by.agg(F.sum("amount").alias("amount"), F.max("gone").alias("gone"))
    return hf.sink(counted).delta("./table").upsert(["customer"], delete_when="gone")
"""
)
# Another writer commits while a MERGE has read the table and not yet committed.
BESIDE = (
    HEAD
    + """

@hf.job(name="rows", checkpoint="checkpoint", trigger=hf.available_now(), extras=["delta"],
        restart=hf.no_restart(), conf=SETTINGS)
def totals(spark):
    def held(amount):
        import time
        from pathlib import Path

        if Path("other").exists():
            Path("within").touch()
            while not Path("committed").exists():
                time.sleep(0.01)
        return False

    def other():
        while not Path("within").exists():
            threading.Event().wait(0.01)
        table = f"delta.`{Path('table').absolute()}`"
        spark.sql(f"UPDATE {table} SET amount = amount + 100 WHERE customer = 'bob'")
        Path("committed").touch()

    if Path("other").exists():
        threading.Thread(target=other, daemon=True).start()
    spark.udf.register("held", held, "boolean")
    counted = orders(spark).groupBy("customer").agg(F.sum("amount").alias("amount"))
    return hf.sink(counted).delta("./table").upsert(["customer"], delete_when="held(amount)")
"""
)


def give(folder: Path, number: int, *rows_: tuple[str, int, bool]) -> None:
    (folder / "in").mkdir(exist_ok=True)
    lines = [json.dumps({"customer": who, "amount": amount, "gone": gone}) for who, amount, gone in rows_]
    file = folder / "in" / f"{number}.json"
    file.write_text("\n".join(lines))
    os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def test_rows_are_replaced_by_key_and_removed(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    """By hand: ann has 3 + 4, bob has 5 and leaves, cid comes with 6; ann is in no later batch and stays."""
    table = tmp_path / "table"
    (tmp_path / "job.py").write_text(TOTALS)
    give(tmp_path, 0, ("ann", 3, False), ("ann", 4, False), ("bob", 5, False))
    assert "exactly once" in run_delta_job(holdfast, home)
    assert rows(table, "customer", "amount") == Counter([("ann", 7), ("bob", 5)])
    give(tmp_path, 1, ("bob", 0, True), ("eve", 1, True))
    give(tmp_path, 2, ("cid", 6, False))
    run_delta_job(holdfast, home)
    assert rows(table, "customer", "amount") == Counter([("ann", 7), ("cid", 6)])
    assert [batch for _, batch in batches(table)] == [0, 1, 2]
    assert len({query for query, _ in batches(table)}) == 1


def test_a_checkpoint_that_was_put_back_is_refused(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    """It would plan batch 1 anew, and Delta would pass it by."""
    (tmp_path / "job.py").write_text(TOTALS)
    give(tmp_path, 0, ("ann", 7, False))
    run_delta_job(holdfast, home)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "before")
    give(tmp_path, 1, ("cid", 6, False))
    run_delta_job(holdfast, home)
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.move(tmp_path / "before", tmp_path / "checkpoint")
    give(tmp_path, 2, ("dan", 1, False))
    refused = run_delta_job(holdfast, home, code=4)
    assert "the table has batches that the checkpoint does not have" in refused
    assert "batch 1" in refused
    assert "Traceback" not in refused
    assert rows(tmp_path / "table", "customer", "amount") == Counter([("ann", 7), ("cid", 6)])


def test_a_column_that_the_query_has_more_is_taken_on(holdfast: Holdfast, home: Path, tmp_path: Path) -> None:
    """By hand: ann's row is from before the column, bob's is of after it."""
    (tmp_path / "job.py").write_text(TOTALS)
    give(tmp_path, 0, ("ann", 3, False))
    run_delta_job(holdfast, home)
    wider = TOTALS.replace("hf.sink(counted)", 'hf.sink(counted.withColumn("pair", F.col("amount") * 2))')
    (tmp_path / "job.py").write_text(wider)
    give(tmp_path, 1, ("bob", 5, False))
    refused = run_delta_job(holdfast, home, code=2)
    assert "the Delta table lacks columns of the query" in refused
    (tmp_path / "job.py").write_text(
        wider.replace('.delta("./table")', '.delta("./table", mergeSchema="true")')
    )
    run_delta_job(holdfast, home)
    assert rows(tmp_path / "table", "customer", "amount", "pair") == Counter(
        [("ann", 3, None), ("bob", 5, 10)]
    )


def test_a_merge_that_another_writer_got_in_the_way_of_is_tried_again(
    holdfast: Holdfast, home: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    (tmp_path / "job.py").write_text(BESIDE)
    give(tmp_path, 0, ("ann", 3, False), ("bob", 5, False))
    run_delta_job(holdfast, home)
    (tmp_path / "other").touch()
    give(tmp_path, 1, ("ann", 10, False))
    run_delta_job(holdfast, home)
    assert rows(table, "customer", "amount") == Counter([("ann", 13), ("bob", 105)])
    assert operations(table) == ["CREATE TABLE", "MERGE", "UPDATE", "MERGE"]
    assert [batch for _, batch in batches(table)] == [0, 1]


def test_two_rows_of_a_key_and_a_key_that_is_null_are_refused(
    holdfast: Holdfast, home: Path, tmp_path: Path
) -> None:
    plain = TOTALS.replace("counted).delta", "orders(spark)).delta")
    (tmp_path / "job.py").write_text(plain)
    give(tmp_path, 0, ("ann", 3, False), ("ann", 4, False))
    refused = run_delta_job(holdfast, home, code=2)
    assert "a batch has several rows for one key" in refused
    assert "ann" in refused
    assert rows(tmp_path / "table", "customer") == Counter()
