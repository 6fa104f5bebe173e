"""Find checkpoints at addresses: a checkpoint, a directory, the storage of a pipeline, or a pattern of these.

`spark-pipelines` keeps one checkpoint for each flow and each full refresh, below the pipeline's storage, in
`_checkpoints/CATALOG/SCHEMA/TABLE/FLOW/VERSION`; some Sparks leave out catalog and schema. It continues with
the highest version. A full refresh starts the next one and empties the table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.checkpoints.logs import numbers
from holdfast.config.checks import canonical_uri, local_path, parse_storage
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.formats.text import foreign_json
from holdfast.json_shapes import JsonShape, json_as
from holdfast.storage import open_storage
from holdfast.storage.port import Listing, Names, Storage, full
from holdfast.storage.successors import first_address

# The number of levels below an address that are searched: `checkpoints/JOB/QUERY` of a job with two queries.
LEVELS: Final = 2
# The number of entries of one directory that are examined; a table's data directory may have millions.
MOST_ENTRIES: Final = 2000
_PATTERN: Final = re.compile(r"[*?\[]")
# Directories that are no checkpoint: hidden ones, partitions of tables, and those of Spark's own.
_DATA: Final = re.compile(r"\..*|.*=.*|_temporary|_delta_log|_spark_metadata|.*\.savepoints")
# The directory with the checkpoints of a pipeline, and the number of names between it and a version.
CHECKPOINTS: Final = "_checkpoints"
_FEWEST_NAMES: Final = 2
_MOST_NAMES: Final = 4
_VERSION: Final = re.compile(
    rf"(?P<flow>.*/{CHECKPOINTS}(?:/[^/]+){{{_FEWEST_NAMES},{_MOST_NAMES}}})/(?P<version>[0-9]+)"
)
# A listing in a bucket takes tens of milliseconds, most of them waiting.
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Flow(JsonShape):
    """A flow of a declarative pipeline, with the checkpoint that its next run uses.

    Attributes:
        storage: The storage of the pipeline.
        table: The table that the flow writes to, with catalog and schema if the pipeline has them.
        name: The name of the flow.
        version: The number of the checkpoint: 0, and one more after each full refresh.
        checkpoint: The address of the checkpoint.
        started: Whether a run has started on this version.
        older: The versions from before a full refresh, if their directories still exist, ascending.

    Example:
        for flow in hf.checkpoints.flows("pipeline-storage"):
            print(flow.table, flow.name, hf.checkpoints.read(flow.checkpoint).batch_id)
    """

    storage: str = field(metadata=json_as("pipeline"))
    table: str
    name: str = field(metadata=json_as("flow"))
    version: int
    checkpoint: str
    started: bool
    older: tuple[int, ...] = field(metadata=json_as("older_versions"))

    @property
    def label(self) -> str:
        """The table and the flow as a relative path, unique in the pipeline."""
        return f"{self.table}/{self.name}"


class CheckpointAddress:
    """An address of checkpoints.

    It is a checkpoint, a directory with checkpoints in it or one level further below, or the storage of a
    pipeline, which represents the newest checkpoint of each flow. `*`, `?` and `[…]` in a path's segment
    match any segment: `s3://bucket/*/checkpoints`.

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
        base = f"{root.uri.rstrip('/')}/"
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
                    elif CHECKPOINTS in (*listing.names, *full(root.uri, path).split("/")):
                        found += [flow.checkpoint[len(base) :] for flow in flows_of(root, path)]
                    elif level < LEVELS:
                        below += [layout.join(path, name) for name in _directories(listing)]
                paths = below
        addresses = (f"{base}{path}" if path else root.uri for path in found)
        return tuple(sorted({first_address(address) for address in addresses}))


def flows_of(storage: Storage, path: str = "") -> tuple[Flow, ...]:
    """Return the flows of a pipeline, by table and name.

    Cost: lists the directories of the pipeline down to the newest checkpoints.

    Args:
        storage: The storage that holds the directory.
        path: The pipeline's storage, or a directory in it above the checkpoints: `_checkpoints`, that of a
            table, or that of a flow. For any other directory the result is empty.

    Raises:
        Unavailable: The storage does not answer.
    """
    listing = storage.list(path)
    if is_checkpoint(listing.names):
        return ()
    uri = full(storage.uri, path) if path else storage.uri.rstrip("/")
    if CHECKPOINTS in listing.names:
        return tuple(_below(storage, layout.join(path, CHECKPOINTS), uri, ()))
    root, found, names = uri.rpartition(f"/{CHECKPOINTS}")
    if not found or (names and names[0] != "/"):
        return ()
    return tuple(_below(storage, path, root, tuple(names.split("/")[1:])))


def newest_of_flow(address: str, origin: str, query_id: str) -> tuple[str, int] | None:
    """Return the newest batch that the table of a flow may have, with the checkpoint that has planned it.

    These are the batches of the newest version, since the last full refresh, and those of other versions of
    the same query, which was restored or rescaled.

    Cost: lists the versions of the flow and the offset log of each, and reads their query ids.

    Args:
        address: The address of a version of the flow, which need not exist. It does not count itself.
        origin: The address of the checkpoint with the state. Of a version of the flow, earlier versions of a
            different query are from before a full refresh and do not count.
        query_id: The id of the query that will run on the version.

    Returns:
        None if the address is not that of a version, or if no other version has been started.

    Raises:
        Unavailable: The storage does not answer.
    """
    match = _VERSION.fullmatch(address.rstrip("/"))
    if match is None:
        return None
    source = _VERSION.fullmatch(origin.rstrip("/"))
    since = int(source["version"]) if source is not None and source["flow"] == match["flow"] else -1
    flow = open_storage(match["flow"])
    newest: tuple[str, int] | None = None
    is_newest_version = True
    for version in reversed(numbers(flow.list().names)):
        planned = numbers(flow.list(f"{version}/{layout.OFFSETS}").names)
        if version == int(match["version"]) or not planned:
            continue
        if (is_newest_version and version >= since) or _query_id(flow, version) == query_id:
            newest = max(newest or ("", -1), (full(flow.uri, str(version)), planned[-1]), key=itemgetter(1))
        is_newest_version = False
    return newest


def _query_id(flow: Storage, version: int) -> str | None:
    """Return the id of a version's query; None if it is missing."""
    with suppress(NotFound, ValueError):
        fields = foreign_json(flow.read(f"{version}/{layout.METADATA}"))
        return fields.get("id") if isinstance(fields, dict) else None
    return None


def is_checkpoint(names: Sequence[str]) -> bool:
    """Return whether a directory with these names is a checkpoint that a query has started on."""
    return layout.METADATA in names and (layout.OFFSETS in names or layout.COMMITS in names)


def _below(storage: Storage, path: str, root: str, names: tuple[str, ...]) -> Iterator[Flow]:
    """Yield the flows in a directory below `_checkpoints`; `names` are the directories between the two."""
    listing = storage.list(path)
    folders = sorted(name for name in listing.names if name[0] != "." and listing.size(name) is None)
    versions = sorted(int(name) for name in folders if name.isascii() and name.isdigit())
    if len(names) >= _FEWEST_NAMES and versions:
        # A version that no run has started on is empty.
        started = next(
            (
                version
                for version in reversed(versions)
                if is_checkpoint(storage.list(layout.join(path, str(version))).names)
            ),
            None,
        )
        if started is not None:
            *older, version = versions
            uri = full(storage.uri, layout.join(path, str(version)))
            *table, name = names
            yield Flow(root, ".".join(table), name, version, uri, version == started, tuple(older))
            return
    if len(names) < _MOST_NAMES:
        for folder in folders:
            yield from _below(storage, layout.join(path, folder), root, (*names, folder))


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
