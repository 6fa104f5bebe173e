"""Take a savepoint of a committed batch while the query runs.

Sinks identify a query by its id, so a checkpoint never gets a new one. With `id_of`, a savepoint is accepted
only if the checkpoint has the offsets of one of its batches, byte for byte: Spark writes the planning time
into them, so they differ between queries.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from holdfast import layout
from holdfast._version import __version__
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.copy import How
from holdfast.checkpoints.stores import NO_DAMAGE, DamagedFiles
from holdfast.checkpoints.verification.file_checks import Verification, in_short, unlike_recorded
from holdfast.checkpoints.verification.verifying import verify
from holdfast.clock import now_ms
from holdfast.config.checks import place_word
from holdfast.errors import (
    Conflict,
    Corrupt,
    HoldfastError,
    Internal,
    Invalid,
    NotFound,
    Unavailable,
    Unsupported,
)
from holdfast.external.view import is_external
from holdfast.formats.files.checksums import ChecksumComparison, parse_hadoop_checksum
from holdfast.formats.logs.batch_logs import QueryMetadata, parse_query
from holdfast.formats.manifest import Manifest, SavedFile, manifest_of
from holdfast.json_shapes import JsonShape, json_as, json_spread
from holdfast.savepoints.catalog import (
    copies_by_itself,
    is_to_be_put,
    listed,
    load,
    manifest_path,
    modified_ns,
    new_id,
    object_path,
    same_disk,
    same_file,
    savepoint_uri,
)
from holdfast.savepoints.copying import WORKERS, Pace, each
from holdfast.savepoints.leases import Chance, Clock, TakeLease, let_go, staged
from holdfast.savepoints.planning import (
    LOOKS,
    PlannedFile,
    TakePlan,
    facts,
    is_about_a_file,
    named_for_life,
    plan_take,
    see_damage,
    too_fast,
)
from holdfast.savepoints.view import SavepointView
from holdfast.storage import open_storage
from holdfast.storage.atomic_swap import in_bulk
from holdfast.storage.hashing import hash_file, hash_of
from holdfast.storage.local import file_of
from holdfast.storage.port import Listing, Names, ReadOnly, Storage, full


class IdentifiedCheckpoint(ReadOnly):
    """A checkpoint that has lost its query id, shown with one.

    Args:
        checkpoint: The checkpoint.
        query_id: The id.
    """

    def __init__(self, checkpoint: Storage, query_id: str) -> None:
        self._checkpoint = checkpoint
        self._metadata = QueryMetadata(query_id).render()

    @property
    def uri(self) -> str:
        """See `Storage`."""
        return self._checkpoint.uri

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage`."""
        if path != layout.METADATA:
            return self._checkpoint.read(path, start, length)
        return self._metadata[start:] if length is None else self._metadata[start : start + length]

    def list(self, path: str = "") -> Listing:
        """See `Storage`."""
        listing = self._checkpoint.list(path)
        if path:
            return listing
        # A checksum of the lost file is none of this one.
        sums = layout.HadoopChecksumFile(layout.METADATA).render()
        sizes = {name: listing.size(name) for name in listing.names if name != sums}
        return Names({**sizes, layout.METADATA: len(self._metadata)})

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        return len(self._metadata) if path == layout.METADATA else self._checkpoint.size(path)

    def file_of(self, path: str) -> Path | None:
        """Return where a file is on this machine; None where it has to be read."""
        return None if path == layout.METADATA else file_of(self._checkpoint, path)

    def _refuse(self, path: str) -> NoReturn:
        raise Internal(
            "cannot write to a damaged checkpoint",
            code="HF-E9029",
            where=full(self.uri, path),
            hint="please report this",
        )


def with_query_id(checkpoint: Storage, catalog: Storage, savepoint_id: str) -> IdentifiedCheckpoint:
    """Return a view of a checkpoint without a query id, with the id of a savepoint.

    Args:
        checkpoint: The checkpoint.
        catalog: The catalog of the savepoint.
        savepoint_id: A savepoint of the same query.

    Raises:
        Invalid: The checkpoint has a query id.
        NotFound: The savepoint does not exist.
        Conflict: The checkpoint has no offsets of a batch of the savepoint, so the query may be different.
        Unsupported: The state of the checkpoint is in a database.
    """
    with suppress(NotFound, Corrupt):
        query = parse_query(checkpoint.read(layout.METADATA), layout.METADATA)
        raise Invalid(
            "--id-of does not apply to a checkpoint that still has a query id",
            code="HF-E2256",
            where=full(checkpoint.uri, layout.METADATA),
            found=query.query_id,
            hint="omit --id-of",
        )
    if is_external(checkpoint):
        raise Unsupported(
            "--id-of does not support state in a database",
            code="HF-E7100",
            where=checkpoint.uri,
            hint="restore a savepoint of the query",
        )
    manifest = load(catalog, savepoint_id)
    if not _shares_a_batch(checkpoint, manifest):
        raise Conflict(
            "the savepoint given with --id-of may belong to a different query",
            code="HF-E4060",
            where=savepoint_uri(catalog, savepoint_id),
            found=f"batch {manifest.batch_id}, with offsets that the checkpoint does not have",
            expected="a batch with the same offsets in the savepoint and in the checkpoint",
            hint="name a newer savepoint of the query, or restore this one",
        )
    return IdentifiedCheckpoint(checkpoint, manifest.query_id)


def newest_savepoint(checkpoint: Storage, catalogs: Iterable[str]) -> tuple[str, Manifest] | None:
    """Return the newest savepoint of a checkpoint that has lost its query id, and its address.

    Savepoints with changed state and savepoints that share no batch with the checkpoint are skipped.

    Cost: every manifest of the catalogs is read, and at most two small files for each.

    Args:
        checkpoint: The checkpoint.
        catalogs: Addresses of savepoint catalogs; unreadable ones are skipped.
    """
    found: dict[str, Manifest] = {}
    for address in catalogs:
        with suppress(HoldfastError):
            for savepoint in listed(open_storage(address, "catalog")):
                manifest = savepoint.manifest
                if manifest is None or manifest.change is not None or manifest.checkpoint != checkpoint.uri:
                    continue
                if _shares_a_batch(checkpoint, manifest):
                    found[savepoint.uri] = manifest
    return max(found.items(), key=lambda item: item[1].created_ms, default=None)


def lost_id_hint(checkpoint: Storage, catalogs: Iterable[str]) -> str:
    """Return what to do about a checkpoint that has lost its query id.

    Args:
        checkpoint: The checkpoint.
        catalogs: The directories of savepoints that are known.
    """
    place = place_word(checkpoint.uri)
    newest = newest_savepoint(checkpoint, catalogs)
    if newest is None:
        return (
            "restore the file from a copy; or, if a savepoint of the query exists, save the state of this"
            f" checkpoint with `holdfast savepoint take {place} DIR --id-of SAVEPOINT`, and restore it to a"
            " new directory with `holdfast restore`"
        )
    word = place_word(newest[0])
    return (
        f"save the newest batch with `holdfast savepoint take {place} DIR --id-of {word}`, which takes the"
        " query id from that savepoint, and restore it to a new directory with `holdfast restore`; or go back"
        f" to batch {newest[1].batch_id} with `holdfast restore {word} NEW`"
    )


def is_lost_id(error: Corrupt, checkpoint: Storage) -> bool:
    """Return whether an error is about the file with the query's id."""
    return error.where in (layout.METADATA, full(checkpoint.uri, layout.METADATA))


def _shares_a_batch(checkpoint: Storage, manifest: Manifest) -> bool:
    for file in manifest.files:
        place = layout.parse(file.path)
        if isinstance(place, layout.LogFile) and place.log is layout.Log.OFFSETS:
            with suppress(NotFound):
                if hash_of(checkpoint.read(file.path)) == file.sha256:
                    return True
    return False


_LOG: Final = logging.getLogger("holdfast.savepoints")

# A checkpoint that looks damaged twice is damaged, and not only caught while a file was being replaced.
_PROOFS: Final = 2
_LONGEST_LABEL: Final = 200


@dataclass(frozen=True, slots=True)
class Taken(JsonShape):
    """A savepoint that was taken.

    Attributes:
        uri: The savepoint's address.
        manifest: The manifest.
        new_files: Number of files that the catalog did not hold before.
        untold: The note for a query that has no state or has lost it; None if the two can be distinguished.
        damaged: Damaged files of the checkpoint that the savepoint does not need: an older snapshot and the
            changes since contain their state.
        replaced: Damaged objects of the catalog that the take has replaced.

    Example:
        saved = hf.savepoints.take("checkpoints/visits", "savepoints")
        assert saved.manifest.batch_id == 11
        assert saved.new_files == 0  # all files are in the catalog, from the savepoint `daily`
    """

    uri: str = field(metadata=json_as("savepoint"))
    manifest: Manifest = field(metadata=json_spread())
    new_files: int
    untold: str | None = None
    damaged: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


def take(
    checkpoint: Storage,
    catalog: Storage,
    plan: TakePlan,
    *,
    clock: Clock = now_ms,
    chance: Chance = os.urandom,
    label: str | None = None,
    deep: bool = False,
    operation: str | None = None,
    workers: int = WORKERS,
    pace: Pace | None = None,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Take the planned savepoint, or one by a new plan if its files no longer exist.

    The query is not paused and its checkpoint is not changed. State files are hard links if both are on one
    disk, and copied by the object store if both are in one. Files that the catalog holds are not stored
    again. New files are verified like a checkpoint before the manifest is written, which publishes the
    savepoint.

    Cost: new files are read once for their hash and, except linked data files with a checksum, again for the
    verification; and the state's rows, if they are few or `deep` is set. An existing object with the hash of
    a file that was read is also read once, to verify its content. After a mismatch, all objects that the take
    uses are read.

    Args:
        checkpoint: The checkpoint.
        catalog: The catalog.
        plan: The result of `plan_take` for these two.
        clock: The time in epoch milliseconds.
        chance: Returns a number of random bytes.
        label: A label for display.
        deep: Read the rows of the state regardless of their number, for exact counts and digests.
        operation: The id of the control plane's operation that requested the savepoint.
        workers: Number of files to process in parallel.
        pace: Limits the processor use; files are then processed one at a time.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        Conflict: A removal is running in the catalog.
        Corrupt: The checkpoint is damaged; no savepoint was taken.
        Unsupported: The rows were requested but cannot be read; no savepoint was taken.
        NotFound: The requested batch is no longer kept.
        Unavailable: A storage does not answer, or the query deletes files faster than they can be copied.
    """
    check_label(label)
    if pace is not None:
        workers, tell = 1, pace.before(tell)
    _LOG.debug("taking a savepoint of %s into %s", checkpoint.uri, catalog.uri)
    turn = TakeLease(catalog, chance(8).hex(), clock)
    with turn.hold():
        one = _Take(checkpoint, catalog, turn, workers, tell)

        def copied() -> tuple[list[SavedFile], Manifest]:
            with in_bulk(catalog) as quick:
                one.catalog = quick
                saved = one.saved(plan)
            return saved, new_manifest(
                one.view(saved),
                saved,
                {} if operation is None else {"operation": operation},
                label=label,
                new_bytes=one.new_bytes(saved),
                deep=deep,
                clock=clock,
                chance=chance,
                tell=tell,
            )

        try:
            saved, manifest = copied()
        except Corrupt:
            if not one.distrust():
                raise
            saved, manifest = copied()
        publish(catalog, manifest, turn)
    uri = savepoint_uri(catalog, manifest.savepoint_id)
    taken = Taken(
        uri,
        manifest,
        one.new_files(saved),
        plan.untold,
        tuple(sorted(one.damaged)),
        tuple(sorted(one.replaced)),
    )
    _LOG.info("took savepoint %s of %s, batch %d", taken.uri, checkpoint.uri, manifest.batch_id)
    return taken


def check_label(label: str | None) -> None:
    """Raise an error for an invalid label.

    Raises:
        Invalid: The label is empty, too long, or holds control characters.
    """
    if label is None:
        return
    if not label.strip() or len(label) > _LONGEST_LABEL or not label.isprintable():
        raise Invalid(
            "invalid label",
            code="HF-E2257",
            found=repr(label[:_LONGEST_LABEL]),
            expected=f"1 to {_LONGEST_LABEL} printable characters",
            hint="remove line breaks and control characters, or leave the label out",
        )


@dataclass(slots=True)
class _Take:
    """The copying of one take.

    Attributes:
        stored: Size of each object that this take has stored, by hash.
        kept: Paths of files that an earlier savepoint of the checkpoint also has.
        proved: Linked data files that were compared with their checksums while hashed.
        at: The current path of each file in the catalog.
        damaged: Damaged files that the savepoint does not need.
        replaced: Damaged objects of the catalog that this take replaces.
        distrusted: Hashes whose objects have different content.
        relied: The files that were saved last.
    """

    checkpoint: Storage
    catalog: Storage
    turn: TakeLease
    workers: int
    tell: ProgressCallback | None
    stored: dict[str, int] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    proved: set[str] = field(default_factory=set)
    at: dict[str, str] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    replaced: set[str] = field(default_factory=set)
    distrusted: set[str] = field(default_factory=set)
    relied: list[SavedFile] = field(default_factory=list)

    def saved(self, plan: TakePlan) -> list[SavedFile]:
        """Return the files of the plan in the catalog, or those of a newer plan, verified."""
        links = same_disk(self.checkpoint, self.catalog)
        found: Verification | None = None
        proofs = 0
        damage = NO_DAMAGE
        for look in range(LOOKS):
            try:
                saved = self._copied(plan if look == 0 else self._planned_again(plan, damage), links, look)
            except (NotFound, Corrupt) as error:
                let_go(self.catalog, self.turn.token)
                if found is not None and damage != NO_DAMAGE:  # it cannot do without what is damaged
                    raise self._refusal(found, plan) from error
                if isinstance(error, Corrupt) or not is_about_a_file(error, self.checkpoint):
                    raise
                gone = error
                continue
            self.relied = saved
            found = self._verified(saved, plan)
            if not found.ok and self.distrust():
                continue
            proofs += 1
            if found.ok:
                self.damaged = {*damage.unreadable, *damage.wrong}
                return saved
            if proofs >= _PROOFS:
                before, damage = damage, _both(damage, found.damage)
                if damage == before:
                    break
        if found is not None:
            raise self._refusal(found, plan)
        raise too_fast(gone) from gone

    def distrust(self) -> bool:
        """Hash the objects that were in the catalog before; return True if a hash is not the object's name.

        Such objects are replaced when the files are copied again: damage of the catalog is not damage of the
        checkpoint.
        """
        held = {file.sha256: file for file in self.relied if file.sha256 not in self.stored}
        hashes = each(
            lambda file: hash_file(self.catalog, object_path(file.sha256), file.size_bytes)[0],
            held.values(),
            self.workers,
            self.tell,
            "hashing",
        )
        wrong = {sha256 for sha256, found in zip(held, hashes, strict=True) if sha256 != found}
        new = wrong - self.distrusted
        self.distrusted |= wrong
        return bool(new)

    def _planned_again(self, plan: TakePlan, damage: DamagedFiles) -> TakePlan:
        return plan_take(
            self.checkpoint,
            self.catalog,
            plan.asked,
            plan.record,
            purpose=plan.purpose,
            damage=damage,
        )

    def view(self, saved: list[SavedFile]) -> SavepointView:
        """Return the saved files as a checkpoint."""
        return SavepointView(self.catalog, saved, self.checkpoint.uri)

    def new_bytes(self, saved: list[SavedFile]) -> int:
        """Return the number of bytes that the catalog did not hold before."""
        return sum(self.stored[sha256] for sha256 in {file.sha256 for file in saved} if sha256 in self.stored)

    def new_files(self, saved: list[SavedFile]) -> int:
        """Return the number of files that the catalog did not hold before."""
        return len({file.sha256 for file in saved} & self.stored.keys())

    def _copied(self, plan: TakePlan, links: bool, look: int) -> list[SavedFile]:
        """Hold every file first, so that none can be deleted, and then hash them."""
        self.proved.clear()
        self.kept.clear()
        numbered = enumerate(plan.files, start=look * len(plan.files))
        held = each(
            lambda item: self._hold(item[1], staged(self.turn.token, item[0]), links),
            numbered,
            self.workers,
            self.tell,
            "copying",
        )
        return each(
            lambda one: one if isinstance(one, SavedFile) else self._settle(*one),
            held,
            self.workers,
            self.tell,
            "hashing",
        )

    def _hold(self, planned: PlannedFile, hold: str, links: bool) -> SavedFile | tuple[PlannedFile, str]:
        self.turn.beat()
        file, size = planned.file, planned.size_bytes
        before = planned.held
        if (
            before is not None
            and before.sha256 not in self.distrusted
            and self.catalog.size(object_path(before.sha256)) == size
        ):
            self.kept.add(file.path)
            self.at[file.path] = object_path(before.sha256)
            return before
        if links and file.how is How.WHOLE and never_changes(file.path):
            self.catalog.copy(file.origin, hold, origin=self.checkpoint)
            self.at[file.path] = hold
            return planned, hold
        data = self.checkpoint.read(file.origin)
        if file.how is How.SOURCE_LOG:
            data = file.content(data, "")
        sha256 = hash_of(data)
        # What may get other bytes under its name must not be copied after it was read.
        aside = file.how is How.WHOLE and named_for_life(file.path)
        if aside and copies_by_itself(self.checkpoint, self.catalog):
            self._store(
                sha256, len(data), lambda path: self.catalog.copy(file.origin, path, origin=self.checkpoint)
            )
        else:
            self._store(sha256, len(data), lambda path: self.catalog.write(path, data))
        return SavedFile(file.path, len(data), sha256, file.how.value)

    def _settle(self, planned: PlannedFile, hold: str) -> SavedFile:
        self.turn.beat()
        written_ns = modified_ns(self.catalog, hold)
        sums = self._sums(planned.file.path)
        see = None if sums is None else sums.see
        try:
            sha256, size = hash_file(self.catalog, hold, planned.size_bytes, see)
        except Unavailable as error:
            # A link in the catalog says as little of its file as any name.
            where = full(self.checkpoint.uri, planned.file.origin)
            raise Unavailable(error.fact, **(error.facts() | {"where": where})) from error
        self._store(sha256, size, lambda path: self.catalog.copy(hold, path))
        self.at[planned.file.path] = object_path(sha256)
        self.catalog.delete(hold)
        linked = same_file(self.checkpoint, planned.file.origin, self.catalog, object_path(sha256))
        # Only of a link are the catalog's bytes those that were read here.
        if linked and sums is not None and sums.fits:
            self.proved.add(planned.file.path)
        return SavedFile(
            planned.file.path, size, sha256, planned.file.how.value, written_ns if linked else None
        )

    def _sums(self, path: str) -> ChecksumComparison | None:
        """Return the checksum that Hadoop wrote for a data file, which saves reading most of a state twice.

        None if it is missing or unreadable; the verification then reports that.
        """
        if not isinstance(layout.parse(path), layout.SharedSstFile):
            return None
        beside = layout.HadoopChecksumFile(path).render()
        try:
            return ChecksumComparison(parse_hadoop_checksum(self.catalog.read(self.at[beside]), beside))
        except (KeyError, NotFound, Corrupt):
            return None

    def _store(self, sha256: str, size: int, put: Callable[[str], None]) -> None:
        path = object_path(sha256)
        if sha256 in self.stored or not is_to_be_put(self.catalog, sha256, size, self.replaced):
            return
        try:
            put(path)
            self.stored[sha256] = size
        except Conflict:
            pass  # another take, or another file of this one, was quicker

    def _verified(self, saved: list[SavedFile], plan: TakePlan) -> Verification:
        """Verify the saved files, and compare them with the checkpoint's integrity record."""
        # What is in an earlier savepoint was verified for that, and only new bytes are looked into.
        found = verify(self.view(saved), self.tell, self.proved | self.kept, unpack=False, placed=self.kept)
        if plan.record is None:
            return found
        whole = [(file.path, file.size_bytes, file.sha256) for file in saved if file.how == How.WHOLE.value]
        unlike = {problem.file: problem for problem in unlike_recorded(plan.record, whole)}
        problems = {problem.file: problem for problem in found.problems} | unlike
        wrong = DamagedFiles(wrong=frozenset(unlike.keys() - found.damage.unreadable))
        return replace(
            found,
            problems=tuple(problems[file] for file in sorted(problems)),
            damage=_both(found.damage, wrong),
        )

    def _refusal(self, found: Verification, plan: TakePlan) -> Corrupt:
        return Corrupt(
            f"the checkpoint is damaged, so {plan.purpose.refused}",
            code="HF-E6052",
            where=full(self.checkpoint.uri, found.problems[0].file),
            found=in_short(found.problems),
            hint=see_damage(self.checkpoint, plan.purpose),
        )


def _both(one: DamagedFiles, other: DamagedFiles) -> DamagedFiles:
    return DamagedFiles(one.unreadable | other.unreadable, one.wrong | other.wrong)


def never_changes(path: str) -> bool:
    """Return whether a file of a checkpoint never changes once it exists, so that a link is a copy.

    State files and their checksums are written atomically. Small files are copied nevertheless, because a
    link would save little.
    """
    return layout.state_file(path) is not None


def new_manifest(
    view: SavepointView,
    saved: Sequence[SavedFile],
    noted: Mapping[str, Any],
    *,
    label: str | None,
    new_bytes: int,
    deep: bool,
    clock: Clock,
    chance: Chance,
    tell: ProgressCallback | None,
) -> Manifest:
    """Return the manifest of a new savepoint.

    Args:
        view: The savepoint, under the address of its checkpoint.
        saved: The files of the savepoint.
        noted: Further fields of the manifest.
        label: A label for display.
        new_bytes: The bytes that the catalog did not hold before.
        deep: Read the rows of the state regardless of their number.
        clock: The time in epoch milliseconds.
        chance: Returns a number of random bytes.
        tell: Called with the number of finished stores, the number of all stores, and the current step.
    """
    created_ms = clock()
    told = facts(view, [file.path for file in saved], deep=deep, tell=tell)
    fields = {
        "id": new_id(created_ms, told["query_id"], told["batch"], chance(2)),
        "label": label,
        "created_ms": created_ms,
        "checkpoint": view.uri,
        **told,
        "size_bytes": sum(file.size_bytes for file in saved),
        "new_bytes": new_bytes,
        "holdfast": __version__,
        **noted,
    }
    return manifest_of(fields, saved)


def publish(catalog: Storage, manifest: Manifest, turn: TakeLease) -> None:
    """Write a manifest, which publishes its savepoint, and read it back.

    Raises:
        Conflict: The lease of the take expired; no savepoint was taken.
        Corrupt: The manifest read back differs from what was written; no savepoint was taken.
    """
    path, data = manifest_path(manifest.savepoint_id), manifest.render()
    turn.check()
    catalog.write(path, data)
    try:
        turn.check()
        if catalog.read(path) != data:
            raise Corrupt(
                "the savepoint's manifest read back differs from what was written",
                code="HF-E6053",
                where=full(catalog.uri, path),
                hint="take the savepoint again; if it happens again, check the disk",
            )
    except HoldfastError:
        catalog.delete(path)
        raise
