"""The id of a query whose checkpoint has lost it, out of a savepoint of the same query.

Sinks know a query by its id, so a checkpoint never gets a new one. A savepoint is accepted only where the
checkpoint still has the offsets of one of its batches, byte for byte: Spark writes the time of planning into
them, so two queries do not share them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from holdfast import layout
from holdfast.config.locations import place_word
from holdfast.errors import Conflict, Corrupt, HoldfastError, Internal, Invalid, NotFound, Unsupported
from holdfast.external.view import is_external
from holdfast.formats.logs.query import QueryMetadata, parse_query
from holdfast.formats.savepoint.manifest import Manifest
from holdfast.savepoints.catalog.catalog import listed, load, savepoint_uri
from holdfast.storage import open_storage
from holdfast.storage.hashing import hash_of
from holdfast.storage.local import file_of
from holdfast.storage.port import Listing, Names, Storage, full
from holdfast.storage.read_only import ReadOnly


class IdentifiedCheckpoint(ReadOnly):
    """A checkpoint that has lost its query id, shown with one.

    Args:
        checkpoint: The checkpoint.
        query_id: The id.
    """

    def __init__(self, checkpoint: Storage, query_id: str) -> None:
        self._checkpoint = checkpoint
        self._metadata = QueryMetadata(query_id).render()

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return self._checkpoint.uri

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        if path != layout.METADATA:
            return self._checkpoint.read(path, start, length)
        return self._metadata[start:] if length is None else self._metadata[start : start + length]

    def list(self, path: str = "") -> Listing:
        """See `Storage`."""
        listing = self._checkpoint.list(path)
        if path:
            return listing
        # A checksum of the lost file is none of this one.
        sums = layout.HadoopChecksum(layout.METADATA).render()
        sizes = {name: listing.size(name) for name in listing.names if name != sums}
        return Names({**sizes, layout.METADATA: len(self._metadata)})

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        return len(self._metadata) if path == layout.METADATA else self._checkpoint.size(path)

    def file_of(self, path: str) -> Path | None:
        """Return where a file is on this machine; None where it has to be read."""
        return None if path == layout.METADATA else file_of(self._checkpoint, path)

    def _refuse(self, path: str) -> NoReturn:
        raise Internal("a damaged checkpoint is never written", where=full(self.uri, path))


def with_query_id(checkpoint: Storage, catalog: Storage, savepoint_id: str) -> IdentifiedCheckpoint:
    """Show a checkpoint that has lost its query id with the id of a savepoint.

    Args:
        checkpoint: The checkpoint.
        catalog: The catalog of the savepoint.
        savepoint_id: A savepoint of the same query.

    Raises:
        Invalid: The checkpoint has its id.
        NotFound: The savepoint does not exist.
        Conflict: The checkpoint has no offsets of a batch of the savepoint, so it may be another query's.
        Unsupported: The state of the checkpoint is in a database.
    """
    with suppress(NotFound, Corrupt):
        query = parse_query(checkpoint.read(layout.METADATA), layout.METADATA)
        raise Invalid(
            "the checkpoint has its query id",
            where=full(checkpoint.uri, layout.METADATA),
            found=query.query_id,
            hint="leave --id-of out",
        )
    if is_external(checkpoint):
        raise Unsupported(
            "a query whose state is in a database cannot be given its id back",
            where=checkpoint.uri,
            hint="restore a savepoint of it",
        )
    manifest = load(catalog, savepoint_id)
    if not _shares_a_batch(checkpoint, manifest):
        raise Conflict(
            "the savepoint may be of another query",
            where=savepoint_uri(catalog, savepoint_id),
            found=f"batch {manifest.batch_id}, whose offsets the checkpoint does not have",
            expected="the same offsets of a batch in both",
            hint="name a newer savepoint of the query, or restore this one",
        )
    return IdentifiedCheckpoint(checkpoint, manifest.query_id)


def newest_savepoint(checkpoint: Storage, catalogs: Iterable[str]) -> tuple[str, Manifest] | None:
    """Return the newest savepoint of a checkpoint that has lost its query id, and its address.

    Savepoints whose state was changed are passed over, and those that share no batch with the checkpoint.

    Cost: every manifest of the catalogs is read, and at most two small files for each.

    Args:
        checkpoint: The checkpoint.
        catalogs: Addresses of directories of savepoints; one that cannot be read is passed over.
    """
    found: dict[str, Manifest] = {}
    for address in catalogs:
        with suppress(HoldfastError):
            for savepoint in listed(open_storage(address, "catalog")):
                manifest = savepoint.manifest
                if manifest is None or manifest.change is not None or manifest.checkpoint != checkpoint.uri:
                    continue
                if _shares_a_batch(checkpoint, manifest):
                    found[savepoint.uri] = manifest
    return max(found.items(), key=lambda item: item[1].created_ms, default=None)


def lost_id_hint(checkpoint: Storage, catalogs: Iterable[str]) -> str:
    """Return what to do about a checkpoint that has lost its query id.

    Args:
        checkpoint: The checkpoint.
        catalogs: The directories of savepoints that are known.
    """
    place = place_word(checkpoint.uri)
    newest = newest_savepoint(checkpoint, catalogs)
    if newest is None:
        return (
            "put the file back from a copy; or, with any savepoint of the query,"
            f" `holdfast savepoint take {place} DIR --id-of SAVEPOINT` saves the state of this checkpoint"
            " under that query's id, and `holdfast restore` makes a whole checkpoint of it"
        )
    word = place_word(newest[0])
    return (
        f"savepoint {newest[1].savepoint_id} has the id:"
        f" `holdfast savepoint take {place} DIR --id-of {word}` saves the newest batch of this checkpoint"
        " under it, for `holdfast restore` into a new directory;"
        f" or `holdfast restore {word} NEW` goes back to batch {newest[1].batch_id}"
    )


def is_lost_id(error: Corrupt, checkpoint: Storage) -> bool:
    """Return whether an error is about the file with the query's id."""
    return error.where in (layout.METADATA, full(checkpoint.uri, layout.METADATA))


def _shares_a_batch(checkpoint: Storage, manifest: Manifest) -> bool:
    for file in manifest.files:
        place = layout.parse(file.path)
        if isinstance(place, layout.LogFile) and place.log is layout.Log.OFFSETS:
            with suppress(NotFound):
                if hash_of(checkpoint.read(file.path)) == file.sha256:
                    return True
    return False
