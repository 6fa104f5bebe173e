"""Ctrl-C, SIGTERM and SIGKILL while a verb starts Spark: no process is left.

The moments are those at which something is there to be left, and not times: the JVM's launcher, the JVM.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from marked_processes import DEADLINE_S, MARK, wait_for

from golden import golden_on_disk

pytestmark = pytest.mark.fault

JOB = """
import holdfast as hf

@hf.job(name="counts", checkpoint="other")
def counts(spark):
    events = spark.readStream.schema("customer string, amount long").json("in")
    return events.groupBy("customer").count().writeStream.outputMode("update").format("noop")
"""


def has_child(found: dict[int, str]) -> bool:
    return len(found) > 1


def has_jvm(found: dict[int, str]) -> bool:
    return any("SparkSubmit" in command for command in found.values())


@pytest.mark.parametrize("verb", ["check", "doctor"])
@pytest.mark.parametrize(
    ("moment", "number", "to_group"),
    [
        (has_child, signal.SIGINT, True),
        (has_jvm, signal.SIGINT, True),
        (has_jvm, signal.SIGINT, False),
        (has_jvm, signal.SIGTERM, False),
        (has_jvm, signal.SIGKILL, False),
    ],
)
def test_no_process_is_left(
    tmp_path: Path, verb: str, moment: Callable[[dict[int, str]], bool], number: int, to_group: bool
) -> None:
    golden_on_disk("4.2/aggregate-memory", tmp_path / "ck")
    (tmp_path / "in").mkdir()
    (tmp_path / "job.py").write_text(JOB)
    words = {"check": ["check", "job.py", "--against", "ck"], "doctor": ["doctor", "--start-spark"]}[verb]
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words, "--home", str(tmp_path / "home")],
        cwd=tmp_path,
        env={**os.environ, MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(mark, moment)
    (os.killpg if to_group else os.kill)(process.pid, number)
    _, words_told = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in words_told
    wait_for(mark, lambda left: not left)
