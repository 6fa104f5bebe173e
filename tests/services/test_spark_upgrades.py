"""Queries go on from a savepoint in a newer Spark, as the verdict said before it was started.

What they must put out is what the Spark that wrote the savepoint puts out where nobody interrupts it.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from other_sparks import Runs, read_output

from holdfast import savepoints
from holdfast.changes.reshaping import migrate
from holdfast.checkpoints import read
from holdfast.checkpoints.naming import PINNED
from holdfast.model import Effect
from holdfast.savepoints.spark_upgrade import TESTED, SparkFinding, SparkReport, check_spark

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "golden"))

from golden_queries import PROVIDERS, write_input  # noqa: E402 - it is beside the goldens
from make_plain import QUERIES, names_for  # noqa: E402 - as above

STORE = "spark.sql.streaming.stateStore"
# What `Runs` sets in every session.
OF_SESSION = {"spark.sql.shuffle.partitions": "2"}
CHECKSUMS = "spark.sql.streaming.checkpoint.fileChecksum.enabled"
# All neighbours, and two longer steps.
UPGRADES = tuple(sorted(TESTED))
BEFORE, AFTER = range(6), range(6, 10)


@pytest.mark.spark
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("before", "after"), UPGRADES)
def test_a_newer_spark_goes_on_as_the_older_one_would_have(
    before: str, after: str, provider: str, tmp_path: Path
) -> None:
    names = names_for(tuple(map(int, before.split("."))))
    queries = [query for query in QUERIES if f"{query}-{provider}" in names]
    if not queries:
        pytest.skip(f"Spark {before} has no such state")
    older, newer = Runs(before, provider, tmp_path), Runs(after, provider, tmp_path)
    write_input(tmp_path / "input", BEFORE)
    for query in queries:
        older.add(query, tmp_path / "ck" / query, "first")
    older.work_off()

    write_input(tmp_path / "input", AFTER)
    outputs, filled = {}, {}
    for query in queries:
        taken = savepoints.take(tmp_path / "ck" / query, tmp_path / "sp", home=tmp_path / "home")
        report = check_spark(taken.uri, after)
        conf = {}
        if has_snapshots_of_4_0(tmp_path / "ck" / query):
            assert report.verdict == "fails"
            assert report.findings[0].hint is not None
            assert "state migrate --state-format 1" in report.findings[0].hint
            migrate(taken.uri, tmp_path / "migrated" / query, state_format=1)
            taken = savepoints.take(tmp_path / "migrated" / query, tmp_path / "sp", home=tmp_path / "home")
            report = check_spark(taken.uri, after)
            conf = {f"{STORE}.checkpointFormatVersion": "1"}
        if after == "4.1" and report.state_format == 1:
            assert {finding.reference for finding in of_meaning(report)} == {"SPARK-56461"}
            conf[CHECKSUMS] = "false"  # as the finding advises
        else:
            assert report.verdict == "goes on", report.findings
        assert before in report.written_by
        assert report.tested
        filled[query] = {setting.name: setting.value or OF_SESSION[setting.name] for setting in report.filled}
        savepoints.restore(taken.uri, tmp_path / "restored" / query)
        outputs[query] = (
            older.add(query, tmp_path / "ck" / query, "uninterrupted"),
            newer.add(query, tmp_path / "restored" / query, "newer", **conf),
        )
    older.work_off()
    newer.work_off()

    for query, (uninterrupted, in_newer) in outputs.items():
        expected = read_output(uninterrupted)
        assert len(expected) >= len(AFTER), query
        assert read_output(in_newer) == expected, query
        # What was to be taken for the settings that were not pinned is what Spark has taken.
        confs = read(tmp_path / "restored" / query).confs
        assert {name: confs[name] for name in filled[query]} == filled[query], query
        assert {setting.name for setting in PINNED} & set(confs) == {
            setting.name for setting in PINNED if setting.since <= after
        }, query


def of_meaning(report: SparkReport) -> list[SparkFinding]:
    return [finding for finding in report.findings if finding.effect is not Effect.NONE]


def has_snapshots_of_4_0(checkpoint: Path) -> bool:
    """Under state format 2 a snapshot begins otherwise in 4.0. Whether there is one is up to its threads."""
    heads = set()
    for file in checkpoint.rglob("*.zip"):
        with zipfile.ZipFile(file) as snapshot:
            heads.add(snapshot.read("metadata")[:3])
    return b"v2\n" in heads


@pytest.mark.spark
@pytest.mark.parametrize("after", ["4.1", "4.2", "4.3"])
def test_snapshots_that_spark_4_0_alone_writes_are_not_read_by_others(after: str, tmp_path: Path) -> None:
    """Its sessions that begin with state format 2 write them; without changelogs each batch has one."""
    begun = {f"{STORE}.checkpointFormatVersion": "2"}
    snapshots = {f"{STORE}.rocksdb.changelogCheckpointing.enabled": "false"}
    older, newer = (Runs(version, "format2", tmp_path, begun) for version in ("4.0", after))
    write_input(tmp_path / "input", BEFORE)
    older.add("aggregate", tmp_path / "ck", "first", **snapshots)
    older.work_off()
    write_input(tmp_path / "input", AFTER)
    taken = savepoints.take(tmp_path / "ck", tmp_path / "sp", home=tmp_path / "home")
    report = check_spark(taken.uri, after)
    savepoints.restore(taken.uri, tmp_path / "restored")
    newer.add("aggregate", tmp_path / "restored", "newer", **snapshots)
    assert report.verdict == "fails"
    assert "only Spark 4.0 writes" in report.findings[0].text
    # It was right: that Spark cannot load the state.
    with pytest.raises(AssertionError, match="StreamingQueryException"):
        newer.work_off()
