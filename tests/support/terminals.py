"""Two terminals in one directory, in which a document's commands are run as its reader runs them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from shown_commands import Appears, Command, Paste, Save, Start, Step, steps

# Where the documents say that they are, and when a command that hangs has failed.
SHOWN_FOLDER = "/tmp/shop"
PATIENCE_S = 240.0


# What differs from run to run: places, ids, times, sizes, and where a line ends.
_VARIES = (
    (re.compile(r"\d{8}T\d{6}\.\d{3}Z-[0-9a-f]{8}-b\d+-[0-9a-f]{4}"), "SAVEPOINT"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"[\d.]+ (?:ms|s|min|h)\b(?: [\d.]+ (?:s|min)\b)*"), "DURATION"),
    (re.compile(r"\d[\d,]* bytes"), "N bytes"),
)


def steady_words(text: str) -> list[str]:
    """The words of what was printed, without what no two runs have in common."""
    for pattern, replacement in _VARIES:
        text = pattern.sub(replacement, text)
    return text.split()


def fits(printed: str, shown: str) -> bool:
    """Whether this is what a document shows, but for what varies and for what it leaves out."""
    words = steady_words(printed)
    parts = [steady_words(part) for part in re.split(r"^…$", shown, flags=re.MULTILINE)]
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return words == first
    if words[: len(first)] != first or words[len(words) - len(last) :] != last:
        return False
    at = len(first)
    for part in parts[1:]:
        starts = range(at, len(words) - len(part) + 1)
        found = next((start for start in starts if words[start : start + len(part)] == part), None)
        if found is None:
            return False
        at = found + len(part)
    return True


def _contents(file: Path) -> bytes | None:
    """A file's bytes; None for what is none, or was a temporary one that is gone."""
    with suppress(FileNotFoundError):
        return file.read_bytes() if file.is_file() else None
    return None


class Terminals:
    """The first terminal has one command that goes on; in the second, commands end.

    Args:
        folder: The directory of both.
        environ: The environment of both.
        logs: Where what they print is kept; not in the directory, which is the reader's.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str], logs: Path) -> None:
        self._folder = folder
        self._environ = dict(environ)
        self._logs = logs
        self._shell = subprocess.Popen(
            ["bash"], cwd=folder, env=self._environ, stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        self._running: subprocess.Popen[str] | None = None
        self._seen = 0
        self._number = 0
        # Of the newest command, and what to show of it where the code is not what the document lets expect.
        self._code, self._context = 0, ""
        # When each command had ended, by `time.monotonic`.
        self.ended: dict[str, float] = {}

    def follow(self, document: str) -> None:
        """Do what it says from top to bottom; a code other than 0 is one that it shows with `echo $?`."""
        for step in steps(document):
            assert self._code == 0 or step == Command("echo $?", f"{self._code}\n"), self._context
            self.carry_out(step)
        assert self._code == 0, self._context

    def close(self) -> None:
        """End what still runs in either."""
        self._interrupt()
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        try:
            self._shell.wait(10)
        except subprocess.TimeoutExpired:  # a command in it hangs
            os.killpg(self._shell.pid, signal.SIGTERM)
            self._shell.wait(PATIENCE_S)

    def carry_out(self, step: Step) -> None:
        """Do what the document says, and compare what is printed with what it shows.

        While a query goes on in the first terminal and nothing comes in, no command may change a checkpoint.
        """
        if isinstance(step, Save):
            (self._folder / step.name).write_text(step.text, encoding="utf-8")
        elif isinstance(step, Paste):
            assert self._run(step.script) == ("", "", 0)
        elif isinstance(step, Command):
            self._compare(step)
        elif isinstance(step, Start):
            self._start(step)
        elif isinstance(step, Appears):
            self._await(step.shown)
        else:
            assert self._running is not None
            self._interrupt()

    def _compare(self, step: Command) -> None:
        before = self._files_at_rest()
        printed, said, code = self._run(step.command)
        context = f"$ {step.command}\n{printed}{said}(exit code {code})"
        # Beside the answer a terminal shows what is said on standard error; a document may leave it out.
        told = [steady_words(self._in_place(line)) for line in said.splitlines()]
        answer = [line for line in step.shown.splitlines() if steady_words(line) not in told]
        assert fits(self._in_place(printed), "\n".join(answer)), context
        assert self._files_in_use() == before, context
        self._code, self._context = code, context
        self.ended.setdefault(step.command, time.monotonic())

    def _files_at_rest(self) -> dict[str, bytes]:
        """The same once each batch that was planned is committed: its output is shown a moment before."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            files = self._files_in_use()
            if all(file.replace("/offsets/", "/commits/") in files for file in files if "/offsets/" in file):
                return files
            assert time.monotonic() < deadline, sorted(files)
            time.sleep(0.01)

    def _files_in_use(self) -> dict[str, bytes]:
        """The checkpoints while a query runs on them."""
        files = self._folder.glob("checkpoints/**/*") if self._running is not None else ()
        return {str(file): contents for file in files if (contents := _contents(file)) is not None}

    def _in_place(self, text: str) -> str:
        return text.replace(str(self._folder), SHOWN_FOLDER)

    def _run(self, command: str) -> tuple[str, str, int]:
        """Run it in the one shell of the second terminal, which keeps its variables and `$?`."""
        self._number += 1
        out, err, code = (self._logs / f"{self._number}.{kind}" for kind in ("out", "err", "code"))
        assert self._shell.stdin is not None
        self._shell.stdin.write(
            f'{{ (exit "${{code:-0}}"); {command}\n}} > "{out}" 2> "{err}" < /dev/null; code=$?\n'
            f'echo "$code" > "{code}.new"; mv "{code}.new" "{code}"\n'
        )
        self._shell.stdin.flush()
        self._wait(code.exists, self._shell, command)
        printed = (out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))
        return *printed, int(code.read_text(encoding="utf-8"))

    def _start(self, step: Start) -> None:
        assert self._running is None
        self._seen = 0
        with (self._logs / "first.out").open("w") as out, (self._logs / "first.err").open("w") as err:
            self._running = subprocess.Popen(
                ["bash", "-c", f"exec {step.command}"],
                cwd=self._folder,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
                start_new_session=True,
            )
        self._await(step.shown)

    def _await(self, shown: str) -> None:
        """Wait until the first terminal shows it, and until the batch that printed it is committed.

        What a document leaves out there is not looked at.
        """
        wanted = steady_words(shown)
        printed = self._logs / "first.out"
        assert self._running is not None

        def is_there() -> bool:
            words = steady_words(self._in_place(printed.read_text(encoding="utf-8")))
            return len(words) >= self._seen + len(wanted)

        self._wait(is_there, self._running, shown)
        words = steady_words(self._in_place(printed.read_text(encoding="utf-8")))
        assert not wanted or words[self._seen :] == wanted
        self._seen = len(words)
        self._wait(self._all_is_committed, self._running, "a commit")

    def _all_is_committed(self) -> bool:
        def numbers(log: str) -> set[str]:
            return {
                f"{file.parents[1]}/{file.name}"
                for file in self._folder.glob(f"checkpoints/*/{log}/*")
                if file.name.isdigit()
            }

        return numbers("offsets") == numbers("commits") != set()

    def _interrupt(self) -> None:
        """What Ctrl-C does: the signal goes to all processes of the terminal."""
        if self._running is not None:
            os.killpg(self._running.pid, signal.SIGINT)
            self._running.wait(PATIENCE_S)
            self._running = None

    def _wait(self, condition: Callable[[], bool], process: subprocess.Popen[str], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            log = self._logs / "first.err"
            said = log.read_text(encoding="utf-8") if log.exists() else ""
            assert process.poll() is None, f"{what}\n{said}"
            assert time.monotonic() < deadline, f"{what}\n{said}"
            time.sleep(0.02)


def follow(document: str, folder: Path, environ: Mapping[str, str], logs: Path) -> Mapping[str, float]:
    """Do what a document says, and return when each command had ended."""
    terminals = Terminals(folder, environ, logs)
    try:
        terminals.follow(document)
    finally:
        terminals.close()
    assert not (folder / "elsewhere").exists()  # which a dry run names
    return terminals.ended
