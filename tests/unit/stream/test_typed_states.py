"""The types that an editor sees in a handler, and mistakes that a class or an assignment shows at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf
from holdfast.errors import Invalid
from holdfast.testing import Harness

if TYPE_CHECKING:
    from typing_extensions import assert_type
else:

    def assert_type(value: Any, _: Any) -> Any:
        return value


class Visits(hf.Keyed):
    """Every kind of state, with the types that mypy checks in this file."""

    visits = hf.value(int, default=0)
    last = hf.value(str)
    anything = hf.value("struct<a: int>")
    drinks = hf.map(str, int)
    orders = hf.list(float)
    spend = hf.reducing(float, hf.add)

    def on_event(self, event: hf.Event, state: Visits, ctx: hf.Context) -> Iterator[dict[str, Any]]:
        assert_type(state.visits, int)
        assert_type(state.last, "str | None")
        assert_type(state.anything, Any)
        assert_type(state.drinks, "hf.MapState[str, int]")
        assert_type(state.orders, "hf.ListState[float]")
        assert_type(state.spend, "hf.ReducingState[float]")
        assert_type(state.spend.get(), "float | None")
        assert_type(ctx.now, datetime)
        assert_type(event.amount, Any)
        state.visits += 1
        state.last = event.drink
        state.drinks[event.drink] = state.drinks.get(event.drink, 0) + 1
        state.orders.append(event.amount)
        state.spend.add(event.amount)
        ctx.timer(event.ts, name="quiet")
        yield {"customer": event.customer, "visits": state.visits}

    def on_timer(self, timer: hf.Timer, state: Visits, ctx: hf.Context) -> dict[str, Any]:
        assert_type(timer.name, str)
        return {"customer": ctx.key.customer, "visits": state.visits}


def test_a_typed_processor_runs() -> None:
    now = datetime(2026, 3, 5, 9, tzinfo=timezone.utc)
    shop = Harness(
        Visits(),
        by="customer",
        events="customer string, drink string, amount double, ts timestamp",
        output="customer string, visits long",
        time="ts",
        now=now,
    )
    tea = {"customer": "ann", "drink": "tea", "amount": 2.5, "ts": now}
    assert shop.send(tea, tea) == [{"customer": "ann", "visits": 1}, {"customer": "ann", "visits": 2}]
    assert shop.state("ann")["drinks"] == {"tea": 2}


def test_the_class_still_gives_the_declaration() -> None:
    assert isinstance(Visits.visits, hf.State)
    assert Visits.visits.name == "visits"
    declared: object = Visits().visits
    assert declared is Visits.visits


def test_a_state_that_is_assigned_on_the_processor_is_refused() -> None:
    processor = Visits()
    with pytest.raises(Invalid, match="changed on the processor") as caught:
        processor.visits = 3
    assert caught.value.hint == "change state.visits, where state is the argument of the handler"
    with pytest.raises(Invalid, match="changed on the processor"):
        del processor.visits


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_evnt", "on_event"),
        ("on_eevnt", "on_event"),
        ("on_evvent", "on_event"),
        ("on_tmier", "on_timer"),
        ("on_statr", "on_start"),
    ],
)
def test_a_misspelt_handler_is_refused_when_the_class_is_made(name: str, meant: str) -> None:
    with pytest.raises(Invalid, match=f"method {name} is named almost like the handler {meant}"):
        type("Wrong", (hf.Keyed,), {name: lambda self, event, state, ctx: None})


def test_a_misspelt_handler_of_a_table_is_refused() -> None:
    with pytest.raises(Invalid, match="on_bacth is named almost like the handler on_batch"):
        type("Wrong", (hf.KeyedTable,), {"on_bacth": lambda self, events, state: None})


@pytest.mark.parametrize(
    "name", ["on_events", "on_orders", "on_send", "on_order", "event", "on_keys", "on_timed"]
)
def test_names_of_streams_are_not_misspelt(name: str) -> None:
    type("Right", (hf.Keyed,), {name: lambda self, event, state, ctx: None})


def test_a_handler_of_the_base_class_is_not_one_of_the_processor() -> None:
    class Quiet(hf.Keyed):
        def on_event(self, event: hf.Event, state: Any, ctx: hf.Context) -> None:
            ctx.timer(event.ts)

    shop = Harness(Quiet(), by="k", events="k string, ts timestamp", output="k string", time="ts")
    with pytest.raises(Exception, match="no on_timer"):
        shop.send({"k": "a", "ts": datetime(2026, 3, 5, tzinfo=timezone.utc)})
