"""The harness: TTL by the known vectors, timers, restarts with new versions, and what it refuses."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import Failed, Invalid, NotFound
from holdfast.testing import Harness

UTC = dt.timezone.utc
EVENTS = "k string, op string, v long, name string"
SINGLE = ("value", "reducing", "aggregating")
LONGEST = 2**63 - 1


class Sum(hf.Aggregate):
    def create(self) -> int:
        return 0

    def add(self, accumulator: int, value: int) -> int:
        return accumulator + value


class Holding(hf.Keyed):
    """Writes what it is told to, and puts out what a read gives."""

    held: Any  # of subclasses

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        kind = "list" if hasattr(state, "list") else "map" if hasattr(state, "map") else None
        if event.op == "write":
            {"list": self._append, "map": self._put}.get(kind or "", self._write)(event, state)
        elif event.op == "set":
            state.list.set([event.v])
        elif event.op == "clear":
            state.clear()
        elif event.op == "read":
            yield (self._read(kind, event, state),)

    def _write(self, event: Any, state: Any) -> None:
        if self.held.kind.value == "value":
            state.held = event.v
        else:
            state.held.add(event.v)

    @staticmethod
    def _append(event: Any, state: Any) -> None:
        state.list.append(event.v)

    @staticmethod
    def _put(event: Any, state: Any) -> None:
        state.map[event.name] = event.v

    def _read(self, kind: str | None, event: Any, state: Any) -> str:
        if kind == "list":
            return str(list(state.list))
        if kind == "map":
            return str(state.map.get(event.name) if event.name else sorted(state.map.items()))
        # Each read counts, so there must be no other.
        return str(state.held if self.held.kind.value == "value" else state.held.get())


def declared(kind: str, **ttl: Any) -> Any:
    """A state of a kind, of longs."""
    longest = ttl.get("duration") == LONGEST  # nobody writes it, but the arithmetic must hold
    lifetime = hf.Ttl(LONGEST) if longest else hf.ttl(**ttl) if ttl else None
    if kind == "value":
        return hf.value("long", ttl=lifetime)
    if kind == "reducing":
        return hf.reducing("long", hf.add, ttl=lifetime)
    if kind == "aggregating":
        return hf.aggregating("long", Sum(), ttl=lifetime)
    return hf.list("long", ttl=lifetime) if kind == "list" else hf.map("string", "long", ttl=lifetime)


def holding(kind: str, **ttl: Any) -> Holding:
    """A processor with one state: `held`, `list` or `map`."""
    name = kind if kind in ("list", "map") else "held"
    made: type[Holding] = type("Holding", (Holding,), {name: declared(kind, **ttl)})
    return made()


def harness(processor: Any, **settings: Any) -> Harness:
    return Harness(processor, by="k", events=EVENTS, output="read string", **settings)


def event(op: str, v: int | None = None, name: str | None = None, k: str = "a") -> dict[str, Any]:
    return {"k": k, "op": op, "v": v, "name": name}


def step(at: int, run: Harness, *events: dict[str, Any]) -> list[str]:
    """A batch at a processing time; what the reads in it gave."""
    run.set_clocks(now=at)
    return [row["read"] for row in run.send(*events)]


# FLINK-API, part (g): ten vectors. `7` is v.


@pytest.mark.parametrize("kind", SINGLE)
def test_vector_1_a_value_is_read_until_its_last_millisecond_and_then_removed(kind: str) -> None:
    run = harness(holding(kind, duration=10))
    step(0, run, event("write", 7))
    assert step(9, run, event("read")) == ["7"]
    assert run.keys() == [("a",)]
    assert step(10, run, event("read")) == ["None"]
    assert run.keys() == []


@pytest.mark.parametrize("kind", SINGLE)
def test_vector_2_an_expired_value_may_be_returned_one_last_time(kind: str) -> None:
    run = harness(holding(kind, duration=10, visibility="return_if_not_cleaned_up"))
    step(0, run, event("write", 7))
    assert step(10, run, event("read")) == ["7"]
    assert step(10, run, event("read")) == ["None"]


@pytest.mark.parametrize("kind", SINGLE)
def test_vector_2_holds_within_a_batch_too(kind: str) -> None:
    run = harness(holding(kind, duration=10, visibility="return_if_not_cleaned_up"))
    step(0, run, event("write", 7))
    assert step(10, run, event("read"), event("read")) == ["7", "None"]


@pytest.mark.parametrize("kind", SINGLE)
def test_vector_3_reading_renews_where_it_is_asked_to(kind: str) -> None:
    run = harness(holding(kind, duration=10, update="read_and_write"))
    step(0, run, event("write", 7))
    assert [step(at, run, event("read")) for at in (9, 18, 28)] == [["7"], ["7"], ["None"]]


@pytest.mark.parametrize("kind", SINGLE)
def test_vector_4_reading_renews_nothing_by_default(kind: str) -> None:
    run = harness(holding(kind, duration=10))
    step(0, run, event("write", 7))
    assert [step(at, run, event("read")) for at in (9, 18)] == [["7"], ["None"]]


def test_vector_5_elements_of_a_list_expire_one_by_one_and_leave_together() -> None:
    run = harness(holding("list", duration=10))
    step(0, run, event("write", 1))
    step(5, run, event("write", 2))
    assert step(12, run, event("read")) == ["[2]"]
    assert step(15, run, event("read")) == ["[]"]
    assert run.keys() == []


def test_vector_6_entries_of_a_map_expire_one_by_one() -> None:
    run = harness(holding("map", duration=10))
    step(0, run, event("write", 1, "x"), event("write", 2, "y"))
    step(5, run, event("write", 3, "y"))
    assert step(12, run, event("read", name="x"), event("read")) == ["None", "[('y', 3)]"]
    assert step(15, run, event("read", name="y")) == ["None"]
    assert run.keys() == []


@pytest.mark.parametrize("kind", SINGLE)
def test_vector_7_the_longest_ttl_never_ends(kind: str) -> None:
    run = harness(holding(kind, duration=LONGEST))
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
    step(5, run, event("write", 7))
    run.set_clocks(now=last)
    assert [row["read"] for row in run.send(event("read"))] == ["7"]
    assert run.cleaned().state("a")["held"] == 7


@pytest.mark.parametrize("kind", SINGLE)
def test_vector_8_a_ttl_that_is_switched_on_counts_from_the_restart(kind: str) -> None:
    run = harness(holding(kind))
    step(0, run, event("write", 7))
    run.set_clocks(now=100)
    run.restart(holding(kind, duration=10))
    assert [step(at, run, event("read")) for at in (109, 110)] == [["7"], ["None"]]


@pytest.mark.parametrize("kind", SINGLE)
def test_vector_9_without_its_ttl_an_expired_value_reappears(kind: str) -> None:
    run = harness(holding(kind, duration=10))
    step(0, run, event("write", 7))
    step(50, run, event("write", 1, k="another"))
    run.restart(holding(kind))
    assert step(60, run, event("read")) == ["7"]


@pytest.mark.parametrize("kind", SINGLE)
def test_vector_10_a_cleaned_copy_has_nothing_expired_and_the_state_still_has_it(kind: str) -> None:
    run = harness(holding(kind, duration=10), key_groups=1)
    step(0, run, event("write", 7, k="old"))
    step(5, run, event("write", 8, k="young"))
    step(10, run)
    assert run.cleaned().keys() == [("young",)]
    assert sorted(run.keys()) == [("old",), ("young",)]
    # The copy is a copy: what it does does not come back.
    copy = run.cleaned()
    step(11, copy, event("write", 9, k="young"))
    assert run.state("young")["held"] == 8


def test_a_cleaned_copy_of_a_list_and_of_a_map_has_their_live_elements() -> None:
    for kind, expected in (("list", [2]), ("map", {"y": 2})):
        run = harness(holding(kind, duration=10, visibility="return_if_not_cleaned_up"))
        step(0, run, event("write", 1, "x"))
        step(5, run, event("write", 2, "y"))
        step(12, run)
        assert run.cleaned().state("a")[kind] == expected
        assert len(run.state("a")[kind]) == 2


# More of the rules


def test_lists_that_may_show_what_has_expired_show_it_until_nothing_is_alive() -> None:
    run = harness(holding("list", duration=10, visibility="return_if_not_cleaned_up"))
    step(0, run, event("write", 1))
    step(5, run, event("write", 2))
    assert step(12, run, event("read"), event("read")) == ["[1, 2]", "[1, 2]"]
    assert step(15, run, event("read"), event("read")) == ["[1, 2]", "[]"]


def test_a_refreshing_read_of_a_list_keeps_what_is_alive_and_stamps_it() -> None:
    run = harness(holding("list", duration=10, update="read_and_write"))
    step(0, run, event("write", 1))
    step(5, run, event("write", 2))
    assert [step(at, run, event("read")) for at in (12, 21, 31)] == [["[2]"], ["[2]"], ["[]"]]


def test_setting_a_list_stamps_all_of_it() -> None:
    run = harness(holding("list", duration=10))
    step(0, run, event("write", 1))
    step(9, run, event("set", 5))
    assert [step(at, run, event("read")) for at in (18, 19)] == [["[5]"], ["[]"]]


def test_adding_to_an_expired_sum_starts_from_scratch() -> None:
    for kind in ("reducing", "aggregating"):
        run = harness(holding(kind, duration=10))
        step(0, run, event("write", 7))
        step(9, run, event("write", 1))
        assert step(18, run, event("write", 1), event("read")) == ["9"]
        assert step(28, run, event("write", 1), event("read")) == ["1"]


def test_an_expired_value_reads_as_its_default() -> None:
    class Counting(hf.Keyed):
        held = hf.value("long", default=5, ttl=10)

        def on_event(self, event: Any, state: Any, ctx: Any) -> tuple[str]:
            if event.op == "write":
                state.held += 1
            return (str(state.held),)

    run = harness(Counting())
    assert step(0, run, event("write"), event("read")) == ["6", "6"]
    assert step(10, run, event("read"), event("write")) == ["5", "6"]


TIMED = "k string, op string, v long, name string, ts timestamp"


def timed(processor: Any, **settings: Any) -> Harness:
    return Harness(processor, by="k", events=TIMED, output="read string", time="ts", **settings)


def moment(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(milliseconds=ms)


def at_time(ms: int | None, op: str, v: int | None = None, name: str | None = None) -> dict[str, Any]:
    return {**event(op, v, name), "ts": None if ms is None else moment(ms)}


@pytest.mark.parametrize("kind", SINGLE)
def test_in_event_time_a_value_expires_by_the_watermark(kind: str) -> None:
    run = timed(holding(kind, duration=10, clock="event"), now=10**12)
    run.send(at_time(100, "write", 7))
    run.set_clocks(watermark=109)
    assert [row["read"] for row in run.send(at_time(500, "read"))] == ["7"]
    run.set_clocks(watermark=110)
    assert [row["read"] for row in run.send(at_time(500, "read"))] == ["None"]


@pytest.mark.parametrize("kind", SINGLE)
def test_in_event_time_a_stamp_never_goes_back(kind: str) -> None:
    run = timed(holding(kind, duration=10, clock="event"))
    run.send(at_time(100, "write", 7), at_time(50, "write", 0))
    run.set_clocks(watermark=109)
    expected = "0" if kind == "value" else "7"
    assert [row["read"] for row in run.send(at_time(500, "read"))] == [expected]


def test_an_event_without_a_time_is_stamped_with_the_watermark() -> None:
    run = timed(holding("value", duration=10, clock="event"))
    run.set_clocks(watermark=1000)
    run.send(at_time(None, "write", 7))
    run.set_clocks(watermark=1009)
    assert run.state("a")["held"] == 7
    run.set_clocks(watermark=1010)
    assert run.state("a")["held"] is None


def test_late_events_are_told_apart_to_the_microsecond() -> None:
    run = timed(holding("value"))
    run.set_clocks(watermark=1000)
    after = {**at_time(1000, "write", 2), "ts": moment(1000) + dt.timedelta(microseconds=1)}
    run.send(at_time(1000, "write", 1), after, at_time(None, "read"))
    assert [each["v"] for each in run.late_events] == [1]
    assert run.state("a")["held"] == 2


def test_late_events_are_handled_where_they_are_kept() -> None:
    run = timed(holding("value"), late="keep")
    run.set_clocks(watermark=1000)
    run.send(at_time(10, "write", 1))
    assert run.late_events == []
    assert run.state("a")["held"] == 1


# Timers


class Clockwork(hf.Keyed):
    """Does with timers what it is told to, and puts out what fires."""

    held = hf.value("long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        clock, _, name = (event.name or "").rpartition(":")
        if event.op == "set":
            ctx.timer(event.v, name, clock or None)
        elif event.op == "cancel":
            ctx.cancel_timer(name, clock or None)
        elif event.op == "list":
            yield (" ".join(f"{each.clock}:{each.name}@{each.at_ms}" for each in ctx.timers()),)
        else:
            yield ("event",)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        yield (f"{timer.clock}:{timer.name}@{timer.at_ms}",)
        if timer.name == "again":
            ctx.timer(timer.at_ms + 10, "again")
        if timer.name == "stop":
            ctx.cancel_timer("late")


def clockwork() -> Harness:
    run = timed(Clockwork(), now=1000)
    run.set_clocks(watermark=1000)
    return run


def reads(rows: list[dict[str, Any]]) -> list[str]:
    return [row["read"] for row in rows]


def test_timers_fire_once_in_the_order_of_their_times() -> None:
    run = clockwork()
    run.send(*(at_time(5000, "set", at, name) for at, name in ((2003, "c"), (2001, "b"), (2001, "a"))))
    run.send(at_time(5000, "set", 2001, "processing:0"))
    run.set_clocks(now=2001)
    assert run.watermark(2000) == [{"read": "processing:0@2001"}]
    run.send(at_time(5000, "set", 2002, "processing:z"))
    run.set_clocks(now=2002)
    assert reads(run.watermark(2002)) == ["event:a@2001", "event:b@2001", "processing:z@2002"]
    assert reads(run.watermark(2002)) == []
    assert reads(run.watermark(2003)) == ["event:c@2003"]
    with pytest.raises(NotFound):
        run.timers("a")


def test_at_one_time_event_timers_fire_before_those_in_processing_time() -> None:
    run = clockwork()
    run.send(at_time(5000, "set", 2000, "processing:a"), at_time(5000, "set", 2000, "event:b"))
    run.set_clocks(now=2000)
    assert reads(run.watermark(2000)) == ["event:b@2000", "processing:a@2000"]


def test_what_is_due_fires_before_the_events_and_what_they_make_due_after_them() -> None:
    run = clockwork()
    run.send(at_time(5000, "set", 2000, "before"))
    run.set_clocks(watermark=2000)
    rows = run.send(at_time(5000, "set", 1500, "after"), at_time(5000, "x"))
    assert reads(rows) == ["event:before@2000", "event", "event:after@1500"]


def test_a_timer_is_moved_and_cancelled_by_its_clock_and_name() -> None:
    run = clockwork()
    run.send(
        at_time(5000, "set", 2000, "x"),
        at_time(5000, "set", 3000, "x"),
        at_time(5000, "set", 2000, "processing:x"),
        at_time(5000, "set", 2000),
        at_time(5000, "cancel", name="none of these"),
    )
    assert [(each.clock, each.name, each.at_ms) for each in run.timers("a")] == [
        ("event", "", 2000),
        ("processing", "x", 2000),
        ("event", "x", 3000),
    ]
    assert reads(run.send(at_time(5000, "list"))) == ["event:@2000 processing:x@2000 event:x@3000"]
    run.send(at_time(5000, "cancel", name="x"), at_time(5000, "cancel"))
    assert [each.clock for each in run.timers("a")] == ["processing"]
    assert run.timers("a")[0].at == moment(2000)


def test_timers_that_timers_set_fire_in_the_same_batch_in_the_order_of_time() -> None:
    run = clockwork()
    run.send(at_time(5000, "set", 2000, "again"), at_time(5000, "set", 2015, "x"))
    assert reads(run.watermark(2020)) == [
        "event:again@2000",
        "event:again@2010",
        "event:x@2015",
        "event:again@2020",
    ]
    assert [each.at_ms for each in run.timers("a")] == [2030]


def test_a_timer_that_is_cancelled_by_one_before_it_does_not_fire() -> None:
    run = clockwork()
    run.send(at_time(5000, "set", 2000, "stop"), at_time(5000, "set", 2001, "late"))
    assert reads(run.watermark(3000)) == ["event:stop@2000"]


def test_a_batch_wakes_no_key_whose_timer_is_not_due() -> None:
    run = clockwork()
    for at in range(20):
        run.send({**at_time(5000, "set", 2000 + at, "x"), "k": f"k{at}"})
    assert reads(run.watermark(2004)) == unordered(f"event:x@{2000 + at}" for at in range(5))
    run.restart()
    assert reads(run.watermark(2006)) == unordered(f"event:x@{2000 + at}" for at in (5, 6))


class unordered:  # noqa: N801 - it reads as a word
    def __init__(self, each: Iterator[str]) -> None:
        self.each = sorted(each)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and sorted(other) == self.each

    __hash__ = None  # type: ignore[assignment]


def test_timers_from_before_1970_fire() -> None:
    run = timed(Clockwork(), now=-9_000)
    run.set_clocks(watermark=-9_000)
    run.send(at_time(-8_000, "set", -7_000, "x"), at_time(-9_000, "x"))
    assert len(run.late_events) == 1
    assert reads(run.watermark(-7_001)) == []
    assert reads(run.watermark(-7_000)) == ["event:x@-7000"]


def test_timers_need_a_handler_and_a_watermark() -> None:
    class NoHandler(hf.Keyed):
        held = hf.value("long")

        def on_event(self, event: Any, state: Any, ctx: Any) -> None:
            ctx.timer(5)

    with pytest.raises(Failed, match="has no on_timer"):
        harness(NoHandler()).send(event("x"))
    with pytest.raises(Failed, match="no watermark") as caught:
        harness(Clockwork()).send(event("set", 5, "event:x"))
    assert "key k='a'" in str(caught.value)


# Restarts with other versions


def test_new_states_start_unset_and_dropped_ones_must_be_named() -> None:
    run = harness(holding("value"))
    run.send(event("write", 7))
    with pytest.raises(Invalid, match="does not declare") as caught:
        run.restart(holding("list"))
    assert caught.value.found == "held"
    assert "list" in str(caught.value.expected)
    # Nothing is lost by asking.
    assert run.state("a") == {"held": 7}
    run.restart(holding("list"), drop=["held"])
    run.send(event("write", 1))
    assert run.state("a") == {"list": [1]}


class Ints(hf.Keyed):
    count = hf.value("int", default=0)
    place = hf.value("struct<city: string, zip: int>")
    past = hf.list("int")
    by_day = hf.map("string", "int")

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        state.count += event.v
        state.place = {"city": event.name, "zip": event.v}
        state.past.append(event.v)
        state.by_day[event.name] = event.v


class Longs(Ints):
    count = hf.value("int")  # stays hidden below
    visits = hf.value("long", default=0, was="count")
    place = hf.value(
        "struct<land: string, town: string, zip: long>",
        fields_were={"town": "city"},
        field_defaults={"land": "none"},
    )
    past = hf.list("long")
    days = hf.map("string", "double", was="by_day")


def test_values_are_carried_through_renames_wider_types_and_new_fields() -> None:
    later = type(
        "Later",
        (hf.Keyed,),
        {
            **{name: each for name, each in vars(Longs).items() if not name.startswith("__")},
            "on_event": lambda self, event, state, ctx: state.past.append(event.v),
        },
    )
    del later.count  # type: ignore[attr-defined]
    run = harness(Ints())
    run.send(event("x", 3, "Rome"), event("x", 4, "Bonn", k="b"))
    run.restart(later())
    assert run.state("a") == {
        "visits": 3,
        "place": ("none", "Rome", 3),
        "past": [3],
        "days": {"Rome": 3.0},
    }
    run.send(event("x", 2**40))
    assert run.state("a")["past"] == [3, 2**40]
    assert run.state("b")["past"] == [4]
    with pytest.raises(Invalid, match="is narrower"):
        run.restart(Narrow(), drop=["place", "days", "by_day", "visits", "count"])
    assert run.state("a")["past"] == [3, 2**40]


class Narrow(hf.Keyed):
    past = hf.list("int")

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        pass


def test_a_state_of_another_kind_is_refused() -> None:
    run = harness(holding("value"))
    run.send(event("write", 7))
    with pytest.raises(Invalid, match="the kind of state differs") as caught:
        run.restart(holding("reducing"))
    assert (caught.value.found, caught.value.expected) == ("reducing in the declaration", "value, as stored")


def test_timers_are_not_lost_without_a_word() -> None:
    class Still(hf.Keyed):
        held = hf.value("long")

        def on_event(self, event: Any, state: Any, ctx: Any) -> None:
            pass

    run = clockwork()
    run.send(at_time(5000, "set", 2000, "x"))
    with pytest.raises(Invalid, match="timers, but the processor has no handler"):
        run.restart(Still())
    assert reads(run.send(at_time(5000, "list"))) == ["event:x@2000"]
    run.restart(Still(), drop=["timers"])
    assert reads(run.watermark(3000)) == []


class Names(hf.Keyed):
    a = hf.value("long")
    b = hf.value("long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        if event.op == "write":
            state.a, state.b = 1, event.v


def names(**states: Any) -> hf.Keyed:
    made: type[hf.Keyed] = type(
        "Named", (hf.Keyed,), {**states, "on_event": lambda self, event, state, ctx: None}
    )
    return made()


def test_a_state_that_was_renamed_twice_is_found_under_each_name() -> None:
    run = harness(Names(), key_groups=100)
    step(0, run, event("write", 2, k="first"), event("write", 3, k="second"))
    run.restart(names(a=hf.value("long"), c=hf.value("long", was="b")))
    step(1, run, event("read", k="second"))
    run.restart(names(a=hf.value("long"), d=hf.value("long", was=["c", "b"])))
    assert (run.state("first"), run.state("second")) == ({"a": 1, "d": 2}, {"a": 1, "d": 3})


def test_a_state_takes_the_name_of_a_dropped_one_once() -> None:
    run = harness(Names())
    step(0, run, event("write", 2))
    run.restart(names(a=hf.value("long", was="b")), drop=["a"])
    assert run.state("a") == {"a": 2}
    step(1, run, event("read"))
    # `drop` stays in the code, and what has the name since is not meant.
    run.restart(names(a=hf.value("long", was="b"), c=hf.value("long")))
    assert run.state("a") == {"a": 2, "c": None}


@pytest.mark.parametrize("kind", [*SINGLE, "list", "map"])
def test_values_without_an_age_count_from_when_they_are_told_to(kind: str) -> None:
    name = kind if kind in ("list", "map") else "held"
    empty: Any = {"list": [], "map": {}}.get(kind)
    full: Any = {"list": [7], "map": {"x": 7}}.get(kind, 7)
    run = harness(holding(kind))
    step(0, run, event("write", 7, "x"))
    run.set_clocks(now=500)
    run.restart(holding(kind, duration=10, age_from=moment(495)))
    for at in (500, 504):
        run.set_clocks(now=at)
        assert run.state("a")[name] == full
    run.set_clocks(now=505)
    assert run.state("a")[name] == empty


def test_the_age_from_the_restart_does_not_move_with_later_restarts() -> None:
    run = harness(holding("value"), key_groups=2)
    step(0, run, event("write", 7), event("write", 8, k="untouched"))
    run.set_clocks(now=100)
    run.restart(holding("value", duration=10))
    step(105, run, event("read"))
    run.restart(holding("value", duration=10))
    assert step(109, run, event("read")) == ["7"]
    assert step(110, run, event("read")) == ["None"]


FULL: dict[str, Any] = {"list": [7], "map": {"x": 7}}
EMPTY: dict[str, Any] = {"list": [], "map": {}}


def look(run: Harness, kind: str, key: str) -> Any:
    """What a key's state reads as, with a key that is gone as one that is empty."""
    try:
        return run.state(key)[kind if kind in ("list", "map") else "held"]
    except NotFound:
        return EMPTY.get(kind)


@pytest.mark.parametrize("kind", [*SINGLE, "list", "map"])
@pytest.mark.parametrize("on_disable", ["keep", "drop_expired"])
def test_taking_a_ttl_away_keeps_or_drops_what_had_expired(kind: str, on_disable: str) -> None:
    run = harness(holding(kind, duration=10, on_disable=on_disable), key_groups=100)
    step(0, run, event("write", 7, "x", k="old"))
    step(95, run, event("write", 7, "x", k="young"))
    run.set_clocks(now=100)
    run.restart(holding(kind))
    # Whenever a key is looked at for the first time, what counts is when the TTL was taken away.
    for now in (100, 1000):
        step(now, run, event("write", 1, "y", k="other"))
        assert look(run, kind, "young") == FULL.get(kind, 7)
        assert look(run, kind, "old") == (FULL.get(kind, 7) if on_disable == "keep" else EMPTY.get(kind))
    step(2000, run, event("nothing", k="young"))
    assert look(run, kind, "young") == FULL.get(kind, 7)


def bare(kind: str) -> Harness:
    """A processor with two streams, of which `bare` has no time, and a TTL of 10 ms in event time."""
    made: Any = type(holding(kind, duration=10, clock="event"))
    both: type = type(
        "Both", (made,), {"on_bare": made.on_event, "on_timed": made.on_event, "on_event": None}
    )
    events = {"bare": EVENTS, "timed": TIMED}
    return Harness(
        both(), by="k", events=events, output="read string", time={"timed": "ts"}, key_groups=100, now=10**12
    )


def unexpired(run: Harness, kind: str, key: str = "a") -> bool:
    return bool(look(run, kind, key) == FULL.get(kind, 7))


@pytest.mark.parametrize("kind", [*SINGLE, "list", "map"])
@pytest.mark.parametrize("none", [None, 0])
def test_before_there_is_a_watermark_values_have_no_age_in_event_time(kind: str, none: int | None) -> None:
    run = bare(kind)
    if none is not None:
        run.set_clocks(watermark=none)
    run.send(event("write", 7, "x"), stream="bare")
    run.send(event("clear", k="other"), stream="bare")
    assert unexpired(run, kind)
    # It is given with the first watermark under which the key is looked at.
    run.set_clocks(watermark=1000)
    run.send(event("read", name="x"), stream="bare")
    run.set_clocks(watermark=1009)
    assert unexpired(run, kind)
    run.set_clocks(watermark=1010)
    assert not unexpired(run, kind)


@pytest.mark.parametrize("kind", [*SINGLE, "list", "map"])
def test_a_real_time_is_the_age_also_of_what_had_none(kind: str) -> None:
    run = bare(kind)
    run.send(event("write", 3, "x"), stream="bare")
    run.send_all({"timed": [at_time(500, "clear"), at_time(500, "write", 7, "x")]})
    run.set_clocks(watermark=509)
    assert unexpired(run, kind)
    run.set_clocks(watermark=510)
    assert not unexpired(run, kind)


@pytest.mark.parametrize("kind", [*SINGLE, "list", "map"])
def test_what_has_no_age_is_given_one_when_its_group_is_cleaned(kind: str) -> None:
    run = bare(kind)
    run.send(event("write", 7, "x"), stream="bare")
    assert run.cleaned().keys() == [("a",)]
    run.set_clocks(watermark=1000)
    cleaned = run.cleaned()
    for watermark, keys in ((1009, [("a",)]), (1010, [])):
        cleaned.set_clocks(watermark=watermark)
        assert cleaned.cleaned().keys() == keys


@pytest.mark.parametrize("kind", [*SINGLE, "list", "map"])
@pytest.mark.parametrize("before", [{}, {"duration": 10, "clock": "processing"}])
def test_a_ttl_in_event_time_may_begin_before_there_is_a_watermark(kind: str, before: dict[str, Any]) -> None:
    run = timed(holding(kind, **before))
    run.send(at_time(5, "write", 7, "x"))
    run.restart(holding(kind, duration=10, clock="event"))
    run.send(at_time(6, "read", None, "x"))
    assert unexpired(run, kind)
    for watermark, alive in ((1000, True), (1009, True), (1010, False)):
        run.set_clocks(watermark=watermark)
        assert unexpired(run, kind) is alive
        run.send(at_time(2000, "read", None, "x"))


class Tables(hf.KeyedTable):
    """Writes to each kind of state from a stream without a time."""

    one = hf.value("long", ttl=hf.ttl(10, clock="event"))
    total = hf.reducing("long", hf.add, ttl=hf.ttl(10, clock="event"))
    all = hf.list("long", ttl=hf.ttl(10, clock="event"))
    by = hf.map("string", "long", ttl=hf.ttl(10, clock="event"))

    def on_bare(self, events: pa.Table, state: Any) -> None:
        state.one.set(events["v"])
        state.total.add(events["v"])
        state.all.append(events["v"])
        state.by.put(events["name"], events["v"])

    def on_timed(self, events: pa.Table, state: Any) -> None:
        for held in (state.one, state.total, state.all, state.by):
            held.get()


def test_tables_of_state_have_no_age_before_there_is_a_watermark() -> None:
    streams = {"bare": EVENTS, "timed": TIMED}
    run = Harness(Tables(), by="k", events=streams, output="read string", time={"timed": "ts"})
    run.send(event("write", 7, "x"), stream="bare")
    run.set_clocks(watermark=1000)
    run.send(at_time(2000, "read"), stream="timed")
    full = {"one": 7, "total": 7, "all": [7], "by": {"x": 7}}
    run.set_clocks(watermark=1009)
    assert run.state("a") == full
    run.set_clocks(watermark=1010)
    assert run.state("a") == {"one": None, "total": None, "all": [], "by": {}}


@pytest.mark.parametrize("kind", [*SINGLE, "list", "map"])
def test_a_ttl_counts_from_the_restart_that_brought_it_whenever_a_key_is_first_read(kind: str) -> None:
    run = harness(holding(kind), key_groups=100)
    step(0, run, event("write", 7, "x"))
    run.set_clocks(now=100)
    run.restart(holding(kind, duration=10))
    step(101, run, event("write", 1, "y", k="other"))
    run.restart()
    step(102, run, event("write", 2, "y", k="other"))
    run.set_clocks(now=109)
    run.restart()
    assert unexpired(run, kind)
    run.set_clocks(now=110)
    run.restart()
    assert not unexpired(run, kind)


@pytest.mark.parametrize("kind", [*SINGLE, "list", "map"])
def test_what_had_expired_when_its_ttl_went_is_told_after_more_restarts_too(kind: str) -> None:
    run = harness(holding(kind, duration=100, on_disable="drop_expired"), key_groups=100)
    step(0, run, event("write", 7, "x", k="old"))
    step(10, run, event("write", 7, "x", k="young"))
    run.set_clocks(now=100)
    run.restart(holding(kind))
    step(101, run, event("write", 1, "y", k="other"))
    run.set_clocks(now=1000)
    run.restart()
    assert (unexpired(run, kind, "old"), unexpired(run, kind, "young")) == (False, True)


@pytest.mark.parametrize("kind", [*SINGLE, "list", "map"])
@pytest.mark.parametrize("on_disable", ["keep", "drop_expired"])
@pytest.mark.parametrize("again", [10, 20])
def test_a_ttl_that_went_and_came_again_counts_from_when_it_came_again(
    kind: str, on_disable: str, again: int
) -> None:
    run = harness(holding(kind, duration=10, on_disable=on_disable), key_groups=100)
    step(0, run, event("write", 7, "x", k="old"))
    step(5, run, event("write", 7, "x", k="young"))
    run.set_clocks(now=10)
    run.restart(holding(kind))
    step(11, run, event("write", 1, "y", k="other"))
    run.set_clocks(now=100)
    run.restart(holding(kind, duration=again, on_disable=on_disable))
    step(101, run, event("write", 7, "x", k="new"))
    for now in (99 + again, 100 + again):
        run.set_clocks(now=now)
        run.restart()
        alive = now < 100 + again
        assert unexpired(run, kind, "old") is (alive and on_disable == "keep")
        assert unexpired(run, kind, "young") is alive
        assert unexpired(run, kind, "new")
        step(now, run, event("read", name="x", k="young"))
    run.set_clocks(now=101 + again)
    assert not unexpired(run, kind, "new")


class Unknown(hf.Keyed):
    """Writes NaN, which equals nothing."""

    v = hf.value("double", ttl=hf.ttl(10))

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        state.v = float("nan")


def test_a_group_whose_ttl_came_again_is_written_anew_once() -> None:
    run = harness(Unknown(), key_groups=1)
    step(0, run, event("write"))
    for now, version in ((1, names(v=hf.value("double"))), (2, Unknown())):
        run.set_clocks(now=now)
        run.restart(version)
    changes = []
    for now in (3, 4):
        run.restart()
        step(now, run, event("write", k="other"))
        (meta,) = run.inspect.store.metas([0])
        changes.append(None if meta is None else meta.log_count)
    assert changes == [0, 1]


class Nulls(hf.Keyed):
    """Keeps nulls in a list and in a map."""

    list = hf.list("long")
    map = hf.map("string", "long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        if event.op == "write":
            state.list.extend([None, event.v])
            state.map.update({"none": None, "x": event.v})


def nulls(**ttl: Any) -> Nulls:
    made: type[Nulls] = type("Nulls", (Nulls,), {kind: declared(kind, **ttl) for kind in ("list", "map")})
    return made()


def test_nulls_in_lists_and_maps_expire_too_once_there_is_a_ttl() -> None:
    run = harness(Nulls())
    step(0, run, event("write", 7))
    run.set_clocks(now=100)
    run.restart(nulls(duration=10))
    run.set_clocks(now=109)
    assert run.state("a") == {"list": [None, 7], "map": {"none": None, "x": 7}}
    run.set_clocks(now=110)
    assert run.state("a") == {"list": [], "map": {}}


def test_nulls_in_lists_and_maps_are_dropped_too_where_they_had_expired() -> None:
    run = harness(nulls(duration=10, on_disable="drop_expired"))
    step(0, run, event("write", 7))
    step(95, run, event("write", 8, k="young"))
    run.set_clocks(now=100)
    run.restart(Nulls())
    assert look(run, "list", "a") == []
    assert run.state("young") == {"list": [None, 8], "map": {"none": None, "x": 8}}


def test_another_number_of_key_groups_is_refused_and_nothing_is_lost() -> None:
    run = harness(holding("value"), key_groups=4)
    run.send(*(event("write", 7, k=each) for each in "abcdef"))
    with pytest.raises(Invalid, match="key_groups differs from the checkpoint") as caught:
        run.restart(key_groups=5)
    assert caught.value.expected == "key_groups=4"
    run.send(event("write", 7, k="g"))
    assert sorted(run.keys()) == [(each,) for each in "abcdefg"]


# Errors


class Fragile(hf.Keyed):
    sums = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> tuple[str]:
        state.sums += 1
        if event.op == "raise":
            raise KeyError(event.name)
        return (f"{event.v}:{state.sums}",)


def test_a_batch_that_fails_changes_nothing_and_names_its_place() -> None:
    run = harness(Fragile(), name="fragile")
    run.send(event("x", 1))
    with pytest.raises(Failed) as caught:
        run.send(event("x", 2), event("raise", 3, "it"))
    text = str(caught.value)
    assert "Fragile.on_event failed: KeyError: 'it'" in text
    assert "operator fragile, key k='a', stream event, batch 1, at " in text
    assert "test_harness.py:" in text
    assert reads(run.send(event("x", 4))) == ["4:2"]


def test_events_that_fail_are_set_aside_and_the_others_count() -> None:
    run = harness(Fragile(), on_error="dead-letter")
    rows = run.send(event("x", 1), event("raise", 2, "it"), event("x", 3), event("raise", 4, k="b"))
    assert reads(rows) == ["1:1", "3:2"]
    assert [(each["k"], each["v"]) for each in run.failed_events] in (
        [("a", 2), ("b", 4)],
        [("b", 4), ("a", 2)],
    )
    assert "KeyError" in run.failed_events[0]["error"]
    assert run.keys() == [("a",)]


def test_clocks_do_not_go_back() -> None:
    run = timed(holding("value"), now=10)
    with pytest.raises(Invalid, match="cannot move backwards"):
        run.at(9)
    run.watermark(5)
    with pytest.raises(Invalid, match="cannot move backwards"):
        run.watermark(4)
    with pytest.raises(Invalid, match="no stream has an event-time column"):
        harness(holding("value")).watermark(5)


def test_what_is_not_there_is_said() -> None:
    run = harness(holding("value"))
    with pytest.raises(NotFound, match="no state"):
        run.state("nobody")
    with pytest.raises(NotFound, match="unknown stream"):
        run.send(event("x"), stream="other")
    with pytest.raises(Invalid, match="wrong number of key values"):
        run.state("a", "b")


def test_a_processor_without_states_or_timers_is_run() -> None:
    class Doubling(hf.Keyed):
        def on_event(self, event: Any, state: Any, ctx: Any) -> tuple[str]:
            return (str(2 * event.v),)

    run = harness(Doubling())
    assert reads(run.send(event("x", 2), event("x", 3, k="b"))) == unordered(iter(["4", "6"]))
    assert run.keys() == []


def test_keys_that_are_not_plain_text() -> None:
    class Count(hf.Keyed):
        n = hf.value("long", default=0)

        def on_event(self, event: Any, state: Any, ctx: Any) -> tuple[str]:
            state.n += 1
            return (f"{ctx.key!r} {state.n}",)

    run = Harness(Count(), by=["x", "s"], events="x double, s string", output="read string")
    nan = float("nan")
    keys = [(nan, None), (-0.0, "a"), (0.0, "a"), (nan, None), (None, None), (0.0, None)]
    for x, s in keys:
        run.send({"x": x, "s": s})
    counts = {str(key): 0 for key in ("nan", "zero", "none", "zero none")}
    assert run.state(nan, None)["n"] == 2
    assert run.state(0.0, "a")["n"] == run.state(-0.0, "a")["n"] == 2
    assert run.state(None, None)["n"] == 1
    assert run.state(0.0, None)["n"] == 1
    assert len(run.keys()) == len(counts)


class Combined(hf.KeyedTable):
    combined = "user string, amount double, n long"
    n = hf.value("long", default=0)

    def combine(self, events: pa.Table) -> pa.Table:
        return (
            events.group_by("user")
            .aggregate([("amount", "sum"), ("amount", "count")])
            .rename_columns(["user", "amount", "n"])
        )

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        state.n.set(state.n.get() + state.sums(events["n"]))
        return state.table(n=state.n.get())


def test_events_are_combined_as_before_a_shuffle() -> None:
    harness = Harness(
        Combined(), by="user", events="user string, amount double", output="user string, n long"
    )
    rows = harness.send(
        {"user": "ann", "amount": 1.0}, {"user": "bob", "amount": 2.0}, {"user": "ann", "amount": 3.0}
    )
    assert {row["user"]: row["n"] for row in rows} == {"ann": 2, "bob": 1}


def test_an_event_that_does_not_fit_is_the_tests_mistake() -> None:
    harness = Harness(
        Combined(), by="user", events="user string, amount double", output="user string, n long"
    )
    with pytest.raises(hf.Invalid, match="event 2 of stream event"):
        harness.send({"user": "ann", "amount": 1.0}, {"user": "bob"})


def test_a_former_form_is_gone_once_its_group_was_written() -> None:
    def processor(**states: Any) -> hf.Keyed:
        def on_event(self: Any, event: Any, state: Any, ctx: Any) -> None:
            for name in states:
                setattr(state, name, 1)

        made: hf.Keyed = type("Counted", (hf.Keyed,), {**states, "on_event": on_event})()
        return made

    harness = Harness(
        processor(count=hf.value("long")), by="user", events="user string", output="user string"
    )
    harness.send({"user": "ann"}, {"user": "bob"})
    harness.restart(processor(visits=hf.value("long", was="count")))
    with pytest.raises(hf.Invalid, match="does not declare"):
        harness.restart(processor(other=hf.value("long")), drop=["visits"])
    harness.send({"user": "ann"}, {"user": "bob"})
    harness.restart(processor(other=hf.value("long")), drop=["visits"])
    assert harness.state("ann") == {"other": None}
