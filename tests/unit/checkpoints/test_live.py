"""What verify sees while files come and go."""

from __future__ import annotations

from golden import golden_files
from holdfast.checkpoints.verification.verifying import verify
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Names

NAME = "4.2/aggregate-changelog"


class Moving(MemoryStorage):
    """Loses a file after the first time that its folder was listed, as a query does that cleans up."""

    def __init__(self, files: dict[str, bytes], lost: str) -> None:
        super().__init__(files)
        self._lost = lost
        self.reads = 0

    def list(self, path: str = "") -> Names:
        found = super().list(path)
        if path == self._lost.rpartition("/")[0]:
            self.delete(self._lost)
        return found

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self.reads += path == self._lost
        return super().read(path, start, length)


def test_a_file_that_is_gone_when_it_is_read_is_no_damage() -> None:
    files = golden_files(NAME)
    oldest = min(
        (
            path
            for path in files
            if path.startswith("state/0/0/") and path.endswith(".changelog") and "/." not in path
        ),
        key=lambda path: int(path.rpartition("/")[2].split(".")[0]),
    )
    storage = Moving(files, oldest)
    assert verify(storage).ok
    assert storage.reads == 1


class Mending(MemoryStorage):
    """A file that is half replaced at the first look: the data is new, its checksum old."""

    def __init__(self, files: dict[str, bytes], path: str, old: bytes) -> None:
        super().__init__(files)
        self._path = path
        self._old = old
        self._first = True

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        if path == self._path and self._first:
            self._first = False
            return self._old
        return super().read(path, start, length)


def test_what_only_one_look_has_seen_is_no_damage() -> None:
    files = golden_files(NAME)
    path = "commits/.11.crc"
    assert verify(Mending(files, path, files["metadata"])).ok


def test_what_both_looks_have_seen_is() -> None:
    files = golden_files(NAME)
    path = "commits/.11.crc"
    found = verify(MemoryStorage({**files, path: files["metadata"]}))
    assert [problem.file for problem in found.problems] == [path]
