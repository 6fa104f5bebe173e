"""What a supervisor does beside its job: the record of good batches, and savepoints again and again."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import Holdfast
from large_state import large_checkpoint, large_rows
from running_job import until

from golden import golden_on_disk
from holdfast import checkpoints, savepoints
from holdfast.config.policies import fixed_delay
from holdfast.jobs.definition import strategy_fields
from holdfast.jobs.events import JobEvent, JobOutcome
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.registry.client import Control, JobDetails
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.supervisor import Supervisor
from holdfast.model import JobState

pytestmark = pytest.mark.fault

FAKE = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))
NEWEST = 11


class Case:
    """A scripted job whose only query has a golden checkpoint."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder = folder
        self.checkpoint = golden_on_disk("4.2/aggregate-changelog", folder / "checkpoint")
        self.home = StateHome(home)
        self.home.path.mkdir()
        self.script = folder / "job.json"
        self.events: list[JobEvent] = []
        self.now = 1_772_700_000_000

    def write(self, *attempts: list[str], **definition: Any) -> DriverSpec:
        fields = {
            "name": "job",
            "checkpoint": self.checkpoint.as_uri(),
            "on_cancel": "retain",
            "timeout_ms": None,
            "tolerable_failures": 0,
            "restart": strategy_fields(fixed_delay(attempts=3, delay="1ms")),
            **definition,
        }
        script = {
            "definition": fields,
            "attempts": attempts,
            "query_checkpoint": self.checkpoint.as_uri(),
        }
        self.script.write_text(json.dumps(script))
        return DriverSpec(target=str(self.script), home=str(self.home.path))

    def run(self, spec: DriverSpec, on_event: Callable[[JobEvent], None] = lambda _: None) -> JobOutcome:
        def tell(event: JobEvent) -> None:
            self.events.append(event)
            on_event(event)

        return Supervisor(
            spec,
            self.home,
            tell,
            clock=self.tick,
            rng=random.Random(7),
            launch=lambda each: DriverProcess.start(each, FAKE),
        ).run()

    def tick(self) -> int:
        self.now += 1
        return self.now

    def stop_at(self, kind: str) -> Callable[[JobEvent], None]:
        def on_event(event: JobEvent) -> None:
            if event.kind == kind:
                Control(self.home, lambda: 0)._registry.request("job", "stop", 0)

        return on_event

    def details(self) -> JobDetails:
        return Control(self.home, lambda: 0).details("job")

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def case(tmp_path: Path, home: Path) -> Case:
    return Case(tmp_path, home)


def periodic(folder: Path, retained: int = 2) -> dict[str, Any]:
    return {"catalog": f"file://{folder}", "every_ms": 1, "retained": retained}


def test_the_batches_of_a_job_are_recorded(case: Case) -> None:
    assert case.run(case.write(["batch", "finish"])).state is JobState.FINISHED
    found = checkpoints.verify(case.checkpoint, home=case.home.path)
    assert (found.problems, found.recorded_batch) == ((), NEWEST)
    assert found.compared > 30
    # A stale change file over the newest, with its checksum: nothing but the record can tell.
    for partition in (0, 1):
        for stale, newest in (("11.changelog", "12.changelog"), (".11.changelog.crc", ".12.changelog.crc")):
            folder = case.checkpoint / f"state/0/{partition}"
            (folder / newest).write_bytes((folder / stale).read_bytes())
    assert checkpoints.verify(case.checkpoint, home=case.folder / "elsewhere").ok
    damaged = checkpoints.verify(case.checkpoint, home=case.home.path)
    assert [each.file for each in damaged.problems] == [
        "state/0/0/12.changelog",
        "state/0/1/12.changelog",
    ]
    assert NEWEST not in damaged.restorable


def test_what_a_job_has_left_is_all_there_is(case: Case) -> None:
    case.run(case.write(["batch", "finish"]))
    base = max(case.checkpoint.glob("state/0/0/*.zip"))
    shutil.copy(base, base.with_name("12.zip"))
    [problem] = checkpoints.verify(case.checkpoint, home=case.home.path).problems
    assert problem.file == "state/0/0/12.zip"


def test_a_batch_that_ran_again_is_recorded_again(case: Case) -> None:
    case.run(case.write(["batch", "finish"]))
    stale = case.checkpoint / "state/0/0/12.changelog"
    stale.write_bytes((case.checkpoint / "state/0/0/11.changelog").read_bytes())
    (case.checkpoint / "state/0/0/.12.changelog.crc").unlink()
    assert not checkpoints.verify(case.checkpoint, home=case.home.path).ok
    # The fake driver's batches count on; its next one is 11 after this.
    case.script.with_suffix(".batches").write_text("x" * NEWEST)
    case.run(case.write(["batch", "finish"]))
    assert checkpoints.verify(case.checkpoint, home=case.home.path).ok


def test_a_job_that_wants_no_record_has_none(case: Case) -> None:
    case.run(case.write(["batch", "finish"], record=False))
    found = checkpoints.verify(case.checkpoint, home=case.home.path)
    assert found.recorded_batch is None
    assert any("no integrity record" in remark.what for remark in found.remarks)


def test_a_record_that_cannot_be_written_is_told_and_the_job_goes_on(case: Case) -> None:
    (case.home.path / "records").write_text("in the way")
    assert case.run(case.write(["batch", "finish"])).state is JobState.FINISHED
    [event] = [each for each in case.events if each.kind == "unrecorded"]
    assert "cannot be written" in event.text


def test_large_ones_are_digested_and_a_stop_leaves_none_half_done(case: Case) -> None:
    shutil.rmtree(case.checkpoint)
    large_checkpoint(case.checkpoint, large_rows())
    catalog = case.folder / "catalog"
    # Somebody was killed before he came to the digests of this one.
    left = savepoints.take(case.checkpoint, catalog, batch=NEWEST - 1, digest=False)
    spec = case.write(["batch", "wait"], savepoints=periodic(catalog))
    assert case.run(spec, case.stop_at("digests")).state is JobState.FINISHED
    assert case.kinds().index("savepoint") < case.kinds().index("digests")
    contents = {each.savepoint_id: each.content for each in savepoints.list(catalog)}
    assert "recorded" in contents.values()
    assert left.manifest.savepoint_id in contents
    for each in savepoints.list(catalog):
        proof = savepoints.verify(each.uri, deep=True)
        assert (proof.ok, proof.content) == (True, "compared" if each.content == "recorded" else "pending")


def test_savepoints_are_taken_while_the_job_runs(case: Case) -> None:
    catalog = case.folder / "catalog"
    spec = case.write(["batch", "wait"], savepoints=periodic(catalog))
    assert case.run(spec, case.stop_at("savepoint")).state is JobState.FINISHED
    [note] = case.details().savepoints
    [listed] = savepoints.list(catalog)
    assert (note.uri, note.batch_id, note.query, note.problem) == (listed.uri, NEWEST, "q", None)
    assert listed.manifest is not None
    assert listed.manifest.label == "periodic"
    assert savepoints.verify(listed.uri).ok
    assert case.details().as_dict()["savepoints"][0]["savepoint"] == listed.uri
    # The same batch is not taken twice, by the next supervisor either.
    spec = case.write(["batch", "batch", "finish"], savepoints=periodic(catalog))
    case.run(spec)
    assert len(savepoints.list(catalog)) == 1


def test_a_savepoint_that_cannot_be_taken_is_told_and_the_job_goes_on(case: Case, holdfast: Holdfast) -> None:
    spec = case.write(["batch", "wait"], savepoints=periodic(case.checkpoint / "inside"))
    assert case.run(spec, case.stop_at("no-savepoint")).state is JobState.FINISHED
    note = case.details().savepoints[-1]
    assert note.uri is None
    assert note.problem is not None
    assert "cannot contain one another" in note.problem
    assert "cannot contain one another" in holdfast("status", "job").stdout


def test_a_damaged_checkpoint_gives_no_savepoint_and_none_is_deleted_for_it(case: Case) -> None:
    catalog = case.folder / "catalog"
    kept = savepoints.take(case.checkpoint, catalog, batch=NEWEST - 1, label="periodic")
    change = case.checkpoint / "state/0/1/12.changelog"
    change.write_bytes(change.read_bytes()[:-9])
    spec = case.write(["batch", "wait"], savepoints=periodic(catalog, retained=1))
    case.run(spec, case.stop_at("no-savepoint"))
    assert [each.uri for each in savepoints.list(catalog)] == [kept.uri]
    assert "damaged" in str(case.details().savepoints[-1].problem)


def supervised(case: Case, spec: DriverSpec) -> subprocess.Popen[str]:
    """The job under a supervisor in a process of its own, when it has committed a batch."""
    program = (
        "import random, sys, time\n"
        "from pathlib import Path\n"
        "from holdfast.jobs.processes.driver import DriverSpec\n"
        "from holdfast.jobs.state_home import StateHome\n"
        "from holdfast.jobs.processes.driver_process import DriverProcess\n"
        "from holdfast.jobs.supervisor.supervisor import Supervisor\n"
        f"spec = DriverSpec.from_text({spec.as_text()!r})\n"
        "Supervisor(spec, StateHome(Path(spec.home)), lambda e: print(e.kind, flush=True),\n"
        "  clock=lambda: int(time.time() * 1000), rng=random.Random(1),\n"
        f"  launch=lambda s: DriverProcess.start(s, {FAKE!r})).run()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == "batch":
            return process
    raise AssertionError("the supervisor ended")


def test_stop_with_a_savepoint(case: Case, holdfast: Holdfast) -> None:
    process = supervised(case, case.write(["batch", "wait"]))
    inside = holdfast("stop", "job", "--savepoint", str(case.checkpoint / "sp"))
    assert inside.returncode == 2
    assert Control(case.home, lambda: 0).running("job").supervised
    would = json.loads(holdfast("stop", "job", "--savepoint", "sp", "--dry-run", "--json").stdout)
    assert (would["dry_run"], would["savepoints"]) == (True, [])
    beside = holdfast("stop", "job", "--savepoint", "--dry-run").stdout
    assert beside.endswith(
        f"would take a savepoint of query q, file://{case.checkpoint}, into"
        f" file://{case.checkpoint}.savepoints\n"
    )
    said = holdfast("stop", "job", "--savepoint", "sp", "--label", "before the move", "--json")
    process.communicate()
    assert said.returncode == 0, said.stderr
    told = json.loads(said.stdout)
    [taken] = told["savepoints"]
    assert (told["state"], taken["query"], taken["batch_id"]) == ("FINISHED", "q", NEWEST)
    assert taken["content"] == "recorded"
    assert (savepoints.show(taken["savepoint"]).label, savepoints.verify(taken["savepoint"]).ok) == (
        "before the move",
        True,
    )
    # Whoever asks over REST may use the directory again.
    [note] = case.details().savepoints
    assert (note.uri, note.query, note.batch_id) == (taken["savepoint"], "q", NEWEST)


def test_stop_with_a_savepoint_of_a_damaged_checkpoint_stops_and_says_so(
    case: Case, holdfast: Holdfast
) -> None:
    process = supervised(case, case.write(["batch", "wait"]))
    (case.checkpoint / "state/0/1/12.changelog").unlink()
    said = holdfast("stop", "job", "--savepoint", "sp")
    process.communicate()
    assert said.returncode == 6
    assert "has stopped, but no savepoint of query 'q' was taken" in said.stderr
    assert "state/0/1/12.changelog" in said.stderr
    assert case.details().status.job.state is JobState.FINISHED


def test_a_killed_supervisor_leaves_a_record_that_the_next_one_goes_on_with(case: Case) -> None:
    process = supervised(case, case.write(["batch", "wait"], ["batch", "finish"]))

    def recorded() -> bool:
        return checkpoints.verify(case.checkpoint, home=case.home.path).recorded_batch == NEWEST

    until(recorded, "the batch is recorded")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(case.script.with_suffix(".stopped").exists, "the driver stops by itself")
    assert recorded()
    case.run(case.write(["finish"]))
    assert checkpoints.verify(case.checkpoint, home=case.home.path).ok
