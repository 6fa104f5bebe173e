from __future__ import annotations

import json
from typing import Any

import pytest

import holdfast.stream.keyed.state_declarations as hf
from holdfast.errors import Invalid
from holdfast.stream.keyed.explain_keyed import explain, ttl_words
from holdfast.worker.declarations.processor import Keyed, KeyedTable
from holdfast.worker.declarations.state_descriptors import Ttl


class Regulars(Keyed):
    visits = hf.value("struct<n: int, last: timestamp>")
    drinks = hf.map_state("string", "long", ttl="30 days")
    log = hf.list_state("array<double>")
    spend = hf.reducing("decimal(12,2)", hf.add, ttl=hf.ttl("1h", update="read_and_write", clock="event"))
    odd = hf.reducing("long", lambda a, b: a ^ b)

    def on_event(self, event: Any, state: Any, ctx: Any) -> None: ...

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> None: ...


def test_bytes_are_those_of_the_columns() -> None:
    found = explain(Regulars(), key="customer string, shop int", text_bytes=10, elements=5, nested=2)
    sizes = {state.name: (state.bytes_per_key, state.exact) for state in found.states}
    assert sizes == {
        "visits": (4 + 8, True),
        # next slot, then for each entry hash, ordinal, slot, key with its offset, value, stamp
        "drinks": (8 + 5 * (8 + 4 + 8 + (4 + 10) + 8 + 8), False),
        "log": (8 + 5 * (8 + 4 + 8 + (4 + 2 * 8)), False),
        "spend": (16 + 8, True),
        "odd": (8, True),
    }
    # hash and ordinal, the two columns of the key, a timer
    assert found.key_bytes == 12 + 14 + 4 + 44
    assert found.bytes_per_key == found.key_bytes + 12 + 258 + 208 + 24 + 8


def test_it_says_what_is_kept_and_what_an_access_costs() -> None:
    text = str(explain(Regulars()))
    for words in (
        "on_event: for each event",
        "on_timer: for due timers",
        "struct<n: int, last: timestamp>",
        "string to long",
        "30d after the last write, in processing time",
        "1h after the last write or read, in event time",
        "log: an append writes one row and reads none",
        "odd: one cell of the key's row; an add calls the function once",
        "a read also writes a new timestamp",
        "10 elements per list or map state",
    ):
        assert words in text
    assert "timers: none" in str(explain(type("P", (Keyed,), {"on_event": Regulars.on_event})()))


def test_its_values_are_json() -> None:
    found = explain(Regulars())
    fields = json.loads(json.dumps(found.as_dict()))
    assert fields["handlers"] == dict(found.handlers)
    assert fields["bytes_per_key"] == found.bytes_per_key
    assert [state["name"] for state in fields["states"]] == ["visits", "drinks", "log", "spend", "odd"]
    assert fields["states"][1]["ttl"] == "30d after the last write, in processing time"


def test_connected_streams_are_read_from_the_handlers() -> None:
    def on_event(self: Any, event: Any, state: Any, ctx: Any) -> None: ...

    found = explain(type("P", (Keyed,), {"on_orders": on_event, "on_visits": on_event})())
    assert found.handlers == (
        ("on_orders", "for each event of the stream orders"),
        ("on_visits", "for each event of the stream visits"),
    )


def test_a_table_is_explained_too() -> None:
    table = type(
        "T", (KeyedTable,), {"on_batch": lambda _s, _e, _t: None, "combine": lambda _s, events: events}
    )
    found = explain(table())
    assert [name for name, _ in found.handlers] == ["on_batch", "combine"]
    assert "no states" in str(found)


def test_every_choice_of_a_ttl_is_said() -> None:
    assert ttl_words(None) == "kept for ever"
    given = Ttl(90_000, "create_and_write", "return_if_not_cleaned_up", "event", 5, "drop_expired")
    assert ttl_words(given) == (
        "1m 30s after the last write, in event time; an expired value may be returned one last time; "
        "values written before the TTL was declared count from 5 ms; "
        "expired values are dropped when the TTL is removed"
    )


@pytest.mark.parametrize("options", [{"text_bytes": -1}, {"elements": 1.5}, {"nested": True}, {"key": "x"}])
def test_wrong_options_and_classes_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        explain(Regulars(), **options)
    with pytest.raises(Invalid, match="is a class, not an instance"):
        explain(Regulars)
