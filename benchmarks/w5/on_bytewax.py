"""Run the job on Bytewax: python on_bytewax.py FOLDER

Two processes on this machine. The figure is all events by the time from the first read to the end of the
last process's input. W5_CHUNK is how many events a source hands over at once (1000 by default). Without
W5_RECOVERY no state is written and nothing survives a failure; with W5_RECOVERY=SECONDS it is kept in a
recovery store, as often as that.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.compute as pc
import pyarrow.parquet
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition

ADDRESSES = "localhost:28101;localhost:28102"
CHUNK = int(os.environ.get("W5_CHUNK", "1000"))
RECOVERY = os.environ.get("W5_RECOVERY", "")


class Users(StatefulSourcePartition[tuple[str, float], int]):
    """The events of the users of one parity, as a partition of a log would have them."""

    def __init__(self, folder: Path, parity: int) -> None:
        self._parity = parity
        self._chunks = self._read(sorted((folder / "parquet").glob("*.parquet")))
        self._at = 0

    def _read(self, files: list[Path]) -> Iterator[list[tuple[str, float]]]:
        _note(f"began-{self._parity}", time.time())
        for path in files:
            table = pyarrow.parquet.read_table(path)
            mine = table.filter(pc.equal(pc.bit_wise_and(table["user"], 1), self._parity))
            users, amounts = mine["user"].to_pylist(), mine["amount"].to_pylist()
            events = list(zip(map(str, users), amounts, strict=True))
            yield from (events[at : at + CHUNK] for at in range(0, len(events), CHUNK))

    def next_batch(self) -> list[tuple[str, float]]:
        self._at += 1
        return next(self._chunks)

    def snapshot(self) -> int:
        return self._at


class ByParity(FixedPartitionedSource[tuple[str, float], int]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_parts(self) -> list[str]:
        return ["0", "1"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Users:  # noqa: ARG002
        return Users(self._folder, int(for_part))


class Counted(StatelessSinkPartition[Any]):
    def __init__(self, worker: int) -> None:
        self._worker, self._alerts = worker, 0

    def write_batch(self, items: list[Any]) -> None:
        self._alerts += len(items)

    def close(self) -> None:
        _note(f"ended-{self._worker}", time.time())
        _note(f"alerts-{self._worker}", self._alerts)


class Count(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Counted:  # noqa: ARG002
        return Counted(worker_index)


def _note(name: str, value: float) -> None:
    Path(os.environ["W5_NOTES"], name).write_text(json.dumps(value))


def look(seen: tuple[int, float] | None, amount: float) -> tuple[tuple[int, float], list[Any]]:
    n, total = seen or (0, 0.0)
    alerts = [(amount, total / n)] if n and amount * n > 3 * total else []
    return (n + 1, total + amount), alerts


def flow(folder: Path) -> Dataflow:
    made = Dataflow("w5")
    events = op.input("events", made, ByParity(folder))
    op.output("alerts", op.stateful_flat_map("average", events, look), Count())
    return made


def main() -> None:
    folder = sys.argv[1]
    rows = pyarrow.parquet.read_table(Path(folder) / "parquet", columns=["user"]).num_rows
    with (
        tempfile.TemporaryDirectory(prefix="w5-") as notes,
        tempfile.TemporaryDirectory(prefix="w5-") as place,
    ):
        store = f"{place}/store"
        environ = {**os.environ, "W5_NOTES": notes, "W5_FOLDER": folder}
        command = [sys.executable, "-m", "bytewax.run", f"{__file__}:running", "-a", ADDRESSES]
        if RECOVERY:
            Path(store).mkdir()
            subprocess.run([sys.executable, "-m", "bytewax.recovery", store, "2"], check=True)
            command += ["-r", store, "-s", RECOVERY, "-b", "0"]
        both = [subprocess.Popen([*command, "-i", str(number)], env=environ) for number in (0, 1)]
        ends = [each.wait() for each in both]
        if any(ends):
            sys.exit("a process failed")
        found = {each.name: json.loads(each.read_text()) for each in Path(notes).iterdir()}
    began = min(value for name, value in found.items() if name.startswith("began"))
    ended = max(value for name, value in found.items() if name.startswith("ended"))
    result = {
        "engine": "bytewax, two processes" + (f", recovery every {RECOVERY} s" if RECOVERY else ""),
        "events_per_s": round(rows / (ended - began)),
        "events": rows,
        "alerts": sum(value for name, value in found.items() if name.startswith("alerts")),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
elif "W5_FOLDER" in os.environ:
    running = flow(Path(os.environ["W5_FOLDER"]))
