"""The integrity record: what is noted when, what is not, and what a crash may do to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from catalogs import file_query

from golden import golden_files, without_checksums
from holdfast.checkpoints.copy import cut
from holdfast.checkpoints.record import (
    Noting,
    Record,
    Recorder,
    RecordFile,
    find_record,
    identity_of,
    record_path,
)
from holdfast.checkpoints.verification.file_checks import Verification
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Corrupt
from holdfast.storage.memory import MemoryStorage
from holdfast.testing.failing_storage import FaultyStorage

URI = "memory://checkpoint"
MEMORY = without_checksums(golden_files("4.2/aggregate-memory"))  # batches 5 to 11, format 1
ROCKSDB = without_checksums(golden_files("4.2/aggregate-rocksdb"))
NEWEST = 11


@pytest.fixture
def file(tmp_path: Path) -> RecordFile:
    return RecordFile(tmp_path / "records" / "one.jsonl")


def look(files: dict[str, bytes], file: RecordFile, *, ended: bool = False) -> Noting:
    return Recorder(MemoryStorage(files, URI), file).look(ended=ended)


def checked(files: dict[str, bytes], file: RecordFile) -> Verification:
    return verify(MemoryStorage(files, URI), record=file.read())


def named(files: dict[str, bytes], file: RecordFile) -> list[str]:
    return [problem.file for problem in checked(files, file).problems]


def without(files: dict[str, bytes], *paths: str) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if path not in paths}


def test_only_new_files_are_read(file: RecordFile) -> None:
    storage = MemoryStorage(without(MEMORY, "commits/11", "state/0/0/12.delta", "state/0/1/12.delta"), URI)
    recorder = Recorder(storage, file)
    first = recorder.look()
    assert (first.batch_id, first.behind) == (10, False)
    assert recorder.look() == Noting(10)
    for path in ("state/0/0/12.delta", "state/0/1/12.delta", "commits/11"):
        storage.write(path, MEMORY[path])
    second = recorder.look()
    # The offsets of batch 11 were noted as a plan, and are looked at again when they are done.
    assert (second.batch_id, second.batches, second.files) == (11, 1, 4)
    assert named(MEMORY, file) == []


def test_what_is_not_committed_is_not_noted(file: RecordFile) -> None:
    planned = without(MEMORY, "commits/11")
    look(planned, file)
    again = {
        **planned,
        "state/0/0/12.delta": b"a task that ran twice",
        "sources/0/11": MEMORY["sources/0/10"],
    }
    record = file.read()
    assert record is not None
    assert not {"state/0/0/12.delta", "sources/0/11", "commits/11"} & record.files.keys()
    assert record.batch_id == 10
    assert "offsets/11" in record.files
    assert not [path for path in named(again, file) if path.startswith("state/")]


def test_what_was_noted_stands(file: RecordFile) -> None:
    look(MEMORY, file)
    stale = {**MEMORY, "state/0/0/12.delta": MEMORY["state/0/0/11.delta"]}
    assert look(stale, file) == Noting(NEWEST)
    [problem] = checked(stale, file).problems
    assert problem.file == "state/0/0/12.delta"
    assert "the content of state/0/0/11.delta" in problem.what
    assert NEWEST not in checked(stale, file).restorable


def test_a_batch_whose_commit_was_taken_away_is_told_and_may_run_again(file: RecordFile) -> None:
    look(MEMORY, file)
    back = without(MEMORY, "commits/11")
    [problem] = checked(back, file).problems
    assert problem.file == "commits/11"
    assert look(back, file).behind
    assert named(back, file) == ["commits/11"]
    # It has run again, and its rows came in another order.
    other = {**MEMORY, "state/0/0/12.delta": MEMORY["state/0/0/11.delta"]}
    noted = look(other, file)
    assert (noted.batch_id, noted.behind) == (NEWEST, False)
    assert named(other, file) == []
    assert named(MEMORY, file) == ["state/0/0/12.delta"]


def test_a_run_that_begins_with_a_noted_batch_is_noted_anew(file: RecordFile) -> None:
    storage = MemoryStorage(MEMORY, URI)
    recorder = Recorder(storage, file)
    recorder.look()
    storage.write("state/0/0/12.delta", MEMORY["state/0/0/11.delta"], replace=True)
    recorder.ran_from(12)  # the next one: nothing is past
    recorder.look()
    assert named(storage.files, file) == ["state/0/0/12.delta"]
    recorder.ran_from(11)
    assert recorder.look().files == 4  # both changes, the offsets, the commit
    assert named(storage.files, file) == []


def test_more_batches_than_were_noted_are_a_remark(file: RecordFile) -> None:
    look(without(MEMORY, "commits/11"), file)
    found = checked(MEMORY, file)
    assert (found.problems, found.recorded_batch, found.batch_id) == ((), 10, 11)
    assert any("ends at batch 10" in remark.what for remark in found.remarks)


@pytest.mark.parametrize("ended", [False, True])
def test_a_base_that_came_from_nowhere(file: RecordFile, ended: bool) -> None:
    """While the query runs it may have come since the last look; once it had ended it cannot."""
    look(MEMORY, file, ended=ended)
    foreign = {**MEMORY, "state/0/0/12.snapshot": MEMORY["state/0/0/10.snapshot"]}
    found = checked(foreign, file)
    if ended:
        assert [problem.file for problem in found.problems] == ["state/0/0/12.snapshot"]
        # Spark loads a version from its snapshot where there is one: it would get the state of batch 9.
        assert NEWEST not in found.restorable
    else:
        assert found.problems == ()
        assert any("state/0/0/12.snapshot" in remark.what for remark in found.remarks)
    # A new run voids that: its clean-up may write snapshots before it plans anything.
    planned = {**foreign, "offsets/12": MEMORY["offsets/11"], "sources/0/12": MEMORY["sources/0/11"]}
    assert "state/0/0/12.snapshot" not in named(planned, file)


def test_a_data_file_that_is_half_uploaded_is_not_noted(file: RecordFile) -> None:
    data = sorted(path for path in ROCKSDB if path.endswith(".sst"))
    half = {**ROCKSDB, data[-1]: ROCKSDB[data[-1]][:100]}
    look(half, file)
    record = file.read()
    assert record is not None
    assert data[-1] not in record.files
    assert data[0] in record.files


def test_a_flipped_bit_in_a_data_file_is_found_where_no_checksum_is_beside_it(file: RecordFile) -> None:
    look(ROCKSDB, file)
    needed = [each.path for each in cut(MemoryStorage(ROCKSDB)).files if each.path.endswith(".sst")]
    assert needed
    for path in needed:
        middle = len(ROCKSDB[path]) // 2
        flipped = ROCKSDB[path][:middle] + bytes([ROCKSDB[path][middle] ^ 1]) + ROCKSDB[path][middle + 1 :]
        bare = verify(MemoryStorage({**ROCKSDB, path: flipped}, URI))
        assert [problem.file for problem in bare.problems] == [path]
        assert named({**ROCKSDB, path: flipped}, file) == [path]


def test_the_id_of_another_query_is_damage_and_another_query_is_not(file: RecordFile) -> None:
    look(MEMORY, file)
    other = b'{"id":"11111111-2222-4333-8444-555555555555"}'
    record = file.read()
    assert record is not None
    exchanged = MemoryStorage({**MEMORY, "metadata": other}, URI)
    assert record.belongs_to(identity_of(exchanged), exchanged)
    assert named(exchanged.files, file) == ["metadata"]
    lost = MemoryStorage(without(MEMORY, "metadata"), URI)
    assert record.belongs_to(identity_of(lost), lost)
    anew = MemoryStorage(file_query(3, "11111111-2222-4333-8444-555555555555"), URI)
    assert not record.belongs_to(identity_of(anew), anew)
    assert Recorder(anew, file).look().batch_id == 2
    assert named(anew.files, file) == []


def test_a_restore_to_the_same_place_is_another_life(file: RecordFile) -> None:
    look(MEMORY, file)
    older = {path: data for path, data in MEMORY.items() if path not in ("commits/11", "offsets/11")}
    restored = MemoryStorage({**older, "_holdfast/origin.json": b'{"savepoint":"s"}'}, URI)
    recorder = Recorder(restored, file)
    assert not recorder.begin()
    noted = recorder.look()
    assert (noted.batch_id, noted.behind) == (10, False)


def test_a_torn_last_line_is_passed_over_and_written_over(file: RecordFile) -> None:
    look(without(MEMORY, "commits/11"), file)
    whole = file.path.read_bytes()
    look(MEMORY, file)
    longer = file.path.read_bytes()
    assert longer.startswith(whole)
    for end in range(len(whole), len(longer)):
        file.path.write_bytes(longer[:end])
        record = RecordFile(file.path).read()
        assert record is not None
        assert record.batch_id == 10
    look(MEMORY, RecordFile(file.path))
    record = RecordFile(file.path).read()
    assert record is not None
    assert record.batch_id == 11
    assert named(MEMORY, file) == []


def test_a_damaged_record_is_not_relied_on(tmp_path: Path) -> None:
    storage = MemoryStorage(MEMORY, URI)
    file = RecordFile(record_path(tmp_path, URI))
    look(MEMORY, file)
    look(MEMORY, file, ended=True)
    data = bytearray(file.path.read_bytes())
    data[len(data) // 2] ^= 1
    file.path.write_bytes(bytes(data))
    with pytest.raises(Corrupt, match="integrity record is damaged"):
        file.read()
    record, why = find_record(tmp_path, storage)
    assert record is None
    assert "damaged" in why
    assert Recorder(storage, file).look().files > 0
    assert find_record(tmp_path, storage)[0] is not None


@pytest.mark.slow
def test_it_grows_no_larger_than_what_is_kept(file: RecordFile) -> None:
    every = {path: data for path, data in file_query(1500).items() if not path.startswith("sources/")}
    storage = MemoryStorage({"metadata": every["metadata"]}, URI)
    recorder = Recorder(storage, file)
    sizes = []
    for batch in range(1500):
        for log in ("offsets", "commits"):
            storage.write(f"{log}/{batch}", every[f"{log}/{batch}"])
            storage.delete(f"{log}/{batch - 3}")
        recorder.look()
        sizes.append(file.path.stat().st_size)
        if batch % 37 == 0:
            recorder = Recorder(storage, RecordFile(file.path))
    assert max(sizes[750:]) <= 1.1 * max(sizes[:750])
    record = file.read()
    assert record is not None
    assert record.batch_id == 1499
    assert verify(storage, record=record).compared == 7


def test_the_checkpoint_is_only_read(file: RecordFile) -> None:
    counting = FaultyStorage(MemoryStorage(MEMORY, URI))
    Recorder(counting, file).look(ended=True)
    assert counting.steps == 0


def test_one_writes_at_a_time(file: RecordFile) -> None:
    other = RecordFile(file.path)
    assert file.lock()
    assert not other.lock()
    file.unlock()
    assert other.lock()
    other.unlock()


def test_before_the_first_commit_nothing_is_written(file: RecordFile) -> None:
    assert look({"metadata": MEMORY["metadata"], "offsets/0": MEMORY["offsets/5"]}, file) == Noting(None)
    assert not file.path.exists()


def test_a_record_is_read_back_as_it_was(file: RecordFile) -> None:
    look(MEMORY, file, ended=True)
    record = file.read()
    assert isinstance(record, Record)
    file.rewrite(record)
    assert file.read() == record
    assert record.sealed
