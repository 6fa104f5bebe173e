"""State, commits and names that are lost: told from what never was, and from what cannot be told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli_runner import cli_in
from damages import Files

from golden import STATELESS, golden_files, golden_on_disk, without_checksums
from holdfast import savepoints
from holdfast.changes.reshaping import planned_migration
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.copy import NONE_OR_GONE, cut
from holdfast.checkpoints.record import Record, Recorder, RecordFile, record_path
from holdfast.checkpoints.state.states import operator_states
from holdfast.checkpoints.verification.file_checks import Verification
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.providers import known_provider
from holdfast.savepoints.access import ChangeSource
from holdfast.storage import open_storage
from holdfast.storage.memory import MemoryStorage

FORMAT_1 = "4.2/aggregate-memory"
FORMAT_2 = "4.2/aggregate-format2"
URI = "memory://checkpoint"


def looked(files: Files, record: Record | None = None) -> Verification:
    return verify(MemoryStorage(files, URI), record=record)


def recorded(files: Files, folder: Path) -> Record:
    file = RecordFile(folder / "record.jsonl")
    Recorder(MemoryStorage(files, URI), file).look()
    found = file.read()
    assert found is not None
    return found


def without(files: Files, *folders: str) -> Files:
    return {path: data for path, data in files.items() if not path.startswith(folders)}


@pytest.mark.parametrize("name", [FORMAT_1, "4.2/dedupe-changelog", "4.2/aggregate-rocksdb"])
def test_state_that_a_record_names_is_gone(name: str, tmp_path: Path) -> None:
    files = golden_files(name)
    found = looked(without(files, "state/"), recorded(files, tmp_path))
    assert any(each.file == "state/0" and "record" in each.what for each in found.problems)
    assert found.restorable == ()
    assert found.stateful


@pytest.mark.parametrize("name", [FORMAT_1, STATELESS])
def test_without_a_record_the_words_say_both(name: str, tmp_path: Path) -> None:
    files = without(golden_files(name), "state/")
    found = looked(files)
    assert found.ok
    assert found.stateful is None
    assert [each.what for each in found.remarks if NONE_OR_GONE in each.what]
    place = golden_on_disk(name, tmp_path / "ck")
    shutil.rmtree(place / "state", ignore_errors=True)
    holdfast = cli_in(tmp_path, tmp_path / "home")
    shown = holdfast("checkpoint", "verify", "ck")
    assert (shown.returncode, NONE_OR_GONE in shown.stdout.splitlines()[-1]) == (0, True)
    taken = holdfast("savepoint", "take", "ck", "sp")
    assert taken.returncode == 0
    assert NONE_OR_GONE in taken.stderr


def test_what_can_be_told_is_told(tmp_path: Path) -> None:
    """Format 2 and a record say that a query keeps no state; then nothing is said."""
    files = golden_files(STATELESS)
    assert looked(files, recorded(files, tmp_path)).stateful is False
    modern = dict(without_checksums(files))
    for path in [path for path in modern if path.startswith("commits/")]:
        modern[path] = b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{}}'
    found = looked(modern)
    assert (found.ok, found.stateful, found.remarks) == (True, False, ())
    gone = looked(without(golden_files(FORMAT_2), "state/"))
    assert ([each.file for each in gone.problems], gone.restorable) == (["state/0"], ())


def test_the_note_of_a_plan_tells(tmp_path: Path) -> None:
    """Every query that Holdfast starts has one."""

    def noted(*, stateful: bool) -> Files:
        step = {"kind": "Aggregate", "text": "by customer", "bare": "", "stateful": stateful}
        plan = {"sources": [], "steps": [step], "operators": [], "sink": None, "trigger": None}
        text = json.dumps({"version": 1, "plans": [{"from_batch": 0, **plan}]})
        return {**without(golden_files(FORMAT_1), "state/"), "_holdfast/plan.json": text.encode()}

    found = looked(noted(stateful=True))
    assert [(each.file, "plan" in each.what) for each in found.problems] == [("state/0", True)]
    with pytest.raises(Corrupt, match="state files are missing"):
        cut(MemoryStorage(noted(stateful=True), URI))
    stateless = looked(noted(stateful=False))
    assert (stateless.ok, stateless.stateful) == (True, False)


def test_an_operator_among_several_is_missed() -> None:
    files = golden_files(FORMAT_1)
    moved = {
        path.replace("state/0/", "state/1/", 1).replace("state/.0", "state/.1"): data
        for path, data in files.items()
    }
    found = looked(without_checksums(moved))
    assert "state/0" in [each.file for each in found.problems]


def test_no_savepoint_is_taken_of_lost_state(tmp_path: Path) -> None:
    """With the record of a state home, as `holdfast watch` leaves it."""
    place, home = golden_on_disk(FORMAT_1, tmp_path / "ck"), tmp_path / "home"
    storage = open_storage(str(place))
    recorder = Recorder(storage, RecordFile(record_path(home, storage.uri)))
    recorder.look()
    shutil.rmtree(place / "state")
    with pytest.raises(Corrupt, match="state files are missing") as error:
        savepoints.take(place, tmp_path / "sp", home=home)
    assert error.value.hint is not None
    assert savepoints.list(tmp_path / "sp") == ()
    holdfast = cli_in(tmp_path, home)
    for verb in (("savepoint", "take", "ck", "sp"), ("savepoint", "take", "ck", "sp", "--dry-run")):
        refused = holdfast(*verb)
        assert (refused.returncode, "state files are missing" in refused.stderr) == (Corrupt.exit_code, True)
    assert holdfast("checkpoint", "verify", "ck").returncode == Corrupt.exit_code


@pytest.mark.parametrize("name", [FORMAT_1, "4.2/aggregate-rocksdb", FORMAT_2])
def test_a_recorded_file_that_no_restart_needs_is_missed_too(name: str, tmp_path: Path) -> None:
    files = golden_files(name)
    record = recorded(files, tmp_path)
    needed = {each.origin for each in cut(MemoryStorage(files, URI)).files}
    versions = sorted(
        (int(path.split("/")[-1].split(".")[0].split("_")[0]), path)
        for path in files
        if path.startswith("state/0/0/") and path.endswith((".delta", ".snapshot", ".zip", ".changelog"))
    )
    oldest = versions[0][0]
    # Changelogs below every base may have gone with a base that was there before them.
    kept = min(version for version, path in versions if path.endswith((".snapshot", ".zip")))
    spare = [path for version, path in versions if version > kept and path not in needed]
    assert spare
    for path in spare:
        assert path in [each.file for each in looked(without(files, path), record).problems]
    # What Spark has cleaned up is no damage: it begins with the oldest.
    cleaned = without(files, *(path for version, path in versions if version == oldest))
    assert looked(cleaned, record).ok == looked(cleaned).ok


@pytest.mark.parametrize("name", [FORMAT_1, FORMAT_2, STATELESS])
def test_a_lost_commit_log_is_damage(name: str) -> None:
    files = golden_files(name)
    gone = without(files, "commits/")
    found = looked(gone)
    assert [each.file for each in found.problems] == ["commits/5"]
    assert found.restorable == ()
    with pytest.raises(Corrupt, match="commit log of the checkpoint is missing"):
        cut(MemoryStorage(gone, URI))
    # Only the newest batch may be without its commit.
    assert looked(without(files, "commits/11", "commits/.11")).ok
    two = without(files, "commits/11", "commits/.11", "commits/10", "commits/.10")
    assert "commits/10" in [each.file for each in looked(two).problems]
    last = {path: data for path, data in gone.items() if not path.startswith("offsets/") or "11" in path}
    assert "commits/10" in [each.file for each in looked(last).problems]


def test_a_query_before_its_first_commit_is_whole() -> None:
    files = without_checksums(golden_files(STATELESS))
    first = {
        "metadata": files["metadata"],
        "offsets/0": files["offsets/5"].replace(b'"logOffset":5', b'"logOffset":0'),
        "sources/0/0": files["sources/0/0"],
    }
    assert looked(first).ok
    later = files["offsets/6"].replace(b'"logOffset":6', b'"logOffset":1')
    second = {**first, "offsets/1": later, "sources/0/1": files["sources/0/1"]}
    assert [each.file for each in looked(second).problems] == ["commits/0"]


def test_logs_with_gaps_of_asynchronous_progress_are_whole() -> None:
    """Spark writes both logs on one thread: the offsets 0, 5, 8, and the commits 0, 5."""
    files = without_checksums(golden_files(STATELESS))
    kept = {path: data for path, data in files.items() if not path.startswith(("offsets/", "commits/"))}
    kept |= {f"offsets/{batch}": files[f"offsets/{batch}"] for batch in (6, 9, 11)}
    kept |= {f"commits/{batch}": files[f"commits/{batch}"] for batch in (6, 9)}
    assert looked(kept).ok
    lagging = without(kept, "commits/9")
    assert [each.file for each in looked(lagging).problems] == ["commits/9"]


@pytest.mark.parametrize("content", [b"\0\1garbage", b"{}", b'{"id":"not one"}', None])
def test_nothing_can_be_restored_without_the_id_of_the_query(content: bytes | None) -> None:
    files = without_checksums(golden_files(FORMAT_1))
    assert looked(files).restorable
    changed = without(files, "metadata") if content is None else {**files, "metadata": content}
    found = looked(changed)
    assert [each.file for each in found.problems] == ["metadata"]
    assert found.restorable == ()


@pytest.mark.parametrize(
    "vendor", ["com.databricks.sql.streaming.state.RocksDBStateStoreProvider", "HDFSBackedStateStoreProvider"]
)
@pytest.mark.parametrize("name", [FORMAT_1, FORMAT_2])
def test_another_vendors_provider_is_refused_by_its_whole_name(
    name: str, vendor: str, tmp_path: Path
) -> None:
    spark = b"org.apache.spark.sql.execution.streaming.state."
    files = without_checksums(golden_files(name))
    for path in [path for path in files if path.startswith("offsets/")]:
        for known in (b"RocksDBStateStoreProvider", b"HDFSBackedStateStoreProvider"):
            files[path] = files[path].replace(spark + known, vendor.encode())
    place = tmp_path / "ck"
    for path, data in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(data)
    with pytest.raises(Unsupported) as error:
        looked(files)
    assert error.value.found == vendor
    storage = open_storage(str(place))
    for ask in (
        lambda: cut(storage),
        lambda: operator_states(storage),
        lambda: known_provider(read(storage).confs, storage.uri),
        lambda: planned_migration(ChangeSource(storage), MemoryStorage(), partitions=3),
        lambda: savepoints.take(place, tmp_path / "sp"),
    ):
        with pytest.raises(Unsupported) as refused:
            ask()
        assert refused.value.found == vendor
    assert read(storage).provider == vendor
    verified = cli_in(tmp_path, tmp_path / "home")("checkpoint", "verify", "ck")
    assert (verified.returncode, vendor in verified.stderr) == (Unsupported.exit_code, True)
    # What is damaged besides is told first.
    assert [each.file for each in looked({**files, "metadata": b"?"}).problems] == ["metadata"]


def test_a_query_without_state_may_be_set_to_any_provider() -> None:
    files = without_checksums(golden_files(STATELESS))
    for path in [path for path in files if path.startswith("offsets/")]:
        files[path] = files[path].replace(b"org.apache.spark.sql.execution.streaming.state.", b"com.example.")
    assert looked(files).ok
    assert cut(MemoryStorage(files, URI)).batch_id == 11
