"""A job whose server is flooded commits on, and the server answers whoever asks it something."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from grid import WHOLE
from process_table import runs
from running_job import JOBS, BatchLogs, RunningJob, running, until

pytestmark = pytest.mark.fault

JOB = JOBS / "counting.py"
FLOOD = Path(__file__).with_name("flooding.py")
DESCRIPTORS = 1024
CLIENTS, HELD = 2, 750
CONNECTIONS = 5000 if WHOLE else 1500


@contextmanager
def flood(port: int) -> Iterator[None]:
    """Thousands of connections without a word, and the last 1,500 of them stay."""
    with ExitStack() as stack:
        clients = [stack.enter_context(_client(port)) for _ in range(CLIENTS)]
        for client in clients:
            assert client.stdout is not None
            assert client.stdout.readline() == "done\n"
        yield


@contextmanager
def _client(port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(FLOOD), str(port), str(CONNECTIONS), str(HELD)]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield client
    finally:
        client.kill()
        client.communicate()


def server_of(job: RunningJob) -> int | None:
    """The process that answers for a job."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if (
                entry.name.isdigit()
                and b"holdfast.server.process.server_process" in (entry / "cmdline").read_bytes()
            ):
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                if int(parent) == job.pid:
                    return int(entry.name)
    return None


def health(url: str) -> int | None:
    with suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=60) as answer:
        return int(answer.status)
    return None


def commits_on(log: BatchLogs, what: str) -> None:
    newest = max(log.commits)
    until(lambda: max(log.commits) >= newest + 3, f"three more batches are committed {what}")


def send_without_end(port: int, head: bytes, part: bytes, most: int) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as client, suppress(OSError):
        client.sendall(head)
        sent = 0
        while sent < most:
            sent += client.send(part)


def test_a_job_commits_on_while_its_server_is_flooded(tmp_path: Path) -> None:
    with running(JOB, tmp_path, port=0) as job:
        resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        url = str(job.await_event("serving")["url"])
        port = int(url.rpartition(":")[2])
        log = BatchLogs(tmp_path / "checkpoint")
        job.await_event("batch")
        until(lambda: health(url) == 200, "the server answers")
        first = server_of(job)
        assert first is not None
        assert resource.prlimit(first, resource.RLIMIT_NOFILE) == (DESCRIPTORS, DESCRIPTORS)

        with flood(port):
            commits_on(log, "under 1,500 open connections")
            assert health(url) == 200
        head = b"POST /jobs/overview HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        send_without_end(port, head, b"X-Large: " + b"y" * 65536 + b"\r\n", 100 << 20)
        body = head + b"Content-Length: 100000\r\n\r\n"
        with ExitStack() as halves:
            for _ in range(300):
                half = socket.create_connection(("127.0.0.1", port), timeout=60)
                halves.enter_context(closing(half))
                with suppress(OSError):
                    half.sendall(body + b"{")
            commits_on(log, "beside half-sent bodies")
            assert health(url) == 200

        os.kill(first, signal.SIGKILL)
        assert "started again" in job.await_event("not-served")["error"]
        until(lambda: health(url) == 200, "another server answers")
        assert server_of(job) != first
        commits_on(log, "after the server was killed")

        os.kill(job.pid, signal.SIGTERM)
        ended = job.ended()
        assert (ended.code, ended.kinds.count("starting"), ended.kinds.count("registry")) == (0, 1, 0)
        until(lambda: not runs(first), "the server is gone")


def test_a_server_ends_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    with running(JOB, tmp_path, port=0) as job:
        url = str(job.await_event("serving")["url"])
        until(lambda: health(url) == 200, "the server answers")
        server = server_of(job)
        assert server is not None
        job.kill()
        until(lambda: not runs(server), "the server is gone")
        # Its socket is gone with both; somebody else may have the port by now.
        until(lambda: health(url) != 200, "nobody answers there")
