"""A driver as a child process, with all processes that it starts, and the files that its JVM leaves."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.config.checks import without_secrets
from holdfast.jobs.loader import split_target
from holdfast.jobs.processes.protocol import DESCRIPTOR, ENVIRONMENT, Channel, ChildSpec

# The directories that Spark creates in its local directories.
_FOLDER: Final = re.compile(r"(?:spark|blockmgr)-[0-9a-f-]{36}")
_LIBRARY: Final = ".so"

COMMAND = (sys.executable, "-m", "holdfast.jobs.processes.driver")


class DriverProcess:
    """A running driver and the channel to it.

    It leads a process group of its own, so that Ctrl-C reaches only the supervisor, and so that its JVM can
    be ended with it.
    """

    def __init__(self, process: subprocess.Popen[bytes], channel: Channel) -> None:
        self._process = process
        self.channel = channel
        self.pid = process.pid

    @classmethod
    def start(
        cls, spec: ChildSpec, command: tuple[str, ...] = COMMAND, *, quiet: bool = False
    ) -> DriverProcess:
        """Start a driver; `quiet` discards its standard output.

        Raises:
            OSError: No process or descriptor is available.
        """
        channel, theirs = Channel.pair()
        environment = {
            **without_secrets(os.environ),
            ENVIRONMENT: spec.as_text(),
            DESCRIPTOR: str(theirs.fileno()),
            "PYTHONPATH": _python_path(spec),
            "PYTHONUNBUFFERED": "1",
        }
        try:
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command,
                env=environment,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if quiet else None,
                start_new_session=True,
            )
        except BaseException:
            channel.close()
            raise
        finally:
            theirs.close()
        return cls(process, channel)

    def kill(self) -> None:
        """Kill the driver and its children. Safe at any moment, since batches commit atomically."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> tuple[int | None, int | None]:
        """Collect the ended process; return the signal that killed it, or its exit code."""
        code = self._process.wait()
        self.channel.close()
        return (-code, None) if code < 0 else (None, code)


def _python_path(spec: ChildSpec) -> str:
    """Return a PYTHONPATH that starts with the job file's directory."""
    folder = str(split_target(spec.target)[0].resolve().parent)
    return os.pathsep.join(part for part in (folder, os.environ.get("PYTHONPATH", "")) if part)


def libraries_of(java_pid: int | None) -> tuple[str, ...]:
    """Return the native libraries that a live JVM has unpacked into the directory for temporary files.

    Empty if the kernel does not report them, or if the process is gone.
    """
    try:
        lines = (Path("/proc") / str(java_pid) / "maps").read_text().splitlines()
    except OSError:
        return ()
    paths = {Path(fields[5]) for line in lines if len(fields := line.split(maxsplit=5)) == 6}
    folder = Path(tempfile.gettempdir())
    return tuple(sorted(str(path) for path in paths if path.parent == folder and path.suffix == _LIBRARY))


def remove_scratch(paths: Iterable[str]) -> None:
    """Delete the directories and the native libraries of a JVM that was killed, and no other path."""
    for path in map(Path, paths):
        if _FOLDER.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix == _LIBRARY and path.parent == Path(tempfile.gettempdir()):
            for file in (path, path.with_name(f"{path.name}.lck")):
                file.unlink(missing_ok=True)
