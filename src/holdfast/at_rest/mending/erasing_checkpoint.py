"""Erase a key from a stopped query's checkpoint: from its newest batch, by giving up every older one.

A checkpoint keeps older batches and files that nothing refers to any more, in which the key is too. So a new
checkpoint is made of the newest batch without the key, beside the old one, and the two change places in one
step. Before it the old one is there, whole, after it the new one.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from holdfast import layout
from holdfast.at_rest.mending.certificate import Certificate, Searched, merged
from holdfast.at_rest.mending.erasing import erase
from holdfast.at_rest.mending.matching import Subject
from holdfast.checkpoints.cutting import CutFile, How
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.verifying import verify
from holdfast.config.storage import local_path
from holdfast.engine.ownership import holder, in_use, lock_path
from holdfast.errors import Internal, NotFound, Unsupported
from holdfast.formats.manifest import SCHEMA_PATHS
from holdfast.savepoints.catalog import load
from holdfast.savepoints.copying import Tell
from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.restoring import Operation, hadoop_address, plan_restore, restore
from holdfast.savepoints.taking import Chance, take
from holdfast.savepoints.turns import Clock
from holdfast.storage.exchange import exchange
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage


def erase_checkpoint(
    checkpoint: Storage,
    subject: Subject,
    folder: Path,
    *,
    who: str,
    why: str | None,
    clock: Clock,
    chance: Chance,
    tell: Tell | None = None,
) -> Searched:
    """Erase a key from a checkpoint that no query uses.

    Where the key is in any batch that is kept, or where files are that belong to none, only the newest batch
    is left afterwards; the query goes on after it as it would have.

    Args:
        checkpoint: The checkpoint, on a local disk.
        subject: Who is meant.
        folder: A directory to work in beside the checkpoint, which is the caller's to remove.
        who: Who does it.
        why: What for.
        clock: The time in epoch milliseconds.
        chance: So many random bytes.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        Conflict: A query uses the checkpoint.
        Unsupported: It is not on a local disk, or two directories cannot change places there.
        Corrupt: It is damaged.
    """
    place = local_path(checkpoint.uri)
    if place is None:
        raise Unsupported(
            "a checkpoint is erased from on a local disk only",
            where=checkpoint.uri,
            hint="take a savepoint of it, erase there, restore that elsewhere, and delete this one",
        )
    with _held(checkpoint):
        catalog = LocalStorage(folder / "catalog")
        newest, batches = _taken(checkpoint, catalog, clock, chance, tell)
        needed = {file.path for each in batches for file in load(catalog, each).files}
        certificate = erase(
            catalog, subject, folder / "work", who=who, why=why, clock=clock, token=chance(8).hex(), tell=tell
        )
        strays = [path for path in _state_files(place) if path not in needed]
        found = _summary(checkpoint, certificate, len(needed), len(strays))
        if not certificate.rewritten and not strays:
            return found
        made = folder / "checkpoint"
        plan = plan_restore(
            catalog,
            newest,
            LocalStorage(made),
            Operation.RESTORE,
            chance=chance,
            named=(checkpoint.uri, checkpoint.uri),
            tell=tell,
        )
        restore(catalog, LocalStorage(made), plan, clock=clock, tell=tell)
        _lead(LocalStorage(made), catalog, newest, checkpoint.uri)
        if not verify(LocalStorage(made)).ok:
            raise Internal("the new checkpoint does not verify; the old stays", where=checkpoint.uri)
        exchange(place, made)
        return replace(found, rewritten=max(1, found.rewritten))


def _taken(
    checkpoint: Storage, catalog: Storage, clock: Clock, chance: Chance, tell: Tell | None
) -> tuple[str, list[str]]:
    """A savepoint of every batch that can still be restored; the newest one's id, and all."""
    found: list[str] = []
    logs = Logs(checkpoint)
    for batch_id in reversed(logs.committed):
        try:
            plan = plan_take(checkpoint, catalog, batch_id)
        except NotFound:
            if not found:
                raise
            continue  # its files are gone in part; the others belong to no batch
        taken = take(checkpoint, catalog, plan, clock=clock, chance=chance, tell=tell)
        found.append(taken.manifest.savepoint_id)
    if not found:
        raise NotFound("there is no committed batch", where=checkpoint.uri)
    return found[0], found


def _state_files(place: Path) -> list[str]:
    return [
        str(file.relative_to(place))
        for file in (place / layout.STATE).rglob("*")
        if file.is_file() and not file.name.endswith(layout.CRC)
    ]


def _summary(checkpoint: Storage, certificate: Certificate, files: int, strays: int) -> Searched:
    """What was found, over all batches: a row that several have counts as the batch with most has it."""
    most = max(certificate.searched, key=lambda each: each.rows)
    return Searched(
        place=checkpoint.uri,
        files=files + strays,
        found=merged(most.found),
        traces=sum(each.traces for each in certificate.searched) + strays,
        rewritten=sum(each.rewritten for each in certificate.searched),
        before=None,
        after=None,
    )


def _lead(made: Storage, catalog: Storage, savepoint_id: str, uri: str) -> None:
    """Have paths to schemas lead to where the checkpoint will be, and not to where it is made."""
    for file in load(catalog, savepoint_id).files:
        if file.how == SCHEMA_PATHS:
            led = CutFile(file.path, How.SCHEMA_PATHS, file.path)
            data = led.content(made.read(file.path), hadoop_address(uri))
            made.delete(layout.HadoopChecksum(file.path).render())
            made.write(file.path, data, replace=True)


@contextmanager
def _held(checkpoint: Storage) -> Iterator[None]:
    """Hold a checkpoint's lock, so that no job begins on it meanwhile."""
    path = lock_path(checkpoint.uri, Path())
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise in_use(path, holder(path)) from None
        yield
    finally:
        os.close(descriptor)
