"""State with a column that no condition can read: rows are deleted by their key, and not edited otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from spark_structs import fields

from holdfast.changes.edit.deciders import BySql, Selection
from holdfast.changes.edit.editable_state import KEY, VALUE, Column, EditableState, RowKind
from holdfast.changes.edit.row_changes import EditTally, PartitionEdit
from holdfast.checkpoints.state.states import StateCodec, StateName
from holdfast.errors import Unsupported
from holdfast.formats.logs.operator_metadata import ColumnFamily
from holdfast.formats.rows.row_forms import KeyForm, ValueForm
from holdfast.formats.rows.spark_types import Array, Atom, DataType, parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec

CUSTOMER = fields("customer string")
INTERVAL = Atom("calendar")
# Rows of `max(n)` and `first(pause)`; an interval is its months, days and microseconds.
ROWS = {"ann": (1, (0, 2, 0)), "bob": (2, (1, 0, 500)), "cid": (3, None)}


def of_type(schema: str, name: str, type_: Any) -> str:
    described = json.loads(schema)
    next(field for field in described["fields"] if field["name"] == name)["type"] = type_
    return json.dumps(described)


def codec(schema: str) -> RowCodec:
    return RowCodec(parse_struct(schema, "here"))


def state(value: str, pause: DataType) -> EditableState:
    family = ColumnFamily("default", CUSTOMER, value)
    main = StateCodec(
        StateName(0, "default", "default", "stateStoreSave"),
        ValueForm(rocksdb=True),
        family,
        KeyForm(),
        "state/0",
    )
    columns = (
        Column("customer", KEY, ("customer",), Atom("string")),
        Column("n", VALUE, ("n",), Atom("long")),
        Column("pause", VALUE, ("pause",), pause),
    )
    unused: Any = None  # the states of the operator, from which only a reader takes rows
    key = parse_struct(CUSTOMER, "here")
    return EditableState("aggregate", unused, RowKind.SINGLE, main, {}, key, columns)


WITH_INTERVAL = state(fields("n long", "pause interval"), INTERVAL)
WITH_INTERVALS = state(
    of_type(
        fields("n long", "pause x"),
        "pause",
        {"type": "array", "elementType": "interval", "containsNull": True},
    ),
    Array(INTERVAL),
)


@pytest.mark.parametrize(
    ("where", "assignments", "key"),
    [
        ("n > 1", (), None),
        (None, ("n = n + 1",), {"customer": "ann"}),
        ("n > 1", (), {"customer": "ann"}),
        ("pause is null", ("n = 0",), None),
    ],
)
@pytest.mark.parametrize("edited", [WITH_INTERVAL, WITH_INTERVALS], ids=["interval", "intervals"])
def test_conditions_and_assignments_are_refused(
    edited: EditableState, where: str | None, assignments: tuple[str, ...], key: dict[str, Any] | None
) -> None:
    with pytest.raises(Unsupported, match="columns of type interval cannot be edited") as caught:
        Selection(edited, where, assignments, key)
    assert (caught.value.code, caught.value.where) == ("HF-E7011", "aggregate")
    assert "--key KEY --delete" in str(caught.value.hint)


def test_a_row_is_deleted_by_its_key() -> None:
    value = codec(fields("n long", "pause interval"))
    rows = [
        (
            b"\0" + codec(CUSTOMER).encode({"customer": customer}),
            b"\0" + value.encode({"n": n, "pause": pause}),
        )
        for customer, (n, pause) in ROWS.items()
    ]
    tally = EditTally()
    decider = BySql(Selection(WITH_INTERVAL, None, (), {"customer": "bob"}), delete=True)
    edit = PartitionEdit(WITH_INTERVAL, 0, decider, tally)
    [change] = edit.run(lambda: [(WITH_INTERVAL.main, rows)])
    assert codec(CUSTOMER).decode(change.key) == {"customer": "bob"}
    assert change.rows is None
    assert (tally.rows, tally.changed, tally.deleted, tally.inserted) == (3, 0, 1, 0)
