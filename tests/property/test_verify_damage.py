"""Damage of every kind in real checkpoints: verify finds it and names the file. Seeded."""

from __future__ import annotations

import io
import random
import re
import zipfile
from collections.abc import Iterator

import pytest
from damages import DAMAGES, Files, flip, hidden
from grid import one_in

from golden import NAMES, golden_files, without_checksums
from holdfast import layout
from holdfast.checkpoints.copy import How, cut
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import NotFound
from holdfast.layout import FileKind, StoreFile
from holdfast.storage.memory import MemoryStorage


def needed(files: Files) -> list[str]:
    """The files that a restart reads, by the recipe and not by what verify looks at."""
    found = cut(MemoryStorage(files))
    return [file.path for file in found.files if file.how is not How.SOURCE_LOG]


def _some(paths: list[str], count: int, rng: random.Random) -> list[str]:
    return rng.sample(paths, min(count, len(paths)))


def named(files: Files) -> list[str]:
    return [problem.file for problem in verify(MemoryStorage(files)).problems]


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_checkpoint_is_whole(name: str) -> None:
    for files in (golden_files(name), without_checksums(golden_files(name))):
        found = verify(MemoryStorage(files))
        assert found.problems == ()
        assert found.ok
        assert found.batch_id in found.restorable


@pytest.mark.parametrize("name", one_in(3, NAMES))
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named(name: str, damage: str) -> None:
    files = golden_files(name)
    rng = random.Random(f"{name} {damage}")
    for path in _some([path for path in needed(files) if not hidden(path)], 5, rng):
        changed = DAMAGES[damage](files[path], rng)
        assert changed == files[path] or path in named({**files, path: changed}), (path, damage)


@pytest.mark.parametrize("name", one_in(3, NAMES))
@pytest.mark.parametrize("damage", ["truncate", "zero", "empty", "double"])
def test_so_it_is_without_any_checksum(name: str, damage: str) -> None:
    files = without_checksums(golden_files(name))
    rng = random.Random(f"{name} {damage} bare")
    for path in _some(needed(files), 4, rng):
        changed = DAMAGES[damage](files[path], rng)
        if changed != files[path]:
            assert path in named({**files, path: changed}), (path, damage)


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_a_flipped_bit_of_state_is_seen_without_any_checksum(name: str) -> None:
    """Streams and archives guard themselves; only the data files of RocksDB do so in a way not read here."""
    files = without_checksums(golden_files(name))
    rng = random.Random(name)
    state = [path for path in needed(files) if _guarded(path)]
    for path in rng.sample(state, min(6, len(state))):
        changed = flip(files[path], rng)
        if changed != files[path] and not _harmless(path, files[path], changed):
            assert path in named({**files, path: changed}), path


def _guarded(path: str) -> bool:
    place = layout.parse(path)
    return isinstance(place, StoreFile)


def _harmless(path: str, data: bytes, changed: bytes) -> bool:
    """A bit that readers pass over: when an entry was made and by what, or how large a block may be."""
    at = next(index for index, (one, two) in enumerate(zip(data, changed, strict=True)) if one != two)
    if not path.endswith(".zip"):
        return data[max(at - 8, 0) : at] == b"LZ4Block" and data[at] & 0xF0 == changed[at] & 0xF0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        heads = [info.header_offset for info in archive.infolist()]
        return at >= archive.start_dir or any(at - head in (4, 5, 10, 11, 12, 13) for head in heads)


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_a_lost_file_is_named(name: str) -> None:
    files = golden_files(name)
    newest = cut(MemoryStorage(files)).batch_id
    # Losing the newest commit is what a crash before it looks like: the batch runs again.
    spared = {
        f"commits/{newest}",
        f"commits/{newest - 1}",
        *(path for path in files if path.startswith("_holdfast")),
    }
    lost = [path for path in needed(files) if not hidden(path) and path not in spared]
    for path in _some(lost, 10, random.Random(name)):
        rest = {each: data for each, data in files.items() if each != path}
        if _spare_base(path, rest):
            continue
        found = named(rest)
        assert path in found, (path, found)


def _spare_base(path: str, rest: Files) -> bool:
    """Whether an older base and the changes since make up for it, as they do for Spark."""
    place = layout.parse(path)
    if not (isinstance(place, StoreFile) and place.kind.whole):
        return False
    try:
        return bool(cut(MemoryStorage(rest)).files)
    except NotFound:
        return False


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_a_damaged_checksum_is_told(name: str) -> None:
    files = golden_files(name)
    rng = random.Random(name)
    sums = [path for path in needed(files) if hidden(path)]
    for path in rng.sample(sums, min(8, len(sums))):
        place = layout.parse(path)
        assert isinstance(place, (layout.HadoopChecksumFile, layout.SparkChecksumFile))
        # Hadoop's head says how many bytes a sum is of, which is all the same for a file of fewer.
        head = 8 if isinstance(place, layout.HadoopChecksumFile) else 0
        found = named({**files, path: files[path][:head] + flip(files[path][head:], rng)})
        assert path in found or place.of in found, path


def pairs(files: Files, kind: FileKind) -> Iterator[tuple[str, str]]:
    """The newest files of one kind in two partitions."""
    newest: dict[int, StoreFile] = {}
    for path in files:
        place = layout.parse(path)
        if isinstance(place, StoreFile) and place.kind is kind and place.store.name == "default":
            best = newest.get(place.store.partition)
            if best is None or place.version > best.version:
                newest[place.store.partition] = place
    if len(newest) == 2 and newest[0].version == newest[1].version:
        yield newest[0].render(), newest[1].render()


@pytest.mark.parametrize("name", NAMES)
def test_exchanged_content_is_seen_by_checksums_or_lineage(name: str) -> None:
    files = golden_files(name)
    for bare in (files, without_checksums(files)):
        for first, second in [
            *pairs(files, FileKind.CHANGELOG),
            *pairs(files, FileKind.DELTA),
            *pairs(files, FileKind.ZIP),
        ]:
            if files[first] == files[second]:
                continue
            swapped = {**bare, first: files[second], second: files[first]}
            unique = isinstance(place := layout.parse(first), StoreFile) and place.unique_id is not None
            # Under format 1 and without checksums nothing in a change says where it belongs.
            if bare is files or (unique and first.endswith("changelog")):
                assert {first, second} <= set(named(swapped)), (first, second)


@pytest.mark.parametrize("name", NAMES)
def test_a_partition_that_is_lost_is_named(name: str) -> None:
    files = golden_files(name)
    rest = {path: data for path, data in files.items() if not path.startswith("state/0/1/")}
    assert any(file.startswith("state/0/1") for file in named(rest))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("partitions", ["1", "3"])
def test_an_edited_number_of_partitions_is_seen(name: str, partitions: str) -> None:
    files = without_checksums(golden_files(name))
    found = cut(MemoryStorage(files))
    path = f"offsets/{found.batch_id}"
    old = b'"spark.sql.shuffle.partitions":"2"'
    assert old in files[path]
    edited = files[path].replace(old, old.replace(b'"2"', f'"{partitions}"'.encode()))
    assert path in named({**files, path: edited})


@pytest.mark.parametrize("name", [name for name in NAMES if "windowed" in name or "join" in name])
def test_a_watermark_that_was_moved_is_seen(name: str) -> None:
    files = without_checksums(golden_files(name))
    newest = cut(MemoryStorage(files)).batch_id
    path = f"commits/{newest - 1}"
    moved = files[path].replace(b'"nextBatchWatermarkMs":17', b'"nextBatchWatermarkMs":16')
    assert moved != files[path]
    assert path in named({**files, path: moved})


@pytest.mark.parametrize("name", NAMES)
def test_an_edited_path_in_a_source_log_is_seen_where_it_is_repeated(name: str) -> None:
    files = without_checksums(golden_files(name))
    edited = re.sub(rb"\d{3}\.json", b"777.json", files["sources/0/3"])
    assert edited != files["sources/0/3"]
    assert "sources/0/3" in named({**files, "sources/0/3": edited})


@pytest.mark.parametrize("name", NAMES)
def test_a_stale_log_file_over_a_newer_one_is_seen(name: str) -> None:
    files = without_checksums(golden_files(name))
    newest = cut(MemoryStorage(files)).batch_id
    stale = {**files, f"offsets/{newest}": files[f"offsets/{newest - 3}"]}
    assert any(file.startswith(("offsets/", "commits/", "sources/")) for file in named(stale))


def test_nothing_is_no_checkpoint() -> None:
    with pytest.raises(NotFound, match="no checkpoint in this directory"):
        verify(MemoryStorage())


def test_a_query_that_has_only_begun_is_whole() -> None:
    found = verify(MemoryStorage({"metadata": b'{"id":"7d7a1b9e-9dda-47b2-8f49-4073fd4a7361"}'}))
    assert (found.ok, found.batch_id, found.restorable) == (True, None, ())


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_that_is_being_written_is_no_damage(name: str) -> None:
    """Offsets without a commit, half the state files, an entry too many: the batch will run again."""
    files = golden_files(name)
    newest = cut(MemoryStorage(files)).batch_id
    version = newest + 1
    going_on = {
        path: data
        for path, data in files.items()
        if path not in (f"commits/{newest}", f"commits/.{newest}.crc")
    }
    gone = [path for path in going_on if _is_of(path, version, partition=1)]
    for path in gone:
        del going_on[path]
    found = verify(MemoryStorage(going_on))
    assert found.problems == ()
    assert found.batch_id == newest - 1


def _is_of(path: str, version: int, partition: int) -> bool:
    place = layout.parse(path)
    return isinstance(place, StoreFile) and (place.version, place.store.partition) == (version, partition)
