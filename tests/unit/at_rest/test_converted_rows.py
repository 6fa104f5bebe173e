"""Rows of an operator that are converted to the columns of new code, each written down by hand."""

from __future__ import annotations

import json
import struct
from decimal import Decimal as Number
from typing import Any

import pytest
from spark_structs import fields

from holdfast.changes.column_changes import OperatorConversion, refuse_merge, row_change
from holdfast.changes.converting import RowConversion
from holdfast.changes.evolving import operator_columns
from holdfast.changes.operator_matching import Wishes
from holdfast.changes.state_columns import OperatorColumns
from holdfast.checkpoints.state.states import OperatorShape, StateCodec, StateName, StoreShape
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.logs.notes import PlanStep, QueryPlan
from holdfast.formats.logs.operator_metadata import ColumnFamily
from holdfast.formats.rows.row_forms import KeyForm, ValueForm

AGGREGATE = "stateStoreSave"

# Rows by hand: null bits, eight bytes a column, and behind them what does not fit.


def word(text: bytes, at: int) -> bytes:
    """The place and size of a text of at most eight bytes."""
    return struct.pack("<q", at << 32 | len(text))


def converted(change: OperatorConversion, key: bytes, value: bytes) -> tuple[bytes, bytes]:
    family = change.old.shape.stores[0].families[0]
    codec = StateCodec(StateName(0, "default", "default"), ValueForm(rocksdb=True), family, KeyForm(), "sp")
    [row] = RowConversion(change, codec).rows([(b"\0" + key, b"\0" + value)])
    return row


def by_hand(
    old: tuple[str, str, str], new: tuple[str, str, str], confs: dict[str, str] | None = None, **said: Any
) -> OperatorConversion:
    made: list[OperatorColumns] = []
    for key, value, text in (old, new):
        store = StoreShape("default", (ColumnFamily("default", key, value),))
        plan = QueryPlan((), (PlanStep("Aggregate", text, text, True),))
        made += operator_columns([OperatorShape(0, AGGREGATE, (store,), {}, {})], plan, confs or {}, "sp")
    before, after = made
    return row_change(
        before, after, Wishes(said.get("rename", {}), frozenset(), said.get("initial", {})), "sp"
    )


def test_a_row_with_its_columns_widened_and_in_another_order() -> None:
    change = by_hand(
        (
            fields("k string", "v integer"),
            fields("count long!", "max integer"),
            "[k, v], [k, v, count(1) AS n, max(a) AS m]",
        ),
        (
            fields("v long", "k string"),
            fields("min double", "max long", "count long!"),
            "[v, k], [v, k, min(b) AS least, max(a) AS m, count(1) AS n]",
        ),
    )
    key = bytes(8) + word(b"ann", 24) + struct.pack("<ii", -3, 0) + b"ann\0\0\0\0\0"
    value = bytes(8) + struct.pack("<q", 9) + struct.pack("<ii", -2, 0)
    new_key, new_value = converted(change, key, value)
    assert new_key == bytes(8) + struct.pack("<q", -3) + word(b"ann", 24) + b"ann\0\0\0\0\0"
    # The first column is null: bit 0, and nothing in its eight bytes.
    assert new_value == struct.pack("<q", 1) + bytes(8) + struct.pack("<qq", -2, 9)


def test_a_row_that_repeats_its_key() -> None:
    """Version 1 of an aggregation's state: the value has the key before it."""
    version = {"spark.sql.streaming.aggregation.stateFormatVersion": "1"}
    change = by_hand(
        (fields("k long"), fields("k long", "count long!"), "[k], [k, count(1) AS n]"),
        (
            fields("k long", "r string"),
            fields("k long", "r string", "count long!", "sum long"),
            "[k, r], [k, r, count(1) AS n, sum(a) AS s]",
        ),
        version,
        initial={"r": "eu", "s": "4"},
    )
    new_key, new_value = converted(
        change, bytes(8) + struct.pack("<q", 7), bytes(8) + struct.pack("<qq", 7, 2)
    )
    assert new_key == bytes(8) + struct.pack("<q", 7) + word(b"eu", 24) + b"eu\0\0\0\0\0\0"
    assert new_value == (
        bytes(8) + struct.pack("<q", 7) + word(b"eu", 40) + struct.pack("<qq", 2, 4) + b"eu\0\0\0\0\0\0"
    )


def test_a_key_that_is_called_like_what_is_kept_for_it() -> None:
    """A wider number has other bytes where it is less than nothing."""
    change = by_hand(
        (fields("count integer"), fields("count long!"), "[count], [count, count(1) AS n]"),
        (fields("count long"), fields("count long!"), "[count], [count, count(1) AS n]"),
    )
    assert [(each.column, each.change) for each in change.columns()] == [("count", "widened"), ("n", "kept")]
    assert not change.key_stays
    key, value = converted(change, bytes(8) + struct.pack("<ii", -3, 0), bytes(8) + struct.pack("<q", 2))
    assert (key, value) == (bytes(8) + struct.pack("<q", -3), bytes(8) + struct.pack("<q", 2))


def test_a_null_that_the_new_code_cannot_have() -> None:
    change = by_hand(
        (fields("k long"), fields("sum long"), "[k], [k, sum(a) AS s]"),
        (fields("k long"), fields("sum long!"), "[k], [k, sum(a) AS s]"),
    )
    with pytest.raises(Unsupported, match="a row has a null"):
        converted(change, bytes(8) + struct.pack("<q", 7), struct.pack("<qq", 1, 0))
    assert not change.rows_stay


def test_rows_that_are_put_together() -> None:
    decimal = json.loads(fields("sum long", "isEmpty boolean!", "count long!", "min string", "max long"))
    decimal["fields"][0]["type"] = "decimal(20,2)"
    text = "[k, r], [k, r, sum(d) AS s, count(1) AS n, min(t) AS t, max(a) AS m]"
    change = by_hand(
        (fields("k long", "r string"), json.dumps(decimal), text),
        (fields("k long"), json.dumps(decimal), text.replace(", r", "")),
    )
    family = change.old.shape.stores[0].families[0]
    codec = StateCodec(StateName(0, "default", "default"), ValueForm(rocksdb=False), family, KeyForm(), "sp")
    conversion = RowConversion(change, codec)
    encode = conversion._values.encode
    one = {"sum": Number("1.25"), "isEmpty": False, "count": 2, "min": "é", "max": None}
    other = {"sum": Number("0.50"), "isEmpty": True, "count": 3, "min": "z", "max": 4}
    key = bytes(8) + struct.pack("<q", 7)
    merged = conversion._values.decode(conversion.merged(key, encode(one), encode(other)))
    # Text goes by its bytes, and nothing is less than something.
    assert merged == {"sum": Number("1.75"), "isEmpty": False, "count": 5, "min": "z", "max": 4}
    lost = conversion.merged(key, encode({**one, "sum": None}), encode(other))
    assert conversion._values.decode(lost)["sum"] is None


def test_an_operator_without_changes_keeps_its_rows() -> None:
    code = (fields("k long"), fields("count long!"), "[k], [k, count(1) AS n]")
    assert by_hand(code, code).rows_stay
    more = (fields("k long"), fields("count long!", "sum long"), "[k], [k, count(1) AS n, sum(a) AS s]")
    assert not by_hand(code, more, initial={"s": "0"}).rows_stay


def test_rows_that_cannot_be_put_together_are_refused_with_the_aggregates() -> None:
    """A count can be merged exactly, a sum of doubles cannot: it depends on the order."""
    key, less = fields("k long", "r string"), fields("k long")
    text = "[k, r], [k, r, count(1) AS n, sum(d) AS total]"
    inexact = by_hand(
        (key, fields("count long!", "sum double"), text),
        (less, fields("count long!", "sum double"), text.replace(", r", "")),
    )
    error = refuse_merge(inexact, "sp", 2, "k 7")
    assert isinstance(error, Unsupported)
    assert error.found == (
        "2 rows with the key of another row after dropping r, such as k 7, and the aggregates total"
    )
    exact = by_hand(
        (key, fields("count long!"), "[k, r], [k, r, count(1) AS n]"),
        (less, fields("count long!"), "[k], [k, count(1) AS n]"),
    )
    error = refuse_merge(exact, "sp", 1, "k 7")
    assert isinstance(error, Invalid)
    assert error.found == "1 row with the key of another row after dropping r, such as k 7"
