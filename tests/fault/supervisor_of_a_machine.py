"""The supervisor of a scripted job, as a process that takes itself for one of another machine.

`supervisor_of_a_machine.py SCRIPT HOME LEASE_S HOST`. It prints its events as lines of JSON, and at last how
the job ended.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.processes.events import Event
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.supervisor import Supervisor

FAKE = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def tell(event: Event) -> None:
    say(**{"event": event.kind, "text": event.text, **event.facts})


def main(script: str, home: str, lease_s: str, host: str) -> None:
    socket.gethostname = lambda: host
    Path(home).mkdir(parents=True, exist_ok=True)
    supervisor = Supervisor(
        DriverSpec(target=script, home=home),
        StateHome(Path(home)),
        tell,
        clock=lambda: int(time.time() * 1000),
        rng=random.Random(1),
        launch=lambda each: DriverProcess.start(each, FAKE),
        lease_s=float(lease_s),
        machine=host,
    )
    try:
        outcome = supervisor.run()
        say(event="outcome", state=outcome.state.value)
    except HoldfastError as error:
        say(**{"event": "error", **error.as_dict()})


if __name__ == "__main__":
    main(*sys.argv[1:])
