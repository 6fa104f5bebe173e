"""Find checkpoints at addresses: a checkpoint, a directory of checkpoints, or a pattern of either."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.config.checks import canonical_uri, local_path, parse_storage
from holdfast.errors import HoldfastError, Invalid
from holdfast.storage import open_storage
from holdfast.storage.port import Listing, Names, Storage
from holdfast.storage.successors import first_address

# The number of levels below an address that are searched: `checkpoints/JOB/QUERY` of a job with two queries.
LEVELS: Final = 2
# The number of entries of one directory that are examined; a table's data directory may have millions.
MOST_ENTRIES: Final = 2000
_PATTERN: Final = re.compile(r"[*?\[]")
# Directories that are no checkpoint: hidden ones, partitions of tables, and those of Spark's own.
_DATA: Final = re.compile(r"\..*|.*=.*|_temporary|_delta_log|_spark_metadata|.*\.savepoints")
# A listing in a bucket takes tens of milliseconds, most of them waiting.
_AT_ONCE: Final = 16


class CheckpointAddress:
    """An address of checkpoints.

    It is a checkpoint, or a directory with checkpoints in it or one level further below. `*`, `?` and `[…]`
    in a path's segment match any segment: `s3://bucket/*/checkpoints`.

    Args:
        address: A path or a URI.
        base: The directory that relative paths start from; by default the current one.

    Raises:
        Invalid: The address is not valid, or a pattern is in the name of a bucket or a host.
        Unsupported: The library for this storage is not installed.
    """

    def __init__(self, address: str | os.PathLike[str], base: Path | None = None) -> None:
        self.uri = canonical_uri(parse_storage(address, "CHECKPOINT|DIR"), base or Path.cwd())
        scheme, _, rest = self.uri.partition("://")
        authority, _, path = rest.partition("/")
        if _PATTERN.search(authority):
            raise Invalid(
                "a pattern is not possible in the name of a bucket or a host",
                code="HF-E2534",
                where="CHECKPOINT|DIR",
                found=self.uri,
                expected="patterns in the path, such as s3://bucket/*/checkpoints",
                hint="give one address for each bucket",
            )
        segments = path.split("/") if path else []
        fixed = next((at for at, part in enumerate(segments) if _PATTERN.search(part)), len(segments))
        self._patterns = segments[fixed:]
        self._root = f"{scheme}://{authority}/{'/'.join(segments[:fixed])}"

    def find(self) -> tuple[str, ...]:
        """Return the URIs of the checkpoints at this address, in order. No file is read.

        A checkpoint that was replaced has one URI, its first address, from which readers find its successor.

        Cost: lists the directory, and each entry of it and of its subdirectories that may be a directory.

        Raises:
            Unavailable: The storage does not answer.
        """
        root = open_storage(self._root, "CHECKPOINT|DIR")
        with ThreadPoolExecutor(1 if local_path(self.uri) else _AT_ONCE, "holdfast-find") as pool:
            paths = [""]
            for pattern in self._patterns:
                listings = pool.map(root.list, paths)
                paths = [
                    layout.join(path, name)
                    for path, listing in zip(paths, listings, strict=True)
                    for name in sorted(listing.names)[:MOST_ENTRIES]
                    if fnmatchcase(name, pattern) and (name[0] != "." or pattern[0] == ".")
                ]
            found: list[str] = []
            for level in range(LEVELS + 1):
                below: list[str] = []
                for path, listing in zip(paths, pool.map(partial(_listing, root), paths), strict=True):
                    if is_checkpoint(listing.names):
                        found.append(path)
                    elif level < LEVELS:
                        below += [layout.join(path, name) for name in _directories(listing)]
                paths = below
        addresses = (f"{root.uri.rstrip('/')}/{path}" if path else root.uri for path in found)
        return tuple(sorted({first_address(address) for address in addresses}))


def is_checkpoint(names: Sequence[str]) -> bool:
    """Return whether a directory with these names is a checkpoint that a query has started on."""
    return layout.METADATA in names and (layout.OFFSETS in names or layout.COMMITS in names)


def _directories(listing: Listing) -> list[str]:
    """Return the directories of a listing that may be checkpoints or contain some."""
    names = sorted(name for name in listing.names if not _DATA.fullmatch(name))[:MOST_ENTRIES]
    return [name for name in names if listing.size(name) is None]


def _listing(root: Storage, path: str) -> Listing:
    """List a directory; a directory below the address that this user may not list is empty."""
    try:
        listing = root.list(path)
        _ = listing.names
    except HoldfastError:
        if not path:
            raise
        return Names({})
    return listing
