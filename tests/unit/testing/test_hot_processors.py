"""Hot keys: split and unsplit runs agree with the model, and what cannot be split exactly is refused."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Sequence
from typing import Any

import pytest
from keyed_runs import EPOCH
from split_programs import EVENTS, OUTPUT, Basket, batches, expected

import holdfast as hf
from holdfast.errors import Failed, Invalid, Unsupported
from holdfast.testing import Harness

pytestmark = pytest.mark.slow

START = 1_700_000_000_000


def timed(batch: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**each, "ts": EPOCH + dt.timedelta(milliseconds=each["ts"])} for each in batch]


def harness(processor: hf.Keyed | hf.KeyedTable | None = None, **more: Any) -> Harness:
    return Harness(processor or Basket(), by="who", events=EVENTS, output=OUTPUT, now=START, **more)


@pytest.mark.parametrize("split_rows", [None, 1, 3, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_random_events_come_out_as_in_the_model_however_they_are_split(
    seed: int, split_rows: int | None
) -> None:
    made = batches(seed, count=6, size=40, start=START)
    running = harness(split_rows=split_rows)
    found = []
    for number, batch in enumerate(made):
        if number == 3:
            running.restart()
        found.append({tuple(row.values()) for row in running.send(*timed(batch))})
    assert found == expected(made)


def test_the_state_does_not_show_what_was_split() -> None:
    made = batches(7, count=4, size=30, start=START)
    runs = [harness(split_rows=rows) for rows in (None, 2)]
    for batch in made:
        for running in runs:
            running.send(*timed(batch))
    one, other = ({key: each.state(*key) for key in list(each.keys())} for each in runs)
    for state in (*one.values(), *other.values()):
        state["amounts"] = sorted(state["amounts"])
    assert one == other
    assert set(one) == {(event["who"],) for batch in made for event in batch}


class Noted(hf.Keyed):
    """Uses what is known beside the state only."""

    n = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        state.n += 1
        if event.item == "timer":
            ctx.timer(START + 5_000)
        elif event.item == "watermark" and ctx.watermark is None:
            state.n += 100

    def merge(self, state: Any, part: Any) -> None:
        state.n += part.n

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Any:
        return ctx.key.who, state.n, None, None, None, None, "timer"

    def on_end(self, state: Any, ctx: Any) -> Any:
        if state.n == 3:
            ctx.timer(ctx.now_ms + 1_000)
        return ctx.key.who, state.n, None, ctx.now_ms, None, None, "end"


def event(who: str | None = "ann", item: str = "a", amount: int = 1) -> dict[str, Any]:
    return {"who": who, "item": item, "amount": amount, "ts": None}


def test_on_end_comes_once_a_batch_with_the_batch_s_time_and_may_set_timers() -> None:
    for split_rows in (None, 1):
        running = harness(Noted(), split_rows=split_rows)
        assert [row["n"] for row in running.send(event(), event(), event())] == [3]
        assert running.at(START + 999) == []
        (row,) = running.at(START + 1_000)
        assert (row["who"], row["n"], row["kinds"]) == ("ann", 3, "timer")
        (row,) = running.send(event())
        assert (row["n"], row["least"]) == (4, START + 1_000)


@pytest.mark.parametrize("item", ["timer", "watermark"])
def test_what_is_not_known_before_the_shuffle_is_refused_there(item: str) -> None:
    assert harness(Noted()).send(event(item=item))
    with pytest.raises(Failed, match="events of a hot key are merged"):
        harness(Noted(), split_rows=2).send(event(item=item))


class Times(hf.Keyed):
    """Keeps the times at which events were met, and which of them came in parts."""

    seen = hf.list("long")
    parts = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        state.seen.append(ctx.now_ms)

    def merge(self, state: Any, part: Any) -> None:
        state.seen.extend(part.seen)
        state.parts += 1

    def on_end(self, state: Any, ctx: Any) -> Any:
        return ctx.key.who, state.parts, None, min(state.seen), None, repr(sorted(state.seen)), None


class TimesHeld(Times):
    """The same by a function that only the instance knows, and that takes no error for an answer."""

    def __init__(self) -> None:
        self.rule = now_of

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        state.seen.append(self.rule(ctx))


def now_of(ctx: Any) -> int:
    try:
        return int(ctx.now.timestamp() * 1000)
    except Exception:
        return 0


@pytest.mark.parametrize(("processor", "parts"), [(Times, 3), (TimesHeld, 0)])
def test_the_batch_s_time_is_the_same_before_the_shuffle(processor: type[Times], parts: int) -> None:
    """Where it is not seen beforehand that the time is asked for, events go as they are."""
    running = harness(processor(), split_rows=2)
    (row,) = running.send(*[event()] * 5)
    assert (row["n"], row["items"]) == (parts, repr([START] * 5))
    running.at(START + 500)
    (row,) = running.send(event(), event())
    assert row["items"] == repr([START] * 5 + [START + 500] * 2)


class NoMerge(hf.Keyed):
    n = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        return None


class Sums(NoMerge):
    n = hf.reducing("double", hf.add)

    def merge(self, state: Any, part: Any) -> None:
        state.n.merge(part.n)


class PythonSums(Sums):
    n = hf.reducing("double", operator.add)


class Aged(NoMerge):
    n = hf.value("long", ttl=hf.ttl("1 day", clock="event"))

    def merge(self, state: Any, part: Any) -> None:
        state.n = part.n


def test_what_has_no_exact_split_is_refused_with_the_reason() -> None:
    with pytest.raises(Invalid, match="the processor has no merge"):
        harness(NoMerge(), split_rows=1)
    for sums in (Sums(), PythonSums()):
        with pytest.raises(Unsupported, match="depends on the order"):
            harness(sums, split_rows=1)
    with pytest.raises(Unsupported, match="it starts at each event"):
        harness(Aged(), split_rows=1, time="ts", late="keep")
    with pytest.raises(Invalid, match="while late events are dropped"):
        harness(split_rows=1, time="ts")
    with pytest.raises(Invalid, match="while failed events are set aside"):
        harness(split_rows=1, on_error="dead-letter")


class Talks(Noted):
    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        return ("ann", 1, None, None, None, None, None)


class Generates(Noted):
    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        yield ("ann", 1, None, None, None, None, None)


class WholeKeys(hf.Keyed):
    n = hf.value("long", default=0)

    def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> None:
        pass

    def merge(self, state: Any, part: Any) -> None:
        pass


def test_a_processor_with_merge_gives_its_rows_at_the_end() -> None:
    with pytest.raises(Failed, match="cannot return rows"):
        harness(Talks()).send(event())
    with pytest.raises(Invalid, match="cannot return rows"):
        harness(Generates())
    with pytest.raises(Invalid, match="on_event on a single stream"):
        harness(WholeKeys())


class Breaks(Noted):
    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        state.n += 10 // event.amount


def test_an_error_in_a_part_names_the_key() -> None:
    running = harness(Breaks(), split_rows=2)
    with pytest.raises(Failed, match="ZeroDivisionError") as caught:
        running.send(event(), event("bob", amount=0))
    assert "who='bob'" in str(caught.value)


def test_one_that_merges_wrongly_is_seen_to_differ() -> None:
    class Forgets(Basket):
        def merge(self, state: Any, part: Any) -> None:
            state.n = part.n

    made = batches(1, count=3, size=30, start=START)
    one, other = harness(Forgets()), harness(Forgets(), split_rows=2)
    assert [one.send(*timed(batch)) for batch in made] != [other.send(*timed(batch)) for batch in made]


def by_letter(who: str | None) -> int:
    return 0 if who is None else ord(who[0]) % 4


def test_a_placement_decides_the_group_and_nothing_else() -> None:
    made = batches(3, count=5, size=30, start=START)
    running = harness(placement=by_letter, key_groups=4)
    found = []
    for batch in made:
        found.append({tuple(row.values()) for row in running.send(*timed(batch))})
        running.restart()
    assert found == expected(made)
    assert running.state("ann")["n"] == sum(each["who"] == "ann" for batch in made for each in batch)
    groups = {group for group, meta in enumerate(running.inspect.store.metas(range(4))) if meta is not None}
    assert groups == {by_letter(who) for who in ("ann", "bob", "cyd", None)}


def test_a_placement_that_changes_its_mind_ends_the_batch_and_loses_nothing() -> None:
    moving = {"ann": 1, "bob": 2}
    running = harness(placement=lambda who: moving[who], key_groups=4)
    running.send(event("ann"), event("bob"))
    moving["ann"] = 3
    with pytest.raises(Invalid, match="the placement function is not stable") as caught:
        running.restart()
    assert "who='ann'" in str(caught.value)
    moving["ann"] = 1
    running.send(event("ann"))
    assert running.state("ann")["n"] == 2


@pytest.mark.parametrize("group", [-1, 4, 1.0, None, True])
def test_a_placement_that_names_no_group_is_refused(group: Any) -> None:
    with pytest.raises(Invalid, match="did not return a valid key group"):
        harness(placement=lambda who: group, key_groups=4).send(event())


def test_a_placement_that_raises_is_named_with_the_key() -> None:
    with pytest.raises(Failed, match="ZeroDivisionError"):
        harness(placement=lambda who: 1 // 0, key_groups=4).send(event())
