"""Without a record verify and take find files whose keys are of another partition; nothing else is one."""

from __future__ import annotations

import pytest
from damages import Files, faults
from grid import WHOLE

from golden import GATHERED, NAMES, OTHERS, REPARTITIONED, STATELESS, golden_files, without_checksums
from holdfast.checkpoints.state.contents import StateContent, contents
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.files.compression import compressed, decompressed
from holdfast.formats.files.records import records_of, render_records
from holdfast.layout import FileKind
from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.taking import take
from holdfast.savepoints.view import SavepointView
from holdfast.storage.memory import MemoryStorage

EVERY = sorted({*NAMES, *OTHERS, REPARTITIONED, *GATHERED, STATELESS})
URI = "memory://checkpoint"
# Of one store after the other; format 2 finds most of these by the lineage too.
SOME = ("4.2/aggregate-memory", "4.2/aggregate-changelog", "4.2/join-memory", "4.2/session-rocksdb")


@pytest.mark.parametrize("name", EVERY)
def test_no_key_of_a_whole_checkpoint_is_in_the_wrong_partition(name: str) -> None:
    """The sample of verify, the sample of take, and every single key."""
    files = golden_files(name)
    for unpack in (True, False):
        assert verify(MemoryStorage(files, URI), unpack=unpack).problems == ()
    try:
        rows = contents(MemoryStorage(files, URI), check_partitions=True)
    except Unsupported:
        return
    assert rows == contents(MemoryStorage(files, URI))


def exchanged(files: Files) -> list[tuple[str, Files, frozenset[str]]]:
    """Files of state in the place of another partition's, with their checksums."""
    words = ("another partition", "in the place of 1", "over 0", "exchanged")
    return [
        (fault.name, fault.files, fault.touched)
        for fault in faults(files)
        if any(each in fault.name for each in words)
        and "two newest" not in fault.name
        and "store" not in fault.name
        and "offsets" not in fault.name
    ]


@pytest.mark.parametrize("name", NAMES if WHOLE else SOME)
def test_files_of_another_partition_are_found_without_a_record(name: str) -> None:
    files = golden_files(name)
    cases = exchanged(files)
    assert cases
    for bare in (False, True):
        for what, changed, touched in cases:
            given = without_checksums(changed) if bare else changed
            found = verify(MemoryStorage(given, URI))
            named = {problem.file for problem in found.problems}
            assert named, (what, bare)
            wrong = {problem.file for problem in found.problems if "sampled keys" in problem.what}
            assert wrong <= touched, what
            taken = _taken(given)
            assert (taken is not None) == (found.batch_id in found.restorable), (what, bare)
            # An exchanged snapshot has lost its data files: an older one and the changes since do as well.
            assert taken in (None, contents(MemoryStorage(files, URI))), (what, bare)


def _taken(files: Files) -> tuple[StateContent, ...] | None:
    """The states of a savepoint of the newest batch; None where none is taken."""
    checkpoint, catalog = MemoryStorage(files, URI), MemoryStorage(uri="memory://catalog")
    try:
        manifest = take(checkpoint, catalog, plan_take(checkpoint, catalog)).manifest
    except Corrupt:
        return None
    return contents(SavepointView(catalog, manifest.files, URI))


def test_the_batches_before_an_exchanged_file_can_still_be_taken() -> None:
    files = golden_files("4.2/aggregate-memory")
    [(_, changed, touched)] = [
        case for case in exchanged(files) if "0/0/default: 12.delta copied from another" in case[0]
    ]
    found = verify(MemoryStorage(changed, URI))
    assert [problem.file for problem in found.problems] == sorted(touched)
    assert found.restorable == (6, 7, 8, 9, 10)


def test_a_file_whose_keys_belong_to_several_partitions_is_found() -> None:
    """As one of a different checkpoint has: both looks of verify compare it with the files that are right."""
    files = without_checksums(golden_files("4.2/aggregate-memory"))
    ours, theirs = files["state/0/0/10.snapshot"], files["state/0/1/10.snapshot"]
    records = [
        record
        for data in (ours, theirs)
        for record in records_of(FileKind.SNAPSHOT, decompressed(data, "lz4", "here"), "here")
    ]
    mixed = compressed(render_records(records), "lz4")
    found = verify(MemoryStorage({**files, "state/0/0/10.snapshot": mixed}, URI))
    assert [problem.file for problem in found.problems] == ["state/0/0/10.snapshot"]
    assert "sampled keys belong to partition 1" in found.problems[0].what
