"""The clock of the measured engines.

They run in environments without Holdfast, so this module imports only the standard library.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

_CORES = 2


@dataclass(frozen=True)
class Task:
    """One run of an engine.

    Args:
        side: The name of the side.
        events: The folder that `peer_events.write` filled.
        rows: Events per batch.
        warm_up: Events that are not counted, a number of whole batches.
        total: All events.
        folder: An empty folder for state, checkpoints and notes.
        kafka: The address of a Kafka broker, for an engine that needs one.
        kafka_process: The process of the broker, whose processor time counts.
    """

    side: str
    events: str
    rows: int
    warm_up: int
    total: int
    folder: str
    kafka: str = ""
    kafka_process: int = 0

    @property
    def warm_files(self) -> int:
        """The number of files that are not counted."""
        return self.warm_up // self.rows

    def half(self, number: int) -> list[Path]:
        """Return the files of one half of the users, in order."""
        return sorted(Path(self.events, "halves", str(number)).iterdir())


@dataclass(frozen=True)
class Run:
    """The figures of one run.

    Attributes:
        events: Counted events, those of the warm-up left out.
        seconds: The time from the first counted event to the last.
        processor: Seconds of processors in that time, of all processes.
        alerts: All alerts, those of the warm-up included; None for a side that finds none by design.
    """

    events: int
    seconds: float
    processor: float
    alerts: int | None


class Stopwatch:
    """Measures one instance of an engine and leaves a note of it in the run's folder.

    Args:
        task: The run.
        barrier: Where the clocks of all instances wait for each other before they begin.
    """

    def __init__(self, task: Task, barrier: Barrier | None = None) -> None:
        self._barrier = barrier
        self._path = Path(task.folder, f"{uuid.uuid4().hex}.note")
        self._processes = [os.getpid(), *([task.kafka_process] if task.kafka_process else [])]
        self._began: float | None = None
        self._used: dict[int, float] = {}

    def begin(self) -> None:
        """Start to count: the warm-up is over. Later calls change nothing."""
        if self._began is None:
            if self._barrier is not None:
                self._barrier.wait()
            self._used = {process: _processor(process) for process in self._processes}
            self._began = time.time()

    def end(self, alerts: int, events: int | None = None) -> None:
        """Stop, and write the note.

        Args:
            alerts: The alerts that this instance found.
            events: Its counted events, if the clock could not be started at the exact end of the warm-up.
        """
        ended = time.time()
        self.begin()
        used = {process: (before, _processor(process)) for process, before in self._used.items()}
        note = {"times": (self._began, ended), "used": used, "alerts": alerts, "events": events}
        self._path.write_text(json.dumps(note))


Instance = Callable[[Task, int, Stopwatch], None]


def combined(task: Task) -> Run:
    """Combine the notes of all instances of an engine: from the earliest begin to the latest end."""
    notes: list[Any] = [json.loads(path.read_text()) for path in Path(task.folder).glob("*.note")]
    used: dict[str, list[float]] = {}
    for note in notes:
        for process, times in note["used"].items():
            used.setdefault(process, []).extend(times)
    counted = [note["events"] for note in notes if note["events"] is not None]
    return Run(
        sum(counted) if counted else task.total - task.warm_up,
        max(note["times"][1] for note in notes) - min(note["times"][0] for note in notes),
        sum(max(times) - min(times) for times in used.values()),
        sum(note["alerts"] for note in notes),
    )


def run_engine(run: Callable[[Task], None]) -> None:
    """Read a task from standard input, run the engine, and print the figures as the last line."""
    task = read_task()
    run(task)
    show_run(combined(task))


def read_task() -> Task:
    """Read a task from standard input."""
    return Task(**json.load(sys.stdin))


def show_run(run: Run) -> None:
    """Print the figures as the last line, where the bench reads them."""
    sys.stdout.write("\n" + json.dumps(asdict(run)) + "\n")


def in_processes(instance: Instance, task: Task, *, independent: bool) -> None:
    """Run one instance of an engine per core, each in a process of its own, and wait for all.

    Args:
        instance: Gets the task, its number and its clock.
        task: The run.
        independent: True if the instances exchange nothing: their clocks then wait for each other at the end
            of the warm-up, so that the time of their starts is not measured.

    Raises:
        RuntimeError: An instance failed; the others are ended.
    """
    spawned = multiprocessing.get_context("spawn")
    barrier = spawned.Barrier(_CORES) if independent else None
    processes = [
        spawned.Process(target=_run, args=(instance, task, number, barrier)) for number in range(_CORES)
    ]
    for process in processes:
        process.start()
    running = processes
    while running:
        wait([process.sentinel for process in running])
        # In this order: a process may end between the two lines.
        running = [process for process in running if process.exitcode is None]
        if any(process.exitcode for process in processes):
            for process in running:
                process.kill()
    if codes := [process.exitcode for process in processes if process.exitcode]:
        raise RuntimeError(f"{len(codes)} of {_CORES} processes failed with exit codes {codes}")


def _run(instance: Instance, task: Task, number: int, barrier: Barrier | None) -> None:
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    instance(task, number, Stopwatch(task, barrier))


def _end_with(parent: int) -> None:
    """End this process when its parent has ended: a broken-off bench leaves no engine behind."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def exceeds(n: int, total: float, amount: float) -> bool:
    """Return whether an amount exceeds three times the average of the `n` amounts before it."""
    return n > 0 and amount * n > 3 * total


def _processor(process: int) -> float:
    """Return the processor seconds of a process, all its threads included."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def batches_of(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """Split a sequence into parts of a size."""
    return [values[at : at + size] for at in range(0, len(values), size)]
