"""A supervisor as a process of its own, over a driver that needs no JVM: `STATE_HOME SCRIPT`."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from holdfast.jobs.events import JobEvent
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.supervisor import Supervisor

FAKE = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))


def tell(event: JobEvent) -> None:
    sys.stdout.write(f"{event.kind}\n")
    sys.stdout.flush()


def main(home: str, script: str) -> None:
    Supervisor(
        DriverSpec(target=script, home=home),
        StateHome(Path(home)),
        tell,
        clock=lambda: int(time.time() * 1000),
        rng=random.Random(7),
        launch=lambda each: DriverProcess.start(each, FAKE),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
