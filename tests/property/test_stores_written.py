"""Random state through the writer and back, and from backend to backend: the same rows, in their places."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from drawn_examples import MORE
from hypothesis import given, settings
from hypothesis import strategies as st
from state_rows import state_rows

from golden import golden_files
from holdfast.changes.rewriting import StateShape, rewrite
from holdfast.changes.working_copy import begin
from holdfast.checkpoints.state.states import operator_states
from holdfast.formats.rows.row_forms import KeyCodec, KeyForm, KeyKind, ValueForm
from holdfast.formats.rows.row_hashes import partition_of, row_hash, row_hashes
from holdfast.formats.rows.spark_types import parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import StoreId
from holdfast.savepoints.stores import OpenStore, StoreForm, StoreWriter
from holdfast.storage.memory import MemoryStorage

# The aggregate of the golden checkpoints: a customer, and what is counted and added up.
KEY = [{"name": "customer", "type": "string", "nullable": True}]
VALUE = [{"name": "count", "type": "long"}, {"name": "sum", "type": "long"}]


def codec(fields: list[dict[str, Any]]) -> RowCodec:
    return RowCodec(parse_struct(json.dumps({"type": "struct", "fields": fields}), ""))


KEYS, VALUES = codec(KEY), codec(VALUE)
WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
STATES = st.dictionaries(st.none() | st.text(max_size=9), st.tuples(WHOLE, st.none() | WHOLE), max_size=40)
SHAPES = st.builds(
    lambda rocksdb, partitions, number: StateShape(rocksdb, partitions, number if rocksdb else 1),
    st.booleans(),
    st.integers(1, 6),
    st.sampled_from([1, 2]),
)
State = dict[str | None, tuple[int, int | None]]


def key_row(customer: str | None) -> bytes:
    return KEYS.encode({"customer": customer})


def value_row(value: tuple[int, int | None]) -> bytes:
    return VALUES.encode({"count": value[0], "sum": value[1]})


def holding(state: State) -> MemoryStorage:
    """A checkpoint of two partitions on the heap with this state, and none besides."""
    checkpoint = MemoryStorage(dict(golden_files("4.2/aggregate-memory")))
    batch = begin(checkpoint)
    [operator] = operator_states(checkpoint, batch.before)
    form = StoreForm(operator.values, operator.codec, unique_ids=False)
    rows = [(key_row(customer), value_row(value)) for customer, value in state.items()]
    for partition in range(2):
        mine = [row for row in rows if partition_of(row[0], KEY, 1, 2, "") == partition]
        file = form.file(StoreId(0, partition), batch.version)
        with StoreWriter(checkpoint, file, form, Path("unused"), now_ms=1) as writer:
            writer.add([key for key, _ in mine], [value for _, value in mine])
            writer.finish()
    batch.commit(None)
    return checkpoint


def held(checkpoint: MemoryStorage, partitions: int) -> State:
    found: State = {}
    for row in state_rows(checkpoint):
        assert row.partition == partition_of(row.key_row, KEY, 1, partitions, "")
        assert row.key["customer"] not in found
        found[row.key["customer"]] = (row.value["count"], row.value["sum"])
    return found


@given(STATES, st.lists(SHAPES, min_size=1, max_size=3))
@settings(max_examples=25 * MORE)
def test_moved_from_shape_to_shape(state: State, shapes: list[StateShape]) -> None:
    checkpoint = holding(state)
    assert held(checkpoint, 2) == state
    with tempfile.TemporaryDirectory() as folder:
        for number, shape in enumerate(shapes):
            rewrite(checkpoint, shape, Path(folder, str(number)))
            assert held(checkpoint, shape.partitions) == state


@given(STATES, STATES, st.data(), SHAPES, st.booleans())
@settings(max_examples=25 * MORE)
def test_changed_in_place(
    state: State, others: State, data: st.DataObject, shape: StateShape, thoroughly: bool
) -> None:
    """Keys put and deleted in each store of a checkpoint, against a dictionary."""
    gone = data.draw(
        st.sets(st.sampled_from(sorted(map(str, state))), max_size=9) if state else st.just(set())
    )
    dropped = [each for each in state if str(each) in gone]
    expected = {**{key: value for key, value in state.items() if key not in dropped}, **others}
    checkpoint = holding(state)
    with tempfile.TemporaryDirectory() as folder:
        rewrite(checkpoint, shape, Path(folder, "first"))
        batch = begin(checkpoint)
        [operator] = operator_states(checkpoint, batch.before)
        form = StoreForm(operator.values, operator.codec, shape.state_format > 1)
        stored = operator.codec_of("default", "default").stored_key
        ids = []
        for partition in range(operator.partitions):
            store = StoreId(0, partition)
            with OpenStore(checkpoint, operator, store, Path(folder, f"p{partition}")) as opened:
                at = shape.partitions
                opened.delete(
                    [
                        stored(key_row(key))
                        for key in dropped
                        if partition_of(key_row(key), KEY, 1, at, "") == partition
                    ]
                )
                mine = [
                    (stored(key_row(key)), value_row(value))
                    for key, value in others.items()
                    if partition_of(key_row(key), KEY, 1, at, "") == partition
                ]
                opened.put([key for key, _ in mine], [value for _, value in mine])
                file = opened.write(checkpoint, form.file(store, batch.version), 1, thoroughly=thoroughly)
            ids.append((file.unique_id or "",))
        batch.commit({0: tuple(ids)} if form.unique_ids else None)
    assert held(checkpoint, shape.partitions) == expected


FIELDS = st.lists(
    st.sampled_from(["string", "long", "integer", "short", "byte", "boolean", "date", "timestamp", "double"]),
    min_size=1,
    max_size=4,
)
VALUES_OF = {
    "string": st.text(max_size=9),
    "long": WHOLE,
    "timestamp": st.integers(-(1 << 62), 1 << 62),
    "integer": st.integers(-(1 << 31), (1 << 31) - 1),
    "date": st.integers(-(1 << 31), (1 << 31) - 1),
    "short": st.integers(-(1 << 15), (1 << 15) - 1),
    "byte": st.integers(-128, 127),
    "boolean": st.booleans(),
    "double": st.floats(allow_nan=False),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    kinds = draw(FIELDS)
    fields = [{"name": f"f{at}", "type": kind, "nullable": True} for at, kind in enumerate(kinds)]
    row = st.fixed_dictionaries({f"f{at}": st.none() | VALUES_OF[kind] for at, kind in enumerate(kinds)})
    rows = draw(st.lists(row, min_size=1, max_size=8))
    return fields, rows * draw(st.sampled_from([1, 9]))


@given(tables(), st.data())
def test_many_hashes_are_each_the_hash_of_one(
    table: tuple[list[dict[str, Any]], list[dict[str, Any]]], data: st.DataObject
) -> None:
    fields, rows = table
    count = data.draw(st.integers(1, len(fields)))
    encoded = [codec(fields).encode(row) for row in rows]
    assert row_hashes(encoded, fields, count, "") == [row_hash(row, fields, count, "") for row in encoded]


@given(tables(), st.sampled_from(list(KeyKind)), st.data())
def test_a_key_is_stored_as_it_is_read(
    table: tuple[list[dict[str, Any]], list[dict[str, Any]]], kind: KeyKind, data: st.DataObject
) -> None:
    fields, rows = table
    ordered = [at for at, each in enumerate(fields) if each["type"] not in ("string", "date", "timestamp")]
    first: tuple[int, ...] = ()
    if kind is KeyKind.PREFIX:
        first = tuple(range(data.draw(st.integers(1, len(fields)))))
    elif kind is KeyKind.RANGE:
        if not ordered:
            return
        first = tuple(data.draw(st.lists(st.sampled_from(ordered), min_size=1, max_size=2, unique=True)))
    elif kind is not KeyKind.ROW:
        fields = [*fields, {"name": "at", "type": "long", "nullable": False}]
        rows = [{**row, "at": data.draw(WHOLE)} for row in rows[:8]]
    type_ = parse_struct(json.dumps({"type": "struct", "fields": fields}), "")
    keys = KeyCodec(KeyForm(kind, first), type_, "")
    stored = {}
    for row in rows:
        encoded = RowCodec(type_).encode(row)
        assert keys.row(keys.stored(encoded)) == encoded
        stored[keys.stored(encoded)] = row
    if kind is KeyKind.RANGE and len(first) == 1:
        # Its bytes are in the order of its values, nothing last.
        name = type_.names[first[0]]
        values = [stored[key][name] for key in sorted(stored)]
        known = [each for each in values if each is not None]
        assert known == sorted(known)


@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("delimiter", [b"", b","])
@given(rows=st.lists(st.integers(0, 99), min_size=1, max_size=6))
def test_a_list_is_stored_as_it_is_read(checksums: bool, delimiter: bytes, rows: list[int]) -> None:
    form = ValueForm(rocksdb=True, checksums=checksums, delimiter=delimiter)
    encoded = tuple(value_row((each, None)) for each in rows)
    assert form.rows(form.stored_list(b"key", encoded), "") == (encoded, True)
