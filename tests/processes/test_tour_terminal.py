"""`holdfast tour` on a pseudo-terminal: a key a step, `q` ends it, and so does Ctrl-C."""

from __future__ import annotations

import os
import pty
import subprocess
import termios
import time
from pathlib import Path

import pytest
from command import PROGRAM

PROMPT = b"Enter continues, q quits "


def read_until(terminal: int, text: bytes) -> bytes:
    """What is printed up to a text, or up to the end."""
    seen = b""
    while text not in seen:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # as Linux says that nobody holds the other end any more
            break
        if not part:
            break
        seen += part
    return seen


def press(terminal: int, key: bytes) -> None:
    """Press a key once the command waits for one: what is typed before is thrown away."""
    while termios.tcgetattr(terminal)[3] & termios.ICANON:
        time.sleep(0.01)
    os.write(terminal, key)


@pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"\x03", 130)], ids=["q", "Ctrl-C"])
def test_a_key_goes_on_and_another_one_ends(tmp_path: Path, key: bytes, code: int) -> None:
    own, other = pty.openpty()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with subprocess.Popen(
        [PROGRAM, "tour"],
        stdin=other,
        stdout=other,
        stderr=other,
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), "TERM": "dumb"},
        start_new_session=True,
    ) as process:
        os.close(other)
        try:
            assert b"$ cd " in read_until(own, PROMPT)
            press(own, b"\r")
            first = read_until(own, PROMPT)
            assert b"1/16" in first
            assert b"$ cat arrivals/0.json" in first
            press(own, b"\r")
            second = read_until(own, PROMPT)
            assert b"2/16" in second
            assert b"whole (newest committed batch 4" in second
            press(own, key)
            ended = read_until(own, b"\0")
            assert process.wait(timeout=60) == code
            assert termios.tcgetattr(own)[3] & termios.ICANON  # the terminal reads lines again
        finally:
            process.kill()
            os.close(own)
    left = [path.name for path in temporary.iterdir()]
    if code:
        assert ended.count(b"interrupted") == 1
        assert left == []
    else:
        assert b"stopped before step 3 of 16; the files are in " in b" ".join(ended.split())
        assert len(left) == 1
        assert b"Traceback" not in ended
