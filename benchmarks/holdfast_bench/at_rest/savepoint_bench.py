"""Savepoints of a query with a large state: what they take, and what the query feels of them."""

from __future__ import annotations

import datetime as dt
import json
import queue
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast import savepoints
from holdfast.errors import Failed
from holdfast.formats.logs.batch_logs import QueryMetadata
from holdfast_bench.at_rest.savepoint_process import Task, write
from holdfast_bench.measure import Bench, Series, time_commands

# Batches before the first savepoint, and between two.
_WARM: Final = 8
_APART: Final = 6
_SNAPSHOTS: Final = 2
# Takes in a run: batches differ much among themselves, and few of them tell nothing.
_TAKES: Final = 4
# Batches beside a pass over all rows, and as long afterwards.
_DIGESTING: Final = 600
_WAIT_S: Final = 600
_MEGABYTE: Final = 1_000_000
_VERIFY_MB_S: Final = 500
_SHOWN_BATCHES: Final = 1000
_SHOWN_PARTITIONS: Final = 200

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurement is.

    Attributes:
        keys: Keys in the state.
        rows: Keys that change with each batch.
    """

    keys: int = 1_000_000
    rows: int = 10_000


@dataclass(frozen=True, slots=True)
class Ran:
    """A batch: when it began, in seconds since the epoch, and how long it took."""

    batch: int
    began: float
    seconds: float

    def overlaps(self, window: tuple[float, float]) -> bool:
        """Whether something went on while it ran."""
        return self.began < window[1] and window[0] < self.began + self.seconds


def savepoint(sizes: Sizes, *, runs: int, say: Say = lambda _: None) -> Bench:
    """Measure takes of a running query, proofs, restores, and a look at a large checkpoint.

    Args:
        sizes: How large the state is.
        runs: Proofs and restarts, and a fourth of the takes.
        say: Told what is being measured.

    Raises:
        Failed: The query did not come to its end.
    """
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        say(f"measuring savepoint: a state of {sizes.keys:,} keys …")
        # A batch in two seconds at the least, and a good many of them.
        write(
            folder / "events",
            sizes.keys,
            sizes.rows,
            _WARM + (_TAKES * runs + 2) * (2 * _APART + 20) + _DIGESTING,
        )
        taken, ran, windows, idle, digesting = _takes(folder, _TAKES * runs, say)
        sizes_of = [savepoints.show(each).size_bytes for each in taken]
        say("measuring savepoint: the bytes of the next …")
        share = _share_of_next(folder)
        say("measuring savepoint: proofs …")
        proofs = _timed(runs, lambda _: savepoints.verify(taken[-1]))
        say("measuring savepoint: restores and restarts …")
        plain, restored = _restarts(folder, taken[-1], runs)
        say("measuring savepoint: a large checkpoint …")
        _large(folder / "large", _snapshots(folder)[0])
        [shown] = time_commands(
            {"show": [sys.executable, "-m", "holdfast", "checkpoint", "show", str(folder / "large")]}, runs
        )
    takes = Series("take", tuple(end - begin for begin, end in windows))
    slower, control = _slower(ran, windows, idle)
    rate = [sizes_of[-1] / _MEGABYTE / seconds for seconds in proofs]
    series = (
        takes,
        Series("verify", tuple(proofs)),
        Series("restart", tuple(plain)),
        Series("restore and restart", tuple(restored)),
        Series("checkpoint show, 1,000 batches of 200 partitions", shown.seconds),
        Series("batch", tuple(each.seconds for each in ran)),
    )
    ratios = {
        "seconds of a take": takes.median,
        "batch while taking / its neighbours, median": statistics.median(slower),
        "the same where nothing was taken, median": statistics.median(control),
        "batch while taking / its neighbours, slowest": max(slower),
        "the same where nothing was taken, slowest": max(control),
        "seconds of the digests of a savepoint": digesting.seconds,
        "batch while digesting / those afterwards, median": digesting.slower,
        "bytes of the next savepoint / of the first": share,
        f"{_VERIFY_MB_S} MB/s / verify": _VERIFY_MB_S / statistics.median(rate),
        "restore and restart / restart": statistics.median(restored) / statistics.median(plain),
        "seconds of checkpoint show": shown.median,
    }
    bounds = {
        "seconds of a take": 1.0,
        "batch while taking / its neighbours, median": 1.05,
        "batch while digesting / those afterwards, median": 1.05,
        "bytes of the next savepoint / of the first": 0.05,
        f"{_VERIFY_MB_S} MB/s / verify": 1.0,
        "restore and restart / restart": 1.1,
        "seconds of checkpoint show": 0.5,
    }
    what = f"{sizes.keys:,} keys, {sizes.rows:,} of them in each batch; {sizes_of[-1]:,} bytes a savepoint"
    return Bench("savepoint", what, series, ratios, bounds)


def _takes(
    folder: Path, count: int, say: Say
) -> tuple[list[str], list[Ran], list[tuple[float, float]], list[tuple[float, float]], _Digesting]:
    """Take savepoints of the running query, each into a catalog of its own.

    Behind each take comes as much time in which nothing is taken, begun at the same moment of a batch. A long
    batch falls into any time more easily than a short one: what that makes of the comparison is seen there.
    """
    taken, windows, idle = [], [], []
    with _query(folder) as heard:
        newest = heard.until(_WARM)
        while len(_snapshots(folder)) < _SNAPSHOTS:
            newest = heard.until(newest + 1)
        for number in range(count):
            say(f"measuring savepoint: take {number + 1} of {count} …")
            began = time.time()
            # As the supervisor does it: the digests are made by a pass of its own, which is measured below.
            taken.append(
                savepoints.take(folder / "checkpoint", folder / f"catalog-{number}", digest=False).uri
            )
            windows.append((began, time.time()))
            newest = heard.until(newest + _APART)
            began = time.time()
            idle.append((began, began + windows[-1][1] - windows[-1][0]))
            newest = heard.until(newest + _APART)
        say("measuring savepoint: its digests …")
        counted = len(heard.ran)
        began = time.time()
        savepoints.digest(taken[-1], gentle=True)
        digesting = (began, time.time())
        heard.until(newest + 1)
        while heard.ran[-1].began < digesting[1] + (digesting[1] - digesting[0]):
            heard.until(heard.ran[-1].batch + 1)
    return taken, heard.ran[:counted], windows, idle, _Digesting(digesting, tuple(heard.ran[counted:]))


@dataclass(frozen=True, slots=True)
class _Digesting:
    """A pass over the rows of a savepoint, and the batches beside it and as long afterwards."""

    window: tuple[float, float]
    ran: tuple[Ran, ...]

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.window[1] - self.window[0]

    @property
    def slower(self) -> float:
        """The median of the batches beside it, against that of those behind it."""
        beside = [each.seconds for each in self.ran if each.overlaps(self.window)]
        behind = [each.seconds for each in self.ran if not each.overlaps(self.window)]
        return statistics.median(beside) / statistics.median(behind)


class _Heard:
    """What the query's process has told of its batches."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.ran: list[Ran] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()

    def until(self, batch: int) -> int:
        """Wait for a batch."""
        deadline = time.monotonic() + _WAIT_S
        while not self.ran or self.ran[-1].batch < batch:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise Failed("the measured query ended or stalled", found=f"no batch {batch}")
            self.ran.append(_ran(json.loads(line)))
        return self.ran[-1].batch

    def _listen(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            if line.startswith("{"):
                self._lines.put(line)
        self._lines.put(None)


def _ran(facts: Any) -> Ran:
    began = dt.datetime.strptime(facts["began"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=dt.timezone.utc)
    return Ran(facts["batch"], began.timestamp(), facts["ms"] / 1000)


@contextmanager
def _query(folder: Path) -> Iterator[_Heard]:
    task = Task(str(folder / "events"), str(folder / "checkpoint"), str(folder / "home"))
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "holdfast_bench.at_rest.savepoint_process", task.as_text()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield _Heard(process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait(_WAIT_S)


def _snapshots(folder: Path) -> list[Path]:
    """The snapshots of the first partition, of which one with the load alone would be no measure."""
    return sorted((folder / "checkpoint/state/0/0").glob("*.zip"))


def _share_of_next(folder: Path) -> float:
    """What a savepoint adds to one of the batch before, with the next batch's keys changed."""
    checkpoint, catalog = folder / "checkpoint", folder / "next"
    newest = savepoints.take(checkpoint, folder / "newest", digest=False).manifest.batch_id
    first = savepoints.take(checkpoint, catalog, batch=newest - 1, digest=False)
    second = savepoints.take(checkpoint, catalog, batch=newest, digest=False)
    return second.manifest.new_bytes / first.manifest.size_bytes


def _restarts(folder: Path, savepoint: str, runs: int) -> tuple[list[float], list[float]]:
    """From a new process to its first committed batch: on the checkpoint, and on a restored one, by turns."""
    plain, restored = [], []
    for number in range(runs):
        began = time.perf_counter()
        plain.append(_first_batch(folder, folder / "checkpoint", began))
        began = time.perf_counter()
        savepoints.restore(savepoint, folder / f"restored-{number}")
        restored.append(_first_batch(folder, folder / f"restored-{number}", began))
        shutil.rmtree(folder / f"restored-{number}")
    return plain, restored


def _first_batch(folder: Path, checkpoint: Path, began: float) -> float:
    task = Task(str(folder / "events"), str(checkpoint), str(folder / "home"), batches=1)
    with subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "holdfast_bench.at_rest.savepoint_process", task.as_text()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        committed = any(line == "committed\n" for line in process.stdout or ())
        took = time.perf_counter() - began
    if not committed or process.returncode:
        raise Failed("the measured query did not commit a batch", where=str(checkpoint))
    return took


def _slower(
    ran: Sequence[Ran], windows: Sequence[tuple[float, float]], idle: Sequence[tuple[float, float]]
) -> tuple[list[float], list[float]]:
    """Batches against the median of those around them: while something was taken, and in idle times."""
    counted = ran[_WARM:]
    busy = [any(each.overlaps(window) for window in windows) for each in counted]
    quiet = [any(each.overlaps(window) for window in idle) for each in counted]
    slower: list[float] = []
    control: list[float] = []
    for index, each in enumerate(counted):
        around = [
            counted[other].seconds
            for other in range(max(0, index - 4), min(len(counted), index + 5))
            if other != index and not busy[other] and not quiet[other]
        ]
        if around and (busy[index] or quiet[index]):
            (slower if busy[index] else control).append(each.seconds / statistics.median(around))
    return slower, control


def _timed(runs: int, do: Callable[[int], object]) -> list[float]:
    taken = []
    for number in range(runs):
        began = time.perf_counter()
        do(number)
        taken.append(time.perf_counter() - began)
    return taken


def _large(folder: Path, snapshot: Path) -> None:
    """A checkpoint of many batches and partitions: names and logs as Spark's, and next to no state.

    Args:
        folder: Where it is made.
        snapshot: A snapshot of RocksDB; every tenth version has one.
    """
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_bytes(QueryMetadata("7d7a1b9e-9dda-47b2-8f49-4073fd4a7361").render())
    confs = {
        "spark.sql.shuffle.partitions": str(_SHOWN_PARTITIONS),
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
        "RocksDBStateStoreProvider",
    }
    fields = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": confs})
    for batch in range(_SHOWN_BATCHES):
        (folder / f"offsets/{batch}").write_text(f'v1\n{fields}\n{{"logOffset":{batch}}}')
        (folder / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    metadata = {
        "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
        "stateStoreInfo": [
            {"storeName": "default", "numColsPrefixKey": 0, "numPartitions": _SHOWN_PARTITIONS}
        ],
    }
    (folder / "state/0/_metadata").mkdir(parents=True)
    (folder / "state/0/_metadata/metadata").write_text(f"v1\n{json.dumps(metadata)}")
    for partition in range(_SHOWN_PARTITIONS):
        place = folder / f"state/0/{partition}"
        place.mkdir()
        # Links are made many times faster than files, and are read as such.
        empty, whole = place / "1.changelog", place / "10.zip"
        empty.touch()
        shutil.copy(snapshot, whole)
        for version in range(2, _SHOWN_BATCHES + 1):
            (place / f"{version}.changelog").hardlink_to(empty)
            if version % 10 == 0 and version > 10:
                (place / f"{version}.zip").hardlink_to(whole)
