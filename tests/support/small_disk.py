"""A disk with little room, which only root can mount."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, limit: str) -> Iterator[Path]:
    """Mount a disk at a directory while this lasts; the test is skipped where that cannot be done.

    Args:
        place: The directory, which may be there.
        limit: How much room it has, as `tmpfs` takes it: `size=8m`.
    """
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small disk")
    place.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", limit, "holdfast-test", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that there is; the file that has it."""
    rest = disk / "rest"
    with rest.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return rest
