"""The erasure of a key from a stopped query's checkpoint, of which only the newest batch is kept.

A checkpoint has older batches and unreferenced files, which may also contain the key. Therefore a new
checkpoint is created next to the old one from the newest batch without the key, and the two are exchanged
atomically, so that a complete checkpoint always exists at the path. The old checkpoint is deleted once it is
certain that no query used it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.at_rest.state_reader import named_operators
from holdfast.changes.erase.certificate import SearchReport, merged
from holdfast.changes.erase.checkpoint_swap import replace_checkpoint
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
from holdfast.errors import Internal, NotFound, Unsupported
from holdfast.formats.manifest import SCHEMA_PATHS, Manifest
from holdfast.ownership.checkpoint_guard import CheckpointGuard
from holdfast.savepoints.catalog import load
from holdfast.savepoints.copying import followed
from holdfast.savepoints.planning import changing, plan_take
from holdfast.savepoints.restoring import RestoreKind, plan_restore, restore
from holdfast.savepoints.taking import take
from holdfast.storage.atomic_swap import exchange
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage
from holdfast.storage.remote import hadoop_address

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
        checkpoint: The checkpoint, on a local disk.
        subject: The key.
        folder: A working directory next to the checkpoint, which the caller deletes.
        guard: The guard of the checkpoint.
        who: The author of the erasure.
        why: The reason for the erasure.
        record: The integrity record; None without one.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        Conflict: A query uses the checkpoint, which is unchanged.
        Unsupported: The checkpoint is not on a local disk, or its file system cannot exchange directories.
        Corrupt: The checkpoint is damaged.
    """
    place = _place(checkpoint)
    catalog, newest, needed = _take_all_batches(checkpoint, folder, record, tell)
    certificate = erase(catalog, subject, folder / "work", who=who, why=why, tell=tell)
    summary = _summary(checkpoint, subject, certificate.searched, newest, needed)
    if not summary.holds:
        guard.require_unmoved()
        return summary
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
    if not verify(LocalStorage(made)).ok:
        raise Internal(
            "the new checkpoint failed verification, so the old checkpoint was kept",
            code="HF-E9006",
            where=checkpoint.uri,
            hint="please report this; nothing was erased",
        )
    replace_checkpoint(place, made, guard)
    return summary


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


def require_exchange(folder: Path) -> None:
    """Check that two directories can be exchanged on this disk.

    Raises:
        Unsupported: The file system cannot exchange directories.
    """
    one, other = folder / "exchange-1", folder / "exchange-2"
    one.mkdir()
    other.mkdir()
    exchange(one, other)


def _place(checkpoint: Storage) -> Path:
    place = local_path(checkpoint.uri)
    if place is None:
        raise Unsupported(
            "a key can be erased only from a checkpoint on a local disk",
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


def _state_files(place: Path) -> list[str]:
    return [
        str(file.relative_to(place))
        for file in (place / layout.STATE).rglob("*")
        if file.is_file() and not file.is_symlink() and not file.name.endswith(layout.CRC)
    ]


def _summary(
    checkpoint: Storage,
    subject: Subject,
    searched: Sequence[SearchReport],
    newest: str,
    needed: Collection[str],
) -> SearchReport:
    """Return a summary of all batches; a row that occurs in several batches is counted once."""
    paths = _state_files(_place(checkpoint))
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
        unsearched=tuple(dict.fromkeys(name for place in searched for name in place.unsearched)),
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
