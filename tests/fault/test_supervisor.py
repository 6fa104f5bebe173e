"""The supervisor against drivers that are real processes, but need no JVM."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.policies import Leading, exponential, failure_rate, fixed_delay, no_restart
from holdfast.errors import Conflict, Internal
from holdfast.jobs import recovery
from holdfast.jobs.checkpoint_damage import CheckpointDamage
from holdfast.jobs.definition import strategy_fields
from holdfast.jobs.events import JobEvent, JobOutcome
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.registry.client import Control
from holdfast.jobs.registry.operation_log import Operations, OperationState, Rescale
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.jobs.supervisor.supervisor import Supervisor
from holdfast.model import JobState
from holdfast.ownership.elections import elections

pytestmark = pytest.mark.fault

FAKE = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))


class Case:
    """A scripted job in a state home of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = StateHome(folder / "home")
        self.home.path.mkdir()
        self.script = folder / "job.json"
        self.events: list[JobEvent] = []
        self.now = 0

    def write(self, *attempts: list[str], restart: Any = None, **definition: Any) -> DriverSpec:
        fields = {
            "name": "job",
            "checkpoint": (self.folder / "checkpoint").as_uri(),
            "on_cancel": "retain",
            "timeout_ms": None,
            "tolerable_failures": 0,
            "restart": strategy_fields(restart or fixed_delay(attempts=3, delay="1ms")),
            **definition,
        }
        self.script.write_text(json.dumps({"definition": fields, "attempts": attempts}))
        return DriverSpec(target=str(self.script), home=str(self.home.path))

    def run(
        self, spec: DriverSpec, on_event: Callable[[JobEvent], None] = lambda _: None, **options: Any
    ) -> JobOutcome:
        def tell(event: JobEvent) -> None:
            self.events.append(event)
            on_event(event)

        options.setdefault("launch", lambda each: DriverProcess.start(each, FAKE))
        return Supervisor(spec, self.home, tell, clock=self.tick, rng=random.Random(7), **options).run()

    def tick(self) -> int:
        self.now += 1
        return self.now

    @property
    def registry(self) -> Registry:
        return Registry(self.home.registry)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def ask_for(case: Case, verb: str, at: str) -> Callable[[JobEvent], None]:
    """Ask for something when an event of that kind is told."""

    def on_event(event: JobEvent) -> None:
        if event.kind == at:
            case.registry.request("job", verb, 0)

    return on_event


def test_a_job_that_ends_is_finished(case: Case) -> None:
    outcome = case.run(case.write(["batch", "batch", "finish"]))
    assert (outcome.state, outcome.attempts, outcome.batches) == (JobState.FINISHED, 1, 2)
    assert case.registry.job("job").state is JobState.FINISHED
    assert [batch.batch_id for batch in case.registry.batches("job")] == [0, 1]
    assert [each.ending for each in case.registry.attempts("job")] == ["finished"]


def test_a_caution_of_the_driver_is_told(case: Case) -> None:
    case.run(case.write(["caution two watermarks", "finish"]))
    (event,) = [each for each in case.events if each.kind == "caution"]
    assert event.text == "job: query q: two watermarks"
    assert event.facts["query"] == "q"


@pytest.mark.parametrize(
    ("line", "found"),
    [('{"kind": "anybody"}', "anybody"), ('{"kind": "stop"}', "stop"), ("nonsense", "b'nonsense'")],
)
def test_a_message_that_is_none_of_a_driver_ends_the_job(case: Case, line: str, found: str) -> None:
    with pytest.raises(Internal) as refused:
        case.run(case.write(["batch", f"line {line}", "hang"]))
    assert refused.value.found == found
    job = case.registry.job("job")
    assert (job.state, job.reason) == (JobState.FAILED, refused.value.fact)
    assert [attempt.ending for attempt in case.registry.attempts("job")] == ["failed"]


def test_a_killed_driver_is_started_again(case: Case) -> None:
    outcome = case.run(case.write(["batch", "die"], ["batch", "finish"]))
    assert (outcome.state, outcome.attempts, outcome.batches) == (JobState.FINISHED, 2, 2)
    first, second = case.registry.attempts("job")
    assert first.failure is not None
    assert str(first.failure) == "signal 9: the driver was killed"
    assert (first.ending, second.ending, second.recovers) == ("failed", "finished", True)
    assert "recovered" in case.kinds()


def test_a_driver_that_cannot_be_started_is_tried_again(case: Case) -> None:
    tries: list[DriverSpec] = []

    def launch(spec: DriverSpec) -> DriverProcess:
        tries.append(spec)
        if len(tries) == 2:  # what a fork says where no more processes are allowed
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return DriverProcess.start(spec, FAKE)

    outcome = case.run(case.write(["batch", "die"], ["batch", "finish"]), launch=launch)
    assert (outcome.state, outcome.attempts, len(tries)) == (JobState.FINISHED, 2, 3)
    told = [event.text for event in case.events if event.kind == "restarting"]
    assert "the driver could not start: Resource temporarily unavailable" in told[1]


def test_the_same_failure_without_progress_is_given_up(case: Case) -> None:
    spec = case.write(["fail boom"], restart=exponential(initial="1ms", max="2ms", same_failure=3))
    outcome = case.run(spec)
    assert (outcome.state, outcome.attempts) == (JobState.FAILED, 3)
    assert outcome.reason is not None
    assert outcome.reason.startswith("query q: Error: boom; gave up: ")
    assert case.registry.job("job").state is JobState.FAILED


def test_the_same_failure_after_progress_is_not_the_same(case: Case) -> None:
    restart = exponential(initial="1ms", max="2ms", same_failure=2)
    spec = case.write(*[["batch", "fail boom"]] * 4, ["finish"], restart=restart)
    assert case.run(spec).state is JobState.FINISHED


def test_failures_are_an_hour_apart_whatever_the_wall_clock_says(case: Case) -> None:
    hours = iter(range(100))
    restart = failure_rate(1, "5m", "1ms", same_failure=None)
    spec = case.write(*[["batch", "fail boom"]] * 3, ["finish"], restart=restart)
    # The wall clock was set back meanwhile: by it, all failures come within a second.
    outcome = case.run(spec, now=lambda: next(hours) * 3600.0)
    assert (outcome.state, outcome.attempts) == (JobState.FINISHED, 4)


def test_no_restart_means_none(case: Case) -> None:
    assert case.run(case.write(["die"], restart=no_restart())).attempts == 1


def test_a_stop_lets_the_driver_end_by_itself(case: Case) -> None:
    outcome = case.run(case.write(["batch", "wait"]), ask_for(case, "stop", at="batch"))
    assert outcome.state is JobState.FINISHED
    assert case.script.with_suffix(".stopped").exists()


def test_a_cancel_does_not(case: Case) -> None:
    checkpoint = case.folder / "checkpoint"
    checkpoint.mkdir()
    outcome = case.run(case.write(["batch", "wait"]), ask_for(case, "cancel", at="batch"))
    assert outcome.state is JobState.CANCELED
    assert not case.script.with_suffix(".stopped").exists()
    assert checkpoint.exists()


def test_a_cancel_deletes_the_checkpoint_of_a_job_that_says_so(case: Case) -> None:
    checkpoint = case.folder / "checkpoint"
    checkpoint.mkdir()
    spec = case.write(["batch", "wait"], on_cancel="delete")
    assert case.run(spec, ask_for(case, "cancel", at="batch")).state is JobState.CANCELED
    assert not checkpoint.exists()


def test_a_stop_while_it_waits_to_start_again_ends_the_wait(case: Case) -> None:
    spec = case.write(["fail boom"], restart=fixed_delay(delay="1h"))
    outcome = case.run(spec, ask_for(case, "stop", at="restarting"))
    assert (outcome.state, outcome.attempts) == (JobState.FINISHED, 1)


def test_a_batch_that_outlasts_the_checkpoint_timeout_is_ended(case: Case) -> None:
    spec = case.write(["busy", "hang"], ["finish"], timeout_ms=50, tolerable_failures=1)
    assert case.run(spec).state is JobState.FINISHED
    first = case.registry.attempts("job")[0]
    assert first.failure is not None
    assert (first.failure.label, first.failure.query) == ("checkpoint", "q")
    assert case.kinds().count("slow") >= 1


def test_a_look_at_the_checkpoint_may_take_longer_than_a_lease(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = case.folder / "leases"

    def slow_look(*asked: object) -> tuple[list[CheckpointDamage], list[str]]:
        (beat,) = (place / "job").glob("*.beat")
        for _ in range(6):  # it is renewed four times a lease
            before = beat.read_bytes()
            until(lambda now=before: beat.read_bytes() != now)  # type: ignore[misc]
        return [], []

    monkeypatch.setattr(recovery, "look", slow_look)
    several = elections(Leading(place.as_uri(), 2000))
    outcome = case.run(case.write(["batch", "fail boom"], ["batch", "finish"]), elections=several)
    assert (outcome.state, outcome.attempts, outcome.batches) == (JobState.FINISHED, 2, 2)


def test_a_second_supervisor_of_the_job_is_refused(case: Case) -> None:
    lock = SupervisorLock(case.home, "job")
    assert lock.take()
    with pytest.raises(Conflict, match="already running"):
        case.run(case.write(["finish"]))
    lock.release()
    assert case.run(case.write(["finish"])).state is JobState.FINISHED


def hold_checkpoint(case: Case, job: str) -> subprocess.Popen[str]:
    """A process that holds the checkpoint's lock until its input closes, as a JVM does."""
    path = case.folder / ".checkpoint.holdfast.lock"
    program = (
        "import fcntl, json, os, sys\n"
        f"held = open({str(path)!r}, 'w+'); fcntl.lockf(held, fcntl.LOCK_EX)\n"
        f"json.dump(dict(job={job!r}, home={str(case.home.path)!r}, pid=os.getpid()), held); held.flush()\n"
        "print('held', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_checkpoint_that_another_job_holds_is_refused(case: Case) -> None:
    holder = hold_checkpoint(case, "other")
    with pytest.raises(Conflict, match="in use by another job") as caught:
        case.run(case.write(["finish"]))
    assert f"process {holder.pid}" in str(caught.value)
    holder.communicate("")
    assert case.run(case.write(["finish"])).state is JobState.FINISHED


def test_a_former_driver_of_the_same_job_is_waited_for(case: Case) -> None:
    holder = hold_checkpoint(case, "job")

    def let_go(event: JobEvent) -> None:
        if event.kind == "waiting":
            holder.communicate("")

    assert case.run(case.write(["finish"]), let_go).state is JobState.FINISHED
    assert case.kinds().index("waiting") < case.kinds().index("log")


def supervise_in_a_process(spec: DriverSpec) -> subprocess.Popen[str]:
    program = (
        "import random, sys\n"
        "from pathlib import Path\n"
        "from holdfast.jobs.processes.driver import DriverSpec\n"
        "from holdfast.jobs.state_home import StateHome\n"
        "from holdfast.jobs.processes.driver_process import DriverProcess\n"
        "from holdfast.jobs.supervisor.supervisor import Supervisor\n"
        f"spec = DriverSpec.from_text({spec.as_text()!r})\n"
        f"Supervisor(spec, StateHome(Path(spec.home)), lambda e: print(e.kind, flush=True),\n"
        f"  clock=lambda: 1, rng=random.Random(1), launch=lambda s: DriverProcess.start(s, {FAKE!r})).run()\n"
    )
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)


def read_until(process: subprocess.Popen[str], kind: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == kind:
            return
    pytest.fail(f"the supervisor ended without {kind}")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_driver_whose_supervisor_is_killed_stops_by_itself(case: Case) -> None:
    spec = case.write(["batch", "wait"], ["finish"])
    supervisor = supervise_in_a_process(spec)
    read_until(supervisor, "batch")
    status = Control(case.home, lambda: 0).details("job").status
    assert (status.job.state, status.supervised) == (JobState.RUNNING, True)
    os.kill(supervisor.pid, signal.SIGKILL)
    supervisor.communicate()
    until(case.script.with_suffix(".stopped").exists)

    status = Control(case.home, lambda: 0).details("job").status
    assert (status.job.state, status.supervised) == (JobState.RUNNING, False)
    with pytest.raises(Conflict, match="has no supervisor"):
        Control(case.home, lambda: 0).stop("job", 1)
    assert case.run(spec).state is JobState.FINISHED
    assert [each.ending for each in case.registry.attempts("job")] == ["lost", "finished"]


def test_sigterm_stops_the_driver_after_its_batch(case: Case) -> None:
    supervisor = supervise_in_a_process(case.write(["batch", "wait"]))
    read_until(supervisor, "batch")
    supervisor.terminate()
    supervisor.communicate()
    assert supervisor.returncode == 0
    assert case.script.with_suffix(".stopped").exists()
    assert case.registry.job("job").state is JobState.FINISHED


def test_a_request_made_before_the_job_started_is_void(case: Case) -> None:
    case.run(case.write(["finish"]))
    case.registry.request("job", "cancel", 0)
    assert case.run(case.write(["batch", "finish"])).state is JobState.FINISHED


def test_a_rescale_that_a_former_supervisor_was_asked_for_is_refused(case: Case) -> None:
    operations = Operations(case.home)
    operations.ask("ab" * 16, "rescale", "job", Rescale({"q": 8}), 0)
    assert case.run(case.write(["batch", "finish"])).attempts == 1
    refused = operations.get("ab" * 16)
    assert refused.state is OperationState.FAILED
    assert "ended before it began" in (refused.error or {})["error"]


def test_a_rescale_of_a_job_with_several_supervisors_happens_between_two_drivers(case: Case) -> None:
    several = elections(Leading((case.folder / "leases").as_uri(), 60_000))
    spec = case.write(["batch", "wait"], ["finish"])
    outcome = case.run(spec, ask_for(case, "rescale", at="batch"), elections=several)
    assert (outcome.state, outcome.attempts) == (JobState.FINISHED, 2)
    kinds = case.kinds()
    assert kinds.index("stopping") < kinds.index("rescaling") < kinds.index("finished")
    assert case.registry.take_requests("job", 0) == []


def test_details_tell_how_long_a_recovery_took(case: Case) -> None:
    case.run(case.write(["batch", "die"], ["batch", "finish"]))
    # Commands with this state home may connect to the database that the job's code names.
    assert Registry(case.home.registry).databases() == ["redis://of-the-job:6379/0"]
    details = Control(case.home, lambda: 0).details("job")
    first, second = details.attempts
    assert first.ended_ms is not None
    (recovery,) = details.recoveries
    assert details.recoveries_ms == [recovery.recovery_ms]
    assert recovery.at_ms <= first.ended_ms
    # The batch says of itself that it was committed at 1001; until it began, the query waited for input.
    assert recovery.recovery_ms + recovery.idle_ms == 1001 - recovery.at_ms
    assert recovery.idle_ms > 900
    assert second.first_commit_ms == 1001
