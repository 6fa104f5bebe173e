"""A copy made from a cut: a query goes on from it as if nothing had happened."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.copy import How, cut
from holdfast.config.spark_defaults import FORMAT_KEY, MEMORY_PROVIDER, PROVIDER_KEY
from holdfast.engine.session.workers import ship_by_value
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship_by_value(sys.modules[__name__])

SCHEMA = "customer string, amount long, ts timestamp"
BEGIN = 1_772_697_600
FILES = 6
CUT = 2


def write(folder: Path, number: int) -> list[tuple[str, int]]:
    rows = [(f"c{(number * 3 + each) % 7}", number + each) for each in range(5)]
    lines = [
        json.dumps({"customer": who, "amount": amount, "ts": f"2026-03-05T08:{number:02}:00Z"})
        for who, amount in rows
    ]
    file = folder / f"{number:03}.json"
    file.write_text("\n".join(lines) + "\n")
    os.utime(file, (BEGIN + number,) * 2)  # the order in which Spark takes them
    return rows


def aggregate(events: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    return events.groupBy("customer").agg(F.count("*").alias("visits"))


class Visits(hf.Keyed):
    """How often each customer came."""

    visits = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.visits += 1
        yield {"customer": event.customer, "visits": state.visits}


def keyed(events: DataFrame) -> DataFrame:
    return hf.keyed(events, by="customer").process(
        Visits(), output="customer string, visits long", name="visits"
    )


@pytest.mark.parametrize(
    ("query", "given"),
    [
        (aggregate, {PROVIDER_KEY: MEMORY_PROVIDER, FORMAT_KEY: "1"}),
        (aggregate, {FORMAT_KEY: "1"}),
        (aggregate, {}),
        (keyed, {}),
    ],
    ids=["memory", "format 1", "format 2", "keyed"],
)
def test_a_query_goes_on_from_a_cut(
    spark: SparkSession,
    tmp_path: Path,
    settings: Callable[[dict[str, str]], None],
    query: Callable[[DataFrame], DataFrame],
    given: dict[str, str],
) -> None:
    settings(given)
    inputs = tmp_path / "in"
    inputs.mkdir()
    rows = [write(inputs, number) for number in range(FILES)]
    seen: dict[str, int] = {}

    def run(checkpoint: Path) -> list[int]:
        batches: list[int] = []

        def take(batch: DataFrame, batch_id: int) -> None:
            batches.append(batch_id)
            for row in batch.collect():
                seen[row.customer] = max(seen.get(row.customer, 0), row.visits)

        events = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(inputs))
        writer = query(events).writeStream.outputMode("update").foreachBatch(take)
        writer.option("checkpointLocation", str(checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()
        return batches

    original, copy = tmp_path / "original", tmp_path / "copy"
    assert run(original)[:FILES] == list(range(FILES))
    source, target = LocalStorage(original), LocalStorage(copy)
    plan = cut(source, CUT)
    assert plan.batch_id == CUT
    for file in plan.files:
        if file.how is How.WHOLE:
            target.copy(file.origin, file.path, origin=source)
        else:
            target.write(file.path, file.content(source.read(file.origin), f"file:{copy}"))
    assert checkpoints.verify(copy).as_dict()["problems"] == []
    # The copy has a life of its own: what it shares with the original is never changed in place.
    before = {path: path.read_bytes() for path in original.rglob("*") if path.is_file()}
    seen.clear()
    assert run(copy)[: FILES - CUT - 1] == list(range(CUT + 1, FILES))
    expected = Counter(who for part in rows for who, _ in part)
    later = {who for part in rows[CUT + 1 :] for who, _ in part}
    assert seen == {who: count for who, count in expected.items() if who in later}
    assert {path: path.read_bytes() for path in before} == before


def test_a_query_that_reads_a_stream_twice_goes_on_from_a_savepoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark counts such a stream once among its logs and twice among its offsets, so B has an odd number."""
    inputs = {name: tmp_path / name for name in "ab"}
    for folder in inputs.values():
        folder.mkdir()
    rows = {
        name: [write(inputs[name], number) for number in range(count)] for name, count in (("a", 4), ("b", 8))
    }

    def run(checkpoint: Path) -> Counter[tuple[str, int, int]]:
        found: Counter[tuple[str, int, int]] = Counter()

        def take(batch: DataFrame, _: int) -> None:
            found.update(tuple(row) for row in batch.collect())

        reader = spark.readStream.schema(SCHEMA)
        one = reader.option("maxFilesPerTrigger", "1").json(str(inputs["a"]))
        other = one.selectExpr("customer as also", "amount as paid")
        second = reader.option("maxFilesPerTrigger", "1").json(str(inputs["b"]))
        both = one.join(other, one.customer == other.also).select("customer", "amount", "paid")
        frame = both.union(second.selectExpr("customer", "amount", "-1L as paid"))
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()
        return found

    def expected(first: int) -> Counter[tuple[str, int, int]]:
        """What batches from this one on put out."""
        seen = [(who, amount, number) for number, part in enumerate(rows["a"]) for who, amount in part]
        pairs = Counter(
            (who, amount, paid)
            for who, amount, at in seen
            for also, paid, then in seen
            if who == also and max(at, then) >= first
        )
        return pairs + Counter((who, amount, -1) for part in rows["b"][first:] for who, amount in part)

    assert run(tmp_path / "original") == expected(0)
    ends = (tmp_path / "original/offsets/5").read_text().splitlines()[2:]
    assert ends == ['{"logOffset":3}', '{"logOffset":3}', '{"logOffset":5}']
    assert {each.name for each in (tmp_path / "original/sources").iterdir()} == {"0", "1"}
    assert checkpoints.verify(tmp_path / "original").problems == ()
    taken = savepoints.take(tmp_path / "original", tmp_path / "catalog", batch=5)
    savepoints.restore(taken.uri, tmp_path / "copy")
    assert run(tmp_path / "copy") == expected(6)


def test_a_cut_behind_a_compaction_takes_entries_from_it(tmp_path: Path) -> None:
    """Spark deletes entries some time after it has repeated them in a compacted file."""
    lines = [
        json.dumps(
            {"path": f"file:///in/{number}", "timestamp": number, "batchId": number}, separators=(",", ":")
        )
        for number in range(13)
    ]
    storage = LocalStorage(tmp_path)
    storage.write("metadata", b'{"id":"7d7a1b9e-9dda-47b2-8f49-4073fd4a7361"}')
    for batch_id in (3, 4, 12):
        storage.write(f"offsets/{batch_id}", f'v1\n{{}}\n{{"logOffset":{batch_id}}}'.encode())
        storage.write(f"commits/{batch_id}", b"v1\n{}")
    storage.write("sources/0/9.compact", "\n".join(["v1", *lines[:10]]).encode())
    for entry in (10, 11, 12):
        storage.write(f"sources/0/{entry}", f"v1\n{lines[entry]}".encode())
    files = {file.path: file for file in cut(storage, 4).files if file.path.startswith("sources/")}
    assert sorted(files) == [f"sources/0/{entry}" for entry in range(5)]
    for entry in range(5):
        file = files[f"sources/0/{entry}"]
        assert (file.how, file.origin) == (How.SOURCE_LOG, "sources/0/9.compact")
        assert file.content(storage.read(file.origin), "") == f"v1\n{lines[entry]}".encode()
