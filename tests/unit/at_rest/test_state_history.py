"""A key over batches and savepoints, and why it has its value: real checkpoints against the model."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import golden_model as model
import pytest
from catalogs import Hands, catalog
from grid import one_in

import holdfast as hf
from golden import KEYED, NAMES, golden, golden_files, golden_on_disk
from holdfast.at_rest.insight import explain, key_history
from holdfast.at_rest.keys import typed_key
from holdfast.at_rest.state_reader import StateReader
from holdfast.errors import NotFound
from holdfast.storage.memory import MemoryStorage

pytestmark = pytest.mark.slow

OTHERS = ("keyed-format2", "spread-format2", "state-format2", "join-memory", "session-rocksdb")
AGGREGATES = [name for name in NAMES if "aggregate" in name]


def sums(name: str, batch: int) -> dict[str, tuple[int, int]]:
    """What each customer had after a batch: one file is taken with each."""
    return model.aggregate(model.taken(golden_files(name))[: batch + 1])


@pytest.mark.parametrize("name", AGGREGATES)
def test_each_batch_that_changed_a_key_is_told(name: str) -> None:
    found = StateReader(golden(name))
    chosen, state = found.pick("aggregate")
    for customer in model.aggregate():
        history = key_history(found, chosen, state, {"customer": customer})
        assert history.batches[-1] == found.batch_id
        expected: list[tuple[int, tuple[int, int] | None]] = []
        before = None
        for batch in history.batches:
            now = sums(name, batch).get(customer)
            if now != before:
                expected.append((batch, now))
            before = now
        told = [(each.batch_id, tuple(each.found.value.values())) for each in history.versions]
        assert told == expected
        assert [each.change for each in history.versions][1:] == ["changed"] * (len(expected) - 1)
        # Each file has every customer, so that each batch has written each key.
        assert history.last_written == found.batch_id


@pytest.mark.parametrize("name", ["4.2/aggregate-memory", "4.2/aggregate-format2"])
def test_a_history_ends_with_the_batch_that_is_read(name: str) -> None:
    newest = StateReader(golden(name)).batch_id
    older = StateReader(golden(name), newest - 2)
    history = key_history(older, *older.pick("aggregate"), {"customer": "c1"})
    assert history.batches[-1] == newest - 2
    assert tuple(history.versions[-1].found.value.values()) == sums(name, newest - 2)["c1"]


def test_times_are_those_at_which_batches_were_planned() -> None:
    name = "4.2/aggregate-format2"
    found = StateReader(golden(name))
    history = key_history(found, *found.pick("aggregate"), {"customer": "c1"})
    for each in history.versions:
        line = golden_files(name)[f"offsets/{each.batch_id}"].decode().splitlines()[1]
        assert each.planned_ms == json.loads(line)["batchTimestampMs"]


def test_savepoints_tell_of_batches_that_are_no_longer_kept() -> None:
    name = "4.2/aggregate-changelog"
    storage, hands = catalog(), Hands()
    whole = StateReader(golden(name))
    kept = key_history(whole, *whole.pick("aggregate"), {"customer": "c1"}).batches[1:]
    saved = hands.take(golden(name), storage, kept[0])
    # What a query leaves that has gone on since: the oldest batches are forgotten.
    files = {
        path: data
        for path, data in golden_files(name).items()
        if path not in {f"{log}/{each}" for log in ("commits", "offsets") for each in range(kept[0] + 1)}
    }
    left = StateReader(MemoryStorage(files, uri="memory://left"))
    history = key_history(left, *left.pick("aggregate"), {"customer": "c1"}, catalog=storage)
    assert history.batches == kept
    assert history.versions[0].batch_id == kept[0]
    assert history.versions[0].savepoint == saved.uri
    assert tuple(history.versions[0].found.value.values()) == sums(name, kept[0])["c1"]
    assert all(each.savepoint is None for each in history.versions[1:])


def test_a_key_that_never_was_has_no_history() -> None:
    found = StateReader(golden("4.2/aggregate-format2"))
    history = key_history(found, *found.pick("aggregate"), {"customer": "nobody"})
    assert history.versions == ()
    assert history.last_written is None


@pytest.mark.parametrize("name", [f"4.2/{kind}" for kind in one_in(3, OTHERS)])
def test_a_history_is_what_each_batch_says_by_itself(name: str) -> None:
    found = StateReader(golden(name))
    for operator in found.operators:
        for state in operator.states:
            keys = {repr(dict(entry.key)): entry.key for entry in found.scan(state.full_name)}
            for key in list(keys.values())[:3]:
                history = key_history(found, operator, state, key)
                expected, before = [], None
                for batch in history.batches:
                    value = StateReader(golden(name), batch).get(state.full_name, dict(key)).value
                    if value != before:
                        expected.append((batch, value))
                    before = value
                assert [(each.batch_id, each.found.value) for each in history.versions] == expected


def test_an_explanation_names_batch_and_input() -> None:
    name = "4.2/aggregate-format2"
    found = StateReader(golden(name))
    told = explain(found, *found.pick("aggregate"), {"customer": "c3"}, now_ms=0)
    batch = found.batch_id
    assert told.written_batch == batch
    assert told.exact
    [read] = told.inputs
    upto, after = (
        json.loads(golden_files(name)[f"offsets/{each}"].decode().splitlines()[-1])
        for each in (batch, batch - 1)
    )
    assert (json.loads(read.upto), json.loads(read.after)) == (upto, after)
    assert told.expires_ms is None
    assert told.rank is not None
    assert told.rank.keys == len(model.aggregate())
    # Every row of this state has the same bytes.
    assert (told.rank.rank, round(told.rank.share * told.rank.keys, 6)) == (1, 1.0)


def test_what_is_left_of_a_time_goes_by_the_watermark() -> None:
    name = "4.2/dedupe-changelog"
    found = StateReader(golden(name))
    files = model.taken(golden_files(name))
    # At the end nothing is held any more, so an older batch is looked at.
    batch, held = next(
        (each, held)
        for each in range(found.batch_id, 0, -1)
        if (held := model.seen_within_watermark(files, each + 1))
    )
    found = StateReader(golden(name), batch)
    customer, until = next(iter(held.items()))
    told = explain(found, *found.pick("dedupe"), {"customer": customer}, now_ms=0)
    until_ms = round(until.timestamp() * 1000)
    assert told.clock == "event"
    assert told.expires_ms == (until_ms, until_ms)
    commit = json.loads(golden_files(name)[f"commits/{found.batch_id}"].decode().splitlines()[1])
    assert told.left_ms == until_ms - commit["nextBatchWatermarkMs"]


WINDOW = {"start": "2026-03-05T08:10:00Z", "end": "2026-03-05T08:12:00Z"}


@pytest.mark.parametrize(
    ("name", "state", "key", "ends"),
    [
        ("4.2/windowed-memory", "aggregate", {"window": WINDOW, "customer": "c0"}, "08:12:00"),
        ("4.2/session-rocksdb", "sessions", {"customer": "c1"}, "08:11:30"),
    ],
)
def test_a_window_goes_when_the_watermark_passes_its_end(
    name: str, state: str, key: dict[str, Any], ends: str
) -> None:
    found = StateReader(golden(name))
    operator, picked = found.pick(state)
    told = explain(found, operator, picked, typed_key(key, picked.key, "", written=True), now_ms=0)
    assert told.clock == "event"
    end_ms = round(datetime.fromisoformat(f"2026-03-05T{ends}+00:00").timestamp() * 1000)
    assert told.expires_ms == (end_ms, end_ms)
    assert told.watermark_now_ms is not None
    assert told.left_ms == end_ms - told.watermark_now_ms


def test_when_a_row_of_a_join_goes_follows_from_the_joins_condition() -> None:
    found = StateReader(golden("4.2/join-format2"))
    operator, state = found.pick("join.left")
    key = next(found.scan("join.left")).key
    told = explain(found, operator, state, key, now_ms=0)
    assert (told.clock, told.expires_ms, told.left_ms) == ("event", None, None)


@pytest.mark.parametrize("name", KEYED)
def test_a_state_by_address(tmp_path: Path, name: str) -> None:
    golden_on_disk(name, tmp_path / "ck")
    states = hf.state(tmp_path / "ck")
    operator = states.operators()[0]
    [customer] = [entry.key["key"] for entry in states.scan(operator.name)][:1]
    told = states.explain("visits", customer)
    assert told.key_group is not None
    assert told.found.value == states.get("visits", customer).value
    assert states.history("visits", customer).versions[-1].found.value == told.found.value
    with pytest.raises(NotFound):
        states.history("nothing", customer)
