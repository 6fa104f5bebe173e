"""Holdfast's own keyed operators, as states among the others: named, typed and read by their users' keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.read.model import Entry, NamedState, StateForm
from holdfast.checkpoints.keyed.key_groups import KeyGroup, KeyGroups
from holdfast.errors import Unsupported
from holdfast.formats.rows.spark_types import Array, Atom, DataType, Decimal, Map, Struct

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from holdfast.at_rest.keyed.keyed_operators import KeptState
    from holdfast.at_rest.keyed.keyed_reader import KeyedState
    from holdfast.checkpoints.keyed.key_rows import KeyRow
    from holdfast.checkpoints.state.families import Pairs
    from holdfast.checkpoints.state.states import OperatorStates, StateCodec

TIMERS: Final = "timers"
EVENT, PROCESSING = "event", "processing"
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


def named(state: KeyedState, operator: str, kind: str) -> Iterator[NamedState]:
    """The states of a keyed operator: all of a key at once under the operator's name, and each by itself."""
    own = state.operator
    key = _struct(own.keys)
    kept = [each for each in own.states if each.kind != _BROADCAST]
    names = [each.name for each in kept] + ([TIMERS] if own.timers else [])
    types: list[DataType] = [_held(each) for each in kept] + ([Array(_TIMER)] if own.timers else [])
    empty = Struct((), ())
    common = (own.operator_id, operator, kind)
    columns = Struct(tuple(names), tuple(types))
    yield NamedState(*common, operator, StateForm.KEYED, key, empty, columns, False, None, own=state)
    for each in kept:
        form = {"list": StateForm.LIST, "map": StateForm.MAP}.get(each.kind, StateForm.VALUE)
        sub = empty if each.key_type is None else Struct(("map_key",), (spark_type(each.key_type),))
        value = Struct((each.name,), (spark_type(each.type),))
        ttl = each.ttl_ms is not None
        yield NamedState(*common, each.name, form, key, sub, value, ttl, None, own=state)
    if own.timers:
        yield NamedState(*common, TIMERS, StateForm.TIMERS, key, _TIMER, empty, False, None, own=state)


def found(state: NamedState, key: Mapping[str, Any]) -> Iterator[Entry]:
    """What a keyed operator holds for a key. Cost: one key group is looked up and decoded."""
    own = _own(state)
    here = own.find(dict(key))
    if here is not None:
        yield from _entries(state, here[0], here[1])


def group_of(state: NamedState, key: Mapping[str, Any]) -> int:
    """The key group that has a key; the one that its hash gives where none has."""
    own = _own(state)
    here = own.find(dict(key))
    return own.group_of(dict(key)) if here is None else here[0].group


def clock_of(state: NamedState) -> str:
    """Which clock the time to live of a state goes by."""
    return _own(state).operator.state(state.name).clock or PROCESSING


def stamps(state: NamedState) -> Iterator[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """When the values of a state were last stamped, NaN where nobody noted it, and their bytes."""
    for table in _own(state).ages(state.name):
        written = table.column("stamp_ms").cast("float64").to_numpy()
        yield written, table.column("size_bytes").to_numpy()


def stored_key(
    state: NamedState, files: OperatorStates, key: Mapping[str, Any]
) -> tuple[list[StateCodec], dict[str, Any]]:
    """The states of Spark's that hold a key's group, and the group as their key.

    The group is the one that has the key now, or the one that its hash gives where none has.
    """
    from holdfast.checkpoints.keyed.key_groups import OWN_FAMILIES  # noqa: PLC0415 - only for histories

    number = _own(state).operator.numbering.number_of(group_of(state, key))
    store = files.store_names[0]
    codecs = [files.codec_of(store, family) for family in sorted(OWN_FAMILIES)]
    return codecs, {codecs[0].key_type.names[0]: number}


def found_in(
    state: NamedState, key: Mapping[str, Any], stored: Iterable[tuple[StateCodec, Pairs]]
) -> Iterator[Entry]:
    """What a key group holds for a key, out of the group's rows of Spark's store."""
    from holdfast.at_rest.keyed.group_tables import GroupsInMemory  # noqa: PLC0415 - only who reads keyed state loads Arrow
    from holdfast.at_rest.keyed.keyed_reader import KeyedState  # noqa: PLC0415 - as above

    own = _own(state)
    gathered = KeyGroups()
    for codec, pairs in stored:
        gathered.add(codec, pairs)
    here = KeyedState(own.operator, GroupsInMemory(gathered.groups())).find(dict(key))
    if here is not None:
        yield from _entries(state, here[0], here[1])


def rows(state: NamedState) -> Iterator[Entry]:
    """Every row, key group after key group. Cost: some 10 microseconds a key."""
    from holdfast.checkpoints.keyed.key_rows import key_rows  # noqa: PLC0415 - only who reads keyed state loads Arrow

    own = _own(state)
    for group in own.source.groups():
        for row in key_rows(group, own.where):
            yield from _entries(state, group, row)


def tables(state: NamedState, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows as record batches: a single state's column by column, all of a key's row by row."""
    from holdfast.at_rest.keyed.group_tables import GroupsInMemory  # noqa: PLC0415 - as above
    from holdfast.at_rest.keyed.keyed_reader import KeyedState  # noqa: PLC0415 - as above

    own = _own(state)
    for group in own.source.groups():
        partition = own.operator.partition_of(group.group)
        if state.form in (StateForm.KEYED, StateForm.TIMERS):
            yield _by_row(state, group, schema)
            continue
        kept = own.operator.state(state.name)
        for table in KeyedState(own.operator, GroupsInMemory([group])).scan(state.name):
            yield _by_column(table, kept, partition, schema)


def _by_column(table: pa.Table, kept: KeptState, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    import numpy as np  # noqa: PLC0415 - as above
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    columns = [each.combine_chunks() for each in table.columns]
    if kept.ttl_ms is not None:
        columns[-1] = pc.add(columns[-1], kept.ttl_ms)
    columns.append(pa.array(np.full(table.num_rows, partition, np.int32)))
    whole = [pa.concat_arrays(each.chunks) if isinstance(each, pa.ChunkedArray) else each for each in columns]
    cast = [each.cast(field.type) for each, field in zip(whole, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _by_row(state: NamedState, group: KeyGroup, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415 - as above

    from holdfast.at_rest.read.decode import arrow_value  # noqa: PLC0415 - as above
    from holdfast.checkpoints.keyed.key_rows import key_rows  # noqa: PLC0415 - as above

    own = _own(state)
    entries = [entry for row in key_rows(group, own.where) for entry in _entries(state, group, row)]
    types = [*state.key.types, *state.sub.types, *state.value.types, Atom("integer")]
    cells = [
        [*each.key.values(), *each.sub.values(), *each.value.values(), each.partition] for each in entries
    ]
    arrays = [
        pa.array([arrow_value(row[at], type_) for row in cells], field.type)
        for at, (type_, field) in enumerate(zip(types, schema, strict=True))
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _entries(state: NamedState, group: KeyGroup, row: KeyRow) -> Iterator[Entry]:
    """A key's rows of one state, or its one row of all."""
    own = _own(state)
    key = dict(zip(state.key.names, row.key, strict=True))
    partition = own.operator.partition_of(group.group)
    timers = [{"name": each.name, "clock": each.clock, "at_ms": each.at_ms} for each in row.timers]
    if state.form is StateForm.KEYED:
        every = {name: row.values.get(name) for name in state.value.names}
        if TIMERS in every and own.operator.timers:
            every[TIMERS] = timers
        yield Entry(key, {}, every, None, partition, _size(row.key) + sum(map(_size, every.values())))
        return
    if state.form is StateForm.TIMERS:
        for timer in timers:
            yield Entry(key, timer, {}, None, partition, _size(row.key) + _size(list(timer.values())))
        return
    if state.name not in row.values:
        return
    kept = own.operator.state(state.name)
    for sub, value, stamp in _elements(state, row):
        expires = None if kept.ttl_ms is None or stamp is None else stamp + kept.ttl_ms
        size = _size(row.key) + _size(list(sub.values())) + _size(value)
        yield Entry(key, sub, {state.name: value}, expires, partition, size)


def _elements(state: NamedState, row: KeyRow) -> Iterator[tuple[dict[str, Any], Any, int | None]]:
    value, stamps = row.values[state.name], row.stamps.get(state.name)
    if state.form is StateForm.LIST:
        for at, each in enumerate(value):
            yield {}, each, None if stamps is None else stamps[at]
    elif state.form is StateForm.MAP:
        pairs = value.items() if isinstance(value, Mapping) else value
        times = dict(stamps.items()) if isinstance(stamps, Mapping) else None
        for at, (map_key, each) in enumerate(pairs):
            stamp = None
            if stamps is not None:
                stamp = times[map_key] if times is not None else stamps[at][1]
            yield {"map_key": map_key}, each, stamp
    else:
        yield {}, value, stamps


def _size(value: Any) -> int:
    """About how many bytes a value has: exact for numbers, texts and bytes."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_size(key) + _size(each) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return sum(map(_size, value))
    return 1 if isinstance(value, bool) else 8


def _own(state: NamedState) -> KeyedState:
    own: KeyedState = state.own
    return own


def _held(kept: KeptState) -> DataType:
    value = spark_type(kept.type)
    if kept.kind == "list":
        return Array(value)
    return value if kept.key_type is None else Map(spark_type(kept.key_type), value)


def _struct(schema: pa.Schema) -> Struct:
    return Struct(tuple(schema.names), tuple(spark_type(each.type) for each in schema))


def spark_type(type_: pa.DataType) -> DataType:
    """The type of Spark's for a type of Arrow's.

    Raises:
        Unsupported: Spark has none.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above

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
        raise Unsupported("state of this type cannot be shown", found=str(type_))
    return Atom(name)
