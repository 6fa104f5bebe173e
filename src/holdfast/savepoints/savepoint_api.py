"""Functions of `hf.savepoints`; they need no Spark, and the query may run."""

from __future__ import annotations

import math
import os
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
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
from holdfast.savepoints.address import Address, StateAddress
from holdfast.savepoints.catalog import Listed
from holdfast.savepoints.copying import Pace, seems_to_run
from holdfast.savepoints.digests import Digested
from holdfast.savepoints.leases import require_no_turn
from holdfast.savepoints.manifest_diff import Difference, compare
from holdfast.savepoints.nesting import check_apart
from holdfast.savepoints.planning import TakePlan
from holdfast.savepoints.proof import Proof, prove
from holdfast.savepoints.removal import Removal
from holdfast.savepoints.restoring import Restored, RestoreKind, RestorePlan, open_table
from holdfast.savepoints.spread import executors
from holdfast.savepoints.taking import Taken, is_lost_id, lost_id_hint, with_query_id
from holdfast.savepoints.view import workplace
from holdfast.savepoints.whole_take import TakeWithoutExpired
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from holdfast.savepoints.key_diff import StatesDifference


def take_savepoint(
    checkpoint: Address,
    catalog: Address,
    *,
    batch: int | None = None,
    label: str | None = None,
    deep: bool = False,
    digest: bool = True,
    gentle: bool | None = None,
    home: Address | None = None,
    without_expired: TakeWithoutExpired | None = None,
    id_of: Address | None = None,
    tell: ProgressCallback | None = None,
) -> Taken:
    """Take a savepoint as `hf.savepoints.take` does, whose arguments these are.

    Args:
        without_expired: Copies the savepoint without its expired rows; None to keep them.

    Raises:
        As `hf.savepoints.take`.
    """
    if batch is not None:
        whole(batch, "batch", least=0)
    taking.check_label(label)
    origin, into, record = _open(checkpoint, catalog, id_of, home)
    gently = seems_to_run(origin, now_ms()) if gentle is None else gentle
    pace = Pace() if gently else None
    plan = _plan_take(origin, into, batch, record)
    taken = whole_take.take(
        origin, into, plan, label=label, deep=deep, pace=pace, without_expired=without_expired, tell=tell
    )
    if digest:
        with suppress(HoldfastError):  # the savepoint exists, and its digests can be computed later
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
    """Return the files that `take` would save, without changing anything.

    Args:
        checkpoint: The checkpoint's path or URI.
        catalog: The savepoint catalog.
        batch: As of `take`.
        id_of: As of `take`.
        home: As of `take`.

    Raises:
        HoldfastError: As `take`.

    Example:
        plan = hf.savepoints.plan_take("checkpoints/visits", "savepoints", batch=8)
        assert plan.batch_id == 8
        print(plan.new_files, plan.size_bytes)
    """
    origin, into, record = _open(checkpoint, catalog, id_of, home)
    return _plan_take(origin, into, batch, record)


def _open(
    checkpoint: Address, catalog: Address, id_of: Address | None, home: Address | None
) -> tuple[Storage, Storage, Record | None]:
    """Open the checkpoint and the catalog of a take, with the checkpoint's integrity record."""
    origin, into = open_checkpoint(checkpoint), open_storage(os.fspath(catalog), "catalog")
    record = record_of(origin, home)
    if id_of is not None:
        origin = with_query_id(origin, *StateAddress.resolve(id_of).open_savepoint())
    return origin, into, record


def list(catalog: Address) -> tuple[Listed, ...]:  # noqa: A001 - the word that people know
    """Return every savepoint in a catalog, oldest first; damaged manifests are reported in `problem`.

    Args:
        catalog: The catalog.

    Raises:
        Unavailable: The catalog does not answer.

    Example:
        hf.savepoints.take("checkpoints/visits", "savepoints", label="before-upgrade")
        labels = [saved.manifest.label for saved in hf.savepoints.list("savepoints")]
        assert labels == ["daily", "before-upgrade"]
    """
    return tuple(catalogs.listed(open_storage(os.fspath(catalog), "catalog")))


def show(savepoint: Address) -> Manifest:
    """Return the manifest of a savepoint, with its current label.

    Args:
        savepoint: The savepoint's address.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: Its manifest or its label is damaged.

    Example:
        manifest = hf.savepoints.show("savepoints@daily")
        assert (manifest.label, manifest.batch_id) == ("daily", 11)
    """
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    manifest = catalogs.load(catalog, savepoint_id)
    return replace(manifest, label=labels.current_label(catalog, manifest))


def digest(
    savepoint: Address,
    *,
    gentle: bool | None = None,
    master: str | None = None,
    tell: ProgressCallback | None = None,
) -> Digested:
    """Count and hash the rows of a savepoint, and record the result next to its manifest, once.

    `verify(deep=True)` compares the rows with this record from then on. A savepoint that already has digests
    is not changed, and stores with the same files as in an earlier savepoint are not read again.

    Cost: about two seconds per million rows on one core; every state file is read for its hash.

    Args:
        savepoint: The savepoint's address.
        gentle: Use only a few percent of this machine's processors. By default True if the query began a
            batch in the last minute. It does not slow down executors.
        master: The master of a Spark cluster whose executors read the rows, for state that one machine cannot
            read in time; the active session is used if there is one. The executors must reach the catalog.
            The result is the same. By default no Spark is used.
        tell: Called with the number of finished stores, the number of all stores, and the current step.

    Raises:
        NotFound: The savepoint does not exist or was deleted during the call.
        Corrupt: The savepoint is damaged; nothing is recorded.
        Unsupported: The state cannot be read.
        Conflict: The savepoint changed during the call, for example by an erasure.
        Unavailable: The catalog does not answer, an executor does not see it, or the Spark job failed.

    Example:
        saved = hf.savepoints.take("checkpoints/visits", "savepoints", digest=False)
        assert hf.savepoints.digest(saved.uri).rows == 10
        assert hf.savepoints.verify(saved.uri, deep=True).content == "compared"
    """
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    if master is None:
        return _digest(catalog, savepoint_id, gentle, tell)
    with executors("holdfast-digest", master) as tasks:
        return digests.digest(catalog, savepoint_id, tasks=tasks, tell=tell)


def label(savepoint: Address, label: str | None) -> LabelChange:
    """Set the label of a savepoint, or remove it with None. The manifest is not changed.

    Each label is stored with its author and time. Periodic savepoints are deleted by their label, so a
    relabelled one is kept.

    Args:
        savepoint: The savepoint's address.
        label: The new label.

    Raises:
        NotFound: The savepoint does not exist.
        Invalid: The label is empty, too long, or holds control characters.
        Conflict: Another process changed the label at the same time.

    Example:
        hf.savepoints.label("savepoints@daily", "before-upgrade")
        assert hf.savepoints.show("savepoints@before-upgrade").label == "before-upgrade"
    """
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    return labels.set_label(catalog, savepoint_id, label, who=labels.person(), when_ms=now_ms())


def verify(
    savepoint: Address,
    *,
    deep: bool = False,
    master: str | None = None,
    tell: ProgressCallback | None = None,
) -> Proof:
    """Verify that a savepoint is bit for bit unchanged since it was taken, and consistent.

    Args:
        savepoint: The savepoint's address.
        deep: Also read every row of the state, and compare the row counts and digests with the recorded
            ones. If none are recorded, `content` is `pending` and nothing is compared.
        master: The master of a Spark cluster whose executors hash the files and read the rows, for state that
            one machine cannot read in time; the active session is used if there is one. The executors must
            reach the catalog. The result is the same. By default no Spark is used.
        tell: Called with the number of finished items, the number of all items, and the current step.

    Returns:
        The proof: `ok`, and otherwise `problems`, each with its file.

    Raises:
        NotFound: The savepoint does not exist.
        Unavailable: The catalog does not answer, an executor does not see it, or the Spark job failed.

    Example:
        proof = hf.savepoints.verify("savepoints@daily", deep=True)
        assert proof.ok and proof.content == "compared"
        try:
            hf.savepoints.verify("savepoints@weekly")
        except hf.NotFound as error:
            assert error.exit_code == 3
    """
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    if master is None:
        return prove(catalog, savepoint_id, deep=deep, tell=tell)
    with executors("holdfast-verify", master) as tasks:
        return prove(catalog, savepoint_id, deep=deep, tasks=tasks, tell=tell)


def diff(
    first: Address,
    second: Address,
    *,
    samples: int = 5,
    master: str | None = None,
    tell: ProgressCallback | None = None,
) -> StatesDifference:
    """Compare two states key by key: added, removed and changed keys, with samples.

    Partitions, files, providers and even the queries may differ. Holdfast's keyed operators are compared by
    the keys of the user's code.

    Args:
        first: The address of a savepoint, or of a checkpoint, optionally followed by `@BATCH`; the newest
            batch by default.
        second: The address to compare with, in the same form.
        samples: Number of keys to return for each type of difference in each state.
        master: The master of a Spark cluster whose executors read and compare the rows, for states that one
            machine cannot read in time; the active session is used if there is one. The executors must reach
            both states. The result is the same. By default no Spark is used.
        tell: Called with the number of finished items, the number of all items, and the current step.

    Raises:
        NotFound: The savepoint or checkpoint does not exist, or the batch is not committed or no longer kept.
        Corrupt: A required file is damaged.
        Unsupported: A state cannot be read, or it is in a database and `master` is given.
        Invalid: An argument is not valid.
        Unavailable: A storage does not answer, an executor does not see a state, or the Spark job failed.

    Example:
        difference = hf.savepoints.diff("checkpoints/visits@10", "savepoints@daily")
        [aggregate] = difference.states
        assert (aggregate.added, aggregate.removed, aggregate.changed) == (0, 0, 10)
        print(aggregate.samples[0].first, aggregate.samples[0].second)
    """
    from holdfast.savepoints.key_diff import compare_states

    whole(samples, "samples", least=0)
    one, other = StateAddress.resolve(first).open_state(), StateAddress.resolve(second).open_state()
    if master is None:
        return compare_states(one, other, samples=samples, tell=tell)
    from holdfast.savepoints.spread_diff import compare_in_tasks

    with executors("holdfast-diff", master) as tasks:
        return compare_in_tasks(tasks, one, other, samples=samples, tell=tell)


def diff_files(first: Address, second: Address) -> Difference:
    """Compare two savepoints by their manifests: position, settings, operators, state files.

    State files are not read. Different files may hold the same state; use `diff` to compare the rows.

    Args:
        first: The address of a savepoint.
        second: The address of the savepoint to compare with.

    Raises:
        NotFound: The savepoint does not exist.
        Corrupt: A manifest is damaged.

    Example:
        saved = hf.savepoints.take("checkpoints/visits", "savepoints")
        difference = hf.savepoints.diff_files("savepoints@daily", saved.uri)
        assert difference.same_state and difference.sources == ()
    """
    return compare(show(first), show(second))


def create_checkpoint(
    savepoint: StateAddress,
    checkpoint: Address,
    operation: RestoreKind,
    *,
    claim: bool = False,
    without_expired: TakeWithoutExpired | None = None,
    database: str | None = None,
    table: Address | None = None,
    accept_loss: bool = False,
    tell: ProgressCallback | None = None,
) -> Restored:
    """Restore or fork a savepoint as `hf.savepoints.restore` and `fork` do, whose arguments these are.

    Args:
        savepoint: The resolved address of the savepoint.
        without_expired: Copies the savepoint without its expired rows; None to keep them.

    Raises:
        As `hf.savepoints.restore`.
    """
    catalog, savepoint_id = savepoint.open_savepoint()
    if claim:
        require_no_turn(catalog)
    target = open_storage(os.fspath(checkpoint))
    make = _make if without_expired is None else partial(_make_without_expired, without_expired)
    made = make(
        catalog,
        savepoint_id,
        target,
        operation,
        tell,
        database=database,
        table=table,
        accept_loss=accept_loss,
    )
    if claim:
        try:
            removal.delete(catalog, savepoint_id)
        except HoldfastError as error:
            raise _not_claimed(savepoint, catalog, savepoint_id, made.checkpoint, error) from error
    return made


def plan_restore(
    savepoint: Address,
    checkpoint: Address,
    *,
    claim: bool = False,
    database: str | None = None,
    table: Address | None = None,
    accept_loss: bool = False,
    tell: ProgressCallback | None = None,
) -> RestorePlan:
    """Verify the savepoint and return what `restore` would create, without changing anything.

    Args:
        savepoint: The savepoint's address.
        checkpoint: A directory that does not exist.
        claim: As of `restore`.
        database: As of `restore`.
        table: As of `restore`.
        accept_loss: As of `restore`.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        HoldfastError: As `restore`.

    Example:
        plan = hf.savepoints.plan_restore("savepoints@daily", "checkpoints/visits-restored")
        assert plan.manifest.batch_id == 11
        assert plan.query_id == plan.manifest.query_id
    """
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    if claim:
        require_no_turn(catalog)
    target = open_storage(os.fspath(checkpoint))
    return _plan_into(
        catalog,
        savepoint_id,
        target,
        RestoreKind.RESTORE,
        tell,
        database=database,
        table=table,
        accept_loss=accept_loss,
    )


def plan_fork(
    savepoint: Address,
    checkpoint: Address,
    *,
    database: str | None = None,
    table: Address | None = None,
    tell: ProgressCallback | None = None,
) -> RestorePlan:
    """Verify the savepoint and return what `fork` would create, without changing anything.

    Args:
        savepoint: The savepoint's address.
        checkpoint: A directory that does not exist.
        database: As of `fork`.
        table: As of `fork`.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        HoldfastError: As `fork`.

    Example:
        plan = hf.savepoints.plan_fork("savepoints@daily", "checkpoints/visits-test")
        assert plan.operation == "fork"
        assert plan.query_id != plan.manifest.query_id
    """
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    target = open_storage(os.fspath(checkpoint))
    return _plan_into(catalog, savepoint_id, target, RestoreKind.FORK, tell, database=database, table=table)


def delete(savepoint: Address, *, tell: ProgressCallback | None = None) -> Removal:
    """Delete a savepoint, and the objects that no other savepoint of its catalog needs.

    Args:
        savepoint: The savepoint's address.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        NotFound: The savepoint does not exist.
        Conflict: A savepoint is being taken into this catalog, or a different removal is running.

    Example:
        removal = hf.savepoints.delete("savepoints@daily")
        assert removal.kept == 0
        assert hf.savepoints.list("savepoints") == ()
    """
    return removal.delete(*StateAddress.resolve(savepoint).open_savepoint(), tell=tell)


def plan_delete(savepoint: Address) -> Removal:
    """Return what `delete` would remove, without changing anything.

    Args:
        savepoint: The savepoint's address.

    Raises:
        NotFound: The savepoint does not exist.

    Example:
        hf.savepoints.take("checkpoints/visits", "savepoints", label="before-upgrade")
        plan = hf.savepoints.plan_delete("savepoints@daily")
        assert plan.paths == ()  # the other savepoint needs the same files
    """
    return removal.plan_delete(*StateAddress.resolve(savepoint).open_savepoint(), now_ms())


def plan_gc(catalog: Address, *, older_than: Duration = "1h") -> Removal:
    """Return what `gc` would remove, without changing anything.

    Args:
        catalog: The catalog.
        older_than: As of `gc`.

    Raises:
        NotFound: The catalog does not exist.

    Example:
        plan = hf.savepoints.plan_gc("savepoints")
        assert (plan.paths, plan.size_bytes, plan.kept) == ((), 0, 1)
    """
    storage = open_storage(os.fspath(catalog), "catalog")
    catalogs.require_catalog(storage)
    return removal.plan_sweep(storage, now_ms(), parse_duration(older_than, "older_than", allow_zero=True))


def gc(catalog: Address, *, older_than: Duration = "1h", tell: ProgressCallback | None = None) -> Removal:
    """Delete files that no savepoint needs, left behind by interrupted takes and deletes.

    Args:
        catalog: The catalog.
        older_than: The time without a heartbeat after which a take counts as interrupted. A running take
            writes a heartbeat every minute.
        tell: Called with the number of finished files, the number of all files, and the current step.

    Raises:
        Conflict: A savepoint is being taken into this catalog, or a different removal is running.
        Corrupt: A manifest is damaged, so the files that its savepoint needs are unknown.

    Example:
        removal = hf.savepoints.gc("savepoints", older_than="1d")
        assert removal.paths == ()  # no take or delete was interrupted
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

    For a caller that may be killed between the restore and the start of the query, and repeats both.

    Raises:
        As `restore`.
    """
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    target = open_storage(os.fspath(checkpoint))
    return _make(catalog, savepoint_id, target, RestoreKind.RESTORE, None, again=True)


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
    """Verify the savepoint and plan `restore_once`, without changing anything.

    Raises:
        As `restore`.
    """
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    target = open_storage(os.fspath(checkpoint))
    return _plan_into(catalog, savepoint_id, target, RestoreKind.RESTORE, tell, again=True)


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
    accept_loss: bool = False,
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
        accept_loss=accept_loss,
        tell=tell,
    )


def _make(
    catalog: Storage,
    savepoint_id: str,
    target: Storage,
    operation: RestoreKind,
    tell: ProgressCallback | None,
    *,
    again: bool = False,
    database: str | None = None,
    table: Address | None = None,
    accept_loss: bool = False,
) -> Restored:
    # A repeated call holds the lock already, or the lock is free.
    with nullcontext() if again else held_for_making(target, operation.value):
        plan = _plan_into(
            catalog,
            savepoint_id,
            target,
            operation,
            tell,
            again=again,
            database=database,
            table=table,
            accept_loss=accept_loss,
        )
        return restoring.restore(catalog, target, plan, tell=tell)


def _not_claimed(
    savepoint: StateAddress, catalog: Storage, savepoint_id: str, checkpoint: str, error: HoldfastError
) -> HoldfastError:
    """Return the error for a restored savepoint that could not be deleted."""
    stays = True
    with suppress(HoldfastError):
        stays = catalog.size(catalogs.manifest_path(savepoint_id)) is not None
    left = "the savepoint was not deleted" if stays else "files of the savepoint remain"
    again = f"delete {savepoint.text}" if stays else f"gc {catalog.uri}"
    return type(error)(
        f"the new checkpoint is complete, but {left}",
        code=error.code,
        where=checkpoint,
        found=f"{error.fact} ({error.found or error.where})",
        hint=f"start the query on the checkpoint, and run `holdfast savepoint {again}` later",
    )


def _make_without_expired(
    without_expired: TakeWithoutExpired,
    catalog: Storage,
    savepoint_id: str,
    target: Storage,
    operation: RestoreKind,
    tell: ProgressCallback | None,
    *,
    database: str | None = None,
    table: Address | None = None,
    accept_loss: bool = False,
) -> Restored:
    """Restore or fork a temporary savepoint without the expired rows."""
    check_apart(target, catalog)
    uri = catalogs.savepoint_uri(catalog, savepoint_id)
    restoring.free(target, uri, operation)
    with held_for_making(target, operation.value), workplace(target, "restore") as work:
        kept = LocalStorage(work / "catalog")
        made = without_expired(catalog, savepoint_id, kept, tell=tell)
        plan = _plan_into(
            kept,
            made.manifest.savepoint_id,
            target,
            operation,
            tell,
            named=(uri, made.manifest.checkpoint),
            database=database,
            table=table,
            accept_loss=accept_loss,
        )
        return restoring.restore(kept, target, plan, tell=tell)
