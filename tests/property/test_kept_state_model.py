"""Keyed state read, changed, made and regrouped at rest is what a model in plain Python says it is."""

from __future__ import annotations

import copy
from typing import Any

import pyarrow as pa
import pytest
from grid import WHOLE
from hypothesis import given, settings
from hypothesis import strategies as st
from kept_state import Shop, asked_of, by_who, hold, kept, put, timed, timers_of
from keyed_programs import EVENTS, OPS, OUTPUT, Everything, Model

from holdfast.changes.keyed.group_builder import build_groups
from holdfast.changes.keyed.group_changes import changed
from holdfast.changes.keyed.regrouping import regrouped
from holdfast.checkpoints.keyed import KeyRow, KeyTimer
from holdfast.worker.state import upkeep

START = 1_000_000
# All of them take minutes.
WHO = ["ann", "bob", None]
EVENT = st.fixed_dictionaries(
    {
        "who": st.sampled_from(WHO),
        "op": st.sampled_from((*OPS, "add", "add", "read", "read")),
        "n": st.integers(0, 8),
        "ts": st.sampled_from(range(START, START + 40_000, 2_000)),
    }
)
BATCH = st.fixed_dictionaries(
    {
        "events": st.lists(EVENT, max_size=6),
        "now": st.sampled_from([0, 1_000, 5_000]),
        "watermark": st.sampled_from([2_000, 4_000, 6_000]),
    }
)
LIST = st.lists(st.integers(0, 9), max_size=3)
TIMERS = st.lists(
    st.sampled_from(
        [
            KeyTimer("t0", "event", START - 16_000),
            KeyTimer("t1", "event", START - 14_000),
            KeyTimer("clock", "processing", START + 3_000),
        ]
    ),
    max_size=3,
    unique=True,
)
# What may be set of a key; a state that is left out stays.
STATES = st.fixed_dictionaries(
    {},
    optional={
        "last": st.none() | st.integers(0, 9),
        "total": st.none() | st.integers(0, 99),
        "recent": st.none() | LIST,
        "seen": st.none() | st.dictionaries(st.sampled_from(["k0", "k1", "k2"]), st.integers(0, 9)),
        "span": st.none() | st.tuples(st.integers(0, 4), st.integers(5, 9)).map(list),
    },
)
CHANGE = st.fixed_dictionaries(
    {
        "who": st.sampled_from([*WHO, "cyd"]),
        "states": STATES,
        "recent_stamps": st.lists(st.sampled_from([START, START + 2_000]), min_size=3, max_size=3),
        "timers": st.none() | TIMERS,
        "remove": st.booleans(),
    }
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are folded after a few batches."""
    monkeypatch.setattr(upkeep, "FOLD_CHANGES", 3)


class Both:
    """A harness and the model, driven alike."""

    def __init__(self, key_groups: int) -> None:
        self.now, self.watermark = START, START - 20_000
        self.harness = Shop(
            Everything(),
            by="who",
            events=EVENTS,
            output=OUTPUT,
            time="ts",
            now=self.now,
            key_groups=key_groups,
        )
        self.model = Model()

    def run(self, batches: list[dict[str, Any]]) -> None:
        for batch in batches:
            self.now, self.watermark = self.now + batch["now"], self.watermark + batch["watermark"]
            self.harness.set_clocks(now=self.now, watermark=self.watermark)
            rows = by_who(self.harness.send(*map(timed, batch["events"])))
            assert rows == self.model.batch(self.now, self.watermark, batch["events"])

    def change(self, changes: list[dict[str, Any]]) -> None:
        self.harness.set_clocks(now=self.now, watermark=self.watermark)
        state = kept(self.harness)
        there = {row.key[0] for row in state.rows()}
        found = changed(state, map(asked_of, changes))
        removed = {each["who"] for each in changes if each["remove"]}
        hold(self.harness, [each.after for each in found if each.after is not None])
        left = {row.key[0] for row in kept(self.harness).rows()}
        assert not removed & left
        assert there - left <= {each["who"] for each in changes}
        for each in changes:
            put(self.model, each, self.now, self.watermark)


def read(rows: dict[Any, KeyRow], who: str | None) -> tuple[dict[str, Any], dict[str, Any], set[KeyTimer]]:
    """What was read of a key, without the state that the model does not have."""
    if (who,) not in rows:
        return {}, {}, set()
    row = rows[(who,)]
    values = {name: value for name, value in row.values.items() if name != "events"}
    return values, dict(row.stamps), set(row.timers)


def distinct(changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({each["who"]: each for each in changes}.values())


@settings(max_examples=250 if WHOLE else 12)
@given(
    st.lists(BATCH, min_size=1, max_size=5),
    st.lists(CHANGE, max_size=4).map(distinct),
    st.lists(BATCH, min_size=1, max_size=5),
    st.integers(1, 6),
)
def test_a_job_goes_on_from_changed_state_as_the_model_does(
    before: list[dict[str, Any]], changes: list[dict[str, Any]], after: list[dict[str, Any]], key_groups: int
) -> None:
    both = Both(key_groups)
    both.run(before)
    both.change(copy.deepcopy(changes))
    both.run(after)


@settings(max_examples=150 if WHOLE else 8)
@given(
    st.lists(BATCH, min_size=1, max_size=3),
    st.lists(CHANGE, min_size=1, max_size=4).map(distinct),
    st.integers(1, 6),
)
def test_changed_keys_are_read_as_they_were_set(
    before: list[dict[str, Any]], changes: list[dict[str, Any]], key_groups: int
) -> None:
    both = Both(key_groups)
    both.run(before)
    old = {row.key: row for row in kept(both.harness).rows()}
    both.change(changes)
    state = kept(both.harness)
    rows = {row.key: row for row in state.rows()}
    for who in [*WHO, "cyd"]:
        found = state.get(who)
        assert found == rows.get((who,))
        mine = next((each for each in changes if each["who"] == who), None)
        if mine is None:
            assert rows.get((who,)) == old.get((who,))
            continue
        values, stamps, timers = read(rows, who)
        for name, value in ({} if mine["remove"] else mine["states"]).items():
            assert values.get(name) == (value or None if isinstance(value, (list, dict)) else value)
            assert (name in stamps) == (name in values)
        if mine["remove"]:
            assert found is None
        elif mine["timers"] is not None:
            assert timers == set(mine["timers"])


@settings(max_examples=150 if WHOLE else 8)
@given(
    st.lists(BATCH, min_size=1, max_size=5),
    st.lists(BATCH, min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(1, 6),
)
def test_a_job_goes_on_in_another_number_of_key_groups(
    before: list[dict[str, Any]], after: list[dict[str, Any]], groups: int, then: int
) -> None:
    both = Both(groups)
    both.run(before)
    rows = {row.key: (row.values, row.stamps, row.timers) for row in kept(both.harness).rows()}
    found = regrouped(kept(both.harness), then)
    # Each group has a version of its own, also one without keys: no copy of former groups is taken for it.
    assert [each.group for each in found.groups] == (
        list(range(then)) if both.harness.inspect.store.groups else []
    )
    assert len({each.record("here").token for each in found.groups}) == len(found.groups)
    hold(both.harness, found.groups, anew=True)
    both.harness.restart(key_groups=then)
    assert {row.key: (row.values, row.stamps, row.timers) for row in kept(both.harness).rows()} == rows
    assert found.keys == len(rows)
    both.run(after)
    back = regrouped(kept(both.harness), groups)
    hold(both.harness, back.groups, anew=True)
    both.harness.restart(key_groups=groups)
    both.run(after)


@settings(max_examples=150 if WHOLE else 8)
@given(st.lists(BATCH, min_size=1, max_size=5), st.lists(BATCH, min_size=1, max_size=5), st.integers(1, 6))
def test_a_job_goes_on_from_state_that_was_made_of_its_tables(
    before: list[dict[str, Any]], after: list[dict[str, Any]], key_groups: int
) -> None:
    both = Both(key_groups)
    both.run(before)
    state = kept(both.harness)
    rows = {row.key: (row.values, row.stamps, row.timers) for row in state.rows()}
    tables = {
        each.name: pa.concat_tables([state.schema(each.name).empty_table(), *state.scan(each.name)])
        for each in state.operator.states
    }
    timers = timers_of(state)
    found = build_groups(state.operator, tables, timers if timers.num_rows else None)
    hold(both.harness, found, anew=True)
    assert {row.key: (row.values, row.stamps, row.timers) for row in kept(both.harness).rows()} == rows
    both.run(after)
