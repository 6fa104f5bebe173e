"""Broadcast rows: taken in before a batch's events, by their versions, and the same for every key."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import Failed, Invalid, NotFound, Unsupported
from holdfast.testing import Harness, broadcast

EVENTS = "user string, amount long"
OUTPUT = "user string, rule string, seen long"
RULES = broadcast(
    "rule string, least long, version long, off boolean", key="rule", version="version", withdrawn="off"
)


class Matches(hf.Keyed):
    """Each rule that an event meets, with how many events the user had."""

    seen = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.seen += 1
        for name, rule in sorted(ctx.broadcast.items()):
            if event.amount >= rule.least:
                yield event.user, name, state.seen


class Checked(Matches):
    """Refuses what is negative, and lets one rule take all others back."""

    def on_broadcast(self, row: Any, rows: Any, ctx: Any) -> None:
        if row.least < 0:
            raise ValueError("a rule below zero")
        if row.rule == "reset":
            for name in list(rows):
                del rows[name]
            return
        rows[row.rule] = {"rule": row.rule, "least": row.least * 10, "version": ctx.batch_id, "off": False}


class InTables(hf.KeyedTable):
    """How many rules there are, for each key that has events."""

    def on_batch(self, events: pa.Table, state: Any) -> pa.Table:
        names = ",".join(sorted(state.broadcast.column("rule").to_pylist()))
        return state.table(rule=[names] * state.size, seen=[state.broadcast.num_rows] * state.size)


def harness(processor: hf.Keyed | hf.KeyedTable | None = None, **more: Any) -> Harness:
    return Harness(processor or Matches(), by="user", events=EVENTS, output=OUTPUT, broadcast=RULES, **more)


def rule(name: str, least: int, version: int | None, *, off: bool = False) -> dict[str, Any]:
    return {"rule": name, "least": least, "version": version, "off": off}


def stored_bytes(running: Harness) -> int:
    groups = map(running.inspect.store.load, range(running.inspect.lane.layout.key_groups))
    return sum(len(blob) for group in groups for blob in (*group.base, *group.log))


def found(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in rows)


def test_the_rules_of_a_batch_come_before_its_events() -> None:
    running = harness()
    assert running.send({"user": "ann", "amount": 5}) == []
    both = {
        "event": [{"user": "ann", "amount": 5}, {"user": "bob", "amount": 1}],
        "broadcast": [rule("five", 5, 1)],
    }
    assert found(running.send_all(both)) == [("ann", "five", 2)]
    assert found(running.send({"user": "ann", "amount": 9}, {"user": "bob", "amount": 9})) == [
        ("ann", "five", 3), ("bob", "five", 2),
    ]  # fmt: skip


def test_the_newest_version_counts_and_not_the_last_to_arrive() -> None:
    running = harness()
    running.broadcast(rule("a", 3, 3), rule("a", 1, 1), rule("a", 2, 2))
    assert running.broadcast_rows()["a"].least == 3
    running.broadcast(rule("a", 2, 2), rule("a", 7, None))
    assert running.broadcast_rows()["a"].least == 3
    running.broadcast(rule("a", 4, 4, off=True))
    assert running.broadcast_rows() == {}
    running.broadcast(rule("a", 3, 3))
    assert running.broadcast_rows() == {}, "a version from before the withdrawal does not bring it back"
    running.broadcast(rule("a", 5, 5))
    assert running.broadcast_rows()["a"].least == 5


def test_a_handler_decides_what_a_row_does() -> None:
    running = harness(Checked(), on_error="dead-letter")
    running.broadcast(rule("a", 1, 1), rule("b", 2, 1))
    assert {name: row.least for name, row in running.broadcast_rows().items()} == {"a": 10, "b": 20}
    running.broadcast(rule("a", -1, 9))
    assert running.broadcast_rows()["a"].least == 10, "the old rule stays"
    (failed,) = running.failed_events
    assert failed == {**rule("a", -1, 9), "error": "ValueError: a rule below zero"}
    running.broadcast(rule("reset", 0, 1))
    assert running.broadcast_rows() == {}


def test_a_refused_rule_ends_the_batch_unless_it_may_be_set_aside() -> None:
    running = harness(Checked())
    with pytest.raises(Failed, match=r"Checked\.on_broadcast failed: ValueError: a rule below zero") as error:
        running.broadcast(rule("a", -1, 1))
    assert "stream broadcast" in str(error.value.where)
    assert running.broadcast_rows() == {}


@pytest.mark.parametrize("key_groups", [1, 5])
def test_rules_survive_a_restart(key_groups: int) -> None:
    running = harness(key_groups=key_groups)
    running.broadcast(*(rule(f"r{number}", number, 1) for number in range(50)))
    running.broadcast(rule("r7", 0, 2, off=True))
    running.restart()
    assert sorted(running.broadcast_rows()) == sorted(f"r{number}" for number in range(50) if number != 7)
    assert len(running.send({"user": "new", "amount": 10})) == 10
    assert sorted(running.cleaned().broadcast_rows()) == sorted(running.broadcast_rows())


@pytest.mark.slow
def test_a_change_costs_an_entry_a_group_and_not_all_rules_again() -> None:
    running = harness(key_groups=128)
    running.broadcast(*(rule(f"r{number:05}", number, 1) for number in range(2000)))
    before = stored_bytes(running)
    running.broadcast(rule("r00007", 3, 2))
    assert stored_bytes(running) - before < 128 * 1024 < before / 50


def test_tables_see_all_rows_at_once() -> None:
    running = harness(InTables())
    running.broadcast(rule("b", 1, 1), rule("a", 1, 1))
    running.broadcast(rule("b", 1, 2, off=True))
    assert found(running.send({"user": "ann", "amount": 1})) == [("ann", "a", 1)]


def test_rows_cannot_be_written_by_keys() -> None:
    class Writes(hf.Keyed):
        def on_event(self, event: Any, state: Any, ctx: Any) -> None:
            ctx.broadcast["a"] = event

    with pytest.raises(Failed, match="broadcast rows can be changed only in on_broadcast"):
        harness(Writes()).send({"user": "ann", "amount": 1})


def test_a_column_may_be_added_to_the_rules() -> None:
    running = harness()
    running.broadcast(rule("a", 3, 1))
    wider = broadcast(
        "rule string, least long, version long, off boolean, note string",
        key="rule", version="version", withdrawn="off",
    )  # fmt: skip
    running._broadcast = wider
    running.restart()
    assert running.broadcast_rows()["a"].note is None


def test_what_cannot_be_is_refused_early() -> None:
    with pytest.raises(Invalid, match="on_broadcast is never called"):
        Harness(Checked(), by="user", events=EVENTS, output=OUTPUT)
    with pytest.raises(NotFound, match="no broadcast stream"):
        Harness(Totals(), by="user", events=EVENTS, output=OUTPUT).broadcast(rule("a", 1, 1))
    with pytest.raises(Failed, match="no broadcast stream is available"):
        Harness(Matches(), by="user", events=EVENTS, output=OUTPUT).send({"user": "ann", "amount": 1})


def test_rules_that_no_worker_has_room_for_are_refused() -> None:
    running = harness()
    running._options = replace(running._options, memory_bytes=4096)
    running.restart()
    with pytest.raises(Unsupported, match="do not fit in the worker's memory"):
        running.broadcast(*(rule(f"r{number}", number, 1) for number in range(100)))
    assert running.broadcast_rows() == {}


class Totals(hf.Keyed):
    """Nothing of rules."""

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        """Nothing."""


@pytest.mark.parametrize("seed", range(20))
def test_random_rules_and_events_agree_with_a_model(seed: int) -> None:
    chance = random.Random(seed)
    running = harness(key_groups=chance.choice([1, 2, 7]))
    newest: dict[str, Mapping[str, Any]] = {}
    seen: dict[Any, int] = {}
    for _ in range(12):
        rules = [
            rule(chance.choice("abc"), chance.randrange(10), chance.randrange(30), off=chance.random() < 0.2)
            for _ in range(chance.randrange(4))
        ]
        events = [
            {"user": chance.choice(["ann", "bob", None]), "amount": chance.randrange(10)}
            for _ in range(chance.randrange(4))
        ]
        for each in sorted(rules, key=lambda each: each["version"]):
            if each["rule"] not in newest or newest[each["rule"]]["version"] < each["version"]:
                newest[each["rule"]] = each
        expected = []
        for event in events:
            seen[event["user"]] = seen.get(event["user"], 0) + 1
            expected += [
                (event["user"], name, seen[event["user"]])
                for name, each in newest.items()
                if not each["off"] and event["amount"] >= each["least"]
            ]
        rows = running.send_all({"event": events, "broadcast": rules})
        assert sorted(map(repr, (tuple(row.values()) for row in rows))) == sorted(map(repr, expected))
        if chance.random() < 0.2:
            running.restart()


def test_rows_of_a_broadcast_stream_are_counted_once_however_many_groups_have_them() -> None:
    running = harness(key_groups=4)
    running.broadcast(rule("a", 5, 1), rule("b", 7, 1))
    running.send({"user": "ann", "amount": 6}, {"user": "bob", "amount": 6}, {"user": "cyd", "amount": 6})
    totals = running.totals()
    assert (totals.keys, totals.entries) == (3, {"seen": 3, "broadcast": 2})
