"""The clocks: those of leases count the time in which a machine is suspended."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields

import pytest

from holdfast.clock import steady_s
from holdfast.jobs.candidacy import Candidacy
from holdfast.jobs.guard_ownership import CheckpointOwnership, Patience
from holdfast.jobs.supervisor.supervisor import Supervisor
from holdfast.ownership.checkpoint_guard import Timing
from holdfast.ownership.checkpoint_lease import lease_of
from holdfast.ownership.elections import elections
from holdfast.ownership.lease import acquire

SUSPENDED = ["unshare", "--time", "--boottime", "3600"]
TELL = "from holdfast.clock import steady_s; print(steady_s())"


def test_time_in_suspend_counts() -> None:
    if subprocess.run([*SUSPENDED, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs the right to make a time namespace")
    before = steady_s()
    told = subprocess.run(
        [*SUSPENDED, sys.executable, "-c", TELL], check=True, capture_output=True, text=True
    )
    assert float(told.stdout) >= before + 3600


@pytest.mark.parametrize("part", [elections, Candidacy, lease_of, acquire, CheckpointOwnership, Supervisor])
def test_every_part_of_a_lease_goes_by_this_clock(part: Callable[..., object]) -> None:
    assert inspect.signature(part).parameters["now"].default is steady_s


def test_so_does_whoever_watches_or_waits_for_a_lease() -> None:
    (watching,) = (field.default for field in fields(Timing) if field.name == "steady_s")
    (waiting,) = (field.default for field in fields(Patience) if field.name == "now")
    assert watching is waiting is steady_s
