"""Many changes that need to last only together."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.errors import Unavailable
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage, full

# Flushing a file takes a few milliseconds; flushing all that anybody has written to a disk may take a second.
_FEW: Final = 100


@contextmanager
def in_bulk(storage: Storage) -> Iterator[Storage]:
    """Change many files, and have all of them last when the block ends well.

    Flushing after each of thousands of files takes many seconds, flushing all of them at the end a fraction
    of one. Until then a crash of the machine may take changes back, in any order: what makes them count has
    to be written after the block. Files that were linked are flushed too: who wrote them may not have done
    so. Storages that flush by themselves are used as they are.
    """
    quick = passing(storage)
    yield quick
    if isinstance(quick, _Unflushed):
        quick.flush()


def passing(storage: Storage) -> Storage:
    """The same storage, for what nobody needs after a crash of the machine, such as notes of who is at work.

    Each flush makes others wait who change files on the same disk.
    """
    here = isinstance(storage, LocalStorage)
    return _Unflushed(Path(storage.uri.removeprefix("file://"))) if here else storage


class _Unflushed(LocalStorage):
    """A directory whose changes are noted and not flushed."""

    __slots__ = ("_above", "_touched")

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._touched: set[str] = {""}
        self._above: set[str] = set()

    def copy(self, source: str, target: str, *, origin: Storage | None = None) -> None:
        """See `Storage`."""
        super().copy(source, target, origin=origin)
        self._touched.add(target)

    def write(self, path: str, data: bytes, *, replace: bool = False) -> None:
        """See `Storage`."""
        super().write(path, data, replace=replace)
        self._touched.add(path)

    def delete(self, path: str) -> None:
        """See `Storage`."""
        super().delete(path)
        self._touched.discard(path)

    def flush(self) -> None:
        """Flush what was touched; a whole file system at once where that is quicker.

        Raises:
            Unavailable: Something cannot be flushed, so what was written may be lost in a crash.
        """
        sync: Any = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        at_once = sync is not None and len(self._touched) > _FEW
        path = ""
        try:
            for folder in self._above:
                with suppress(FileNotFoundError):
                    super()._flush_above(folder)
            for path in ("",) if at_once else self._touched:
                with suppress(FileNotFoundError):
                    self._flush_one(path, sync if at_once else os.fsync)
        except OSError as error:
            raise Unavailable(
                "what was written may be lost in a crash of the machine",
                where=full(self.uri, path),
                found=f"it cannot be flushed: {error.strerror}",
                hint="check the disk, then try again",
            ) from error

    def _flush_one(self, path: str, flush: Callable[..., Any]) -> None:
        descriptor = self._open(path)
        try:
            if flush(descriptor):
                raise OSError(number := ctypes.get_errno(), os.strerror(number))
        finally:
            os.close(descriptor)

    def _flush_file(self, file: BinaryIO) -> None:
        file.flush()

    def _flush_folder(self, folder: str) -> None:
        self._touched.add(folder)

    def _flush_above(self, folder: str) -> None:
        self._above.add(folder)
