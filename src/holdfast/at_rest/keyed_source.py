"""The states of keyed operators as named states, read by users' keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.model import (
    PROCESSING,
    KeySize,
    NamedState,
    StateAges,
    StateEntry,
    StateForm,
    by_key,
    clock_ms,
)
from holdfast.checkpoints.keyed import KeyGroup, KeyGroups
from holdfast.checkpoints.state.key_partition import partition_of_key
from holdfast.checkpoints.state.lookup import sought
from holdfast.errors import Unsupported
from holdfast.formats.operators import OperatorName
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct

if TYPE_CHECKING:
    import pyarrow as pa

    from holdfast.at_rest.keyed_operators import KeptState
    from holdfast.at_rest.keyed_reader import KeyedStateReader
    from holdfast.checkpoints.checkpoint import ProgressCallback
    from holdfast.checkpoints.keyed import KeyRow
    from holdfast.checkpoints.state.lookup import Sought
    from holdfast.checkpoints.state.rocksdb import Pairs
    from holdfast.checkpoints.state.states import OperatorStates, StateCodec


TIMERS: Final = "timers"
_BROADCAST: Final = "broadcast"
_TIMER: Final = Struct(("name", "clock", "at_ms"), (Atom("string"), Atom("string"), Atom("long")))
_ATOMS: Final = {
    "bool": "boolean",
    "int8": "byte",
    "int16": "short",
    "int32": "integer",
    "int64": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32[day]": "date",
    "null": "void",
}


def name_states(
    keyed: KeyedStateReader, files: OperatorStates, operator: OperatorName
) -> Iterator[NamedState]:
    """Yield the states of a keyed operator: the combined state under the operator's name, then each state."""
    source = KeyedSource(keyed, files)
    declared = keyed.operator
    key = _struct(declared.keys)
    states = [state for state in declared.states if state.kind != _BROADCAST]
    names = [state.name for state in states] + ([TIMERS] if declared.timers else [])
    types: list[DataType] = [_stored_type(state) for state in states] + (
        [Array(_TIMER)] if declared.timers else []
    )
    empty = Struct((), ())
    name = operator.display_name
    common = (declared.operator_id, name, files.name, operator)
    columns = Struct(tuple(names), tuple(types))
    yield NamedState(*common, name, StateForm.KEYED, key, empty, columns, False, source)
    for state in states:
        form = {"list": StateForm.LIST, "map": StateForm.MAP}.get(state.kind, StateForm.VALUE)
        sub = empty if state.key_type is None else Struct(("map_key",), (spark_type(state.key_type),))
        value = Struct((state.name,), (spark_type(state.type),))
        yield NamedState(*common, state.name, form, key, sub, value, state.ttl_ms is not None, source)
    if declared.timers:
        yield NamedState(*common, TIMERS, StateForm.TIMERS, key, _TIMER, empty, False, source)


@dataclass(frozen=True, slots=True)
class KeyedSource:
    """A reader of the states of one keyed operator, from its key groups.

    Attributes:
        keyed: The reader of the key groups.
        files: The reader of the operator's files.
    """

    keyed: KeyedStateReader
    files: OperatorStates

    @property
    def notes_writes(self) -> bool:
        """False, because a key group is written as a whole and does not show single writes."""
        return False

    def get(self, state: NamedState, key: Mapping[str, Any]) -> Iterator[StateEntry]:
        """Yield the rows of a key. Cost: looks up and decodes one key group."""
        place = self.keyed.find(dict(key))
        if place is not None:
            yield from self._entries(state, *place)

    def scan(self, state: NamedState, tell: ProgressCallback | None = None) -> Iterator[StateEntry]:  # noqa: ARG002 - key groups are no stores to count
        """Yield every row, by key group. Cost: about 10 microseconds per key."""
        from holdfast.checkpoints.keyed import key_rows

        for group in self.keyed.source.groups():
            for row in key_rows(group, self.keyed.where):
                yield from self._entries(state, group, row)

    def tables(
        self,
        state: NamedState,
        schema: pa.Schema,
        tell: ProgressCallback | None = None,  # noqa: ARG002 - as above
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches."""
        from holdfast.at_rest.keyed_reader import GroupsInMemory, KeyedStateReader

        operator = self.keyed.operator
        for group in self.keyed.source.groups():
            if state.form in (StateForm.KEYED, StateForm.TIMERS):
                yield self._by_row(state, group, schema)
                continue
            partition, declared = operator.partition_of(group.group), operator.state(state.name)
            for table in KeyedStateReader(operator, GroupsInMemory([group])).scan(state.name):
                yield _by_column(table, declared, partition, schema)

    def key_sizes(self, state: NamedState, tell: ProgressCallback | None = None) -> Iterator[KeySize]:
        """Yield the size of each key, after collecting all keys in memory."""
        return by_key(
            (
                repr(list(entry.key.values())),
                KeySize(1, entry.size_bytes, entry.partition, dict, entry.key),
            )
            for entry in self.scan(state, tell)
        )

    def has_ages(self, state: NamedState) -> bool:
        """Return whether a state has ages, as single states do, but not timers and the combined state."""
        return state.form not in (StateForm.KEYED, StateForm.TIMERS)

    def ages(
        self,
        state: NamedState,
        by: str | None = None,  # noqa: ARG002 - the stamp of a value is its only time
        current_ttl_ms: int | None = None,  # noqa: ARG002 - the operator records its TTL
        tell: ProgressCallback | None = None,
    ) -> StateAges:
        """Return the times when the values of a state were last stamped."""
        import numpy as np

        empty = np.empty(0, np.int64)
        if state.form is StateForm.KEYED:
            return StateAges(state, None, "each of its states has its own ages", None, empty, empty, 0, 0)
        if state.form is StateForm.TIMERS:
            rows = sum(1 for _ in self.scan(state, tell))
            return StateAges(state, None, "timers have no age", None, empty, empty, rows, 0)
        times, sizes = [empty], [empty]
        rows = total = 0
        for table in self.keyed.ages(state.name):
            size = table.column("size_bytes").to_numpy()
            rows += len(size)
            total += int(size.sum())
            stamps = table.column("stamp_ms").cast("float64").to_numpy()
            known = ~np.isnan(stamps)
            times.append(stamps[known].astype(np.int64))
            sizes.append(size[known])
        if not state.ttl:
            what = "it has no TTL, so the time of writing is not recorded"
            return StateAges(state, None, what, None, empty, empty, rows, total)
        clock = self.ttl_clock(state)
        now = clock_ms(self.files, clock)
        return StateAges(
            state, clock, "written", now, np.concatenate(times), np.concatenate(sizes), rows, total
        )

    def locate(
        self, state: NamedState, key: Mapping[str, Any], files: OperatorStates
    ) -> tuple[list[Sought], int | None]:
        """Return the lookup of the rows in Spark's store that contain the key's group."""
        from holdfast.formats.operators import KEYED_VARIABLES

        number = self.keyed.operator.numbering.number_of(self.key_group(state, key))
        codecs = [files.codec_of(files.store_names[0], family) for family in sorted(KEYED_VARIABLES)]
        values = {codecs[0].key_type.names[0]: number}
        return [sought(codec, values) for codec in codecs], partition_of_key(files, codecs[0], values)

    def decode(
        self, state: NamedState, key: Mapping[str, Any], stored: Iterable[tuple[StateCodec, int, Pairs]]
    ) -> Iterator[StateEntry]:
        """Decode the values of a key from its group's rows in Spark's store."""
        from holdfast.at_rest.keyed_reader import GroupsInMemory, KeyedStateReader

        gathered = KeyGroups(self.files.logs.storage)
        for codec, _, pairs in stored:
            gathered.add(codec, pairs)
        groups = GroupsInMemory(gathered.groups())
        return KeyedSource(KeyedStateReader(self.keyed.operator, groups), self.files).get(state, key)

    def ttl_clock(self, state: NamedState) -> str:
        """Return the clock that the state declares."""
        return self.keyed.operator.state(state.name).clock or PROCESSING

    def key_group(self, state: NamedState, key: Mapping[str, Any]) -> int:  # noqa: ARG002 - not needed
        """Return the key group that contains a key, or else that of its hash."""
        place = self.keyed.find(dict(key))
        return self.keyed.group_of(dict(key)) if place is None else place[0].group

    def plain_value(self, state: NamedState, entry: StateEntry) -> Any:
        """Return the value of a row; for a single state, which has no columns, the bare value."""
        return dict(entry.value) if state.form is StateForm.KEYED else entry.value[state.name]

    def spark_reads(self, state: NamedState) -> bool:  # noqa: ARG002 - false for all states
        """Return False, because Spark reads key groups as bytes."""
        return False

    def _by_row(self, state: NamedState, group: KeyGroup, schema: pa.Schema) -> pa.RecordBatch:
        import pyarrow as pa

        from holdfast.at_rest.keys import arrow_value
        from holdfast.checkpoints.keyed import key_rows

        types = [*state.key.types, *state.sub.types, *state.value.types, Atom("integer")]
        cells = [
            [*entry.key.values(), *entry.sub.values(), *entry.value.values(), entry.partition]
            for row in key_rows(group, self.keyed.where)
            for entry in self._entries(state, group, row)
        ]
        arrays = [
            pa.array([arrow_value(row[at], type_) for row in cells], field.type)
            for at, (type_, field) in enumerate(zip(types, schema, strict=True))
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _entries(self, state: NamedState, group: KeyGroup, row: KeyRow) -> Iterator[StateEntry]:
        """Yield a key's rows in one state, or the one row of its combined state."""
        operator = self.keyed.operator
        key = dict(zip(state.key.names, row.key, strict=True))
        partition = operator.partition_of(group.group)
        timers = [{"name": timer.name, "clock": timer.clock, "at_ms": timer.at_ms} for timer in row.timers]
        if state.form is StateForm.KEYED:
            values = {name: row.values.get(name) for name in state.value.names}
            if TIMERS in values and operator.timers:
                values[TIMERS] = timers
            yield StateEntry(
                key, {}, values, None, partition, _size(row.key) + sum(map(_size, values.values()))
            )
            return
        if state.form is StateForm.TIMERS:
            for timer in timers:
                yield StateEntry(
                    key, timer, {}, None, partition, _size(row.key) + _size(list(timer.values()))
                )
            return
        if state.name not in row.values:
            return
        ttl_ms = operator.state(state.name).ttl_ms
        for sub, value, stamp in _elements(state, row):
            expires = None if ttl_ms is None or stamp is None else stamp + ttl_ms
            size = _size(row.key) + _size(list(sub.values())) + _size(value)
            yield StateEntry(key, sub, {state.name: value}, expires, partition, size)


def _by_column(table: pa.Table, declared: KeptState, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [column.combine_chunks() for column in table.columns]
    if declared.ttl_ms is not None:
        columns[-1] = pc.add(columns[-1], declared.ttl_ms)
    columns.append(pa.array(np.full(table.num_rows, partition, np.int32)))
    whole = [
        pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
        for column in columns
    ]
    cast = [column.cast(field.type) for column, field in zip(whole, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _elements(state: NamedState, row: KeyRow) -> Iterator[tuple[dict[str, Any], Any, int | None]]:
    value, stamps = row.values[state.name], row.stamps.get(state.name)
    if state.form is StateForm.LIST:
        for at, element in enumerate(value):
            yield {}, element, None if stamps is None else stamps[at]
    elif state.form is StateForm.MAP:
        pairs = value.items() if isinstance(value, Mapping) else value
        times = dict(stamps.items()) if isinstance(stamps, Mapping) else None
        for at, (map_key, element) in enumerate(pairs):
            stamp = None
            if stamps is not None:
                stamp = times[map_key] if times is not None else stamps[at][1]
            yield {"map_key": map_key}, element, stamp
    else:
        yield {}, value, stamps


def _size(value: Any) -> int:
    """Return the approximate size of a value in bytes; exact for numbers, texts and bytes."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_size(key) + _size(part) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value))
    return 1 if isinstance(value, bool) else 8


def _stored_type(kept: KeptState) -> DataType:
    value = spark_type(kept.type)
    if kept.kind == "list":
        return Array(value)
    return value if kept.key_type is None else Map(spark_type(kept.key_type), value)


def _struct(schema: pa.Schema) -> Struct:
    return Struct(tuple(schema.names), tuple(spark_type(field.type) for field in schema))


def spark_type(type_: pa.DataType) -> DataType:
    """Return the Spark type for an Arrow type.

    Raises:
        Unsupported: Spark has no equivalent type.
    """
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_map(type_):
        return Map(spark_type(type_.key_type), spark_type(type_.item_type))
    if kinds.is_list(type_) or kinds.is_large_list(type_):
        return Array(spark_type(type_.value_type))
    if kinds.is_struct(type_):
        return _struct(pa.schema(list(type_)))
    if kinds.is_decimal(type_):
        return Decimal(type_.precision, type_.scale)
    name = _ATOMS.get(str(type_))
    if kinds.is_timestamp(type_):
        name = "timestamp" if type_.tz else "timestamp_ntz"
    elif kinds.is_duration(type_):
        name = "micros"
    if name is None:
        raise Unsupported(
            f"a column of type {type_} cannot be displayed",
            code="HF-E7003",
            hint="read the column in the query itself",
        )
    return Atom(name)
