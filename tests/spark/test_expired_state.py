"""A query of keyed state, and savepoints of it without what has expired: it goes on as it would have."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf
from holdfast import savepoints
from holdfast.at_rest.keyed_reader import keyed_states
from holdfast.config.spark_defaults import FORMAT_KEY, PROVIDER_KEY, ROCKSDB_PROVIDER
from holdfast.engine.session.workers import ship_by_value
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
ship_by_value(sys.modules[__name__])

PEOPLE = [f"p{number}" for number in range(12)]


class Visits(hf.Keyed):
    """A minute to live by the stream's clock, and a count for ever."""

    last = hf.value("long", default=-1, ttl=hf.ttl("1 minute", clock="event"))
    words = hf.list("string", ttl=hf.ttl("1 minute", clock="event"))
    visits = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        yield {
            "who": event.who,
            "last": state.last,
            "words": ",".join(state.words),
            "visits": state.visits,
        }
        state.last = event.n
        state.words.append(f"w{event.n}")
        if event.n == 0:
            state.visits += 1


def arrive(folder: Path, number: int, who: list[str], second: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = [
        {"who": each, "n": number + at, "ts": f"2026-03-05T08:{second // 60:02}:{second % 60:02}Z"}
        for at, each in enumerate(who)
    ]
    file = folder / f"{number}.json"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads files in the order of their times


def run(spark: SparkSession, folder: Path, checkpoint: Path) -> set[tuple[Any, ...]]:
    """Work off what has arrived; what was put out."""
    told: set[tuple[Any, ...]] = set()

    def take(batch: Any, _: int) -> None:
        told.update(tuple(row) for row in batch.collect())

    stream = spark.readStream.schema("who string, n long, ts timestamp").option("maxFilesPerTrigger", "1")
    events = stream.json(str(folder)).withWatermark("ts", "0 seconds")
    frame = hf.keyed(events, by="who", key_groups=8).process(
        Visits(), output="who string, last long, words string, visits long", name="visits"
    )
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return told


def test_a_query_goes_on_as_it_would_have(
    spark: SparkSession, settings: Callable[[dict[str, str]], None], tmp_path: Path
) -> None:
    settings({PROVIDER_KEY: ROCKSDB_PROVIDER, FORMAT_KEY: "2", "spark.sql.shuffle.partitions": "2"})
    arrive(tmp_path / "in", 0, PEOPLE, 0)
    run(spark, tmp_path / "in", tmp_path / "ck")
    # The one who comes now moves the watermark, which passes the lives of all others in the batch after.
    arrive(tmp_path / "in", 1, ["p1"], 300)
    arrive(tmp_path / "in", 2, ["p1"], 301)
    run(spark, tmp_path / "in", tmp_path / "ck")
    plain = savepoints.take(tmp_path / "ck", tmp_path / "sp")
    clean = savepoints.take(tmp_path / "ck", tmp_path / "clean", drop_expired=True)
    assert clean.manifest.expired is not None
    # Those in the key group of p1 were cleaned up with it, when it was written anew.
    assert clean.manifest.expired["values"] >= 8
    for each in (plain, clean):
        savepoints.restore(each.uri, tmp_path / each.manifest.savepoint_id)
    before, after = (
        {row.key[0]: dict(row.values) for row in keyed_states(LocalStorage(folder))[0].rows()}
        for folder in (tmp_path / plain.manifest.savepoint_id, tmp_path / clean.manifest.savepoint_id)
    )
    assert len(before) > 4
    assert after == {"p0": {"visits": 1}, "p1": {"last": 2, "words": ["w1", "w2"]}}
    arrive(tmp_path / "in", 3, PEOPLE, 310)
    told = [run(spark, tmp_path / "in", tmp_path / each.manifest.savepoint_id) for each in (plain, clean)]
    assert told[0] == told[1]
    assert len(told[0]) == len(PEOPLE)
    assert ("p0", -1, "", 1) in told[0]
