"""The index of expiry that Spark keeps for a value with a TTL follows an edit of the values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from spark_structs import fields

from holdfast.changes.edit.editable_state import KEY, VALUE, Column, EditableState, RowKind, RowsView
from holdfast.changes.edit.row_changes import EditTally, PartitionEdit
from holdfast.checkpoints.state.rocksdb import Pairs
from holdfast.checkpoints.state.states import StateCodec, StateName
from holdfast.formats.logs.operator_metadata import ColumnFamily
from holdfast.formats.rows.row_forms import KeyForm, ValueForm
from holdfast.formats.rows.spark_types import Atom, parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec

CUSTOMER = fields("customer string")
LONG, TEXT = Atom("long"), Atom("string")
EXPIRES = Column("expires_ms", VALUE, ("ttlExpirationMs",), LONG)
COLUMNS = (Column("customer", KEY, ("customer",), TEXT), Column("n", VALUE, ("value", "n"), LONG), EXPIRES)


def with_struct(name: str, struct: str, *columns: str, first: bool) -> str:
    """Fields with a struct before or after them."""
    type_ = json.loads(fields(*columns))
    field = {"name": name, "type": json.loads(struct), "nullable": True, "metadata": {}}
    type_["fields"].insert(0 if first else len(columns), field)
    return json.dumps(type_)


def family(name: str, key: str, value: str) -> StateCodec:
    named = StateName(0, "default", name, "transformWithStateInPySparkExec")
    form = ValueForm(rocksdb=True)
    return StateCodec(named, form, ColumnFamily(name, key, value), KeyForm(), "state/0")


VALUES = family(
    "latest", CUSTOMER, with_struct("value", fields("n long"), "ttlExpirationMs long", first=True)
)
INDEX = family(
    "$ttl_latest",
    with_struct("elementKey", CUSTOMER, "expirationMs long", first=False),
    fields("__dummy__ void"),
)


def codec(schema: str) -> RowCodec:
    return RowCodec(parse_struct(schema, "here"))


def stored(customer: str, n: int, expires_ms: int) -> tuple[bytes, bytes]:
    """A row as RocksDB has it: a version byte before the key and before the value."""
    value = {"value": {"n": n}, "ttlExpirationMs": expires_ms}
    key = codec(CUSTOMER).encode({"customer": customer})
    return b"\0" + key, b"\0" + codec(VALUES.require_schema().value_schema).encode(value)


class Move:
    """Moves the expiry of `ann` to 250, leaves that of `bob` as it is, and deletes `cid`."""

    columns = (EXPIRES,)

    def decide(self, _: int, __: int, rows: RowsView) -> Iterator[tuple[int, tuple[Any, ...] | None]]:
        new: dict[str, tuple[int] | None] = {"ann": (250,), "bob": (200,), "cid": None}
        for at, row in enumerate(rows):
            yield at, new[row["customer"]]


def test_the_index_of_expiry_follows_each_row() -> None:
    unused: Any = None  # the states of the operator, from which only a reader takes rows
    state = EditableState(
        "latest",
        unused,
        RowKind.SINGLE,
        VALUES,
        {"expiry": INDEX},
        parse_struct(CUSTOMER, "here"),
        COLUMNS,
    )
    rows: Pairs = [stored("ann", 1, 100), stored("bob", 2, 200), stored("cid", 3, 300)]
    tally = EditTally()
    changes = PartitionEdit(state, 0, Move(), tally).run(
        lambda: [(VALUES, rows)], [{"customer": "dan", "n": 4, "expires_ms": 400}]
    )
    values, index = {}, {}
    for change in changes:
        key = codec(change.codec.require_schema().key_schema).decode(change.key)
        value = codec(change.codec.require_schema().value_schema)
        new = None if change.rows is None else [value.decode(row) for row in change.rows]
        if change.family == "latest":
            values[key["customer"]] = new
        else:
            index[key["expirationMs"], key["elementKey"]["customer"]] = new
    assert values == {
        "ann": [{"value": {"n": 1}, "ttlExpirationMs": 250}],
        "cid": None,
        "dan": [{"value": {"n": 4}, "ttlExpirationMs": 400}],
    }
    written = [{"__dummy__": None}]
    assert index == {(100, "ann"): None, (250, "ann"): written, (300, "cid"): None, (400, "dan"): written}
    assert (tally.rows, tally.changed, tally.deleted, tally.inserted) == (3, 1, 1, 1)
