"""Delete the files of checkpoints on remote storage that a successor has replaced.

A live rescale, a fallback and an erasure put a new checkpoint next to the old one and keep the old one; see
`storage/successors.py`. A release deletes the files of the old ones, except `metadata`: it names the
successor, and at it every Spark refuses to start. Without it, a query with the first address would start from
scratch.

On a local disk the old checkpoint is moved to a directory of its own. An unfinished upgrade may need it, so a
release lists such directories and deletes none.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import ProgressCallback, read
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.checks import local_path, place_word
from holdfast.errors import Corrupt
from holdfast.external.view import open_checkpoint
from holdfast.json_shapes import JsonShape, in_json, json_as
from holdfast.ownership.checkpoint_guard import held_for_making, refuse_held
from holdfast.savepoints.address import Address
from holdfast.savepoints.copying import WORKERS, each
from holdfast.storage import open_storage
from holdfast.storage.port import full, sizes_below
from holdfast.storage.successors import (
    first_address,
    list_successors,
    require_current,
    retire,
    successor_address,
)

_VERB: Final = "checkpoint release"
# The end of the name of a directory to which a local checkpoint was moved.
_MOVED: Final = re.compile(r"\.(?:before|damaged|upgraded)-[^/]+")


@dataclass(frozen=True, slots=True)
class ReplacedCheckpoint(JsonShape):
    """A checkpoint that a successor has replaced.

    Attributes:
        address: Its address.
        paths: Its files, without `metadata`.
        size_bytes: Their size.

    Example:
        def freed(release: hf.Release) -> dict[str, int]:
            return {replaced.address: replaced.size_bytes for replaced in release.replaced}
    """

    address: str
    paths: tuple[str, ...] = field(metadata=json_as("files", len, "Number of files to delete."))
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Release(JsonShape):
    """The deleted files of replaced checkpoints, or those that would be deleted.

    Attributes:
        checkpoint: The address of the checkpoint in use; its files are kept.
        batch_id: Its newest committed batch; None before the first.
        replaced: The checkpoints that it has replaced and that have files, oldest first.
        moved: On a local disk, the directories of replaced checkpoints, which are not deleted.

    Example:
        release: hf.Release = hf.plan_release("checkpoints/visits")
        assert (release.batch_id, release.replaced, release.size_bytes) == (11, (), 0)
    """

    checkpoint: str
    batch_id: int | None
    replaced: tuple[ReplacedCheckpoint, ...]
    moved: tuple[str, ...] = ()

    @property
    @in_json
    def size_bytes(self) -> int:
        """The size of these files."""
        return sum(replaced.size_bytes for replaced in self.replaced)


def plan_release(checkpoint: Address, *, tell: ProgressCallback | None = None) -> Release:
    """Return the files that `release` would delete, without changing anything.

    Args:
        checkpoint: As of `release`.
        tell: As of `release`.

    Raises:
        HoldfastError: As `release`, except that a lease is not checked.

    Example:
        assert hf.plan_release("checkpoints/visits").replaced == ()
    """
    first = first_address(open_storage(os.fspath(checkpoint)).uri)
    plan = _plan(first)
    if plan.replaced:
        refuse_held(open_storage(first))
        _require_whole(plan, first, tell)
    return plan


def release(checkpoint: Address, *, tell: ProgressCallback | None = None) -> Release:
    """Delete the files of the checkpoints that live rescales, fallbacks and erasures have replaced.

    The checkpoint in use is verified first and never changed. Its lock and lease are held meanwhile, so its
    query must be stopped. If the process is killed, a second call deletes the rest. Of each replaced
    checkpoint the file `metadata` is kept, so that no query can start there. State in a database is not
    deleted.

    Args:
        checkpoint: The checkpoint, by its first address or that of a successor. On a local disk all files
            are kept.
        tell: The progress callback, called with the number of finished files, the number of all files, and
            the current step.

    Raises:
        NotFound: The checkpoint does not exist.
        Corrupt: The checkpoint in use is missing or damaged; nothing was deleted.
        Conflict: A process holds the checkpoint's lock or lease.
        Unavailable: The storage does not answer.

    Example:
        assert hf.release("checkpoints/visits").replaced == ()
    """
    first = first_address(open_storage(os.fspath(checkpoint)).uri)
    plan = _plan(first)
    if not plan.replaced:
        return plan
    with held_for_making(open_storage(first), _VERB):
        plan = _plan(first)
        _require_whole(plan, first, tell)
        for replaced in plan.replaced:
            storage = open_storage(replaced.address)
            # Whoever published the successor may have been killed before this.
            retire(storage, plan.checkpoint)
            each(storage.delete, replaced.paths, WORKERS, tell, "deleting")
    return plan


def _plan(first: str) -> Release:
    """List the files of the checkpoints that the one with this first address has replaced."""
    current = require_current(first)
    batch_id = read(open_checkpoint(first)).batch_id
    place = local_path(first)
    if place is not None:
        beside = sorted(path.name for path in place.parent.iterdir() if path.is_dir())
        moved = (name for name in beside if name.startswith(place.name))
        names = [name for name in moved if _MOVED.fullmatch(name, len(place.name))]
        return Release(current, batch_id, (), tuple(f"file://{place.with_name(name)}" for name in names))
    numbers = list_successors(first)
    former = [successor_address(first, number) for number in (0, *numbers[:-1])] if numbers else []
    replaced = []
    for address in former:
        sizes = dict(sizes_below(open_storage(address)))
        sizes.pop(layout.METADATA, None)
        if sizes:
            replaced.append(ReplacedCheckpoint(address, tuple(sorted(sizes)), sum(sizes.values())))
    return Release(current, batch_id, tuple(replaced))


def _require_whole(plan: Release, first: str, tell: ProgressCallback | None) -> None:
    """Check that a query can continue from the checkpoint in use.

    Raises:
        Corrupt: It is damaged, or has no committed batch.
    """
    found = verify(open_checkpoint(first), tell)
    if found.ok and plan.batch_id is not None:
        return
    problem = found.problems[0] if found.problems else None
    raise Corrupt(
        "no query can continue from the checkpoint, so the checkpoints that it has replaced are kept",
        code="HF-E6066",
        where=plan.checkpoint if problem is None else full(plan.checkpoint, problem.file),
        found="no committed batch" if problem is None else problem.what,
        expected="a whole checkpoint with a committed batch",
        hint=f"list all damage with `holdfast checkpoint verify {place_word(first)}`",
    )
