"""States of structs: what is removed from them, and which field a value's parts get."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.testing import Harness
from holdfast.worker.runtime.arrow_columns import column_of
from holdfast.worker.runtime.features.instances import Shares

POINT = "struct<x: int NOT NULL>"


class Points(hf.Keyed):
    """Does to its states what the event says."""

    held = hf.value(POINT)
    many = hf.list(POINT)
    named = hf.map("string", POINT, ttl="10 ms")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        if event.op == "fill":
            state.held = {"x": 1}
            state.many.append({"x": 1})
            state.named["a"] = {"x": 1}
        elif event.op == "none":
            state.many.append(None)
        elif event.op == "empty":
            del state.held
            state.many.clear()
            state.named.clear()
        return {"k": event.k, "named": len(state.named)}


def points() -> Harness:
    harness = Harness(Points(), by="k", events="k string, op string", output="k string, named long")
    harness.send({"k": "a", "op": "fill"}, {"k": "b", "op": "fill"})
    return harness


def test_structs_with_parts_that_are_never_null_are_removed() -> None:
    harness = points()
    harness.send({"k": "a", "op": "empty"}, {"k": "b", "op": ""})
    assert harness.keys() == [("b",)]
    assert harness.state("b") == {"held": (1,), "many": [(1,)], "named": {"a": (1,)}}


def test_a_null_is_kept_beside_structs_with_parts_that_are_never_null() -> None:
    harness = points()
    harness.send({"k": "a", "op": "none"})
    assert harness.state("a")["many"] == [(1,), None]


def test_structs_with_parts_that_are_never_null_expire() -> None:
    harness = points()
    harness.set_clocks(now=100)
    assert harness.send({"k": "a", "op": ""}) == [{"k": "a", "named": 0}]
    assert harness.state("a")["named"] == {}
    assert harness.totals().entries["named"] == 1  # that of b, which nobody read


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("struct<p: struct<x: int NOT NULL>>", {"p": {"x": 1}}),
        ("struct<p: struct<x: int NOT NULL> NOT NULL>", {"p": {"x": 1}}),
        ("array<struct<x: int NOT NULL>>", [{"x": 1}, None]),
        ("map<string, struct<x: int NOT NULL>>", {"n": {"x": 1}, "m": None}),
    ],
)
def test_parts_of_parts_that_are_never_null_are_removed(kind: str, value: Any) -> None:
    class Nested(hf.Keyed):
        many = hf.list(kind)
        named = hf.map("string", kind)

        def on_event(self, event: Any, state: Any, ctx: Any) -> None:
            if event.fill:
                state.many.extend([value, value])
                state.named.update(a=value, b=value)
            else:
                state.many.set([*state.many[1:]])
                del state.named["a"]

    harness = Harness(Nested(), by="k", events="k string, fill boolean", output="k string")
    harness.send({"k": "a", "fill": True})
    harness.send({"k": "a", "fill": False})
    held = harness.state("a")
    assert (len(held["many"]), list(held["named"])) == (1, ["b"])


class PointTable(hf.KeyedTable):
    held = hf.value(POINT)
    many = hf.list(POINT)

    def on_fill(self, events: Any, state: Any) -> None:
        state.held = state.last("point")
        state.many.append(events.column("point"))

    def on_clear(self, events: Any, state: Any) -> None:
        state.clear()


def test_tables_of_state_clear_structs_with_parts_that_are_never_null() -> None:
    events = {"fill": "k string, point struct<x: int>", "clear": "k string"}
    harness = Harness(PointTable(), by="k", events=events, output="k string")
    harness.send_all({"fill": [{"k": "a", "point": {"x": 1}}, {"k": "b", "point": {"x": 2}}]})
    harness.send_all({"fill": [{"k": "b", "point": None}], "clear": [{"k": "a"}]})
    assert harness.keys() == [("b",)]
    assert harness.state("b") == {"held": None, "many": [(2,), None]}


def test_shares_of_structs_with_parts_that_are_never_null_are_sent_along(tmp_path: Path) -> None:
    point = pa.struct([pa.field("x", pa.int32(), nullable=False)])
    lists = column_of([[{"x": 1}, None], []], pa.list_(point))
    Shares(3, pa.table({"many": lists})).write(str(tmp_path / "shares"))
    read = Shares.read(str(tmp_path / "shares"))
    assert (read.before, read.of(0, "many"), read.of(1, "many")) == (3, [(1,), None], [])
