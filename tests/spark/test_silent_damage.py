"""Damage that Spark runs past without a word, to a wrong result; verify finds it before, by its record."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast import checkpoints
from holdfast.checkpoints.record import Recorder, RecordFile, record_path
from holdfast.config.spark_defaults import FORMAT_KEY
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KEYS = 40
BATCHES = 4


@dataclass
class Counting:
    """A plain query that counts by key, one file a batch."""

    spark: SparkSession
    folder: Path

    def arrive(self, number: int) -> None:
        """Keys that differ from file to file, so that no two batches write the same state."""
        inputs = self.folder / "in"
        inputs.mkdir(exist_ok=True)
        rows = "".join(json.dumps({"key": key}) + "\n" for key in keys(number))
        (inputs / f"{number}.json").write_text(rows)

    def run(self, checkpoint: Path) -> dict[int, int]:
        """Work off what has come: the newest count of each key that came."""
        found: dict[int, int] = {}

        def take(batch: DataFrame, _batch_id: int) -> None:
            found.update({row.key: row["count"] for row in batch.collect()})

        reader = self.spark.readStream.schema("key long").option("maxFilesPerTrigger", "1")
        writer = reader.json(str(self.folder / "in")).groupBy("key").count().writeStream.foreachBatch(take)
        writer = writer.outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
        return found


def keys(number: int) -> list[int]:
    return [(number + each * (2 * number + 3)) % KEYS for each in range(90 + number)]


def swap(one: Path, other: Path) -> None:
    bytes_of = one.read_bytes(), other.read_bytes()
    one.write_bytes(bytes_of[1])
    other.write_bytes(bytes_of[0])


def newest_changes_swapped(checkpoint: Path) -> set[str]:
    for name in (f"{BATCHES}.changelog", f".{BATCHES}.changelog.crc"):
        swap(checkpoint / "state/0/0" / name, checkpoint / "state/0/1" / name)
    return {f"state/0/{partition}/{BATCHES}.changelog" for partition in (0, 1)}


def a_stale_change_over_the_newest(checkpoint: Path) -> set[str]:
    folder = checkpoint / "state/0/1"
    shutil.copy(folder / f"{BATCHES - 1}.changelog", folder / f"{BATCHES}.changelog")
    shutil.copy(folder / f".{BATCHES - 1}.changelog.crc", folder / f".{BATCHES}.changelog.crc")
    return {f"state/0/1/{BATCHES}.changelog"}


def a_path_in_the_source_log_changed(checkpoint: Path) -> set[str]:
    newest = f"sources/0/{BATCHES - 1}"
    file = checkpoint / newest
    file.write_text(re.sub(r"/\d\.json", "/no-such.json", file.read_text()))
    (checkpoint / f"sources/0/.{BATCHES - 1}.crc").unlink(missing_ok=True)
    return {newest}


DAMAGES = [newest_changes_swapped, a_stale_change_over_the_newest, a_path_in_the_source_log_changed]


def test_what_spark_runs_past_is_found_before(
    spark: SparkSession, tmp_path: Path, settings: Callable[[dict[str, str]], None]
) -> None:
    settings({FORMAT_KEY: "1"})
    counting, original, home = Counting(spark, tmp_path), tmp_path / "original", tmp_path / "home"
    for number in range(BATCHES):
        counting.arrive(number)
    counting.run(original)
    counting.arrive(BATCHES)
    expected = Counter(key for number in range(BATCHES + 1) for key in keys(number))
    right = {key: expected[key] for key in keys(BATCHES)}
    for damage in DAMAGES:
        place = tmp_path / damage.__name__
        shutil.copytree(original, place)
        recorder = Recorder(LocalStorage(place), RecordFile(record_path(home, f"file://{place}")))
        recorder.look(ended=True)
        assert checkpoints.verify(place, home=home).ok
        touched = damage(place)
        # Nothing but the record can tell, unless the keys are those of a different partition.
        is_hidden = damage is not newest_changes_swapped
        assert checkpoints.verify(place, home=tmp_path / "no-home").ok is is_hidden
        found = checkpoints.verify(place, home=home)
        assert {problem.file for problem in found.problems} == touched
        wrong = counting.run(place)
        assert wrong
        assert {key: wrong.get(key) for key in right} != right, damage.__name__
    assert counting.run(original) == right
