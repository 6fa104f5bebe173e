"""With a record of good batches verify finds what leaves every file readable. Seeded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from damages import DAMAGES, Files, faults, hidden
from grid import WHOLE, one_in

from golden import NAMES, golden_files, without_checksums
from holdfast import layout
from holdfast.checkpoints.copy import How, cut
from holdfast.checkpoints.record import Record, Recorder, RecordFile
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Unsupported
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Names

URI = "memory://checkpoint"


def recorded(files: Files, folder: Path) -> Record:
    """The record of a query that has ended as it is."""
    file = RecordFile(folder / "record.jsonl")
    recorder = Recorder(MemoryStorage(files, URI), file)
    recorder.look(ended=True)
    found = file.read()
    assert found is not None
    return found


@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_whatever_was_exchanged_or_edited_is_found_and_named(name: str, tmp_path: Path) -> None:
    files = golden_files(name)
    record = recorded(files, tmp_path)
    every = list(faults(files))
    assert len(every) >= 30
    # A join has four stores in each partition, which are all alike to this.
    count = len(every) if WHOLE else min(len(every), 16)
    for each in random.Random(name).sample(every, count):
        found = verify(MemoryStorage(each.files, URI), record=record)
        named = {problem.file for problem in found.problems}
        assert any(file in each.touched or _folder_of(file, each.touched) for file in named), (
            each.name,
            named,
        )
        assert all(problem.hint for problem in found.problems)


def _folder_of(file: str, touched: frozenset[str]) -> bool:
    return any(path.startswith(f"{file}/") for path in touched)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_every_damaged_byte_of_a_recorded_file_is_found(name: str, damage: str, tmp_path: Path) -> None:
    """Also where no checksum is beside it, and in the data files of RocksDB."""
    files = without_checksums(golden_files(name))
    record = recorded(files, tmp_path)
    rng = random.Random(f"{name} {damage}")
    needed = [file.path for file in cut(MemoryStorage(files)).files if file.how is not How.SOURCE_LOG]
    own = [path for path in needed if not path.startswith(f"{layout.OWN}/")]
    for path in rng.sample(own, min(2, len(own))):
        changed = DAMAGES[damage](files[path], rng)
        if changed != files[path]:
            found = verify(MemoryStorage({**files, path: changed}, URI), record=record)
            assert path in [problem.file for problem in found.problems], (path, damage)


def test_without_a_record_much_of_it_cannot_be_seen() -> None:
    files = golden_files("4.2/aggregate-memory")
    unseen = [each.name for each in faults(files) if _whole(each.files)]
    for words in ("the two newest changes exchanged", "a stale change", "a path in"):
        assert [name for name in unseen if words in name], words


def _whole(files: Files) -> bool:
    try:
        return verify(MemoryStorage(files, URI)).ok
    except Unsupported:
        return False


@pytest.mark.parametrize("bare", [False, True], ids=["checksums", "bare"])
@pytest.mark.parametrize("name", one_in(3, NAMES))
def test_a_query_that_goes_on_gives_no_false_alarm(name: str, bare: bool, tmp_path: Path) -> None:
    """The checkpoint as it was after each batch that is kept: noted, verified, and gone on."""
    whole = without_checksums(golden_files(name)) if bare else golden_files(name)
    file = RecordFile(tmp_path / "record.jsonl")
    recorder: Recorder | None = None
    batches = sorted(int(path[8:]) for path in whole if path.startswith("commits/") and path[8:].isdigit())
    # Of the oldest one the query has cleaned up what came before it.
    for batch_id in batches[1:]:
        storage = MemoryStorage(_as_of(whole, batch_id), URI)
        recorder = Recorder(storage, file)  # as after a restart of whoever records
        noted = recorder.look()
        assert noted.batch_id == batch_id
        record = file.read()
        assert record is not None
        for late in (False, True):
            # The next batch is planned, or half written.
            there = {**_as_of(whole, batch_id), **(_planned(whole, batch_id + 1) if late else {})}
            found = verify(MemoryStorage(there, URI), record=record)
            assert found.problems == ()
            assert found.recorded_batch == batch_id
            assert found.compared == len([path for path in record.files if path in there])
    assert len(batches) >= 7  # so there are over two hundred copies in all


def _as_of(files: Files, batch_id: int) -> Files:
    return {path: data for path, data in files.items() if _batch_of(path) <= batch_id}


def _planned(files: Files, batch_id: int) -> Files:
    return {
        path: data
        for path, data in files.items()
        if _batch_of(path) == batch_id and not path.startswith("commits/")
    }


def _batch_of(path: str) -> int:
    place = layout.parse(path)
    while isinstance(place, (layout.SparkChecksumFile, layout.HadoopChecksumFile)):
        place = layout.parse(place.of)
    if isinstance(place, layout.StoreFile):
        return place.version - 1
    if isinstance(place, (layout.LogFile, layout.SchemaFile, layout.OperatorMetadataFile)):
        return place.batch_id or 0
    # In these checkpoints a source has one entry for each batch, as far as they have read.
    return place.entry if isinstance(place, layout.SourceLogFile) else 0


def test_what_is_hidden_is_not_in_a_record(tmp_path: Path) -> None:
    files = golden_files(NAMES[0])
    record = recorded(files, tmp_path)
    assert not [path for path in record.files if hidden(path)]
    assert "metadata" in record.files


def test_what_sparks_memory_provider_has_cleaned_up_is_not_missed(tmp_path: Path) -> None:
    """It knows one file of each version, the snapshot first: the changes stay until it cleans up again."""
    files = golden_files("4.2/aggregate-memory")
    record = recorded(files, tmp_path)
    cleaned = {"5.snapshot", "6.delta", "7.delta", "8.delta", "9.delta"}
    left = {
        path: data
        for path, data in files.items()
        if path.rpartition("/")[2].strip(".").removesuffix(".crc") not in cleaned
    }
    assert {"state/0/0/5.delta", "state/0/0/10.snapshot"} <= set(left)
    assert verify(MemoryStorage(left, URI), record=record).problems == ()
    taken = without_checksums({path: data for path, data in files.items() if path != "state/0/0/7.delta"})
    [problem] = verify(MemoryStorage(taken, URI), record=record).problems
    assert (problem.file, "the file is missing" in problem.what) == ("state/0/0/7.delta", True)


class CleanedUp(MemoryStorage):
    """A checkpoint whose query deletes one more file each time that a store has been listed."""

    def __init__(self, files: Files, store: str, due: list[str]) -> None:
        super().__init__(files, URI)
        self._store = store
        self._due = due

    def list(self, path: str = "") -> Names:
        listing = super().list(path)
        if path == self._store and self._due:
            name = self._due.pop(0)
            for file in (name, f".{name}.crc"):
                self.delete(f"{path}/{file}")
        return listing


# What RocksDB's provider has deleted in a former turn, and what it deletes in this one, snapshots first.
FORMER = [f"{version}.changelog" for version in range(1, 4)]
DUE = ["4.zip", "8.zip", *(f"{version}.changelog" for version in range(4, 12))]


@pytest.mark.parametrize("begun", range(len(DUE) + 1))
def test_what_rocksdbs_provider_deletes_during_a_verification_is_not_missed(
    begun: int, tmp_path: Path
) -> None:
    """Wherever in its turn it is when a store is listed, on a storage that is as slow as verify itself."""
    store = "state/0/0"
    whole = golden_files("4.2/aggregate-changelog")
    third = {
        f"{store}/{name.replace('8', '12')}": whole[f"{store}/{name}"] for name in ("8.zip", ".8.zip.crc")
    }
    files = {**whole, **third}
    record = recorded(files, tmp_path)
    gone = {f"{store}/{file}" for name in (*FORMER, *DUE[:begun]) for file in (name, f".{name}.crc")}
    left = {path: data for path, data in files.items() if path not in gone}
    assert verify(CleanedUp(left, store, DUE[begun:]), record=record).problems == ()
