"""States as people see them: operators, their states, and the rows that these hold for a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from holdfast.checkpoints.state.families import Pairs
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.checkpoints.values import ProgressCallback
from holdfast.formats.rows.plain import plain
from holdfast.formats.rows.spark_types import Array, Atom, Decimal, Map, Struct
from holdfast.layout import DEFAULT_STORE


class StateForm(str, Enum):
    """What a state holds for a key."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    TIMERS = "timers"
    ROWS = "rows"
    SESSIONS = "sessions"
    KEYED = "keyed"


@dataclass(frozen=True, slots=True)
class NamedState:
    """A state as people name it.

    Attributes:
        operator_id: The operator's number in the plan.
        operator: What people call the operator: the user's own name of it, or what it does.
        kind: Spark's name for what the operator does.
        name: What people call the state; the operator's own name where it has only one.
        form: What it holds for a key.
        key: The columns of its key.
        sub: What tells the rows of one key apart: a map's key, a session's start, a row's place, a time.
        value: The columns of its value.
        ttl: Whether each value has a time at which it expires.
        codec: What reads its rows; None of Holdfast's keyed operators.
        counts: What reads how many rows a key of a join has.
        own: What reads one of Holdfast's keyed operators.
    """

    operator_id: int
    operator: str
    kind: str
    name: str
    form: StateForm
    key: Struct
    sub: Struct
    value: Struct
    ttl: bool
    codec: StateCodec | None = field(repr=False, compare=False)
    counts: StateCodec | None = field(default=None, repr=False, compare=False)
    own: Any = field(default=None, repr=False, compare=False)

    @property
    def full_name(self) -> str:
        """Operator and state, as they can be asked for."""
        return self.operator if self.name == self.operator else f"{self.operator}.{self.name}"

    @property
    def stored(self) -> tuple[str, str]:
        """The store that it is in, and the column family."""
        name = None if self.codec is None else self.codec.name
        return (DEFAULT_STORE, DEFAULT_STORE) if name is None else (name.store, name.family)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "operator_id": self.operator_id,
            "operator": self.operator,
            "kind": self.kind,
            "state": self.name,
            "name": self.full_name,
            "form": self.form.value,
            "key": {name: type_text(each) for name, each in zip(self.key.names, self.key.types, strict=True)},
            "sub": {name: type_text(each) for name, each in zip(self.sub.names, self.sub.types, strict=True)},
            "value": {
                name: type_text(each) for name, each in zip(self.value.names, self.value.types, strict=True)
            },
            "ttl": self.ttl,
        }


@dataclass(frozen=True, slots=True)
class NamedOperator:
    """A stateful operator and its states.

    Attributes:
        states: Its states. One of Holdfast's keyed operators has one with all state of a key, under its own
            name, and then each by itself.
        files: What reads its files.
    """

    operator_id: int
    name: str
    kind: str
    partitions: int
    states: tuple[NamedState, ...]
    files: OperatorStates = field(repr=False, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "operator_id": self.operator_id,
            "operator": self.name,
            "kind": self.kind,
            "partitions": self.partitions,
            "states": [each.as_dict() for each in self.states],
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a state; of a list one element.

    Attributes:
        key: The key's columns.
        sub: What tells it from the other rows of its key: a map's key, a session's start, a timer's time.
        value: The value's columns.
        expires_ms: When it expires, in epoch milliseconds; None without a time to live.
        partition: The partition that it is in.
        size_bytes: The bytes of its key and value as they are stored.
    """

    key: Mapping[str, Any]
    sub: Mapping[str, Any]
    value: Mapping[str, Any]
    expires_ms: int | None
    partition: int
    size_bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "key": plain(self.key),
            "sub": plain(self.sub),
            "value": plain(self.value),
            "expires_ms": self.expires_ms,
            "partition": self.partition,
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True, slots=True)
class KeyState:
    """What a state holds for one key at a batch.

    Attributes:
        state: The state.
        batch_id: The batch.
        key: The key.
        entries: Its rows; none where the state does not know the key.
    """

    state: NamedState
    batch_id: int
    key: Mapping[str, Any]
    entries: tuple[Entry, ...]

    @property
    def exists(self) -> bool:
        """Whether the state knows the key."""
        return bool(self.entries)

    @property
    def partition(self) -> int | None:
        """The partition that the key is in."""
        return self.entries[0].partition if self.entries else None

    @property
    def size_bytes(self) -> int:
        """The bytes of all its rows."""
        return sum(each.size_bytes for each in self.entries)

    @property
    def value(self) -> Any:
        """The value as its form has it; None where the state does not know the key.

        The columns of a value; a list of them for lists, for the rows of a join and for sessions; of a map a
        dictionary by its key, or pairs where that has several columns; of timers their times. A state of one
        of Holdfast's keyed operators has no columns, so it is the value itself.
        """
        if not self.entries:
            return None
        form, entries = self.state.form, self.entries
        if form in (StateForm.VALUE, StateForm.KEYED):
            return self._shown(entries[0])
        if form is StateForm.MAP:
            return self._as_map()
        if form is StateForm.SESSIONS:
            return [{**each.sub, **each.value} for each in entries]
        if form is StateForm.TIMERS:
            several = len(self.state.sub.names) > 1
            return [dict(each.sub) if several else next(iter(each.sub.values())) for each in entries]
        return [self._shown(each) for each in entries]

    def _as_map(self) -> Any:
        if len(self.state.sub.names) == 1:
            return {next(iter(each.sub.values())): self._shown(each) for each in self.entries}
        return [(dict(each.sub), self._shown(each)) for each in self.entries]

    def _shown(self, entry: Entry) -> Any:
        """A row's value: its columns, or what stands in the only one of a state of ours."""
        if self.state.own is not None and self.state.form is not StateForm.KEYED:
            return entry.value[self.state.name]
        return dict(entry.value)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "operator_id": self.state.operator_id,
            "operator": self.state.operator,
            "state": self.state.name,
            "form": self.state.form.value,
            "batch": self.batch_id,
            "key": plain(self.key),
            "exists": self.exists,
            "value": plain(self.value),
            "expires_ms": [each.expires_ms for each in self.entries] if self.state.ttl else None,
            "partition": self.partition,
            "size_bytes": self.size_bytes,
        }


class StoredRows(Protocol):
    """Reads the rows of a state as they are stored."""

    def chunks(
        self, operator: NamedOperator, state: NamedState, *, tell: ProgressCallback | None = None
    ) -> Iterator[tuple[StateCodec, int, Pairs]]:
        """Some thousand rows at a time, with what reads them and their partition."""


def type_text(type_: Any) -> str:
    """A type as people write it."""
    if isinstance(type_, Atom):
        return {"integer": "int", "byte": "tinyint", "short": "smallint", "long": "bigint"}.get(
            type_.name, type_.name
        )
    if isinstance(type_, Decimal):
        return f"decimal({type_.precision},{type_.scale})"
    if isinstance(type_, Array):
        return f"array<{type_text(type_.element)}>"
    if isinstance(type_, Map):
        return f"map<{type_text(type_.key)},{type_text(type_.value)}>"
    parts = [f"{name}:{type_text(each)}" for name, each in zip(type_.names, type_.types, strict=True)]
    return f"struct<{','.join(parts)}>"
