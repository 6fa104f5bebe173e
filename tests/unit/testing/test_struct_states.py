"""States of structs: what is removed from them, and which field a value's parts get."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

import holdfast as hf
from holdfast.errors import Failed
from holdfast.testing import Harness
from holdfast.worker.runtime.columns import column_of
from holdfast.worker.runtime.runner_spec import Shares

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


PLACE = "struct<lat: double, lon: double>"
SWAPPED = "struct<lon: double, lat: double>"
NESTED = f"struct<at: {PLACE}, past: array<{PLACE}>, named: map<string, {PLACE}>>"
EVENT = f"k string, place {SWAPPED}, trip {NESTED.replace(PLACE, SWAPPED)}"
BERLIN = {"lon": 13.4, "lat": 52.5}
TRIP = {"at": BERLIN, "past": [BERLIN, None], "named": {"home": BERLIN}}
LonLat = namedtuple("LonLat", "lon lat")
LatHeight = namedtuple("LatHeight", "lat height")


class Latest(hf.Aggregate):
    def create(self) -> Any:
        return LonLat(lon=0.0, lat=0.0)

    def add(self, accumulator: Any, value: Any) -> Any:
        assert accumulator in ({"lat": 0.0, "lon": 0.0}, {"lat": 52.5, "lon": 13.4})
        return value


class Places(hf.Keyed):
    """Keeps a place in each kind of state."""

    held = hf.value(PLACE, default=LonLat(lon=2.0, lat=1.0))
    timed = hf.value(PLACE, ttl="1 day")
    many = hf.list(PLACE)
    named = hf.map("string", PLACE)
    last = hf.reducing(PLACE, lambda _, place: place)
    seen = hf.aggregating(PLACE, Latest())
    trip = hf.value(NESTED)

    def __init__(self, change: Any) -> None:
        self.change = change

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        assert (state.held.lat, state.held.lon) in {(1.0, 2.0), (52.5, 13.4)}
        place = self.change(event.place)
        state.held = state.timed = state.named["here"] = place
        state.many.append(place)
        state.last.add(place)
        state.seen.add(place)
        state.trip = event.trip
        assert (*state.held, *state.trip.past[0]) == (52.5, 13.4, 52.5, 13.4)
        return {"k": event.k, "place": place, "trip": event.trip}


def places(change: Any) -> Harness:
    return Harness(Places(change), by="k", events=EVENT, output=f"k string, place {PLACE}, trip {NESTED}")


@pytest.mark.parametrize(
    "change",
    [
        lambda place: place,
        lambda place: LonLat(*place),
        lambda place: Row(lon=place.lon, lat=place.lat),
        lambda place: {"lon": place.lon, "lat": place.lat},
        lambda place: (place.lat, place.lon),  # without names it is their order that counts
    ],
    ids=["event", "namedtuple", "row", "dict", "tuple"],
)
def test_the_parts_of_a_struct_are_taken_by_name(change: Any) -> None:
    harness = places(change)
    for _ in range(2):
        assert harness.send({"k": "a", "place": BERLIN, "trip": TRIP}) == [
            {"k": "a", "place": BERLIN, "trip": TRIP | {"named": [("home", BERLIN)]}}
        ]
    held = harness.state("a")
    at = (52.5, 13.4)
    assert (held["held"], held["timed"], held["named"], held["last"]) == (at, at, {"here": at}, at)
    assert held["many"] == [at, at]
    assert held["seen"] == at
    assert held["trip"] == (at, [at, None], {"home": at})


def test_a_tuple_with_other_names_is_refused() -> None:
    with pytest.raises(Failed, match="a tuple of lat, height does not match a struct of lat, lon"):
        places(lambda place: LatHeight(*place)).send({"k": "a", "place": BERLIN, "trip": TRIP})


class PlaceTable(hf.KeyedTable):
    held = hf.value(PLACE, default=LonLat(lon=2.0, lat=1.0))
    newest = hf.reducing(PLACE, lambda _, place: LonLat(place.lon, place.lat))
    many = hf.list(PLACE)

    def on_batch(self, events: Any, state: Any) -> pa.Table:
        before = state.held.get()
        state.held = [LonLat(**BERLIN)] * state.size
        state.newest.add(events.column("place"))
        state.many.append([LonLat(**BERLIN)] * len(events))
        return state.table(place=before)


def test_tables_of_state_take_the_parts_of_a_struct_by_name() -> None:
    harness = Harness(PlaceTable(), by="k", events=EVENT, output=f"k string, place {PLACE}")
    event = {"k": "a", "place": BERLIN, "trip": None}
    assert harness.send(event, event) == [{"k": "a", "place": {"lat": 1.0, "lon": 2.0}}]
    at = (52.5, 13.4)
    assert harness.state("a") == {"held": at, "newest": at, "many": [at, at]}
