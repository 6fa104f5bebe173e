"""The differences between two states key by key, computed partition by partition in tasks.

A task reads one partition of an operator. If both sides encode the operator in the same way, the task reads
both in step and hashes only the rows that differ; otherwise it reads one side. The hashes of keys and values,
32 bytes per row, are exchanged by the hash of the key, so one task gets all rows of a key from any partition.
Then the sample rows are read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.contents import bare_rows
from holdfast.checkpoints.state.states import OperatorStates, StateName, operator_states
from holdfast.savepoints.key_diff import (
    ChangeCounts,
    KeyedRow,
    KeySamples,
    RowChunk,
    StatesDifference,
    Stepped,
    alike,
    count_changes,
    keys_of_side,
    merge_changes,
    operator_chunks,
    read_hashes,
    sample,
    step,
    with_samples,
)
from holdfast.savepoints.spread import SharedState, Tasks, open_state, share_state
from holdfast.savepoints.view import StateLocation
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The group of a row is given by the first 16 bits of its hash.
_GROUP_BITS: Final = 16

# The states of those sides that have stateful operators.
_Sides = Mapping[int, SharedState]
# Hashes of rows of one state on one side, as bytes.
_Hashes = tuple[StateName, int, bytes]


@dataclass(frozen=True, slots=True)
class Part:
    """One partition of an operator, on one side or on both."""

    operator_id: int
    partition: int
    sides: tuple[int, ...]


@dataclass(slots=True)
class PartCount:
    """The rows of one state in one part, on both sides."""

    rows: list[int] = field(default_factory=lambda: [0, 0])
    size_bytes: list[int] = field(default_factory=lambda: [0, 0])


def compare_in_tasks(
    tasks: Tasks,
    first: StateLocation,
    second: StateLocation,
    *,
    samples: int = 5,
    tell: ProgressCallback | None = None,
) -> StatesDifference:
    """Return what `compare_states` returns, computed in tasks.

    Cost: as `compare_states`, divided by the number of tasks that run at once; the rows that differ, or all
    rows of operators that the sides encode differently, are exchanged between the tasks at 32 bytes each. If
    samples are wanted, the operators whose rows differ are read again.

    Raises:
        As `compare_states`; and
        Unsupported: A state is in a database.
        Unavailable: An executor does not see a state.
    """
    operators = [
        {operator.operator_id: operator for operator in operator_states(side.storage, side.batch_id)}
        for side in (first, second)
    ]
    one, other = operators
    shared = {
        side: share_state(state, next(iter(operators[side].values())).batch_id)
        for side, state in enumerate((first, second))
        if operators[side]
    }
    both = {number for number in one if number in other and alike(one[number], other[number])}
    parts = [Part(number, at, (0, 1)) for number in sorted(both) for at in range(one[number].partitions)]
    parts += [
        Part(number, at, (side,))
        for side, of_side in enumerate(operators)
        for number, operator in sorted(of_side.items())
        for at in range(operator.partitions)
        if number not in both
    ]
    groups = _group_count(len(parts))
    counts, changes = tasks.exchange(
        partial(hash_part, shared, groups),
        partial(fold_group, samples),
        parts,
        groups,
        tell,
        "reading state",
    )
    rows: dict[StateName, PartCount] = {}
    for of_part in counts:
        for name, count in of_part:
            total = rows.setdefault(name, PartCount())
            for side in (0, 1):
                total.rows[side] += count.rows[side]
                total.size_bytes[side] += count.size_bytes[side]
    found = {
        name: merge_changes(
            name, total.rows, total.size_bytes, (of_group.get(name, {}) for of_group in changes), samples
        )
        for name, total in sorted(rows.items())
    }
    wanted = {name: keys for name, (_, keys) in found.items() if any(keys.values())}
    shown = _sample_rows(tasks, shared, wanted, parts, tell) if wanted else {}
    return StatesDifference(
        first.name,
        second.name,
        tuple(with_samples(state, wanted.get(name, {}), shown) for name, (state, _) in found.items()),
    )


def hash_part(
    shared: _Sides, groups: int, part: Part
) -> tuple[list[tuple[StateName, PartCount]], dict[int, list[_Hashes]]]:
    """Return the number of rows of each state in a part, and the hashes of its rows by group.

    Rows that both sides have are omitted where the sides are read in step.

    Args:
        shared: The states of both sides.
        groups: The number of groups, a power of two.
        part: The part.
    """
    counts: dict[StateName, PartCount] = {}
    hashes: dict[int, dict[tuple[StateName, int], list[bytes]]] = defaultdict(lambda: defaultdict(list))

    def add(side: int, chunk: RowChunk) -> None:
        for group, records in _by_group(chunk.records(), groups):
            hashes[group][chunk.name, side].append(records)

    stepped = _step(shared, part) if len(part.sides) > 1 else None
    if stepped is not None:
        for name, state in stepped.items():
            counts[name] = PartCount(
                [state.first_rows, state.second_rows], [state.first_bytes, state.second_bytes]
            )
            for side, held in enumerate((state.first, state.second)):
                pairs = list(held)
                add(side, RowChunk(name, *bare_rows(state.codec, pairs), pairs.__getitem__))
    else:
        for side in part.sides:
            for chunk in _chunks(shared, side, part):
                count = counts.setdefault(chunk.name, PartCount())
                count.rows[side] += len(chunk.keys)
                count.size_bytes[side] += chunk.size_bytes
                add(side, chunk)
    return list(counts.items()), {
        group: [(name, side, b"".join(records)) for (name, side), records in of_group.items()]
        for group, of_group in hashes.items()
    }


def fold_group(samples: int, parts: Iterable[list[_Hashes]]) -> dict[StateName, ChangeCounts]:
    """Return the changes of each state in one group.

    Args:
        samples: The number of keys to return for each kind of change.
        parts: The hashes of all parts that have rows of the group.
    """
    states: dict[StateName, tuple[list[bytes], list[bytes]]] = defaultdict(lambda: ([], []))
    for part in parts:
        for name, side, records in part:
            states[name][side].append(records)
    return {
        name: count_changes(read_hashes(b"".join(one)), read_hashes(b"".join(other)), samples)
        for name, (one, other) in states.items()
    }


def sample_part(
    shared: _Sides, wanted: Mapping[StateName, KeySamples], part: Part
) -> list[tuple[StateName, bytes, KeyedRow]]:
    """Return the rows of a part to show, with the hash of their key."""
    [side] = part.sides
    left = keys_of_side(side, wanted)
    return [
        (chunk.name, key, row) for chunk in _chunks(shared, side, part) for key, row in sample(chunk, left)
    ]


def _group_count(parts: int) -> int:
    """Return the smallest power of two that is not below the number of parts, at most 65,536."""
    return 1 << min(max(parts - 1, 0).bit_length(), _GROUP_BITS)


def _opened(shared: _Sides, side: int, part: Part) -> tuple[Storage, OperatorStates]:
    opened = open_state(shared[side])
    return opened.storage, opened.operators[part.operator_id]


def _step(shared: _Sides, part: Part) -> dict[StateName, Stepped] | None:
    """Read a part of both sides in step; None if it must be read side by side."""
    return step(_opened(shared, 0, part), _opened(shared, 1, part), None, part.partition)


def _chunks(shared: _Sides, side: int, part: Part) -> Iterator[RowChunk]:
    return operator_chunks(*_opened(shared, side, part), None, part.partition)


def _by_group(records: NDArray[np.uint8], groups: int) -> Iterator[tuple[int, bytes]]:
    """Yield the records of each group, by the first bits of their hash."""
    import numpy as np

    if not len(records):
        return
    first_bits = (records[:, 0].astype(np.int64) << 8) | records[:, 1]
    numbers = first_bits // ((1 << _GROUP_BITS) // groups)
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    for number, rows in zip(present.tolist(), np.split(records[order], starts[1:]), strict=True):
        yield number, rows.tobytes()


def _sample_rows(
    tasks: Tasks,
    shared: _Sides,
    wanted: Mapping[StateName, KeySamples],
    parts: Iterable[Part],
    tell: ProgressCallback | None,
) -> dict[tuple[int, StateName, bytes], KeyedRow]:
    """Return the rows to show by side, state and hash of the key."""
    operators = {name.operator_id for name in wanted}
    read = sorted(
        (
            Part(part.operator_id, part.partition, (side,))
            for part in parts
            if part.operator_id in operators
            for side in part.sides
        ),
        key=lambda part: (part.sides, part.operator_id, part.partition),
    )
    shown: dict[tuple[int, StateName, bytes], KeyedRow] = {}
    for part, rows in zip(
        read, tasks.run(partial(sample_part, shared, wanted), read, tell, "reading samples"), strict=True
    ):
        for name, key, row in rows:
            shown.setdefault((part.sides[0], name, key), row)
    return shown
