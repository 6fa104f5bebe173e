"""Erase a key from a stopped query's checkpoint: from its newest batch, by giving up every older one.

A checkpoint keeps older batches and files that nothing refers to any more, in which the key is too. So a new
checkpoint is made of the newest batch without the key, beside the old one, and the two change places in one
step. Before it the old one is there, whole, after it the new one. The old one is removed once it is certain
that no query has used it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.at_rest.state_reader import named_operators
from holdfast.changes.erase.certificate import Searched, merged
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
) -> Searched:
    """Erase a key from a checkpoint that no query uses.

    Where the key is in any batch that is kept, or may be in a file that belongs to none, only the newest
    batch is left afterwards; the query continues after it as it would have. Else the checkpoint stays as it
    is.

    Args:
        checkpoint: The checkpoint, on a local disk.
        subject: Who is meant.
        folder: A directory to work in beside the checkpoint, which is the caller's to remove.
        guard: The guard of the checkpoint.
        who: Who does it.
        why: What for.
        record: What the files were when their batches were committed; None without a record.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        Conflict: A query uses the checkpoint after all; it is as it was.
        Unsupported: It is not on a local disk, or two directories cannot change places there.
        Corrupt: It is damaged.
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
            "the new checkpoint does not verify; the old stays",
            code="HF-E9006",
            where=checkpoint.uri,
            hint="nothing was erased from it; please report this",
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
) -> Searched:
    """Plan an erasure from a checkpoint; the checkpoint is not touched.

    Every batch is searched in savepoints that lead a short life in the directory to work in.

    Raises:
        As `erase_checkpoint`.
    """
    _place(checkpoint)
    catalog, newest, needed = _take_all_batches(checkpoint, folder, record, tell)
    plan = plan_erase(catalog, subject, tell=tell)
    return _summary(checkpoint, subject, plan.searched, newest, needed)


def require_exchange(folder: Path) -> None:
    """Make sure that two directories can change places on this disk.

    Raises:
        Unsupported: They cannot.
    """
    one, other = folder / "exchange-1", folder / "exchange-2"
    one.mkdir()
    other.mkdir()
    exchange(one, other)


def _place(checkpoint: Storage) -> Path:
    place = local_path(checkpoint.uri)
    if place is None:
        raise Unsupported(
            "a checkpoint is erased from on a local disk only",
            code="HF-E7018",
            where=checkpoint.uri,
            hint="take a savepoint of it, erase there, restore that elsewhere, and delete this one",
        )
    elsewhere = operators_elsewhere(checkpoint)
    if elsewhere:
        raise Unsupported(
            "rows of this checkpoint are in a database, from which nothing is erased",
            code="HF-E7019",
            where=checkpoint.uri,
            found=f"blobs of {', '.join(elsewhere)}",
            hint="take a savepoint, erase there, and restore that elsewhere; then delete this checkpoint, and"
            " what the database has under the query's id",
        )
    return place


def _take_all_batches(
    checkpoint: Storage, folder: Path, record: Record | None, tell: ProgressCallback | None
) -> tuple[Storage, str, set[str]]:
    """A catalog with a savepoint of each batch that can be restored, the newest's id, and all files."""
    require_exchange(folder)
    catalog = LocalStorage(folder / "catalog")
    manifests: list[Manifest] = []
    for batch_id in followed(Logs(checkpoint).committed[::-1], tell, "reading batches"):
        try:
            plan = plan_take(checkpoint, catalog, batch_id, record, purpose=_PURPOSE)
        except NotFound:
            if not manifests:
                raise
            continue  # its files are gone in part; the others belong to no batch
        taken = take(checkpoint, catalog, plan)
        manifests.append(taken.manifest)
    if not manifests:
        raise NotFound(
            "there is no committed batch",
            code="HF-E3010",
            where=checkpoint.uri,
            hint="nothing was committed, so delete the directory; its query then reads its input anew",
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
    checkpoint: Storage, subject: Subject, searched: Sequence[Searched], newest: str, needed: Collection[str]
) -> Searched:
    """Summarise all batches: a row that several have counts once, as the batch with most has it."""
    paths = _state_files(_place(checkpoint))
    strays = [path for path in paths if path not in needed]
    most = max(searched, key=lambda savepoint: savepoint.rows)
    summary = Searched(
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
    """Have paths to schemas lead to where the checkpoint will be, and not to where it is made."""
    for file in load(catalog, savepoint_id).files:
        if file.how == SCHEMA_PATHS:
            led = CutFile(file.path, How.SCHEMA_PATHS, file.path)
            data = led.content(made.read(file.path), hadoop_address(uri))
            made.delete(layout.HadoopChecksumFile(file.path).render())
            made.write(file.path, data, replace=True)
