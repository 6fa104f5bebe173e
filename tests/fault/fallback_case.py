"""A scripted job with a real checkpoint, for tests of damage and fallback."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from running_job import BatchLogs

from golden import golden_on_disk
from holdfast.checkpoints.checkpoint import read
from holdfast.config.policies import Recovery, fixed_delay
from holdfast.jobs.definition import strategy_fields
from holdfast.jobs.events import JobEvent, JobOutcome
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.supervisor import Supervisor
from holdfast.storage.local import LocalStorage
from holdfast.storage.successors import current_address

FAKE = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))
GOLDEN = "4.2/aggregate-changelog"
LIMIT_MS = 60_000


def newest_state_file(checkpoint: Path) -> Path:
    """A file of the state that the newest committed batch has written."""
    store = read(LocalStorage(checkpoint)).operators[0].stores[0]
    return checkpoint / store.files[-1].render()


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


class Case:
    """A scripted job whose only query has a real checkpoint.

    Args:
        folder: A directory for the job.
        uri: The checkpoint on other storage; by default it is in the directory.
    """

    def __init__(self, folder: Path, uri: str | None = None) -> None:
        self.home = StateHome(folder / "home")
        self.home.path.mkdir()
        self.script = folder / "job.json"
        self.checkpoint = golden_on_disk(GOLDEN, folder / "checkpoint")
        self.newest = BatchLogs(self.checkpoint).newest
        self.uri = self.checkpoint.as_uri() if uri is None else uri
        self.events: list[JobEvent] = []

    def run(self, settings: Recovery, *attempts: list[str], **definition: object) -> JobOutcome:
        fields = {
            "name": "job",
            "checkpoint": self.uri,
            "on_cancel": "retain",
            "timeout_ms": None,
            "tolerable_failures": 0,
            "restart": strategy_fields(fixed_delay(attempts=3, delay="1ms")),
            "record": False,
            "recovery": {"fallback": settings.fallback, "verify": settings.verify},
            **definition,
        }
        script = {
            "definition": fields,
            "query_checkpoint": current_address(self.uri),
            "attempts": attempts,
        }
        self.script.write_text(json.dumps(script))
        supervisor = Supervisor(
            DriverSpec(target=str(self.script), home=str(self.home.path)),
            self.home,
            self.events.append,
            clock=lambda: 1_800_000_000_000,
            rng=random.Random(7),
            launch=lambda each: DriverProcess.start(each, FAKE),
        )
        return supervisor.run()

    def event(self, kind: str) -> JobEvent:
        (found,) = [each for each in self.events if each.kind == kind]
        return found

    @property
    def aside(self) -> Path:
        (found,) = self.checkpoint.parent.glob("checkpoint.damaged-*")
        return found
