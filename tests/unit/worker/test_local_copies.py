"""The working copy is read as it was left, and not at all where anything about it is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.worker.state.local_copies import Copies, continue_copies, copies_place
from holdfast.worker.state.tables import Levels, Run, Segment

SCHEMA = pa.schema([("h", pa.uint64()), ("ord", pa.int32()), ("dead", pa.bool_()), ("v", pa.string())])
SCHEMAS = {"": SCHEMA, "seen": SCHEMA}
FORM = b"formform"
GROUPS = {0: b"12345678", 7: b"abcdefgh"}


def run_of(values: Mapping[int, str]) -> Run:
    count = len(values)
    arrays = [
        pa.array(values, pa.uint64()),
        pa.array([0] * count, pa.int32()),
        pa.array([False] * count),
        pa.array(values.values(), pa.string()),
    ]
    return Run(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))


def tables() -> dict[str, Levels]:
    segments = [Segment(0, run_of({1: "a", 2: "b"})), Segment(1 << 60, run_of({(1 << 63) + 5: "c"}))]
    return {"": Levels(SCHEMA, segments, [Segment(0, run_of({2: "newer"}))]), "seen": Levels(SCHEMA)}


def values(levels: Levels) -> list[str]:
    found: list[str] = levels.between(0, None).column("v").to_pylist()
    return found


def copies(folder: Path, mark: str = "mark", form: bytes = FORM) -> Copies:
    return Copies(folder, form, mark)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.arrow"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the tables above."""
    copies(tmp_path / "copy").save(tables(), GROUPS)
    return tmp_path / "copy"


def test_a_copy_is_read_as_it_was_left(folder: Path) -> None:
    found, groups = copies(folder, "other").read(SCHEMAS)
    assert groups == GROUPS
    assert values(found[""]) == ["a", "newer", "c"]
    assert found[""].settled.lows.tolist() == [0, 1 << 60]
    assert values(found["seen"]) == []
    assert found["seen"].tail.schema == SCHEMA


def test_there_is_no_copy_at_first(tmp_path: Path) -> None:
    assert copies(tmp_path / "copy").read(SCHEMAS) == ({}, {})
    assert not (tmp_path / "copy").exists()


def test_only_what_changed_is_written_again(folder: Path) -> None:
    before = files(folder)
    later = copies(folder, "later")
    found, groups = later.read(SCHEMAS)
    found[""].put(run_of({3: "d"}).batch)
    later.save(found, {**groups, 1: b"newtoken"})
    assert set(before) - set(files(folder)) == {each for each in before if each not in files(folder)}
    assert len(set(before) & set(files(folder))) == 2  # the segments
    again, groups = copies(folder).read(SCHEMAS)
    assert values(again[""]) == ["a", "newer", "d", "c"]
    assert groups[1] == b"newtoken"
    # What nobody names any more is gone, and what is mapped already stays readable.
    assert len(files(folder)) == 3
    assert values(found[""]) == ["a", "newer", "d", "c"]


def test_another_form_is_not_read_and_its_files_go(folder: Path) -> None:
    other = copies(folder, "other", b"elseelse")
    assert other.read(SCHEMAS) == ({}, {})
    other.save({name: Levels(schema) for name, schema in SCHEMAS.items()}, {})
    assert files(folder) == []
    assert copies(folder).read(SCHEMAS) == ({}, {})


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"7", b'{"form": "666f726d666f726d"}', b"\xff\x00"]
)
def test_a_manifest_that_is_torn_or_something_else_is_no_copy(folder: Path, text: bytes) -> None:
    (folder / "manifest.json").write_bytes(text)
    assert copies(folder).read(SCHEMAS) == ({}, {})


def test_every_cut_of_a_manifest_is_no_copy(folder: Path) -> None:
    whole = (folder / "manifest.json").read_bytes()
    for size in range(len(whole)):
        (folder / "manifest.json").write_bytes(whole[:size])
        assert copies(folder).read(SCHEMAS) == ({}, {})


@pytest.mark.parametrize(
    "wrong",
    [
        {"groups": {"0": "zz"}},
        {"groups": {"x": "00"}},
        {"groups": None},
        {"tables": {}},
        {"tables": {"": {"segments": [], "tail": None}, "seen": None}},
        {"tables": {"": {"segments": [[0]], "tail": None}, "seen": {"segments": [], "tail": None}}},
    ],
)
def test_a_manifest_with_wrong_parts_is_no_copy(folder: Path, wrong: dict[str, object]) -> None:
    fields = json.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_text(json.dumps({**fields, **wrong}))
    assert copies(folder).read(SCHEMAS) == ({}, {})


def test_a_missing_file_is_no_copy_and_the_next_save_makes_it_whole(folder: Path) -> None:
    files(folder)[0].unlink()
    later = copies(folder, "later")
    assert later.read(SCHEMAS) == ({}, {})
    later.save(tables(), GROUPS)
    assert values(copies(folder).read(SCHEMAS)[0][""]) == ["a", "newer", "c"]


@pytest.mark.parametrize("size", [0, 1, 8, 100, -1])
def test_a_cut_file_is_no_copy(folder: Path, size: int) -> None:
    for each in files(folder):
        os.truncate(each, size if size >= 0 else each.stat().st_size - 1)
    assert copies(folder).read(SCHEMAS) == ({}, {})


def test_a_copy_that_cannot_be_written_leaves_none(folder: Path) -> None:
    # A directory stands where the manifest is put together.
    (folder / "manifest.json.blocked").mkdir()
    copies(folder, "blocked").save(tables(), GROUPS)
    assert copies(folder).read(SCHEMAS) == ({}, {})


def test_two_tries_at_one_task_leave_the_copy_of_the_last(folder: Path) -> None:
    one, two = copies(folder, "one"), copies(folder, "two")
    first, groups = one.read(SCHEMAS)
    second, _ = two.read(SCHEMAS)
    first[""].put(run_of({9: "first"}).batch)
    second[""].put(run_of({9: "second"}).batch)
    two.save(second, {**groups, 0: b"22222222"})
    one.save(first, {**groups, 0: b"11111111"})
    found, tokens = copies(folder).read(SCHEMAS)
    assert (values(found[""]), tokens[0]) == (["a", "newer", "first", "c"], b"11111111")


def test_empty_tables_need_no_files(tmp_path: Path) -> None:
    copies(tmp_path).save({"": Levels(SCHEMA)}, {})
    assert files(tmp_path) == []
    assert values(copies(tmp_path).read({"": SCHEMA})[0][""]) == []


def test_copies_of_a_driver_that_was_killed_go_on_in_the_directory_of_the_next(tmp_path: Path) -> None:
    former, current = tmp_path / "former", tmp_path / "current"
    place = Path("query") / "visits" / "0"
    copies(copies_place(former) / place).save(tables(), GROUPS)
    current.mkdir()
    continue_copies(former, current)
    read, groups = copies(copies_place(current) / place).read(SCHEMAS)
    assert (values(read[""]), groups) == (["a", "newer", "c"], GROUPS)
    assert not (copies_place(former) / "query").exists()


def test_a_copy_that_the_next_driver_has_is_not_replaced(tmp_path: Path) -> None:
    former, current = tmp_path / "former", tmp_path / "current"
    for folder, name in ((former, "old"), (current, "new")):
        (copies_place(folder) / "query").mkdir(parents=True)
        (copies_place(folder) / "query" / name).touch()
    continue_copies(former, current)
    assert [path.name for path in (copies_place(current) / "query").iterdir()] == ["new"]


def test_no_copies_and_links_are_left_alone(tmp_path: Path) -> None:
    former, current = tmp_path / "former", tmp_path / "current"
    current.mkdir()
    continue_copies(former, current)
    copies_place(former).mkdir(parents=True)
    (copies_place(former) / "query").symlink_to(tmp_path)
    continue_copies(former, current)
    assert not copies_place(current).exists()
