"""Which missing files of a store Spark may have deleted: cases worked out by hand from its sources."""

from __future__ import annotations

import pytest

from holdfast import layout
from holdfast.checkpoints.verification.file_checks import unexplained
from holdfast.layout import StoreFile, StoreId

STORE = StoreId(0, 0)


def files(names: str) -> list[StoreFile]:
    """The files of names such as "4-7.changelog 4.zip"."""
    found = []
    for name in names.split():
        versions, _, kind = name.partition(".")
        first, _, last = versions.partition("-")
        for version in range(int(first), int(last or first) + 1):
            file = layout.version_file(STORE, f"{version}.{kind}")
            assert file is not None
            found.append(file)
    return found


@pytest.mark.parametrize(
    ("gone", "present"),
    [
        # RocksDB: the snapshots go first, then the changelogs in any order.
        ("2.zip", "1-9.changelog 5.zip 8.zip"),
        ("2.zip 5.zip 3.changelog", "1-2.changelog 4-9.changelog 8.zip"),
        # Killed there; the files that are left go with the next run.
        ("2-4.changelog 4.zip", "1.changelog 5-12.changelog 8.zip 12.zip"),
        # A deletion that failed has left a snapshot, after its data file was deleted.
        ("3.changelog 5.zip", "1-2.changelog 4-9.changelog 2.zip 8.zip"),
        # An executor that lost the partition has uploaded a snapshot after the cleanup.
        ("1-7.changelog 3.zip", "8-9.changelog 4.zip 8.zip"),
        # Without changelogs each version is a snapshot.
        ("1-3.zip", "4-9.zip"),
        # The heap: ascending, the snapshot in place of the delta.
        ("5.snapshot 6-7.delta", "5.delta 8-12.delta 10.snapshot"),
        # A snapshot of each version leaves all of their deltas for the next run.
        ("1-4.snapshot 5.delta", "1-4.delta 6-9.delta 8.snapshot"),
    ],
)
def test_what_the_cleanup_deletes_is_explained(gone: str, present: str) -> None:
    incomplete = {"state/0/0/2.zip"}
    assert unexplained(files(gone), files(present), incomplete) == []


@pytest.mark.parametrize(
    ("gone", "present", "expected"),
    [
        # No newer base: the newest state is made of it.
        ("9.changelog", "5-8.changelog 10.changelog 8.zip", "9.changelog"),
        ("8.zip", "5-9.changelog 5.zip", "8.zip"),
        ("1.delta", "2-4.delta", "1.delta"),
        # Something older can still be loaded, which Spark would have deleted before.
        ("6.changelog", "4-5.changelog 7-9.changelog 4.zip 8.zip", "6.changelog"),
        ("5.zip", "4.zip 6-9.zip", "5.zip"),
        ("7.delta", "5-6.delta 8-12.delta 5.snapshot 10.snapshot", "7.delta"),
        ("2.delta", "1.delta 3-12.delta 10.snapshot", "2.delta"),
        # A changelog goes after the snapshot of the same version.
        ("4.changelog", "5-9.changelog 4.zip 8.zip", "4.changelog"),
        # What is newer was not deleted by Spark either; what is older may have been.
        ("3.changelog 6-7.changelog", "4-5.changelog 8-9.changelog 4.zip 8.zip", "6-7.changelog"),
        # Nothing is left.
        ("1-3.changelog 2.zip", "", "1-3.changelog 2.zip"),
    ],
)
def test_what_it_does_not_delete_is_named(gone: str, present: str, expected: str) -> None:
    assert unexplained(files(gone), files(present)) == files(expected)
