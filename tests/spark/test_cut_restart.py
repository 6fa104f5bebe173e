"""A copy made from a cut: a query goes on from it as if nothing had happened."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf
from holdfast import checkpoints
from holdfast.checkpoints.cutting import How, cut
from holdfast.config.defaults import FORMAT_KEY, MEMORY_PROVIDER, PROVIDER_KEY
from holdfast.engine.workers import ship_by_value
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship_by_value(sys.modules[__name__])

SCHEMA = "customer string, amount long, ts timestamp"
FILES = 6
CUT = 2


def write(folder: Path, number: int) -> list[tuple[str, int]]:
    rows = [(f"c{(number * 3 + each) % 7}", number + each) for each in range(5)]
    lines = [
        json.dumps({"customer": who, "amount": amount, "ts": f"2026-03-05T08:{number:02}:00Z"})
        for who, amount in rows
    ]
    (folder / f"{number:03}.json").write_text("\n".join(lines) + "\n")
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
