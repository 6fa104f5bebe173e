"""The erasure of a key from a stopped query's checkpoint, of which only the newest batch is kept.

A checkpoint has older batches and unreferenced files, which may also contain the key. Therefore a new
checkpoint is created next to the old one from the newest batch without the key. On a local disk the two are
exchanged atomically, so that a complete checkpoint always exists at the path. On S3 and HDFS the new one
becomes the successor of the old one. The old checkpoint is deleted once it is certain that no query used it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.at_rest.state_reader import named_operators
from holdfast.changes.erase.certificate import SearchReport, merged
from holdfast.changes.erase.checkpoint_swap import SETTLE_MS, replace_checkpoint
from holdfast.changes.erase.erasing import erase, plan_erase
from holdfast.changes.erase.searching import Subject
from holdfast.changes.erase.stray_files import StrayFiles
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.copy import CutFile, How
from holdfast.checkpoints.keyed import operators_elsewhere
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.record import Record
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.checks import local_path
from holdfast.errors import HoldfastError, Internal, NotFound, Unsupported
from holdfast.formats.manifest import SCHEMA_PATHS, Manifest
from holdfast.ownership.checkpoint_guard import (
    CheckpointGuard,
    file_marks,
    moves_between,
    written_meanwhile,
)
from holdfast.ownership.checkpoint_lease import can_have_successors
from holdfast.savepoints.catalog import load
from holdfast.savepoints.copying import followed
from holdfast.savepoints.planning import changing, plan_take
from holdfast.savepoints.restoring import RestoreKind, plan_restore, restore, withdraw
from holdfast.savepoints.taking import take
from holdfast.storage import open_storage
from holdfast.storage.atomic_swap import require_exchange
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage, files_below
from holdfast.storage.remote import hadoop_address
from holdfast.storage.successors import (
    first_address,
    list_successors,
    publish_successor,
    retire,
    successor_address,
    unpublish_successor,
    unused_number,
)

_PURPOSE: Final = changing("nothing was erased", "restore")


def erase_checkpoint(
    checkpoint: Storage,
    subject: Subject,
    folder: Path,
    *,
    guard: CheckpointGuard,
    who: str,
    why: str | None,
    record: Record | None = None,
    tell: ProgressCallback | None = None,
) -> SearchReport:
    """Erase a key from a checkpoint that no query uses.

    If a kept batch contains the key, or an unreferenced file may contain it, only the newest batch is kept,
    and the query continues after it as before. Otherwise the checkpoint stays unchanged.

    Args:
        checkpoint: The checkpoint, on a local disk, S3 or HDFS.
        subject: The key.
        folder: A working directory, which the caller deletes; next to the checkpoint if that is local.
        guard: The guard of the checkpoint.
        who: The author of the erasure.
        why: The reason for the erasure.
        record: The integrity record; None without one.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        Conflict: A query uses the checkpoint, which is unchanged.
        Unsupported: The checkpoint's storage can neither exchange directories nor keep a successor.
        Corrupt: The checkpoint is damaged.
    """
    place = _place(checkpoint)
    catalog, newest, needed = _take_all_batches(checkpoint, folder, record, tell)
    certificate = erase(catalog, subject, folder / "work", who=who, why=why, tell=tell)
    summary = _summary(checkpoint, subject, certificate.searched, newest, needed)
    if not summary.holds:
        guard.require_unmoved()
        return summary
    if place is None:
        return replace(summary, successor=_succeed(checkpoint, catalog, newest, guard, tell))
    made = folder / "checkpoint"
    plan = plan_restore(
        catalog,
        newest,
        LocalStorage(made),
        RestoreKind.RESTORE,
        named=(checkpoint.uri, checkpoint.uri),
        tell=tell,
    )
    restore(catalog, LocalStorage(made), plan, tell=tell)
    _lead(LocalStorage(made), catalog, newest, checkpoint.uri)
    _require_whole(LocalStorage(made), checkpoint)
    replace_checkpoint(place, made, guard)
    return summary


def _require_whole(made: Storage, checkpoint: Storage) -> None:
    if not verify(made).ok:
        raise Internal(
            "the new checkpoint failed verification, so the old checkpoint was kept",
            code="HF-E9006",
            where=checkpoint.uri,
            hint="please report this; nothing was erased",
        )


def _succeed(
    checkpoint: Storage,
    catalog: Storage,
    newest: str,
    guard: CheckpointGuard,
    tell: ProgressCallback | None,
) -> str:
    """Replace a checkpoint by a successor without the key, delete its files, and return the new address.

    Raises:
        Conflict: A query uses the checkpoint, which is as before.
    """
    first = first_address(checkpoint.uri)
    number = unused_number(first)
    made = open_storage(successor_address(first, number))
    uri = checkpoint.uri
    plan = plan_restore(catalog, newest, made, RestoreKind.RESTORE, named=(uri, uri), tell=tell)
    restore(catalog, made, plan, tell=tell)
    try:
        _require_whole(made, checkpoint)
        guard.require_unmoved()
    except HoldfastError:
        withdraw(made)
        raise
    metadata = checkpoint.read(layout.METADATA)
    publish_successor(first, number, "erased")
    retire(checkpoint, made.uri)
    guard.pause(SETTLE_MS)
    now = file_marks(checkpoint)
    own = {layout.METADATA: now[layout.METADATA]}
    moves = moves_between({**guard.marks, **own}, now)
    if moves:
        unpublish_successor(first, number, metadata)
        withdraw(made)
        raise written_meanwhile(uri, moves, "the old checkpoint was restored")
    for path in [*files_below(checkpoint)]:
        if path != layout.METADATA:
            checkpoint.delete(path)
    return made.uri


def plan_erase_checkpoint(
    checkpoint: Storage,
    subject: Subject,
    folder: Path,
    *,
    record: Record | None = None,
    tell: ProgressCallback | None = None,
) -> SearchReport:
    """Plan an erasure from a checkpoint; the checkpoint is not changed.

    Every batch is searched in temporary savepoints in the working directory.

    Raises:
        As for `erase_checkpoint`.
    """
    _place(checkpoint)
    catalog, newest, needed = _take_all_batches(checkpoint, folder, record, tell)
    plan = plan_erase(catalog, subject, tell=tell)
    return _summary(checkpoint, subject, plan.searched, newest, needed)


def _place(checkpoint: Storage) -> Path | None:
    """Return the path of a local checkpoint; None for one that a successor can replace."""
    place = local_path(checkpoint.uri)
    if place is None and not can_have_successors(checkpoint.uri):
        raise Unsupported(
            "a key cannot be erased from a checkpoint on this storage, which cannot be replaced",
            code="HF-E7018",
            where=checkpoint.uri,
            hint="take a savepoint, erase the key from the savepoint, restore the savepoint to a new "
            "checkpoint, and delete this checkpoint",
        )
    elsewhere = operators_elsewhere(checkpoint)
    if elsewhere:
        raise Unsupported(
            "a key cannot be erased from a checkpoint with rows in a database",
            code="HF-E7019",
            where=checkpoint.uri,
            found=f"rows of operator {', '.join(elsewhere)}",
            hint="take a savepoint, erase the key from the savepoint, and restore the savepoint to a new "
            "checkpoint; then delete this checkpoint, and the rows with the id of its query in the database",
        )
    return place


def _take_all_batches(
    checkpoint: Storage, folder: Path, record: Record | None, tell: ProgressCallback | None
) -> tuple[Storage, str, set[str]]:
    """Return a catalog with a savepoint of each restorable batch, the id of the newest, and all files."""
    if local_path(checkpoint.uri) is not None:
        require_exchange(folder)
    catalog = LocalStorage(folder / "catalog")
    manifests: list[Manifest] = []
    for batch_id in followed(Logs(checkpoint).committed[::-1], tell, "reading batches"):
        try:
            plan = plan_take(checkpoint, catalog, batch_id, record, purpose=_PURPOSE)
        except NotFound:
            if not manifests:
                raise
            continue  # some of its files are missing; the others belong to no batch
        taken = take(checkpoint, catalog, plan)
        manifests.append(taken.manifest)
    if not manifests:
        raise NotFound(
            "the checkpoint has no committed batch",
            code="HF-E3010",
            where=checkpoint.uri,
            hint="delete the directory, which has no committed state; the query then reads its input "
            "from the start",
        )
    return (
        catalog,
        manifests[0].savepoint_id,
        {file.path for manifest in manifests for file in manifest.files},
    )


def _state_files(checkpoint: Storage) -> list[str]:
    place = local_path(checkpoint.uri)
    if place is None:
        return [path for path in files_below(checkpoint, layout.STATE) if not path.endswith(layout.CRC)]
    return [
        str(file.relative_to(place))
        for file in (place / layout.STATE).rglob("*")
        if file.is_file() and not file.is_symlink() and not file.name.endswith(layout.CRC)
    ]


def _kept_before(checkpoint: Storage) -> list[str]:
    """Return the replaced checkpoints of earlier changes that still have state, which is not searched."""
    first = first_address(checkpoint.uri)
    addresses = (successor_address(first, number) for number in (0, *list_successors(first)))
    return [
        f"the replaced checkpoint {address}"
        for address in addresses
        if address != checkpoint.uri and open_storage(address).list(layout.STATE).names
    ]


def _summary(
    checkpoint: Storage,
    subject: Subject,
    searched: Sequence[SearchReport],
    newest: str,
    needed: Collection[str],
) -> SearchReport:
    """Return a summary of all batches; a row that occurs in several batches is counted once."""
    paths = _state_files(checkpoint)
    strays = [path for path in paths if path not in needed]
    most = max(searched, key=lambda savepoint: savepoint.rows)
    summary = SearchReport(
        place=checkpoint.uri,
        files=len(paths),
        found=merged(most.found),
        traces=max(place.traces for place in searched)
        + StrayFiles(checkpoint, named_operators(checkpoint), subject).holding(strays),
        rewritten=next(place.rewritten for place in searched if place.place.endswith(newest)),
        before=None,
        after=None,
        unsearched=tuple(
            dict.fromkeys(
                [*(name for place in searched for name in place.unsearched), *_kept_before(checkpoint)]
            )
        ),
    )
    if not summary.holds:
        return summary
    return replace(summary, given_up=len(searched) - 1, strays=len(strays))


def _lead(made: Storage, catalog: Storage, savepoint_id: str, uri: str) -> None:
    """Point the schema paths to the checkpoint's final address instead of its working directory."""
    for file in load(catalog, savepoint_id).files:
        if file.how == SCHEMA_PATHS:
            led = CutFile(file.path, How.SCHEMA_PATHS, file.path)
            data = led.content(made.read(file.path), hadoop_address(uri))
            made.delete(layout.HadoopChecksumFile(file.path).render())
            made.write(file.path, data, replace=True)
