from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import Corrupt
from holdfast.ownership import checkpoint_lock
from holdfast.ownership.checkpoint_lock import Owner, fence, holder, holding_process, last_owner, reserved

PROBE = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("locked")
else:
    print("free")
"""


def test_a_fence_holds_the_lock_until_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, earlier, later = tmp_path / ".x.lock", Owner("job", "h", 1, 5, "e"), Owner("job", "h", 2, 6, "e")
    assert fence(lock, earlier)
    seen: list[str] = []
    write = checkpoint_lock._write_owner

    def write_once_somebody_has_tried(descriptor: int, text: bytes) -> None:
        probe = [sys.executable, "-c", PROBE, str(lock)]
        seen.append(subprocess.run(probe, capture_output=True, text=True, check=True).stdout.strip())
        write(descriptor, text)

    monkeypatch.setattr(checkpoint_lock, "_write_owner", write_once_somebody_has_tried)
    assert fence(lock, later)
    assert seen == ["locked"]
    assert last_owner(lock) == later


def test_a_look_never_keeps_a_lock_from_who_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM tries once, and takes a refusal for that of another job."""
    lock = tmp_path / ".x.lock"
    lock.touch()
    seen: list[str] = []
    close = os.close

    def close_once_somebody_has_tried(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), lock.stat()):
            probe = [sys.executable, "-c", PROBE, str(lock)]
            seen.append(subprocess.run(probe, capture_output=True, text=True, check=True).stdout.strip())
        close(descriptor)

    monkeypatch.setattr(os, "close", close_once_somebody_has_tried)
    assert holder(lock) is None
    assert holding_process(lock) is None
    assert seen == ["free", "free"]


def test_a_look_sees_who_holds_a_lock(tmp_path: Path) -> None:
    lock = tmp_path / ".x.lock"
    owner = Owner("job", "h", 1, 5, "e")
    assert fence(lock, owner)
    assert holder(lock) is None
    holding = subprocess.Popen(
        [sys.executable, "-c", PROBE + "\nsys.stdout.flush(); sys.stdin.read()", str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holding.stdout is not None
        assert holding.stdout.readline() == b"free\n"
        assert holder(lock) == owner
        assert holding_process(lock) == holding.pid
    finally:
        holding.kill()
        holding.communicate()
    with reserved(lock, "rescale"):
        found = holder(lock)
        assert found is not None
        assert found.verb == "rescale"


def take(lock: Path) -> None:
    with reserved(lock, "restore"):
        pass


@pytest.mark.parametrize("kind", ["link", "dangling link", "FIFO"])
@pytest.mark.parametrize(
    "use",
    [take, holder, last_owner, lambda lock: fence(lock, Owner("job", "h", 1))],
    ids=["reserved", "holder", "last owner", "fence"],
)
def test_a_lock_that_is_no_file_is_refused(tmp_path: Path, kind: str, use: Callable[[Path], object]) -> None:
    lock, victim = tmp_path / ".x.holdfast.lock", tmp_path / "victim"
    if kind == "FIFO":
        os.mkfifo(lock)
    else:
        lock.symlink_to(victim)
    if kind == "link":
        victim.write_text("of the operator" * 10_000)
    with pytest.raises(Corrupt, match="the lock file of the checkpoint is not a regular file") as caught:
        use(lock)
    assert caught.value.where == str(lock)
    assert victim.exists() == (kind == "link")
    if kind == "link":
        assert victim.read_text() == "of the operator" * 10_000
