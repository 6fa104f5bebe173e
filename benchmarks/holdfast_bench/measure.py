"""What every measurement shares: timing, medians, and a note of the machine."""

from __future__ import annotations

import ctypes
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from holdfast.config.spark_versions import installed
from holdfast.engine.session.session import available_cores
from holdfast.errors import Failed

# So many lines of a failed process are passed on.
_TOLD = 40
_RARE = 0.05
_ADOPT_ORPHANS = 36


@dataclass(frozen=True, slots=True)
class Series:
    """Repeated timings of one thing, in seconds."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The figure to quote."""
        return statistics.median(self.seconds)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "median_s": round(self.median, 4),
            "min_s": round(min(self.seconds), 4),
            "max_s": round(max(self.seconds), 4),
            "runs": len(self.seconds),
        }


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and with what it was measured, and how busy the machine was.

    Attributes:
        cores: The processors that this process may use.
        python: The version of Python.
        pyspark: The version of PySpark.
        system: The system and the processor's kind.
        load_before: How many processes wanted a processor in the minute before.
        load_after: The same of the last minute.
        busy_beside: How many processors other programs kept busy, on average.
    """

    cores: int
    python: str
    pyspark: str | None
    system: str
    load_before: float
    load_after: float
    busy_beside: float


@dataclass(frozen=True, slots=True)
class Bench:
    """The result of one measurement.

    Attributes:
        name: As given to `holdfast bench`.
        what: One sentence: what was timed.
        series: Every side, in one run.
        ratios: Comparisons of medians, by name.
        bounds: How large some of them may be at most.
    """

    name: str
    what: str
    series: tuple[Series, ...]
    ratios: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "what": self.what,
            "series": [each.as_dict() for each in self.series],
            "ratios": {name: round(value, 3) for name, value in self.ratios.items()},
            "bounds": dict(self.bounds),
        }


# Timings of the measurement that is not at its end yet, by what was timed.
_so_far: dict[str, list[float]] = {}


def note(name: str, *seconds: float) -> None:
    """Keep timings of a measurement that is not at its end: they are told if it is broken off."""
    _so_far.setdefault(name, []).extend(seconds)


def so_far() -> tuple[Series, ...]:
    """What was noted since the last measurement that came to its end."""
    return tuple(Series(name, tuple(seconds)) for name, seconds in _so_far.items() if seconds)


def at_its_end() -> None:
    """Forget what was noted: the measurement has its result."""
    _so_far.clear()


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all is below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def time_commands(commands: Mapping[str, Sequence[str]], runs: int) -> tuple[Series, ...]:
    """Time whole commands in turn, so that a machine that slows down slows all of them.

    One round is not counted: it fills the caches.
    """
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own commands
            if number:
                taken[name].append(time.perf_counter() - began)
                note(name, taken[name][-1])
    return tuple(Series(name, tuple(values)) for name, values in taken.items())


class Compared(Protocol):
    """A figure worth comparing."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def bound(self) -> float | None:
        """What is promised of it; None where nothing is."""

    @property
    def at_least(self) -> bool:
        """Whether the promise is a lower bound."""


@dataclass(frozen=True, slots=True)
class Result:
    """A comparison that was made.

    Attributes:
        comparison: What is compared.
        value: The figure to quote.
        pairs: The figure of each round or pair, if there were several.
    """

    comparison: Compared
    value: float
    pairs: Sequence[float] = ()

    @property
    def within(self) -> tuple[float, float] | None:
        """The limits of the true value, or None without pairs."""
        return median_within(self.pairs) if self.pairs else None

    @property
    def told(self) -> bool:
        """Whether another such measurement would say the same of the promise."""
        within = self.within
        return within is None or self._keeps(within[0]) == self._keeps(within[1])

    @property
    def holds(self) -> bool | None:
        """Whether the promise is kept; None where there is none."""
        return self._keeps(self.value)

    def _keeps(self, value: float) -> bool | None:
        bound = self.comparison.bound
        if bound is None:
            return None
        return value >= bound if self.comparison.at_least else value <= bound

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        relation = "at_least" if self.comparison.at_least else "at_most"
        return {
            "name": self.comparison.name,
            "value": round(self.value, 3),
            relation: self.comparison.bound,
            "holds": self.holds,
            "told": self.told,
        }


@dataclass(frozen=True, slots=True)
class Beginning:
    """The state of the machine before a measurement.

    Attributes:
        load: How many processes wanted a processor in the last minute.
        at: The time.
        used: The seconds that all processors have worked so far.
        ours: The seconds of them that this process and what it started have used.
    """

    load: float
    at: float
    used: float
    ours: float

    @classmethod
    def now(cls) -> Beginning:
        """Note the machine as it is.

        From now on, processes that lose their parent are counted as this process's own: a JVM outlives the
        Python process that started it.
        """
        with suppress(OSError, AttributeError):  # only Linux has this call
            ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
        return cls(round(os.getloadavg()[0], 2), time.monotonic(), _used(), processor_time())

    def machine(self) -> Machine:
        """Return the machine at the end of a measurement that began here."""
        now = Beginning.now()
        beside = (now.used - self.used) - (now.ours - self.ours)
        return Machine(
            available_cores(),
            platform.python_version(),
            installed("pyspark"),
            f"{platform.system()} {platform.machine()}",
            self.load,
            now.load,
            round(max(0.0, beside) / max(0.001, now.at - self.at), 2),
        )


def _used() -> float:
    """The seconds that the processors of this machine have worked, also for others on the same hardware."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system, _idle, _waiting, irq, softirq, stolen = map(int, words[1:9])
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")


def machine_fields(found: Machine) -> dict[str, Any]:
    """Plain values for JSON."""
    return asdict(found)


def beside(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """One side's figure over the other's, in the median of pairs.

    What is moments apart is as fast or slow as the machine is then, so each is held against its neighbour.
    """
    return statistics.median(pairs(ours, theirs))


def pairs(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Each figure over its neighbour."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def median_within(values: Sequence[float]) -> tuple[float, float]:
    """Between which two values the true median is, in 19 of 20 such measurements.

    Of fewer than six values none are known to be far enough apart: then it is the least and the largest.
    """
    ordered, count = sorted(values), len(values)
    # The true median is below the k-th value as rarely as a coin falls fewer than k times on one side.
    rare, below = 0.0, 0
    while 2 * (rare := rare + math.comb(count, below) / 2**count) <= _RARE and 2 * below < count:
        below += 1
    at = max(0, below - 1)
    return ordered[at], ordered[count - 1 - at]


def processor_time() -> float:
    """The seconds of a processor that this process and all that it has started have used so far."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):  # it has ended, or is no process
            process = int(each.name)
            fields = (each / "stat").read_text().rpartition(")")[2].split()
            # Its own, and that of its children that it has waited for.
            parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {process for process, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks[each] for each in ours) / os.sysconf("SC_CLK_TCK")


def measured_apart(
    module: str,
    task: Mapping[str, Any],
    where: str,
    *,
    python: str = sys.executable,
    environ: Mapping[str, str] | None = None,
) -> Any:
    """Measure in a process of its own: a module that takes a task as JSON and prints its figures last.

    Args:
        module: What is run, as `python -m` has it.
        task: Goes to its standard input.
        where: What is measured, for the error.
        python: The interpreter, by default this one.
        environ: The variables of the process, by default those of this one.

    Raises:
        Failed: It did not come to its end.
    """
    done = subprocess.run(  # noqa: S603 - our own module
        [python, "-m", module],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )
    if done.returncode:
        raise Failed(
            "a side of the measurement failed",
            where=where,
            found="\n".join(cause_in(done.stderr.strip().splitlines())),
        )
    return json.loads(done.stdout.splitlines()[-1])


def cause_in(lines: Sequence[str]) -> Sequence[str]:
    """What a failed process said of its failure: its last traceback, or its last lines if there is none.

    Behind a traceback comes whatever the JVM has to say of its end, which hides the cause.
    """
    began = max((at for at, line in enumerate(lines) if line.startswith("Traceback ")), default=None)
    return lines[-_TOLD:] if began is None else lines[began : began + _TOLD]
