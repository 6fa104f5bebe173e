"""Fifty clients ask a control plane for minutes: how long they wait, and whether any gets a 5xx.

    python benchmarks/control_plane/clients.py --seconds 300

It starts `holdfast serve` over a state home of its own, with 50 jobs of 1,000 batches each, or asks the one
that --url names. A client asks one thing after the other, ten times a second.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.jobs.registry.registry import JobRecord, Registry, job_id
from holdfast.model import BatchProgress, JobState, OperatorProgress, QueryStarted

PATHS = (
    "/jobs/overview",
    "/overview",
    "/jobs/{id}",
    "/jobs/{id}/status",
    "/jobs/{id}/checkpoints",
    "/jobs/{id}/metrics?get=lastCheckpointSize",
    "/jobs/{id}/exceptions",
    "/api/v1/jobs",
    "/api/v1/jobs/{name}",
    "/api/v1/jobs/{name}/batches?limit=100",
    "/api/v1/operations",
    "/config",
)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--clients", type=int, default=50)
    given.add_argument("--seconds", type=float, default=30.0)
    given.add_argument("--pause", type=float, default=0.1)
    given.add_argument("--jobs", type=int, default=50)
    given.add_argument("--batches", type=int, default=1000)
    given.add_argument("--url")
    options = given.parse_args()
    if options.url:
        report(options, options.url)
        return
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), options.jobs, options.batches)
        server = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "serve", "--port", "0", "--home", folder, "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            report(options, json.loads(server.stdout.readline())["url"])
        finally:
            server.terminate()
            server.wait()


def fill(home: Path, jobs: int, batches: int) -> None:
    """Jobs with a past; their checkpoints are not there, as after a disk was lost."""
    registry = Registry(home / "registry.db")
    now = int(time.time() * 1000)
    for number in range(jobs):
        name = f"job-{number}"
        place = f"file://{home}/checkpoints/{name}"
        record = JobRecord(
            name, job_id(name), f"{name}.py", place, "retain", JobState.RUNNING, None, now, now, None, 1
        )
        registry.start_job(record)
        attempt = registry.start_attempt(name, 1, now, recovers=False)
        registry.queries_started(name, attempt, [QueryStarted("q", name, "run", place, "none: -")], now)
        operator = OperatorProgress("stateStoreSave", 1000, 10, 1, 0, 10_000, 7, 4)
        with registry._file.write() as db:  # one transaction, where a supervisor has one for each batch
            for batch in range(batches):
                body = BatchProgress("q", batch, now - 1000 * (batches - batch), 10, 50, None, (operator,))
                db.execute(
                    "INSERT INTO batches VALUES (?, ?, ?, ?, ?)",
                    (name, "q", batch, attempt, json.dumps(body.as_dict())),
                )


def report(options: argparse.Namespace, url: str) -> None:
    found = asked(url, options.clients, options.seconds, options.pause, options.jobs)
    waits = sorted(wait for wait, _ in found)
    if not waits:
        raise SystemExit("no answer at all")
    codes = Counter(code for _, code in found)
    sys.stdout.write(
        json.dumps(
            {
                "clients": options.clients,
                "seconds": options.seconds,
                "answers": len(waits),
                "per_second": round(len(waits) / options.seconds, 1),
                "codes": dict(sorted(codes.items())),
                "5xx": sum(count for code, count in codes.items() if code >= 500),
                "p50_ms": round(1000 * waits[len(waits) // 2], 1),
                "p99_ms": round(1000 * waits[int(len(waits) * 0.99)], 1),
                "longest_ms": round(1000 * waits[-1], 1),
                "load": os.getloadavg()[0],
            }
        )
        + "\n"
    )


def asked(url: str, clients: int, seconds: float, pause: float, jobs: int) -> list[tuple[float, int]]:
    """How long each answer took, and its code; 599 where there was none."""
    found: list[list[tuple[float, int]]] = [[] for _ in range(clients)]
    until = time.monotonic() + seconds

    def client(number: int) -> None:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        for turn in itertools.count(number):
            if time.monotonic() > until:
                return
            name = f"job-{turn % jobs}"
            path = PATHS[turn % len(PATHS)].format(id=job_id(name), name=name)
            began = time.monotonic()
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
                code = answer.status
            except OSError:
                connection.close()
                code = 599
            found[number].append((time.monotonic() - began, code))
            time.sleep(pause)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [each for one in found for each in one]


if __name__ == "__main__":
    main()
