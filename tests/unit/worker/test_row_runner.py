from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from passes import EVENTS, INSTANT, Passes, event

from holdfast.errors import Failed
from holdfast.worker.declarations.processor import Keyed
from holdfast.worker.declarations.state_descriptors import Aggregate, State, StateKind, Ttl, add, greatest
from holdfast.worker.runtime import row_runner

LONG, DOUBLE, TEXT = pa.int64(), pa.float64(), pa.string()
OUT = {"user": TEXT, "visits": LONG}
A, B, C = ("a",), ("b",), ("c",)


class Visits(Keyed):
    visits = State(StateKind.VALUE, LONG, default=0)
    spend = State(StateKind.REDUCING, DOUBLE, function=add)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        state.visits += 1
        state.spend.add(event.amount)
        yield {"user": ctx.key.user, "visits": state.visits, "spend": state.spend.get()}


def test_events_of_a_key_come_in_order_and_keys_in_theirs() -> None:
    passes = Passes(Visits(), {**OUT, "spend": DOUBLE})
    found = passes.run([event("b", 1.5), event("a", 4), event("b", 2)], touch=[C])
    assert [tuple(row.values()) for row in found] == [("b", 1, 1.5), ("b", 2, 3.5), ("a", 1, 4.0)]
    assert passes.memory.rows == {
        B: {"s:visits": 2, "s:spend": 3.5},
        A: {"s:visits": 1, "s:spend": 4.0},
        C: {},
    }
    found = passes.run([event("a", 1)])
    assert [tuple(row.values()) for row in found] == [("a", 2, 5.0)]


def test_many_events_of_a_key_stay_in_order() -> None:
    class Amounts(Keyed):
        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            return (event.user, int(event.amount))

    found = Passes(Amounts(), OUT).run([event("bca"[at % 3], at) for at in range(600)])
    expected = [(user, at) for first, user in enumerate("bca") for at in range(first, 600, 3)]
    assert [(row["user"], row["visits"]) for row in found] == expected


def test_a_pass_without_keys_changes_nothing() -> None:
    passes = Passes(Visits(), {**OUT, "spend": DOUBLE})
    assert passes.run([]) == []
    assert passes.columns == []


def test_any_division_of_the_keys_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [event("abcdefg"[at % 7], at) for at in range(50)]
    whole = Passes(Visits(), {**OUT, "spend": DOUBLE})
    expected = whole.run(events)
    for keys, at_once in ((1, 100), (3, 100), (100, 1), (100, 9)):
        monkeypatch.setattr(row_runner, "_KEYS_AT_ONCE", keys)
        monkeypatch.setattr(row_runner, "_EVENTS_AT_ONCE", at_once)
        divided = Passes(Visits(), {**OUT, "spend": DOUBLE})
        assert divided.run(events) == expected
        assert divided.memory.rows == whole.memory.rows


def test_what_did_not_change_is_left_out() -> None:
    class Reads(Visits):
        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            return {"user": event.user, "visits": state.visits}

    passes = Passes(Reads(), OUT)
    assert passes.run([event("a")]) == [{"user": "a", "visits": 0}]
    assert passes.columns == []
    assert passes.memory.rows == {}


class Plain(Keyed):
    """Does what the event's user says, so that a test can be about one line."""

    n = State(StateKind.VALUE, LONG)
    base = State(StateKind.VALUE, LONG, default=7)
    tags = State(StateKind.VALUE, pa.list_(TEXT), default=["x"])
    most = State(StateKind.REDUCING, DOUBLE, function=greatest)
    basket = State(StateKind.LIST, TEXT)
    drinks = State(StateKind.MAP, LONG, key_type=TEXT)

    def __init__(self, *steps: Any) -> None:
        self.steps = steps

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        return {"seen": repr(self.steps[int(event.amount)](state))}


def seen(processor: Any, after: Passes | None = None) -> tuple[list[str], Passes]:
    """What each step saw, all of them in one pass; over the state that another processor left."""
    passes = Passes(processor, {"seen": TEXT})
    if after is not None:
        passes.memory = after.memory
        passes.memory.loads.clear()
    found = passes.run([event("a", at) for at in range(len(processor.steps))])
    return [row["seen"] for row in found], passes


def test_a_value_is_unset_until_it_is_assigned() -> None:
    found, passes = seen(
        Plain(
            lambda s: (s.n, s.base),
            lambda s: setattr(s, "base", 7),
            lambda s: setattr(s, "n", 3),
            lambda s: (s.n, s.base),
        )
    )
    assert found == ["(None, 7)", "None", "None", "(3, 7)"]
    assert passes.memory.rows[A] == {"s:n": 3, "s:base": 7}


def test_del_and_clear_unset() -> None:
    def drop(state: Any) -> Any:
        del state.n, state.base, state.tags, state.most, state.basket, state.drinks
        return state.n, state.base, state.tags, state.most.get(), list(state.basket), dict(state.drinks)

    def fill(state: Any) -> None:
        state.n, state.base, state.tags = 1, 2, ["y"]
        state.most.add(1.0)
        state.basket.append("tea")
        state.drinks["tea"] = 1

    found, passes = seen(Plain(drop, fill, drop, fill, lambda s: s.clear(), drop))
    gone = "(None, 7, ['x'], None, [], {})"
    assert found == [gone, "None", gone, "None", "None", gone]
    assert passes.memory.rows.get(A, {}) == {}
    assert passes.memory.list_of(A, "basket") == []


def test_values_with_parts_are_assigned_not_changed() -> None:
    found, passes = seen(Plain(lambda s: setattr(s, "tags", ("p", "q")), lambda s: s.tags))
    assert found == ["None", "['p', 'q']"]
    assert passes.memory.rows[A] == {"s:tags": ["p", "q"]}
    with pytest.raises(Failed, match="cannot be changed in place") as refused:
        seen(Plain(lambda s: s.tags.append("r")), passes)
    assert passes.memory.rows[A] == {"s:tags": ["p", "q"]}
    assert "key user='a'" in str(refused.value)


class Baskets(Keyed):
    """Puts parts into maps of arrays and of maps as the event's amount says."""

    arrays = State(StateKind.MAP, pa.list_(LONG), key_type=DOUBLE)
    maps = State(StateKind.MAP, pa.map_(TEXT, LONG), key_type=TEXT, ttl=Ttl(10, clock="event"))

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        if event.amount == 0:
            assert state.arrays.setdefault(float("nan"), (1,)) == [1]
            assert state.maps.setdefault("a", {"b": 1}) == {"b": 1}
        elif event.amount == 1:
            state.arrays.setdefault(0.0, []).append(1)
        else:
            state.maps.setdefault("b", {})["c"] = 1


def test_the_default_that_a_map_keeps_is_not_changed_in_place() -> None:
    passes = Passes(Baskets(), {})
    passes.run([event("a", 0)], watermark=5)
    passes.run([event("a", 0)], watermark=500)  # what is written is as old as its event, so it has expired
    for amount in (1, 2):
        with pytest.raises(Failed, match="cannot be changed in place"):
            passes.run([event("a", amount)])
    assert [row["v"] for row in passes.memory.elements["arrays"][A].values()] == [[1]]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: setattr(s, "nn", 1), "nn"),
        (lambda s: s.nn, "unknown state 'nn' of \\w+; expected n, base, tags, most, basket, drinks"),
        (lambda s: setattr(s, "most", 1.0), r"use state.most.add\(…\)"),
        (lambda s: setattr(s, "basket", []), r"use state.basket.set\(\[…\]\)"),
        (lambda s: setattr(s, "drinks", {}), r"use state.drinks\[key\] = value"),
        (lambda s: setattr(s, "tags", None), "use `del state.tags`"),
        (lambda s: setattr(s, "tags", "ab"), "an array takes a list"),
        (lambda s: s.most.add(None), "None cannot be added"),
        (lambda s: s.drinks.update({None: 1}), "a map key cannot be None"),
    ],
)
def test_mistakes_with_state_are_named_where_they_are_made(step: Any, message: str) -> None:
    with pytest.raises(Failed, match=message) as refused:
        seen(Plain(step))
    assert f"{Path(__file__)}:" in str(refused.value)


# Found at the end of the pass, when all values of a state become a column.
@pytest.mark.parametrize(
    ("step", "state", "found"),
    [
        (lambda s: setattr(s, "n", "x"), "n", "'x', which is str"),
        (lambda s: setattr(s, "n", 1.5), "n", "1.5, which is float"),
        (lambda s: setattr(s, "n", 2**63), "n", f"{2**63}, which is int"),
        (lambda s: setattr(s, "base", None), "base", None),
        (lambda s: setattr(s, "tags", [1]), "tags", "1, which is int"),
        (lambda s: s.most.add("x"), "most", "'x', which is str"),
        (lambda s: s.basket.append(1), "basket", "1, which is int"),
        (lambda s: s.drinks.update(tea="x"), "drinks", "'x', which is str"),
        (lambda s: s.drinks.update({1: 1}), "drinks", "1, which is int"),
    ],
)
def test_a_wrong_value_names_operator_state_key_and_batch(step: Any, state: str, found: str | None) -> None:
    passes = Passes(Plain(lambda _: None, step), {"seen": TEXT})
    with pytest.raises(Failed) as refused:
        passes.run([event("b", 0), event("a", 1), event("c", 0)], batch=12)
    assert refused.value.found == found
    assert refused.value.where == f"operator regulars, state {state}, key user='a', batch 12"


def test_a_wrong_row_names_its_key_and_column() -> None:
    class Wrong(Visits):
        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            yield {"user": event.user, "visits": 1 if event.user != "b" else "many"}

    with pytest.raises(Failed, match="cannot output a row") as refused:
        Passes(Wrong(), OUT).run([event("a"), event("b"), event("c")])
    assert refused.value.where == "operator regulars, key user='b', batch 1, output column visits"
    assert refused.value.found == "'many', which is str"


class Handlers(Keyed):
    def __init__(self, result: Any) -> None:
        self.result = result

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        return self.result


@pytest.mark.parametrize(
    ("result", "count"),
    [
        (None, 0),
        ({"user": "a", "visits": 1}, 1),
        (("a", 1), 1),
        ([("a", 1), {"user": "a", "visits": 1}], 2),
        (iter([("a", 1)]), 1),
        ([], 0),
    ],
)
def test_a_handler_gives_nothing_a_row_or_rows(result: Any, count: int) -> None:
    assert Passes(Handlers(result), OUT).run([event("a")]) == [{"user": "a", "visits": 1}] * count


@pytest.mark.parametrize("result", ["row", 5, [5]])
def test_what_is_no_row_is_refused(result: Any) -> None:
    with pytest.raises(Failed, match="a returned row does not match `output`"):
        Passes(Handlers(result), OUT).run([event("a")])


def test_lists() -> None:
    found, passes = seen(
        Plain(
            lambda s: (len(s.basket), bool(s.basket), list(s.basket)),
            lambda s: s.basket.extend(["tea", "milk"]),
            lambda s: (s.basket[0], s.basket[-1], s.basket[:1], "tea" in s.basket, s.basket.index("milk")),
            lambda s: (list(reversed(s.basket)), s.basket == ["tea", "milk"], s.basket != ["tea"]),
        )
    )
    assert found == [
        "(0, False, [])",
        "None",
        "('tea', 'milk', ['tea'], True, 1)",
        "(['milk', 'tea'], True, True)",
    ]
    assert (passes.memory.list_of(A, "basket"), passes.memory.value(A, "n:basket")) == (["tea", "milk"], 2)


def test_appending_reads_no_element() -> None:
    _, passes = seen(Plain(lambda s: s.basket.extend(["tea", "milk"])))
    _, following = seen(Plain(lambda s: s.basket.append("jam")), passes)
    assert following.memory.loads == []
    assert following.memory.list_of(A, "basket") == ["tea", "milk", "jam"]
    assert following.memory.slots(A, "basket") == [0, 1, 2]


def test_a_list_is_replaced_and_emptied() -> None:
    _, passes = seen(Plain(lambda s: s.basket.extend(["tea", "milk"])))
    replace = Plain(lambda s: s.basket.append("jam"), lambda s: s.basket.set(reversed(s.basket)))
    _, passes = seen(replace, passes)
    assert passes.memory.list_of(A, "basket") == ["jam", "milk", "tea"]
    assert passes.memory.slots(A, "basket") == [2, 3, 4]
    empty = Plain(lambda s: s.basket.clear())
    _, passes = seen(empty, passes)
    assert passes.memory.list_of(A, "basket") == []
    assert passes.memory.value(A, "n:basket") is None


def test_maps() -> None:
    found, passes = seen(
        Plain(
            lambda s: (len(s.drinks), bool(s.drinks), s.drinks.get("tea", 0), "tea" in s.drinks),
            lambda s: s.drinks.update(tea=1, milk=2),
            lambda s: (
                s.drinks["tea"],
                list(s.drinks),
                list(s.drinks.items()),
                s.drinks.setdefault("jam", 3),
            ),
            lambda s: (
                s.drinks.pop("tea"),
                s.drinks.pop("tea", None),
                dict(s.drinks),
                s.drinks == {"milk": 2, "jam": 3},
            ),
            lambda s: s.drinks.popitem(),
        )
    )
    assert found == [
        "(0, False, 0, False)",
        "None",
        "(1, ['tea', 'milk'], [('tea', 1), ('milk', 2)], 3)",
        "(1, None, {'milk': 2, 'jam': 3}, True)",
        "('milk', 2)",
    ]
    assert passes.memory.map_of(A, "drinks") == {"jam": 3}


def test_a_map_entry_keeps_its_slot_until_it_is_removed() -> None:
    _, passes = seen(Plain(lambda s: s.drinks.update(tea=1, milk=2)))
    change = Plain(lambda s: s.drinks.update(tea=5))
    _, passes = seen(change, passes)
    assert passes.memory.slots(A, "drinks") == [0, 1]
    again = Plain(lambda s: s.drinks.pop("tea"), lambda s: s.drinks.update(tea=6), lambda s: list(s.drinks))
    found, passes = seen(again, passes)
    assert found[-1] == "['milk', 'tea']"
    assert (passes.memory.slots(A, "drinks"), passes.memory.map_of(A, "drinks")) == (
        [1, 2],
        {"milk": 2, "tea": 6},
    )
    empty = Plain(lambda s: s.drinks.clear())
    _, passes = seen(empty, passes)
    assert (passes.memory.map_of(A, "drinks"), passes.memory.value(A, "n:drinks")) == ({}, None)


def test_all_entries_are_read_once() -> None:
    class Reads(Plain):
        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            state.drinks[event.user] = len(state.drinks)

    passes = Passes(Reads(), {"seen": TEXT})
    passes.run([event(user) for user in "abcab"])
    assert passes.memory.loads == ["drinks"]
    assert passes.memory.map_of(B, "drinks") == {"b": 1}


def test_equal_keys_of_a_map_are_one() -> None:
    class Odd(Keyed):
        by_number = State(StateKind.MAP, LONG, key_type=DOUBLE)
        by_time = State(StateKind.MAP, LONG, key_type=INSTANT)

        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            nan = float("nan")
            state.by_number[nan] = state.by_number.get(nan, 0) + 1
            noon = dt.datetime(2020, 1, 1, 12)
            state.by_time[noon] = state.by_time.get(noon.replace(tzinfo=dt.timezone.utc), 0) + 1
            return {"user": "a", "visits": state.by_number[nan] * 10 + state.by_time[noon]}

    passes = Passes(Odd(), OUT)
    assert [row["visits"] for row in passes.run([event("a"), event("a")])] == [11, 22]
    assert [row["visits"] for row in passes.run([event("a")])] == [33]


class Mean(Aggregate):
    def create(self) -> Any:
        return {"n": 0, "total": 0.0}

    def add(self, accumulator: Any, value: float) -> Any:
        accumulator["n"] += 1
        accumulator["total"] += value
        return accumulator

    def result(self, accumulator: Any) -> float:
        return float(accumulator["total"] / accumulator["n"])


class MeanInTuples(Mean):
    def create(self) -> Any:
        return (0, 0.0)

    def add(self, accumulator: Any, value: float) -> Any:
        return (accumulator["n"] + 1, accumulator["total"] + value)


@pytest.mark.parametrize("aggregate", [Mean(), MeanInTuples()])
@pytest.mark.parametrize("ttl", [None, Ttl(10)])
def test_aggregates(aggregate: Aggregate, ttl: Ttl | None) -> None:
    struct = pa.struct([("n", LONG), ("total", DOUBLE)])

    class Means(Keyed):
        mean = State(StateKind.AGGREGATING, struct, aggregate=aggregate, ttl=ttl)

        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            before = state.mean.get()
            state.mean.add(event.amount)
            return {"before": before, "after": state.mean.get()}

    passes = Passes(Means(), {"before": DOUBLE, "after": DOUBLE})
    assert passes.run([event("a", 1), event("a", 2)]) == [
        {"before": None, "after": 1.0},
        {"before": 1.0, "after": 1.5},
    ]
    assert passes.run([event("a", 6)], now=9) == [{"before": 1.5, "after": 3.0}]
    assert passes.memory.value(A, "s:mean") == {"n": 3, "total": 9.0}
    late = passes.run([event("a", 5)], now=19)
    assert late == [{"before": 3.0, "after": 3.5} if ttl is None else {"before": None, "after": 5.0}]


def test_connected_streams_share_state_and_come_one_after_the_other() -> None:
    class Joined(Keyed):
        n = State(StateKind.VALUE, LONG, default=0)

        def on_orders(self, event: Any, state: Any, ctx: Any) -> Any:
            state.n += 1
            return (event.user, state.n)

        def on_payments(self, event: Any, state: Any, ctx: Any) -> Any:
            state.n += 10
            yield (event.user, state.n)

    passes = Passes(Joined(), OUT, streams={"orders": EVENTS, "payments": EVENTS})
    found = passes.run([event("a"), event("b")], [event("b"), event("a"), event("c")])
    assert [tuple(row.values()) for row in found] == [("a", 1), ("a", 11), ("b", 1), ("b", 11), ("c", 10)]


def test_on_key_gets_all_events_of_a_key() -> None:
    class Whole(Keyed):
        n = State(StateKind.VALUE, LONG, default=0)

        def on_key(self, key: Any, events: Any, state: Any, ctx: Any) -> Any:
            state.n += sum(int(each.amount) for each in events)
            assert ctx.key == key
            return (key.user, state.n * 100 + len(events))

    passes = Passes(Whole(), OUT)
    found = passes.run([event("b", 1), event("a", 2), event("b", 3)], touch=[C])
    assert [tuple(row.values()) for row in found] == [("b", 402), ("a", 201)]


def test_keys_may_be_compound_and_null() -> None:
    keys = pa.schema([("shop", LONG), ("user", TEXT)])
    schema = pa.schema([("shop", LONG), ("user", TEXT)])

    class Pairs(Visits):
        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            state.visits += 1
            return (f"{ctx.key.shop}/{ctx.key.user}", state.visits)

    passes = Passes(Pairs(), OUT, keys=keys, streams={"events": schema}, time=None)
    given: list[dict[str, Any]] = [
        {"shop": 1, "user": None},
        {"shop": None, "user": "a"},
        {"shop": 1, "user": None},
    ]
    assert [tuple(row.values()) for row in passes.run(given)] == [("1/None", 1), ("1/None", 2), ("None/a", 1)]


def test_on_start_comes_once_and_first() -> None:
    class Starts(Visits):
        def on_start(self, ctx: Any) -> None:
            self.started = getattr(self, "started", 0) + 1
            self.at = ctx.now_ms
            with pytest.raises(Exception, match="no current key"):
                _ = ctx.key

        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            return (str(self.started), self.at)

    passes = Passes(Starts(), OUT)
    assert (
        passes.run([event("a")], now=5) + passes.run([event("a")], now=6) == [{"user": "1", "visits": 5}] * 2
    )


def test_the_context_tells_the_time_and_the_batch() -> None:
    class Asks(Keyed):
        def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
            watermark = ctx.watermark and ctx.watermark.second
            return {"seen": f"{ctx.now:%S} {watermark} {ctx.watermark_ms} {ctx.batch_id}"}

    passes = Passes(Asks(), {"seen": TEXT})
    assert passes.run([event("a")], now=5_000, watermark=2_000, batch=3) == [{"seen": "05 2 2000 3"}]
    assert passes.run([event("a")], now=5_000, watermark=None) == [{"seen": "05 None None 1"}]
    assert Passes(Handlers(None), OUT).run([]) == []
