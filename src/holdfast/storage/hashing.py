"""Hashes of bytes and of files."""

from __future__ import annotations

import hashlib
from typing import Final

from holdfast.storage.port import Storage

_CHUNK: Final = 8 << 20


def hash_of(data: bytes) -> str:
    """The SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def hash_file(storage: Storage, path: str, size_bytes: int) -> tuple[str, int]:
    """The SHA-256 of a file and its size, read in portions.

    Raises:
        NotFound: There is no such file.
        Unavailable: It cannot be read.
    """
    if size_bytes <= _CHUNK:
        data = storage.read(path)
        return hash_of(data), len(data)
    digest = hashlib.sha256()
    size = 0
    while True:
        data = storage.read(path, size, _CHUNK)
        digest.update(data)
        size += len(data)
        if len(data) < _CHUNK:
            return digest.hexdigest(), size
