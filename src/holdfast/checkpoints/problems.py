"""Errors for checkpoints that are missing, incomplete or unreadable."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from holdfast import layout
from holdfast.checkpoints.discovery import Flow, flows_of
from holdfast.config.checks import place_word
from holdfast.errors import Corrupt, HoldfastError, NotFound
from holdfast.external.view import DESCRIPTION, is_external
from holdfast.storage.port import Storage, full

SEE_DAMAGE: Final = (
    "list all damage with `holdfast checkpoint verify CHECKPOINT` or `holdfast savepoint verify SP`"
)


def no_checkpoint(storage: Storage) -> NotFound:
    """Return the error for a directory that is not a checkpoint; for a pipeline, it names the flows."""
    flows: tuple[Flow, ...] = ()
    with suppress(HoldfastError):
        flows = flows_of(storage)
    if flows:
        return NotFound(
            "no checkpoint in this directory, which belongs to a declarative pipeline",
            code="HF-E3079",
            where=storage.uri,
            found=", ".join(flow.label for flow in flows),
            expected="the checkpoint of one flow",
            hint=f"give a flow's checkpoint, such as {place_word(flows[0].checkpoint)};"
            f" list all with `holdfast show {place_word(storage.uri)}`",
        )
    return NotFound(
        "no checkpoint in this directory",
        code="HF-E3017",
        where=storage.uri,
        hint="give the directory that holds `metadata`, `offsets` and `commits`",
    )


def batch_not_kept(storage: Storage, committed: Sequence[int], batch_id: int | None) -> NotFound:
    """Return the error for a batch that is not among the committed ones."""
    return NotFound(
        "the checkpoint has no committed batch"
        if batch_id is None
        else "the batch is not committed, or is no longer kept",
        code="HF-E3018",
        where=storage.uri,
        found=None if batch_id is None else f"batch {batch_id}",
        expected=f"a batch from {committed[0]} to {committed[-1]}" if committed else None,
        hint=f"list the kept batches with `holdfast checkpoint history {place_word(storage.uri)}`",
    )


def file_gone(storage: Storage, path: str, batch_id: int) -> NotFound:
    """Return the error for a missing file that a batch needs."""
    place = layout.state_file(path)
    if is_external(storage) and isinstance(place, layout.StoreFile):
        return NotFound(
            f"the database no longer has the state of batch {batch_id}",
            code="HF-E3019",
            where=full(storage.uri, place.store.folder),
            expected=f"version {batch_id + 1} of the store that {DESCRIPTION} names",
            hint=(
                "choose a newer batch, or restore a savepoint; retain=… of the backend sets how many"
                " batches are kept"
            ),
        )
    return NotFound(
        f"a file that batch {batch_id} needs is missing",
        code="HF-E3020",
        where=full(storage.uri, path),
        hint="find a batch that can be restored with `holdfast checkpoint verify "
        f"{place_word(storage.uri)}`; a running query deletes the files of old batches",
    )


@contextmanager
def taking_rows_apart(where: str) -> Iterator[None]:
    """Convert errors of decoding rows within the block to `Corrupt`.

    Raises:
        Corrupt: A row cannot be decoded.
    """
    try:
        yield
    except (struct.error, ValueError, IndexError) as error:
        raise Corrupt(
            "a row of state cannot be decoded",
            code="HF-E6001",
            where=where,
            found=str(error),
            hint=SEE_DAMAGE,
        ) from error


def other_size(where: str, size: int, expected: int) -> Corrupt:
    """Return the error for a RocksDB data file whose size differs from the size in its snapshot."""
    return Corrupt(
        "a RocksDB data file does not have the size recorded in its snapshot",
        code="HF-E6012",
        where=where,
        found=f"{size} bytes",
        expected=f"{expected} bytes",
        hint=SEE_DAMAGE,
    )
