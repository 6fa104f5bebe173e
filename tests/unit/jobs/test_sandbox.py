"""A sandbox is gone afterwards; what a killed process has left is removed by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.jobs.sandbox import FOLDER, clear, sandbox

HOLDER = """
import sys, time
from pathlib import Path
from holdfast.jobs.sandbox import sandbox
with sandbox(Path(sys.argv[1]), "held") as place:
    (place / "file").write_text("")
    print(place, flush=True)
    sys.stdin.read()
"""


def test_it_is_empty_and_gone_afterwards(tmp_path: Path) -> None:
    with sandbox(tmp_path, "first") as one, sandbox(tmp_path, "second") as other:
        assert list(one.iterdir()) == []
        (one / "deep" / "er").mkdir(parents=True)
        (one / "deep" / "er" / "file").write_text("x")
        assert one.parent == other.parent == tmp_path / FOLDER
        assert one.name.startswith("first-")
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_it_is_gone_after_an_error_too(tmp_path: Path) -> None:
    def fail() -> None:
        with sandbox(tmp_path, "bad") as place:
            (place / "file").write_text("x")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_one_in_use_stays_and_one_of_the_dead_goes(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        place = Path(process.stdout.readline().strip())
        assert clear(tmp_path) == 0
        assert (place / "file").exists()
        os.kill(process.pid, signal.SIGKILL)
    assert (place / "file").exists()
    with sandbox(tmp_path, "next") as own:
        assert not place.exists()
        assert own.exists()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_home_that_does_not_exist_has_nothing_to_clear(tmp_path: Path) -> None:
    assert clear(tmp_path / "nothing") == 0
    assert not (tmp_path / "nothing").exists()
