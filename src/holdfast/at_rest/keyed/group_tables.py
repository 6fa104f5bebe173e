"""Where key groups are read from, and what their tables hold, column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.checkpoints.keyed.key_groups import KeyGroup, Part, stored_group, stored_groups
from holdfast.checkpoints.keyed.key_rows import SHARED
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.errors import Unsupported
from holdfast.storage.port import Storage
from holdfast.worker.arrays import numbers
from holdfast.worker.interface import STAMP_PREFIX, VALUE_PREFIX
from holdfast.worker.state.blob_schema import KEY_PREFIX, ROWS
from holdfast.worker.state.tables.runs import Run, concatenated, sorted_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.at_rest.keyed.keyed_operators import KeptState


_IDENTITY: Final = ("h", "ord", "dead")


class GroupSource(Protocol):
    """Where the key groups of one operator are."""

    def group(self, number: int) -> KeyGroup | None:
        """One group; None where it has no state."""
        ...

    def groups(self) -> Iterator[KeyGroup]:
        """Every group that has state; numbers ascend within a partition."""
        ...


@dataclass(frozen=True, slots=True)
class Stored:
    """The key groups of an operator in a checkpoint, or in a savepoint's view.

    Attributes:
        storage: The checkpoint.
        states: What reads its rows.
    """

    storage: Storage
    states: OperatorStates

    def group(self, number: int) -> KeyGroup | None:
        """See `GroupSource`."""
        return stored_group(self.storage, self.states, number)

    def groups(self) -> Iterator[KeyGroup]:
        """See `GroupSource`."""
        return stored_groups(self.storage, self.states)


class GroupsInMemory:
    """Key groups in memory: made, changed or gathered elsewhere."""

    def __init__(self, groups: Iterable[KeyGroup]) -> None:
        self._groups: Mapping[int, KeyGroup] = {group.group: group for group in groups}

    def group(self, number: int) -> KeyGroup | None:
        """See `GroupSource`."""
        return self._groups.get(number)

    def groups(self) -> Iterator[KeyGroup]:
        """See `GroupSource`."""
        return (self._groups[number] for number in sorted(self._groups))


def key_table(run: Run, keys: pa.Schema) -> pa.Table:
    """The key columns of rows, under the user's names."""
    columns = [run.column(f"{KEY_PREFIX}{at}") for at in range(len(keys))]
    return pa.Table.from_arrays(columns, schema=keys)


def owners_of(parts: Sequence[Part]) -> Run | None:
    """The keys of a group with their identities, of whatever form; None where it has none."""
    batches = []
    for part in parts:
        run = part.tables.get(ROWS)
        if run is not None:
            names = [name for name in run.batch.schema.names if name.startswith(KEY_PREFIX)]
            batches.append(run.batch.select([*_IDENTITY, *names]))
    return sorted_run(concatenated(batches)) if batches else None


def state_rows(part: Part, owners: Run, state: KeptState) -> tuple[Run, list[pa.Array]] | None:
    """The rows of a state in one part of a group: whose they are, and map keys, values and stamps beside.

    Args:
        part: The part.
        owners: The keys of the group.
        state: The state, as it is to come out: values of an older type are widened.

    Returns:
        None where the part has nothing of it.

    Raises:
        Unsupported: The part has the state in another type.
    """
    if state.has_elements:
        return _element_rows(part, owners, state)
    run = part.tables.get(ROWS)
    value = f"{VALUE_PREFIX}{state.name}"
    if run is None or value not in part.form.tables[ROWS].names:
        return None
    run = run.take(numbers(run.column(value).is_valid()))
    stamp = f"{STAMP_PREFIX}{state.name}"
    has_stamp = stamp in part.form.tables[ROWS].names
    stamps = run.column(stamp) if has_stamp else pa.nulls(len(run), pa.int64())
    return run, [pa.nulls(len(run)), fitted(run.column(value), state.type, state.name), stamps]


def _element_rows(part: Part, owners: Run, state: KeptState) -> tuple[Run, list[pa.Array]] | None:
    run = part.tables.get(state.name)
    if run is None:
        return None
    names = part.form.tables[state.name].names
    places = owners.find(run.h, run.ord)
    own = (places >= 0) & (run.ord != SHARED)
    rows = run.take(own)
    keys = Run(owners.batch.take(pa.array(places[own])))
    map_keys = fitted(rows.column("k"), state.key_type, state.name) if "k" in names else pa.nulls(len(rows))
    stamps = rows.column("t") if "t" in names else pa.nulls(len(rows), pa.int64())
    return keys, [map_keys, fitted(rows.column("v"), state.type, state.name), stamps]


def fitted(column: pa.Array, kind: pa.DataType | None, name: str) -> pa.Array:
    """A column in a wider type of its kind.

    Raises:
        Unsupported: It has another type altogether.
    """
    if kind is None or column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise Unsupported(
            "a state has rows of a former type that were not brought into today's yet",
            where=f"state {name}",
            found=str(column.type),
            expected=str(kind),
            hint="run the query until all of its key groups are written anew, then look again",
        ) from error


def cell_bytes(column: pa.Array) -> NDArray[np.int64]:
    """About how many bytes each cell of a column has: exact for numbers, texts and bytes."""
    kind = column.type
    if pa.types.is_null(kind) or not len(column):
        return np.zeros(len(column), np.int64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return numbers(pc.fill_null(pc.binary_length(column), 0)).astype(np.int64)
    if pa.types.is_nested(kind):
        return np.full(len(column), -(-column.nbytes // len(column)), np.int64)
    return np.full(len(column), max(kind.bit_width // 8, 1), np.int64)
