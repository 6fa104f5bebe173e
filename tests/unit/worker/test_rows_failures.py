from __future__ import annotations

import gc
import inspect
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from passes import INSTANT, Passes, event

from holdfast.errors import Failed
from holdfast.worker.declarations.processor import Keyed
from holdfast.worker.declarations.state_descriptors import State, StateKind, Ttl, add

LONG, DOUBLE, TEXT = pa.int64(), pa.float64(), pa.string()
OUT = {"user": TEXT, "n": LONG}
A, B = ("a",), ("b",)


def divide(amount: float) -> float:
    if not amount:
        raise ZeroDivisionError("nothing to divide by")
    return 1 / amount


class Fragile(Keyed):
    """Cannot take an amount of zero, and notes all others."""

    n = State(StateKind.VALUE, LONG, default=0)
    timed = State(StateKind.VALUE, LONG, default=0, ttl=Ttl(1_000))
    total = State(StateKind.REDUCING, DOUBLE, function=add)
    seen = State(StateKind.LIST, DOUBLE)
    marks = State(StateKind.MAP, LONG, key_type=TEXT)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        yield (event.user, state.n)
        state.n += 1
        state.timed += 1
        state.seen.append(event.amount)
        state.marks[f"m{state.n}"] = state.n
        ctx.timer(10_000 + state.n, name=f"t{state.n}")
        divide(event.amount)
        state.total.add(event.amount)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Any:
        state.n += 100


LINE = next(
    number
    for number, text in enumerate(inspect.getsource(inspect.getmodule(divide)).splitlines(), 1)  # type: ignore[arg-type]
    if text == '        raise ZeroDivisionError("nothing to divide by")'
)


def test_a_failure_names_everything() -> None:
    passes = Passes(Fragile(), OUT)
    with pytest.raises(Failed) as failed:
        passes.run([event("a", 1), event("b", 1), event("b", 0)], batch=41)
    error = failed.value
    assert error.fact == "Fragile.on_event failed: ZeroDivisionError: nothing to divide by"
    assert (
        error.where == f"operator regulars, key user='b', stream events, batch 41, at {Path(__file__)}:{LINE}"
    )
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert gc.isenabled()


def test_an_event_is_set_aside_as_if_it_had_not_come() -> None:
    kept = [event("a", 1), event("b", 2), event("b", 3), event("b", 4)]
    bad = [event("b", 0), event("b", 0), event("a", 0)]
    clean, dirty = Passes(Fragile(), OUT), Passes(Fragile(), OUT, on_error="dead-letter")
    expected = clean.run(kept)
    # Each key's order stays: first, between and last.
    assert dirty.run([kept[0], bad[0], kept[1], kept[2], bad[1], kept[3], bad[2]]) == expected
    assert dirty.memory.rows == clean.memory.rows
    assert dirty.memory.elements == clean.memory.elements
    assert dirty.outcome is not None
    found = dirty.outcome.failed
    assert sorted((each.event["user"], each.stream) for each in found) == [
        ("a", "events"),
        ("b", "events"),
        ("b", "events"),
    ]
    assert found[0].error == f"ZeroDivisionError: nothing to divide by (at {Path(__file__)}:{LINE})"
    assert set(found[0].event) == {"user", "amount", "ts"}


def test_a_key_whose_events_all_fail_is_as_before() -> None:
    passes = Passes(Fragile(), OUT, on_error="dead-letter")
    passes.run([event("a", 1)])
    before = dict(passes.memory.rows[A])
    assert passes.run([event("a", 0), event("a", 0)]) == []
    assert passes.memory.rows[A] == before
    assert passes.outcome is not None
    assert (len(passes.outcome.failed), passes.outcome.elements) == (2, {})


def test_due_timers_count_although_the_event_is_set_aside() -> None:
    passes = Passes(Fragile(), OUT, on_error="dead-letter")
    passes.run([event("a", 1)])
    passes.run([event("a", 0)], watermark=10_001)
    assert passes.memory.rows[A]["s:n"] == 101
    assert "timers" not in passes.memory.rows[A]


def test_on_key_sets_all_events_of_the_key_aside() -> None:
    class Whole(Keyed):
        n = State(StateKind.VALUE, LONG, default=0)

        def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Any:
            state.n += len(events)
            return (key.user, [divide(each.amount) for each in events] and state.n)

    passes = Passes(Whole(), OUT, on_error="dead-letter")
    found = passes.run([event("a", 1), event("b", 1), event("b", 0), event("a", 2)])
    assert found == [{"user": "a", "n": 2}]
    assert passes.outcome is not None
    assert [each.event["amount"] for each in passes.outcome.failed] == [1.0, 0.0]
    assert passes.memory.rows.get(B, {}) == {}


def test_a_timer_that_fails_ends_the_batch_under_both_policies() -> None:
    class Bomb(Fragile):
        def on_timer(self, timer: Any, state: Any, ctx: Any) -> Any:
            divide(0)

    passes = Passes(Bomb(), OUT, on_error="dead-letter")
    passes.run([event("a", 1)])
    with pytest.raises(Failed, match=r"Bomb.on_timer failed: ZeroDivisionError") as failed:
        passes.run([event("a", 1)], watermark=10_001)
    assert "key user='a', batch 1, at" in str(failed.value)
    assert failed.value.hint is None


def test_on_start_that_fails_ends_the_batch() -> None:
    class Starts(Fragile):
        def on_start(self, ctx: Any) -> None:
            raise OSError("no route to host")

    with pytest.raises(Failed, match=r"Starts.on_start failed: OSError: no route to host") as failed:
        Passes(Starts(), OUT).run([event("a", 1)])
    assert str(failed.value.where).startswith("operator regulars, batch 1, at ")


def test_an_event_that_python_cannot_hold_is_set_aside() -> None:
    schema = pa.schema([("user", TEXT), ("amount", DOUBLE), ("ts", INSTANT)])
    far = {"user": "a", "amount": 1.0, "ts": 2**60}
    good = [event("a", 1), event("b", 2), event("a", 3)]
    clean = Passes(Fragile(), OUT)
    expected = clean.run(good)
    passes = Passes(Fragile(), OUT, on_error="dead-letter", streams={"events": schema})
    assert passes.run([far, good[0], good[1], far, good[2], far]) == expected
    assert passes.memory.rows == clean.memory.rows
    assert passes.outcome is not None
    assert len(passes.outcome.failed) == 3
    assert passes.outcome.failed[0].error.startswith("column ts: a time is out of Python's range")
    assert passes.outcome.failed[0].event["user"] == "a"
    with pytest.raises(Failed, match="cannot read an event") as failed:
        Passes(Fragile(), OUT, streams={"events": schema}).run([good[0], far])
    assert "key user='a', stream events" in str(failed.value)


def test_an_exception_with_many_lines_is_told_in_one() -> None:
    class Chatty(Fragile):
        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            raise ValueError("first\n  second " + "x" * 1_000)

    with pytest.raises(Failed, match=r"ValueError: first second x+…"):
        Passes(Chatty(), OUT).run([event("a")])


def test_interrupts_are_not_failures() -> None:
    class Stops(Fragile):
        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Passes(Stops(), OUT, on_error="dead-letter").run([event("a")])
    assert gc.isenabled()
