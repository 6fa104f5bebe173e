"""A supervisor tells of its job's alerts, once, over restarts of drivers and of itself."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.alert_settings import Alerts
from holdfast.config.policies import fixed_delay
from holdfast.jobs import reports
from holdfast.jobs.definition import strategy_fields
from holdfast.jobs.events import JobEvent
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.supervisor import Supervisor

pytestmark = pytest.mark.fault

FAKE = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))


class Case:
    def __init__(self, folder: Path, home: Path) -> None:
        self.script = folder / "job.json"
        self.home = StateHome(home)
        self.home.path.mkdir()
        self.events: list[JobEvent] = []
        self.now = 1_772_700_000_000

    def run(self, *attempts: list[str], alerts: Alerts, tries: int) -> None:
        self.script.with_suffix(".count").unlink(missing_ok=True)
        definition: dict[str, Any] = {
            "name": "job",
            "checkpoint": "file:/nowhere",
            "on_cancel": "retain",
            "timeout_ms": None,
            "tolerable_failures": 0,
            "restart": strategy_fields(fixed_delay(attempts=tries, delay="1ms")),
            "alerts": alerts.as_dict(),
        }
        self.script.write_text(
            json.dumps({"definition": definition, "attempts": attempts, "query_checkpoint": "file:/nowhere"})
        )
        Supervisor(
            DriverSpec(target=str(self.script), home=str(self.home.path)),
            self.home,
            self.events.append,
            clock=self.tick,
            rng=random.Random(7),
            launch=lambda each: DriverProcess.start(each, FAKE),
        ).run()

    def tick(self) -> int:
        self.now += 1
        return self.now

    def told(self) -> list[tuple[str, str]]:
        return [(each.event.kind, each.event.alert.rule) for each in reports.alert_events(self.home, "job")]


@pytest.fixture
def case(tmp_path: Path, home: Path) -> Case:
    return Case(tmp_path, home)


def test_a_job_that_fails_for_good_says_so_until_it_is_started_again(case: Case) -> None:
    case.run(["batch", "fail x"], ["fail y"], alerts=Alerts(), tries=1)
    assert ("firing", "job_failed") in case.told()
    assert ("firing", "checkpoint_failures") in case.told()
    assert ("cleared", "checkpoint_failures") in case.told()
    assert [each.rule for each in reports.alerts(case.home)] == ["job_failed"]
    kinds = [each.kind for each in case.events]
    # It is known that the job has failed before that is told.
    assert kinds.index("failed") < max(index for index, kind in enumerate(kinds) if kind == "alert")
    numbers = {each.metric: each.value for each in reports.samples(case.home, case.now)}
    assert numbers["holdfast_checkpoint_failures_total"] == 2
    assert (numbers["holdfast_up"], numbers["holdfast_job_failed"]) == (0, 1)
    assert numbers["holdfast_batches_total"] == 1
    before = len(case.told())
    case.now += 3_600_000
    case.run(["batch", "batch", "finish"], alerts=Alerts(), tries=1)
    assert case.told()[before:] == [("cleared", "job_failed")]
    numbers = {each.metric: each.value for each in reports.samples(case.home, case.now)}
    assert numbers["holdfast_batches_total"] == 3
    assert reports.alerts(case.home) == ()


def test_a_rule_that_is_off_says_nothing(case: Case) -> None:
    alerts = Alerts(checkpoint_failures=None, job_failed=False)
    case.run(["batch", "fail x"], ["fail y"], alerts=alerts, tries=1)
    assert case.told() == []


def test_what_cannot_be_remembered_hurts_nobody(case: Case) -> None:
    (case.home.path / "watching.db").mkdir()
    case.run(["batch", "finish"], alerts=Alerts(), tries=1)
    kinds = [each.kind for each in case.events]
    assert "unwatched" in kinds
    assert kinds[-1] != "failed"
    assert "finished" in kinds
