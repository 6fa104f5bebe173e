"""The guide to queries without Holdfast: three plain PySpark queries, one server, every line as shown."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import PROGRAM, environment
from loopback import free_ports
from shown_commands import FILE

pytestmark = pytest.mark.docs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "any-query.md"
NAMES = {"orders", "devices", "archive"}
RESOURCES = ("", "/batches", "/checkpoint", "/checkpoints", "/lag", "/sizing", "/recovery")
PAGES = ("", "/checkpoints", "/savepoints", "/state")


@contextmanager
def running(words: list[str], folder: Path, around: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{Path(words[1]).stem}.txt").open("wb") as said:
        process = subprocess.Popen(
            words, cwd=folder, env=around, stdout=said, stderr=said, start_new_session=True
        )
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


def answer(url: str, accept: str = "application/json") -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers={"accept": accept}), timeout=60) as got:
        return str(got.read().decode())


def test_three_plain_queries_and_one_server(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    program = FILE.search(text)
    assert program is not None
    assert "holdfast" not in program["text"]
    (tmp_path / program["name"]).write_text(program["text"], encoding="utf-8")
    scripts = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    around = {
        **environment(tmp_path / ".holdfast"),
        "PATH": f"{Path(PROGRAM).parent}:{os.environ['PATH']}",
        "COLUMNS": "200",
    }
    server = [PROGRAM, "serve", "checkpoints", "--savepoint-dir", "savepoints", "--port", str(port)]
    with (
        running([sys.executable, program["name"]], tmp_path, around) as queries,
        running(server, tmp_path, around) as serving,
    ):

        def commits() -> dict[str, int]:
            assert queries.poll() is None, (tmp_path / "three.txt").read_text()
            assert serving.poll() is None, (tmp_path / "serve.txt").read_text()
            try:
                jobs = json.loads(answer(f"{url}/api/v1/jobs"))["jobs"]
            except urllib.error.URLError:
                return {}
            return {
                job["name"]: len(json.loads(answer(f"{url}/api/v1/jobs/{job['name']}/batches"))["batches"])
                for job in jobs
            }

        until = time.monotonic() + 180
        # They are found by the server that was there before them, and have state to ask for.
        while set(counts := commits()) != NAMES or min(counts.values()) < 3:
            assert time.monotonic() < until, counts
            time.sleep(0.5)
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoints").rglob("metadata")}
        script = 'set -euo pipefail\ncurl() { command curl -fsS "$@"; echo; }\n' + "".join(scripts)
        done = subprocess.run(
            ["bash", "-c", script.replace(":8081", f":{port}")],
            cwd=tmp_path,
            env=around,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        jobs = json.loads(answer(f"{url}/api/v1/jobs"))["jobs"]
        assert {(job["name"], job["state"], job["kind"]) for job in jobs} == {
            (name, "RUNNING", "checkpoint") for name in NAMES
        }
        for name in NAMES:
            for path in RESOURCES:
                assert answer(f"{url}/api/v1/jobs/{name}{path}")
            for path in PAGES:
                assert name in answer(f"{url}/ui/jobs/{name}{path}", "text/html")
            stop = subprocess.run(
                [PROGRAM, "stop", name], cwd=tmp_path, env=around, capture_output=True, text=True, check=False
            )
            assert (stop.returncode, "known from its checkpoint alone" in stop.stderr) == (7, True)
        until = time.monotonic() + 60
        while not list((tmp_path / "savepoints" / "savepoints").glob("*")):
            assert time.monotonic() < until
            time.sleep(0.2)
        assert queries.poll() is None
    assert {path: path.stat().st_mtime_ns for path in before} == before
    lines = done.stdout.splitlines()
    assert {
        line.split()[0] for line in lines if line.endswith(tuple(f"checkpoints/{n}" for n in NAMES))
    } >= NAMES
    assert any(line.startswith("state") and "RUNNING" in line for line in lines)
    assert '"value":{"count":' in done.stdout
