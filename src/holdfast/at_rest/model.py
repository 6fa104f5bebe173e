"""The states of a checkpoint as users see them: operators, states, and the rows of a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.checkpoints.checkpoint import NAMES, ProgressCallback
from holdfast.checkpoints.state.rocksdb import Pairs
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.formats.operators import FamilyUse, OperatorName, use_of
from holdfast.formats.rows.plain import plain
from holdfast.formats.rows.spark_types import Array, Atom, Decimal, Map, Struct
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json, in_json_as, json_as, json_spread
from holdfast.layout import DEFAULT_STORE

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from holdfast.at_rest.keyed_reader import KeyedStateReader
    from holdfast.checkpoints.state.lookup import Sought


# The clocks by which rows expire.
EVENT: Final = "event"
PROCESSING: Final = "processing"


class StateForm(str, Enum):
    """The form of the value that a state holds for a key."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    TIMERS = "timers"
    ROWS = "rows"
    SESSIONS = "sessions"
    KEYED = "keyed"


def _columns(columns: Struct) -> dict[str, str]:
    return {name: type_text(kind) for name, kind in zip(columns.names, columns.types, strict=True)}


@dataclass(frozen=True, slots=True)
class NamedState(JsonShape):
    """A state with its display names.

    Attributes:
        operator_id: The operator's number in the plan.
        operator: The display name of the operator: the name that the user gave to it, or its type.
        kind: Spark's name for the operator's type.
        named: The names of the operator.
        name: The display name of the state, or the operator's name if it has only one state.
        form: The form of a key's value: a value, a list, a map, timers, rows.
        key: The columns of the key.
        sub: The columns that distinguish the rows of one key: a map's key, a session's start, a row's index,
            a time.
        value: The columns of the value.
        ttl: Whether each value has an expiry time.
        source: The reader of the rows.
        codec: The codec of the rows in Spark's store; None if the store contains key groups.
        counts: The codec of the row counts of a join's keys; None for other states.

    Example:
        state: hf.NamedState = hf.state("checkpoints/visits").pick("aggregate")
        assert state.full_name == "aggregate" and not state.ttl
        assert (state.key.names, state.value.names) == (("customer",), ("count", "sum"))
    """

    operator_id: int
    operator: str
    kind: str
    named: OperatorName = field(metadata=json_spread(*NAMES))
    name: str = field(metadata=json_as("state"))
    form: StateForm
    key: Struct = field(metadata=json_as(convert=_columns))
    sub: Struct = field(metadata=json_as(convert=_columns))
    value: Struct = field(metadata=json_as(convert=_columns))
    ttl: bool
    source: StateSource = field(repr=False, compare=False, metadata=NOT_IN_JSON)
    codec: StateCodec | None = field(default=None, repr=False, compare=False, metadata=NOT_IN_JSON)
    counts: StateCodec | None = field(default=None, repr=False, compare=False, metadata=NOT_IN_JSON)

    @property
    @in_json_as("name")
    def full_name(self) -> str:
        """The names of the operator and the state, as accepted in requests."""
        # A state of a keyed operator may have the operator's own name, which stands for the combined state.
        is_whole = self.codec is not None or self.form is StateForm.KEYED
        return self.operator if is_whole and self.name == self.operator else f"{self.operator}.{self.name}"

    @property
    def lists_values(self) -> bool:
        """True if a stored value has several rows: the elements of a list, or a join's rows of one time."""
        if self.form is StateForm.LIST:
            return True
        name = None if self.codec is None else self.codec.name
        return name is not None and use_of(name.operator, name.label) is FamilyUse.JOIN_ROWS_BY_TIME

    @property
    def stored(self) -> tuple[str, str]:
        """The store and the column family of the state."""
        name = None if self.codec is None else self.codec.name
        return (DEFAULT_STORE, DEFAULT_STORE) if name is None else (name.store, name.family)


@dataclass(frozen=True, slots=True)
class NamedOperator(JsonShape):
    """A stateful operator and its states.

    Attributes:
        operator_id: The number of the operator in the plan.
        name: The display name: the name that the user gave to the operator, or its type.
        kind: Spark's name for the operator's type.
        named: The names of the operator.
        partitions: The number of partitions of the state.
        states: The states of the operator. A keyed operator has a combined state with all state of a key,
            under the operator's name, and then each single state.
        files: The reader of the operator's files.
        keyed: The reader of a keyed operator's key groups, for rewriting them; None for other operators.

    Example:
        operators: list[hf.NamedOperator] = hf.state("checkpoints/visits").operators()
        assert [(operator.name, operator.partitions) for operator in operators] == [("aggregate", 2)]
    """

    operator_id: int
    name: str = field(metadata=json_as("operator"))
    kind: str
    named: OperatorName = field(metadata=json_spread(*NAMES))
    partitions: int
    states: tuple[NamedState, ...]
    files: OperatorStates = field(repr=False, compare=False, metadata=NOT_IN_JSON)
    keyed: KeyedStateReader | None = field(default=None, repr=False, compare=False, metadata=NOT_IN_JSON)


@dataclass(frozen=True, slots=True)
class StateEntry(JsonShape):
    """A row of a state; for a list, one element.

    Attributes:
        key: The columns of the key.
        sub: The columns that distinguish the row from other rows of its key: a map's key, a session's start,
            a timer's time.
        value: The columns of the value.
        expires_ms: The expiry time, in epoch milliseconds; None without a TTL.
        partition: The partition of the row.
        size_bytes: The size of the stored key and value in bytes.

    Example:
        entry: hf.StateEntry = next(hf.state("checkpoints/visits").scan("aggregate"))
        assert entry.key == {"customer": "c1"} and entry.value == {"count": 12, "sum": 706}
    """

    key: Mapping[str, Any] = field(metadata=json_as(convert=plain))
    sub: Mapping[str, Any] = field(metadata=json_as(convert=plain))
    value: Mapping[str, Any] = field(metadata=json_as(convert=plain))
    expires_ms: int | None
    partition: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KeyState(JsonShape):
    """The state of one key at a batch.

    Attributes:
        state: The state.
        batch_id: The batch.
        key: The key.
        entries: The rows of the key; empty if the state does not have the key.

    Example:
        regular: hf.KeyState = hf.state("checkpoints/visits").get("aggregate", "c1")
        assert regular.exists and regular.value == {"count": 12, "sum": 706}
    """

    state: NamedState = field(metadata=json_spread("operator_id", "operator", "state", "form"))
    batch_id: int
    key: Mapping[str, Any] = field(metadata=json_as(convert=plain))
    entries: tuple[StateEntry, ...] = field(metadata=NOT_IN_JSON)

    @property
    @in_json
    def exists(self) -> bool:
        """Return whether the state has the key."""
        return bool(self.entries)

    @property
    @in_json
    def partition(self) -> int | None:
        """The partition of the key."""
        return self.entries[0].partition if self.entries else None

    @property
    @in_json
    def size_bytes(self) -> int:
        """The size of all rows of the key in bytes."""
        return sum(entry.size_bytes for entry in self.entries)

    @property
    @in_json_as(convert=plain)
    def value(self) -> Any:
        """The value in its form; None if the state does not have the key.

        A single value is a dictionary by column. Lists, rows of a join and sessions are a list of
        dictionaries. A map is a dictionary by its key, or pairs if the key has several columns. Timers are
        their times. A value of a keyed operator has no columns and is returned directly.
        """
        if not self.entries:
            return None
        form, entries = self.state.form, self.entries
        if form in (StateForm.VALUE, StateForm.KEYED):
            return self._plain(entries[0])
        if form is StateForm.MAP:
            return self._as_map()
        if form is StateForm.SESSIONS:
            return [{**entry.sub, **entry.value} for entry in entries]
        if form is StateForm.TIMERS:
            several = len(self.state.sub.names) > 1
            return [dict(entry.sub) if several else next(iter(entry.sub.values())) for entry in entries]
        return [self._plain(entry) for entry in entries]

    def _as_map(self) -> Any:
        if len(self.state.sub.names) == 1:
            return {next(iter(entry.sub.values())): self._plain(entry) for entry in self.entries}
        return [(dict(entry.sub), self._plain(entry)) for entry in self.entries]

    def _plain(self, entry: StateEntry) -> Any:
        return self.state.source.plain_value(self.state, entry)

    @property
    @in_json
    def expires_ms(self) -> list[int | None] | None:
        """The expiry time of each row, in epoch milliseconds; None for a state without a TTL."""
        return [entry.expires_ms for entry in self.entries] if self.state.ttl else None


@dataclass(slots=True)
class KeySize:
    """The size of one key in a state.

    Attributes:
        rows: The number of rows of the key.
        size_bytes: The size of these rows in bytes.
        partition: The partition of the key.
        read: The function that returns the key's columns from `stored`; shared by many keys.
        stored: The stored key.
    """

    rows: int
    size_bytes: int
    partition: int
    read: Callable[[Any], Mapping[str, Any]]
    stored: Any

    def key(self) -> Mapping[str, Any]:
        """Return the columns of the key."""
        return self.read(self.stored)


@dataclass(frozen=True, slots=True)
class StateAges:
    """The times of a state's rows.

    Attributes:
        state: The state.
        clock: The clock of the times, `processing` or `event`; None if the state has no times.
        what: The meaning of the times, or the reason why there are none.
        now_ms: The time of this clock after the batch, in epoch milliseconds.
        times: The time of each row that has one, in epoch milliseconds.
        sizes: The size of each of these rows in bytes.
        rows: The number of all rows, with or without a time.
        size_bytes: The size of all rows in bytes.
        delay_ms: The delay of the watermark, if the watermark removes rows; otherwise None.
    """

    state: NamedState
    clock: str | None
    what: str
    now_ms: int | None
    times: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rows: int
    size_bytes: int
    delay_ms: int | None = None


class StateSource(Protocol):
    """A reader of the states of one operator at one batch, in any type of store."""

    @property
    def notes_writes(self) -> bool:
        """Return whether the files show each write of a key, and not only changed values."""

    def get(self, state: NamedState, key: Mapping[str, Any]) -> Iterable[StateEntry]:
        """Return the rows of a key, whose values have the types of its columns."""

    def scan(self, state: NamedState, tell: ProgressCallback | None = None) -> Iterator[StateEntry]:
        """Yield every row."""

    def tables(
        self, state: NamedState, schema: pa.Schema, tell: ProgressCallback | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows as record batches."""

    def key_sizes(self, state: NamedState, tell: ProgressCallback | None = None) -> Iterator[KeySize]:
        """Yield the size of each key."""

    def has_ages(self, state: NamedState) -> bool:
        """Return whether a state can have ages."""

    def ages(
        self,
        state: NamedState,
        by: str | None = None,
        current_ttl_ms: int | None = None,
        tell: ProgressCallback | None = None,
    ) -> StateAges:
        """Return the times of a state's rows.

        Args:
            state: A state of the operator.
            by: A column of key or value with the time, if the state records none.
            current_ttl_ms: The current TTL of the state, for use if it cannot be computed from the files.
            tell: The progress callback, called with stores done, total stores, and the current step.

        Raises:
            Invalid: The column does not exist or does not contain times.
            Corrupt: A file or a row is damaged.
            NotFound: A file that the batch needs is missing.
        """

    def locate(
        self, state: NamedState, key: Mapping[str, Any], files: OperatorStates
    ) -> tuple[list[Sought], int | None]:
        """Return the lookups of a key in Spark's stores, and its partition; None for all partitions."""

    def decode(
        self, state: NamedState, key: Mapping[str, Any], stored: Iterable[tuple[StateCodec, int, Pairs]]
    ) -> Iterable[StateEntry]:
        """Return the rows of a key, decoded from the stored rows of each partition that `locate` finds."""

    def ttl_clock(self, state: NamedState) -> str:
        """Return the clock for the TTL of a state."""

    def key_group(self, state: NamedState, key: Mapping[str, Any]) -> int | None:
        """Return the key group of a key; None if the operator has no key groups."""

    def plain_value(self, state: NamedState, entry: StateEntry) -> Any:
        """Return the value of a row for display: its columns, or the value itself if it has none."""

    def spark_reads(self, state: NamedState) -> bool:
        """Return whether Spark's own state reader can read a state."""


_TYPE_WORDS: Final = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "months": "interval year to month",
    "micros": "interval day to second",
    "calendar": "interval",
}


def by_key(rows: Iterable[tuple[Any, KeySize]]) -> Iterator[KeySize]:
    """Yield the size of each key from the sizes of its rows; each row has a value that identifies its key."""
    keys: dict[Any, KeySize] = {}
    for mark, row in rows:
        key = keys.setdefault(mark, row)
        if key is not row:
            key.rows += row.rows
            key.size_bytes += row.size_bytes
    yield from keys.values()


def clock_ms(files: OperatorStates, clock: str) -> int | None:
    """Return the time of a clock after the batch, since state at rest does not age."""
    if clock == PROCESSING:
        offsets = files.logs.offsets(files.batch_id)
        return None if offsets is None else offsets.timestamp_ms
    commit = files.logs.commit(files.batch_id)
    return None if commit is None else commit.next_watermark_ms or None


def type_text(type_: Any) -> str:
    """Return a type as Spark's SQL writes it."""
    if isinstance(type_, Atom):
        return _TYPE_WORDS.get(type_.name, type_.name)
    if isinstance(type_, Decimal):
        return f"decimal({type_.precision},{type_.scale})"
    if isinstance(type_, Array):
        return f"array<{type_text(type_.element)}>"
    if isinstance(type_, Map):
        return f"map<{type_text(type_.key)},{type_text(type_.value)}>"
    parts = [f"{name}:{type_text(part)}" for name, part in zip(type_.names, type_.types, strict=True)]
    return f"struct<{','.join(parts)}>"
