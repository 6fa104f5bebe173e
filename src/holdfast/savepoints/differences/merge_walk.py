"""Two states of one make, compared row by row while both are read.

Where an operator puts its rows into bytes in the same way on both sides, a row that is the same is the same
bytes, and if it has as many partitions it comes at about the same place. So both are read in step, and what
one side has had is crossed out against the other. Only what is left over is held.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from holdfast.checkpoints.keyed.key_groups import is_keyed
from holdfast.checkpoints.state.contents import bare_bytes, bare_rows
from holdfast.checkpoints.state.families import Pairs
from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec, StateName
from holdfast.checkpoints.values import ProgressCallback
from holdfast.storage.port import Storage

# More rows than this that the other side has not had yet are not held: the two have too little in common.
_HELD: Final = 400_000
KEY_HASH: Final = 16

Row = tuple[bytes, bytes]
Chunk = tuple[StateCodec, int, Pairs]


@dataclass(slots=True)
class Stepped:
    """One state, as far as both sides have been read.

    Attributes:
        codec: What takes its rows apart.
        first: Rows that only the first side has had.
        second: Rows that only the second side has had.
        first_rows: The rows of the first side.
        second_rows: Those of the second.
        first_bytes: Their bytes, keys and values.
        second_bytes: Those of the second.
    """

    codec: StateCodec
    first: set[Row] = field(default_factory=set)
    second: set[Row] = field(default_factory=set)
    first_rows: int = 0
    second_rows: int = 0
    first_bytes: int = 0
    second_bytes: int = 0

    def count(self, rows: Pairs, others: Pairs) -> None:
        """Take note of how many rows there are on both sides, and of what those of the first weigh."""
        self.first_rows += len(rows)
        self.first_bytes += bare_bytes(self.codec, rows)
        self.second_rows += len(others)

    def weigh(self) -> None:
        """Work out the bytes of the second side: what both have weighs as much there."""
        only_first, only_second = (bare_bytes(self.codec, list(rows)) for rows in (self.first, self.second))
        self.second_bytes = self.first_bytes - only_first + only_second

    def take(self, rows: Pairs, others: Pairs) -> bool:
        """Take in rows of both sides, and cross out what both have; False where a side has one twice."""
        for held, new in ((self.first, rows), (self.second, others)):
            before = len(held)
            held.update(new)
            if len(held) - before != len(new):
                return False
        both = self.first & self.second
        self.first -= both
        self.second -= both
        return True


@dataclass(frozen=True, slots=True)
class Differing:
    """A row that is not the same on both sides: its bare key, and as it is stored on either."""

    key: bytes
    first: Row | None
    second: Row | None


def alike(first: OperatorStates, second: OperatorStates) -> bool:
    """Whether a row that is the same is the same bytes on both sides, and comes at about the same place."""
    return (
        not is_keyed(first)
        and not is_keyed(second)
        and first.partitions == second.partitions
        and first.store_names == second.store_names
        and first.values == second.values
        and _forms(first) == _forms(second)
    )


def step(
    first: tuple[Storage, OperatorStates],
    second: tuple[Storage, OperatorStates],
    tell: ProgressCallback | None,
) -> dict[StateName, Stepped] | None:
    """Read both sides in step, and cross out what both have.

    Args:
        first: One side: its storage, and the operator at its batch.
        second: The other, alike.
        tell: Called with stores done, stores in all, and what is being done.

    Returns:
        What is left over, by state; None where too much is, or a side has a row twice, as damaged state may:
        then they have to be compared in another way.

    Raises:
        NotFound: A file that a batch needs is gone.
        Corrupt: A file or a row is damaged.
        Unsupported: A state is of a kind that cannot be read.
    """
    found: dict[StateName, Stepped] = {}
    for chunk, against in zip_longest(_chunks(*first, tell), _chunks(*second, tell)):
        for codec, rows, others in _by_state(chunk, against):
            state = found.setdefault(codec.name, Stepped(codec))
            state.count(rows, others)
            if not state.take(*_unlike(rows, others)):
                return None
        if sum(len(state.first) + len(state.second) for state in found.values()) > _HELD:
            return None
    for state in found.values():
        state.weigh()
    return found


def differing(state: Stepped) -> Iterator[Differing]:
    """The rows that are left over, by the hash of their key."""
    sides: dict[bytes, list[Row | None]] = defaultdict(lambda: [None, None])
    for side, rows in enumerate((state.first, state.second)):
        pairs = list(rows)
        for bare, row in zip(bare_rows(state.codec, pairs)[0], pairs, strict=True):
            sides[bare][side] = row
    ordered = sorted(sides, key=lambda key: hashlib.blake2b(key, digest_size=KEY_HASH).digest())
    for key in ordered:
        yield Differing(key, *sides[key])


def shown(codec: StateCodec, row: Row) -> tuple[Any, Any]:
    """Key and value of a row as values."""
    rows, is_list = codec.values.rows(row[1], codec.where)
    values = [codec.value_values(value) for value in rows]
    return codec.key_values(codec.key_row(row[0])), values if is_list else values[0]


def _chunks(storage: Storage, operator: OperatorStates, tell: ProgressCallback | None) -> Iterator[Chunk]:
    return state_chunks(storage, operator.batch_id, operator_id=operator.operator_id, tell=tell)


def _by_state(chunk: Chunk | None, against: Chunk | None) -> Iterator[tuple[StateCodec, Pairs, Pairs]]:
    """The rows of both sides by state."""
    if chunk is not None and against is not None and chunk[0].name == against[0].name:
        yield chunk[0], chunk[2], against[2]
        return
    if chunk is not None:
        yield chunk[0], chunk[2], []
    if against is not None:
        yield against[0], [], against[2]


def _unlike(rows: Pairs, others: Pairs) -> tuple[Pairs, Pairs]:
    """The rows of both sides without those that are in the same place."""
    if len(rows) != len(others):
        return rows, others
    unlike = [(row, other) for row, other in zip(rows, others, strict=True) if row != other]
    return [row for row, _ in unlike], [other for _, other in unlike]


def _forms(operator: OperatorStates) -> Sequence[tuple[StateName, Any]]:
    return sorted((codec.name, codec.key_form) for codec in operator.known())
