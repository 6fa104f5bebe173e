"""A supervisor of a scripted job that tells its events, and at last how the job ended, as lines of JSON.

`one_of_several.py` and `supervisor_of_a_machine.py` are such processes; a `TellingProcess` listens to one.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.jobs.events import JobEvent
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.supervisor import Supervisor

FAKE = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))


def supervise(script: str, home: str, **options: Any) -> None:
    """Run a supervisor to its end, and tell its events and that end."""
    supervisor = Supervisor(
        DriverSpec(target=script, home=home),
        StateHome(Path(home)),
        _tell,
        clock=lambda: int(time.time() * 1000),
        rng=random.Random(1),
        launch=lambda each: DriverProcess.start(each, FAKE),
        **options,
    )
    try:
        outcome = supervisor.run()
        _say(event="outcome", state=outcome.state.value)
    except HoldfastError as error:
        _say(**{"event": "error", **error.as_dict()})


def _say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _tell(event: JobEvent) -> None:
    _say(**{"event": event.kind, "at": time.time(), "text": event.text, **event.facts})
