"""Keyed state read by key: against the harness that holds it, and out of a real checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from golden_model import MINUTE, events, taken
from instance_programs import EVENTS as NUMBERS
from instance_programs import OUTPUT as HELD
from instance_programs import Holds
from kept_state import Shop, groups_of, kept, timers_of

import holdfast as hf
from golden import KEYED, golden, golden_files
from holdfast.at_rest.keyed_operators import KeptState, keyed_operators
from holdfast.at_rest.keyed_reader import GroupsInMemory, KeyedStateReader, keyed_states
from holdfast.checkpoints.keyed import KeyGroup, KeyTimer, shared_rows
from holdfast.errors import Corrupt, Invalid, NotFound, Unsupported
from holdfast.formats.logs.notes import PlanNote, QueryPlan
from holdfast.storage.memory import MemoryStorage
from holdfast.worker.runtime.broadcast import Broadcast
from holdfast.worker.state import group_writes

EVENTS = "shop string, till int, amount long, drink string"
GOLDEN = KEYED[0]


class Till(hf.Keyed):
    """A state of each kind that a key can have."""

    visits = hf.value("long", default=0)
    spend = hf.reducing("long", hf.add)
    last = hf.value("struct<drink: string, amount: long>", ttl="1h")
    orders = hf.list("long")
    drinks = hf.map("string", "long", ttl="1h")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.visits += 1
        state.spend.add(event.amount)
        state.last = {"drink": event.drink, "amount": event.amount}
        state.orders.append(event.amount)
        state.drinks[event.drink] = state.drinks.get(event.drink, 0) + 1
        ctx.timer(10_000_000 + event.amount, name="nudge", clock="processing")
        return iter(())

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        return iter(())


def till(**more: Any) -> Shop:
    return Shop(Till(), by=["shop", "till"], events=EVENTS, output="said string", now=1_000, **more)


def order(number: int) -> dict[str, Any]:
    drink = ("tea", "latte", "mocha")[number % 3]
    return {"shop": f"s{number % 5}", "till": number % 2, "amount": number, "drink": drink}


@pytest.fixture
def shop() -> Shop:
    made = till()
    for batch in range(6):
        made.set_clocks(now=1_000 + batch)
        made.send(*(order(batch * 7 + each) for each in range(9)))
    return made


def test_every_key_is_found_by_its_hash_with_all_it_has(shop: Shop) -> None:
    state = kept(shop)
    rows = {row.key: row for row in state.rows()}
    assert sorted(rows) == sorted(shop.keys())
    for key, row in rows.items():
        told = shop.state(*key)
        assert row.values == {**told, "last": {"drink": told["last"].drink, "amount": told["last"].amount}}
        assert [each.at_ms for each in row.timers] == [each.at_ms for each in shop.timers(*key)]
        assert state.get(key) == state.get({"shop": key[0], "till": key[1]}) == row
        assert state.group_of(key) == row.group
        # A struct is stamped once, a map entry by entry.
        assert set(row.stamps) == {"last", "drinks"}
        assert set(row.stamps["drinks"]) == set(row.values["drinks"])
    assert state.get(("s9", 0)) is None


def test_states_come_as_tables(shop: Shop) -> None:
    state = kept(shop)
    rows = list(state.rows())
    visits = pa.concat_tables(state.scan("visits"))
    assert visits.schema == pa.schema([("shop", pa.string()), ("till", pa.int32()), ("value", pa.int64())])
    assert sorted(map(tuple, (each.values() for each in visits.to_pylist()))) == sorted(
        (*row.key, row.values["visits"]) for row in rows
    )
    orders = pa.concat_tables(state.scan("orders")).to_pylist()
    assert [(each["shop"], each["till"], each["value"]) for each in orders] == [
        (*row.key, value) for row in rows for value in row.values["orders"]
    ]
    drinks = pa.concat_tables(state.scan("drinks", sizes=True))
    assert drinks.column_names == ["shop", "till", "map_key", "value", "stamp_ms", "size_bytes"]
    first = drinks.to_pylist()[0]
    assert first["size_bytes"] == len(first["shop"]) + 4 + len(first["map_key"]) + 8
    assert {(each["map_key"], each["stamp_ms"]) for each in drinks.to_pylist()} == {
        (entry, stamp) for row in rows for entry, stamp in row.stamps["drinks"].items()
    }
    timers = timers_of(state)
    assert timers.column_names == ["shop", "till", "name", "clock", "at_ms"]
    assert sorted(timers.column("at_ms").to_pylist()) == sorted(row.timers[0].at_ms for row in rows)


def test_ages_are_those_of_states_with_a_time_to_live(shop: Shop) -> None:
    state = kept(shop)
    last = pa.concat_tables(state.ages("last"))
    assert last.column_names == ["shop", "till", "stamp_ms", "size_bytes"]
    assert sorted(last.column("stamp_ms").to_pylist()) == sorted(row.stamps["last"] for row in state.rows())
    assert set(pa.concat_tables(state.ages("visits")).column("stamp_ms").to_pylist()) == {None}


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (("s1",), "one value for each key column"),
        ("s1", "one value for each key column"),
        ({"shop": "s1"}, "one value for each key column"),
        (("s1", "one"), "does not have the type"),
        ((1, 1), "does not have the type"),
        (("s1", 1 << 40), "does not have the type"),
    ],
)
def test_a_key_that_is_none(shop: Shop, key: Any, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        kept(shop).get(key)


def test_a_state_that_is_not_there(shop: Shop) -> None:
    with pytest.raises(NotFound, match="no state with this name") as caught:
        next(kept(shop).scan("visit"))
    assert caught.value.expected == "visits, spend, last, orders, drinks"


def test_a_key_column_with_the_name_of_a_column_beside_it() -> None:
    made = Shop(Count(), by="value", events="value string", output="said string")
    made.send({"value": "a"})
    assert kept(made).get("a") is not None
    with pytest.raises(Invalid, match="a key column has a reserved name"):
        next(kept(made).scan("n"))


class Count(hf.Keyed):
    n = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.n += 1
        return iter(())


def test_numbers_that_are_one_key() -> None:
    made = Shop(Count(), by="x", events="x double", output="said string")
    made.send(*({"x": x} for x in (0.0, -0.0, math.nan, -math.nan, 1.5, None)))
    state = kept(made)
    for key, times in ((-0.0, 2), (math.nan, 2), (1.5, 1), (None, 1)):
        found = state.get(key)
        assert found is not None
        assert found.values == {"n": times}


@pytest.mark.parametrize("key_groups", [1, 5, 8])
@pytest.mark.parametrize("placed", [True, None])
def test_keys_that_a_function_has_placed(key_groups: int, placed: bool | None) -> None:
    made = Shop(
        Count(),
        by="who",
        events="who string",
        output="said string",
        key_groups=key_groups,
        placement=lambda who: len(who or "") % key_groups,
    )
    names = ["a", "bb", "ccc", "dddd", ""]
    made.send(*({"who": name} for name in names))
    state = kept(made, placed=placed)
    assert sorted(row.key[0] for row in state.rows()) == sorted(names)
    for name in names:
        found = state.get(name)
        assert found is not None
        assert found.group == len(name) % key_groups
    assert state.get("zz") is None


def test_instances_of_an_operator_are_keys() -> None:
    made = Shop(Holds(), events=NUMBERS, output=HELD, instances=3)
    made.send(*({"n": n, "ts": None} for n in range(7)))
    state = kept(made, instances=True)
    for instance in range(3):
        found = state.get(instance)
        assert found is not None
        assert found.values["items"] == [n for n in range(7) if n % 3 == instance]
        assert found.group == instance
    assert [each.name for each in state.operator.states] == ["items", "seen"]


RULES = Broadcast("rules", pa.schema([("rule", pa.string()), ("least", pa.int64())]), ("rule",), None, None)


class Alerts(hf.Keyed):
    seen = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.seen += 1
        yield (",".join(f"{name}{rule.least}" for name, rule in sorted(ctx.broadcast.items())),)


def test_rows_of_a_broadcast_stream_are_no_key() -> None:
    made = Shop(Alerts(), by="who", events="who string", output="said string", broadcast=RULES)
    made.send_all(
        {"event": [{"who": "ann"}], "rules": [{"rule": "a", "least": 1}, {"rule": "b", "least": 2}]}
    )
    state = kept(made)
    assert [
        (each.key, each.value["row"]) for each in shared_rows(next(state.source.groups()), state.where)
    ] == [
        ({"rule": "a"}, {"rule": "a", "least": 1}),
        ({"rule": "b"}, {"rule": "b", "least": 2}),
    ]
    assert [row.key for row in state.rows()] == [("ann",)]
    with pytest.raises(Invalid, match="cannot be read or changed by key"):
        next(state.scan("rules"))


class Wider(hf.Keyed):
    """`Count` with another state and a wider one."""

    n = hf.value("double", default=0.0)
    last = hf.value("string")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.n += 1
        state.last = event.who
        return iter(())


class Narrow(Count):
    n = hf.value("int", default=0)


class Other(hf.Keyed):
    m = hf.value("long", default=0, was="n")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.m += 1
        return iter(())


def test_rows_of_several_versions_of_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    # No group is folded, as in a batch that has too many others to fold.
    monkeypatch.setattr(group_writes, "chosen", lambda *_: set())
    made = Shop(Narrow(), by="who", events="who string", output="said string", key_groups=1)
    made.send({"who": "ann"}, {"who": "bob"})
    made.restart(Wider())
    made.send({"who": "bob"})
    state = kept(made)
    assert groups_of(made.inspect.store)[0].record("here").mixed
    assert {row.key[0]: dict(row.values) for row in state.rows()} == {
        "ann": {"n": 1},
        "bob": {"n": 2.0, "last": "bob"},
    }
    scanned = pa.concat_tables(state.scan("n"))
    assert scanned.schema.field("value").type == pa.float64()
    assert sorted(map(tuple, (each.values() for each in scanned.to_pylist()))) == [("ann", 1.0), ("bob", 2.0)]


def test_rows_of_a_type_that_only_the_program_reads() -> None:
    made = Shop(Dated(), by="who", events="who string", output="said string", key_groups=1)
    made.send({"who": "ann"})
    state = kept(made)
    kind = pa.struct([("x", pa.int64())])
    today = replace(state.operator, states=(KeptState("at", "value", kind),))
    with pytest.raises(Unsupported, match="earlier type"):
        list(KeyedStateReader(today, state.source).scan("at"))


class Dated(hf.Keyed):
    at = hf.value("array<long>")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.at = [1]
        return iter(())


def test_a_group_that_is_damaged(shop: Shop) -> None:
    groups = groups_of(shop.inspect.store)
    first = groups[0]
    cut = KeyGroup(first.group, first.meta, first.forms, first.base, (first.log[0][:-30], *first.log[1:]))
    with pytest.raises(Corrupt, match=r"key group \d+ cannot be read"):
        list(KeyedStateReader(kept(shop).operator, GroupsInMemory([cut])).rows())
    formless = KeyGroup(first.group, first.meta, b"{}", first.base, first.log)
    with pytest.raises(Corrupt, match=r"key group \d+ cannot be read"):
        list(KeyedStateReader(kept(shop).operator, GroupsInMemory([formless])).rows())


# A real checkpoint, of a query that was started without Holdfast


def expected(name: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    watermark = None
    for file in taken(golden_files(name)):
        batch = events(file)
        for event in batch:
            if watermark is None or event.ts > watermark:
                key = found.setdefault(event.customer, {"visits": 0, "spend": 0})
                key["visits"] += 1
                key["spend"] += event.amount
        latest = max(event.ts for event in batch)
        watermark = latest - MINUTE if watermark is None else max(watermark, latest - MINUTE)
    return found


@pytest.mark.parametrize("name", KEYED)
def test_a_real_checkpoint_without_notes(name: str) -> None:
    [state] = keyed_states(golden(name))
    operator = state.operator
    assert (operator.name, operator.key_groups, operator.placed) == ("operator-0", 4, None)
    assert [(each.name, each.kind) for each in operator.states] == [
        ("visits", "value"),
        ("spend", "reducing"),
    ]
    assert operator.keys == pa.schema([("key", pa.string())])
    assert {row.key[0]: dict(row.values) for row in state.rows()} == expected(name)
    for who, values in expected(name).items():
        found = state.get(who)
        assert found is not None
        assert found.values == values
    assert state.get("nobody") is None
    assert operator.states[0].type == pa.int64()


def note(form: Any, **more: Any) -> bytes:
    mark = form.fingerprint.hex()
    fields = {"key_groups": 4, "current": mark, "forms": {mark: form.as_json()}, **more}
    return json.dumps(fields).encode()


def with_notes(**notes: bytes) -> MemoryStorage:
    files = {f"_holdfast/operator-{name}.json": data for name, data in notes.items()}
    return MemoryStorage({**golden_files(GOLDEN), **files}, uri="memory://noted")


def test_what_an_operator_has_noted() -> None:
    form = keyed_operators(golden(GOLDEN))[0].form
    noted = with_notes(visits=note(form, keys=["customer"], placed=False), totals=b'{"what": 1}')
    (state,) = keyed_states(noted)
    assert state.operator.name == "visits"
    assert (state.operator.keys.names, state.operator.placed) == (["customer"], False)
    assert state.operator.note_path == "_holdfast/operator-visits.json"
    assert state.get({"customer": "c1"}) is not None
    # As operators noted it before they noted their keys.
    (older,) = keyed_operators(with_notes(visits=note(form)))
    assert (older.keys.names, older.placed) == (["key"], None)


def test_notes_that_do_not_say_whose_they_are() -> None:
    form = keyed_operators(golden(GOLDEN))[0].form
    two = {"visits": note(form), "orders": note(form)}
    assert [each.name for each in keyed_operators(with_notes(**two))] == ["operator-0"]
    other = {"visits": note(form), "orders": note(form, key_groups=9)}
    assert [each.name for each in keyed_operators(with_notes(**other))] == ["visits"]
    plan = QueryPlan(sources=(), steps=(), operators=("orders",))
    storage = with_notes(**two)
    storage.write("_holdfast/plan.json", PlanNote(((0, plan),)).render().encode())
    assert [each.name for each in keyed_operators(storage)] == ["orders"]


def test_a_note_that_is_damaged() -> None:
    with pytest.raises(Corrupt, match="the description of an operator"):
        keyed_operators(with_notes(visits=b"{"))


def test_a_checkpoint_without_keyed_operators() -> None:
    assert keyed_states(golden("4.2/aggregate-format2")) == ()
    assert keyed_operators(golden("4.2/aggregate-format2")) == ()


def test_timers_are_told_apart_by_name_and_clock(shop: Shop) -> None:
    row = next(iter(kept(shop).rows()))
    assert isinstance(row.timers[0], KeyTimer)
    assert (row.timers[0].name, row.timers[0].clock) == ("nudge", "processing")
