"""Record histories of elections, leases and ledgers under kills and freezes, and let porcupine check them."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
PROGRAM: Final = HERE.parents[1] / "build" / "histories"
PROCESSES: Final = 4
# The operations that each model knows.
MODELS: Final = {
    "election": ("election", {"win", "renew"}),
    "lease": ("election", {"win", "hold"}),
    "ledger": ("ledger", {"claim", "write", "read"}),
}


def build() -> None:
    """Build the checker; Go takes porcupine only if it is the one that go.sum names."""
    environment = {**os.environ, "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    subprocess.run(
        ["go", "build", "-o", str(PROGRAM), "."], cwd=HERE / "histories", env=environment, check=True
    )


def record(use: str, folder: Path, seed: str, seconds: float) -> list[dict[str, Any]]:
    """Let processes use one election or ledger, kill and freeze some of them, and return all operations."""
    folder.mkdir(parents=True)
    draw = random.Random(f"{use} {seed}")
    address = folder / "shared"
    if use == "election":
        address.mkdir()
    else:
        with sqlite3.connect(address) as connection:
            connection.execute("CREATE TABLE result (batch INTEGER, value TEXT)")
    files: list[Path] = []
    ends_ns: dict[int, int] = {}

    def start() -> subprocess.Popen[bytes]:
        files.append(folder / f"{len(files)}.jsonl")
        words = [use, str(address), str(files[-1]), f"{seed} {len(files)}"]
        process = subprocess.Popen([sys.executable, str(HERE / "history_worker.py"), *words])
        clients[process] = len(files) - 1
        return process

    def end(process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        ends_ns[clients.pop(process)] = time.monotonic_ns()

    clients: dict[subprocess.Popen[bytes], int] = {}
    running = [start() for _ in range(PROCESSES)]
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            time.sleep(draw.uniform(0.05, 0.5))
            chosen = draw.randrange(len(running))
            if draw.random() < 0.4:
                end(running[chosen])
                running[chosen] = start()
            else:
                running[chosen].send_signal(signal.SIGSTOP)
                time.sleep(draw.uniform(0.1, 1.5))
                running[chosen].send_signal(signal.SIGCONT)
    finally:
        for process in list(clients):
            end(process)
    return [
        operation
        for client, file in enumerate(files)
        for operation in _operations(client, file, ends_ns[client])
    ]


def _operations(client: int, file: Path, end_ns: int) -> Iterator[dict[str, Any]]:
    # A process has no effect once it is dead, so an operation that a kill cut off ended then.
    found: dict[int, dict[str, Any]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            values = json.loads(line)
        except ValueError:  # the line that a kill cut off
            continue
        found.setdefault(values["number"], {"client": client, "outcome": "unknown", "return": end_ns}).update(
            values
        )
    yield from found.values()


def check(model: str, operations: list[dict[str, Any]], file: Path) -> tuple[str, int]:
    """Return porcupine's answer about a history, and the number of its operations."""
    _, names = MODELS[model]
    # These have no effect unless they end.
    idle = {"read", "hold", "renew"} | ({"win"} if model == "lease" else set())
    kept = [
        each
        for each in operations
        if each["name"] in names and (each["outcome"] != "unknown" or each["name"] not in idle)
    ]
    file.write_text("".join(json.dumps(each) + "\n" for each in kept))
    done = subprocess.run([PROGRAM, model, str(file)], stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.split(" ", 1)[0] or "no answer", len(kept)


def spoil(model: str, operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a history that no correct implementation has: an old token that is valid after a newer one."""
    wins = [each for each in operations if each["name"] in ("win", "claim") and each["outcome"] == "ok"]
    wins.sort(key=lambda each: each["token"])
    after = max(each["return"] for each in operations if each["outcome"] != "unknown") + 1
    name, outcome = {"election": ("renew", "ok"), "lease": ("hold", "ok"), "ledger": ("write", "committed")}[
        model
    ]
    late = {
        "client": 0,
        "name": name,
        "outcome": outcome,
        "token": wins[-2]["token"],
        "batch": 10**6,
        "value": "x",
    }
    return [*operations, {**late, "call": after, "return": after + 1}]
