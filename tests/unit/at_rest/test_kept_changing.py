"""Keyed state changed at rest: what is refused, what is left, and groups that are not like most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from instance_programs import EVENTS as NUMBERS
from instance_programs import OUTPUT as HELD
from instance_programs import Holds
from kept_state import Shop, groups_of, hold, kept
from python_steps import steps_of

import holdfast as hf
from holdfast.at_rest.keyed_reader import KeyedStateReader
from holdfast.changes.keyed.group_changes import changed, without_shared
from holdfast.changes.keyed.store_rows import GroupChange, KeyChange
from holdfast.checkpoints.keyed import KeyTimer
from holdfast.errors import Invalid, NotFound, Unsupported
from holdfast.testing import Harness
from holdfast.worker.runtime.broadcast import Broadcast
from holdfast.worker.state import group_writes

EVENTS = "who string, n long"


class Everything(hf.Keyed):
    last = hf.value("struct<n: long, at: timestamp>")
    total = hf.reducing("long", hf.add)
    all = hf.list("long")
    by = hf.map("string", "long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.total.add(event.n)
        state.all.append(event.n)
        state.by[event.who or "nobody"] = event.n
        ctx.timer(1_000 + event.n, name="soon", clock="processing")
        return iter(())

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        yield (f"{ctx.key.who} {timer.name}",)


class Count(hf.Keyed):
    n = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.n += 1
        yield (f"{event.who} {state.n}",)


def shop(processor: Any = None, **more: Any) -> Shop:
    made = Shop(processor or Everything(), by="who", events=EVENTS, output="said string", now=5, **more)
    made.send(*({"who": who, "n": n} for n, who in enumerate(["ann", "bob", "cyd", None])))
    return made


def apply(made: Harness, done: Iterable[GroupChange]) -> None:
    hold(made, [each.after for each in done if each.after is not None])


def values(made: Harness) -> dict[Any, Any]:
    return {row.key[0]: row.values for row in kept(made).rows()}


def test_states_are_set_and_taken_away_and_the_others_stay() -> None:
    made = shop()
    before = values(made)
    asked = KeyChange(
        "ann",
        {"last": {"n": 7, "at": None}, "total": None, "by": [("x", 1), ("y", None)]},
        timers=[KeyTimer("now", "processing", 5)],
    )
    apply(made, changed(kept(made), [asked]))
    after = values(made)
    assert after.pop("ann") == {"last": {"n": 7, "at": None}, "all": [0], "by": {"x": 1, "y": None}}
    assert after == {who: each for who, each in before.items() if who != "ann"}
    # The group is woken by the timer that was set.
    assert [row["said"] for row in made.at(10)] == ["ann now"]


def test_what_is_removed_is_in_no_byte_of_its_group() -> None:
    made = shop()
    made.send({"who": "zebra-crossing", "n": 1 << 40})
    number = kept(made).group_of("zebra-crossing")
    held = {each.group: each for each in groups_of(made.inspect.store)}[number]
    assert any(b"zebra-crossing" in blob for blob in (*held.base, *held.log))
    done = changed(kept(made), [KeyChange("zebra-crossing", remove=True), KeyChange("dan", remove=True)])
    assert len(done) == 1
    after = done[0].after
    assert after is not None
    assert after.log == ()
    assert not any(b"zebra-crossing" in each for each in (*after.base, after.forms, after.meta or b""))
    apply(made, done)
    assert made.send({"who": "zebra-crossing", "n": 2}) == []
    assert values(made)["zebra-crossing"]["total"] == 2


def test_a_group_is_another_version_so_that_no_working_copy_is_taken_for_it() -> None:
    made = shop(key_groups=1)
    done = changed(kept(made), [KeyChange("ann", {"total": 1})])
    [group] = done
    assert group.before is not None
    assert group.after is not None
    assert group.before.record("here").token != group.after.record("here").token


def test_a_group_without_any_key_left() -> None:
    made = shop(key_groups=1)
    apply(made, changed(kept(made), [KeyChange(who, remove=True) for who in ("ann", "bob", "cyd", None)]))
    assert values(made) == {}
    assert made.at(5_000) == []
    made.send({"who": "ann", "n": 3})
    assert values(made)["ann"]["all"] == [3]


def test_a_key_whose_last_state_is_taken_away_is_gone() -> None:
    made = shop()
    gone = KeyChange("ann", {"total": None, "all": None, "by": {}}, timers=[])
    apply(made, changed(kept(made), [gone]))
    assert set(values(made)) == {"bob", "cyd", None}


def test_nothing_to_do() -> None:
    assert changed(kept(shop()), []) == ()
    assert changed(kept(shop()), [KeyChange("dan", {"total": None})]) == ()


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (KeyChange("ann", {"sum": 1}), NotFound, "no state with this name"),
        (KeyChange("ann", {"total": "many"}), Invalid, "does not fit the type of the state"),
        (KeyChange("ann", {"total": 1 << 70}), Invalid, "does not fit the type of the state"),
        (KeyChange("ann", {"all": [1, "two"]}), Invalid, "does not fit the type of the state"),
        (KeyChange("ann", {"all": "12"}), Invalid, "the new value of a list state is not a list"),
        (KeyChange("ann", {"by": {None: 1}}), Invalid, "a map state has a duplicate or null key"),
        (KeyChange("ann", {"by": [("a", 1), ("a", 2)]}), Invalid, "a map state has a duplicate or null key"),
        (KeyChange("ann", timers=[KeyTimer("x", "lunar", 1)]), Invalid, "unknown clock"),
        (
            KeyChange("ann", timers=[KeyTimer("x", "event", 1 << 62)]),
            Invalid,
            "the time of a timer or clock is not valid",
        ),
        (KeyChange(7, {"total": 1}), Invalid, "does not have the type"),
    ],
)
def test_what_does_not_fit(change: KeyChange, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        changed(kept(shop()), [change])


def test_a_key_twice() -> None:
    with pytest.raises(Invalid, match="a key more than once"):
        changed(kept(shop()), [KeyChange("ann", {"total": 1}), KeyChange(("ann",), remove=True)])


def test_timers_of_a_processor_that_has_none() -> None:
    with pytest.raises(Invalid, match="the processor declares none"):
        changed(kept(shop(Count())), [KeyChange("ann", timers=[KeyTimer("x", "event", 1)])])


class Coarse(Shop):
    """Keys share a few hashes."""

    def _hash(self, key: tuple[Any, ...]) -> int:
        return len(key[0] or "") * 0x3333_3333_3333_3333 % (1 << 64)


def coarse(keys: pa.Table) -> Any:
    return np.array(
        [len(key or "") * 0x3333_3333_3333_3333 % (1 << 64) for key in keys.column(0).to_pylist()], np.uint64
    )


def test_two_keys_with_one_hash() -> None:
    made = Coarse(Everything(), by="who", events=EVENTS, output="said string", now=5)
    made.send(*({"who": who, "n": n} for n, who in enumerate(["ann", "bob", "cyd"])))
    state = KeyedStateReader(kept(made).operator, kept(made).source, coarse)
    assert len({row.h for row in state.rows()}) == 1
    asked = [KeyChange("ann", remove=True), KeyChange("bob", {"all": [9]}), KeyChange("dan", {"total": 4})]
    apply(made, changed(state, asked))
    assert {who: each.get("all") for who, each in values(made).items()} == {
        "bob": [9],
        "cyd": [2],
        "dan": None,
    }
    made.send(*({"who": who, "n": 7} for who in ("ann", "bob", "cyd", "dan")))
    assert {who: each["total"] for who, each in values(made).items()} == {
        "ann": 7,
        "bob": 8,
        "cyd": 9,
        "dan": 11,
    }


def test_what_a_changed_key_costs_does_not_grow_with_the_keys_of_its_hash() -> None:
    def changes_of(size: int) -> int:
        names = [f"{at:04}" for at in range(size)]
        made = Coarse(Count(), by="who", events=EVENTS, output="said string", now=5)
        made.send(*({"who": who, "n": 1} for who in names))
        state = KeyedStateReader(kept(made).operator, kept(made).source, coarse)
        new = [f"{at:04}" for at in range(size, 2 * size)]
        asked = [KeyChange(who, {"n": 7}) for who in [*names, *new]]
        return steps_of(lambda: changed(state, asked))

    assert changes_of(240) < 5 * changes_of(60)


@pytest.mark.parametrize("placed", [True, None])
def test_keys_that_a_function_has_placed(placed: bool | None) -> None:
    made = shop(Count(), key_groups=5, placement=lambda who: len(who or "") % 5)
    made.send({"who": "dora", "n": 1})
    state = kept(made, placed=placed)
    apply(made, changed(state, [KeyChange("ann", {"n": 41}), KeyChange("dora", remove=True)]))
    assert values(made) == {"ann": {"n": 41}, "bob": {"n": 1}, "cyd": {"n": 1}, None: {"n": 1}}
    assert made.send({"who": "ann", "n": 1}) == [{"said": "ann 42"}]
    with pytest.raises(Unsupported, match="key groups of this operator are computed only in the job"):
        changed(state, [KeyChange("eve", {"n": 1})])


def test_a_new_key_where_nobody_noted_whether_a_function_places_keys() -> None:
    made = shop(Count())
    apply(made, changed(kept(made, placed=None), [KeyChange("eve", {"n": 9})]))
    assert made.send({"who": "eve", "n": 1}) == [{"said": "eve 10"}]


def test_instances_keep_what_they_have_and_there_are_no_more_of_them() -> None:
    made = Shop(Holds(), events=NUMBERS, output=HELD, instances=2)
    made.send(*({"n": n, "ts": None} for n in range(4)))
    state = kept(made, instances=True)
    apply(made, changed(state, [KeyChange(1, {"items": [8, 9]})]))
    told = made.send({"n": -1, "ts": None}, {"n": -1, "ts": None})
    assert sorted((row["instance"], row["items"]) for row in told) == [(0, [0, 2]), (1, [8, 9])]
    with pytest.raises(Unsupported, match="key groups of this operator are computed only in the job"):
        changed(state, [KeyChange(5, {"items": [1]})])


# Rows of an earlier schema of the processor


class Renamed(hf.Keyed):
    m = hf.value("long", default=0, was="n")
    all = hf.list("long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.m += 1
        yield (f"{event.who} {state.m} {list(state.all)}",)


class More(Count):
    all = hf.list("long")


@pytest.fixture
def unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No group is folded, as in a batch that has too many others to fold: it keeps rows of both versions."""
    monkeypatch.setattr(group_writes, "chosen", lambda *_: set())


@pytest.mark.usefixtures("unfolded")
def test_a_state_that_the_processor_has_got_since() -> None:
    made = shop(Count(), key_groups=1)
    made.restart(More())
    made.send({"who": "bob", "n": 1})
    assert groups_of(made.inspect.store)[0].record("here").mixed
    apply(made, changed(kept(made), [KeyChange("ann", {"all": [1, 2]}), KeyChange("bob", {"n": 10})]))
    assert not groups_of(made.inspect.store)[0].record("here").mixed
    assert values(made) == {"ann": {"n": 1, "all": [1, 2]}, "bob": {"n": 10}, "cyd": {"n": 1}, None: {"n": 1}}
    made.restart(More())
    assert made.send({"who": "bob", "n": 1}) == [{"said": "bob 11"}]


@pytest.mark.usefixtures("unfolded")
def test_rows_under_a_former_name_are_removed_and_not_changed() -> None:
    made = shop(Count(), key_groups=1)
    made.restart(Renamed())
    made.send({"who": "bob", "n": 1})
    with pytest.raises(Unsupported, match="which only the job can convert"):
        changed(kept(made), [KeyChange("ann", {"m": 10})])
    done = changed(kept(made), [KeyChange("ann", remove=True)])
    apply(made, done)
    # The order of keys within a group is not promised.
    answers = made.send(*({"who": who, "n": 1} for who in ("ann", "bob", "cyd")))
    assert sorted(row["said"] for row in answers) == ["ann 1 []", "bob 3 []", "cyd 2 []"]
    assert {who: sum(each.values()) for who, each in values(made).items()} == {
        "ann": 1,
        "bob": 3,
        "cyd": 2,
        None: 1,
    }


class Lists(hf.Keyed):
    all = hf.list("long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.all.append(event.n)
        return iter(())


class RenamedLists(hf.Keyed):
    every = hf.list("long", was="all")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        if event.n < 0:
            state.every.clear()
        yield (f"{event.who} {list(state.every)}",)


@pytest.mark.usefixtures("unfolded")
def test_what_was_removed_under_a_new_name_stays_removed() -> None:
    made = shop(Lists(), key_groups=1)
    made.restart(RenamedLists())
    made.send({"who": "ann", "n": -1})
    apply(made, changed(kept(made), [KeyChange("cyd", remove=True)]))
    made.restart(RenamedLists())
    said = made.send(*({"who": who, "n": 3} for who in ("ann", "bob", "cyd")))
    assert sorted(row["said"] for row in said) == ["ann []", "bob [1]", "cyd []"]


def test_a_group_that_only_the_former_version_has_written() -> None:
    made = shop(Count(), key_groups=1)
    state = kept(made)
    made.restart(Renamed())
    today = replace(state.operator, form=kept(made).operator.form, states=kept(made).operator.states)
    with pytest.raises(Unsupported, match="which only the job can convert"):
        changed(KeyedStateReader(today, state.source), [KeyChange("ann", {"m": 10})])


# Rows of a broadcast stream

RULES = Broadcast("rules", pa.schema([("rule", pa.string()), ("least", pa.int64())]), ("rule",), None, None)


class Alerts(hf.Keyed):
    seen = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.seen += 1
        yield (",".join(f"{name}{rule.least}" for name, rule in sorted(ctx.broadcast.items())),)


def test_rows_of_a_broadcast_stream_are_taken_out_of_every_group() -> None:
    made = Shop(Alerts(), by="who", events="who string", output="said string", broadcast=RULES, key_groups=3)
    rules = [{"rule": name, "least": 1} for name in ("a", "secret", "c")]
    made.send_all({"event": [{"who": "ann"}], "rules": rules})
    done = without_shared(kept(made), "rules", ["secret", {"rule": "nothing"}])
    assert len(done) == 3
    for each in done:
        assert each.after is not None
        assert not any(b"secret" in blob for blob in each.after.base)
    apply(made, done)
    assert made.send({"who": "ann"}, {"who": "bob"}) == [{"said": "a1,c1"}] * 2
    assert values(made)["ann"] == {"seen": 2}
    with pytest.raises(Invalid, match="the operator has no broadcast stream"):
        without_shared(kept(made), "seen", ["a"])
    with pytest.raises(Invalid, match="cannot be read or changed by key"):
        changed(kept(made), [KeyChange("ann", {"rules": {}})])
