"""`verify` reports a state file that a repeated batch wrote and did not put in place."""

from __future__ import annotations

import pytest

from golden import golden_files
from holdfast import layout
from holdfast.checkpoints.verification.verifying import verify
from holdfast.layout import StoreFile
from holdfast.storage.memory import MemoryStorage

UUID = "0c7a9a3e-2f0b-4d53-9d0a-8f5b2f1d3c4e"
# State-checkpoint format 1: on the heap, RocksDB with changes, RocksDB with snapshots alone.
FORMAT_1 = {
    "4.2/aggregate-memory": ".delta",
    "4.2/aggregate-changelog": ".changelog",
    "4.2/session-rocksdb": ".zip",
}


def newest_batch(files: dict[str, bytes]) -> int:
    return max(int(path[8:]) for path in files if path.startswith("commits/") and path[8:].isdigit())


def files_of(files: dict[str, bytes], suffix: str) -> list[tuple[str, StoreFile]]:
    places = [(path, layout.parse(path)) for path in sorted(files) if path.endswith(suffix)]
    return [(path, place) for path, place in places if isinstance(place, StoreFile)]


def left_name(path: str, task: str = ".TID17") -> str:
    folder, name = layout.split(path)
    return layout.join(folder, f".{name}.{UUID}{task}.tmp")


@pytest.mark.parametrize("name", FORMAT_1)
def test_a_complete_file_of_another_run_is_a_remark_and_no_damage(name: str) -> None:
    files = golden_files(name)
    (first, place), (other, _) = files_of(files, FORMAT_1[name])[:2]
    assert files[first] != files[other]
    outcome = verify(MemoryStorage({**files, left_name(first): files[other], left_name(other): files[first]}))
    assert outcome.ok
    (remark,) = [remark for remark in outcome.remarks if remark.file.endswith(".tmp")]
    assert remark.file in (left_name(first), left_name(other))
    assert f"batch {place.version - 1} ran more than once" in remark.what
    assert "(1 more such file)" in remark.what
    assert "docs/guides/repeated-batches.md" in remark.what


@pytest.mark.parametrize("name", FORMAT_1)
def test_other_temporary_files_are_not_reported(name: str) -> None:
    files = golden_files(name)
    suffix = FORMAT_1[name]
    (first, place), (other, _) = files_of(files, suffix)[:2]
    uncommitted = f"{place.store.folder}/{newest_batch(files) + 2}{suffix}"
    left = {
        left_name(first): files[first],
        left_name(other, ""): files[first][:-7],
        left_name(uncommitted): files[first],
        f"offsets/.3.{UUID}.tmp": b"v1",
    }
    remarks = verify(MemoryStorage({**files, **left})).remarks
    assert [remark for remark in remarks if remark.file.endswith(".tmp")] == []


def test_the_file_is_reported_though_spark_has_deleted_the_version() -> None:
    files = golden_files("4.2/aggregate-memory")
    (first, place), *_ = files_of(files, ".delta")
    gone = f"{place.store.folder}/2.delta"
    assert gone not in files
    left = left_name(gone)
    (remark,) = [
        remark
        for remark in verify(MemoryStorage({**files, left: files[first]})).remarks
        if remark.file.endswith(".tmp")
    ]
    assert remark.file == left
    assert "has no" in remark.what
