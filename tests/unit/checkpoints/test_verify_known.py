"""Files whose bytes are known are read only for what others are compared with."""

from __future__ import annotations

import pytest

from golden import NAMES, golden_files, without_checksums
from holdfast.checkpoints.verification.verifying import verify
from holdfast.storage.memory import MemoryStorage


class Noting(MemoryStorage):
    """Notes what is read as a whole."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.seen: set[str] = set()

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if length is None:
            self.seen.add(path)
        return super().read(path, start, length)


@pytest.mark.parametrize("name", NAMES)
def test_known_state_is_not_read_again(name: str) -> None:
    storage = Noting(golden_files(name))
    assert verify(storage, known=frozenset(golden_files(name))).problems == ()
    assert not [path for path in storage.seen if path.endswith((".delta", ".snapshot", ".sst", ".crc"))]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_lost_is_found_though_all_is_known(name: str) -> None:
    files = golden_files(name)
    newest = max(int(path[8:]) for path in files if path.startswith("commits/") and path[8:].isdigit())
    lost = [
        path for path in files if path.rpartition("/")[2].startswith((f"{newest + 1}.", f"{newest + 1}_"))
    ]
    assert lost
    left = {path: data for path, data in files.items() if path not in lost}
    assert {problem.file for problem in verify(MemoryStorage(left), known=frozenset(left)).problems} & set(
        lost
    )


@pytest.mark.parametrize("name", [name for name in NAMES if "changelog" in name or "memory" in name])
def test_where_no_checksum_vouches_changes_are_unpacked_anyway(name: str) -> None:
    files = without_checksums(golden_files(name))
    path = max(path for path in files if path.endswith((".changelog", ".delta")))
    cut = {**files, path: files[path][:-9]}
    assert [problem.file for problem in verify(MemoryStorage(cut), unpack=False).problems] == [path]
