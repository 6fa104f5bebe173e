"""Standard output as a shell may hand it over: full, closed, or in an encoding without dashes."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from command import PROGRAM, environment

pytestmark = pytest.mark.slow


def shell(words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'"$0" {words}', PROGRAM],
        cwd=folder,
        env={**environment(folder / "home"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("words", ["--help", "--version", "list", "list --json"])
def test_a_full_disk_behind_standard_output_is_told(words: str, tmp_path: Path) -> None:
    said = shell(f"{words} > /dev/full", tmp_path)
    assert said.returncode == 5
    assert said.stderr.startswith("error: cannot write to standard output [HF-E")
    assert "found No space left on device" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("closed", [">&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_nobody_needs_to_listen(closed: str, tmp_path: Path) -> None:
    said = shell(f"list {closed}", tmp_path)
    assert (said.returncode, said.stderr) == (0, "")


def test_a_closed_stream_does_not_turn_a_refusal_into_a_success(tmp_path: Path) -> None:
    assert shell("status nothing 2>&-", tmp_path).returncode == 3
    assert shell("status nothing >&- 2>&-", tmp_path).returncode == 3


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    assert shell("--help | head -n 1", tmp_path).stderr == ""


def test_a_terminal_that_knows_only_ascii(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    said = shell("checkpoint show 'jöb–…'", tmp_path, PYTHONIOENCODING="ascii")
    assert said.returncode == 3
    program = (
        "from holdfast.cli import output, standard_streams; standard_streams.prepare();"
        " output.line('a – b… é → ü'); output.emit_json({'name': 'é–'})"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    ).stdout.decode("ascii")
    line, document = printed.splitlines()
    assert line == r"a - b... \xe9 -> \xfc"
    assert json.loads(document) == {"name": "é–"}


def test_ctrl_c_is_answered_in_a_line(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    room = fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    with subprocess.Popen(
        [PROGRAM, "alerts", "export"],
        env=environment(tmp_path / "home"),
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        os.close(writing)
        while _waiting(reading) < room:  # until nothing more fits in, and it waits for a reader
            select.select([], [], [], 0.01)
        running.send_signal(signal.SIGINT)
        while os.read(reading, room):
            pass
        _, words = running.communicate(timeout=60)
    os.close(reading)
    assert (running.returncode, words) == (130, "interrupted\n")


def _waiting(descriptor: int) -> int:
    """The bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)
