"""Bytes at an address: one port, and what follows it.

`open_storage` gives the storage of a path or URI. Everything above works on the port alone, so what holds
on a local disk holds on S3 and HDFS.
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
    """The storage of a directory; nothing is looked at yet.

    Args:
        address: A path or a URI (`file:`, `hdfs:`, `s3:`, `s3a:`, `abfs:`, `gs:` …).
        setting: What the address is for, in the words of the person who gave it.

    Raises:
        Invalid: It is not an address.
        Unsupported: The library for this kind of storage is not installed.
    """
    uri = canonical_uri(parse_storage(address, setting), Path.cwd())
    path = local_path(uri)
    if path is not None:
        from holdfast.storage.local import LocalStorage

        return LocalStorage(path)
    from holdfast.storage.remote import RemoteStorage

    return RemoteStorage(uri)
