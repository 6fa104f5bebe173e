"""The processes that a command has started, in whatever session, known by a mark in their environment."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

MARK: Final = "HOLDFAST_TEST_RUN"
DEADLINE_S: Final = 60


def processes(mark: str) -> dict[int, str]:
    """Those that live, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ").strip()
    return {pid: command for pid, command in found.items() if command}


def wait_for(mark: str, wanted: Callable[[dict[int, str]], bool]) -> dict[int, str]:
    """Wait until they are as wanted."""
    deadline = time.monotonic() + DEADLINE_S
    while not wanted(found := processes(mark)):
        assert time.monotonic() < deadline, found
        time.sleep(0.01)
    return found
