"""Savepoints without what has expired: as of the batch's own clocks, and everything else as it was."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kept_state import Shop, groups_of, hold, in_time, kept
from keyed_programs import Everything
from served import NOW_MS, Served
from typer.testing import CliRunner

import holdfast as hf
from golden import KEYED, golden_on_disk
from holdfast import savepoints
from holdfast.at_rest.keyed_reader import KeyedStateReader, keyed_states
from holdfast.changes import expiry
from holdfast.changes.expiry import WithoutExpired, without_expired
from holdfast.changes.keyed.group_writer import write_groups
from holdfast.changes.keyed.store_rows import GroupChange
from holdfast.checkpoints.keyed import KeyTimer
from holdfast.cli import app
from holdfast.clock import now_ms
from holdfast.errors import Conflict, Internal, Invalid, Unsupported
from holdfast.jobs.background_savepoints import TAKEN, Savepointing
from holdfast.jobs.definition import Periodic
from holdfast.jobs.events import JobEvent
from holdfast.jobs.operation_executor import OperationExecutor
from holdfast.jobs.operation_verbs import OperationContext, TakeSavepointVerb
from holdfast.jobs.registry.operation_log import Operations, OperationState, TakeSavepoint
from holdfast.model import QueryStarted
from holdfast.storage.local import LocalStorage
from holdfast.worker.interface import Moment
from holdfast.worker.state.tables import Run
from holdfast.worker.state.upkeep import Cleaner

pytestmark = pytest.mark.slow

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
NOW, WATERMARK = 100 * HOUR_MS, 90 * HOUR_MS


class Visits(hf.Keyed):
    """An hour to live for some of it, by both clocks, and for ever for the rest."""

    last = hf.value("long", ttl="1 hour")
    words = hf.list("string", ttl="1 hour")
    often = hf.map("string", "long", ttl=hf.ttl("1 hour", clock="event"))
    visits = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        if event.what == "count":
            state.visits += 1
            return
        if event.what == "timer":
            ctx.timer(ctx.now_ms + 5 * HOUR_MS, name="later", clock="processing")
        state.last = event.n
        state.words.append(f"w{event.n}")
        state.often[f"k{event.n}"] = event.n
        yield {"customer": event.customer, "n": event.n}

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"customer": ctx.key.customer, "n": 0}


def shop(now_ms: int) -> Shop:
    return Shop(
        Visits(),
        by="customer",
        events="customer string, what string, n long, ts timestamp",
        output="customer string, n long",
        time="ts",
        key_groups=4,
        now=now_ms,
    )


def visit(made: Shop, customer: str, n: int, at_ms: int, what: str = "") -> None:
    made.send({"customer": customer, "what": what, "n": n, "ts": in_time(at_ms)})


def filled(now_ms: int, watermark_ms: int) -> Shop:
    """Everybody came 65 minutes ago, `ann` once more since; `bob` was counted, `cid` has a timer.

    No batch runs after anything has expired, or its clean-up would have some of it.
    """
    made = shop(now_ms - 65 * MINUTE_MS)
    for customer, what in (("ann", ""), ("bob", ""), ("dan", ""), ("cid", "timer"), ("bob", "count")):
        visit(made, customer, 1, watermark_ms - 65 * MINUTE_MS, what)
    made.set_clocks(now=now_ms - 10 * MINUTE_MS, watermark=watermark_ms - 11 * MINUTE_MS)
    visit(made, "ann", 2, watermark_ms - 10 * MINUTE_MS)
    made.set_clocks(now=now_ms, watermark=watermark_ms)
    return made


EXPECTED = {
    "ann": {"last": 2, "words": ["w2"], "often": {"k2": 2}},
    "bob": {"visits": 1},
    "cid": {},
}
COUNTS = {"last": 3, "words": 4, "often": 4}


def applied(made: Shop, done: WithoutExpired) -> None:
    hold(made, [change.after for change in done.groups if change.after is not None])


def test_what_has_expired_goes_and_all_else_stays() -> None:
    made = filled(NOW, WATERMARK)
    found = without_expired(kept(made))
    applied(made, found)
    rows = {row.key[0]: row for row in kept(made).rows()}
    assert {who: dict(row.values) for who, row in rows.items()} == EXPECTED
    assert rows["cid"].timers == (KeyTimer("later", "processing", NOW - 65 * MINUTE_MS + 5 * HOUR_MS),)
    assert {each.state: each.values for each in found.dropped} == COUNTS
    assert {each.state: each.as_of_ms for each in found.dropped} == {
        "last": NOW,
        "words": NOW,
        "often": WATERMARK,
    }
    assert found.keys == 1
    # Once is enough.
    assert without_expired(kept(made)).groups == ()


@pytest.mark.parametrize("wrong", ["too much", "a key"])
def test_a_group_that_is_not_what_it_should_be_is_no_savepoint(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleaning is at fault, and every key is compared with what it was."""

    class Faulty(Cleaner):
        def rows(self, batch: pa.RecordBatch, moment: Moment, elements: Mapping[str, Run]) -> pa.RecordBatch:
            kept = super().rows(batch, moment, elements)
            return kept.slice(0, 0) if wrong == "too much" else kept.slice(0, max(0, kept.num_rows - 1))

    state = kept(filled(NOW, WATERMARK))
    monkeypatch.setattr(expiry, "Cleaner", Faulty)
    with pytest.raises(Internal, match="wrong after expired values were dropped"):
        without_expired(state)


def test_without_a_watermark_nothing_of_the_events_clock_expires() -> None:
    made = shop(0)
    visit(made, "ann", 1, 0)
    made.set_clocks(now=2 * HOUR_MS)
    found = without_expired(kept(made))
    applied(made, found)
    (row,) = kept(made).rows()
    assert dict(row.values) == {"often": {"k1": 1}}


@pytest.mark.parametrize("seed", range(6))
def test_a_program_goes_on_as_it_would_have(seed: int) -> None:
    """What has expired is never returned, so that nobody can tell whether it was dropped."""
    chance = random.Random(seed)
    events = "who string, op string, n long, ts timestamp"
    output = "who string, what string, last long, total long, recent string, seen string, span long, at long"
    pair = [
        Shop(Everything(), by="who", events=events, output=output, time="ts", key_groups=2, now=0)
        for _ in ("as it is", "without what has expired")
    ]
    dropped = 0
    for batch in range(30):
        now = batch * 4_000
        rows = [
            {
                "who": chance.choice(["ann", "bob", "cid", None]),
                "op": chance.choice(["add", "add", "add", "read", "read", "drop", "timer", "clock", "clear"]),
                "n": chance.randrange(9),
                "ts": in_time(now + chance.randrange(3_000)),
            }
            for _ in range(chance.randrange(6))
        ]
        watermark = max(0, now - 2_000)
        outputs = []
        for each in pair:
            each.set_clocks(now=now, watermark=watermark)
            outputs.append(each.send(*rows) if rows else [])
        assert outputs[0] == outputs[1]
        found = without_expired(kept(pair[1]))
        dropped += sum(each.values for each in found.dropped)
        applied(pair[1], found)
    assert dropped > 0


# Savepoints


@pytest.fixture(params=KEYED)
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A real checkpoint, whose newest batch has the state of `filled`."""
    place = golden_on_disk(request.param, tmp_path / "ck")
    storage = LocalStorage(place)
    (state,) = keyed_states(storage)
    before = {each.group: each for each in state.source.groups()}
    after = {each.group: each for each in groups_of(_clocked(state).inspect.store)}
    changes = [GroupChange(before.get(number), after.get(number)) for number in {*before, *after}]
    write_groups(storage, {0: changes}, tmp_path / "work")
    (state,) = keyed_states(storage)
    assert {row.key[0] for row in state.rows()} == {"ann", "bob", "cid", "dan"}
    return place


def _clocked(state: KeyedStateReader) -> Shop:
    assert state.operator.watermark_ms is not None
    return filled(state.operator.planned_ms, state.operator.watermark_ms)


def values(storage: Any) -> dict[str, dict[str, Any]]:
    (state,) = keyed_states(storage)
    return {row.key[0]: dict(row.values) for row in state.rows()}


def test_a_savepoint_without_what_has_expired(checkpoint: Path, tmp_path: Path) -> None:
    before = {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}
    taken = savepoints.take(checkpoint, tmp_path / "sp", label="clean", drop_expired=True)
    # Nothing else has got into the catalog, and nothing is left beside it.
    (listed,) = savepoints.list(tmp_path / "sp")
    assert (listed.uri, taken.manifest.label) == (taken.uri, "clean")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ck", "sp", "work"]
    assert {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()} == before
    (state,) = keyed_states(LocalStorage(checkpoint))
    record = taken.manifest.expired
    assert record is not None
    assert (record["values"], record["keys"]) == (sum(COUNTS.values()), 1)
    assert {each["state"]: each["values"] for each in record["states"]} == COUNTS
    assert {each["as_of_ms"] for each in record["states"] if each["clock"] == "processing"} == {
        state.operator.planned_ms
    }
    assert savepoints.verify(taken.uri, deep=True).ok
    savepoints.restore(taken.uri, tmp_path / "restored")
    assert values(LocalStorage(tmp_path / "restored")) == EXPECTED
    origin = json.loads((tmp_path / "restored/_holdfast/origin.json").read_bytes())
    assert origin["expired_dropped"] == dict(record)


def test_periodic_savepoints_without_what_has_expired(checkpoint: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "sp"
    complete = savepoints.take_and_retain(checkpoint, catalog, retain=1)
    assert complete.taken is not None
    assert complete.taken.manifest.expired is None
    # The newest batch has a savepoint of this label, whatever it holds.
    assert savepoints.take_and_retain(checkpoint, catalog, drop_expired=True).taken is None
    clean = savepoints.take_and_retain(checkpoint, catalog, label="clean", drop_expired=True).taken
    assert clean is not None
    assert clean.manifest.expired is not None
    assert clean.manifest.expired["keys"] == 1
    # It has the label, so that a later one replaces it; a batch gets no second one.
    again = savepoints.take_and_retain(checkpoint, catalog, label="clean", drop_expired=True)
    assert (again.taken, again.existing) == (None, clean.manifest.savepoint_id)
    savepoints.restore(clean.uri, tmp_path / "restored")
    assert values(LocalStorage(tmp_path / "restored")) == EXPECTED
    assert [each.name for each in tmp_path.glob(".holdfast-*")] == []


def test_a_jobs_schedule_without_what_has_expired(checkpoint: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "sp"
    schedule = Periodic(catalog.as_uri(), every_ms=3_600_000, retained=3, drop_expired=True)
    work = Savepointing(schedule, now_ms)
    work.started({"shop": checkpoint.as_uri()})
    heard: list[JobEvent] = []
    deadline = time.monotonic() + 60
    try:
        while not any(event.kind == TAKEN for event in heard):
            assert time.monotonic() < deadline, heard
            time.sleep(0.01)
            heard += work.heard()
    finally:
        work.close()
    (listed,) = savepoints.list(catalog)
    assert listed.manifest is not None
    assert listed.manifest.expired is not None
    savepoints.restore(listed.uri, tmp_path / "restored")
    assert values(LocalStorage(tmp_path / "restored")) == EXPECTED


def test_an_operation_without_what_has_expired_outlasts_its_server(checkpoint: Path, tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.job(checkpoint=checkpoint.parent)
    served.registry.queries_started(
        "shop", 2, [QueryStarted("shop", "id-1", "run", checkpoint.as_uri(), "x")], NOW_MS
    )
    catalog = tmp_path / "sp"
    wanted = TakeSavepoint(catalog.as_uri(), "clean", drop_expired=True)
    operations = Operations(served.home)
    operations.ask("cd" * 16, "savepoint", "shop", wanted, NOW_MS)
    begun = operations.begin("cd" * 16, "server that is dead", NOW_MS)
    assert begun is not None
    context = OperationContext(
        begun, wanted, served.home, served.registry, operations, lambda: NOW_MS, threading.Event()
    )
    TakeSavepointVerb().run(context)
    (taken,) = savepoints.list(catalog)
    # The server was killed before it had written that down: the next one finds the savepoint.
    OperationExecutor(served.home, lambda: NOW_MS).recover()
    done = operations.get("cd" * 16)
    assert done.state is OperationState.COMPLETED, done.error
    assert savepoints.list(catalog) == (taken,)
    savepoints.restore(taken.uri, tmp_path / "restored")
    assert values(LocalStorage(tmp_path / "restored")) == EXPECTED


def test_the_label_stays_with_the_savepoint_that_it_is_made_of(checkpoint: Path, tmp_path: Path) -> None:
    complete = savepoints.take(checkpoint, tmp_path / "sp", label="before")
    assert hf.drop_expired(complete.uri).manifest.label is None
    assert hf.drop_expired(complete.uri, label="clean").manifest.label == "clean"
    assert savepoints.show(f"{tmp_path / 'sp'}@before").savepoint_id == complete.manifest.savepoint_id


def test_a_restore_drops_it_only_where_that_is_asked_for(checkpoint: Path, tmp_path: Path) -> None:
    taken = savepoints.take(checkpoint, tmp_path / "sp")
    savepoints.restore(taken.uri, tmp_path / "same")
    assert values(LocalStorage(tmp_path / "same")) == values(LocalStorage(checkpoint))
    made = savepoints.restore(taken.uri, tmp_path / "less", drop_expired=True)
    assert made.as_dict()["savepoint"] == taken.uri
    assert made.as_dict()["expired_dropped"]["keys"] == 1
    assert values(LocalStorage(tmp_path / "less")) == EXPECTED
    assert hf.checkpoints.verify(tmp_path / "less").ok
    assert len(savepoints.list(tmp_path / "sp")) == 1
    with pytest.raises(Conflict):
        savepoints.restore(taken.uri, tmp_path / "less", drop_expired=True)
    assert [each.name for each in tmp_path.glob(".holdfast-*")] == []


def test_a_fork_drops_it_only_where_that_is_asked_for(checkpoint: Path, tmp_path: Path) -> None:
    taken = savepoints.take(checkpoint, tmp_path / "sp")
    savepoints.fork(taken.uri, tmp_path / "same")
    assert values(LocalStorage(tmp_path / "same")) == values(LocalStorage(checkpoint))
    made = savepoints.fork(taken.uri, tmp_path / "less", drop_expired=True)
    assert made.query_id != taken.manifest.query_id
    assert made.as_dict()["expired_dropped"]["keys"] == 1
    assert values(LocalStorage(tmp_path / "less")) == EXPECTED
    assert hf.checkpoints.verify(tmp_path / "less").ok
    assert [each.name for each in tmp_path.glob(".holdfast-*")] == []


def test_where_nothing_expires_the_state_is_the_same(tmp_path: Path) -> None:
    checkpoint = golden_on_disk("4.2/state-format2", tmp_path / "ck")
    plain = savepoints.take(checkpoint, tmp_path / "sp")
    taken = savepoints.take(checkpoint, tmp_path / "sp", drop_expired=True)
    assert [each.sha256 for each in taken.manifest.files] == [each.sha256 for each in plain.manifest.files]
    assert taken.manifest.expired == {"values": 0, "keys": 0, "states": []}


def test_rows_of_a_former_version_are_refused_by_name() -> None:
    state = kept(filled(NOW, WATERMARK))
    other = Shop(
        Everything(), by="customer", events="customer string, ts timestamp", output="who string", time="ts"
    )
    newer = replace(state, operator=replace(state.operator, form=kept(other).operator.form))
    with pytest.raises(Unsupported, match="which only the job can convert"):
        without_expired(newer)


def test_the_verbs_say_what_was_dropped(checkpoint: Path, tmp_path: Path) -> None:
    def run(*words: str) -> Any:
        return CliRunner().invoke(app, words)

    made = run("savepoint", "take", str(checkpoint), str(tmp_path / "sp"), "--drop-expired")
    assert made.exit_code == 0, made.stderr
    assert "11 expired values dropped, and 1 keys with them" in made.stderr
    shown = run("savepoint", "show", made.stdout.strip()).stdout
    assert "words 4 as of" in shown
    assert run("savepoint", "list", str(tmp_path / "sp")).stdout.rstrip().endswith("expired dropped")
    restored = run("restore", made.stdout.strip(), str(tmp_path / "r"), "--drop-expired", "--json")
    assert json.loads(restored.stdout)["expired_dropped"]["values"] == 0
    forked = run("fork", made.stdout.strip(), str(tmp_path / "f"), "--drop-expired", "--json")
    assert json.loads(forked.stdout)["expired_dropped"]["values"] == 0
    refused = run("fork", made.stdout.strip(), "--compare", "a.py", "--original", "b.py", "--drop-expired")
    assert refused.exit_code == Invalid.exit_code
    refused = run("stop", "nobody", "--drop-expired", "--home", str(tmp_path / "home"))
    assert refused.exit_code == Invalid.exit_code
