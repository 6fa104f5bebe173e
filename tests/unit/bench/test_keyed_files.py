from __future__ import annotations

import os
from pathlib import Path

from holdfast_bench.keyed.keyed_files import Written, oldest_snapshot, written

ID = "0a0caf3a-43fb-46c0-9cc6-349c6149678f"


def put(path: Path, size: int, at: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))


def test_changelogs_count_by_version_and_snapshots_by_time(tmp_path: Path) -> None:
    store = tmp_path / "0" / "0"
    put(store / f"3_{ID}.changelog", 1, 90)  # a version of the warm-up
    put(store / f"4_{ID}.changelog", 10, 100)
    put(store / f".4_{ID}.changelog.crc", 20, 100)
    put(store / f".4_{ID}.changelog.crc.crc", 30, 100)
    put(store / "5.changelog", 100, 110)
    put(store / f"6_{ID}.changelog", 5, 120)  # after the last counted batch
    put(store / f"2_{ID}.zip", 7, 90)  # before the first
    put(store / f"5_{ID}.zip", 1000, 115)
    put(store / "SSTs" / f"000008-{ID}.sst", 2000, 115)
    put(store / "SSTs" / f"000007-{ID}.sst", 9, 90)
    assert written(tmp_path, {4, 5}, since=100) == Written(changelog=160, snapshot=3000, snapshots=1)


def test_every_store_has_a_snapshot_up_to_the_oldest_ones_newest(tmp_path: Path) -> None:
    for partition, versions in (("0", (2, 12)), ("1", (2, 9))):
        for version in versions:
            put(tmp_path / "0" / partition / f"{version}_{ID}.zip", 1, 1)
        put(tmp_path / "0" / partition / f"13_{ID}.changelog", 1, 1)
    assert oldest_snapshot(tmp_path) == 9


def test_a_store_without_a_snapshot_counts_as_0(tmp_path: Path) -> None:
    put(tmp_path / "0" / "0" / "12.zip", 1, 1)
    put(tmp_path / "0" / "1" / "3.changelog", 1, 1)
    assert oldest_snapshot(tmp_path) == 0
    assert oldest_snapshot(tmp_path / "none") == 0
