"""How much there is of each state of a savepoint or checkpoint: what would be lost with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.checkpoints.keyed.key_groups import is_keyed, stored_groups
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.state.states import OperatorStates, operator_states
from holdfast.checkpoints.values import Checkpoint, Operator
from holdfast.errors import Unsupported
from holdfast.formats.savepoint.savepoint_content import RecordedState
from holdfast.layout import DEFAULT_STORE
from holdfast.savepoints.differences.keyed_values import keyed_rows
from holdfast.savepoints.taking.facts import SMALL_BYTES, counted_keys
from holdfast.storage.port import Storage

_STAMP: Final = ".stamp_ms"


@dataclass(frozen=True, slots=True)
class Size:
    """Keys where they are counted, and bytes: of keys and values where those are counted, else of files."""

    keys: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of what is saved.

    Attributes:
        operators: By the operator's number.
        states: By number and state, where that is known.
    """

    operators: Mapping[int, Size]
    states: Mapping[tuple[int, str], Size]

    def of(self, operator_id: int, state: str) -> Size | None:
        """The size of a state: its own, else that of its operator."""
        return self.states.get((operator_id, state)) or self.operators.get(operator_id)


def measured(
    storage: Storage,
    found: Checkpoint,
    recorded: Sequence[RecordedState] | None = None,
    *,
    deep: bool = False,
) -> Sizes:
    """How much there is of each state.

    State of up to `SMALL_BYTES` is read and counted, and with `deep` any. Else keys are told where the
    savepoint has counted them, or RocksDB has and nothing followed.

    Args:
        storage: The checkpoint, or a savepoint's view.
        found: What its files say.
        recorded: The rows of a savepoint's states, where they were counted.
        deep: Read the rows however many there are: about 2 microseconds each, and 10 for a key of
            Holdfast's keyed state.

    Raises:
        Corrupt: A row is damaged.
        Unsupported: The rows were asked for, and cannot be read.
    """
    operators = {operator.operator_id: Size(None, operator.size_bytes) for operator in found.operators}
    states: dict[tuple[int, str], Size] = {}
    for operator in found.operators:
        states.update(_by_files(operator))
    for state in recorded or ():
        states[state.operator_id, _state(state.store, state.family)] = Size(state.rows, state.size_bytes)
    if deep or found.size_bytes <= SMALL_BYTES:
        try:
            states.update(_by_rows(storage, found, operators))
        except Unsupported:
            if deep:
                raise
    return Sizes(operators, states)


def _by_files(operator: Operator) -> dict[tuple[int, str], Size]:
    """What the files of stores tell; rows of several variables are counted together, so not for those."""
    sizes = {}
    for name in () if operator.variables else operator.store_names:
        stores = [store for store in operator.stores if store.id.name == name]
        size = sum(store.size_bytes for store in stores)
        sizes[operator.operator_id, name] = Size(counted_keys(stores), size)
    return sizes


def _by_rows(
    storage: Storage, found: Checkpoint, operators: Mapping[int, Size]
) -> dict[tuple[int, str], Size]:
    sizes = {
        (state.state.operator_id, _state(state.state.store, state.state.family)): Size(
            state.rows, state.size_bytes
        )
        for state in contents(storage, found.batch_id)
    }
    for operator in operator_states(storage, found.batch_id):
        if is_keyed(operator):
            size = operators[operator.operator_id].size_bytes
            for name, keys in _keys(storage, operator).items():
                sizes[operator.operator_id, name] = Size(keys, size)
    return sizes


def _keys(storage: Storage, operator: OperatorStates) -> Counter[str]:
    """How many keys have each state of one of our own operators."""
    counts: Counter[str] = Counter()
    for key, values in keyed_rows(stored_groups(storage, operator), storage.uri):
        # Rows of a broadcast stream are no key's.
        if isinstance(values, dict) and not (isinstance(key, dict) and "broadcast" in key):
            counts.update(name for name in values if not name.endswith(_STAMP))
    return counts


def _state(store: str, family: str) -> str:
    return store if family == DEFAULT_STORE else family
