"""The demo: a run of the coffee shop with a killed driver, and a comparison with the model."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.config.spark_defaults import SHORT_LIVED
from holdfast.demo.coffee_shop import day as coffee_day
from holdfast.demo.coffee_shop.model import (
    QuestionAnswer,
    Row,
    RowComparison,
    answers,
    compare,
    late_counts,
    read_day,
    rows_of,
)
from holdfast.demo.saving import DemoSavepoints, Saved
from holdfast.errors import Failed, Unavailable
from holdfast.formats.logs.table_logs import committed_files
from holdfast.jobs.events import JobEvent
from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.registry.client import Control, JobDetails
from holdfast.jobs.state_home import StateHome
from holdfast.jobs.supervisor.supervisor import Supervisor
from holdfast.json_shapes import JsonShape, in_json, json_as, json_value
from holdfast.model import JobState
from holdfast.quantities import rounded_duration

JOB = Path(__file__).parent / "coffee_shop" / "job.py"

# Each stream is read by three of the five queries.
READERS = 3

# The outcome of a job that has read all its input; a stopped job has a different one.
_WHOLE_DAY = "finished"

# The kill comes when half of all rows are in committed batches.
HALF = 0.5

Tell = Callable[[int, int, str], None]


def _compared(comparisons: tuple[RowComparison, ...]) -> list[dict[str, Any]]:
    return [json_value(comparison) | {"exact": comparison.exact} for comparison in comparisons]


@dataclass(frozen=True, slots=True)
class DemoResult(JsonShape):
    """The results of the demo.

    Attributes:
        seed: The seed of the generated streams.
        events: The number of rows in all streams.
        late: The number of late rows, by answer.
        questions: The question, by answer.
        comparisons: The comparison of each answer with the expected one: its name, the numbers of equal,
            missing and extra rows, samples of missing and extra rows, and whether the answer is exact.
        batches: The number of committed batches.
        drivers: The number of drivers that ran.
        recovery_ms: The time from the kill to the next commit, in milliseconds.
        peak_state_rows: The maximum number of rows in state over all queries.
        state_bytes: The size of the state on disk at the end, retained batches included.
        elapsed_ms: The duration of the demo, in milliseconds.
        folder: The directory of the demo's files.
        saved: The savepoints taken during the run, with their comparison.
    """

    seed: int
    events: int
    late: Mapping[str, int]
    questions: Mapping[str, str]
    comparisons: tuple[RowComparison, ...] = field(metadata=json_as(convert=_compared))
    batches: int
    drivers: int
    recovery_ms: int | None
    peak_state_rows: int
    state_bytes: int
    elapsed_ms: int
    folder: str
    saved: Saved

    @property
    @in_json
    def exact(self) -> bool:
        """Return whether all results equal the model's, a driver was killed, and the restore was equal."""
        return (
            self.drivers > 1 and self.saved.same and all(comparison.exact for comparison in self.comparisons)
        )


class CoffeeShop:
    """One run of the demo in an empty or new directory.

    Args:
        folder: The directory for the input, the tables, the checkpoint and a state home.
        seed: The seed of the generated day.
        clock: The function that returns the current time in epoch milliseconds.
        tell: The callback for progress: the number of rows in committed batches, the total, and a text.
        day: The generated day; by default one of the usual size.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        clock: Callable[[], int],
        tell: Tell,
        day: coffee_day.CoffeeDay | None = None,
    ) -> None:
        self._folder = folder
        self._seed = seed
        self._day = day
        self._clock = clock
        self._tell = tell
        self._rows = 0
        self._total = 1
        self._driver: int | None = None
        self._killed = False
        self._note = "starting Spark"
        self._savepoints = DemoSavepoints(folder, 1)

    def run(self) -> DemoResult:
        """Run the demo to its end and return the results.

        Raises:
            Failed: The job failed for good.
            Unavailable: The input cannot be written; the files already written have been deleted.
            KeyboardInterrupt: The job was stopped before it had read all input; nothing is compared.
        """
        began = self._clock()
        day = coffee_day.CoffeeDay.make(self._seed) if self._day is None else self._day
        self._write(day)
        self._total = day.events * READERS
        self._savepoints = DemoSavepoints(self._folder, day.events)
        self._tell(0, self._total, self._note)
        details = self._supervise()
        streams = read_day(self._folder / "day")
        expected = answers(streams)
        saved = self._savepoints.saved()
        return DemoResult(
            seed=self._seed,
            events=day.events,
            late=late_counts(streams),
            questions={answer.name: answer.question for answer in expected},
            comparisons=tuple(compare(answer, self._read_output(answer)) for answer in expected),
            batches=len(details.batches),
            drivers=len(details.attempts),
            recovery_ms=next(iter(details.recoveries_ms), None),
            peak_state_rows=_peak(details),
            state_bytes=_bytes_below(self._folder / "checkpoint"),
            elapsed_ms=self._clock() - began,
            folder=str(self._folder),
            saved=saved,
        )

    def _write(self, day: coffee_day.CoffeeDay) -> None:
        place = self._folder / "day"
        try:
            day.write(place)
        except OSError as error:
            shutil.rmtree(place, ignore_errors=True)
            raise Unavailable(
                "cannot write the input of the demo",
                code="HF-E5008",
                where=str(place),
                found=error.strerror,
                hint="name a different directory with --keep",
            ) from error

    def _supervise(self) -> JobDetails:
        home = StateHome(self._folder / "home")
        home.path.mkdir(parents=True, exist_ok=True)
        spec = DriverSpec(
            target=str(JOB),
            home=str(home.path),
            overrides={
                "day": str(self._folder / "day"),
                "out": str(self._folder / "tables"),
                "checkpoint.storage": str(self._folder / "checkpoint"),
            },
            conf=SHORT_LIVED,
        )
        (self._folder / "tables").mkdir(exist_ok=True)
        outcome = Supervisor(
            spec,
            home,
            self._hear,
            clock=self._clock,
            rng=random.Random(self._seed),  # noqa: S311 - spreads restarts; not security-relevant
            launch=lambda given: DriverProcess.start(given, quiet=True),
        ).run()
        if outcome.state is JobState.FAILED:
            raise Failed(
                "the job coffee-shop failed",
                code="HF-E1004",
                where=str(home.job("coffee-shop")),
                found=outcome.reason,
                hint=(
                    "read the driver's log in this directory; test Spark alone with `holdfast doctor"
                    " --start-spark`"
                ),
            )
        if outcome.reason != _WHOLE_DAY:
            raise KeyboardInterrupt(outcome.reason)
        return Control(home, self._clock).details("coffee-shop")

    def _hear(self, event: JobEvent) -> None:
        if event.kind == "starting":
            self._driver = int(event.facts["pid"])
        elif event.kind == "running" and not self._killed:
            self._note = "running the day"
        elif event.kind == "restarting":
            self._note = "driver killed with SIGKILL, recovering"
        elif event.kind == "recovered":
            self._note = f"recovered in {rounded_duration(event.facts['recovery_ms'])}"
        elif event.kind == "batch":
            self._rows += int(event.facts["input_rows"])
            self._savepoints.hear(str(event.facts["query"]), int(event.facts["input_rows"]))
            self._kill_at_half()
        self._tell(self._rows, self._total, self._note)

    def _kill_at_half(self) -> None:
        if self._killed or self._driver is None or self._rows < self._total * HALF:
            return
        self._killed = True
        os.kill(self._driver, signal.SIGKILL)

    def _read_output(self, answer: QuestionAnswer) -> list[Row]:
        """Read the job's output, without Spark."""
        tables = self._folder / "tables"
        if answer.name == "visits":
            with closing(sqlite3.connect(tables / "answers.db")) as db:
                db.row_factory = sqlite3.Row
                rows = db.execute("SELECT * FROM visits").fetchall()
                return rows_of([dict(row) for row in rows], answer.columns)
        import pyarrow.parquet as pq

        rows = [
            row for file in committed_files(tables / answer.name) for row in pq.read_table(file).to_pylist()
        ]
        return rows_of(rows, answer.columns)


def _peak(details: JobDetails) -> int:
    """Return the maximum sum of the state rows of all queries."""
    now: dict[str, int] = {}
    peak = 0
    for batch in details.batches:
        now[batch.query] = batch.state_rows or 0
        peak = max(peak, sum(now.values()))
    return peak


def _bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and "state" in file.parts)
