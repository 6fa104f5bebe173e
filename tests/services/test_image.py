"""The image of `deploy/image` as Kubernetes would run it.

Its entry point is the first process of a container, as a user that is not root, on a root file system that is
read-only, without a home directory.

Podman starts the containers, on the network of this machine. `make services-image` builds the image.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest
from loopback import free_ports
from required import require

pytestmark = [pytest.mark.services, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/holdfast-test"
# Podman takes no long name for it, and remembers it with the images.
RUN_ROOT = f"/tmp/holdfast-image-{zlib.crc32(str(ROOT).encode()):x}"
USER = 10001
TOKEN = "a-token-for-one-test-alone"
PATIENCE_S = 300.0


class Container:
    """Starts one container after the other, over the same volumes."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.state = place / "state"
        self.started: list[str] = []
        self.running: list[subprocess.Popen[str]] = []
        self._podman = [
            shutil.which("podman") or "podman",
            *("--root", str(ROOT / ".services" / "image" / "storage")),
            *("--runroot", RUN_ROOT),
            *("--storage-driver", "overlay", "--cgroup-manager", "cgroupfs", "--runtime", "runc"),
            *("--log-level", "error"),
        ]
        for folder in (self.state, place / "tmp"):
            folder.mkdir()
            os.chown(folder, USER, USER)
        (place / "token").write_text(TOKEN)
        (place / "token").chmod(0o444)

    def run(
        self,
        *command: str,
        environ: Mapping[str, str] | None = None,
        scratch: bool = True,
        user: int = USER,
    ) -> subprocess.Popen[str]:
        """Start one; it is removed when it ends."""
        name = f"holdfast-{os.getpid()}-{time.monotonic_ns()}"
        self.started.append(name)
        volumes = {
            self.state: "/var/lib/holdfast",
            ROOT / "deploy" / "jobs": "/jobs:ro",
            self.place / "token": "/run/secrets/holdfast/token:ro",
            **({self.place / "tmp": "/tmp"} if scratch else {}),
        }
        options = [
            *("--rm", "--name", name, "--network", "host", "--read-only", "--read-only-tmpfs=false"),
            *("--user", f"{user}:{user}", "--passwd=false"),
            *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
            # Podman's defaults are above what this machine allows.
            *("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"),
            *(word for here, there in volumes.items() for word in ("--volume", f"{here}:{there}")),
            *(word for pair in (environ or {}).items() for word in ("--env", "=".join(pair))),
            # As where nobody has set it.
            *("--env", "HOME="),
        ]
        with (self.place / "log").open("a") as log:
            running = subprocess.Popen(
                [*self._podman, "run", *options, IMAGE, *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self.running.append(running)
        return running

    def said(self) -> str:
        """What all of them have printed."""
        return (self.place / "log").read_text()

    def inside(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the newest container."""
        words = [*self._podman, "exec", self.started[-1], *command]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def processes(self) -> list[tuple[int, int, str, str]]:
        """Number, parent, state and command of each process in the newest container."""
        listed = json.loads(self.inside("python", "-c", _PROCESSES).stdout)
        return [(number, parent, state, words) for number, parent, state, words in listed]

    def signal(self, name: str) -> None:
        """As a kubelet does: to the first process of the newest container."""
        subprocess.run(
            [*self._podman, "kill", "--signal", name, self.started[-1]], check=True, capture_output=True
        )

    def close(self) -> None:
        """End and remove whatever is left."""
        for name in self.started:
            subprocess.run([*self._podman, "rm", "--force", name], check=False, capture_output=True)
        for running in self.running:
            running.wait(PATIENCE_S)


# Debian's slim image has no `ps`. What has ended meanwhile is passed over, as is what asks.
_PROCESSES = """
import json, os, pathlib
found = []
for place in pathlib.Path("/proc").iterdir():
    if place.name.isdigit() and int(place.name) != os.getpid():
        try:
            words = (place / "cmdline").read_bytes().replace(bytes(1), b" ").decode()
            state, parent = (place / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        found.append((int(place.name), int(parent), state, words))
print(json.dumps(found))
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    require("image")
    made = Container(tmp_path)
    yield made
    made.close()


def until(
    condition: Callable[[], bool], what: str, running: subprocess.Popen[str], container: Container
) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert running.poll() is None, container.said()
        assert time.monotonic() < deadline, f"it never came to this: {what}\n{container.said()}"
        time.sleep(0.1)


def status(url: str, token: str | None = None) -> int:
    """How an address answers; 0 if it does not."""
    request = urllib.request.Request(url)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
    return 0


def numbers(folder: Path) -> set[int]:
    """The batches in a log of a checkpoint."""
    with suppress(FileNotFoundError):
        return {int(path.name) for path in folder.iterdir() if path.name.isdigit()}
    return set()


def counts(table: Path) -> dict[int, int]:
    """What the job has counted."""
    with closing(sqlite3.connect(f"file:{table}?mode=ro", uri=True)) as database:
        return dict(database.execute("SELECT digit, count FROM counts").fetchall())


def test_doctor_says_what_a_container_lacks(container: Container) -> None:
    assert container.run("holdfast", "doctor").wait(PATIENCE_S) == 0, container.said()
    assert "jobs: ready" in container.said()
    assert container.run("holdfast", "doctor", scratch=False).wait(PATIENCE_S) == 1
    assert "/tmp is on a read-only file system" in container.said()
    assert container.run("holdfast", "doctor", user=12345).wait(PATIENCE_S) == 1
    assert "the current user has no name, which Spark needs to start" in container.said()
    nowhere = {"HOLDFAST_HOME": "/home/holdfast"}
    assert container.run("holdfast", "doctor", environ=nowhere).wait(PATIENCE_S) == 1
    assert "/home is on a read-only file system" in container.said()
    assert container.run("holdfast", "run", "/jobs/counts.py", environ=nowhere).wait(PATIENCE_S) == 2
    assert "error: the state home is not writable" in container.said()
    assert "Traceback" not in container.said()


def test_a_job_answers_its_probes_survives_its_driver_and_stops_in_order(container: Container) -> None:
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    running = container.run(
        *("holdfast", "run", "/jobs/counts.py", "--master=local[2]", "--host=0.0.0.0", f"--port={port}"),
        *("--token-file=/run/secrets/holdfast/token", "--conf=spark.driver.memory=1g"),
        *("--conf=spark.sql.shuffle.partitions=2",),
    )
    until(lambda: status(f"{url}/health") == 200, "the startup probe succeeds", running, container)
    checkpoint = container.state / "checkpoints" / "counts"
    until(lambda: max(numbers(checkpoint / "commits"), default=0) >= 2, "three batches", running, container)
    assert status(f"{url}/metrics") == 401
    assert status(f"{url}/metrics", TOKEN) == 200
    processes = container.processes()
    assert next(words for number, _, _, words in processes if number == 1).startswith("/usr/bin/tini")
    assert container.inside("touch", "/jobs/x", "/opt/x", "/x").returncode != 0
    assert container.inside("id", "-u").stdout.strip() == str(USER)

    # The driver dies, and its JVM with it: their children lose their parents, and are collected.
    [driver] = [number for number, _, _, words in processes if "holdfast.jobs.processes.driver" in words]
    before = max(numbers(checkpoint / "commits"))
    container.inside("python", "-c", f"import os; os.killpg({driver}, 9)")
    until(lambda: max(numbers(checkpoint / "commits")) > before + 1, "it goes on", running, container)
    until(
        lambda: all(state != "Z" for _, _, state, _ in container.processes()),
        "no zombie is left",
        running,
        container,
    )
    container.signal("TERM")
    assert running.wait(PATIENCE_S) == 0, container.said()
    assert numbers(checkpoint / "offsets") == numbers(checkpoint / "commits")
    found = counts(container.state / "counts.db")
    total = sum(found.values())
    assert total > 0
    assert found == {digit: len(range(digit, total, 10)) for digit in range(min(10, total))}


@pytest.mark.parametrize("way", ["python", "driver"])
def test_a_guarded_program_ends_as_its_exit_codes_say(way: str, container: Container) -> None:
    """Started as a Job of Kubernetes does, and with the word with which Spark starts its drivers."""
    conf = ("--conf", "spark.sql.shuffle.partitions=1", "--conf", "spark.ui.enabled=false")
    program = {
        "python": ("python", "/jobs/guarded_counts.py"),
        "driver": ("driver", "--master", "local[2]", *conf, "local:///jobs/guarded_counts.py"),
    }[way]
    environ = {"COUNTS": "/var/lib/holdfast/guarded", "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"}
    submitted = {**environ, "PYSPARK_SUBMIT_ARGS": " ".join((*conf, "--master local[2] pyspark-shell"))}
    running = container.run(*program, environ=submitted)
    checkpoint = container.state / "guarded" / "checkpoint"
    until(lambda: max(numbers(checkpoint / "commits"), default=0) >= 1, "two batches", running, container)
    until(lambda: status("http://127.0.0.1:9400/metrics") == 200, "the probe succeeds", running, container)
    container.signal("TERM")
    assert running.wait(PATIENCE_S) == 0, container.said()
    assert numbers(checkpoint / "offsets") == numbers(checkpoint / "commits")
    newest = max(numbers(checkpoint / "commits"))
    damaged = checkpoint / "state" / "0" / "0" / f"{newest + 1}.delta"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    assert container.run(*program, environ=submitted).wait(PATIENCE_S) == 6, container.said()
    assert damaged.name in container.said()
    # The program needs a variable that is not there: it fails of its code.
    without = {name: value for name, value in submitted.items() if name != "COUNTS"}
    assert container.run(*program, environ=without).wait(PATIENCE_S) == 1, container.said()
