"""The scripts of `holdfast completion`, in the shells that they are for: a line is typed, with TABs in it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from command import PROGRAM
from required import require

from golden import NAMES, golden_on_disk
from holdfast import savepoints
from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobState, QueryStarted

NAME = next(name for name in NAMES if "aggregate-format2" in name)
LONGEST_S = 120.0
# What stands for `holdfast` once a line is entered shows the words that the shell has made of it; the script
# itself asks the program. A word is in two parts where the line that is typed must not have it.
SETUPS = {
    "bash": (
        ("bash", "--norc", "--noprofile", "-i"),
        """source <(holdfast completion bash); holdfast() { printf '<%s>' "$@"; echo EN''D; }""",
    ),
    "zsh": (
        ("zsh", "-f", "-i"),
        """autoload -Uz compinit; compinit -u -D; source <(holdfast completion zsh)
        holdfast() { print -n -r -- "<${(j:><:)@}>"; echo EN''D; }""",
    ),
    "fish": (
        ("fish", "--no-config", "-i"),
        """holdfast completion fish | source
        function holdfast; printf '<%s>' $argv; echo EN''D; end""",
    ),
}
SHELLS = pytest.mark.parametrize("shell", list(SETUPS))

# What is typed, and the words that come of it.
TYPED = {
    "checkp\tver\tck": ["checkpoint", "verify", "ck"],
    "status s\t": ["status", "shop"],
    "restore sp@fi\t": ["restore", "sp@first"],
    "restore sp@be\tnew": ["restore", "sp@before the move", "new"],
    "restore my\\ dir/sp@v\t": ["restore", "my dir/sp@v1"],
    'restore "my dir/sp@v\t': ["restore", "my dir/sp@v1"],
    "run job.py -s q=sp@fi\t": ["run", "job.py", "-s", "q=sp@first"],
    "run job.py --on-damage s\t": ["run", "job.py", "--on-damage", "savepoint"],
    "run job.py --on-damage=s\t": ["run", "job.py", "--on-damage=savepoint"],
    "run jo\t": ["run", "job.py"],
    "state get shop ag\tc1": ["state", "get", "shop", "aggregate", "c1"],
    "state get ck --op\t0": ["state", "get", "ck", "--operator", "0"],
    "restore ~/sp@fi\t": ["restore", "HOME/sp@first"],
}


class Terminal:
    """A shell at a terminal, with `holdfast` and its completion."""

    def __init__(self, shell: str, folder: Path) -> None:
        program = str(require(shell))
        words, setup = SETUPS[shell]
        variables = {
            **os.environ,
            "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "HOLDFAST_HOME": str(folder / "home"),
            "TERM": "dumb",
        }
        self.screen, theirs = pty.openpty()
        # A shell wants the terminal for its own: it is the first process of a session there.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", program, *words[1:]],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=variables,
        )
        os.close(theirs)
        self.type(f"{setup}\necho REA''DY\n", "READY\r\n")

    def type(self, keys: str, until: str) -> str:
        """Type something, and give what is on the screen once a text is there."""
        os.write(self.screen, keys.encode())
        seen, last = b"", time.monotonic() + LONGEST_S
        while until.encode() not in seen:
            ready, _, _ = select.select([self.screen], [], [], max(last - time.monotonic(), 0))
            assert ready, f"{until!r} has not come after {keys!r}: {seen!r}"
            seen += os.read(self.screen, 65536)
        return seen.decode(errors="replace")

    def words(self, line: str) -> list[str]:
        """The arguments that a line has once it is entered."""
        shown = self.type(f"holdfast {line}\n", "END\r\n")
        return shown[: shown.rindex(">END")].rpartition("\n")[2].lstrip("<\r").split("><")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.screen)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint, savepoints of it, and a job."""
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    savepoints.take(checkpoint, tmp_path / "sp", label="first")
    savepoints.take(checkpoint, tmp_path / "sp", label="before the move")
    (tmp_path / "my dir").mkdir()
    savepoints.take(checkpoint, tmp_path / "my dir" / "sp", label="v1")
    (tmp_path / "job.py").write_text("")
    (tmp_path / "home").mkdir()
    registry = Registry(StateHome(tmp_path / "home").registry)
    place = f"file://{checkpoint}"
    registry.start_job(
        JobRecord("shop", job_id("shop"), "job.py", place, "retain", JobState.RUNNING, None, 0, 0, None, 1)
    )
    number = registry.start_attempt("shop", 1, 0, recovers=False)
    registry.queries_started("shop", number, [QueryStarted("q", "id", "run", place, "none")], 0)
    return tmp_path


@SHELLS
def test_a_tab_completes_the_word(shell: str, folder: Path) -> None:
    terminal = Terminal(shell, folder)
    try:
        found = {line: terminal.words(line) for line in TYPED}
    finally:
        terminal.close()
    assert found == {
        line: [word.replace("HOME", str(folder)) for word in words] for line, words in TYPED.items()
    }


@SHELLS
def test_an_id_behind_a_tilde(shell: str, folder: Path) -> None:
    terminal = Terminal(shell, folder)
    try:
        found = terminal.words("restore ~/my\\ dir/sp/2\t")
    finally:
        terminal.close()
    [saved] = savepoints.list(folder / "my dir" / "sp")
    assert found == ["restore", f"{folder}/my dir/sp/{saved.savepoint_id[:15]}"]


@SHELLS
def test_a_broken_home_leaves_the_line_as_it_is(shell: str, folder: Path) -> None:
    (folder / "home" / "registry.db").write_bytes(b"no database at all" * 100)
    shutil.rmtree(folder / "sp" / "savepoints")
    terminal = Terminal(shell, folder)
    try:
        shown = terminal.type("holdfast status s\t\n", "END\r\n")
        assert "<status><s>END" in shown
        assert terminal.words("restore sp@fi\tx") == ["restore", "sp@fix"]
    finally:
        terminal.close()
    for word in ("error", "Traceback", "damaged", "hint"):
        assert word not in shown
