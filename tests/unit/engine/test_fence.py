from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.engine.state import ownership
from holdfast.engine.state.ownership import Owner, fence, last_owner

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
    write = ownership._write_owner

    def write_once_somebody_has_tried(descriptor: int, text: bytes) -> None:
        probe = [sys.executable, "-c", PROBE, str(lock)]
        seen.append(subprocess.run(probe, capture_output=True, text=True, check=True).stdout.strip())
        write(descriptor, text)

    monkeypatch.setattr(ownership, "_write_owner", write_once_somebody_has_tried)
    assert fence(lock, later)
    assert seen == ["locked"]
    assert last_owner(lock) == later
