"""What was written to disks once is read: by the code of today, wherever in it that lies by now.

`tests/support/written_state.py` and `tests/golden/make_noted.py` made it. What it says was put in there by
hand, and is what has to come out.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import split_programs
from keyed_runs import START, program
from written_state import (
    ASKED,
    BATCH,
    CHECKPOINT,
    DONE,
    DRILL,
    FAILED,
    FAILURE,
    JOB,
    LEADER,
    NOW_MS,
    OWNER,
    QUERY,
    RECORD,
    RECOVERY,
    SAVEPOINT,
    unpacked,
    way_back,
)

import holdfast as hf
from golden import golden_on_disk
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.record import RecordFile
from holdfast.errors import Conflict
from holdfast.formats.logs.notes import parse_note
from holdfast.jobs import rollback
from holdfast.jobs.candidacy import LeaderRecord
from holdfast.jobs.registry.operation_log import Operations, OperationState, TakeSavepoint, decode
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome
from holdfast.observe.alerting import AlertStore
from holdfast.ownership import checkpoint_lock
from holdfast.ownership.storage_election import StorageElection
from holdfast.savepoints.catalog import PENDING, RECORDED, Listed, drills
from holdfast.server.access.guard import home_token
from holdfast.storage.local import LocalStorage
from holdfast.stream.sinks.ledger import Ledger


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("state", tmp_path_factory.mktemp("written"))


@pytest.fixture
def written(packed: Path, tmp_path: Path) -> Path:
    """A copy, since reading a database may bring it to a newer version."""
    return Path(shutil.copytree(packed, tmp_path / "state"))


@pytest.mark.slow
def test_a_catalog(written: Path) -> None:
    every = savepoints.list(written / "catalog")
    assert [each.problem for each in every] == [None] * 5
    batches = sorted((each.manifest.batch_id, each.content or "") for each in every if each.manifest)
    assert batches == [(9, RECORDED), (10, PENDING), *[(11, RECORDED)] * 3]
    first = first_of(written)
    assert first.manifest is not None
    assert first.manifest.label == "renamed"
    for each in every:
        assert savepoints.verify(each.uri, deep=True).ok, each.savepoint_id
    changes = [each.manifest.change for each in every if each.manifest and each.manifest.change]
    assert [change["why"] for change in changes] == ["it was wrong", "it was right"]
    edited, undone = (each for each in every if each.manifest and each.manifest.change)
    assert changes[0]["who"] == changes[1]["who"] == "ann"
    assert [row for row in rows(edited.uri) if row["count"] == 1] == [
        {**row, "count": 1} for row in rows(first.uri) if row["customer"] == "c1"
    ]
    assert rows(undone.uri) == rows(first.uri) == rows(written / "checkpoint")
    assert drills(LocalStorage(written / "catalog")) == (DRILL,)


def first_of(written: Path) -> Listed:
    """The savepoint that the others were made of."""
    every = savepoints.list(written / "catalog")
    return next(
        each for each in every if each.manifest and each.manifest.batch_id == 11 and not each.manifest.change
    )


def rows(address: str | Path) -> list[dict[str, object]]:
    """All rows of the aggregate."""
    return sorted(
        hf.state(address).arrow("aggregate").read_all().to_pylist(), key=lambda row: str(row["customer"])
    )


def test_a_catalog_in_which_a_removal_is_under_way(written: Path) -> None:
    with pytest.raises(Conflict, match="a removal is running"):
        savepoints.take(written / "checkpoint", written / "erased")
    # The note is of a process that is long dead.
    (entry,) = savepoints.list(written / "erased")
    assert entry.manifest is not None
    assert [each["who"] for each in entry.manifest.erasures] == ["ann"]
    assert sorted(str(row["customer"]) for row in rows(entry.uri)) == [f"c{n}" for n in range(10) if n != 1]


def test_a_certificate(written: Path) -> None:
    whole = json.loads((written / "certificate.json").read_bytes())
    assert sorted(whole) == ["certificate", "sha256"]
    assert (whole["certificate"]["who"], whole["certificate"]["why"]) == ("ann", "asked for")
    assert whole["certificate"]["outcome"] == "erased"


def test_checkpoints_that_were_made_of_a_savepoint(written: Path) -> None:
    original = checkpoints.read(written / "checkpoint")
    for name, same in (("restored", True), ("forked", False)):
        made = checkpoints.read(written / name)
        origin = json.loads((written / name / "_holdfast" / "origin.json").read_bytes())
        assert (made.query_id == original.query_id) is same
        assert (origin["query_id"], origin["batch"]) == (made.query_id, 11)
        assert checkpoints.verify(written / name).ok
        assert origin["savepoint"].endswith(first_of(written).savepoint_id)


@pytest.mark.parametrize(("home", "version"), [("home", 3), ("home-v2", 2), ("home-v1", 1)])
def test_a_registry_of_each_version(written: Path, home: str, version: int) -> None:
    registry = Registry(StateHome(written / home).registry)
    assert registry.job("shop") == replace(JOB, updated_ms=registry.job("shop").updated_ms)
    lost, running = registry.attempts("shop")
    cause = FAILURE.cause if version == 3 else "unknown"
    assert (lost.ending, lost.failure) == ("failed", replace(FAILURE, cause=cause))
    assert (running.driver_pid, running.running_ms, running.recovers) == (4244, NOW_MS - 82_000, True)
    assert registry.queries("shop") == [QUERY]
    assert registry.batches("shop") == [BATCH if version == 3 else replace(BATCH, load_ms=None)]
    assert registry.savepoints("shop") == ([] if version == 1 else [SAVEPOINT])
    assert registry.leader("shop") == (LEADER if version == 3 else None)
    assert registry.recoveries("shop") == ([RECOVERY] if version == 3 else [])
    assert registry.was_asked("shop", "stop", NOW_MS - 1)


def test_operations(written: Path) -> None:
    operations = Operations(StateHome(written / "home"))
    asked, done, failed = (operations.get(each) for each in (ASKED, DONE, FAILED))
    assert asked is not None
    assert done is not None
    assert failed is not None
    assert (asked.verb, asked.job, asked.state) == ("savepoint", "shop", OperationState.ASKED)
    assert asked.arguments["catalog"] == "file:///data/savepoints"
    assert decode(asked.verb, asked.arguments) == TakeSavepoint("file:///data/savepoints")
    assert (done.state, done.steps, done.result) == (OperationState.COMPLETED, {"at": "half"}, {"ok": True})
    assert (failed.state, failed.error) == (
        OperationState.FAILED,
        {"error": "it was away", "kind": "unavailable"},
    )


def test_alerts_and_numbers(written: Path) -> None:
    diary = AlertStore(written / "home")
    at_ms, samples = diary.numbers()["shop"]
    assert at_ms == NOW_MS
    assert [(each.metric, each.value) for each in samples] == [
        ("holdfast_alert_threshold", 10.0),
        ("holdfast_state_bytes", 12.0),
    ]
    assert diary.totals("shop") == {("holdfast_rows_total", ("shop", "visits")): 41.0}
    (alert,) = diary.standing("shop").values()
    (event,) = diary.waiting("shop", 0)
    assert diary.events("shop") == [event]
    assert (alert.rule, alert.since_ms) == ("state_size", NOW_MS)
    assert event.event.text == "the state of query visits has grown to 12 B, over 10 B"


def test_a_record_of_good_batches(written: Path) -> None:
    (path,) = (written / "home" / "records").glob("*.jsonl")
    record = RecordFile(path).read()
    assert record is not None
    assert (record.batch_id, record.sealed) == (11, True)
    assert all(
        record.mismatch(name, (written / "checkpoint" / name).read_bytes()) is None for name in record.files
    )
    assert set(record.files) > {"commits/11", "offsets/11", "metadata"}


def test_the_token_of_a_state_home(written: Path) -> None:
    token = (written / "home" / "server-token").read_text().strip()
    assert home_token(written / "home") == token
    assert len(token) > 20


def test_elections(written: Path) -> None:
    election = StorageElection(
        LocalStorage(written / "leases"), "shop", 10.0, lambda: 0.0, lambda: 1_800_000_005
    )
    state = election.look()
    assert state.record is not None
    assert LeaderRecord.parse(state.record, "here") == RECORD
    assert state.token == state.record_token == 1_800_000_001


def test_a_ledger(written: Path) -> None:
    ledger = Ledger.sqlite(written / "ledger.db", clock=lambda: NOW_MS)
    fence = ledger.holder("sales")
    assert fence is not None
    assert fence.owner == "app-1 pid 4243"
    (batch,) = ledger.history("sales")
    assert (batch.query_id, batch.batch_id, batch.committed_ms) == ("q", 41, NOW_MS)
    with ledger.transaction("sales", "q", 41, fence.token) as transaction:
        assert transaction is None  # it is written already
    assert ledger.claim("sales", "app-2 pid 1") > fence.token


def test_what_lies_beside_a_checkpoint(written: Path) -> None:
    place = written / "beside" / "shop"
    assert rollback.under_way(f"file://{place}") == [way_back(place)]
    lock = checkpoint_lock.lock_path(f"file://{place}", written / "home")
    later = replace(OWNER, term=6, verb="")
    with pytest.raises(Conflict) as caught:
        checkpoint_lock.fence(lock, later)
    assert (caught.value.found, caught.value.expected) == ("term 6", "term 7")


# Name, what its notes are called, the operator's name, and states of it with how many rows each has.
KEYED = (
    ("everything", "operator-everything.json", ("everything",)),
    ("broadcast", "operator-alerts.json", ("alerts",)),
    ("instances", "operator-holds.json", ("holds",)),
    ("basket", "operator-basket.json", ("basket",)),
    ("split-join", "split-meeting.json", ()),
)


@pytest.mark.parametrize(("name", "note", "operators"), KEYED)
def test_a_checkpoint_with_notes(tmp_path: Path, name: str, note: str, operators: tuple[str, ...]) -> None:
    place = unpacked(name, tmp_path)
    found = checkpoints.read(place)
    assert checkpoints.verify(place).ok
    assert sorted(file.name for file in (place / "_holdfast").iterdir() if file.suffix == ".json") == sorted(
        [note, "plan.json"]
    )
    plans = parse_note((place / "_holdfast" / "plan.json").read_bytes(), "here")
    assert plans is not None
    assert found.batch_id is not None
    plan = plans.at(found.batch_id)
    assert plan is not None
    assert plan.operators == operators
    assert plan.steps
    assert plan.sources
    taken = savepoints.take(place, tmp_path / "catalog", deep=True)
    assert savepoints.verify(taken.uri, deep=True).ok


def test_keyed_state(tmp_path: Path) -> None:
    basket = hf.state(unpacked("basket", tmp_path)).arrow("n").read_all().to_pylist()
    given = [event["who"] for batch in split_programs.batches(1, 2, 20, START) for event in batch]
    assert {row["who"]: row["n"] for row in basket} == Counter(given)
    instances = hf.state(unpacked("instances", tmp_path))
    for state in ("items", "seen"):
        assert sorted(row[state] for row in instances.arrow(state).read_all().to_pylist()) == [1, 2, 3, 4, 5]
    everything = hf.state(unpacked("everything", tmp_path))
    (operator,) = everything.operators()
    assert [each.name for each in operator.states] == [
        *("everything", "last", "total", "recent", "seen", "span", "events", "timers")
    ]
    counted = {row["who"]: row["events"] for row in everything.arrow("events").read_all().to_pylist()}
    sent = Counter(event["who"] for batch in program(3, batches=3, events=20) for event in batch)
    assert set(counted) == set(sent)
    assert all(counted[who] <= sent[who] for who in sent)  # the others came late
    assert counted["bob"] == sent["bob"] == 8


def test_the_packed_checkpoint_is_the_golden_one(written: Path, tmp_path: Path) -> None:
    golden = golden_on_disk(CHECKPOINT, tmp_path / "golden")
    assert rows(written / "checkpoint") == rows(golden)
