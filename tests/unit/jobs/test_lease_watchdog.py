"""What the watchdog of a lease ends, and when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.clock import steady_s
from holdfast.ownership import watchdog_process
from holdfast.ownership.watchdog import LeaseWatchdog

# A process in it sees the machine as one that was suspended for an hour since.
SUSPENDED = ["unshare", "--time", "--boottime", "3600"]
# Far enough away that no test comes to it.
LATER_S = 600.0

HOLDER = """
import os, sys, time
from holdfast.clock import steady_s
from holdfast.ownership.watchdog import LeaseWatchdog
watchdog = LeaseWatchdog([int(sys.argv[1]), os.getpid()])
watchdog.hold(steady_s() + float(sys.argv[2]))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def writer() -> Iterator[subprocess.Popen[bytes]]:
    """A process that may write: it stands for the JVM."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as running:
        yield running
        running.kill()


def test_it_ends_what_it_was_given_when_the_moment_passes(writer: subprocess.Popen[bytes]) -> None:
    watchdog = LeaseWatchdog([writer.pid])
    watchdog.hold(steady_s())
    assert writer.wait(60) == -signal.SIGKILL
    watchdog.release()


def test_the_moment_can_be_put_off(writer: subprocess.Popen[bytes]) -> None:
    watchdog = LeaseWatchdog([writer.pid])
    watchdog.hold(steady_s() + LATER_S)
    watchdog.hold(steady_s())
    assert writer.wait(60) == -signal.SIGKILL
    watchdog.release()


def test_what_is_released_lives_on(writer: subprocess.Popen[bytes]) -> None:
    watchdog = LeaseWatchdog([writer.pid])
    watchdog.hold(steady_s() + LATER_S)
    watchdog.release()  # it waits for the end of the watchdog's process
    watchdog.release()
    watchdog.hold(steady_s())  # of a renewal that was under way: it begins no second watchdog
    assert watchdog._watching is None
    assert writer.poll() is None


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("renewed", [False, True])
def test_a_watchdog_that_was_stopped_or_killed_is_replaced(
    number: int, renewed: bool, writer: subprocess.Popen[bytes]
) -> None:
    watchdog = LeaseWatchdog([writer.pid])
    watchdog.hold(steady_s() + (LATER_S if renewed else 1.0))
    watching = watchdog._watching
    assert watching is not None
    os.kill(watching.pid, number)
    if renewed:
        watchdog.hold(steady_s())
    assert writer.wait(20) == -signal.SIGKILL
    watchdog.release()


def test_a_lease_is_over_on_a_machine_that_was_suspended_meanwhile(writer: subprocess.Popen[bytes]) -> None:
    if subprocess.run([*SUSPENDED, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs the right to make a time namespace")
    program = Path(watchdog_process.__file__).read_text(encoding="utf-8")
    watchdog = subprocess.Popen(
        [*SUSPENDED, sys.executable, "-I", "-S", "-c", program, f"{writer.pid}:"], stdin=subprocess.PIPE
    )
    assert watchdog.stdin is not None
    watchdog.stdin.write(f"{steady_s() + LATER_S:.6f}\n".encode())
    watchdog.stdin.flush()
    try:
        assert writer.wait(20) == -signal.SIGKILL
    finally:
        watchdog.kill()
        watchdog.communicate()


def test_a_watchdog_that_was_stopped_can_be_released(writer: subprocess.Popen[bytes]) -> None:
    watchdog = LeaseWatchdog([writer.pid])
    watchdog.hold(steady_s() + LATER_S)
    watching = watchdog._watching
    assert watching is not None
    os.kill(watching.pid, signal.SIGSTOP)
    watchdog.release()
    assert watchdog._watching is None
    assert writer.poll() is None


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.slow
def test_a_holder_that_is_frozen_or_killed_does_not_keep_its_jvm(
    number: int, writer: subprocess.Popen[bytes]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(writer.pid), "2"], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        os.kill(holder.pid, number)
        assert writer.wait(60) == -signal.SIGKILL
        assert holder.wait(60) == -signal.SIGKILL
