"""Keyed state made out of tables, and put into other key groups: what it is then, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
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
from golden import KEYED, golden, golden_on_disk
from holdfast import checkpoints
from holdfast.at_rest.keyed_reader import keyed_states
from holdfast.changes.keyed.group_builder import build_groups
from holdfast.changes.keyed.group_changes import changed
from holdfast.changes.keyed.group_writer import regroup, write_groups
from holdfast.changes.keyed.regrouping import regrouped, renumbered
from holdfast.changes.keyed.store_rows import KeyChange
from holdfast.errors import Corrupt, Invalid, NotFound, Unsupported
from holdfast.storage.local import LocalStorage
from holdfast.worker.runtime.broadcast import Broadcast
from holdfast.worker.state import group_writes

EVENTS = "who string, n long, ts timestamp"


class Counts(hf.Keyed):
    total = hf.reducing("long", hf.add)
    last = hf.value("long", ttl="1h")
    all = hf.list("long", ttl=hf.ttl("1h", clock="event"))
    by = hf.map("string", "long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.total.add(event.n)
        state.by[event.who] = event.n
        if event.n >= 100:
            state.all.append(event.n)
        yield (f"{event.who} {state.total.get()} {list(state.all)} {dict(state.by)}",)

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        yield (f"{ctx.key.who} {timer.name}",)


def shop(**more: Any) -> Shop:
    return Shop(Counts(), by="who", events=EVENTS, output="said string", time="ts", now=1_000, **more)


def table(**columns: Any) -> pa.Table:
    return pa.table(columns)


def test_a_processor_starts_with_what_tables_say() -> None:
    empty = shop()
    empty.set_clocks(watermark=700)
    found = build_groups(
        kept(empty).operator,
        {
            "total": table(who=["ann", "bob", "cyd"], value=[1, 2, None]),
            "last": table(who=["ann", "dan"], value=[5, 6], stamp_ms=[10, None]),
            "all": table(who=["bob", "ann", "bob"], value=[3, 4, None]),
            "by": table(who=["ann", "ann"], map_key=["x", "y"], value=[8, 9]),
        },
        table(who=["bob", "bob"], name=["soon", None], clock=["processing", "event"], at_ms=[1_500, 9_000]),
    )
    hold(empty, found, anew=True)
    rows = {row.key[0]: row for row in kept(empty).rows()}
    assert {who: dict(row.values) for who, row in rows.items()} == {
        "ann": {"total": 1, "last": 5, "all": [4], "by": {"x": 8, "y": 9}},
        "bob": {"total": 2, "all": [3, None]},
        "dan": {"last": 6},
    }
    # What has no time was written with the batch, by the clock of its state.
    assert dict(rows["ann"].stamps) == {"last": 10, "all": [700]}
    assert dict(rows["dan"].stamps) == {"last": 1_000}
    assert [row["said"] for row in empty.at(1_500)] == ["bob soon"]
    assert empty.send({"who": "ann", "n": 4, "ts": None}) == [
        {"said": "ann 5 [4] {'x': 8, 'y': 9, 'ann': 4}"}
    ]
    # New elements come behind those that there are.
    empty.send({"who": "bob", "n": 100, "ts": None}, {"who": "ann", "n": 200, "ts": None})
    assert empty.state("bob")["all"] == [3, None, 100]
    assert empty.state("ann")["all"] == [4, 200]


def test_without_a_watermark_what_is_made_has_no_age_in_event_time() -> None:
    empty = shop()
    found = build_groups(
        kept(empty).operator, {"all": table(who=["ann", "ann"], value=[4, 5], stamp_ms=[None, 650])}
    )
    hold(empty, found, anew=True)
    empty.set_clocks(watermark=3_600_650)
    assert empty.state("ann")["all"] == [4]


def test_nothing_is_no_group() -> None:
    operator = kept(shop()).operator
    assert build_groups(operator, {}) == ()
    assert build_groups(operator, {"total": table(who=pa.array([], pa.string()), value=[])}) == ()


@pytest.mark.parametrize(
    ("tables", "kind", "said"),
    [
        ({"sum": table(who=["a"], value=[1])}, NotFound, "no state with this name"),
        ({"total": table(name=["a"], value=[1])}, Invalid, "differ from the columns of the state"),
        (
            {"total": table(who=["a"], value=[1], stamp_ms=[1])},
            Invalid,
            "differ from the columns of the state",
        ),
        ({"total": table(who=["a"], value=["1"])}, Invalid, "wrong type"),
        ({"total": table(who=[1], value=[1])}, Invalid, "wrong type"),
        ({"total": table(who=["a", "b", "a"], value=[1, 2, 3])}, Invalid, "several rows for a key, but"),
        (
            {"by": table(who=["a", "a"], map_key=["x", "x"], value=[1, 2])},
            Invalid,
            "several rows for one key and one map key",
        ),
        (
            {"by": table(who=["a"], map_key=pa.array([None], pa.string()), value=[1])},
            Invalid,
            "a null key",
        ),
    ],
)
def test_tables_that_do_not_fit(tables: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        build_groups(kept(shop()).operator, tables)


def test_timers_that_do_not_fit() -> None:
    operator = kept(shop()).operator
    twice = table(who=["a", "a"], name=["x", "x"], clock=["event", "event"], at_ms=[1, 2])
    with pytest.raises(Invalid, match="two timers"):
        build_groups(operator, {}, twice)
    with pytest.raises(Invalid, match="unknown clock"):
        build_groups(operator, {}, table(who=["a"], name=["x"], clock=["lunar"], at_ms=[1]))


def test_keys_with_one_hash() -> None:
    empty = shop(key_groups=5)
    names = ["ann", "bob", "dora", "eve", "bob"]
    values = table(who=names, value=[1, 2, 3, 4, 5])
    found = build_groups(
        kept(empty).operator, {"all": values}, hashes=lambda keys: np.zeros(keys.num_rows, np.uint64)
    )
    assert [group.group for group in found] == [0]
    hold(empty, found, anew=True)
    rows = {row.key[0]: row for row in kept(empty).rows()}
    assert {who: row.values["all"] for who, row in rows.items()} == {
        "ann": [1],
        "bob": [2, 5],
        "dora": [3],
        "eve": [4],
    }
    assert len({row.ordinal for row in rows.values()}) == 4


def test_what_a_key_costs_does_not_grow_with_the_keys_of_its_hash() -> None:
    operator = kept(shop(key_groups=5)).operator

    def made_of(size: int) -> int:
        values = table(who=[str(at) for at in range(size)], value=list(range(size)))
        return steps_of(
            lambda: build_groups(operator, {"total": values}, hashes=lambda keys: np.zeros(size, np.uint64))
        )

    assert made_of(400) < 5 * made_of(100)


def test_state_of_instances_and_of_broadcast_streams_is_not_made() -> None:
    holds = Shop(Holds(), events=NUMBERS, output=HELD, instances=2)
    with pytest.raises(Unsupported, match="lists are distributed over the instances"):
        build_groups(kept(holds, instances=True).operator, {})
    with pytest.raises(Unsupported, match="broadcast stream"):
        build_groups(kept(alerts()).operator, {"rules": table(who=["a"], value=[1])})


# Another number of key groups

RULES = Broadcast("rules", pa.schema([("rule", pa.string()), ("least", pa.int64())]), ("rule",), None, None)


class Alerts(hf.Keyed):
    seen = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.seen += 1
        yield (f"{event.who} {state.seen} {sorted(ctx.broadcast)}",)


def alerts(**more: Any) -> Shop:
    return Shop(Alerts(), by="who", events="who string", output="said string", broadcast=RULES, **more)


@pytest.mark.parametrize("then", [1, 2, 7, 64])
def test_every_group_has_its_copy_of_a_broadcast_stream(then: int) -> None:
    before = alerts(key_groups=5)
    names = [f"n{each}" for each in range(40)]
    rules = [{"rule": name, "least": 1} for name in "ab"]
    before.send_all({"event": [{"who": name} for name in names], "rules": rules})
    found = regrouped(kept(before), then)
    assert (found.keys, len(found.groups)) == (40, then)
    hold(before, found.groups, anew=True)
    before.restart(key_groups=then)
    said = before.send(*({"who": name} for name in (*names, "new")))
    assert sorted(row["said"] for row in said) == sorted(
        [f"{name} 2 ['a', 'b']" for name in names] + ["new 1 ['a', 'b']"]
    )


def test_groups_that_cannot_be_others() -> None:
    with pytest.raises(Invalid, match="invalid number of key groups"):
        regrouped(kept(shop()), 0)
    with pytest.raises(Invalid, match="invalid number of key groups"):
        regrouped(kept(shop()), 40_000)
    holds = Shop(Holds(), events=NUMBERS, output=HELD, instances=2)
    with pytest.raises(Unsupported, match="because each instance has one"):
        regrouped(kept(holds, instances=True), 3)
    placed = alerts(key_groups=5, placement=lambda who: len(who) % 5)
    placed.send(*({"who": name} for name in ("ann", "dora", "c")))
    for known in (True, None):
        with pytest.raises(Unsupported, match="uses placement="):
            regrouped(kept(placed, placed=known), 3)


class Former(hf.Keyed):
    all = hf.list("long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        state.all.append(event.n)
        return iter(())


class Renamed(hf.Keyed):
    every = hf.list("long", was="all")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[tuple[str]]:
        if event.n < 0:
            state.every.clear()
        yield (f"{event.who} {list(state.every)}",)


@pytest.mark.parametrize("then", [1, 3, 9])
def test_what_was_removed_under_a_new_name_stays_removed(then: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # No group is folded, as in a batch that has too many others to fold.
    monkeypatch.setattr(group_writes, "chosen", lambda *_: set())
    before = Shop(Former(), by="who", events=EVENTS, output="said string", key_groups=2)
    before.send(*({"who": who, "n": n, "ts": None} for who in ("ann", "bob", "cyd") for n in (1, 2)))
    before.restart(Renamed())
    before.send({"who": "ann", "n": -1, "ts": None})
    assert any(group.record("here").mixed for group in groups_of(before.inspect.store))
    hold(before, regrouped(kept(before), then).groups, anew=True)
    before.restart(key_groups=then)
    said = before.send(*({"who": who, "n": 3, "ts": None} for who in ("ann", "bob", "cyd")))
    assert sorted(row["said"] for row in said) == ["ann []", "bob [1, 2]", "cyd [1, 2]"]


def test_a_note_that_is_none() -> None:
    assert renumbered(b'{"key_groups": 5, "keys": ["a"]}', 3, "here") == b'{"key_groups": 3, "keys": ["a"]}'
    with pytest.raises(Corrupt):
        renumbered(b"nothing", 3, "here")


# A real checkpoint


@pytest.fixture(params=KEYED)
def checkpoint(tmp_path: Any, request: pytest.FixtureRequest) -> LocalStorage:
    return LocalStorage(golden_on_disk(request.param, tmp_path / "checkpoint"))


def values(storage: Any) -> dict[Any, Any]:
    [state] = keyed_states(storage)
    return {row.key[0]: dict(row.values) for row in state.rows()}


def test_changed_groups_are_the_next_batch_of_a_checkpoint(checkpoint: LocalStorage, tmp_path: Any) -> None:
    before = values(checkpoint)
    [state] = keyed_states(checkpoint)
    done = changed(
        state, [KeyChange("c1", remove=True), KeyChange("c2", {"visits": 70}), KeyChange("new", {"spend": 3})]
    )
    batch = write_groups(checkpoint, {0: done}, tmp_path / "work")
    expected = {**before, "c2": {**before["c2"], "visits": 70}, "new": {"spend": 3}}
    del expected["c1"]
    assert values(checkpoint) == expected
    assert (checkpoints.read(checkpoint.uri).batch_id, batch) == (13, 13)
    assert checkpoints.verify(checkpoint.uri).problems == ()
    assert {row.key[0]: dict(row.values) for row in keyed_states(checkpoint, 12)[0].rows()} == before


@pytest.mark.slow
def test_another_number_of_key_groups_in_a_checkpoint(checkpoint: LocalStorage, tmp_path: Any) -> None:
    before = values(checkpoint)
    for groups in (1, 9):
        [found] = regroup(checkpoint, groups, tmp_path / f"work-{groups}")
        assert (found.operator.key_groups, found.keys) == (groups, len(before))
        [state] = keyed_states(checkpoint)
        assert state.operator.key_groups == groups
        assert values(checkpoint) == before
        assert all(state.get(who) is not None for who in before)
        assert checkpoints.verify(checkpoint.uri).problems == ()
    assert regroup(checkpoint, 9, tmp_path / "none") == ()


def test_a_checkpoint_without_keyed_state_cannot_be_regrouped(tmp_path: Any) -> None:
    with pytest.raises(NotFound, match="no keyed operator"):
        regroup(golden("4.2/aggregate-format2"), 3, tmp_path / "work")
