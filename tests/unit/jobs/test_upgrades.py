"""The parts of an upgrade that need no Spark: its verdict, its record, the watch, and the way back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.checkpoints.logs import Logs
from holdfast.errors import Conflict, Corrupt, NotFound
from holdfast.jobs import rollback
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.registry.client import Control
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.jobs.run_record import RunRecord, last_run, note_run, runnable_target
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.jobs.upgrades.planning import is_converted, refusal_of
from holdfast.jobs.upgrades.upgrade_api import upgrade
from holdfast.jobs.upgrades.upgrade_record import (
    EvolveArguments,
    Goals,
    UpgradeFile,
    UpgradeMode,
    UpgradeOutcome,
    UpgradeRecord,
)
from holdfast.jobs.upgrades.watching import HealthVerdict, HealthWatch, alert_key
from holdfast.model import (
    BatchProgress,
    Failure,
    JobState,
    PlanChange,
    QueryStarted,
    StateVerdict,
    Try,
    UpgradeReport,
    Verdict,
)
from holdfast.model import Effect as E  # noqa: N817 - short in tables
from holdfast.observe.alerting import Alert
from holdfast.storage.local import LocalStorage

STOPPED_MS = 1_000_000
GOALS = Goals(batches=3, within_ms=60_000, idle_ms=30_000)
RUN = RunRecord("/shop/old.py", "/shop", "ab" * 32, {"trigger": "1 s"}, {"spark.x": "1"}, "local[2]")


# The verdict.


def report(
    *verdicts: Verdict, migration: str | None = None, changes: tuple[PlanChange, ...] = ()
) -> UpgradeReport:
    states = tuple(StateVerdict("0 aggregate", "aggregate", verdict, "why") for verdict in verdicts)
    return UpgradeReport("new.py", "ck", None, 7, states, changes, Try(True, True), "note", (), migration)


@pytest.mark.parametrize(
    ("found", "accepted", "refused"),
    [
        (report(Verdict.MAP), (), None),
        (report(Verdict.MIGRATE, Verdict.NEW), (), None),
        (report(Verdict.DROP), (), "would be lost"),
        (report(Verdict.DROP), ("other",), "would be lost"),
        (report(Verdict.DROP), ("aggregate",), None),
        (report(Verdict.REINTERPRET), (), "would be reinterpreted"),
        (report(Verdict.INCOMPATIBLE), (), "would not start"),
        (report(Verdict.INCOMPATIBLE), ("aggregate",), "would not start"),
        (report(Verdict.INCOMPATIBLE, migration="give --initial total=0"), (), "would not start"),
        (report(Verdict.MAP, changes=(PlanChange("source 0", "a", "b", E.FAILS, "gone"),)), (), "gone"),
    ],
)
def test_an_upgrade_that_would_lose_state_is_refused_unless_the_state_is_named(
    found: UpgradeReport, accepted: tuple[str, ...], refused: str | None
) -> None:
    why, hint = refusal_of({"q": found}, (), accepted)
    assert (why is None) is (hint is None) is (refused is None)
    assert refused is None or refused in (why or "")


@pytest.mark.parametrize(
    ("migration", "wishes", "converted"),
    [
        (None, EvolveArguments(initial={"total": "0"}), False),
        ("", EvolveArguments(), True),
        ("give --initial total=0", EvolveArguments(), False),
        ("give --initial total=0", EvolveArguments(initial={"total": "0"}), True),
    ],
)
def test_a_refused_state_is_converted_where_nothing_else_is_needed(
    migration: str | None, wishes: EvolveArguments, converted: bool
) -> None:
    assert is_converted(report(Verdict.INCOMPATIBLE, migration=migration), wishes) is converted
    assert not is_converted(report(Verdict.MAP), wishes)


# The watch.


class Job:
    """A supervised job in a registry, whose query has a checkpoint without batches."""

    def __init__(self, folder: Path) -> None:
        self.home = StateHome(folder / "home")
        self.home.path.mkdir()
        self.registry = Registry(self.home.registry)
        self.checkpoint = folder / "ck"
        (self.checkpoint / "offsets").mkdir(parents=True)
        record = JobRecord.begun("q", "q.py", self.checkpoint.as_uri(), "retain", STOPPED_MS, None)
        self.registry.start_job(record)
        self.attempt = self.registry.start_attempt("q", 1, STOPPED_MS, recovers=False)
        query = QueryStarted("q", "i", "r", self.checkpoint.as_uri(), "exactly once: so")
        self.registry.queries_started("q", self.attempt, [query], STOPPED_MS)
        self.lock = SupervisorLock(self.home, "q")
        assert self.lock.take()

    def commit(self, batch_id: int, at_ms: int) -> None:
        batch = BatchProgress("q", batch_id, at_ms, 5, 100, None, ())
        self.registry.add_batch("q", self.attempt, batch)

    def judge(
        self, after_ms: int, *alerts: Alert, over: bool = False, former: tuple[str, ...] = ()
    ) -> HealthVerdict | None:
        watch = HealthWatch(GOALS, self.attempt - 1, STOPPED_MS, former)
        details = Control(self.home, lambda: STOPPED_MS).details("q")
        return watch.judge(details, alerts, STOPPED_MS + after_ms, over=over)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def alert() -> Alert:
    return Alert("lag", ("q", "q"), "firing", 0, None, 9.0, 5.0)


def test_new_code_is_healthy_after_its_batches(job: Job) -> None:
    job.commit(1, STOPPED_MS - 1)  # of the old code
    for batch_id in (2, 3):
        job.commit(batch_id, STOPPED_MS + batch_id)
    assert job.judge(1000) is None
    job.commit(4, STOPPED_MS + 4)
    found = job.judge(1000)
    assert found == HealthVerdict(True, "3 batches committed, no alert", 3)


def test_new_code_without_input_is_healthy_once_it_was_idle_for_long_enough(job: Job) -> None:
    assert job.judge(29_999) is None
    found = job.judge(30_000)
    assert found is not None
    assert found.healthy
    (job.checkpoint / "offsets" / "2").write_text("v1")  # planned, not committed
    assert job.judge(30_000) is None
    late = job.judge(60_000, over=True)
    assert late == HealthVerdict(False, "0 of 3 batches committed after 1 min 0 s", 0)


def test_a_failed_driver_is_not_forgiven(job: Job) -> None:
    for batch_id in range(5):
        job.commit(batch_id, STOPPED_MS + batch_id)
    failure = Failure("query", "ValueError", "poison", cause="code")
    job.registry.end_attempt("q", job.attempt, "failed", failure, STOPPED_MS + 9)
    found = job.judge(1000)
    assert found is not None
    assert (found.healthy, found.batches) == (False, 5)
    assert "poison" in found.text


@pytest.mark.parametrize(
    ("firing", "former", "healthy"),
    [
        (alert(), (), None),
        (alert(), (alert_key(alert()),), True),
        # It looks back at batches of the old code.
        (Alert("checkpoint_failures", ("q",), "firing", 0, None, 1.0, 0.0), (), True),
    ],
)
def test_an_alert_that_the_old_code_did_not_have_keeps_the_verdict_open(
    job: Job, firing: Alert, former: tuple[str, ...], healthy: bool | None
) -> None:
    for batch_id in range(3):
        job.commit(batch_id, STOPPED_MS + batch_id)
    found = job.judge(1000, firing, former=former)
    assert (found and found.healthy) is healthy
    late = job.judge(1000, firing, former=former, over=True)
    assert late is not None
    assert late.healthy is bool(healthy)


def test_a_job_that_has_read_everything_is_healthy_and_one_that_ended_is_not(job: Job) -> None:
    job.registry.set_state("q", JobState.FINISHED, STOPPED_MS)
    found = job.judge(0)
    assert found is not None
    assert found.healthy
    job.registry.set_state("q", JobState.FAILED, STOPPED_MS, "no menu")
    assert job.judge(0) == HealthVerdict(False, "the job ended: no menu", 0)


# The records.


def test_the_code_of_a_run_is_kept_when_its_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = StateHome(tmp_path / "home")
    (tmp_path / "job.py").write_text("import menu\nold = 1\n")
    (tmp_path / "menu.py").write_text("tea = 1\n")
    assert last_run(home, "shop") is None
    note_run(home, "shop", DriverSpec("job.py:shop", str(home.path), {"a": "b"}, standby=True))
    found = last_run(home, "shop")
    assert found is not None
    assert (found.target, found.directory) == (f"{tmp_path}/job.py:shop", str(tmp_path))
    assert (found.overrides, found.standby) == ({"a": "b"}, True)
    assert runnable_target(home, "shop", found) == found.target
    (tmp_path / "job.py").write_text("import menu\nnew = 1\n")
    for _ in range(2):
        copy, name = runnable_target(home, "shop", found).rsplit(":", 1)
        assert name == "shop"
        assert Path(copy).read_text() == "import menu\nold = 1\n"
        assert (Path(copy).parent / "menu.py").read_text() == "tea = 1\n"


def record() -> UpgradeRecord:
    return UpgradeRecord(
        "ab" * 16, "q", UpgradeMode.LAST_STATE, "file:///ck", {"q": "file:///ck"}, {"q": "file:///sp"},
        RUN, RUN, True, ("q",), EvolveArguments(rename={"a": "b"}), ("q",), GOALS,
    )  # fmt: skip


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = UpgradeFile(StateHome(tmp_path), "q")
    assert file.read() is None
    made = record().with_step("stop", "stopped", 12, attempt=3)
    file.write(made)
    assert file.read() == file.unfinished() == made
    assert made.did("stop")
    assert not made.did("start")
    file.write(replace(made, outcome=UpgradeOutcome.WENT_BACK, reason="poison"))
    assert file.unfinished() is None


@pytest.mark.parametrize("text", ["", "{}", '{"job": 1}', "[]"])
def test_a_damaged_record_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "jobs" / "q").mkdir(parents=True)
    (tmp_path / "jobs" / "q" / "upgrade.json").write_text(text)
    with pytest.raises(Corrupt):
        UpgradeFile(StateHome(tmp_path), "q").read()


def test_one_process_upgrades_a_job_at_a_time(job: Job) -> None:
    with pytest.raises(NotFound, match="no unfinished upgrade"):
        upgrade("q", home=job.home.path)
    lock = UpgradeFile(job.home, "q").lock
    assert lock.take()
    with pytest.raises(Conflict, match="a different process is upgrading"):
        upgrade("q", "new.py", home=job.home.path)
    lock.release()
    UpgradeFile(job.home, "q").write(record())
    with pytest.raises(Conflict, match="a different upgrade of job 'q' is unfinished"):
        upgrade("q", "new.py", home=job.home.path)


# The way back.


def test_a_checkpoint_of_new_code_is_moved_aside_for_the_savepoint(tmp_path: Path) -> None:
    checkpoint = golden_on_disk("4.2/aggregate-format2", tmp_path / "ck")
    saved = savepoints.take(checkpoint, tmp_path / "sp", batch=10)
    newest = Logs(LocalStorage(checkpoint)).newest
    assert newest == 11
    for _ in range(2):  # the second call finds a note
        way = rollback.put_back("q", checkpoint.as_uri(), saved.uri, newest, 1_800_000_000_000)
        assert Logs(LocalStorage(checkpoint)).newest == 10
        assert Path(way.aside).name == "ck.upgraded-20270115T080000Z"
        assert Logs(LocalStorage(Path(way.aside))).newest == 11
        assert rollback.under_way(checkpoint.as_uri()) == [way]
    note = json.loads((tmp_path / ".ck.holdfast.fallback.json").read_text())
    assert note["why"] == "upgraded"
    rollback.done(way)
    assert rollback.under_way(checkpoint.as_uri()) == []
