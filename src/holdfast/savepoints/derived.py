"""Create a savepoint from an existing one with some files changed; unchanged files are not stored again."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.verification.file_checks import in_short
from holdfast.checkpoints.verification.verifying import verify
from holdfast.clock import now_ms
from holdfast.errors import Conflict, HoldfastError, Internal
from holdfast.formats.manifest import CHANGE, WHOLE, Manifest, SavedFile, SavepointContent
from holdfast.savepoints.catalog import is_to_be_put, load, object_path, savepoint_uri
from holdfast.savepoints.copying import WORKERS, each
from holdfast.savepoints.digests import digest, recorded
from holdfast.savepoints.leases import Chance, Clock, TakeLease
from holdfast.savepoints.taking import Taken, check_label, new_manifest, publish
from holdfast.savepoints.view import SavepointView
from holdfast.storage.atomic_swap import in_bulk
from holdfast.storage.hashing import hash_file
from holdfast.storage.port import Storage, full

# Looks at what is about to be published; raises if it is not as it should be.
Prove = Callable[[SavepointView], None]


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The changed files of a savepoint.

    Attributes:
        made: The storage of the new files, under their paths in the checkpoint.
        written: The paths of new and changed files.
        removed: The paths of removed files.
    """

    made: Storage
    written: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()

    def files(self, before: Collection[SavedFile]) -> list[SavedFile]:
        """Return the files after the change, ascending by path. Cost: new files are read for their hash."""
        hows = {file.path: file.how for file in before}
        gone = self.written | self.removed
        new = []
        for path in self.written:
            sha256, size = hash_file(self.made, path, self.made.size(path) or 0)
            new.append(SavedFile(path, size, sha256, hows.get(path, WHOLE)))
        return sorted([*(file for file in before if file.path not in gone), *new], key=lambda file: file.path)


def derive(
    catalog: Storage,
    source: Manifest,
    changes: FileChanges,
    change: Mapping[str, Any] | None,
    *,
    noted: Mapping[str, Any] | None = None,
    origin: Storage,
    label: str | None,
    deep: bool = False,
    prove: Prove | None = None,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Create a savepoint from an existing one with some files changed; the existing one is not changed.

    New files are verified like a checkpoint before the manifest is written, which publishes the savepoint.

    Cost: new files are written; all files if the catalog is a different one. Then the rows are counted and
    hashed; rows of unchanged stores only if they have no digests yet.

    Args:
        catalog: The catalog of the new savepoint.
        source: The manifest of the existing savepoint.
        changes: The changed files.
        change: The description of the change for the manifest; None if no state was changed by hand.
        noted: Further fields of the manifest.
        origin: The catalog of the existing savepoint.
        label: A label for display.
        deep: Read the rows of the state regardless of their number, for exact counts and digests.
        prove: A last check of the new savepoint before it is published.
        clock: The time in epoch milliseconds.
        chance: Returns a number of random bytes.
        tell: Called with the number of finished items, the number of all items, and the current step.

    Raises:
        Conflict: A removal is running in the catalog, or the source changed during the call.
        NotFound: The source was deleted during the call.
        Internal: The new savepoint failed verification and was not published.
    """
    check_label(label)
    turn = TakeLease(catalog, chance(8).hex(), clock)
    with turn.hold():
        require_unchanged(origin, source)
        saved = changes.files(source.files)
        with in_bulk(catalog) as quick:
            new_bytes = _store(quick, origin, changes, saved, turn, tell)
        view = SavepointView(catalog, saved, source.checkpoint)
        known = frozenset(file.path for file in source.files) - changes.written
        require_whole(view, known, catalog)
        if prove is not None:
            prove(view)
        manifest = new_manifest(
            view,
            saved,
            {**({} if change is None else {CHANGE: dict(change)}), **(noted or {})},
            label=label,
            new_bytes=sum(new_bytes.values()),
            deep=deep,
            clock=clock,
            chance=chance,
            tell=tell,
        )
        require_unchanged(origin, source)
        publish(catalog, manifest, turn)
    name = manifest.savepoint_id
    with suppress(HoldfastError):  # the savepoint is there; its digests are pending then
        digest(catalog, name, clock=clock, known=_recorded(origin, source), tell=tell)
    return Taken(savepoint_uri(catalog, name), manifest, len(new_bytes))


def _recorded(catalog: Storage, source: Manifest) -> SavepointContent | None:
    """Return the recorded counts and digests of the source, whose stores are mostly unchanged."""
    with suppress(HoldfastError):
        return recorded(catalog, source.savepoint_id)
    return None


def store_object(catalog: Storage, file: SavedFile, origin: Storage, path: str) -> bool:
    """Store a file under its hash, by a link if possible; return False if the catalog has it already.

    Cost: an object that the catalog has is read once.
    """
    if not is_to_be_put(catalog, file.sha256, file.size_bytes):
        return False
    with suppress(Conflict):  # somebody else was quicker
        catalog.copy(path, object_path(file.sha256), origin=origin)
    return True


def _store(
    catalog: Storage,
    home: Storage,
    changes: FileChanges,
    saved: Collection[SavedFile],
    turn: TakeLease,
    tell: ProgressCallback | None,
) -> dict[str, int]:
    """Store new files under their hashes; return the bytes of each that the catalog did not hold."""
    new: dict[str, int] = {}
    elsewhere = catalog.uri != home.uri

    def put(file: SavedFile) -> None:
        turn.beat()
        made = file.path in changes.written
        origin, path = (changes.made, file.path) if made else (home, object_path(file.sha256))
        if store_object(catalog, file, origin, path):
            new[file.sha256] = file.size_bytes

    wanted = {file.sha256: file for file in saved if elsewhere or file.path in changes.written}
    each(put, wanted.values(), WORKERS, tell, "writing")
    return new


def require_unchanged(catalog: Storage, source: Manifest) -> None:
    """Check that a savepoint has not changed since a plan was made with it.

    Raises:
        NotFound: The savepoint was deleted.
        Conflict: The manifest has changed.
    """
    if load(catalog, source.savepoint_id).render() != source.render():
        raise Conflict(
            "the savepoint has changed since the plan was made",
            code="HF-E4049",
            where=savepoint_uri(catalog, source.savepoint_id),
            hint="plan the change again",
        )


def require_whole(view: SavepointView, known: frozenset[str], catalog: Storage) -> None:
    """Verify the files of a new savepoint like a checkpoint.

    Args:
        view: The files.
        known: Files whose bytes were verified before.
        catalog: The catalog that holds them.

    Raises:
        Internal: The verification failed.
    """
    found = verify(view, None, known)
    if found.ok:
        return
    raise Internal(
        "the new savepoint failed verification and was not published",
        code="HF-E9028",
        where=full(catalog.uri, found.problems[0].file),
        found=in_short(found.problems),
        hint="please report this; the original savepoint is unchanged",
    )
