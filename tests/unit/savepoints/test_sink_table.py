"""A new table is prepared with the checkpoint that is made for it, and one that has files is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command import Holdfast

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.errors import Conflict, Invalid
from holdfast.storage.local import LocalStorage

NAME = "4.2/aggregate-format2"


@pytest.fixture
def taken(tmp_path: Path) -> str:
    golden_on_disk(NAME, tmp_path / "ck")
    return savepoints.take(tmp_path / "ck", tmp_path / "catalog").uri


def log_of(table: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (table / "_spark_metadata").iterdir()}


@pytest.mark.parametrize("verb", [savepoints.restore, savepoints.fork])
def test_the_log_has_an_entry_for_each_batch_before(
    verb: Callable[..., savepoints.Restored], taken: str, tmp_path: Path
) -> None:
    made = verb(taken, tmp_path / "new", table=tmp_path / "table")
    assert made.plan.table == (tmp_path / "table").as_uri()
    assert log_of(tmp_path / "table") == {"9.compact": b"v1", "10": b"v1", "11": b"v1"}
    assert [file.name for file in (tmp_path / "table").iterdir()] == ["_spark_metadata"]


def test_without_a_name_no_table_is_touched(taken: str, tmp_path: Path) -> None:
    before = {file.name for file in tmp_path.iterdir()}
    assert savepoints.restore(taken, tmp_path / "new").plan.table is None
    assert {file.name for file in tmp_path.iterdir()} - before == {"new"}


@pytest.mark.parametrize("name", ["part-0.parquet", "_spark_metadata/10", "_spark_metadata/7", "d=1/x.json"])
def test_a_table_that_has_anything_is_refused_and_left_alone(taken: str, tmp_path: Path, name: str) -> None:
    file = tmp_path / "table" / name
    file.parent.mkdir(parents=True)
    file.write_text('v1\n{"path": "file:///a", "action": "add"}')
    with pytest.raises(Conflict, match="the table directory is not empty") as error:
        savepoints.restore(taken, tmp_path / "new", table=tmp_path / "table")
    assert error.value.found == name.partition("/x")[0]
    assert not (tmp_path / "new").exists()
    assert [each for each in (tmp_path / "table").rglob("*") if each.is_file()] == [file]


@pytest.mark.parametrize("place", ["new", "new/table", "."])
def test_a_table_inside_the_checkpoint_is_refused(taken: str, tmp_path: Path, place: str) -> None:
    with pytest.raises(Invalid, match="cannot contain one another"):
        savepoints.restore(taken, tmp_path / "new", table=tmp_path / place)
    assert not (tmp_path / "new").exists()


def test_a_killed_restore_is_begun_again(taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed with a part of the log written, and after all of it, before the checkpoint counts."""

    class Killed(BaseException):
        pass

    real, writes, at = LocalStorage.write, 0, 0

    def write(self: LocalStorage, path: str, data: bytes, *, replace: bool = False) -> None:
        nonlocal writes
        if data == b"v1" or path == "metadata":
            writes += 1
            if writes == at:
                raise Killed
        real(self, path, data, replace=replace)

    monkeypatch.setattr(LocalStorage, "write", write)
    for step in (2, 4):
        writes, at = 0, step
        with pytest.raises(Killed):
            savepoints.restore(taken, tmp_path / "new", table=tmp_path / "table")
        assert not (tmp_path / "new" / "metadata").exists()
    writes = at
    savepoints.restore(taken, tmp_path / "new", table=tmp_path / "table")
    assert set(log_of(tmp_path / "table")) == {"9.compact", "10", "11"}
    assert (tmp_path / "new" / "metadata").exists()


def test_the_verb(holdfast: Holdfast, taken: str, tmp_path: Path) -> None:
    planned = holdfast("restore", taken, "new", "--table", "table", "--dry-run")
    assert f"the sink log of the new table file://{tmp_path}/table would be prepared" in planned.stdout
    assert not (tmp_path / "table").exists()
    made = holdfast("restore", taken, "new", "--table", "table", "--json")
    assert json.loads(made.stdout)["table"] == f"file://{tmp_path}/table"
    again = holdfast("fork", taken, "other", "--table", "table")
    assert again.returncode == 0, "the log is that of this batch, and has no files"
    assert f"the sink log of file://{tmp_path}/table is prepared" in again.stderr
    (tmp_path / "table" / "part-0.parquet").write_bytes(b"PAR1")
    said = holdfast("fork", taken, "third", "--table", "table")
    assert (said.returncode, "the table directory is not empty" in said.stderr) == (4, True)
