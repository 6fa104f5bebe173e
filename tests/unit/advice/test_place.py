"""Where a checkpoint is, by what is mounted there."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from holdfast.advice.checkpoint_checks import Lasting, local_place, place_of

MOUNTS = """\
overlay / overlay rw,relatime 0 0
/dev/sda1 /data ext4 rw 0 0
tmpfs /data/fast tmpfs rw 0 0
efs.example:/ /data/with\\040space nfs4 rw 0 0
/dev/sdb1 /mnt ext4 rw 0 0
nas:/vol /mnt cifs rw 0 0
tmpfs /tmp tmpfs rw 0 0
odd
"""


@pytest.mark.parametrize(
    ("path", "lasting"),
    [
        ("/data/ck", Lasting.DISK),
        ("/data", Lasting.DISK),
        ("/database/ck", Lasting.CONTAINER),
        ("/home/ann/ck", Lasting.CONTAINER),
        ("/data/fast/ck", Lasting.MEMORY),
        ("/data/with space/ck", Lasting.SHARED),
        ("/mnt/ck", Lasting.SHARED),
        ("/tmp/ck", Lasting.MEMORY),
        ("/var/tmp/ck", Lasting.TEMPORARY),
    ],
)
def test_the_longest_mount_point_counts_and_of_several_the_last(path: str, lasting: Lasting) -> None:
    assert local_place(PurePosixPath(path), MOUNTS).lasting is lasting


def test_without_mounts_it_is_a_disk() -> None:
    assert local_place(PurePosixPath("/data/ck"), "").lasting is Lasting.DISK
    assert local_place(PurePosixPath("/tmp/ck"), "").lasting is Lasting.TEMPORARY


@pytest.mark.parametrize("uri", ["s3a://bucket/ck", "hdfs:///ck", "gs://bucket/ck", "memory://ck"])
def test_what_is_not_on_this_machine_outlives_it(uri: str) -> None:
    assert place_of(uri).lasting is Lasting.SHARED
