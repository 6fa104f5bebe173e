"""Deployment files: what they may say, and the process of its own in which a job's code is loaded."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from holdfast.errors import Invalid, NotFound, Unavailable
from holdfast.jobs.upgrades.deployment_file import DeclaredState, Deployment, read_deployments
from holdfast.jobs.upgrades.own_process import call_apart
from holdfast.jobs.upgrades.upgrade_record import UpgradeMode

WHOLE = """
[jobs.visits]
code = "visits.py:main"
state = "running"
mode = "last-state"
savepoint = "savepoints@daily"
master = "local[4]"
batches = 0
within = "5m"
accept-loss = ["old"]
initial = { total = 0, name = "nobody" }
rename = { n = "count" }
drop = ["half"]
merge = true

[jobs.visits.settings]
trigger = "10 s"
checkpoint.storage = "/data/visits"
checkpoint.savepoint_every = "1h"
strict = true
limit = 3

[jobs.visits.conf]
spark.sql.shuffle.partitions = 8
"spark.executor.memory" = "2g"

[jobs."by.dots"]
code = "other.py"
state = "stopped"
savepoint = { left = "a@b", right = "c" }
"""


def read(folder: Path, text: str) -> tuple[Deployment, ...]:
    file = folder / "deployment.toml"
    file.write_text(text)
    return read_deployments(file)


def test_every_entry_is_read(tmp_path: Path) -> None:
    visits, other = read(tmp_path, WHOLE)
    assert visits == Deployment(
        "visits",
        "visits.py:main",
        DeclaredState.RUNNING,
        UpgradeMode.LAST_STATE,
        {"": "savepoints@daily"},
        "local[4]",
        {
            "trigger": "10 s",
            "checkpoint.storage": "/data/visits",
            "checkpoint.savepoint_every": "1h",
            "strict": "true",
            "limit": "3",
        },
        {"spark.sql.shuffle.partitions": "8", "spark.executor.memory": "2g"},
        0,
        "5m",
        ("old",),
        {"total": "0", "name": "nobody"},
        {"n": "count"},
        ("half",),
        merge=True,
    )
    assert other == Deployment(
        "by.dots", "other.py", DeclaredState.STOPPED, savepoints={"left": "a@b", "right": "c"}
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no job"),
        ("[jobs]", "no job"),
        ("jobs = 3", "no job"),
        ("[job.visits]\ncode = 'v.py'", "'job'"),
        ("[jobs.visits]\nstate = 'running'", "no code"),
        ("[jobs]\nvisits = 'v.py'", "'v.py'"),
        ("[jobs.'two words']\ncode = 'v.py'", "'two words'"),
        ("[jobs.visits]\ncode = 'v.py'\nStandby = true", "'Standby'"),
        ("[jobs.visits]\ncode = ''", "''"),
        ("[jobs.visits]\ncode = 3", "3"),
        ("[jobs.visits]\ncode = 'v.py'\nstate = 'asleep'", "'asleep'"),
        ("[jobs.visits]\ncode = 'v.py'\nstate = []", "[]"),
        ("[jobs.visits]\ncode = 'v.py'\nmode = 'sideways'", "'sideways'"),
        ("[jobs.visits]\ncode = 'v.py'\nbatches = -1", "-1"),
        ("[jobs.visits]\ncode = 'v.py'\nbatches = true", "True"),
        ("[jobs.visits]\ncode = 'v.py'\nwithin = 'soon'", "'soon'"),
        ("[jobs.visits]\ncode = 'v.py'\nsavepoint = 3", "3"),
        ("[jobs.visits]\ncode = 'v.py'\nconf = 'x'", "'x'"),
        ("[jobs.visits]\ncode = 'v.py'\nsettings = { a = [1] }", "{'a': [1]}"),
        ("[jobs.visits]\ncode = 'v.py'\ndrop = 'all'", "'all'"),
        ("[jobs.visits]\ncode = 'v.py'\nmerge = 'yes'", "'yes'"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, text: str, found: str) -> None:
    with pytest.raises(Invalid) as caught:
        read(tmp_path, text)
    assert caught.value.found == found
    assert caught.value.expected
    assert str(tmp_path / "deployment.toml") in str(caught.value.where)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_deployments(tmp_path / "none.toml")
    with pytest.raises(Invalid, match="cannot read"):
        read(tmp_path, "[jobs.visits")
    with pytest.raises(Invalid, match="wrong entry"):
        read_deployments(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Invalid, match="wrong entry"):
        read_deployments(tmp_path / "fifo")


# A process of its own.


def test_a_function_is_called_in_a_process_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    assert call_apart(os.getpid) != os.getpid()
    assert call_apart(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]
    call_apart(print, "not a part of the answer")
    assert capfd.readouterr().out == ""
    with pytest.raises(NotFound) as caught:
        call_apart(read_deployments, "none.toml")
    assert caught.value.where == "none.toml"
    with pytest.raises(Unavailable, match="ended early"):
        call_apart(os._exit, 3)


def test_the_process_ends_with_its_call() -> None:
    def look() -> None:
        raise KeyboardInterrupt

    # It is waited for, an hour if it did not end.
    with pytest.raises(KeyboardInterrupt):
        call_apart(time.sleep, 3600, look=look)
