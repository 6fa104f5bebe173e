"""Verdicts on each state of a savepoint for new code, and the size of what would be lost.

The comparison uses Spark's metadata of each operator and no plans. The rules are Spark's: operators are
identified by their id, and the columns of keys and values by type and position, not by name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.checkpoints.checkpoint import CheckpointReport, StatefulOperator
from holdfast.checkpoints.keyed import is_keyed, stored_groups
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.state.states import OperatorShape, OperatorStates, StoreShape, operator_states
from holdfast.errors import Unsupported
from holdfast.formats.logs.operator_metadata import ColumnFamily
from holdfast.formats.manifest import RecordedState
from holdfast.formats.operators import (
    KEYED_VARIABLES,
    KEYED_WORDS,
    OperatorName,
    kind_in_words,
    operator_names,
    state_name,
)
from holdfast.layout import DEFAULT_STORE
from holdfast.model import Effect, PlanChange, StateVerdict, Verdict
from holdfast.savepoints.key_diff import keyed_rows
from holdfast.savepoints.planning import SMALL_BYTES, counted_keys
from holdfast.storage.port import Storage

_STAMP: Final = ".stamp_ms"


@dataclass(frozen=True, slots=True)
class Size:
    """Keys where they are counted, and bytes: of keys and values where those are counted, else of files."""

    keys: int | None
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the saved state.

    Attributes:
        operators: Sizes by operator id.
        states: Sizes by operator id and state, if known.
    """

    operators: Mapping[int, Size]
    states: Mapping[tuple[int, str], Size]

    def of(self, operator_id: int, state: str) -> Size | None:
        """Return the size of a state, or else of its operator."""
        return self.states.get((operator_id, state)) or self.operators.get(operator_id)


def measured(
    storage: Storage,
    found: CheckpointReport,
    recorded: Sequence[RecordedState] | None = None,
    *,
    deep: bool = False,
) -> Sizes:
    """Return the size of each state.

    State of up to `SMALL_BYTES`, and with `deep` all state, is read and counted. Otherwise keys are known if
    the savepoint has counted them, or if RocksDB has and no changes followed.

    Args:
        storage: The checkpoint, or a savepoint's view.
        found: The parsed checkpoint.
        recorded: The recorded row counts of a savepoint's states.
        deep: Read the rows regardless of their number: about 2 microseconds each, and 10 for a key of
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


def _by_files(operator: StatefulOperator) -> dict[tuple[int, str], Size]:
    """Return the sizes from the files of stores; not for operators whose variables share a store."""
    sizes = {}
    for name in () if operator.variables else operator.store_names:
        stores = [store for store in operator.stores if store.id.name == name]
        size = sum(store.size_bytes for store in stores)
        sizes[operator.operator_id, name] = Size(counted_keys(stores), size)
    return sizes


def _by_rows(
    storage: Storage, found: CheckpointReport, operators: Mapping[int, Size]
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
    """Return the number of keys of each state of one of our own operators."""
    counts: Counter[str] = Counter()
    for key, values in keyed_rows(stored_groups(storage, operator), storage.uri):
        # Rows of a broadcast stream are no key's.
        if isinstance(values, dict) and not (isinstance(key, dict) and "broadcast" in key):
            counts.update(name for name in values if not name.endswith(_STAMP))
    return counts


def _state(store: str, family: str) -> str:
    return store if family == DEFAULT_STORE else family


OTHER_OPERATOR: Final = "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
NO_DIRECTORY: Final = "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
OTHER_KEY: Final = "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"
OTHER_VALUE: Final = "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE"
# Refusals that state in the form of the new code does not meet.
MIGRATED: Final = frozenset({OTHER_OPERATOR, NO_DIRECTORY, OTHER_KEY, OTHER_VALUE})
# What represents Spark's condition where Holdfast refuses the start.
HOLDFAST: Final = "holdfast.Invalid"
_REFUSED: Final = "Spark rejects the state of this operator, so the query would not start"
_TTL: Final = "ttlEnabled"
_KIND: Final = "stateVariableType"


def compare_states(
    old: Sequence[OperatorShape], new: Sequence[OperatorShape], sizes: Sizes
) -> tuple[StateVerdict, ...]:
    """Return a verdict for each state of both sides, in the order of operator ids.

    Args:
        old: The state of the savepoint's operators.
        new: The state of the new code's operators, from their first batch.
        sizes: The sizes of the saved state.
    """
    before, after = ({operator.operator_id: operator for operator in some} for some in (old, new))
    return tuple(
        verdict
        for number in sorted({*before, *after})
        for verdict in _operator(before.get(number), after.get(number), sizes)
    )


def states_of(shape: OperatorShape) -> tuple[str, ...]:
    """Return the names of an operator's states: its variables, or else its stores."""
    return tuple(sorted(shape.variables)) or tuple(store.name for store in shape.stores)


def verdict_on(
    old: OperatorShape, state: str, sizes: Sizes, verdict: Verdict, **said: str | None
) -> StateVerdict:
    """Return a verdict on a state of the savepoint, with its size."""
    size = sizes.of(old.operator_id, state)
    return StateVerdict(
        old.label,
        state,
        verdict,
        why=said.get("why") or "",
        keys=None if size is None else size.keys,
        size_bytes=None if size is None else size.size_bytes,
        spark_error=said.get("spark_error"),
    )


def with_names(
    verdicts: Sequence[StateVerdict],
    old: Sequence[OperatorShape],
    new: Sequence[OperatorShape],
    others: Collection[str] = (),
) -> tuple[StateVerdict, ...]:
    """Return the verdicts with the display names of operators and states.

    Args:
        verdicts: Verdicts on operators by Spark's id and name, or by the name of a Holdfast operator.
        old: The savepoint's operators.
        new: The new code's operators.
        others: The names of Holdfast operators that are not keyed.
    """
    labels = {**_labels(new), **_labels(old)}
    return tuple(_called(verdict, labels.get(verdict.operator), others) for verdict in verdicts)


def _labels(shapes: Sequence[OperatorShape]) -> dict[str, OperatorName]:
    kinds = {shape.operator_id: shape.kind for shape in shapes}
    keyed = [shape.operator_id for shape in shapes if set(shape.variables) == KEYED_VARIABLES]
    names = operator_names(kinds, dict.fromkeys(keyed))
    return {shape.label: names[shape.operator_id] for shape in shapes}


def _called(verdict: StateVerdict, name: OperatorName | None, others: Collection[str]) -> StateVerdict:
    if name is not None:
        state = state_name(name, verdict.state)
        return replace(
            verdict,
            operator_id=name.operator_id,
            display_name=name.display_name,
            operator_kind=name.operator_kind,
            state_name=state,
        )
    kind = "" if verdict.operator in others else KEYED_WORDS
    state = verdict.operator if verdict.state == DEFAULT_STORE else verdict.state
    return replace(verdict, display_name=verdict.operator, operator_kind=kind, state_name=state)


def with_trial(
    verdicts: Sequence[StateVerdict], accepted: bool, error: str | None, message: str | None
) -> tuple[tuple[StateVerdict, ...], tuple[PlanChange, ...]]:
    """Correct verdicts with Spark's own result for the next batch.

    State that Spark accepts is kept, even if its schema has changed. If Spark rejects it, Spark's error
    replaces the expected one, or is added as a change if none was expected.
    """
    refused = [verdict for verdict in verdicts if verdict.verdict is Verdict.INCOMPATIBLE]
    if accepted:
        return tuple(_accepted(verdict) for verdict in verdicts), ()
    if any(verdict.spark_error == error for verdict in refused):
        return tuple(verdicts), ()
    foreseen = [verdict for verdict in refused if verdict.spark_error != HOLDFAST]
    if foreseen:
        corrected = tuple(
            replace(verdict, why=f"{verdict.why}; Spark reports: {message}", spark_error=error)
            if verdict in foreseen
            else verdict
            for verdict in verdicts
        )
        return corrected, ()
    return tuple(verdicts), (PlanChange("start", None, error, Effect.FAILS, message or ""),)


def with_changes(
    verdicts: Sequence[StateVerdict], changes: Sequence[PlanChange]
) -> tuple[tuple[StateVerdict, ...], tuple[PlanChange, ...]]:
    """Return one verdict for each state, and changes that agree with it.

    A state that would be kept, but was computed by different code, is reinterpreted. A change of an operator
    whose state is rejected is part of that rejection.

    Args:
        verdicts: The result of the comparison of states.
        changes: The result of the comparison of plans.
    """
    refused = {
        verdict.operator_id
        for verdict in verdicts
        if verdict.verdict is Verdict.INCOMPATIBLE and verdict.operator_id is not None
    }
    settled = tuple(
        replace(change, effect=Effect.FAILS, why=_REFUSED)
        if change.effect is Effect.MEANING and change.operator_id in refused
        else change
        for change in changes
    )
    different = [change.affects for change in settled if change.effect is Effect.MEANING]
    return tuple(_reinterpreted(verdict, different) for verdict in verdicts), settled


def _reinterpreted(verdict: StateVerdict, different: Sequence[Collection[int] | None]) -> StateVerdict:
    if verdict.verdict not in (Verdict.MAP, Verdict.MIGRATE):
        return verdict
    number = verdict.operator_id
    if not any(affected is None or number is None or number in affected for affected in different):
        return verdict
    return replace(verdict, verdict=Verdict.REINTERPRET)


def _accepted(former: StateVerdict) -> StateVerdict:
    if former.verdict is not Verdict.INCOMPATIBLE or former.spark_error == HOLDFAST:
        return former
    why = f"{former.why}; Spark reads it with the new schema"
    return replace(former, verdict=Verdict.MIGRATE, why=why, spark_error=None)


def _operator(old: OperatorShape | None, new: OperatorShape | None, sizes: Sizes) -> Iterator[StateVerdict]:
    if old is None:
        for state in states_of(new) if new is not None else ():
            yield StateVerdict(
                new.label if new is not None else "",
                state,
                Verdict.INCOMPATIBLE,
                why="the savepoint has no operator with this id, and Spark does not add one",
                spark_error=NO_DIRECTORY,
            )
    elif new is None or new.kind != old.kind:
        today = "the new query has no operator with this id" if new is None else _other_kind(old, new)
        for state in states_of(old):
            yield verdict_on(old, state, sizes, Verdict.INCOMPATIBLE, why=today, spark_error=OTHER_OPERATOR)
    elif old.variables or new.variables:
        yield from _variables(old, new, sizes)
    else:
        yield from _stores(old, new, sizes)


def _other_kind(old: OperatorShape, new: OperatorShape) -> str:
    was, now = kind_in_words(old.kind), kind_in_words(new.kind)
    return f"it was {was} and is {now}" if was != now else f"it was {old.kind} and is {new.kind}"


def _stores(old: OperatorShape, new: OperatorShape, sizes: Sizes) -> Iterator[StateVerdict]:
    today = {store.name: store for store in new.stores}
    for store in old.stores:
        there = today.pop(store.name, None)
        if there is None:
            yield verdict_on(old, store.name, sizes, Verdict.DROP, why="the new query has no such store")
        else:
            yield _families(old, store.name, _first(store), _first(there), sizes)
    for name in today:
        yield StateVerdict(new.label, name, Verdict.NEW, "it starts empty")


def _variables(old: OperatorShape, new: OperatorShape, sizes: Sizes) -> Iterator[StateVerdict]:
    stored, declared = _by_name(old), _by_name(new)
    for name in sorted(old.variables):
        if name not in new.variables:
            yield verdict_on(old, name, sizes, Verdict.DROP, why="the new query does not declare this state")
            continue
        before, after = old.variables[name], new.variables[name]
        other = [key for key in (_KIND, _TTL) if before.get(key) != after.get(key)]
        if other:
            why = ", ".join(f"{key} was {before.get(key)} and is {after.get(key)}" for key in other)
            yield verdict_on(old, name, sizes, Verdict.INCOMPATIBLE, why=why, spark_error=OTHER_VALUE)
        else:
            yield _families(old, name, stored.get(name), declared.get(name), sizes)
    for name in sorted(set(new.variables) - set(old.variables)):
        yield StateVerdict(new.label, name, Verdict.NEW, "it starts empty")


def _families(
    old: OperatorShape, state: str, stored: ColumnFamily | None, declared: ColumnFamily | None, sizes: Sizes
) -> StateVerdict:
    if stored is None or declared is None:
        return verdict_on(
            old, state, sizes, Verdict.MAP, why="its schema is not recorded, so it was not compared"
        )
    keys = json.loads(stored.key_schema), json.loads(declared.key_schema)
    values = json.loads(stored.value_schema), json.loads(declared.value_schema)
    for (before, after), what, error in ((keys, "keys", OTHER_KEY), (values, "values", OTHER_VALUE)):
        if not fits(after, before):
            why = f"{what} were ({text_of(before)}) and are ({text_of(after)})"
            return verdict_on(old, state, sizes, Verdict.INCOMPATIBLE, why=why, spark_error=error)
    names = [*_renames(*keys), *_renames(*values)]
    why = ", ".join(dict.fromkeys(f"{was} is now named {now}" for was, now in names))
    return verdict_on(old, state, sizes, Verdict.MAP, why=why)


def fits(new: Any, stored: Any) -> bool:
    """Return whether values of a new type can replace stored ones; names do not count.

    Args:
        new: A type of Spark's, from its JSON.
        stored: The stored type. It may allow nulls that the new one does not, but not the reverse.
    """
    if isinstance(new, str) or isinstance(stored, str):
        return bool(new == stored)
    if new.get("type") != stored.get("type"):
        return False
    if new["type"] == "struct":
        return len(new["fields"]) == len(stored["fields"]) and all(
            (before["nullable"] or not after["nullable"]) and fits(after["type"], before["type"])
            for after, before in zip(new["fields"], stored["fields"], strict=True)
        )
    if new["type"] == "array":
        return _nulls(new, stored, "containsNull") and fits(new["elementType"], stored["elementType"])
    if new["type"] == "map":
        return (
            _nulls(new, stored, "valueContainsNull")
            and fits(new["keyType"], stored["keyType"])
            and fits(new["valueType"], stored["valueType"])
        )
    return bool(new == stored)


def text_of(given: Any) -> str:
    """Return the display form of a type, such as `key string, count long`."""
    if isinstance(given, str):
        return given
    if given.get("type") == "struct":
        return ", ".join(f"{field['name']} {_inner(field['type'])}" for field in given["fields"])
    return _inner(given)


def _inner(given: Any) -> str:
    if isinstance(given, str):
        return given
    if given["type"] == "struct":
        return f"struct<{text_of(given)}>"
    if given["type"] == "array":
        return f"array<{_inner(given['elementType'])}>"
    if given["type"] == "map":
        return f"map<{_inner(given['keyType'])}, {_inner(given['valueType'])}>"
    return str(given["type"])


def _nulls(new: Any, stored: Any, key: str) -> bool:
    return bool(stored[key] or not new[key])


def _renames(old: Any, new: Any) -> list[tuple[str, str]]:
    if isinstance(old, str) or old.get("type") != "struct":
        return []
    pairs = zip(old["fields"], new["fields"], strict=True)
    return [(before["name"], after["name"]) for before, after in pairs if before["name"] != after["name"]]


def _first(store: StoreShape) -> ColumnFamily | None:
    return store.families[0] if store.families else None


def _by_name(shape: OperatorShape) -> dict[str, ColumnFamily]:
    return {family.name: family for store in shape.stores for family in store.families}
