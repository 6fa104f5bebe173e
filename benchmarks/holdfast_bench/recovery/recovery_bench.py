"""End the driver of a job many times, and time each end until the next commit.

The sides are kills with SIGKILL, of a job with a standby driver and of one without, with and without the
archive of Spark's classes; and restarts by `hf.jobs.restart`. A clock outside the job measures the time: from
just before the signal, or from the last commit before a restart, until the next commit is reported.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import holdfast as hf
from holdfast.engine.session.class_archive import SWITCH
from holdfast.errors import Failed, Invalid
from holdfast_bench.measure import Bench, Series, note, percentile

STANDBY: Final = "standby"
RESTART: Final = "restart"
COLD: Final = "cold"
COLD_WITHOUT_ARCHIVE: Final = "no_archive"
SIDES: Final = (STANDBY, RESTART, COLD, COLD_WITHOUT_ARCHIVE)
_JOB: Final = Path(__file__).with_name("recovered_job.py")
# Batches between a recovery and the next kill.
_APART: Final = 8
_PATIENCE_S: Final = 60
# A cold start takes ten times as long, and its times differ less.
_COLD_SHARE: Final = 5

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurement is.

    Attributes:
        keys: Keys in the state.
        rows: New events in a second.
    """

    keys: int = 1_000_000
    rows: int = 1_000


def recovery(
    sizes: Sizes, *, runs: int, sides: Sequence[str] | None = None, say: Say = lambda _: None
) -> Bench:
    """Measure kills of the driver.

    Args:
        sizes: How large the state is.
        runs: Kills with a standby, and restarts; a fifth of them, and two at least, without a standby.
        sides: Some of the sides.
        say: Told what is being measured.

    Raises:
        Invalid: There is no such side.
        Failed: The job ended.
    """
    unknown = sorted(set(sides or ()) - set(SIDES))
    if unknown:
        raise Invalid("unknown side of the benchmark", found=", ".join(unknown), expected=", ".join(SIDES))
    series = []
    for side in SIDES if sides is None else sides:
        ends = runs if side in (STANDBY, RESTART) else max(2, runs // _COLD_SHARE)
        say(f"measuring recovery, {side}: a state of {sizes.keys:,} keys, {ends} times …")
        measured = _restarts(sizes, ends) if side == RESTART else _kills(sizes, side, ends)
        series.append(Series(side, tuple(measured)))
    ratios = {}
    for each in series:
        ratios[f"{each.name}: 90th percentile, seconds"] = percentile(each.seconds, 0.9)
        ratios[f"{each.name}: slowest, seconds"] = max(each.seconds)
    return Bench(
        "recovery",
        f"the driver of a job with {sizes.keys:,} keys is killed or restarted, until the next commit",
        tuple(series),
        ratios,
    )


def _kills(sizes: Sizes, side: str, kills: int) -> Iterator[float]:
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        _running(sizes, side, folder) as events,
    ):
        driver, since, ready, killed = 0, 0, side != STANDBY, 0.0
        for event in events:
            kind = event.get("event")
            if kind == "starting":
                driver = int(event["pid"])
            elif kind == "standby-ready":
                ready = True
            elif kind == "batch":
                since += 1
                if killed:
                    took = time.monotonic() - killed
                    note(side, took)
                    yield took
                    kills -= 1
                    since, ready, killed = 0, side != STANDBY, 0.0
                if not kills:
                    return
                if since >= _APART and ready:
                    killed = time.monotonic()
                    os.kill(driver, signal.SIGKILL)
        raise Failed("the job ended before all kills", found=f"{kills} kills left")


def _restarts(sizes: Sizes, restarts: int) -> Iterator[float]:
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        _running(sizes, RESTART, folder) as events,
        ThreadPoolExecutor(1) as requests,
    ):
        since, committed, handed_over = 0, 0.0, False
        requested: Future[hf.jobs.RestartReport] | None = None
        for event in events:
            kind = event.get("event")
            if kind == "starting":
                handed_over = requested is not None
            elif kind == "batch":
                now, since = time.monotonic(), since + 1
                if handed_over and requested is not None:
                    requested.result()
                    note(RESTART, now - committed)
                    yield now - committed
                    restarts -= 1
                    since, requested, handed_over = 0, None, False
                committed = now
                if not restarts:
                    return
                if since >= _APART and requested is None:
                    requested = requests.submit(hf.jobs.restart, "recovered", home=Path(folder) / "home")
        raise Failed("the job ended before all restarts", found=f"{restarts} restarts left")


@contextmanager
def _running(sizes: Sizes, side: str, folder: str) -> Iterator[Iterator[Mapping[str, Any]]]:
    """Run the job and yield its events; its state has every key once the first batch is committed."""
    _write_keys(Path(folder) / "past", sizes.keys)
    command = [sys.executable, "-m", "holdfast", "run", str(_JOB), "--json", "--no-rest", "--home", "home"]
    command += ["--set", f"keys={sizes.keys}", "--set", f"rate={sizes.rows}"]
    command += ["--standby"] if side == STANDBY else []
    environment = {**os.environ, **({SWITCH: "off"} if side == COLD_WITHOUT_ARCHIVE else {})}
    process = subprocess.Popen(  # noqa: S603 - our own command
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield (json.loads(line) for line in process.stdout or ())
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)  # the second one ends it at once
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _write_keys(folder: Path, keys: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    pq.write_table(pa.table({"key": pa.array(range(keys), pa.int64())}), folder / "keys.parquet")
