"""Operator state: lists of instances, and what becomes of them when there are more or fewer."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import Failed, Invalid
from holdfast.stream.sinks.buffered_sink import buffer_of
from holdfast.testing import Harness

START = 1_700_000_000_000


class Holds(hf.Operator):
    """Keeps what comes, and tells what it has when it is asked."""

    items = hf.list("long")
    seen = hf.union_list("string")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        if event.n == -1:
            yield ctx.key.instance, sorted(state.items), sorted(state.seen)
        else:
            state.items.append(event.n)
            state.seen.append(f"{ctx.key.instance}:{event.n}")


OUTPUT = "instance int, items array<long>, seen array<string>"


def harness(instances: int = 3, processor: hf.Operator | None = None, **more: Any) -> Harness:
    return Harness(
        processor or Holds(), events="n long", output=OUTPUT, instances=instances, now=START, **more
    )


def asked(running: Harness, instances: int) -> list[tuple[list[int], list[str]]]:
    rows = running.send(*[{"n": -1}] * instances)
    assert [row["instance"] for row in sorted(rows, key=lambda row: row["instance"])] == list(
        range(instances)
    )
    return [(row["items"], row["seen"]) for row in sorted(rows, key=lambda row: row["instance"])]


def test_rows_are_dealt_out_one_by_one() -> None:
    running = harness(3)
    running.send(*({"n": n} for n in range(7)))
    assert [items for items, _ in asked(running, 3)] == [[0, 3, 6], [1, 4], [2, 5]]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.slow
def test_random_numbers_of_instances_split_lists_evenly_and_give_union_lists_whole(seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randrange(1, 6)
    running = harness(count)
    items: Counter[int] = Counter()
    lists: list[list[str]] = [[] for _ in range(count)]
    for _ in range(12):
        sent = [chance.randrange(100) for _ in range(chance.randrange(9))]
        running.send(*({"n": n} for n in sent))
        items.update(sent)
        for at, n in enumerate(sent):
            lists[at % count].append(f"{at % count}:{n}")
        if chance.random() < 0.5:
            before, count = count, chance.randrange(1, 6)
            running.restart(instances=count)
            if before != count:
                together = [each for of in lists for each in of]
                lists = [list(together) for _ in range(count)]
            found = asked(running, count)
            sizes = [len(each) for each, _ in found]
            assert before == count or max(sizes) - min(sizes) <= 1
            assert Counter(n for each, _ in found for n in each) == items
            assert [seen for _, seen in found] == [sorted(each) for each in lists]


def test_a_batch_that_fails_after_the_number_changed_leaves_what_was_there() -> None:
    running = harness(2)
    running.send({"n": 1}, {"n": 2}, {"n": 3})
    running.restart(instances=3)
    with pytest.raises(Invalid):
        running.send({"n": "no number"})
    running.restart(instances=4)
    assert [items for items, _ in asked(running, 4)] == [[], [1], [3], [2]]
    running.restart(instances=2)
    assert [items for items, _ in asked(running, 2)] == [[1], [2, 3]]
    running.restart(instances=4)
    assert sorted(n for items, _ in asked(running, 4) for n in items) == [1, 2, 3]


def test_state_of_another_number_is_refused_where_nothing_was_handed_out() -> None:
    running = harness(2)
    running.send({"n": 1}, {"n": 2})
    other = harness(3).over(running.inspect.store)
    with pytest.raises(Invalid, match="number of instances changed"):
        other.send({"n": 3})


class Restores(Holds):
    def on_restore(self, state: Any, ctx: Any) -> None:
        state.seen.set([f"{ctx.key.instance} has {len(list(state.items))}"])


def test_on_restore_is_called_once_for_each_instance() -> None:
    running = harness(1, Restores())
    running.send({"n": 1}, {"n": 2}, {"n": 3})
    running.restart(instances=2)
    running.send({"n": 4})
    assert asked(running, 2) == [([1, 4], ["0 has 1", "0:4"]), ([2, 3], ["1 has 2"])]


class Stumbles(Holds):
    def on_restore(self, state: Any, ctx: Any) -> None:
        raise ValueError("no room for what was given")


@pytest.mark.parametrize("on_error", ["fail", "dead-letter"])
def test_an_on_restore_that_raises_is_named_with_its_operator_instance_and_line(on_error: str) -> None:
    running = harness(1, Stumbles(), on_error=on_error)
    running.send({"n": 1}, {"n": 2})
    running.restart(instances=2)
    with pytest.raises(Failed, match="on_restore failed: ValueError: no room") as failed:
        running.send({"n": 3})
    where = str(failed.value.where)
    assert where.startswith("operator harness, key instance=0, batch 1, at ")
    assert f"{Path(__file__)}:" in where


class Renamed(hf.Operator):
    things = hf.list("long", was="items")
    more = hf.union_list("string")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        yield ctx.key.instance, sorted(state.things), sorted(state.more)


def test_a_new_version_is_handed_out_what_it_knows_under_other_names() -> None:
    running = harness(1)
    running.send({"n": 1}, {"n": 2}, {"n": 3})
    running.restart(Renamed(), instances=2, drop=["seen"])
    assert asked(running, 2) == [([1], []), ([2, 3], [])]

    running = harness(1)
    running.send({"n": 1}, {"n": 2}, {"n": 3})
    running.restart(instances=2)  # no batch is run with what is handed out here
    running.restart(Renamed(), drop=["seen"])
    assert asked(running, 2) == [([1], []), ([2, 3], [])]
    running.restart(instances=3)
    assert asked(running, 3) == [([1], []), ([2], []), ([3], [])]


class Values(hf.Operator):
    n = hf.value("long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        pass


class Lives(hf.Operator):
    n = hf.list("long", ttl="1 day")

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        pass


class OfKeys(hf.Keyed):
    n = hf.union_list("long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        pass


class NoList(hf.Keyed):
    def on_event(self, event: Any, state: Any, ctx: Any) -> None:
        pass

    def on_restore(self, state: Any, ctx: Any) -> None:
        pass


def test_what_cannot_be_handed_out_is_refused() -> None:
    for processor in (Values(), Lives()):
        with pytest.raises(Invalid, match="a list without a TTL"):
            harness(2, processor)
    with pytest.raises(Invalid, match=r"hf\.union_list requires"):
        Harness(OfKeys(), by="n", events="n long", output="n long")
    with pytest.raises(Invalid, match=r"only on an hf\.Operator"):
        Harness(NoList(), by="n", events="n long", output="n long")
    with pytest.raises(Invalid, match=r"an hf\.Operator needs the number of instances"):
        Harness(Holds(), by="n", events="n long", output="n long")
    with pytest.raises(Invalid, match=r"only an hf\.Operator has instances"):
        Harness(OfKeys(), by="n", instances=2, events="n long", output="n long")


def buffered(instances: int = 1, **limits: Any) -> Harness:
    row = "struct<n: long, text: string>"
    buffer = buffer_of(row, limits.get("rows"), limits.get("bytes"), limits.get("age"))
    return Harness(buffer, events="n long, text string", output="n long, text string",
                   instances=instances, now=START)  # fmt: skip


def rows_of(*numbers: int) -> list[dict[str, Any]]:
    return [{"n": n, "text": f"row {n}"} for n in numbers]


def test_a_buffer_is_written_by_rows() -> None:
    running = buffered(rows=3)
    assert running.send(*rows_of(1, 2)) == []
    assert running.send(*rows_of(3, 4)) == rows_of(1, 2, 3, 4)
    assert running.send(*rows_of(5)) == []


def test_a_buffer_is_written_by_bytes() -> None:
    running = buffered(bytes=40)  # a row has 8 + 5
    assert running.send(*rows_of(1, 2, 3)) == []
    assert running.send(*rows_of(4)) == rows_of(1, 2, 3, 4)


def test_a_buffer_is_written_by_the_age_of_its_oldest_row() -> None:
    running = buffered(age="10 seconds")
    assert running.send(*rows_of(1)) == []
    running.set_clocks(now=START + 9_999)
    assert running.send(*rows_of(2)) == []
    assert running.at(START + 10_000) == rows_of(1, 2)
    assert running.at(START + 90_000) == []
    assert running.send(*rows_of(3)) == []
    assert running.at(START + 100_000) == rows_of(3)


def test_what_waits_survives_restarts_and_other_numbers_of_instances() -> None:
    running = buffered(2, rows=4, age="1 minute")
    assert running.send(*rows_of(1, 2, 3, 4, 5)) == []
    running.restart(instances=1)
    assert sorted(row["n"] for row in running.send(*rows_of(6))) == [1, 2, 3, 4, 5, 6]
    running.send(*rows_of(7, 8))
    running.restart(instances=3)
    assert running.at(START + 1) == []
    assert sorted(row["n"] for row in running.at(START + 60_001)) == [7, 8]


def test_a_buffer_needs_a_limit() -> None:
    with pytest.raises(Invalid, match="no limit given for the buffer"):
        hf.BufferedSink("events", "sqlite:///ledger.db")
    with pytest.raises(Invalid):
        hf.BufferedSink("events", "sqlite:///ledger.db", rows=0)
    with pytest.raises(Invalid):
        hf.BufferedSink("events", "sqlite:///ledger.db", age="soon")
