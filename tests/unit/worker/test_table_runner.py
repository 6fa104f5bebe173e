from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from passes import EVENTS, INSTANT, KEYS, Passes, event

from holdfast.errors import Failed, Invalid
from holdfast.worker.declarations.handler_arguments import Clock
from holdfast.worker.declarations.processor import KeyedTable, definition_of
from holdfast.worker.declarations.state_descriptors import (
    AgeFrom,
    Aggregate,
    State,
    StateKind,
    Ttl,
    add,
    greatest,
    least,
)
from holdfast.worker.runtime.runner_spec import RunnerSpec
from holdfast.worker.runtime.table_runner import TableRunner

LONG, DOUBLE, TEXT = pa.int64(), pa.float64(), pa.string()
OUT = {"user": TEXT, "visits": LONG, "spend": DOUBLE}
A, B, C = ("a",), ("b",), ("c",)
SHOWS: Final = "return_if_not_cleaned_up"
REFRESH: Final = "read_and_write"


class Totals(KeyedTable):
    visits = State(StateKind.VALUE, LONG, default=0)
    spend = State(StateKind.REDUCING, DOUBLE, function=add)

    def on_batch(self, events: pa.Table, state: Any) -> Any:
        state.visits += state.counts()
        state.spend.add(events["amount"])
        return state.table(visits=state.visits, spend=state.spend)


def tables(processor: Any, output: dict[str, pa.DataType] | None = None, **more: Any) -> Passes:
    return Passes(processor, OUT if output is None else output, table=True, **more)


def test_a_count_and_a_sum() -> None:
    passes = tables(Totals())
    found = passes.run([event("b", 1.5), event("a", 4), event("b", 2)])
    assert [tuple(row.values()) for row in found] == [("b", 2, 3.5), ("a", 1, 4.0)]
    found = passes.run([event("a", 1), event("c", 1)])
    assert [tuple(row.values()) for row in found] == [("a", 2, 5.0), ("c", 1, 1.0)]
    assert passes.memory.rows == {
        A: {"s:visits": 2, "s:spend": 5.0},
        B: {"s:visits": 2, "s:spend": 3.5},
        C: {"s:visits": 1, "s:spend": 1.0},
    }


def test_only_keys_with_events_are_seen() -> None:
    passes = tables(Totals())
    found = passes.run([event("b", 1)], touch=[A, C])
    assert [row["user"] for row in found] == ["b"]
    assert {key for key, row in passes.memory.rows.items() if row} == {B}
    assert passes.run([], touch=[A]) == []


class Step(KeyedTable):
    """States of every kind, and a function that is called with events and state."""

    n = State(StateKind.VALUE, LONG, default=7)
    unset = State(StateKind.VALUE, LONG)
    name = State(StateKind.VALUE, TEXT)
    total = State(StateKind.REDUCING, LONG, function=add)
    basket = State(StateKind.LIST, TEXT)
    drinks = State(StateKind.MAP, LONG, key_type=TEXT)

    def __init__(self, do: Callable[[pa.Table, Any], Any]) -> None:
        self.do = do

    def on_batch(self, events: pa.Table, state: Any) -> None:
        self.result = self.do(events, state)


ABA = [event("a", 1, ms=10), event("b", 2, ms=20), event("a", 3, ms=5)]


def step(do: Callable[[pa.Table, Any], Any], after: Passes | None = None, **more: Any) -> tuple[Any, Passes]:
    """What a function gave for two events of a and one of b, over the state that another left."""
    processor = Step(do)
    passes = tables(processor, {})
    if after is not None:
        passes.memory = after.memory
    passes.run(ABA, **more)
    return processor.result, passes


def test_a_call_knows_keys_and_positions() -> None:
    found, _ = step(
        lambda _, s: (s.size, s.keys.to_pydict(), s.position.tolist(), s.now_ms, s.watermark_ms),
        now=5,
        watermark=3,
    )
    assert found == (2, {"user": ["a", "b"]}, [0, 1, 0], 5, 3)


def test_values_with_a_default_are_numpy() -> None:
    _, passes = step(lambda _, s: s.n.set(np.array([1, 2]), where=np.array([True, False])))
    found, _ = step(lambda _, s: (s.n.get(), s.n + 1, 2 * s.n, np.asarray(s.n), s["n"].get()), passes)
    assert [each.tolist() for each in found] == [[1, 7], [2, 8], [2, 14], [1, 7], [1, 7]]
    assert passes.memory.rows == {A: {"s:n": 1}, B: {}}


def test_values_without_a_default_are_arrow() -> None:
    def first(_: Any, state: Any) -> Any:
        before = state.unset.get(), state.name.get()
        state.unset = [3, None]
        state.name = pa.array([None, "x"])
        return [each.to_pylist() for each in before]

    found, passes = step(first)
    assert found == [[None, None], [None, None]]
    found, _ = step(lambda _, s: (s.unset.get(), s.name.get(), s.unset.get(default=0)), passes)
    assert (found[0].to_pylist(), found[1].to_pylist(), found[2].tolist()) == ([3, None], [None, "x"], [3, 0])


def test_clearing_takes_a_mask() -> None:
    _, passes = step(lambda _, s: s.n.set(5))
    _, passes = step(lambda _, s: s.n.clear(np.array([False, True])), passes)
    assert passes.memory.rows == {A: {"s:n": 5}, B: {}}
    _, passes = step(lambda _, s: s.clear(), passes)
    assert passes.memory.rows[A] == {}


@pytest.mark.parametrize(
    ("do", "message"),
    [
        (lambda _, s: s.n.set([1]), "the wrong length"),
        (lambda _, s: s.n.set([1, None]), "a state with a default cannot be set to null"),
        (lambda _, s: s.n.set([1.5, 2.0]), "does not match the declared type"),
        (lambda _, s: s.n.set(np.array([1.5, 2.0])), "truncated"),
        (lambda _, s: s.n.set(pa.array(["1", "2"])), "the wrong type"),
        (lambda _, s: s.n.set([1, 2], where=[1, 0]), "the mask has the wrong type"),
        (lambda _, s: s.total.add([1, None, 2]), "value to add is null"),
        (lambda _, s: s.total.add([1, 2]), "the wrong length"),
        (lambda _, s: s.drinks.put(["x", None, "y"], [1, 2, 3]), "a key to put into a map is null"),
        (lambda _, s: setattr(s, "total", [1, 2]), "state.total cannot be assigned"),
        (lambda _, s: s.nn, "unknown state 'nn'; expected n, unset"),
        (lambda _, s: s.sums("nothing"), "unknown column"),
        (lambda _, s: s.sums("user"), "values are not numeric"),
        (lambda _, s: s.timer(5), "has no on_timers"),
        (lambda _, s: s.table(more=[1]), "the wrong length"),
    ],
)
def test_mistakes_are_named_with_their_line(do: Any, message: str) -> None:
    with pytest.raises(Failed, match=message) as failed:
        step(do)
    assert str(failed.value.where).startswith("operator regulars, stream events, batch 1, at ")
    assert f"{Path(__file__)}:" in str(failed.value.where)


# What one value after the other gives, by hand.
@pytest.mark.parametrize(
    ("function", "kind", "before", "values", "expected"),
    [
        (add, LONG, None, [1, 2, 3], [4, 2]),
        (add, LONG, [10, None], [1, 2, 3], [14, 2]),
        (add, DOUBLE, [0.1, None], [0.2, 0.3, 0.4], [(0.1 + 0.2) + 0.4, 0.3]),
        (least, DOUBLE, [2.0, None], [float("nan"), 5.0, 3.0], [2.0, 5.0]),
        (greatest, DOUBLE, [2.0, None], [1.0, 5.0, 3.0], [3.0, 5.0]),
        (min, LONG, [2, 1], [3, 4, 1], [1, 1]),
        (max, pa.int8(), None, [-3, -4, -5], [-3, -4]),
        (lambda a, b: a * 10 + b, LONG, [1, None], [2, 3, 4], [124, 3]),
        (lambda a, b: a + b, TEXT, ["x", None], ["p", "q", "r"], ["xpr", "q"]),
    ],
)
def test_reducing(function: Any, kind: pa.DataType, before: Any, values: Any, expected: Any) -> None:
    class Reduces(KeyedTable):
        total = State(StateKind.REDUCING, kind, function=function)

        def on_batch(self, events: pa.Table, state: Any) -> Any:
            state.total.add(pa.array(values, kind))
            return state.table(total=state.total.get())

    passes = tables(Reduces(), {"user": TEXT, "total": kind})
    for key, value in zip((A, B), before or [], strict=False):
        passes.memory.rows[key] = {} if value is None else {"s:total": value}
    assert [row["total"] for row in passes.run(ABA)] == expected
    assert passes.columns == ["s:total"]


def test_sums_beyond_64_bits_are_refused_not_wrapped() -> None:
    def twice(_: Any, state: Any) -> None:
        state.total.add(np.array([2**62, 0, 2**62]))

    with pytest.raises(Failed, match="does not match the declared type"):
        step(twice)
    with pytest.raises(Failed, match="may overflow 64 bits"):
        step(lambda _, s: s.sums(np.array([2**62, 0, 2**62])))
    found, _ = step(lambda _, s: (s.total.add(np.array([2**62, 0, 2**62 - 1])), s.total.get().to_pylist())[1])
    assert found == [2**63 - 1, 0]


def test_only_values_under_the_mask_count() -> None:
    def masked(events: pa.Table, state: Any) -> Any:
        state.total.add([1, None, 3], where=np.array([True, False, False]))
        return state.total.get().to_pylist(), state.total.get(default=0).tolist()

    found, passes = step(masked)
    assert found == ([1, None], [1, 0])
    assert passes.memory.rows == {A: {"s:total": 1}, B: {}}


def test_helpers_look_at_the_batch_alone() -> None:
    def look(events: pa.Table, state: Any) -> Any:
        found = [state.counts(), state.sums("amount"), state.first("amount"), state.last("amount")]
        found += [state.min("amount"), state.max("amount"), state.sums(np.array([1, 2, 3]))]
        texts = (
            state.first(pa.array(["p", "q", "r"])),
            state.last(pa.array(["p", "q", None])),
            state.max("ts"),
        )
        return [each.tolist() for each in found], [each.to_pylist() for each in texts]

    (numbers, others), _ = step(look)
    assert numbers == [[2, 1], [4.0, 2.0], [1.0, 2.0], [3.0, 2.0], [1.0, 2.0], [3.0, 2.0], [4, 2]]
    assert others[:2] == [["p", "q"], [None, "q"]]
    assert [at.microsecond for at in others[2]] == [10_000, 20_000]


def test_helpers_skip_nulls_and_ask_for_a_default_where_there_is_nothing() -> None:
    holes = pa.array([None, None, 3.0])
    found, _ = step(lambda _, s: [s.sums(holes), s.max(holes, default=-1.0), s.first(holes, default=0.0)])
    assert [each.tolist() for each in found] == [[3.0, 0.0], [3.0, -1.0], [0.0, 0.0]]
    with pytest.raises(Failed, match="some keys have no value"):
        step(lambda _, s: s.max(holes))


def test_the_extremes_of_times_take_a_default() -> None:
    noon, later = dt.datetime(2020, 1, 1, 12, tzinfo=dt.timezone.utc), dt.datetime(2021, 1, 1)
    times = pa.array([None, noon, None], INSTANT)
    days = pa.array([None, noon.date(), None], pa.date32())
    found, _ = step(
        lambda _, s: [
            s.max(times, default=later),
            s.min(times),
            s.min(days, default=later.date()),
            s.max(days),
        ]
    )
    assert [each.to_pylist() for each in found] == [
        [later.replace(tzinfo=dt.timezone.utc), noon],
        [None, noon],
        [later.date(), noon.date()],
        [None, noon.date()],
    ]


def test_truth_values_count_as_numbers_and_may_be_null() -> None:
    flags = pa.array([True, None, None])
    found, _ = step(
        lambda _, s: [
            s.sums(flags),
            s.max(flags, default=False),
            s.min(flags, default=True),
            s.max(flags, default=-1),
            s.max(pa.array([False, True, True])),
        ]
    )
    assert [each.tolist() for each in found] == [[1, 0], [1, 0], [1, 1], [1, -1], [1, 1]]


def test_nan_is_larger_than_every_number() -> None:
    values = np.array([float("nan"), 2.0, 3.0])
    found, _ = step(lambda _, s: [s.min(values).tolist(), s.max(values).tolist()])
    assert found[0] == [3.0, 2.0]
    assert str(found[1]) == "[nan, 2.0]"


def test_lists() -> None:
    def fill(events: pa.Table, state: Any) -> Any:
        state.basket.append(["x", "y", "z"])
        return state.basket.get().to_pylist()

    found, passes = step(fill)
    assert found == [["x", "z"], ["y"]]
    passes.memory.loads.clear()
    _, passes = step(
        lambda _, s: s.basket.append(pa.array(["p", None, "r"]), where=np.array([True, True, False])), passes
    )
    assert passes.memory.loads == []
    assert passes.memory.list_of(A, "basket") == ["x", "z", "p"]
    assert passes.memory.list_of(B, "basket") == ["y", None]
    assert passes.memory.slots(A, "basket") == [0, 1, 2]
    found, passes = step(
        lambda _, s: (s.basket.clear(np.array([True, False])), s.basket.get().to_pylist())[1], passes
    )
    assert found == [[], ["y", None]]
    assert passes.memory.list_of(A, "basket") == []
    assert (passes.memory.value(A, "n:basket"), passes.memory.value(B, "n:basket")) == (None, 2)


def test_maps() -> None:
    def fill(events: pa.Table, state: Any) -> Any:
        state.drinks.put(["tea", "tea", "milk"], [1, 2, 3])
        state.drinks.put(["milk", "jam", "milk"], np.array([4, 5, 6]))
        return state.drinks.get().to_pylist()

    found, passes = step(fill)
    assert found == [[("tea", 1), ("milk", 6)], [("tea", 2), ("jam", 5)]]
    only_last = np.array([False, False, True])
    _, passes = step(lambda _, s: s.drinks.put(["x", "x", "tea"], [0, 0, 9], where=only_last), passes)
    assert passes.memory.map_of(A, "drinks") == {"tea": 9, "milk": 6}
    assert passes.memory.slots(A, "drinks") == [0, 1]
    _, passes = step(lambda _, s: s.drinks.clear(np.array([True, False])), passes)
    assert (passes.memory.map_of(A, "drinks"), passes.memory.value(A, "n:drinks")) == ({}, None)
    assert passes.memory.map_of(B, "drinks") == {"tea": 2, "jam": 5}


class Mean(Aggregate):
    def create(self) -> Any:
        return (0, 0.0)

    def add(self, accumulator: Any, value: float) -> Any:
        return {"n": accumulator["n"] + 1, "total": accumulator["total"] + value}

    def result(self, accumulator: Any) -> float:
        return float(accumulator["total"] / accumulator["n"])


def test_aggregates() -> None:
    class Means(KeyedTable):
        mean = State(StateKind.AGGREGATING, pa.struct([("n", LONG), ("total", DOUBLE)]), aggregate=Mean())

        def on_batch(self, events: pa.Table, state: Any) -> Any:
            state.mean.add(events["amount"], where=np.array([True, False, True]))
            return state.table(mean=state.mean)

    passes = tables(Means(), {"user": TEXT, "mean": DOUBLE})
    assert [row["mean"] for row in passes.run(ABA)] == [2.0, None]
    assert passes.memory.rows == {A: {"s:mean": {"n": 2, "total": 4.0}}, B: {}}


class Forgetful(Mean):
    def add(self, accumulator: Any, value: float) -> Any:
        return None if value < 0 else super().add(accumulator, value)


@pytest.mark.parametrize(
    "state",
    [
        State(StateKind.REDUCING, LONG, function=lambda one, other: None if other < 0 else one + other),
        State(StateKind.AGGREGATING, pa.struct([("n", LONG), ("total", DOUBLE)]), aggregate=Forgetful()),
    ],
    ids=["reducing", "aggregating"],
)
def test_a_function_that_gives_none_is_a_mistake(state: State) -> None:
    class Merges(KeyedTable):
        merged = state

        def on_batch(self, events: pa.Table, state: Any) -> None:
            state.merged.add([4, 5, -6])

    passes = tables(Merges(), {})
    with pytest.raises(Failed, match="the function of state merged returned None"):
        passes.run(ABA)
    assert passes.memory.rows == {}


class Line:
    """One key, one step at each of several times, with a TTL on every state."""

    def __init__(self, ttl: Ttl) -> None:
        class Timed(Step):
            n = State(StateKind.VALUE, LONG, default=0, ttl=ttl)
            total = State(StateKind.REDUCING, LONG, function=add, ttl=ttl)
            basket = State(StateKind.LIST, TEXT, ttl=ttl)
            drinks = State(StateKind.MAP, LONG, key_type=TEXT, ttl=ttl)

        self.processor = Timed(lambda *_: None)
        self.passes = tables(self.processor, {})
        self.event_time = ttl.clock == "event"

    def at(self, ms: int, do: Callable[[Any], Any], event_ms: int | None = None) -> Any:
        self.processor.do = lambda _, state: do(state)
        now, watermark = (999_999, ms) if self.event_time else (ms, 0)
        self.passes.run([event("a", ms=ms if event_ms is None else event_ms)], now=now, watermark=watermark)
        return self.processor.result


CLOCKS = ["processing", "event"]


@pytest.mark.parametrize("clock", CLOCKS)
def test_ttl_of_values(clock: Clock) -> None:
    line = Line(Ttl(10, clock=clock))
    line.at(0, lambda s: s.n.set(5))
    assert line.at(9, lambda s: s.n.get().tolist()) == [5]
    assert line.at(10, lambda s: s.n.get().tolist()) == [0]
    assert line.passes.memory.rows[A] == {}
    once = Line(Ttl(10, clock=clock, visibility=SHOWS))
    once.at(0, lambda s: s.n.set(5))
    assert once.at(10, lambda s: [s.n.get().tolist(), s.n.get().tolist()]) == [[5], [0]]
    kept = Line(Ttl(10, clock=clock, update=REFRESH))
    kept.at(0, lambda s: s.n.set(5))
    assert [kept.at(ms, lambda s: s.n.get().tolist()) for ms in (9, 18, 28)] == [[5], [5], [0]]


@pytest.mark.parametrize("clock", CLOCKS)
def test_ttl_of_reducing_states(clock: Clock) -> None:
    line = Line(Ttl(10, clock=clock))

    def take(amount: int) -> Callable[[Any], Any]:
        return lambda s: (s.total.add([amount]), s.total.get().to_pylist())[1]

    assert [line.at(0, take(1)), line.at(9, take(2)), line.at(18, take(4)), line.at(28, take(8))] == [
        [1],
        [3],
        [7],
        [8],
    ]
    assert line.at(38, lambda s: s.total.get().to_pylist()) == [None]


@pytest.mark.parametrize("clock", CLOCKS)
def test_ttl_of_lists(clock: Clock) -> None:
    line = Line(Ttl(10, clock=clock))
    line.at(0, lambda s: s.basket.append(["a"]))
    line.at(5, lambda s: s.basket.append(["b"]))
    assert line.at(12, lambda s: s.basket.get().to_pylist()) == [["b"]]
    assert line.passes.memory.list_of(A, "basket") == ["a", "b"]
    assert line.at(15, lambda s: s.basket.get().to_pylist()) == [[]]
    assert (line.passes.memory.list_of(A, "basket"), line.passes.memory.value(A, "n:basket")) == ([], None)
    kept = Line(Ttl(10, clock=clock, update=REFRESH))
    kept.at(0, lambda s: s.basket.append(["a"]))
    kept.at(5, lambda s: s.basket.append(["b"]))
    assert kept.at(12, lambda s: s.basket.get().to_pylist()) == [["b"]]
    assert (kept.passes.memory.list_of(A, "basket"), kept.passes.memory.stamps(A, "basket")) == (["b"], [12])
    once = Line(Ttl(10, clock=clock, visibility=SHOWS))
    once.at(0, lambda s: s.basket.append(["a"]))
    assert once.at(10, lambda s: [s.basket.get().to_pylist(), s.basket.get().to_pylist()]) == [[["a"]], [[]]]


@pytest.mark.parametrize("clock", CLOCKS)
def test_ttl_of_maps(clock: Clock) -> None:
    line = Line(Ttl(10, clock=clock))
    line.at(0, lambda s: s.drinks.put(["tea"], [1]))
    line.at(5, lambda s: s.drinks.put(["milk"], [2]))
    assert line.at(9, lambda s: s.drinks.get().to_pylist()) == [[("tea", 1), ("milk", 2)]]
    assert line.at(12, lambda s: s.drinks.get().to_pylist()) == [[("milk", 2)]]
    assert line.passes.memory.map_of(A, "drinks") == {"milk": 2}
    line.at(14, lambda s: s.drinks.put(["milk"], [3]))
    assert line.at(23, lambda s: s.drinks.get().to_pylist()) == [[("milk", 3)]]


def test_additions_that_are_too_old_start_from_scratch_each_time() -> None:
    line = Line(Ttl(10, clock="event"))
    passes, processor = line.passes, line.processor

    def add_all(_: pa.Table, state: Any) -> Any:
        state.total.add(np.array([1, 2, 4, 8]))

    processor.do = add_all
    # The watermark is 50, so what is stamped 40 or earlier has expired when the next one comes.
    passes.run([event("a", ms=ms) for ms in (40, 30, 45, 20)], watermark=50)
    assert passes.memory.rows[A] == {"s:total": 12, "t:total": 45}
    passes.run([event("b", ms=ms) for ms in (40, 30, 39, 20)], watermark=50)
    assert passes.memory.rows[B] == {"s:total": 8, "t:total": 20}
    passes.run([event("a", ms=ms) for ms in (1, 2, 3, 4)], watermark=50)
    assert passes.memory.rows[A] == {"s:total": 27, "t:total": 45}


def test_event_time_stamps_by_the_latest_event_and_never_goes_back() -> None:
    line = Line(Ttl(10, clock="event"))
    line.at(0, lambda s: s.n.set(5), event_ms=20)
    line.at(5, lambda s: s.n.set(6), event_ms=12)
    assert line.passes.memory.rows[A] == {"s:n": 6, "t:n": 20}
    line.at(5, lambda s: s.basket.append(["x"]), event_ms=33)
    assert line.passes.memory.stamps(A, "basket") == [33]


@pytest.mark.parametrize(("age_from", "stamp"), [("restore", 100), (95, 95)])
def test_values_without_a_stamp_get_the_age_that_was_chosen(age_from: AgeFrom, stamp: int) -> None:
    line = Line(Ttl(10, age_from=age_from))
    line.passes.memory.rows[A] = {"s:n": 5}
    assert line.at(100, lambda s: s.n.get().tolist()) == [5]
    assert line.passes.memory.value(A, "t:n") == stamp


class Alarm(KeyedTable):
    fired = State(StateKind.VALUE, LONG, default=0, ttl=Ttl(1_000, clock="event"))

    def __init__(self, **more: Any) -> None:
        self.more = more

    def on_batch(self, events: pa.Table, state: Any) -> Any:
        state.timer(state.last("amount").astype(np.int64), **self.more)

    def on_timers(self, timers: pa.Table, state: Any) -> Any:
        state.fired += state.counts()
        return timers


FIRED = {"user": TEXT, "name": TEXT, "clock": TEXT, "at": INSTANT}


def told(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["user"], row["name"], row["clock"], row["at"].microsecond // 1_000) for row in found]


def test_timers_fire_once_for_their_keys_alone() -> None:
    passes = tables(Alarm(name="x"), FIRED)
    assert passes.run([event("a", 100), event("b", 200)], watermark=0) == []
    assert passes.memory.rows == {
        A: {"timers": "e100 x", "due:event": 100},
        B: {"timers": "e200 x", "due:event": 200},
    }
    assert told(passes.run([], watermark=150, touch=[A, B])) == [("a", "x", "event", 100)]
    assert passes.memory.rows[A] == {"s:fired": 1, "t:fired": 100}
    assert "s:fired" not in passes.memory.rows[B]
    assert told(passes.run([event("a", 170)], watermark=200, touch=[B])) == [
        ("b", "x", "event", 200),
        ("a", "x", "event", 170),
    ]


def test_several_timers_of_a_key_come_in_one_table_in_order() -> None:
    class Many(Alarm):
        def on_batch(self, events: pa.Table, state: Any) -> Any:
            state.timer(50, name="z", clock="processing")
            state.timer(50, name="y", where=state.keys["user"].to_numpy() == "a")
            state.timer(state.max("ts"), name="b c")
            state.timer(900)
            state.cancel_timer("gone")

    passes = tables(Many(), FIRED)
    passes.memory.rows[A] = {"timers": "e40 gone", "due:event": 40}
    found = told(passes.run([event("a", ms=10), event("b", ms=99)], now=60, watermark=30))
    assert found == [("a", "b c", "event", 10), ("a", "z", "processing", 50), ("b", "z", "processing", 50)]
    assert passes.memory.rows[A]["timers"] == "e900|e50 y"
    assert passes.memory.rows[B] == {"timers": "e900|e99 b\\sc", "due:event": 99, "s:fired": 1, "t:fired": 30}


def test_timers_set_by_timers_fire_in_the_next_round() -> None:
    class Chain(Alarm):
        def on_timers(self, timers: pa.Table, state: Any) -> Any:
            at = timers["at"].cast(LONG).to_numpy() // 1_000
            state.timer(at + 10)
            return timers

    passes = tables(Chain(), FIRED)
    assert told(passes.run([event("a", 5)], watermark=20)) == [("a", "", "event", 5), ("a", "", "event", 15)]
    assert passes.memory.rows[A] == {"timers": "e25", "due:event": 25}


def test_timers_without_end_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Alarm):
        def on_timers(self, timers: pa.Table, state: Any) -> Any:
            state.timer(1)

    monkeypatch.setattr("holdfast.worker.runtime.table_runner._MOST_ROUNDS", 20)
    with pytest.raises(Failed, match="fire endlessly"):
        tables(Endless(), FIRED).run([event("a", 5)], watermark=20)


def test_timers_follow_the_default_clock() -> None:
    passes = tables(Alarm(), FIRED, clock="processing")
    assert told(passes.run([event("a", 5)], watermark=None, now=5)) == [("a", "", "processing", 5)]
    with pytest.raises(Failed, match="would never fire"):
        tables(Alarm(clock="event"), FIRED, clock="processing").run([event("a", 5)], watermark=None)


def test_connected_streams_have_a_handler_each() -> None:
    class Joined(KeyedTable):
        n = State(StateKind.VALUE, LONG, default=0)

        def on_orders(self, events: pa.Table, state: Any) -> Any:
            state.n += state.counts()
            return state.table(n=state.n)

        def on_payments(self, events: pa.Table, state: Any) -> Any:
            state.n += 10 * state.counts()
            return state.table(n=state.n)

    passes = tables(Joined(), {"user": TEXT, "n": LONG}, streams={"orders": EVENTS, "payments": EVENTS})
    found = passes.run([event("a"), event("b"), event("a")], [event("c"), event("a")])
    assert [tuple(row.values()) for row in found] == [("a", 2), ("b", 1), ("a", 12), ("c", 10)]


def test_a_handler_that_raises_ends_the_batch_under_both_policies() -> None:
    class Breaks(Totals):
        def on_batch(self, events: pa.Table, state: Any) -> Any:
            raise RuntimeError("no luck")

    for policy in ("fail", "dead-letter"):
        with pytest.raises(Failed, match=r"Breaks.on_batch failed: RuntimeError: no luck") as failed:
            tables(Breaks(), on_error=policy).run([event("a")], batch=9)
        assert str(failed.value.where).startswith("operator regulars, stream events, batch 9, at ")


@pytest.mark.parametrize(
    "result",
    [{"a": 1}, pa.table({"user": ["a"]}), pa.table({"user": ["a"], "visits": ["1"], "spend": [1.0]})],
)
def test_what_is_returned_must_fit_the_output(result: Any) -> None:
    class Returns(Totals):
        def on_batch(self, events: pa.Table, state: Any) -> Any:
            return result

    with pytest.raises(Failed, match=r"Returns.on_batch returned an invalid result"):
        tables(Returns()).run([event("a")])


def test_names_that_a_table_needs_itself_are_refused() -> None:
    class Clashes(KeyedTable):
        counts = State(StateKind.VALUE, LONG)

        def on_batch(self, events: pa.Table, state: Any) -> None: ...

    spec = RunnerSpec(
        operator="regulars",
        output=pa.schema([("a", LONG)]),
        key_names=tuple(KEYS.names),
        stream_names=("events",),
        time_columns=(None,),
        default_clock="processing",
    )
    with pytest.raises(Invalid, match=r"the name of a state is reserved by hf\.KeyedTable"):
        TableRunner(definition_of(Clashes(), ["events"]), Clashes(), spec)
