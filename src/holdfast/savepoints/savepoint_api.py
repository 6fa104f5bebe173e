"""Savepoints by address: what `hf.savepoints` offers. Without Spark; the query may run or not."""

from __future__ import annotations

import math
import os
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.checkpoints import record_of
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.record import Record
from holdfast.clock import now_ms
from holdfast.config.checks import whole
from holdfast.config.units import Duration, parse_duration
from holdfast.errors import Corrupt, HoldfastError
from holdfast.external.view import open_checkpoint
from holdfast.formats.manifest import LabelChange, Manifest
from holdfast.layout import SAVEPOINTS_BESIDE, beside
from holdfast.ownership.checkpoint_guard import held_for_making
from holdfast.savepoints import catalog as catalogs
from holdfast.savepoints import digests, labels, planning, removal, restoring, taking, whole_take
from holdfast.savepoints.access import Address, open_savepoint
from holdfast.savepoints.catalog import Listed
from holdfast.savepoints.copying import Pace, seems_to_run
from holdfast.savepoints.digests import Digested
from holdfast.savepoints.leases import require_no_turn
from holdfast.savepoints.manifest_diff import Difference, compare
from holdfast.savepoints.names import savepoint_address
from holdfast.savepoints.nesting import check_apart
from holdfast.savepoints.planning import TakePlan
from holdfast.savepoints.proof import Proof, prove
from holdfast.savepoints.removal import Removal
from holdfast.savepoints.restoring import Restored, RestoreKind, RestorePlan, open_table
from holdfast.savepoints.taking import Taken, is_lost_id, lost_id_hint, with_query_id
from holdfast.savepoints.view import place_of, workplace
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from holdfast.savepoints.key_diff import StatesDifference


def take(
    checkpoint: Address,
    catalog: Address,
    *,
    batch: int | None = None,
    label: str | None = None,
    deep: bool = False,
    digest: bool = True,
    gentle: bool | None = None,
    home: Address | None = None,
    drop_expired: bool = False,
    id_of: Address | None = None,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Take a savepoint of a query's checkpoint, while the query runs or not.

    The query is not paused and its checkpoint is not touched. What the catalog holds already is not stored
    again; on the checkpoint's own disk nothing is copied at all, which also means that a savepoint there
    does not outlive that disk.

    Args:
        checkpoint: The checkpoint's path or URI.
        catalog: The directory of savepoints; made if need be.
        batch: A committed batch whose state is still kept; the newest by default.
        label: A name for people.
        deep: Read the rows of the state before the savepoint is published: check that each key is in the
            partition that Spark's hash gives it, and put the number of rows and a digest of each state into
            the manifest. It takes about four seconds a million rows; state of up to 2 MB is read in any case.
        digest: Once the savepoint is there, do as `digest` does, unless the manifest has them. What fails
            then leaves it pending. Without it the call returns sooner, and the digests are pending.
        gentle: Use a few hundredths of this machine's processors only, so that a running query keeps its
            pace; for the take ten seconds at the most, for the digests as long as it takes. By default that
            is done where a batch was begun in the last minute.
        home: The state home, which may have a record of the checkpoint's good batches; by default the one
            that holds here.
        drop_expired: Leave out what has expired by the batch's own time or watermark in keyed state of
            Holdfast's; see `hf.drop_expired`. The state with a time to live is read then, and what has lost
            something is rewritten.
        id_of: For a checkpoint that has lost the file with its query's id: a savepoint of the same query,
            whose id the new one gets. The checkpoint must still have the offsets of a batch of it.
        tell: Called with files done, files in all, and what is being done.

    Returns:
        The savepoint: its address is `uri`.

    Raises:
        NotFound: The checkpoint does not exist, or the batch is not committed or no longer kept.
        Corrupt: The checkpoint is damaged, or has lost state that a record or the note of its plan knows of;
            there is no savepoint.
        Conflict: Savepoints are being removed from the catalog, or `id_of` may be of another query.
        Invalid: An argument cannot be right.
        Unsupported: The rows were asked for, and are of a kind that cannot be read.
        Unavailable: A storage does not answer, or the query deletes files faster than they can be copied.
    """
    if batch is not None:
        whole(batch, "batch", least=0)
    taking.check_label(label)
    origin, into, record = _open(checkpoint, catalog, id_of, home)
    gently = seems_to_run(origin, now_ms()) if gentle is None else gentle
    pace = Pace() if gently else None
    if drop_expired:
        with workplace(into, "take") as work:
            # What has expired never gets into the catalog, which only sees what was made without it.
            kept = LocalStorage(work / "catalog")
            plan = _plan_take(origin, kept, batch, record)
            complete = whole_take.take(origin, kept, plan, pace=pace, tell=tell)
            taken = _without_expired(complete.uri, into.uri, label=label, deep=deep, tell=tell)
    else:
        plan = _plan_take(origin, into, batch, record)
        taken = whole_take.take(origin, into, plan, label=label, deep=deep, pace=pace, tell=tell)
    if digest:
        with suppress(HoldfastError):  # the savepoint is there, and its digests can be made later
            _digest(into, taken.manifest.savepoint_id, gently, tell)
    return taken


def plan_take(
    checkpoint: Address,
    catalog: Address,
    *,
    batch: int | None = None,
    id_of: Address | None = None,
    home: Address | None = None,
) -> TakePlan:
    """Return what `take` would save; nothing is changed.

    Args:
        checkpoint: The checkpoint's path or URI.
        catalog: The directory of savepoints.
        batch: As of `take`.
        id_of: As of `take`.
        home: As of `take`.

    Raises:
        HoldfastError: As `take`.
    """
    origin, into, record = _open(checkpoint, catalog, id_of, home)
    return _plan_take(origin, into, batch, record)


def _open(
    checkpoint: Address, catalog: Address, id_of: Address | None, home: Address | None
) -> tuple[Storage, Storage, Record | None]:
    """Open what a take reads and where it writes; with the record of the checkpoint's good batches."""
    origin, into = open_checkpoint(checkpoint), open_storage(os.fspath(catalog), "catalog")
    record = record_of(origin, home)
    if id_of is not None:
        origin = with_query_id(origin, *open_savepoint(id_of))
    return origin, into, record


def list(catalog: Address) -> tuple[Listed, ...]:  # noqa: A001 - the word that people know
    """Every savepoint in a catalog, oldest first; one whose manifest is damaged says so.

    Raises:
        Unavailable: The catalog does not answer.
    """
    return tuple(catalogs.listed(open_storage(os.fspath(catalog), "catalog")))


def show(savepoint: Address) -> Manifest:
    """Return the manifest of a savepoint, with its current label.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: Its manifest or its label is damaged.
    """
    catalog, savepoint_id = open_savepoint(savepoint)
    manifest = catalogs.load(catalog, savepoint_id)
    return replace(manifest, label=labels.current_label(catalog, manifest))


def digest(
    savepoint: Address, *, gentle: bool | None = None, tell: ProgressCallback | None = None
) -> Digested:
    """Count and hash the rows of a savepoint and record that beside its manifest, once.

    `verify(deep=True)` compares the rows with it from then on. A savepoint that has its digests already stays
    as it is, and stores with the same files as in an earlier savepoint are not read again.

    Cost: about two seconds a million rows on one core, and every file of state is read for its hash.

    Args:
        savepoint: The savepoint's address.
        gentle: Use a few hundredths of this machine's processors only, as long as it takes. By default that
            is done where the query has begun a batch in the last minute.
        tell: Called with stores done, stores in all, and what is being done.

    Raises:
        NotFound: The savepoint does not exist, or it was deleted meanwhile.
        Corrupt: It is damaged; nothing is recorded.
        Unsupported: Its state is of a kind that cannot be read.
        Conflict: It has changed meanwhile, as by an erasure.
    """
    return _digest(*open_savepoint(savepoint), gentle, tell)


def label(savepoint: Address, label: str | None) -> LabelChange:
    """Give a savepoint another label; None takes it away. The manifest stays as it was written.

    Who and when is kept with each label. Periodic savepoints are deleted by their label, so one that was
    given another is kept.

    Args:
        savepoint: The savepoint's address.
        label: The new label.

    Raises:
        NotFound: The savepoint does not exist.
        Invalid: The label is empty, too long, or holds control characters.
        Conflict: Somebody else has changed the label at the same moment.
    """
    catalog, savepoint_id = open_savepoint(savepoint)
    return labels.set_label(catalog, savepoint_id, label, who=labels.person(), when_ms=now_ms())


def verify(savepoint: Address, *, deep: bool = False, tell: ProgressCallback | None = None) -> Proof:
    """Prove that a savepoint is, bit for bit, what was taken, and that it fits together.

    Args:
        savepoint: The savepoint's address.
        deep: Read every row of the state too, and compare their number and digest with those that are
            recorded. Where they are `pending` there is nothing to compare with, and `content` says so.
        tell: Called with what is done, what there is in all, and what is being done.

    Returns:
        The proof: `ok`, or the `problems`, each with its file.

    Raises:
        NotFound: The savepoint does not exist.
    """
    return prove(*open_savepoint(savepoint), deep=deep, tell=tell)


def diff(
    first: Address, second: Address, *, samples: int = 5, tell: ProgressCallback | None = None
) -> StatesDifference:
    """Compare two states key by key: added, removed and changed keys, with samples.

    Partitions, files and providers may be different, and the two may be of different queries. Holdfast's own
    keyed operators are compared by the keys of their users.

    Args:
        first: A savepoint's address, or a checkpoint's, with `@BATCH` behind it for another batch than the
            newest.
        second: Another one.
        samples: How many keys of each kind of difference to show, of each state.
        tell: Called with what is done, what there is in all, and what is being done.

    Raises:
        NotFound: The savepoint or checkpoint does not exist, or the batch is not committed or no longer kept.
        Corrupt: A file that had to be read is damaged.
        Unsupported: A state is of a kind that cannot be read.
        Invalid: An argument cannot be right.
    """
    from holdfast.savepoints.key_diff import compare_states

    whole(samples, "samples", least=0)
    return compare_states(place_of(first), place_of(second), samples=samples, tell=tell)


def diff_files(first: Address, second: Address) -> Difference:
    """Compare two savepoints by their manifests: position, settings, operators, state files.

    Nothing of the state is read. Other files may hold the same state; `diff` tells.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: A manifest is damaged.
    """
    return compare(show(first), show(second))


def restore(
    savepoint: Address,
    checkpoint: Address,
    *,
    claim: bool = False,
    drop_expired: bool = False,
    database: str | None = None,
    table: Address | None = None,
    tell: ProgressCallback | None = None,
) -> Restored:
    """Make a new checkpoint from which the query continues after the savepoint's batch, exactly once.

    Args:
        savepoint: The savepoint's address.
        checkpoint: A directory that does not exist.
        claim: Delete the savepoint afterwards. By default it stays, and can be restored again.
        drop_expired: Leave out what had expired at the savepoint's batch in keyed state of Holdfast's; see
            `hf.drop_expired`. By default every file is what it was when the savepoint was taken, so that the
            query continues exactly as it would have.
        database: For state that was in a database: the one of that kind that it goes to, such as
            `redis://redis.example:6379/0` or `cassandra://cassandra.example:9042/holdfast`. By default it
            goes back to where it was, into stores of its own.
        table: A new directory for the files of a query that writes Parquet, JSON or the like. The log of the
            table is prepared: without that the query fails up to ten batches later, since Spark looks for the
            entries of the batches before. By default no table is changed.
        tell: Called with files done, files in all, and what is being done.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: The savepoint is damaged; nothing was done.
        Conflict: The target or the table exists; or the savepoint is to be deleted, and others are being
            taken or deleted.
        Unsupported: What had expired cannot be dropped.
        Unavailable: The database of the state does not answer.
    """
    savepoint = savepoint_address(os.fspath(savepoint))  # what is deleted is what was restored
    make = _make_without_expired if drop_expired else _make
    if claim:
        require_no_turn(open_savepoint(savepoint)[0])
    made = make(savepoint, checkpoint, RestoreKind.RESTORE, tell, database=database, table=table)
    if claim:
        try:
            delete(savepoint)
        except HoldfastError as error:
            raise _not_claimed(savepoint, made.checkpoint, error) from error
    return made


def plan_restore(
    savepoint: Address,
    checkpoint: Address,
    *,
    claim: bool = False,
    database: str | None = None,
    table: Address | None = None,
    tell: ProgressCallback | None = None,
) -> RestorePlan:
    """Return what `restore` would make; the savepoint is proved, and nothing is changed.

    Args:
        savepoint: The savepoint's address.
        checkpoint: A directory that does not exist.
        claim: As of `restore`.
        database: As of `restore`.
        table: As of `restore`.
        tell: Called with files done, files in all, and a note.

    Raises:
        HoldfastError: As `restore`.
    """
    if claim:
        require_no_turn(open_savepoint(savepoint)[0])
    return _plan(savepoint, checkpoint, RestoreKind.RESTORE, tell, database=database, table=table)


def plan_fork(
    savepoint: Address,
    checkpoint: Address,
    *,
    database: str | None = None,
    table: Address | None = None,
    tell: ProgressCallback | None = None,
) -> RestorePlan:
    """Return what `fork` would make; the savepoint is proved, and nothing is changed.

    Args:
        savepoint: The savepoint's address.
        checkpoint: A directory that does not exist.
        database: As of `fork`.
        table: As of `fork`.
        tell: Called with files done, files in all, and a note.

    Raises:
        HoldfastError: As `fork`.
    """
    return _plan(savepoint, checkpoint, RestoreKind.FORK, tell, database=database, table=table)


def fork(
    savepoint: Address,
    checkpoint: Address,
    *,
    drop_expired: bool = False,
    database: str | None = None,
    table: Address | None = None,
    tell: ProgressCallback | None = None,
) -> Restored:
    """Make a new checkpoint with the same state for another query, with an id of its own.

    Sinks such as Delta tell by the query's id which batches they have; the fork's are new to them.

    Args:
        savepoint: The savepoint's address.
        checkpoint: A directory that does not exist.
        drop_expired: Leave out what had expired at the savepoint's batch, as `restore` does.
        database: As of `restore`.
        table: As of `restore`; a fork must not write to the table of the first query.
        tell: Called with files done, files in all, and what is being done.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: The savepoint is damaged; nothing was done.
        Conflict: The target or the table exists.
        Unsupported: What had expired cannot be dropped.
    """
    make = _make_without_expired if drop_expired else _make
    return make(savepoint, checkpoint, RestoreKind.FORK, tell, database=database, table=table)


def delete(savepoint: Address, *, tell: ProgressCallback | None = None) -> Removal:
    """Delete a savepoint, and the bytes that no other savepoint of its catalog needs.

    Raises:
        NotFound: The savepoint does not exist.
        Conflict: A savepoint is being taken into this catalog, or another removal is under way.
    """
    return removal.delete(*open_savepoint(savepoint), tell=tell)


def plan_delete(savepoint: Address) -> Removal:
    """Return what `delete` would remove; nothing is changed.

    Raises:
        NotFound: The savepoint does not exist.
    """
    return removal.plan_delete(*open_savepoint(savepoint), now_ms())


def plan_gc(catalog: Address, *, older_than: Duration = "1h") -> Removal:
    """Return what `gc` would remove; nothing is changed.

    Args:
        catalog: The catalog.
        older_than: As of `gc`.

    Raises:
        NotFound: There are no savepoints here.
    """
    storage = open_storage(os.fspath(catalog), "catalog")
    catalogs.require_catalog(storage)
    return removal.plan_sweep(storage, now_ms(), parse_duration(older_than, "older_than", allow_zero=True))


def gc(catalog: Address, *, older_than: Duration = "1h", tell: ProgressCallback | None = None) -> Removal:
    """Clear up what no savepoint needs: what killed takes and deletes have left.

    Args:
        catalog: The catalog.
        older_than: How long a take may have been silent before it is taken for dead. Running ones show
            themselves every minute.
        tell: Called with files done, files in all, and what is being done.

    Raises:
        Conflict: A savepoint is being taken into this catalog, or another removal is under way.
        Corrupt: A manifest is damaged, so that it is unknown what its savepoint needs.
    """
    dead_after_ms = parse_duration(older_than, "older_than", allow_zero=True)
    storage = open_storage(os.fspath(catalog), "catalog")
    return removal.sweep(storage, dead_after_ms=dead_after_ms, tell=tell)


def _plan_take(
    checkpoint: Storage, catalog: Storage, batch_id: int | None, record: Record | None
) -> TakePlan:
    """Plan a savepoint; an error about the query's id names the savepoints that have it.

    Raises:
        As `plan_take`.
    """
    try:
        return planning.plan_take(checkpoint, catalog, batch_id, record)
    except Corrupt as error:
        if not is_lost_id(error, checkpoint):
            raise
        place = beside(checkpoint.uri, SAVEPOINTS_BESIDE)
        catalogs = [catalog.uri, *([] if place is None else [place])]
        hint = lost_id_hint(checkpoint, catalogs)
        raise Corrupt(error.fact, **(error.facts() | {"hint": hint})) from error


def restore_once(savepoint: Address, checkpoint: Address) -> Restored:
    """Restore as `restore` does; a finished result of an earlier call is accepted if no query has used it.

    For who may be killed between the restore and the start of the query, and does both again.

    Raises:
        As `restore`.
    """
    return _make(savepoint, checkpoint, RestoreKind.RESTORE, None, again=True)


def _digest(
    catalog: Storage, savepoint_id: str, gentle: bool | None, tell: ProgressCallback | None
) -> Digested:
    if gentle is None:
        gentle = False
        with suppress(HoldfastError):  # the checkpoint may be out of reach by now
            checkpoint = catalogs.load(catalog, savepoint_id).checkpoint
            gentle = seems_to_run(open_storage(checkpoint), now_ms())
    step = Pace(longest_s=math.inf).step if gentle else (lambda: None)
    return digests.digest(catalog, savepoint_id, step=step, tell=tell)


def plan_restore_once(
    savepoint: Address, checkpoint: Address, *, tell: ProgressCallback | None = None
) -> RestorePlan:
    """Plan `restore_once`; the savepoint is proved, and nothing is changed.

    Raises:
        As `restore`.
    """
    return _plan(savepoint, checkpoint, RestoreKind.RESTORE, tell, again=True)


def _plan(
    savepoint: Address,
    checkpoint: Address,
    operation: RestoreKind,
    tell: ProgressCallback | None,
    *,
    again: bool = False,
    database: str | None = None,
    table: Address | None = None,
) -> RestorePlan:
    catalog, savepoint_id = open_savepoint(savepoint)
    target = open_storage(os.fspath(checkpoint))
    return _plan_into(
        catalog, savepoint_id, target, operation, tell, again=again, database=database, table=table
    )


def _plan_into(
    catalog: Storage,
    savepoint_id: str,
    target: Storage,
    operation: RestoreKind,
    tell: ProgressCallback | None,
    *,
    again: bool = False,
    named: tuple[str, str] | None = None,
    database: str | None = None,
    table: Address | None = None,
) -> RestorePlan:
    """Plan a restore or a fork of an opened savepoint; the table is opened for its target."""
    into = None if table is None else open_table(table, target)
    return restoring.plan_restore(
        catalog,
        savepoint_id,
        target,
        operation,
        again=again,
        named=named,
        database=database,
        table=into,
        tell=tell,
    )


def _make(
    savepoint: Address,
    checkpoint: Address,
    operation: RestoreKind,
    tell: ProgressCallback | None,
    *,
    again: bool = False,
    database: str | None = None,
    table: Address | None = None,
) -> Restored:
    catalog, savepoint_id = open_savepoint(savepoint)
    target = open_storage(os.fspath(checkpoint))
    # Who makes one once more holds the lock already, or nobody does.
    with nullcontext() if again else held_for_making(target, operation.value):
        plan = _plan_into(
            catalog, savepoint_id, target, operation, tell, again=again, database=database, table=table
        )
        return restoring.restore(catalog, target, plan, tell=tell)


def _not_claimed(savepoint: Address, checkpoint: str, error: HoldfastError) -> HoldfastError:
    """The error where a checkpoint was made of a savepoint that then could not be deleted."""
    catalog, savepoint_id = open_savepoint(savepoint)
    stays = True
    with suppress(HoldfastError):
        stays = catalog.size(catalogs.manifest_path(savepoint_id)) is not None
    left = "the savepoint stays" if stays else "files of the savepoint stay"
    again = f"delete {savepoint}" if stays else f"gc {catalog.uri}"
    return type(error)(
        f"the checkpoint is made and whole, and {left}",
        where=checkpoint,
        found=f"{error.fact} ({error.found or error.where})",
        hint=f"start the query on the checkpoint, and later `holdfast savepoint {again}`",
    )


def _make_without_expired(
    savepoint: Address,
    checkpoint: Address,
    operation: RestoreKind,
    tell: ProgressCallback | None,
    *,
    database: str | None = None,
    table: Address | None = None,
) -> Restored:
    """A restore or fork of a savepoint without what has expired, which lives no longer than this."""
    catalog, savepoint_id = open_savepoint(savepoint)
    target = open_storage(os.fspath(checkpoint))
    check_apart(target, catalog)
    uri = catalogs.savepoint_uri(catalog, savepoint_id)
    restoring.free(target, uri, operation)
    with held_for_making(target, operation.value), workplace(target, "restore") as work:
        kept = LocalStorage(work / "catalog")
        made = _without_expired(uri, kept.uri, tell=tell)
        plan = _plan_into(
            kept,
            made.manifest.savepoint_id,
            target,
            operation,
            tell,
            named=(uri, made.manifest.checkpoint),
            database=database,
            table=table,
        )
        return restoring.restore(kept, target, plan, tell=tell)


def _without_expired(
    savepoint: Address,
    to: Address,
    *,
    label: str | None = None,
    deep: bool = False,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Call `hf.drop_expired`, which reads keyed state and is in a higher room."""
    import holdfast

    return holdfast.drop_expired(savepoint, to=to, label=label, deep=deep, tell=tell)
