"""The implementation of `hf.edit`, `hf.undo` and `hf.erase`, which change saved state without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.changes.edit import undoing
from holdfast.changes.edit.deciders import TableChange
from holdfast.changes.edit.request import Edit
from holdfast.changes.edit.undoing import UndoPlan, UndoReport, change_of
from holdfast.changes.erase import erasing, erasing_checkpoint
from holdfast.changes.erase.certificate import Certificate, ErasePlan, SearchReport
from holdfast.changes.erase.key_places import PlaceSearch
from holdfast.changes.erase.searching import subject
from holdfast.checkpoints import record_of
from holdfast.checkpoints.checkpoint import ProgressCallback, read
from holdfast.clock import now_ms
from holdfast.config.settings import Settings
from holdfast.errors import Conflict, HoldfastError, Invalid
from holdfast.external.view import open_checkpoint, open_current
from holdfast.extras import require_package
from holdfast.ownership.checkpoint_guard import dry_run_usage, guarded, refuse_held
from holdfast.ownership.usage import CheckpointUsage
from holdfast.savepoints import removal, taking
from holdfast.savepoints.address import Address, StateAddress
from holdfast.savepoints.catalog import load, require_catalog, savepoint_uri
from holdfast.savepoints.digests import digest
from holdfast.savepoints.labels import person
from holdfast.savepoints.leases import require_no_turn
from holdfast.savepoints.planning import plan_take
from holdfast.savepoints.taking import check_label
from holdfast.savepoints.view import scratch, workplace
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    from holdfast.changes.edit.editing import EditPlan, EditReport


SAY_STOPPED = "stop the query, then confirm with --confirm-stopped (in Python `stopped=True`)"


def edit(
    source: Address,
    state: str,
    *,
    where: str | None = None,
    key: str | None = None,
    set: Mapping[str, Any] | None = None,  # noqa: A002 - the usual word
    delete: bool = False,
    insert: Sequence[Mapping[str, Any]] = (),
    change: TableChange | None = None,
    to: Address | None = None,
    why: str | None = None,
    label: str | None = None,
    who: str | None = None,
    tell: ProgressCallback | None = None,
) -> EditReport:
    """Create a savepoint with some rows of a state set, deleted or inserted.

    The original stays unchanged. The new savepoint has the same batch and query; after a restore of it, the
    query continues from there. Spark's companion data (counters, expiry indexes, both copies of timers, the
    counts of a join) is also updated. Before the savepoint is published, every row of each affected store is
    read back: the changed rows must have their new values, and all other rows must have the same bytes as
    before.

    `where` and the values of `set` are SQL in DuckDB's dialect over the columns of one row. The checkpoint of
    the query is not changed: start the query on a restored checkpoint.

    Args:
        source: A savepoint, or a checkpoint that no query uses, of which a savepoint is taken first.
        state: The state, named as by `holdfast state list`.
        where: The condition for the rows; None for all rows.
        key: The key whose rows to edit: JSON, `column=value`, or the value of a key with one column; None for
            any key.
        set: The new values by column, as SQL text, a number, a boolean or None.
        delete: Whether to delete the rows.
        insert: The new rows, each by column with JSON values.
        change: A function from a `pyarrow.Table` of all rows to the new table. A row that is missing from the
            new table is deleted; a row with a new key is inserted.
        to: The catalog for the new savepoint; by default that of the source.
        why: The reason, which is stored in the savepoint.
        label: A label for the new savepoint; none by default, so that the label of the source stays unique.
        who: The author; by default the user and the machine.
        tell: The progress callback, called with the work done, the total, and the current step.

    Returns:
        The new savepoint, whose address is `uri`.

    Raises:
        NotFound: The savepoint, checkpoint or state does not exist.
        Invalid: The edit does not match the state, or changes nothing.
        Conflict: A query uses the checkpoint, or savepoints are being deleted from the catalog.
        Corrupt: The source is damaged.
        Unsupported: The state cannot be edited.

    Example:
        edited = hf.edit(
            "savepoints@daily",
            "aggregate",
            where="customer = 'c1'",
            set={"count": "count - 1"},
            why="a visit was counted twice",
        )
        assert hf.state(edited.uri).get("aggregate", "c1").value["count"] == 11
        hf.savepoints.restore(edited.uri, "checkpoints/visits-corrected")
    """
    require_package("pyarrow")
    from holdfast.changes.edit import editing  # it needs Arrow, which an erasure does not

    asked = request(state, where, key, set, delete=delete, insert=insert, change=change)
    with source_of(source, to, tell, keep=True) as (catalog, savepoint_id, target):
        plan = editing.plan_edit(catalog, savepoint_id, target, asked, tell=tell)
        return apply(plan, catalog, target, why=why, label=label, who=who, tell=tell)


def plan_edit(
    source: Address,
    state: str,
    *,
    where: str | None = None,
    key: str | None = None,
    set: Mapping[str, Any] | None = None,  # noqa: A002 - as above
    delete: bool = False,
    insert: Sequence[Mapping[str, Any]] = (),
    change: TableChange | None = None,
    to: Address | None = None,
    tell: ProgressCallback | None = None,
) -> EditPlan:
    """Plan an edit: count the rows that change, with samples before and after. Changes nothing.

    The arguments are those of `edit`.

    Raises:
        As for `edit`.

    Example:
        plan = hf.plan_edit("savepoints@daily", "aggregate", where="sum < 710", delete=True)
        assert plan.tally.deleted == 2
        for sample in plan.tally.samples:
            print(sample.before, sample.after)
    """
    require_package("pyarrow")
    from holdfast.changes.edit import editing  # it needs Arrow, which an erasure does not

    asked = request(state, where, key, set, delete=delete, insert=insert, change=change)
    with source_of(source, to, tell, keep=False) as (catalog, savepoint_id, target):
        plan = editing.plan_edit(catalog, savepoint_id, target, asked, tell=tell)
        return as_asked(plan, source)


def undo(
    savepoint: Address,
    *,
    why: str | None = None,
    label: str | None = None,
    who: str | None = None,
    tell: ProgressCallback | None = None,
) -> UndoReport:
    """Undo an edit: create a savepoint with the state before it.

    The original savepoint and the edited one are kept.

    Args:
        savepoint: A savepoint that an edit created.
        why: The reason, which is stored in the savepoint.
        label: A label for the new savepoint; none by default, so that the label of the original stays unique.
        who: The author; by default the user and the machine.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        NotFound: The savepoint, or the one before the edit, is missing.
        Invalid: The savepoint was not created by an edit.
        Conflict: A key was erased after the edit, or savepoints are being deleted from the catalog.
        Corrupt: The savepoint before the edit is damaged.

    Example:
        hf.edit("savepoints@daily", "aggregate", key="c1", set={"count": 0}, label="reset")
        undone = hf.undo("savepoints@reset", why="the wrong customer")
        assert hf.state(undone.uri).get("aggregate", "c1").value["count"] == 12
    """
    check_label(label)
    catalog, savepoint_id = StateAddress.resolve(savepoint).open_savepoint()
    plan = _plan_undo(catalog, savepoint_id, tell)
    origin, _ = StateAddress.resolve(plan.back_to).open_savepoint()
    return undoing.undo(catalog, origin, plan, who=who or person(), why=why, label=label, tell=tell)


def plan_undo(savepoint: Address, *, tell: ProgressCallback | None = None) -> UndoPlan:
    """Plan an undo. Changes nothing.

    Args:
        savepoint: A savepoint that an edit created.
        tell: The progress callback, called with the work done, the total, and the current step.

    Raises:
        As for `undo`.

    Example:
        hf.edit("savepoints@daily", "aggregate", key="c1", set={"count": 0}, label="reset")
        plan = hf.plan_undo("savepoints@reset")
        assert plan.change.statement == "set count = 0 with key c1"
        print(plan.back_to)  # the savepoint before the edit
    """
    return _plan_undo(*StateAddress.resolve(savepoint).open_savepoint(), tell)


def _plan_undo(catalog: Storage, savepoint_id: str, tell: ProgressCallback | None) -> UndoPlan:
    change = change_of(load(catalog, savepoint_id), savepoint_uri(catalog, savepoint_id))
    return undoing.plan_undo(
        catalog, savepoint_id, *StateAddress.resolve(change.of).open_savepoint(), tell=tell
    )


def erase(
    key: str,
    *,
    everywhere: Address,
    column: str | None = None,
    checkpoint: Address | None = None,
    stopped: bool = False,
    why: str | None = None,
    who: str | None = None,
    home: Address | None = None,
    tell: ProgressCallback | None = None,
) -> Certificate:
    """Erase a key from every savepoint of a catalog, and from the checkpoint of a stopped query.

    The key is erased from current rows and from all remaining bytes of old rows, because a deleted or
    overwritten row stays in its file until the file is rewritten. Savepoints keep their addresses and can be
    restored as before; the checkpoint keeps only its newest batch. The key is also removed from edit records
    and labels. The state home, logs and notes are searched for the text of the key but not changed: the
    certificate lists the files that contain it, and the locations that were not searched. You must erase the
    key from other copies: the source, the sink, other catalogs.

    Args:
        key: The key to erase: a value, which is searched in every key column, or a JSON object or
            `column=value`, which is searched in the named columns of keys and values.
        everywhere: The catalog.
        column: The column of keys and values in which a bare value is searched; None for every key column.
        checkpoint: The checkpoint of a stopped query, from which the key is erased first. On S3 and HDFS a
            successor replaces it, as the certificate says.
        stopped: True to confirm that no query uses the checkpoint, which is required. The checkpoint is also
            watched for several seconds to two minutes.
        why: The reason, which is stored in the certificate and in the savepoints.
        who: The author; by default the user and the machine.
        home: The state home to search; by default that of the settings.
        tell: The progress callback, called with the work done, the total, and the current step.

    Returns:
        The certificate of what was searched, found and rewritten, which contains the key only as a hash. If
        the key was not found, `outcome` is `not found`.

    Raises:
        NotFound: The catalog or checkpoint does not exist, or no state has such a column.
        Invalid: The directory is not a catalog, or the key is not valid.
        Conflict: A query uses the checkpoint, the confirmation is missing, a savepoint is being taken, or
            savepoints are being deleted.
        Corrupt: A file that had to be searched is damaged.
        Unsupported: Some state cannot be searched.

    Example:
        certificate = hf.erase("c7", everywhere="savepoints", column="customer", why="request 4711")
        assert certificate.outcome == "erased" and certificate.proved
        assert not hf.state("savepoints@daily").get("aggregate", "c7").exists
    """
    meant, by = subject(key, column), who or person()
    catalog, storage = _places_of(everywhere, checkpoint)
    first: tuple[SearchReport, ...] = ()
    if storage is not None:
        require_no_turn(catalog)
        with (
            guarded(storage, "state erase", stopped=stopped, hint=SAY_STOPPED, tell=tell) as guard,
            workplace(storage, "erase") as folder,
        ):
            first = (
                erasing_checkpoint.erase_checkpoint(
                    storage,
                    meant,
                    folder,
                    guard=guard,
                    record=record_of(storage, home),
                    who=by,
                    why=why,
                    tell=tell,
                ),
            )
    with workplace(catalog, "erase") as folder:
        made = erasing.erase(catalog, meant, folder, who=by, why=why, tell=tell)
    search = PlaceSearch(meant, catalog, storage, Settings.here(home).home, changing=True)
    return replace(made, searched=(*first, *made.searched), elsewhere=search.reports(), ended_ms=now_ms())


def plan_erase(
    key: str,
    *,
    everywhere: Address,
    column: str | None = None,
    checkpoint: Address | None = None,
    home: Address | None = None,
    tell: ProgressCallback | None = None,
) -> ErasePlan:
    """Plan an erasure: find the key, and list what would be rewritten. Changes nothing.

    The arguments are those of `erase`.

    Raises:
        As for `erase`.

    Example:
        plan = hf.plan_erase("c7", everywhere="savepoints", column="customer")
        assert (plan.rows, plan.touched) == (1, 1)
        for line in plan.lines():
            print(line)  # where the key is, and what was not searched
    """
    meant = subject(key, column)
    catalog, storage = _places_of(everywhere, checkpoint)
    first: tuple[SearchReport, ...] = ()
    if storage is not None:
        with scratch(storage) as folder:
            record = record_of(storage, home)
            first = (
                erasing_checkpoint.plan_erase_checkpoint(storage, meant, folder, record=record, tell=tell),
            )
    plan = erasing.plan_erase(catalog, meant, tell=tell)
    search = PlaceSearch(meant, catalog, storage, Settings.here(home).home, changing=False)
    usage = None if storage is None else dry_run_usage(storage, now_ms())
    return replace(plan, searched=(*first, *plan.searched), elsewhere=search.reports(), usage=usage)


def _places_of(everywhere: Address, checkpoint: Address | None) -> tuple[Storage, Storage | None]:
    """Open the catalog and the checkpoint from which a key is to be erased.

    Raises:
        NotFound: The catalog or checkpoint does not exist.
        Invalid: The directory is not a catalog.
        Conflict: A query may be using the checkpoint.
    """
    catalog = open_storage(os.fspath(everywhere), "everywhere")
    require_catalog(catalog)
    if checkpoint is None:
        return catalog, None
    storage = open_current(checkpoint)
    require_stopped(storage)
    return catalog, storage


def checkpoint_usage(checkpoint: Address) -> CheckpointUsage:
    """Return the evidence of queries that may be using a checkpoint to erase from. Changes nothing.

    Raises:
        Conflict: A job holds the checkpoint, a process has one of its files open, or a batch is uncommitted.
        NotFound: The checkpoint does not exist.
    """
    storage = open_current(checkpoint)
    require_stopped(storage)
    return dry_run_usage(storage, now_ms())


def apply(
    plan: EditPlan,
    catalog: Storage,
    target: Storage,
    *,
    why: str | None,
    label: str | None,
    who: str | None,
    tell: ProgressCallback | None,
) -> EditReport:
    """Create the planned savepoint, with a working directory next to its catalog."""
    from holdfast.changes.edit import editing  # it needs Arrow, which an erasure does not

    with workplace(target, "edit") as folder:
        return editing.edit(
            catalog,
            target,
            plan,
            folder,
            who=who or person(),
            why=why,
            label=label,
            tell=tell,
        )


def as_asked(plan: EditPlan, source: Address) -> EditPlan:
    """Return a plan that names the user's source: the checkpoint instead of its temporary savepoint."""
    if StateAddress.resolve(source).is_savepoint:
        return plan
    return replace(plan, savepoint=plan.manifest.checkpoint)


@contextmanager
def source_of(
    source: Address,
    to: Address | None,
    tell: ProgressCallback | None,
    *,
    keep: bool,
    home: Address | None = None,
) -> Iterator[tuple[Storage, str, Storage]]:
    """Yield the savepoint to edit, and the catalog for the new one.

    For a checkpoint, a savepoint is taken first: in that catalog, or if `keep` is false, in a directory that
    is deleted at the end.

    Raises:
        Conflict: A query uses the checkpoint.
        Invalid: No catalog is given for the savepoint of a checkpoint.
    """
    address = StateAddress.resolve(source)
    if address.is_savepoint:
        catalog, savepoint_id = address.open_savepoint()
        yield catalog, savepoint_id, catalog if to is None else open_storage(os.fspath(to), "to")
        return
    checkpoint = open_checkpoint(address.text)
    if to is None:
        raise Invalid(
            "editing a checkpoint needs a catalog for the new savepoint",
            code="HF-E2068",
            where=checkpoint.uri,
            hint="give a catalog with --to DIR, or `to=` in Python",
        )
    require_stopped(checkpoint)
    target = open_storage(os.fspath(to), "to")
    with nullcontext() if keep else scratch(checkpoint) as folder:
        into = target if folder is None else LocalStorage(folder / "catalog")
        plan = plan_take(checkpoint, into, record=record_of(checkpoint, home))
        taken = taking.take(checkpoint, into, plan, tell=tell)
        savepoint_id = taken.manifest.savepoint_id
        try:
            yield into, savepoint_id, target
        except BaseException:
            # The user did not ask for a savepoint that was not edited.
            with suppress(HoldfastError):
                removal.delete(into, savepoint_id)
            raise
        if keep:
            with suppress(HoldfastError):  # the savepoint exists, and its digests stay pending
                digest(into, savepoint_id, tell=tell)


def require_stopped(checkpoint: Storage) -> None:
    """Check that no query may be using a checkpoint.

    Raises:
        Conflict: A job holds the checkpoint, or a batch is uncommitted.
        NotFound: The checkpoint does not exist.
    """
    refuse_held(checkpoint)
    progress = read(checkpoint)
    if progress.uncommitted is not None:
        raise Conflict(
            "the checkpoint has an uncommitted batch, which is running or will run at the next start",
            code="HF-E4003",
            where=checkpoint.uri,
            found=f"batch {progress.uncommitted}",
            expected=f"no uncommitted batch after batch {progress.batch_id}",
            hint="take a savepoint and edit the savepoint; or stop the query between two batches with "
            "`holdfast stop JOB`, or run it once with the trigger `availableNow`",
        )


def request(
    state: str,
    where: str | None,
    key: str | None,
    set_: Mapping[str, Any] | None,
    *,
    delete: bool,
    insert: Sequence[Mapping[str, Any]],
    change: TableChange | None,
) -> Edit:
    """Build an edit from the arguments of a caller."""
    assigned = tuple(f"{column} = {_sql(value)}" for column, value in (set_ or {}).items())
    return Edit(state, where, key, assigned, delete, tuple(insert), change)


def _sql(value: Any) -> str:
    """Return a value of `set` as SQL; text is SQL already."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise Invalid(
        "not a valid value for `set`",
        code="HF-E2069",
        found=repr(value)[:200],
        expected="an SQL expression as text, a number, a boolean or None",
        hint="write text as an SQL literal: `\"'gold'\"`",
    )
