"""Hashes of bytes and of files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from holdfast.storage.local import file_of
from holdfast.storage.port import Storage

# Fewer, larger requests are faster, but each needs memory for its complete chunk.
_REQUESTED: Final = 8 << 20
_FROM_DISK: Final = 1 << 18


def hash_of(data: bytes) -> str:
    """Return the SHA-256 of bytes as hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def hash_file(
    storage: Storage, path: str, size_bytes: int, see: Callable[[bytes], None] | None = None
) -> tuple[str, int]:
    """Return the SHA-256 and the size of a file, which is read in chunks.

    Args:
        storage: The storage with the file.
        path: The path of the file.
        size_bytes: The expected size.
        see: Called with each chunk, or None.

    Raises:
        NotFound: The file does not exist.
        Unavailable: The file cannot be read at the moment.
    """
    portion = _REQUESTED if file_of(storage, path) is None else _FROM_DISK
    whole = size_bytes <= portion
    digest = hashlib.sha256()
    size = 0
    while True:
        data = storage.read(path) if whole else storage.read(path, size, portion)
        digest.update(data)
        size += len(data)
        if see is not None:
            see(data)
        if whole or len(data) < portion:
            return digest.hexdigest(), size
