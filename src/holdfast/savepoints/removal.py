"""Delete savepoints and the objects that no remaining savepoint needs."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field, replace

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.clock import now_ms
from holdfast.config.checks import local_path
from holdfast.errors import Corrupt, NotFound, Unsupported
from holdfast.formats.manifest import Manifest
from holdfast.json_shapes import JsonShape, json_as
from holdfast.savepoints.catalog import (
    MANIFEST,
    OBJECTS,
    SAVEPOINTS,
    STAGING,
    ids,
    is_side_file,
    load,
    manifest_path,
    object_path,
    savepoint_uri,
)
from holdfast.savepoints.copying import followed
from holdfast.savepoints.leases import DEAD_AFTER_MS, Chance, Clock, GcLease, takes
from holdfast.storage.atomic_swap import in_bulk
from holdfast.storage.port import Storage, full


@dataclass(frozen=True, slots=True)
class Removal(JsonShape):
    """The removed savepoints and files, or those that would be removed.

    Attributes:
        catalog: The catalog.
        savepoint: The deleted savepoint; None for `gc`.
        paths: The deleted files, without the manifest and the files next to it.
        size_bytes: The bytes freed in the catalog. Hard links from a checkpoint keep them on the disk.
        kept: The remaining savepoints.
        dead: Killed takes whose files are deleted.
        live: Running takes, which prevent the removal.
        unreadable: Savepoints with a damaged manifest: the files that they need are unknown, so no objects
            are deleted.

    Example:
        removal = hf.savepoints.plan_delete("savepoints@daily")
        assert removal.kept == 0
        print(len(removal.paths), removal.size_bytes)
    """

    catalog: str
    savepoint: str | None
    paths: tuple[str, ...] = field(metadata=json_as("files", len, "Number of files to delete."))
    size_bytes: int
    kept: int
    dead: tuple[str, ...] = field(metadata=json_as("dead_takes"))
    live: tuple[str, ...] = field(metadata=json_as("live_takes"))
    unreadable: tuple[str, ...] = ()


def plan_delete(catalog: Storage, savepoint_id: str, now_ms: int) -> Removal:
    """Compute what deleting a savepoint would free; changes nothing.

    Cost: every manifest of the catalog is read.

    Raises:
        NotFound: The savepoint does not exist.
    """
    own = _own(catalog, savepoint_id)
    needed, kept, unreadable = _needed(catalog, but=savepoint_id)
    files = own.files if own is not None and not unreadable else ()
    freed = {file.sha256: file.size_bytes for file in files if file.sha256 not in needed}
    found = takes(catalog, now_ms, DEAD_AFTER_MS)
    return Removal(
        catalog.uri,
        savepoint_uri(catalog, savepoint_id),
        tuple(sorted(object_path(sha256) for sha256 in freed)),
        sum(freed.values()),
        kept,
        (),
        tuple(note.owner for note in found.live),
        unreadable,
    )


def delete(
    catalog: Storage,
    savepoint_id: str,
    *,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    tell: ProgressCallback | None = None,
) -> Removal:
    """Delete a savepoint: its manifest first, then the objects that no other savepoint needs.

    If the process is killed after the manifest is deleted, unneeded objects remain, which `sweep` deletes. If
    the manifest of a remaining savepoint is damaged, the objects that it needs are unknown, so no objects are
    deleted.

    Args:
        catalog: The catalog.
        savepoint_id: The savepoint.
        clock: The function that returns epoch milliseconds.
        chance: The function that returns random bytes; its argument is their number.
        tell: The progress callback, called with the number of finished files, the number of all files, and
            the current step.

    Raises:
        NotFound: The savepoint does not exist.
        Conflict: A savepoint is being taken into this catalog, or another removal is running.
    """
    _own(catalog, savepoint_id)
    turn = GcLease(catalog, chance(8).hex(), clock)
    with turn.hold():
        plan = plan_delete(catalog, savepoint_id, clock())
        catalog.delete(manifest_path(savepoint_id))
        for name in catalog.list(f"{SAVEPOINTS}/{savepoint_id}").names:
            if is_side_file(name):
                catalog.delete(f"{SAVEPOINTS}/{savepoint_id}/{name}")
        _tidy(catalog, savepoint_id)
        _remove(catalog, plan.paths, turn, tell)
    return plan


def plan_sweep(catalog: Storage, now_ms: int, dead_after_ms: int = DEAD_AFTER_MS) -> Removal:
    """Compute what no savepoint needs; changes nothing.

    Cost: every manifest is read, and every directory of the catalog listed.

    Args:
        catalog: The catalog.
        now_ms: The time, in epoch milliseconds.
        dead_after_ms: The age of the last renewal at which a take counts as dead.

    Raises:
        Corrupt: A manifest is damaged, so the files that its savepoint needs are unknown.
    """
    needed, kept, unreadable = _needed(catalog)
    if unreadable:
        raise Corrupt(
            ("nothing was removed, because the files of a savepoint with a damaged manifest are unknown"),
            code="HF-E6047",
            where=full(catalog.uri, manifest_path(unreadable[0])),
            hint="restore the manifest from a copy, or delete the savepoint",
        )
    found = takes(catalog, now_ms, dead_after_ms)
    paths: list[str] = []
    size = 0
    for folder, wanted in _folders(catalog, needed):
        listing = catalog.list(folder)
        for name in sorted(listing.names):
            if name not in wanted:
                paths.append(f"{folder}/{name}")
                size += listing.size(name) or 0
    return Removal(
        catalog.uri,
        None,
        tuple(paths),
        size,
        kept,
        tuple(note.owner for note in found.dead),
        tuple(note.owner for note in found.live),
    )


def sweep(
    catalog: Storage,
    *,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    dead_after_ms: int = DEAD_AFTER_MS,
    tell: ProgressCallback | None = None,
) -> Removal:
    """Delete objects that no savepoint needs, and files left behind by killed takes and removals.

    Args:
        catalog: The catalog.
        clock: The function that returns epoch milliseconds.
        chance: The function that returns random bytes; its argument is their number.
        dead_after_ms: Age of the last renewal after which a take or removal counts as dead. With 0 all count
            as dead, so make sure that none is running.
        tell: The progress callback, called with the number of finished files, the number of all files, and
            the current step.

    Raises:
        Conflict: A savepoint is being taken into this catalog, or another removal is running.
        Corrupt: A manifest is damaged, so the files that its savepoint needs are unknown.
    """
    turn = GcLease(catalog, chance(8).hex(), clock, dead_after_ms)
    with turn.hold() as found:
        for note in found.dead:
            turn.give_up(note)
        for path in found.forgotten:
            catalog.delete(path)
        # Only now is it sure that no take will rely on what is listed: the dead have been given up.
        plan = plan_sweep(catalog, clock(), dead_after_ms)
        _remove(catalog, plan.paths, turn, tell)
        for name in catalog.list(SAVEPOINTS).names:
            _tidy(catalog, name)
    return replace(plan, dead=tuple(note.owner for note in found.dead), live=())


def remove_unneeded(
    catalog: Storage, turn: GcLease, clock: Clock, tell: ProgressCallback | None = None
) -> Removal:
    """Delete unneeded objects within a running removal.

    Args:
        catalog: The catalog.
        turn: The lease of the removal, which the caller holds.
        clock: The function that returns epoch milliseconds.
        tell: The progress callback, called with the number of finished files, the number of all files, and
            the current step.

    Raises:
        Conflict: Another removal has taken over.
        Corrupt: A manifest is damaged, so the files that its savepoint needs are unknown.
    """
    plan = plan_sweep(catalog, clock())
    _remove(catalog, plan.paths, turn, tell)
    return plan


def _folders(catalog: Storage, needed: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """Return every folder whose files the catalog created, and the names in it to keep."""
    below = [
        *((f"{OBJECTS}/{name}", needed) for name in sorted(catalog.list(OBJECTS).names)),
        *((f"{SAVEPOINTS}/{name}", _staying(catalog, name)) for name in ids(catalog)),
    ]
    return [*below, (STAGING, frozenset())]


def _staying(catalog: Storage, savepoint_id: str) -> frozenset[str]:
    """Return the files to keep in a savepoint's directory; without a manifest the others are unneeded."""
    names = catalog.list(f"{SAVEPOINTS}/{savepoint_id}").names
    return frozenset(name for name in names if name == MANIFEST or (MANIFEST in names and is_side_file(name)))


def _needed(catalog: Storage, but: str | None = None) -> tuple[frozenset[str], int, tuple[str, ...]]:
    """Return the hashes that savepoints need, their number, and the savepoints with damaged manifests."""
    hashes: set[str] = set()
    count = 0
    unreadable = []
    for savepoint_id in ids(catalog):
        if savepoint_id == but:
            continue
        try:
            manifest = load(catalog, savepoint_id)
        except NotFound:
            continue  # removed, or never finished
        except (Corrupt, Unsupported):
            unreadable.append(savepoint_id)
            continue
        hashes.update(file.sha256 for file in manifest.files)
        count += 1
    return frozenset(hashes), count, tuple(unreadable)


def _own(catalog: Storage, savepoint_id: str) -> Manifest | None:
    """Return the manifest of the savepoint to delete; None if damaged, then only a sweep frees its files."""
    try:
        return load(catalog, savepoint_id)
    except (Corrupt, Unsupported):
        return None


def _remove(catalog: Storage, paths: tuple[str, ...], turn: GcLease, tell: ProgressCallback | None) -> None:
    with in_bulk(catalog) as quick:
        for path in followed(paths, tell, "deleting"):
            turn.check()
            quick.delete(path)


def _tidy(catalog: Storage, name: str) -> None:
    """Delete the empty directory of a savepoint, which only a local disk has."""
    root = local_path(catalog.uri)
    if root is not None:
        with suppress(OSError):  # it is not empty, so it is not ours to take away
            (root / SAVEPOINTS / name).rmdir()
