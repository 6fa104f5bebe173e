"""The writing of key groups to a checkpoint, in a separate batch without input."""

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

    No query may use the checkpoint, and its newest batch must be committed. The state of the new batch is
    that of the newest batch with these key groups changed. The batch takes effect with its commit, which is
    written last. To remove all bytes of replaced values, the files of earlier batches must also be deleted.

    Cost: opens and rewrites every store; data files without changed rows are kept.

    Args:
        checkpoint: The checkpoint to modify.
        changes: The changed key groups, by the number of the operator.
        folder: A working directory that does not exist yet.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Returns:
        The id of the new batch.

    Raises:
        NotFound: No batch is committed, or a file that the batch needs is missing.
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
    """Write rows to the stores of a checkpoint, in a separate batch; see `write_groups`.

    Args:
        checkpoint: The checkpoint to modify.
        changes: The changed rows, by store.
        folder: A working directory that does not exist yet.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Returns:
        The id of the new batch.

    Raises:
        NotFound: No batch is committed, or a file that the batch needs is missing.
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
    """Move the keys of keyed operators to a different number of key groups, in a separate batch.

    The files that describe the operators are changed first, so no process may start the query before this
    function has returned. Use a copy of the checkpoint, and then start the query with the same `key_groups`.

    Args:
        checkpoint: The checkpoint to modify.
        key_groups: The new number of groups.
        folder: A working directory that does not exist yet.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Returns:
        The changed operators with their new key groups.

    Raises:
        NotFound: The checkpoint has no keyed operators.
        Unsupported: Keys are placed by a placement function and not by hash.
        Corrupt: A file is damaged.
    """
    states = keyed_states(checkpoint)
    if not states:
        raise NotFound(
            "the checkpoint has no keyed operator of Holdfast",
            code="HF-E3011",
            where=checkpoint.uri,
            hint="list the operators of the checkpoint with `holdfast state list CHECKPOINT`",
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
    """Return the changes that replace all groups."""
    had, has = ({group.group: group for group in groups} for groups in (before, after))
    return [GroupChange(had.get(number), has.get(number)) for number in sorted({*had, *has})]


def _renumber(checkpoint: Storage, operator: KeyedOperator) -> None:
    path = operator.note_path
    if path is None:
        return  # a query that was started without Holdfast has no such file
    note = renumbered(checkpoint.read(path), operator.key_groups, full(checkpoint.uri, path))
    # Hadoop's checksum of the old file would make its file system refuse the new one.
    checkpoint.delete(layout.HadoopChecksumFile(path).render())
    checkpoint.write(path, note, replace=True)
