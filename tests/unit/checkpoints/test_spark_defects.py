"""Damage that Spark's own defects leave in checkpoints: made as the defects make it, found, and named."""

from __future__ import annotations

import ast
import io
import zipfile
from pathlib import Path

import pytest
from state_rows import state_rows

from golden import files_on_disk, golden, golden_files
from holdfast import savepoints
from holdfast.advice.rules import RULES
from holdfast.advice.source import query_checks
from holdfast.advice.source.source_lint import source_hits
from holdfast.checkpoints.verification.file_checks import ContentCheck, Verification
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.spark_defects import SPARK_DEFECTS
from holdfast.errors import Corrupt
from holdfast.formats.files.snapshot import SharedFile, parse_snapshot
from holdfast.formats.files.sst import sst_session
from holdfast.savepoints import planning
from holdfast.storage import open_storage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage

# The issue whose damage it is, the checkpoint, and the release that has fixed it.
CASES = {
    "SPARK-49770": ("3.5/join-changelog", "4.0.0"),
    "SPARK-52637": ("4.0/join-rocksdb", "4.1.0"),
    "SPARK-55892": ("4.1/aggregate-changelog", "4.2.0"),
}
MIXED = ("SPARK-49770", "SPARK-52637")


def version(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(".zip").partition("_")[0])


def snapshots(files: dict[str, bytes]) -> list[str]:
    """The snapshots of the first partition, the newest first."""
    own = (path for path in files if path.startswith("state/0/0/") and path.endswith(".zip"))
    return sorted((path for path in own if "/." not in path), key=version, reverse=True)


def session(files: dict[str, bytes], path: str) -> int | None:
    data = files[path]
    return sst_session(lambda start, size: data[start : start + size], len(data), path)


def data_files(files: dict[str, bytes], snapshot: str) -> dict[str, SharedFile]:
    """The data files of a snapshot, by path."""
    folder = snapshot.rpartition("/")[0]
    shared = parse_snapshot(files[snapshot], snapshot).shared
    return {f"{folder}/SSTs/{file.name}": file for file in shared if file.folder == "SSTs"}


def with_metadata(data: bytes, change: tuple[str, str]) -> bytes:
    """A snapshot whose metadata names a different data file."""
    former, present = change
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "metadata":
                content = content.replace(former.encode(), present.encode())
            new.writestr(name, content)
    return changed.getvalue()


def damaged_by(issue: str) -> tuple[dict[str, bytes], str]:
    """A checkpoint with the damage of a defect, and the newest snapshot, which has it.

    The two first let a snapshot reuse a data file because a local file of an earlier run had its name and its
    size. The third deletes a data file that a snapshot still names.
    """
    files = dict(golden_files(CASES[issue][0]))
    if issue not in MIXED:
        newest = snapshots(files)[0]
        del files[next(iter(data_files(files, newest)))]
        return files, newest
    all_files = {
        place: file
        for path in snapshots(files)
        for place, file in data_files(files, path).items()
        if place in files
    }
    for newest in snapshots(files)[:4]:
        for place, file in data_files(files, newest).items():
            for other, alike in all_files.items():
                same = (file.local_name, file.size_bytes) == (alike.local_name, alike.size_bytes)
                if same and session(files, place) != session(files, other):
                    name = other.rpartition("/")[2]
                    files[f"{place.rpartition('/')[0]}/{name}"] = files[other]
                    files[newest] = with_metadata(files[newest], (file.name, name))
                    without_checksum(files, newest)
                    return files, newest
    raise AssertionError("no data file of a different run with this name and size")


def without_checksum(files: dict[str, bytes], path: str) -> None:
    folder, _, name = path.rpartition("/")
    files.pop(f"{folder}/.{name}.crc", None)


def found(files: dict[str, bytes]) -> Verification:
    return verify(MemoryStorage(files, uri="memory://ck"))


@pytest.mark.parametrize("issue", CASES)
def test_verify_finds_the_damage_and_names_the_defect(issue: str) -> None:
    files, newest = damaged_by(issue)
    (problem,) = found(files).problems
    assert f"{issue}, fixed in Spark {CASES[issue][1]}" in problem.what
    assert newest in (problem.file, *problem.what.split())
    assert (problem.file == newest) == (issue in MIXED)
    assert "restore" in problem.hint


def test_the_defect_follows_the_damage_after_a_semicolon() -> None:
    files, newest = damaged_by("SPARK-55892")
    (problem,) = found(files).problems
    assert problem.what == (
        f"the file is missing, but {newest} needs it; a defect of Spark may have left this:"
        " SPARK-55892, fixed in Spark 4.2.0"
    )


def test_a_file_that_is_missing_without_changelogs_is_not_put_down_to_the_defect() -> None:
    files = dict(golden_files("4.1/aggregate-rocksdb"))
    newest = snapshots(files)[0]
    del files[next(iter(data_files(files, newest)))]
    (problem,) = found(files).problems
    assert problem.what == f"the file is missing, but {newest} needs it"


def test_a_file_of_the_wrong_size_is_not_put_down_to_the_defect() -> None:
    """The defect deletes files, and never leaves part of one."""
    files = dict(golden_files("4.1/aggregate-changelog"))
    newest = snapshots(files)[0]
    place, file = next(iter(data_files(files, newest).items()))
    files[place] = files[place][:-1]
    without_checksum(files, place)
    (problem,) = found(files).problems
    assert problem.file == place
    assert problem.what == (
        f"the file has {file.size_bytes - 1} bytes instead of the {file.size_bytes} in the snapshot"
        f" that needs it, but {newest} needs it"
    )


@pytest.mark.parametrize("name", sorted({name for name, _ in CASES.values()}))
def test_the_same_checkpoint_without_it_is_whole(name: str) -> None:
    assert verify(golden(name)).ok


def test_a_size_that_the_manifest_does_not_have_is_found_too() -> None:
    files = dict(golden_files("4.0/aggregate-rocksdb"))
    newest = snapshots(files)[0]
    place, file = next(iter(data_files(files, newest).items()))
    other = next(path for path in files if path.endswith(".sst") and len(files[path]) != file.size_bytes)
    sizes = (f'"sizeBytes":{file.size_bytes}', f'"sizeBytes":{len(files[other])}')
    files[place] = files[other]
    files[newest] = with_metadata(files[newest], sizes)
    for path in (newest, place):
        without_checksum(files, path)
    assert [problem.file for problem in found(files).problems] == [newest]


def test_a_savepoint_takes_an_older_snapshot_and_the_changelogs_instead(tmp_path: Path) -> None:
    files, newest = damaged_by("SPARK-49770")
    checkpoint = files_on_disk(files, tmp_path / "ck")
    taken = savepoints.take(checkpoint, tmp_path / "sp", home=tmp_path / "home")
    assert newest not in [file.path for file in taken.manifest.files]
    assert savepoints.verify(taken.uri).ok
    savepoints.restore(taken.uri, tmp_path / "restored")
    assert rows_of(at(tmp_path / "restored")) == rows_of(golden("3.5/join-changelog")) != []


def test_no_savepoint_of_it_is_called_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, newest = damaged_by("SPARK-52637")
    checkpoint = files_on_disk(files, tmp_path / "ck")
    with pytest.raises(Corrupt, match="SPARK-52637"):
        savepoints.take(checkpoint, tmp_path / "sp", home=tmp_path / "home")
    # As an earlier Holdfast took it of a state too large for its rows to be counted.
    with monkeypatch.context() as earlier:
        earlier.setattr(planning, "_content", lambda *args, **options: None)
        earlier.setattr(ContentCheck, "session_of", lambda self, path, size: None)
        taken = savepoints.take(checkpoint, tmp_path / "sp", home=tmp_path / "home", digest=False)
    assert [problem.file for problem in savepoints.verify(taken.uri).problems] == [newest]


def rows_of(storage: Storage) -> list[tuple[str, int, bytes, tuple[bytes, ...]]]:
    return sorted(
        (repr(row.state), row.partition, row.key_row, row.value_rows) for row in state_rows(storage)
    )


def at(path: Path) -> Storage:
    return open_storage(str(path))


def test_lint_names_the_defects_of_the_installed_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(spark: str, more: str = "") -> list[str]:
        monkeypatch.setattr(query_checks, "installed", lambda package: spark)
        hits = source_hits(ast.parse(f"{RULES['HF315'].bad}\n{more}"))
        return [hit.seen for hit in hits if hit.rule == "HF315"]

    logged = 'spark.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")'
    assert seen("3.5.9") == seen("4.2.0", logged) == seen("4.3.0", logged) == []
    assert seen("3.5.9", logged) == ["pyspark 3.5.9 has SPARK-49770, SPARK-55892"]
    assert seen("4.0.4") == ["pyspark 4.0.4 has SPARK-52637"]
    assert seen("4.1.3", logged) == ["pyspark 4.1.3 has SPARK-54389, SPARK-55892, SPARK-56476"]
    assert seen("4.1.0.dev0") == ["pyspark 4.1.0.dev0 has SPARK-54389, SPARK-56476"]


def test_rocksdb_refuses_the_snapshot_too() -> None:
    with pytest.raises(Corrupt, match="Mismatch in unique ID on table file"):
        rows_of(MemoryStorage(damaged_by("SPARK-52637")[0], uri="memory://ck"))


def test_the_table_is_in_order_and_says_which_releases() -> None:
    assert [each.issue for each in SPARK_DEFECTS] == sorted(each.issue for each in SPARK_DEFECTS)
    releases = {each.issue: each.releases for each in SPARK_DEFECTS}
    assert releases["SPARK-52637"] == "4.0.0 and later, fixed in 4.1.0"
    assert releases["SPARK-51573"] == "no release, only previews of 4.0.0"
