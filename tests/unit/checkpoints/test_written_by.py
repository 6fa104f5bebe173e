"""Which Spark wrote a checkpoint, and that a lower one does not go on with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Holdfast

from golden import golden, golden_with_confs
from holdfast.checkpoints.record import Recorder, RecordFile, WrittenBy, identity_of, record_path, writer_of
from holdfast.config.installed_spark import InstalledSpark
from holdfast.errors import NotFound, Unsupported
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage

OF_4_3 = (
    "spark.sql.dropDuplicates.deterministicKeyOrder.enabled",
    "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled",
)
FUTURE = "spark.sql.streaming.fromTheFuture"
JOB = """
import holdfast as hf

@hf.job(name="counts", checkpoint="ck")
def counts(spark):
    raise RuntimeError("Spark has started")
"""


def knowing(version: str, *without: str) -> InstalledSpark:
    """A Spark that knows the settings of all golden checkpoints but these."""
    offsets = golden("4.3/aggregate-memory").files["offsets/11"].decode().splitlines()[1]
    known = [name for name in json.loads(offsets)["conf"] if name not in without]
    return InstalledSpark(version, "\0".join(known).encode())


def written(name: str, spark: InstalledSpark, home: Path) -> WrittenBy:
    return writer_of(golden(name), home, spark)


@pytest.mark.parametrize(
    ("name", "at_least"),
    [
        ("3.5/aggregate-rocksdb", None),
        ("3.5/stateless-memory", None),
        ("4.2/aggregate-format2", "4.2"),
        ("4.2/keyed-format2", "4.2"),
        ("4.3/aggregate-memory", "4.3"),
        ("4.3/state-format2", "4.3"),
    ],
)
def test_the_settings_tell_the_lowest_spark(name: str, at_least: str | None, tmp_path: Path) -> None:
    lower = written(name, knowing("4.2.0", *OF_4_3), tmp_path)
    assert (lower.at_least, lower.noted) == (at_least, None)
    assert lower.newer == (at_least == "4.3")
    assert lower.unknown_settings == (OF_4_3 if at_least == "4.3" else ())
    assert "version is not recorded" in lower.text
    same = written(name, knowing("4.3.0"), tmp_path)
    assert not same.newer
    same.refuse_newer()
    if lower.newer:
        with pytest.raises(Unsupported, match="older than the Spark that wrote") as refused:
            lower.refuse_newer()
        assert "pyspark~=4.3.0" in str(refused.value.hint)


def test_settings_of_a_vendor_and_a_spark_that_is_not_there_refuse_nothing(tmp_path: Path) -> None:
    assert knowing("4.2.0").unknown(["spark.databricks.anything", FUTURE]) == (FUTURE,)
    assert not written("4.3/aggregate-memory", InstalledSpark(None), tmp_path).newer
    with pytest.raises(NotFound):
        writer_of(MemoryStorage(), tmp_path, knowing("4.2.0"))


def test_the_version_that_was_noted_wins_over_the_settings(tmp_path: Path) -> None:
    storage = golden("4.2/aggregate-memory")
    file = RecordFile(record_path(tmp_path, storage.uri))
    assert file.lock()
    Recorder(storage, file, "4.3.1").look()
    file.unlock()
    newer = writer_of(storage, tmp_path, knowing("4.2.0"))
    assert (newer.noted, newer.newer) == ("4.3.1", True)
    assert not writer_of(storage, tmp_path, knowing("4.3.0")).newer

    # Written anew, the record keeps it; and one from before there was a version is read as before.
    record = file.read()
    assert record is not None
    file.rewrite(record)
    again = file.read()
    assert again is not None
    assert (again.spark, again.files) == ("4.3.1", record.files)
    record.spark = None
    file.rewrite(record)
    older = file.read()
    assert older is not None
    assert (older.spark, older.identity) == (None, identity_of(storage))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    storage = golden_with_confs("4.2/aggregate-memory", fromTheFuture="1")
    for path, data in storage.files.items():
        LocalStorage(tmp_path / "ck").write(path, data)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


@pytest.mark.slow
def test_doctor_and_run_refuse_what_a_newer_spark_wrote(holdfast: Holdfast, place: Path) -> None:
    said = holdfast("doctor", "ck", "--json")
    [found] = json.loads(said.stdout)["checkpoints"]
    assert (said.returncode, found["newer"], found["unknown_settings"]) == (7, True, [FUTURE])
    text = holdfast("doctor", "ck")
    assert f"does not know {FUTURE}" in text.stdout
    for more in ((), ("--dry-run",)):
        refused = holdfast("run", "job.py", "--no-rest", *more)
        assert refused.returncode == 7, refused.stderr
        assert "older than the Spark that wrote" in refused.stderr
        assert "Spark has started" not in refused.stderr
