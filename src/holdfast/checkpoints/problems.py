"""The errors for what a checkpoint does not have, or what cannot be read of it: one for each fact."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from holdfast import layout
from holdfast.config.checks import place_word
from holdfast.errors import Corrupt, NotFound
from holdfast.external.view import DESCRIPTION, is_external
from holdfast.storage.port import Storage, full

SEE_DAMAGE: Final = "see what else is wrong with `holdfast checkpoint verify` or `holdfast savepoint verify`"


def no_checkpoint(storage: Storage) -> NotFound:
    """The error for a directory that is not a checkpoint."""
    return NotFound(
        "there is no checkpoint",
        code="HF-E3017",
        where=storage.uri,
        hint="name the directory that holds `metadata`, `offsets` and `commits`",
    )


def batch_not_kept(storage: Storage, committed: Sequence[int], batch_id: int | None) -> NotFound:
    """The error for a batch that is not among the committed ones."""
    return NotFound(
        "the batch is not committed, or no longer kept",
        code="HF-E3018",
        where=storage.uri,
        found="no committed batch" if batch_id is None else f"batch {batch_id}",
        expected=f"batches {committed[0]} to {committed[-1]}" if committed else "none",
        hint=f"see the batches that are kept with `holdfast checkpoint history {place_word(storage.uri)}`",
    )


def file_gone(storage: Storage, path: str, batch_id: int) -> NotFound:
    """The error for a file that a batch needs."""
    place = layout.state_file(path)
    if is_external(storage) and isinstance(place, layout.StoreFile):
        return NotFound(
            f"the database does not keep the state of batch {batch_id}",
            code="HF-E3019",
            where=full(storage.uri, place.store.folder),
            expected=f"version {batch_id + 1} of the store that {DESCRIPTION} names",
            hint="name a newer batch: the backend's retain=… says how many are kept; if it is the newest,"
            " restore a savepoint",
        )
    return NotFound(
        f"a file that batch {batch_id} needs is not there",
        code="HF-E3020",
        where=full(storage.uri, path),
        hint=f"`holdfast checkpoint verify {place_word(storage.uri)}` names the batches that can still be"
        " restored; a running query deletes what old ones needed",
    )


@contextmanager
def taking_rows_apart(where: str) -> Iterator[None]:
    """Within the block, a row of state that cannot be taken apart is an error of ours.

    Raises:
        Corrupt: There was one.
    """
    try:
        yield
    except (struct.error, ValueError, IndexError) as error:
        raise Corrupt(
            "a row of state is damaged", code="HF-E6001", where=where, found=str(error), hint=SEE_DAMAGE
        ) from error


def other_size(where: str, size: int, expected: int) -> Corrupt:
    """The error for a data file of RocksDB that is not as long as its snapshot says."""
    return Corrupt(
        "a data file does not have the size that its snapshot says",
        code="HF-E6012",
        where=where,
        found=f"{size} bytes",
        expected=f"{expected}",
        hint=SEE_DAMAGE,
    )
