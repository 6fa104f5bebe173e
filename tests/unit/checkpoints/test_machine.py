from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest

from holdfast.ownership.process_identity import ProcessIdentity, host_name, this_machine

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield made
    made.kill()
    made.wait()


def test_a_frozen_driver_of_this_machine_is_ended(process: subprocess.Popen[bytes]) -> None:
    identity = ProcessIdentity.of(process.pid, this_machine())
    process.send_signal(signal.SIGSTOP)
    assert identity.end_group(this_machine())
    assert process.wait(60) == -signal.SIGKILL
    assert not identity.end_group(this_machine())


def test_a_process_that_only_has_the_number_is_left_alone(process: subprocess.Popen[bytes]) -> None:
    identity = ProcessIdentity.of(process.pid, this_machine())
    assert identity.started is not None
    assert not replace(identity, started=identity.started + 1).end_group(this_machine())
    assert not replace(identity, started=None).end_group(this_machine())
    # The same number on another machine, or in another container of this one.
    assert not identity.end_group("elsewhere boot pid:[1]")
    assert process.poll() is None


def test_a_process_that_has_ended_has_died(process: subprocess.Popen[bytes]) -> None:
    identity = ProcessIdentity.of(process.pid, this_machine())
    assert not identity.has_died()
    # A later process has the number: the one that is meant has ended.
    assert identity.started is not None
    assert replace(identity, started=identity.started + 1).has_died()
    process.kill()
    process.wait()
    assert identity.has_died()


def test_nothing_is_known_of_a_process_elsewhere(process: subprocess.Popen[bytes]) -> None:
    """Such as in a container with this host's name, where numbers mean other processes."""
    host = host_name(this_machine())
    process.kill()
    process.wait()
    for machine in (f"{host} boot pid:[1]", host, ""):
        assert not ProcessIdentity(machine, process.pid, 1).has_died()


def test_an_identity_comes_back_from_a_file() -> None:
    own = ProcessIdentity.own()
    assert ProcessIdentity.parse(asdict(own)) == own
    for pid in ("1", 0, 1 << 31, 1 << 40):
        assert ProcessIdentity.parse({**asdict(own), "pid": pid}) is None
    for value in (None, "x", [1], {"pid": 1}, {**asdict(own), "started": "x"}):
        assert ProcessIdentity.parse(value) is None


def test_the_largest_process_id_is_one_that_the_kernel_takes() -> None:
    """A larger one does not fit into the argument of `kill`, which would raise an error of its own."""
    largest = ProcessIdentity.parse({**asdict(ProcessIdentity.own()), "pid": 2_147_483_647})
    assert largest is not None
    assert largest.has_died()


def test_a_machine_is_shown_by_its_name() -> None:
    assert host_name("app-1 9ced39a3 pid:[4026531836]") == "app-1"
    assert len(this_machine().split(" ")) >= 2
