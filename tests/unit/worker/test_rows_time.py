from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pytest
from passes import EVENTS, Passes, event

from holdfast.errors import Failed
from holdfast.worker.declarations.handler_arguments import Clock
from holdfast.worker.declarations.processor import Keyed
from holdfast.worker.declarations.state_descriptors import AgeFrom, State, StateKind, Ttl, add

LONG, DOUBLE, TEXT = pa.int64(), pa.float64(), pa.string()
SEEN = {"seen": TEXT}
A, B = ("a",), ("b",)
SHOWS: Final = "return_if_not_cleaned_up"
REFRESH: Final = "read_and_write"


def stepping(ttl: Ttl) -> type[Keyed]:
    """A processor whose states all have this TTL and which does what it is told."""

    class Steps(Keyed):
        value = State(StateKind.VALUE, LONG, default=0, ttl=ttl)
        total = State(StateKind.REDUCING, DOUBLE, function=add, ttl=ttl)
        basket = State(StateKind.LIST, TEXT, ttl=ttl)
        drinks = State(StateKind.MAP, LONG, key_type=TEXT, ttl=ttl)
        do: Callable[[Any], Any]

        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            return {"seen": repr(self.do(state))}

    return Steps


class Timeline:
    """One key, one step at each of several times; in event time it is the event's and the watermark's."""

    def __init__(self, ttl: Ttl) -> None:
        self.processor: Any = stepping(ttl)()
        self.event_time = ttl.clock == "event"
        self.passes = Passes(self.processor, SEEN)

    def at(self, ms: int, step: Callable[[Any], Any], event_ms: int | None = None) -> Any:
        self.processor.do = step
        now, watermark = (999_999, ms) if self.event_time else (ms, 0)
        found = self.passes.run(
            [event("a", ms=ms if event_ms is None else event_ms)], now=now, watermark=watermark
        )
        return eval(found[0]["seen"])  # what the step gave, written by repr

    @property
    def stamp(self) -> Any:
        return self.passes.memory.value(A, "t:value")


def put(state: Any) -> None:
    state.value = 5


def get(state: Any) -> Any:
    return state.value


CLOCKS = ["processing", "event"]


@pytest.mark.parametrize("clock", CLOCKS)
def test_vector_1_and_4(clock: Clock) -> None:
    line = Timeline(Ttl(10, clock=clock))
    line.at(0, put)
    assert line.at(9, get) == 5
    assert line.passes.columns == []
    assert line.at(10, get) == 0
    assert line.passes.memory.rows[A] == {}
    line.at(0, put)
    assert (line.at(9, get), line.at(18, get)) == (5, 0)


@pytest.mark.parametrize("clock", CLOCKS)
def test_vector_2(clock: Clock) -> None:
    line = Timeline(Ttl(10, clock=clock, visibility=SHOWS))
    line.at(0, put)
    assert (line.at(10, get), line.at(10, get)) == (5, 0)
    line.at(0, put)
    assert line.at(10, lambda s: (s.value, s.value)) == (5, 0)


@pytest.mark.parametrize("clock", CLOCKS)
def test_vector_3(clock: Clock) -> None:
    line = Timeline(Ttl(10, clock=clock, update=REFRESH))
    line.at(0, put)
    assert [line.at(9, get), line.stamp] == [5, 9]
    assert [line.at(18, get), line.stamp] == [5, 18]
    assert line.at(28, get) == 0


@pytest.mark.parametrize("clock", CLOCKS)
def test_vector_5(clock: Clock) -> None:
    line = Timeline(Ttl(10, clock=clock))
    line.at(0, lambda s: s.basket.append("a"))
    line.at(5, lambda s: s.basket.append("b"))
    assert line.at(12, lambda s: list(s.basket)) == ["b"]
    assert line.passes.memory.list_of(A, "basket") == ["a", "b"]
    assert line.at(15, lambda s: list(s.basket)) == []
    assert line.passes.memory.list_of(A, "basket") == []
    assert line.passes.memory.value(A, "n:basket") is None


def test_a_refreshing_read_of_a_list_drops_the_expired_and_stamps_the_rest() -> None:
    line = Timeline(Ttl(10, update=REFRESH))
    line.at(0, lambda s: s.basket.append("a"))
    line.at(5, lambda s: s.basket.append("b"))
    assert line.at(12, lambda s: (s.basket.append("c"), list(s.basket))[1]) == ["b", "c"]
    memory = line.passes.memory
    assert (memory.list_of(A, "basket"), memory.stamps(A, "basket")) == (["b", "c"], [12, 12])
    assert memory.slots(A, "basket") == [1, 2]


def test_setting_a_list_stamps_it_anew() -> None:
    line = Timeline(Ttl(10))
    line.at(0, lambda s: s.basket.extend(["a", "b"]))
    line.at(8, lambda s: s.basket.set(list(s.basket)))
    assert line.passes.memory.stamps(A, "basket") == [8, 8]
    assert line.at(17, lambda s: list(s.basket)) == ["a", "b"]


@pytest.mark.parametrize("clock", CLOCKS)
def test_vector_6(clock: Clock) -> None:
    line = Timeline(Ttl(10, clock=clock))
    line.at(0, lambda s: s.drinks.update(tea=1))
    line.at(5, lambda s: s.drinks.update(milk=2))
    assert line.at(9, lambda s: (dict(s.drinks), len(s.drinks))) == ({"tea": 1, "milk": 2}, 2)
    assert line.at(12, lambda s: (s.drinks.get("tea"), "tea" in s.drinks, dict(s.drinks))) == (
        None,
        False,
        {"milk": 2},
    )
    assert line.passes.memory.map_of(A, "drinks") == {"milk": 2}
    assert line.at(15, lambda s: (len(s.drinks), bool(s.drinks), list(s.drinks.items()))) == (0, False, [])
    assert line.passes.memory.value(A, "n:drinks") is None


def test_reads_of_map_entries_keep_only_these_alive() -> None:
    line = Timeline(Ttl(10, update=REFRESH))
    line.at(0, lambda s: s.drinks.update(tea=1, milk=2))
    line.at(9, lambda s: s.drinks["tea"])
    assert line.passes.memory.stamps(A, "drinks") == [9, 0]
    assert line.at(18, lambda s: dict(s.drinks)) == {"tea": 1}


def test_an_expired_map_entry_may_be_given_once() -> None:
    line = Timeline(Ttl(10, visibility=SHOWS))
    line.at(0, lambda s: s.drinks.update(tea=1, milk=2))
    assert line.at(10, lambda s: (list(s.drinks), "tea" in s.drinks, dict(s.drinks))) == ([], False, {})
    assert line.at(10, lambda s: (s.drinks.get("tea"), s.drinks.get("tea"))) == (1, None)
    assert line.at(10, lambda s: (list(s.drinks.items()), list(s.drinks.items()))) == ([("milk", 2)], [])


def test_an_expired_entry_is_not_popped() -> None:
    line = Timeline(Ttl(10))
    line.at(0, lambda s: s.drinks.update(tea=1, milk=2))
    assert line.at(10, lambda s: s.drinks.pop("tea", "none")) == "none"
    line.at(10, lambda s: s.drinks.update(milk=7))
    assert line.at(19, lambda s: s.drinks.pop("milk")) == 7


def test_vector_7() -> None:
    line = Timeline(Ttl(2**63 - 1))
    line.at(1_700_000_000_000, put)
    assert line.at(4_000_000_000_000, get) == 5


# The state was written before it had a TTL, so it has no stamp.
@pytest.mark.parametrize(("age_from", "last"), [("restore", 109), (95, 104)])
def test_vector_8(age_from: AgeFrom, last: int) -> None:
    line = Timeline(Ttl(10, age_from=age_from))
    line.passes.memory.rows[A] = {"s:value": 5, "s:total": 1.0}
    assert line.at(100, lambda s: (s.value, s.total.get())) == (5, 1.0)
    assert line.stamp == last - 9
    assert line.at(last, get) == 5
    assert line.at(last + 1, lambda s: (s.value, s.total.get())) == (0, None)


def test_vector_9() -> None:
    class Forever(Keyed):
        value = State(StateKind.VALUE, LONG, default=0)

        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            return {"seen": repr(state.value)}

    line = Timeline(Ttl(10))
    line.at(0, put)
    passes = Passes(Forever(), SEEN)
    passes.memory.rows[A] = line.passes.memory.rows[A]
    assert passes.run([event("a")], now=1_000) == [{"seen": "5"}]


def test_a_reducing_state_starts_again_when_it_has_expired() -> None:
    line = Timeline(Ttl(10))

    def take(amount: float) -> Callable[[Any], Any]:
        return lambda s: (s.total.add(amount), s.total.get())[1]

    assert [line.at(0, take(1)), line.at(9, take(2)), line.at(18, take(4)), line.at(28, take(8))] == [
        1,
        3,
        7,
        8,
    ]
    assert line.at(38, lambda s: s.total.get()) is None
    assert line.passes.memory.value(A, "s:total") is None


def test_event_time_stamps_by_the_event_and_never_goes_back() -> None:
    line = Timeline(Ttl(10, clock="event"))
    line.at(0, put, event_ms=20)
    assert line.stamp == 20
    line.at(5, put, event_ms=12)
    assert line.stamp == 20
    assert line.at(29, get, event_ms=50) == 5
    assert line.at(30, get, event_ms=50) == 0


def test_an_event_without_a_time_stamps_by_the_watermark() -> None:
    class Puts(stepping(Ttl(10, clock="event"))):  # type: ignore[misc]
        do = staticmethod(put)

    passes = Passes(Puts(), SEEN)
    passes.run([event("a", ms=None)], watermark=7)
    assert passes.memory.value(A, "t:value") == 7
    untimed = Passes(Puts(), SEEN, time=None)
    untimed.run([event("a", ms=500)], watermark=8)
    assert untimed.memory.value(A, "t:value") == 8


class Alarm(Keyed):
    """Sets the timer that an event asks for, and tells what fires."""

    last = State(StateKind.VALUE, LONG, ttl=Ttl(1_000, clock="event"))

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[Any]:
        ctx.timer(int(event.amount), name="x")
        yield {"seen": f"event {event.user}"}

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[Any]:
        state.last = timer.at_ms
        yield {"seen": f"{timer.name}@{timer.at_ms} {timer.clock} {ctx.key.user}"}


def texts(found: list[dict[str, Any]]) -> list[str]:
    return [row["seen"] for row in found]


def test_a_timer_fires_once_when_the_watermark_reaches_it() -> None:
    passes = Passes(Alarm(), SEEN)
    assert texts(passes.run([event("a", 100)], watermark=0)) == ["event a"]
    assert passes.memory.rows[A] == {"timers": "e100 x", "due:event": 100}
    assert texts(passes.run([], watermark=99, touch=[A])) == []
    assert texts(passes.run([], watermark=100, touch=[A])) == ["x@100 event a"]
    assert passes.memory.rows[A] == {"s:last": 100, "t:last": 100}
    assert texts(passes.run([], watermark=200, touch=[A])) == []


def test_due_timers_come_before_the_events_of_their_key_and_new_ones_after() -> None:
    passes = Passes(Alarm(), SEEN)
    passes.run([event("a", 100), event("b", 500)])
    found = passes.run([event("a", 90), event("b", 600)], watermark=100)
    assert texts(found) == ["x@100 event a", "event a", "x@90 event a", "event b"]
    assert passes.memory.rows[B]["due:event"] == 600


class Program(Keyed):
    """Timers set by a script."""

    def __init__(self, start: Callable[[Any], None], fired: Callable[[Any, Any], None] | None = None) -> None:
        self.start = start
        self.fired = fired

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        self.start(ctx)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Any:
        if self.fired is not None:
            self.fired(timer, ctx)
        return {"seen": f"{timer.name}@{timer.at_ms}{timer.clock[0]}"}


def fire(program: Program, watermark: int = 100, now: int = 100, **more: Any) -> list[str]:
    passes = Passes(program, SEEN, **more)
    return texts(passes.run([event("a")], watermark=watermark, now=now))


def test_timers_of_both_clocks_fire_in_one_order() -> None:
    def start(ctx: Any) -> None:
        ctx.timer(50, name="z", clock="processing")
        ctx.timer(50, name="y")
        ctx.timer(10, name="b", clock="processing")
        ctx.timer(50, name="c")
        ctx.timer(101)
        ctx.timer(101, clock="processing")

    assert fire(Program(start)) == ["b@10p", "c@50e", "y@50e", "z@50p"]


def test_timers_set_while_firing_fire_in_time_order() -> None:
    def fired(timer: Any, ctx: Any) -> None:
        if timer.name == "first":
            ctx.timer(20, name="between")
            ctx.timer(5, name="past")
            ctx.timer(500, name="later")

    def start(ctx: Any) -> None:
        ctx.timer(10, name="first")
        ctx.timer(30, name="last")

    assert fire(Program(start, fired)) == ["first@10e", "past@5e", "between@20e", "last@30e"]


def test_a_timer_can_be_moved_and_cancelled_by_one_that_fires() -> None:
    def fired(timer: Any, ctx: Any) -> None:
        if timer.name == "first":
            ctx.cancel_timer("gone")
            ctx.timer(90, name="moved")

    def start(ctx: Any) -> None:
        for at, name in ((10, "first"), (20, "gone"), (30, "moved"), (40, "stays")):
            ctx.timer(at, name=name)

    assert fire(Program(start, fired)) == ["first@10e", "stays@40e", "moved@90e"]


def test_timers_are_listed_in_order() -> None:
    listed: list[Any] = []

    def start(ctx: Any) -> None:
        assert ctx.timers() == ()
        ctx.timer(300, name="b")
        ctx.timer(200)
        ctx.timer(300, name="a", clock="processing")
        ctx.cancel_timer("nothing")
        listed.extend((timer.name, timer.at_ms, timer.clock) for timer in ctx.timers())

    assert fire(Program(start)) == []
    assert listed == [("", 200, "event"), ("b", 300, "event"), ("a", 300, "processing")]


@pytest.mark.parametrize("moves", [1, 3])
def test_a_single_timer_stays_single_however_often_it_is_moved(moves: int) -> None:
    class Moves(Keyed):
        def on_event(self, event: Any, state: Any, ctx: Any) -> None:
            ctx.timer(event.ts, name="idle")

        def on_timer(self, timer: Any, state: Any, ctx: Any) -> None: ...

    passes = Passes(Moves(), SEEN)
    for round_ in range(2):
        passes.run([event("a", ms=1_000 * (round_ + 1) + at) for at in range(moves)])
        assert passes.memory.rows[A] == {
            "timers": f"e{1_000 * (round_ + 1) + moves - 1} idle",
            "due:event": 1_000 * (round_ + 1) + moves - 1,
        }


def test_another_timer_beside_a_stored_one_is_kept_with_it() -> None:
    class Two(Keyed):
        def on_event(self, event: Any, state: Any, ctx: Any) -> None:
            ctx.timer(700, name=event.user * int(event.amount))
            ctx.timer(900, name="n")

        def on_timer(self, timer: Any, state: Any, ctx: Any) -> None: ...

    passes = Passes(Two(), SEEN)
    passes.run([event("a", 1)])
    passes.run([event("a", 2)])
    assert passes.memory.rows[A] == {"timers": "e700 a|e700 aa|e900 n", "due:event": 700}


def test_without_a_watermark_timers_are_in_processing_time() -> None:
    assert fire(Program(lambda ctx: ctx.timer(100)), clock="processing") == ["@100p"]
    with pytest.raises(Failed, match="would never fire"):
        fire(Program(lambda ctx: ctx.timer(100, clock="event")), clock="processing")


def test_a_timer_without_a_handler_is_refused() -> None:
    class Deaf(Keyed):
        def on_event(self, event: Any, state: Any, ctx: Any) -> None:
            ctx.timer(5)

    with pytest.raises(Failed, match="Deaf cannot use timers, because it has no on_timer"):
        Passes(Deaf(), SEEN).run([event("a")])


def test_timers_without_end_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.worker.runtime.row_runner.MOST_FIRINGS", 50)
    with pytest.raises(Failed, match="fire endlessly"):
        fire(Program(lambda ctx: ctx.timer(5), lambda timer, ctx: ctx.timer(timer.at)))


def test_writes_in_on_timer_bear_the_timers_time() -> None:
    passes = Passes(Alarm(), SEEN, streams={"events": EVENTS})
    passes.run([event("a", 40, ms=900)], watermark=100)
    assert passes.memory.value(A, "t:last") == 40
