"""The process that a server has to itself, as the one that has started it sees it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.jobs.processes.protocol import ServerStarted
from holdfast.server.process.listening import listen
from holdfast.server.process.server_process import ServerProcess
from holdfast.server.server_settings import ServerSettings

TOKEN = "a-token-that-is-long-enough"


def children() -> set[int]:
    tasks = Path("/proc/self/task").glob("*/children")
    return {int(pid) for task in tasks for pid in task.read_text().split()}


@pytest.fixture
def server_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server that runs, started where the token is in the environment."""
    monkeypatch.setenv("HOLDFAST_TOKEN", TOKEN)
    monkeypatch.setenv("AWS_PROFILE", "shop")
    settings = ServerSettings(port=0, token=TOKEN)
    before = children()
    with listen(settings) as listening:
        process = ServerProcess(tmp_path, settings, listening)
        try:
            assert isinstance(next(process.messages()), ServerStarted)
            (pid,) = children() - before
            yield pid
        finally:
            process.reap()


def test_the_token_is_neither_in_its_environment_nor_on_its_command_line(server_pid: int) -> None:
    place = Path("/proc") / str(server_pid)
    assert TOKEN.encode() not in (place / "environ").read_bytes()
    assert TOKEN.encode() not in (place / "cmdline").read_bytes()
    # What reaches the state of jobs does reach it.
    assert b"AWS_PROFILE=shop" in (place / "environ").read_bytes().split(b"\0")
    assert os.getsid(server_pid) == server_pid
