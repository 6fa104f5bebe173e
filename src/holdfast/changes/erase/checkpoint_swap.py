"""The exchange of an unused checkpoint with a new one, which is reversed if a query uses it after all.

A running query writes by path: after the exchange it writes to the new directory, while files that it had
opened before stay in the old one. Both directories are therefore checked after the exchange. If a query has
written to either, the old checkpoint is put back, together with everything that the query wrote to the new
one.
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

# A batch that starts at the moment of the exchange is detected within this time.
SETTLE_MS: Final = 2_000


def replace_checkpoint(place: Path, made: Path, guard: CheckpointGuard) -> None:
    """Exchange the paths of a checkpoint and a new one.

    Args:
        place: The checkpoint.
        made: The new checkpoint, on the same file system.
        guard: The guard of the checkpoint.

    Raises:
        Conflict: A query uses the checkpoint; the old checkpoint has its path again.
        Unsupported: The file system cannot exchange directories.
    """
    fresh = file_marks(LocalStorage(made))
    guard.require_unmoved()
    exchange(place, made)
    try:
        guard.pause(SETTLE_MS)
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
    """Put the old checkpoint back, together with the files that were added to the new one.

    These files are linked into the old checkpoint before and after the exchange, so that a query which
    continues with the old one finds its newest batches there.

    Returns:
        The path at which the new checkpoint is kept, if it has or may still get files that cannot be linked
        into the old one; None if the old one has everything.
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
            exact = False  # the file was overwritten
            continue
        try:
            target.copy(path, path, origin=source)
        except Conflict:
            exact = exact and _same(source, target, path)
        except Corrupt:  # a link, or in a linked directory, which stays in its directory
            exact = False
        except NotFound:
            continue  # a temporary file that has been renamed
    return exact


def _same(one: Storage, other: Storage, path: str) -> bool:
    try:
        return same_file(one, path, other, path) or one.read(path) == other.read(path)
    except (NotFound, Corrupt):
        return False
