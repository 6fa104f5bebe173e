"""Exchange an unused checkpoint for a new one, and reverse that if a query uses it after all.

A running query writes by path: after the exchange that is the new directory, while a file that it had opened
before continues in the old one. So both are checked afterwards, and the old one is put back together with
everything the query has written to the new one meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from holdfast.errors import Conflict, Corrupt, NotFound
from holdfast.ownership.checkpoint_guard import (
    CheckpointGuard,
    Marks,
    file_marks,
    moves_between,
    written_meanwhile,
)
from holdfast.ownership.usage import scan_processes
from holdfast.savepoints.catalog import same_file
from holdfast.storage.atomic_swap import exchange
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

# A batch that begins at the moment of the exchange shows itself within this time.
_SETTLE_MS: Final = 2_000


def replace_checkpoint(place: Path, made: Path, guard: CheckpointGuard) -> None:
    """Exchange a checkpoint and a new one; the old one has the new one's path afterwards.

    Args:
        place: The checkpoint.
        made: The new one, on the same file system.
        guard: The guard of the checkpoint.

    Raises:
        Conflict: A query uses the checkpoint. The old one has its path again.
        Unsupported: The file system cannot exchange directories.
    """
    fresh = file_marks(LocalStorage(made))
    guard.require_unmoved()
    exchange(place, made)
    try:
        guard.pause(_SETTLE_MS)
        in_old = moves_between(guard.marks, file_marks(LocalStorage(made)))
        in_new = moves_between(fresh, file_marks(LocalStorage(place)))
        writers = (*scan_processes(place).writers, *scan_processes(made).writers)
    except BaseException:
        _take_back(place, made, fresh)
        raise
    if not in_old and not in_new and not writers:
        return
    kept = _take_back(place, made, fresh)
    done = "the old checkpoint was restored"
    if kept is not None:
        done += f"; files written to the new one meanwhile are kept in {kept}"
    elif in_new:
        done += ", with the files written meanwhile, which may have been computed from the new state"
    moves = [*in_old, *in_new, *(str(process) for process in writers)]
    raise written_meanwhile(f"file://{place}", moves, done)


def _take_back(place: Path, made: Path, fresh: Marks) -> Path | None:
    """Put the old checkpoint back, with the files that were added to the new one.

    They are linked into the old one before and after the exchange: a query that finds the old one again finds
    its newest batches in it.

    Returns:
        The path at which the new one is kept, if something was written to it that cannot be part of the old
        one, or may still be written; None if the old one has everything.
    """
    exact = _added(place, made, fresh)
    exchange(place, made)
    exact = _added(made, place, fresh) and exact
    if exact and not scan_processes(made).writers:
        return None
    kept = place.with_name(f"{place.name}.replaced-{os.urandom(4).hex()}")
    made.rename(kept)
    return kept


def _added(new: Path, old: Path, fresh: Marks) -> bool:
    """Link the files that were added to a new checkpoint into the old one; return False if some are not."""
    exact = True
    source, target = LocalStorage(new), LocalStorage(old)
    now = file_marks(source)
    for path in sorted(now):
        if now[path] == fresh.get(path):
            continue
        if path in fresh:
            exact = False  # it was written over
            continue
        try:
            target.copy(path, path, origin=source)
        except Conflict:
            exact = exact and _same(source, target, path)
        except Corrupt:  # a link, or in a linked directory: it stays where it is
            exact = False
        except NotFound:
            continue  # a temporary file that has got its name by now
    return exact


def _same(one: Storage, other: Storage, path: str) -> bool:
    try:
        return same_file(one, path, other, path) or one.read(path) == other.read(path)
    except (NotFound, Corrupt):
        return False
