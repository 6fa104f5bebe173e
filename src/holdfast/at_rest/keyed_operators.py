"""The keyed operators in a checkpoint, and their states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast import layout
from holdfast.checkpoints.keyed import group_of_key, is_keyed, numbering_of, stored_group
from holdfast.checkpoints.naming import plan_note
from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.state.states import OperatorStates, operator_states
from holdfast.errors import Invalid, NotFound
from holdfast.formats.key_groups import META, Meta
from holdfast.formats.text import damaged, foreign_json
from holdfast.layout import OwnFile
from holdfast.storage.port import Storage, full
from holdfast.worker.state.group_numbers import EVEN, Numbering

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.checkpoints.keyed import KeyGroup
    from holdfast.worker.state.layout import BlobSchema


# The internal tables of operators.
_OWN: Final = "holdfast_"
_WHAT: Final = "the description of an operator"
BROADCAST: Final = "broadcast"
LIST, MAP = "list", "map"


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state of a keyed operator.

    Attributes:
        name: The name that the user gave to the state.
        kind: "value", "list", "map", "reducing", "aggregating" or "broadcast".
        type: The Arrow type of its values, of a list's elements, of a map's values or of an accumulator.
        key_type: The type of a map's keys.
        ttl_ms: The TTL of its values; None if they do not expire.
        clock: The clock of the TTL, "processing" or "event".
    """

    name: str
    kind: str
    type: pa.DataType
    key_type: pa.DataType | None = None
    ttl_ms: int | None = None
    clock: str | None = None

    @property
    def has_elements(self) -> bool:
        """Return whether a key may have several values in this state."""
        return self.kind in (LIST, MAP, BROADCAST)


@dataclass(frozen=True, slots=True)
class KeyedOperator:
    """A keyed operator in a checkpoint at a batch.

    Attributes:
        operator_id: The number of the operator in the plan.
        name: The name that the user gave to the operator; `operator-NUMBER` if none was recorded.
        partitions: The number of partitions of its state.
        key_groups: The number of key groups.
        keys: The key columns. If their names were not recorded, they are `key`, or `key_1`, `key_2`, …
        states: The states of each key.
        timers: Whether keys may have timers.
        form: The newest schema of the operator's tables.
        planned_ms: The time when the batch was planned, which is the stamp of new values.
        watermark_ms: The watermark of the batch.
        placed: Whether a placement function of the user determines a key's group; None if not recorded.
        instances: Whether its keys are the instances of an `hf.Operator`.
        note_path: The path of the file that describes the operator; None if it has none.
        numbering: The numbering of stored groups.
    """

    operator_id: int
    name: str
    partitions: int
    key_groups: int
    keys: pa.Schema
    states: tuple[KeptState, ...]
    timers: bool
    form: BlobSchema
    planned_ms: int
    watermark_ms: int | None
    placed: bool | None = None
    instances: bool = False
    note_path: str | None = None
    numbering: Numbering = EVEN

    def partition_of(self, group: int) -> int:
        """Return the partition of a key group."""
        return self.numbering.partition_of(group, self.partitions)

    def state(self, name: str) -> KeptState:
        """Return the state with this name.

        Raises:
            NotFound: The state does not exist; the error lists the existing ones.
        """
        for state in self.states:
            if state.name == name:
                return state
        raise NotFound(
            "the operator has no state with this name",
            code="HF-E3005",
            where=f"operator {self.name}",
            found=name,
            expected=", ".join(state.name for state in self.states)
            or "no state name, because the operator has no state",
            hint="list the states of the operator with `holdfast state list CHECKPOINT`",
        )


def belongs_to_no_key(where: str, state: str) -> Invalid:
    """Return the error for an attempt to read or change a broadcast stream's rows by key."""
    return Invalid(
        "the state of a broadcast stream cannot be read or changed by key",
        code="HF-E2020",
        where=f"{where}, state {state}",
        hint="send new rows to the broadcast stream to change it; each key group has a copy of it",
    )


def keyed_operators(storage: Storage, batch_id: int | None = None) -> tuple[KeyedOperator, ...]:
    """Return the keyed operators at a committed batch, by number.

    An operator that has neither a describing file nor any state is omitted, because its states are unknown.

    Cost: reads a few small files. If the query was started without Holdfast, there are no describing files,
    and the rows of at least one partition are read to find the schema.

    Args:
        storage: The checkpoint, or a savepoint's view.
        batch_id: A committed batch whose files are kept; the newest by default.

    Raises:
        NotFound: The checkpoint does not exist, or the batch is not committed.
        Corrupt: A file is damaged.
    """
    return tuple(operator for operator, _ in keyed_with_states(storage, batch_id))


def keyed_with_states(
    storage: Storage, batch_id: int | None = None
) -> list[tuple[KeyedOperator, OperatorStates]]:
    """Return the keyed operators at a committed batch, each with the reader of its rows."""
    own = [operator for operator in operator_states(storage, batch_id) if is_keyed(operator)]
    if not own:
        return []
    notes = dict(_notes(storage))
    found = []
    for states, name in _name_operators(storage, own, notes):
        note = notes.get(name) if name is not None else None
        form, key_groups = _from_note(note) if note is not None else _from_rows(storage, states)
        if form is not None:
            found.append((_operator(states, name, note, form, key_groups), states))
    return found


def stored_names(storage: Storage, batch_id: int | None = None) -> dict[int, str | None]:
    """Return the names of a query's keyed operators by number; None for a name that is not recorded.

    Cost: as for `keyed_operators`.

    Raises:
        As for `keyed_operators`.
    """
    own = [operator for operator in operator_states(storage, batch_id) if is_keyed(operator)]
    if not own:
        return {}
    return {states.operator_id: name for states, name in _name_operators(storage, own, dict(_notes(storage)))}


def _operator(
    states: OperatorStates,
    name: str | None,
    note: Mapping[str, Any] | None,
    form: BlobSchema,
    key_groups: int,
) -> KeyedOperator:
    from holdfast.worker.declarations.state_descriptors import SETTLED
    from holdfast.worker.interface import TIMERS
    from holdfast.worker.state.layout import ROWS

    planned_ms, watermark_ms = states.times()
    return KeyedOperator(
        states.operator_id,
        f"operator-{states.operator_id}" if name is None else name,
        states.partitions,
        key_groups,
        key_schema(form, (note or {}).get("keys")),
        kept_states(form),
        TIMERS in form.tables[ROWS].names,
        form,
        planned_ms,
        watermark_ms,
        placed=(note or {}).get("placed"),
        instances=SETTLED in form.states,
        note_path=None if name is None or note is None else OwnFile(layout.operator_note(name)).render(),
        numbering=numbering_of(states),
    )


def key_schema(form: BlobSchema, names: Sequence[str] | None = None) -> pa.Schema:
    """Return the key columns of a schema, under the user's names if these are known."""
    import pyarrow as pa

    from holdfast.worker.state.layout import KEY_PREFIX, ROWS

    types = [field.type for field in form.tables[ROWS] if field.name.startswith(KEY_PREFIX)]
    if names is None or len(names) != len(types):
        names = ["key"] if len(types) == 1 else [f"key_{at + 1}" for at in range(len(types))]
    return pa.schema(list(zip(names, types, strict=True)))


def kept_states(form: BlobSchema) -> tuple[KeptState, ...]:
    """Return the states in a schema that the user declared."""
    from holdfast.worker.state.layout import stored_types

    return tuple(
        KeptState(
            name, declared["kind"], *stored_types(form, name), declared.get("ttl_ms"), declared.get("clock")
        )
        for name, declared in form.states.items()
        if not name.startswith(_OWN)
    )


def _from_note(note: Mapping[str, Any]) -> tuple[BlobSchema | None, int]:
    from holdfast.worker.state.layout import form_from_json

    return form_from_json(note["forms"][note["current"]]), int(note["key_groups"])


def _from_rows(storage: Storage, states: OperatorStates) -> tuple[BlobSchema | None, int]:
    """Return the schema of any group, and the number of groups in its record."""
    group, where = _any_group(storage, states)
    if group is None:
        return None, 0
    meta: Meta = group.record(where)
    return group.read_forms(where).get(meta.form), meta.key_groups


def _any_group(storage: Storage, states: OperatorStates) -> tuple[KeyGroup | None, str]:
    """Return a key group of an operator, or None without state, and the operator's location for messages."""
    for codec, _, pairs in state_chunks(storage, states.batch_id, operator_id=states.operator_id):
        if codec.name.family != META:
            continue
        group = stored_group(storage, states, group_of_key(codec, pairs[0][0]))
        if group is not None:
            return group, codec.where
    return None, ""


def _notes(storage: Storage) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the describing files of keyed operators, by name."""
    for name in storage.list(layout.OWN).names:
        operator = layout.noted_operator(name)
        if operator is None:
            continue
        path = OwnFile(name).render()
        try:
            note = foreign_json(storage.read(path))
            keyed = isinstance(note, dict) and note["current"] in note["forms"] and int(note["key_groups"])
        except (ValueError, TypeError):
            raise damaged(_WHAT, full(storage.uri, path), "something else", "JSON") from None
        except KeyError:
            continue  # an operator without keys has a different file
        if keyed:
            yield operator, note


def _name_operators(
    storage: Storage, own: Sequence[OperatorStates], notes: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[OperatorStates, str | None]]:
    """Yield each operator with its name from the describing files, which do not identify Spark's operators.

    A single operator needs no matching, and the plan of a query that Holdfast started lists operators in
    Spark's order. Otherwise the names are stored with the rows. Rows of an earlier Holdfast have no name and
    are matched by their schema, if only one file has that schema.
    """
    from holdfast.worker.state.layout import operator_in

    planned = _planned(storage, own[0].batch_id)
    if len(planned) == len(own) and set(planned) <= set(notes):
        yield from zip(own, planned, strict=True)
        return
    if len(own) == len(notes) == 1:
        yield own[0], next(iter(notes))
        return
    for states in own:
        group, _ = _any_group(storage, states)
        name = None if group is None else operator_in(group.forms)
        if name is not None:
            yield states, name
            continue
        form, key_groups = _from_rows(storage, states) if notes else (None, 0)
        fits = [
            name
            for name, note in notes.items()
            if form is not None
            and int(note["key_groups"]) == key_groups
            and form.fingerprint.hex() in note["forms"]
        ]
        yield states, fits[0] if len(fits) == 1 else None


def _planned(storage: Storage, batch_id: int) -> tuple[str, ...]:
    """Return the names of the keyed operators in the plan of a batch, in Spark's order."""
    note = plan_note(storage)
    plan = None if note is None else note.at(batch_id)
    return () if plan is None else plan.operators
