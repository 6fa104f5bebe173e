"""Create a checkpoint from a savepoint, for its own query or for a new one."""

from __future__ import annotations

import json
import logging
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import ProgressCallback, Tree, read
from holdfast.checkpoints.copy import CutFile, How
from holdfast.checkpoints.discovery import newest_of_flow
from holdfast.clock import now_ms
from holdfast.config.checks import local_path, place_word
from holdfast.errors import Conflict, Corrupt, NotFound
from holdfast.external.view import with_state
from holdfast.formats.files.checksums import hadoop_checksum
from holdfast.formats.logs.batch_logs import QueryMetadata, of_spark_4
from holdfast.formats.logs.table_logs import LOG_DIRECTORY, empty_log
from holdfast.formats.manifest import EXPIRED, SCHEMA_PATHS, Manifest, SavedFile
from holdfast.formats.providers import ExternalState, external_state
from holdfast.formats.text import foreign_json
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, json_spread
from holdfast.ownership.checkpoint_guard import MACHINE_TIMING, Timing
from holdfast.ownership.target_claim import Claim, claimed, refuse_claimed
from holdfast.quantities import counted
from holdfast.savepoints.catalog import copies_by_itself, object_path, same_disk, same_file, savepoint_uri
from holdfast.savepoints.copying import WORKERS, each
from holdfast.savepoints.external_stores import clear_stores, offsets_outside, outside, write_stores
from holdfast.savepoints.leases import Chance, Clock
from holdfast.savepoints.nesting import check_apart, check_target
from holdfast.savepoints.proof import prove
from holdfast.savepoints.taking import never_changes
from holdfast.savepoints.view import SavepointView
from holdfast.storage import open_storage
from holdfast.storage.atomic_swap import in_bulk
from holdfast.storage.hashing import hash_file, hash_of
from holdfast.storage.port import Storage, full
from holdfast.storage.remote import hadoop_address
from holdfast.storage.successors import current_address

_NEW_TABLE: Final = "name a new directory; a table with files is never changed"


def open_table(address: str | os.PathLike[str], checkpoint: Storage) -> Storage:
    """Open the directory of a table that the query of a new checkpoint will write to.

    Raises:
        Invalid: The address is not valid, or the table and the checkpoint contain one another.
    """
    table = open_storage(os.fspath(address), "table")
    check_apart(checkpoint, table, "table", hint="name the directory that the query writes its files to")
    return table


def require_new(table: Storage, batch_id: int) -> None:
    """Raise an error for a table that contains more than the log that `prepare` writes.

    Raises:
        Conflict: The directory has files.
    """
    names = set(table.list().names) - {LOG_DIRECTORY}
    wanted = empty_log(batch_id)
    entries = set(table.list(LOG_DIRECTORY).names)
    other = sorted(names) or sorted(
        f"{LOG_DIRECTORY}/{name}"
        for name in entries
        if name not in wanted or table.read(f"{LOG_DIRECTORY}/{name}") != wanted[name]
    )
    if other:
        raise Conflict(
            "the table directory is not empty",
            code="HF-E4058",
            where=table.uri,
            found=other[0],
            expected="no files",
            hint=_NEW_TABLE,
        )


def prepare(table: Storage, batch_id: int) -> None:
    """Write the log of a new table, so that a query can resume after a batch.

    Without it Spark's file sink fails for good at its next compaction, up to ten batches later, since its log
    has no entries of the batches before.

    Raises:
        Conflict: The directory has files.
    """
    require_new(table, batch_id)
    for name, data in empty_log(batch_id).items():
        table.write(f"{LOG_DIRECTORY}/{name}", data, replace=True)


_LOG: Final = logging.getLogger("holdfast.savepoints")
ORIGIN: Final = layout.ORIGIN
# What the names of the stores in a database have in them, which this restore has made.
_STORES: Final = "stores"
_MADE_MS: Final = "made_ms"
_NEW: Final = "name a new directory; a checkpoint is never overwritten"
_FINISHED: Final = (
    "start the query on the existing checkpoint, which is complete and unused, or name a new directory"
)


class RestoreKind(str, Enum):
    """The operation behind a checkpoint: for the same query, a new one, or with changed state or offsets.

    Example:
        plan = hf.savepoints.plan_rescale("checkpoints/visits", partitions=4)
        assert plan.operation is hf.savepoints.RestoreKind.RESCALE
    """

    RESTORE = "restore"
    FORK = "fork"
    RESCALE = "rescale"
    MIGRATE = "migrate"
    EVOLVE = "evolve"
    OFFSETS = "offsets"
    CHANGE = "change"


_CHANGED: Final = (
    RestoreKind.RESCALE,
    RestoreKind.MIGRATE,
    RestoreKind.EVOLVE,
    RestoreKind.OFFSETS,
    RestoreKind.CHANGE,
)


@dataclass(frozen=True, slots=True)
class RestorePlan(JsonShape):
    """The plan of a restore or a fork, after the savepoint was proved.

    Attributes:
        operation: `restore`, `fork` or a change.
        savepoint: The savepoint, or the source that the user named.
        original: The checkpoint that the savepoint was taken from.
        checkpoint: The new checkpoint.
        manifest: The manifest of the savepoint.
        query_id: The query id of the new checkpoint.
        left: Files of an interrupted attempt, which are written again.
        done: True if such an attempt has written all files.
        external: The database for the state; None if it stays in files.
        stores: The unique part of the store names in the database.
        table: The address of a new table whose log is prepared for the query; None without one.

    Example:
        plan: hf.savepoints.RestorePlan
        plan = hf.savepoints.plan_fork("savepoints@daily", "checkpoints/visits-trial")
        assert plan.query_id != plan.manifest.query_id
    """

    operation: RestoreKind
    savepoint: str
    original: str = field(metadata=NOT_IN_JSON)
    checkpoint: str
    manifest: Manifest = field(metadata=json_spread("batch_id", "files", "size_bytes", EXPIRED))
    query_id: str
    left: tuple[str, ...] = field(metadata=NOT_IN_JSON)
    done: bool = field(metadata=NOT_IN_JSON)
    external: ExternalState | None = field(default=None, metadata=NOT_IN_JSON)
    stores: str = field(default="", metadata=NOT_IN_JSON)
    table: str | None = None

    @property
    @in_json
    def database(self) -> str | None:
        """The database that the state is written to; None if the state is in files."""
        return None if self.external is None else self.external.database

    @property
    @in_json
    def state_format(self) -> int | None:
        """The state-checkpoint format that the query must be started with; None without state."""
        formats = [operator["format_version"] for operator in self.manifest.fields.get("operators") or ()]
        return max(formats, default=None)

    @property
    def has_formats(self) -> bool:
        """Return whether the Spark that wrote the state has a setting for the state-checkpoint format."""
        confs = self.manifest.fields.get("confs")
        return isinstance(confs, dict) and of_spark_4(confs)


@dataclass(frozen=True, slots=True)
class Restored(JsonShape):
    """A checkpoint that was created from a savepoint.

    Attributes:
        plan: The plan that was carried out.
        linked_bytes: The bytes in hard links into the catalog, which take no additional space.

    Example:
        restored = hf.savepoints.restore("savepoints@daily", "checkpoints/visits-restored")
        assert restored.checkpoint.endswith("checkpoints/visits-restored")
        assert restored.batch_id == 11  # the query continues with batch 12
    """

    plan: RestorePlan = field(metadata=json_spread())
    linked_bytes: int

    @property
    def checkpoint(self) -> str:
        """The checkpoint's address."""
        return self.plan.checkpoint

    @property
    def batch_id(self) -> int:
        """The batch of the checkpoint; the query continues with the next one."""
        return self.plan.manifest.batch_id

    @property
    def query_id(self) -> str:
        """The query's id."""
        return self.plan.query_id


def plan_restore(
    catalog: Storage,
    savepoint_id: str,
    target: Storage,
    operation: RestoreKind,
    *,
    chance: Chance = os.urandom,
    named: tuple[str, str] | None = None,
    again: bool = False,
    database: str | None = None,
    in_files: bool = False,
    table: Storage | None = None,
    accept_loss: bool = False,
    workers: int = WORKERS,
    tell: ProgressCallback | None = None,
) -> RestorePlan:
    """Verify a savepoint and check the target, without changing anything.

    Args:
        catalog: The savepoint's catalog.
        savepoint_id: The savepoint.
        target: The new checkpoint.
        operation: The operation, which decides whether the query keeps its id.
        chance: Returns a number of random bytes, for the id of a fork.
        named: The source that the user named and its checkpoint, if the savepoint is temporary.
        again: Accept the finished, unused result of an earlier call.
        database: The database for state that was in a database; by default the original one.
        in_files: Keep such state in files, in the format of Spark's memory provider.
        table: The directory of a new table, whose log is prepared for the query.
        accept_loss: Accept a target whose table has later batches than the savepoint.
        workers: Number of files to read in parallel.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: The savepoint is damaged.
        Conflict: The target exists, its table has later batches, or the new table is not empty.
        Invalid: The target and the catalog contain one another, or a database is given for state in files.
        Unavailable: The database does not answer.
    """
    check_apart(target, catalog)
    uri = savepoint_uri(catalog, savepoint_id)
    savepoint = uri if named is None else named[0]
    left, origin = free(target, savepoint, operation)
    manifest = prove(catalog, savepoint_id, workers=workers, tell=tell).require()
    _refuse_strange_files(manifest, uri)
    original = manifest.checkpoint if named is None else named[1]
    if not accept_loss:
        require_newest_of_flow(target, original, manifest.batch_id, manifest.query_id)
    if table is not None:
        require_new(table, manifest.batch_id)
    done = layout.METADATA in left
    if done and _gone_on(left, manifest.batch_id):
        raise _target_in_use(target, f"a {operation.value} of this savepoint that a query has continued")
    if done and not again:
        raise _target_in_use(target, f"a finished {operation.value} of this savepoint", _FINISHED)
    query_id = manifest.query_id
    if operation is RestoreKind.FORK:
        query_id = str(origin["query_id"]) if origin else str(uuid.UUID(bytes=chance(16), version=4))
    external = None
    if not in_files:
        external = outside(external_state(manifest.fields.get("confs") or {}), database, savepoint)
    stores = str((origin or {}).get(_STORES) or ("" if external is None else chance(6).hex()))
    return RestorePlan(
        operation,
        savepoint,
        original,
        target.uri,
        manifest,
        query_id,
        left,
        done,
        external,
        stores,
        None if table is None else table.uri,
    )


def _refuse_strange_files(manifest: Manifest, uri: str) -> None:
    """Raise an error for a file that no take saves; its name may come from an attacker."""
    strange = (layout.UnknownFile, layout.Temporary)
    for file in manifest.files:
        if isinstance(layout.parse_covered(file.path), strange):
            raise Corrupt(
                "the savepoint contains an unexpected file",
                code="HF-E6048",
                where=uri,
                found=file.path,
                expected="only files of a Spark checkpoint or of Holdfast",
                hint="take a new savepoint of the query, or restore an earlier one",
            )


def require_newest_of_flow(target: Storage, original: str, batch_id: int, query_id: str) -> None:
    """Raise an error if the target is a version of a pipeline's flow, and its table may have later batches.

    Spark's sinks for files and Delta skip a batch that the table already has. The query would read the input
    of these batches again and write nothing, and the rows of later input under their numbers would be lost.

    Args:
        target: The checkpoint to create.
        original: The address of the checkpoint with the state, or that its savepoint was taken from.
        batch_id: The batch after which it continues.
        query_id: The id of its query.

    Raises:
        Conflict: A different version of the flow has planned a later batch.
        Unavailable: The storage does not answer.
    """
    newest = newest_of_flow(target.uri, original, query_id)
    if newest is None or newest[1] <= batch_id:
        return
    raise Conflict(
        "the flow's table may have later batches, which the sink would skip, so rows would be lost",
        code="HF-E4093",
        where=target.uri,
        found=f"state of batch {batch_id}, and batch {newest[1]} in {newest[0]}",
        expected=f"state of batch {newest[1]} or later",
        hint="restore the newest savepoint of the flow, or reload the table with `spark-pipelines run"
        " --full-refresh TABLE`; if the table no longer has the later batches, use `holdfast restore` with"
        " --accept-loss",
    )


def free(
    target: Storage, savepoint: str, operation: RestoreKind
) -> tuple[tuple[str, ...], Mapping[str, Any] | None]:
    """Check that a target is empty except for files of an interrupted attempt of the same operation.

    Returns:
        The files of that attempt, and its origin note.

    Raises:
        Conflict: The target has other files, was replaced, or a different command is writing to it.
        Invalid: The target is inside a checkpoint or a catalog.
    """
    check_target(target)
    current = current_address(target.uri)
    if current != target.uri:
        raise Conflict(
            "a checkpoint at this address was replaced, so a job would not use a new one",
            code="HF-E4092",
            where=target.uri,
            found=f"replaced by {current}",
            hint="give a new directory, and the job its address",
        )
    refuse_claimed(target)
    return _left_over(target, savepoint, operation)


def _left_over(
    target: Storage, savepoint: str, operation: RestoreKind
) -> tuple[tuple[str, ...], Mapping[str, Any] | None]:
    left = _present(target)
    origin = _origin(target) if left else None
    if left and origin is None:
        raise _target_in_use(target, f"{counted(len(left), 'file')}, such as {left[0]}")
    if origin is not None and (origin.get("savepoint"), origin.get("operation")) != (
        savepoint,
        operation.value,
    ):
        raise _target_in_use(target, f"a {origin.get('operation')} of {origin.get('savepoint')}")
    if operation in _CHANGED and layout.METADATA in left:
        # Its source may have continued; what was made of it then is not what would be made now.
        raise _target_in_use(target, f"a finished {operation.value} of {savepoint}")
    return left, origin


def restore(
    catalog: Storage,
    target: Storage,
    plan: RestorePlan,
    *,
    clock: Clock = now_ms,
    timing: Timing = MACHINE_TIMING,
    workers: int = WORKERS,
    tell: ProgressCallback | None = None,
) -> Restored:
    """Create the planned checkpoint, with `metadata` as the last file, and read it back.

    The log of a new table is written right before `metadata`. Until `metadata` exists, Spark refuses to start
    on the directory, and the same call repeats an interrupted restore, whose files are marked. Of concurrent
    calls one succeeds; files of a different attempt are deleted only if its process is dead.

    Cost: hard links if both are on one disk, server-side copies if both are in one object store; otherwise
    every file is read and written. Files that are not links are read back.

    Args:
        catalog: The savepoint's catalog.
        target: The checkpoint.
        plan: The result of `plan_restore` for these.
        clock: The time in epoch milliseconds.
        timing: The clocks for the lease.
        workers: Number of files to process in parallel.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        Conflict: A different command is writing to the target, or has created a checkpoint there.
        Corrupt: The checkpoint read back differs from what was written.
        NotFound: The savepoint was deleted during the call.
        Unavailable: The database of the state does not answer, or is full.
    """
    if plan.done:
        _check_as_checkpoint(target, plan)
    else:
        _LOG.debug("restoring %s to %s", catalog.uri, target.uri)
        begun_ms = clock()
        _, origin = _left_over(target, plan.savepoint, plan.operation)
        note = _origin_file(plan, begun_ms) if origin is None else None
        with claimed(target, note, timing=timing, tell=tell) as claim:
            # Whoever was at work here may have continued since the plan, and is dead or has finished by now.
            left, origin = _left_over(target, plan.savepoint, plan.operation)
            if layout.METADATA in left:
                raise _target_in_use(
                    target, f"a finished {plan.operation.value} of this savepoint", _FINISHED
                )
            plan = _as_begun(plan, origin)
            if not _says(origin, plan):
                claim.rewrite(_origin_file(plan, begun_ms))
            _make(catalog, target, plan, left, claim, workers, tell)
            _check_as_checkpoint(target, plan)
            claim.require()
    linked = [
        file.size_bytes
        for file in plan.manifest.files
        if same_file(catalog, object_path(file.sha256), target, file.path)
    ]
    _LOG.info("made %s from savepoint %s", target.uri, plan.manifest.savepoint_id)
    return Restored(plan, sum(linked))


def withdraw(target: Storage) -> None:
    """Delete a checkpoint that was just created and not yet reported.

    `metadata` is deleted first, so that Spark refuses to start on it, and the origin note last.

    Raises:
        Conflict: A different command is now writing to the target.
    """
    with claimed(target, None):
        tree, remote = Tree(target), local_path(target.uri) is None
        # HDFS lists the directory of the claim as well, and deletes no directory that has files.
        paths = [path for path, _ in tree.places() if not remote or tree.size(path) is not None]
        target.delete(layout.METADATA)
        clear_stores(target)
        for path in sorted(paths, key=lambda path: (path == ORIGIN, path != layout.METADATA)):
            target.delete(path)
    place = local_path(target.uri)
    for folder, _, _ in os.walk(place, topdown=False) if place is not None else ():
        with suppress(OSError):  # another command has begun there since
            Path(folder).rmdir()


def _make(
    catalog: Storage,
    target: Storage,
    plan: RestorePlan,
    left: tuple[str, ...],
    claim: Claim,
    workers: int,
    tell: ProgressCallback | None,
) -> None:
    with in_bulk(target) as quick:
        links = same_disk(catalog, target) or copies_by_itself(catalog, target)
        one = _Restore(catalog, quick, plan, {file.path: file for file in plan.manifest.files}, links)
        each(quick.delete, [path for path in left if path != ORIGIN], workers)
        files = [file for file in plan.manifest.files if one.goes_with_others(file)]
        each(one.put, files, workers, tell, "copying")
        each(one.check, files, workers, tell, "reading back")
        if plan.external is not None:
            view = SavepointView(catalog, plan.manifest.files, plan.manifest.checkpoint)
            write_stores(view, quick, plan.manifest.batch_id, plan.query_id, plan.external, plan.stores, tell)
    metadata = one.content(one.files[layout.METADATA])
    sums = one.files.get(layout.HadoopChecksumFile(layout.METADATA).render())
    if plan.table is not None:
        prepare(open_storage(plan.table), plan.manifest.batch_id)
    claim.require()
    if sums is not None and not one.goes_with_others(sums):
        target.write(sums.path, one.content(sums))
    target.write(layout.METADATA, metadata)


@dataclass(frozen=True, slots=True)
class _Restore:
    """The copying of one restore.

    Attributes:
        files: The files of the savepoint by path.
        links: True if files are linked or copied without being read by this process.
    """

    catalog: Storage
    target: Storage
    plan: RestorePlan
    files: Mapping[str, SavedFile]
    links: bool

    def goes_with_others(self, file: SavedFile) -> bool:
        """Return whether a file is written with the others, neither last nor replaced by that of a new id."""
        if file.path in (layout.METADATA, ORIGIN, layout.HadoopChecksumFile(ORIGIN).render()):
            return False
        if self.plan.external is not None and isinstance(layout.parse(file.path), layout.StoreFile):
            return False
        return not self._is_forked or file.path not in (
            layout.HadoopChecksumFile(layout.METADATA).render(),
            layout.SparkChecksumFile(layout.METADATA).render(),
        )

    def put(self, file: SavedFile) -> None:
        """Write a file to the target."""
        source = object_path(file.sha256)
        if self.links and not self._changes(file) and never_changes(file.path):
            self.target.copy(source, file.path, origin=self.catalog)
        else:
            self.target.write(file.path, self.content(file))

    def check(self, file: SavedFile) -> None:
        """Read a file back."""
        if same_file(self.catalog, object_path(file.sha256), self.target, file.path):
            return
        wanted = hash_of(self.content(file)) if self._changes(file) else file.sha256
        found, _ = hash_file(self.target, file.path, file.size_bytes)
        if found != wanted:
            raise Corrupt(
                "a restored file differs from the file in the savepoint",
                code="HF-E6049",
                where=full(self.target.uri, file.path),
                found=f"SHA-256 {found}",
                expected=f"SHA-256 {wanted}",
                hint=f"remove {self.target.uri} and restore again; if it happens again, check the disk",
            )

    @property
    def _is_forked(self) -> bool:
        return self.plan.operation is RestoreKind.FORK

    def content(self, file: SavedFile) -> bytes:
        """Return the bytes of a file in the checkpoint."""
        if self._has_new_id(file):
            return QueryMetadata(self.plan.query_id).render()
        summed = self._changed_below(file)
        if summed is not None:
            return hadoop_checksum(self.content(summed)).render()
        data = self._read(file)
        if self._pins(file) and self.plan.external is not None:
            return offsets_outside(data, file.path, self.plan.external)
        if file.how != SCHEMA_PATHS:
            return data
        return CutFile(file.path, How.SCHEMA_PATHS, file.path).content(data, hadoop_address(self.target.uri))

    def _changes(self, file: SavedFile) -> bool:
        """Return whether the bytes of a file change on the way from the savepoint to the checkpoint."""
        changes = file.how == SCHEMA_PATHS or self._has_new_id(file) or self._pins(file)
        return changes or self._changed_below(file) is not None

    def _has_new_id(self, file: SavedFile) -> bool:
        return self._is_forked and file.path == layout.METADATA

    def _pins(self, file: SavedFile) -> bool:
        """Return whether a file pins the state to files although the state moves to a database."""
        place = layout.parse(file.path)
        logs = isinstance(place, layout.LogFile) and place.log is layout.Log.OFFSETS
        return logs and self.plan.external is not None

    def _changed_below(self, file: SavedFile) -> SavedFile | None:
        """Return the changed file that this Hadoop checksum belongs to; None for any other file."""
        place = layout.parse(file.path)
        summed = self.files.get(place.of) if isinstance(place, layout.HadoopChecksumFile) else None
        return summed if summed is not None and self._changes(summed) else None

    def _read(self, file: SavedFile) -> bytes:
        data = self.catalog.read(object_path(file.sha256))
        if hash_of(data) != file.sha256:
            raise Corrupt(
                "the savepoint is damaged",
                code="HF-E6043",
                where=full(self.catalog.uri, object_path(file.sha256)),
                found=f"content that differs from the manifest's entry for {file.path}",
                hint=f"list all damage with `holdfast savepoint verify {place_word(self.plan.savepoint)}`",
            )
        return data


def _present(target: Storage) -> tuple[str, ...]:
    """Return every file at the target, except those of killed writes."""
    return tuple(
        sorted(path for path, place in Tree(target).places() if not isinstance(place, layout.Temporary))
    )


def _origin(target: Storage) -> Mapping[str, Any] | None:
    """Return the mark of a restore."""
    with suppress(NotFound, ValueError):
        given = foreign_json(target.read(ORIGIN))
        if isinstance(given, dict) and isinstance(given.get("query_id"), str):
            return given
    return None


def _origin_file(plan: RestorePlan, now_ms: int) -> bytes:
    return json.dumps(
        {
            "operation": plan.operation.value,
            "savepoint": plan.savepoint,
            "label": plan.manifest.label,
            "batch": plan.manifest.batch_id,
            "from_checkpoint": plan.original,
            "from_query_id": plan.manifest.query_id,
            "query_id": plan.query_id,
            _MADE_MS: now_ms,
            **({} if plan.external is None else {"database": plan.external.database, _STORES: plan.stores}),
            **({} if plan.manifest.expired is None else {EXPIRED: dict(plan.manifest.expired)}),
        }
    ).encode()


def _as_begun(plan: RestorePlan, origin: Mapping[str, Any] | None) -> RestorePlan:
    """Return the plan with the names that a killed attempt used."""
    begun = origin or {}
    query_id = str(begun["query_id"]) if origin and plan.operation is RestoreKind.FORK else plan.query_id
    return replace(plan, query_id=query_id, stores=str(begun.get(_STORES) or plan.stores))


def _says(origin: Mapping[str, Any] | None, plan: RestorePlan) -> bool:
    """Return whether a mark belongs to this plan, regardless of its start time."""
    wanted = json.loads(_origin_file(plan, 0))
    return origin is not None and {**origin, _MADE_MS: 0} == wanted


def _gone_on(paths: tuple[str, ...], batch_id: int) -> bool:
    places = (layout.parse(path) for path in paths)
    return any(isinstance(place, layout.LogFile) and place.batch_id > batch_id for place in places)


def _target_in_use(target: Storage, found: str, hint: str = _NEW) -> Conflict:
    return Conflict(
        "the directory of the new checkpoint is not empty",
        code="HF-E4059",
        where=target.uri,
        found=found,
        hint=hint,
    )


def _check_as_checkpoint(target: Storage, plan: RestorePlan) -> None:
    found = read(with_state(target))
    missing = [store.missing for operator in found.operators for store in operator.stores if store.missing]
    if (found.batch_id, found.query_id) == (plan.manifest.batch_id, plan.query_id) and not missing:
        return
    raise Corrupt(
        "the new checkpoint failed verification",
        code="HF-E6050",
        where=target.uri,
        found=f"batch {found.batch_id} of query {found.query_id}"
        + (f", without {missing[0]}" if missing else ""),
        expected=f"batch {plan.manifest.batch_id} of query {plan.query_id}",
        hint="remove the new checkpoint and restore again; do not start a query on it",
    )
