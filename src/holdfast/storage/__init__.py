"""Storage at an address: the interface and its implementations.

`open_storage` returns the storage of a path or URI. All other code uses only the interface, so it behaves the
same on a local disk, S3 and HDFS.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.checks import canonical_uri, local_path, parse_storage

if TYPE_CHECKING:
    from holdfast.storage.port import Storage

__all__ = ["open_storage"]


def open_storage(address: str | os.PathLike[str], setting: str = "checkpoint") -> Storage:
    """Return the storage of a directory, without accessing it.

    Args:
        address: A path or a URI (`file:`, `hdfs:`, `s3:`, `s3a:`, `abfs:`, `gs:` …).
        setting: The name of the argument or setting, for error messages.

    Raises:
        Invalid: The address is malformed or its scheme is unknown.
        Unsupported: The library for this storage is not installed.
    """
    uri = canonical_uri(parse_storage(address, setting), Path.cwd())
    path = local_path(uri)
    if path is not None:
        from holdfast.storage.local import LocalStorage

        return LocalStorage(path)
    from holdfast.storage.remote import RemoteStorage

    return RemoteStorage(uri)
