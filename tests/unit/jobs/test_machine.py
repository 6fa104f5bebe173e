from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast.jobs.machine import DriverIdentity, host_name, this_machine

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield made
    made.kill()
    made.wait()


def test_a_frozen_driver_of_this_machine_is_ended(process: subprocess.Popen[bytes]) -> None:
    identity = DriverIdentity.of(process.pid, this_machine())
    process.send_signal(signal.SIGSTOP)
    assert identity.end(this_machine())
    assert process.wait(60) == -signal.SIGKILL
    assert not identity.end(this_machine())


def test_a_process_that_only_has_the_number_is_left_alone(process: subprocess.Popen[bytes]) -> None:
    identity = DriverIdentity.of(process.pid, this_machine())
    assert identity.started is not None
    assert not replace(identity, started=identity.started + 1).end(this_machine())
    assert not replace(identity, started=None).end(this_machine())
    # The same number on another machine, or in another container of this one.
    assert not identity.end("elsewhere boot pid:[1]")
    assert process.poll() is None


def test_a_machine_is_shown_by_its_name() -> None:
    assert host_name("app-1 9ced39a3 pid:[4026531836]") == "app-1"
    assert len(this_machine().split(" ")) >= 2
