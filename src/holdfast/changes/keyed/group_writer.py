"""Write key groups to a checkpoint, in a separate batch that reads nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from holdfast import layout
from holdfast.at_rest.keyed_operators import KeyedOperator
from holdfast.at_rest.keyed_reader import keyed_states
from holdfast.changes.keyed.regrouping import Regrouped, regrouped, renumbered
from holdfast.changes.keyed.store_rows import GroupChange, group_rows
from holdfast.changes.working_copy import begin
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.keyed import KeyGroup
from holdfast.checkpoints.state.states import operator_states
from holdfast.clock import now_ms
from holdfast.errors import NotFound
from holdfast.layout import StoreId
from holdfast.savepoints.store_edits import RowChange, StoreChanges, put_rows
from holdfast.savepoints.stores import OpenStore, StoreForm
from holdfast.storage.port import Storage, full


def write_groups(
    checkpoint: Storage,
    changes: Mapping[int, Sequence[GroupChange]],
    folder: Path,
    tell: ProgressCallback | None = None,
) -> int:
    """Write key groups to a checkpoint, in a separate batch.

    No query may use the checkpoint, and its newest batch has to be committed. The new batch's state is that
    of the newest with these key groups changed, and everything else unchanged. It takes effect with its
    commit, which is written last. To remove all bytes of replaced values, the files of earlier batches have
    to be deleted as well.

    Cost: every store is opened and rewritten; data files without changed rows are kept.

    Args:
        checkpoint: The checkpoint; it is changed.
        changes: Key groups by the number of their operator.
        folder: A working directory that does not exist yet.
        tell: Called with stores done, stores in all, and the current step.

    Returns:
        The batch.

    Raises:
        NotFound: No batch is committed, or a file that it needs is missing.
        Corrupt: A file is damaged.
    """
    operators = {operator.operator_id: operator for operator in operator_states(checkpoint)}
    rows: dict[StoreId, tuple[RowChange, ...]] = {}
    for number, groups in changes.items():
        rows |= group_rows(operators[number], groups)
    return write_rows(checkpoint, rows, folder, tell)


def write_rows(
    checkpoint: Storage,
    changes: StoreChanges,
    folder: Path,
    tell: ProgressCallback | None = None,
) -> int:
    """Write rows to the stores of a checkpoint, in a separate batch: see `write_groups`.

    Args:
        checkpoint: The checkpoint; it is changed.
        changes: The changed rows, by store.
        folder: A working directory that does not exist yet.
        tell: Called with stores done, stores in all, and the current step.

    Returns:
        The batch.

    Raises:
        NotFound: No batch is committed, or a file that it needs is missing.
        Corrupt: A file is damaged.
    """
    folder.mkdir()
    batch = begin(checkpoint)
    states = operator_states(checkpoint, batch.before)
    total = sum(state.partitions * len(state.store_names) for state in states)
    done, unique = 0, False
    ids: dict[int, tuple[tuple[str, ...], ...]] = {}
    for operator in states:
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
                    put_rows(held, changes.get(store, ()))
                    file = held.write(checkpoint, form.file(store, batch.version), now_ms(), thoroughly=True)
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
    tell: ProgressCallback | None = None,
) -> tuple[Regrouped, ...]:
    """Move the keys of Holdfast's keyed operators to a different number of key groups, in a separate batch.

    The operators' notes are changed first: no process may start the query before this has returned, so use a
    copy of the checkpoint, and start the query only afterwards, with the same `key_groups`.

    Args:
        checkpoint: The checkpoint; it is changed.
        key_groups: The new number of groups.
        folder: A working directory that does not exist yet.
        tell: Called with stores done, stores in all, and the current step.

    Returns:
        The operators that were changed, with their new key groups.

    Raises:
        NotFound: The checkpoint has none of Holdfast's keyed operators.
        Unsupported: Something other than their hashes decides the groups of its keys.
        Corrupt: A file is damaged.
    """
    states = keyed_states(checkpoint)
    if not states:
        raise NotFound(
            "the checkpoint has no keyed operator of Holdfast",
            code="HF-E3011",
            where=checkpoint.uri,
            hint="list the operators of the checkpoint with `holdfast state list`",
        )
    moved, changes = [], {}
    for state in states:
        if state.operator.key_groups == key_groups:
            continue
        now = regrouped(state, key_groups)
        changes[now.operator.operator_id] = replacing(state.source.groups(), now.groups)
        moved.append(now)
    for now in moved:
        _renumber(checkpoint, now.operator)
    if changes:
        write_groups(checkpoint, changes, folder, tell)
    return tuple(moved)


def replacing(before: Iterable[KeyGroup], after: Iterable[KeyGroup]) -> list[GroupChange]:
    """Return changes that replace all groups."""
    had, has = ({group.group: group for group in groups} for groups in (before, after))
    return [GroupChange(had.get(number), has.get(number)) for number in sorted({*had, *has})]


def _renumber(checkpoint: Storage, operator: KeyedOperator) -> None:
    path = operator.note_path
    if path is None:
        return  # a query that was started without Holdfast has noted nothing
    note = renumbered(checkpoint.read(path), operator.key_groups, full(checkpoint.uri, path))
    # Hadoop's checksum of the former note would have its own file system refuse the new one.
    checkpoint.delete(layout.HadoopChecksumFile(path).render())
    checkpoint.write(path, note, replace=True)
