"""Key groups put back into a checkpoint, in a batch of its own that reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from holdfast import layout
from holdfast.at_rest.keyed.changes import GroupChange
from holdfast.at_rest.keyed.keyed_operators import KeyedOperator
from holdfast.at_rest.keyed.keyed_reader import keyed_states
from holdfast.at_rest.keyed.regrouping import Regrouped, regrouped, renumbered
from holdfast.at_rest.keyed.store_rows import StoreRow, store_rows
from holdfast.checkpoints.keyed.key_groups import KeyGroup, numbering_of
from holdfast.checkpoints.state.states import OperatorStates, operator_states
from holdfast.checkpoints.values import ProgressCallback
from holdfast.errors import NotFound
from holdfast.layout import StoreId
from holdfast.savepoints.catalog.leases import Clock
from holdfast.savepoints.rewrite.maintenance_commit import begin
from holdfast.savepoints.rewrite.open_store import OpenStore
from holdfast.savepoints.rewrite.store_files import StoreForm
from holdfast.storage.port import Storage, full


def put_rows(store: OpenStore, operator: OperatorStates, rows: Iterable[StoreRow]) -> None:
    """Put and delete the rows of one store, which all have to be of its partition."""
    name = store.store.name
    by_family: dict[str, list[StoreRow]] = {}
    for row in rows:
        by_family.setdefault(row.family, []).append(row)
    for family, found in by_family.items():
        codec = operator.codec_of(name, family)
        keys = [codec.stored_key(row.key_row) for row in found]
        gone = [key for key, row in zip(keys, found, strict=True) if row.value_rows is None]
        held = [
            (key, row.value_rows, row.is_list)
            for key, row in zip(keys, found, strict=True)
            if row.value_rows is not None
        ]
        lists = [(key, values) for key, values, is_list in held if is_list]
        single = [(key, values[0]) for key, values, is_list in held if not is_list]
        store.delete(gone, family)
        store.put([key for key, _ in single], [value for _, value in single], family)
        store.put_lists([key for key, _ in lists], [values for _, values in lists], family)


def write_groups(
    checkpoint: Storage,
    changes: Mapping[int, Sequence[GroupChange]],
    folder: Path,
    clock: Clock,
    tell: ProgressCallback | None = None,
) -> int:
    """Put key groups into a checkpoint, in a batch of its own.

    No query may use the checkpoint, and its newest batch has to be committed. The new batch's state is that
    of the newest with these key groups changed; all else in it is as it was. It counts with its commit, which
    is written last. Where the bytes of what was replaced must be nowhere, the files of the batches before
    have to go as well.

    Cost: every store is opened and written anew; data files that hold nothing of what changed are kept.

    Args:
        checkpoint: The checkpoint; it is changed.
        changes: Key groups by the number of their operator.
        folder: A directory to work in that is not there yet.
        clock: The time in epoch milliseconds.
        tell: Called with stores done, stores in all, and what is being done.

    Returns:
        The batch.

    Raises:
        NotFound: No batch is committed, or a file that it needs is gone.
        Corrupt: A file is damaged.
    """
    operators = {each.operator_id: each for each in operator_states(checkpoint)}
    rows = {number: _by_partition(operators[number], found) for number, found in changes.items()}
    return write_rows(checkpoint, rows, folder, clock, tell)


def write_rows(
    checkpoint: Storage,
    changes: Mapping[int, Mapping[int, Sequence[StoreRow]]],
    folder: Path,
    clock: Clock,
    tell: ProgressCallback | None = None,
) -> int:
    """Put rows into the stores of a checkpoint, in a batch of its own: see `write_groups`.

    Args:
        checkpoint: The checkpoint; it is changed.
        changes: Rows by the number of their operator, which keeps one store in each partition, and by
            partition.
        folder: A directory to work in that is not there yet.
        clock: The time in epoch milliseconds.
        tell: Called with stores done, stores in all, and what is being done.

    Returns:
        The batch.

    Raises:
        NotFound: No batch is committed, or a file that it needs is gone.
        Corrupt: A file is damaged.
    """
    folder.mkdir()
    batch = begin(checkpoint)
    states = operator_states(checkpoint, batch.before)
    total = sum(state.partitions * len(state.store_names) for state in states)
    done, unique = 0, False
    ids: dict[int, tuple[tuple[str, ...], ...]] = {}
    for operator in states:
        rows = changes.get(operator.operator_id, {})
        made: list[tuple[str, ...]] = []
        for partition in range(operator.partitions):
            written = []
            for name in operator.store_names:
                if tell is not None:
                    tell(done, total, "writing state")
                store = StoreId(operator.operator_id, partition, name)
                chain = operator.chain(checkpoint, store)
                unique = bool(chain) and chain[-1].unique_id is not None
                form = StoreForm(operator.values, operator.codec, unique)
                with OpenStore(checkpoint, operator, store, folder / store.folder.replace("/", "-")) as held:
                    put_rows(held, operator, rows.get(partition, ()))
                    file = held.write(checkpoint, form.file(store, batch.version), clock(), thoroughly=True)
                written.append(file.unique_id or "")
                done += 1
            made.append(tuple(written))
        ids[operator.operator_id] = tuple(made)
    batch.commit(ids if unique else None)
    return batch.batch_id


def regroup(
    checkpoint: Storage,
    key_groups: int,
    folder: Path,
    clock: Clock,
    *,
    operators: Sequence[str] | None = None,
    tell: ProgressCallback | None = None,
) -> tuple[Regrouped, ...]:
    """Put the keys of Holdfast's keyed operators into another number of key groups, in a batch of its own.

    The operators' notes are changed first: nobody may start the query before this has returned, so let the
    checkpoint be a copy, and use it only when this is done. Start the query with the same `key_groups`.

    Args:
        checkpoint: The checkpoint; it is changed.
        key_groups: How many groups there are to be.
        folder: A directory to work in that is not there yet.
        clock: The time in epoch milliseconds.
        operators: The names of those to change; by default all whose number is another.
        tell: Called with stores done, stores in all, and what is being done.

    Returns:
        What became of each that was changed.

    Raises:
        NotFound: There is no such operator, or the checkpoint has none of Holdfast's keyed operators.
        Unsupported: Something else than their hashes says where its keys are.
        Corrupt: A file is damaged.
    """
    states = keyed_states(checkpoint)
    names = [state.operator.name for state in states]
    for name in operators or ():
        if name not in names:
            raise NotFound(
                "the checkpoint has no such keyed operator",
                where=checkpoint.uri,
                found=name,
                expected=", ".join(names) or "none: it has none of Holdfast's",
            )
    chosen = [state for state in states if operators is None or state.operator.name in operators]
    if not chosen:
        raise NotFound("the checkpoint has no keyed operator of Holdfast's", where=checkpoint.uri)
    found, changes = [], {}
    for each in chosen:
        if each.operator.key_groups == key_groups:
            continue
        made = regrouped(each, key_groups)
        changes[each.operator.operator_id] = replacing(each.source.groups(), made.groups)
        found.append(made)
    for done in found:
        _renumber(checkpoint, done.operator)
    if changes:
        write_groups(checkpoint, changes, folder, clock, tell)
    return tuple(found)


def replacing(before: Iterable[KeyGroup], after: Iterable[KeyGroup]) -> list[GroupChange]:
    """Groups in place of all that there were."""
    had, has = ({group.group: group for group in groups} for groups in (before, after))
    return [GroupChange(had.get(number), has.get(number)) for number in sorted({*had, *has})]


def _renumber(checkpoint: Storage, operator: KeyedOperator) -> None:
    path = operator.note_path
    if path is None:
        return  # a query that was started without Holdfast has noted nothing
    note = renumbered(checkpoint.read(path), operator.key_groups, full(checkpoint.uri, path))
    # Hadoop's checksum of the former note would have its own file system refuse the new one.
    checkpoint.delete(layout.HadoopChecksum(path).render())
    checkpoint.write(path, note, replace=True)


def _by_partition(operator: OperatorStates, changes: Iterable[GroupChange]) -> dict[int, list[StoreRow]]:
    found: dict[int, list[StoreRow]] = {}
    numbering = numbering_of(operator)
    for change in changes:
        for row in store_rows(operator.partitions, numbering, change.before, change.after):
            found.setdefault(row.partition, []).append(row)
    return found
