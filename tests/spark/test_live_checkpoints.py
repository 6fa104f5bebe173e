"""Reading checkpoints of queries that run: no false alarm while files come and go, on a busy machine too."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from grid import WHOLE

from holdfast import checkpoints, savepoints
from holdfast.checkpoints.copy import cut
from holdfast.checkpoints.record import Record, Recorder, RecordFile, record_path
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import NotFound
from holdfast.storage.local import LocalListing, LocalStorage

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "busy_query.py"
KINDS = ("format2", "format2-snapshots", "format1", "format1-snapshots", "memory")
# Looks in all, and processes that keep the processors busy meanwhile.
LOOKS, LOAD = (1000, 2) if WHOLE else (30, 0)
# What is stopped in a round of looks, one at each kind of query. A stopped look takes some batches.
ROUNDS = ("stopped look", *("stopped query", "both run") * 4, "stopped query")
# A take follows each of so many looks.
LOOKS_PER_TAKE = 7


@dataclass
class Busy:
    """Queries that run in a process of their own, with its JVM."""

    folder: Path
    process: subprocess.Popen[str]

    def __truediv__(self, kind: str) -> Path:
        return self.folder / kind

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the process and its JVM wherever they are."""
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    folder = tmp_path_factory.mktemp("busy")
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "busy\n", (folder / "log").read_text()[-2000:]
            yield Busy(folder, process)
        finally:
            process.communicate("", timeout=60)


@pytest.fixture
def load() -> Iterator[None]:
    """Processes that compute and write nothing."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(LOAD)]
    yield
    for process in spinning:
        process.kill()
        process.wait()


class Stopping(LocalStorage):
    """A checkpoint that is looked at by a process which the machine does not run for some batches.

    Args:
        root: The checkpoint.
        rng: Chooses before which listings it is stopped, and for how many batches.
    """

    __slots__ = ("_rng",)

    def __init__(self, root: Path, rng: random.Random) -> None:
        super().__init__(root)
        self._rng = rng

    def list(self, path: str = "") -> LocalListing:
        if self._rng.random() < 0.05:
            until = newest(self) + self._rng.randrange(1, 4)
            while newest(self) < until:
                os.sched_yield()
        return super().list(path)


def newest(storage: LocalStorage) -> int:
    committed = Path(storage.uri.removeprefix("file://"), "commits").iterdir()
    return max((int(file.name) for file in committed if file.name.isdigit()), default=-1)


def read_record(file: RecordFile) -> Record:
    record = file.read()
    assert record is not None
    return record


def test_running_queries_raise_no_false_alarm(busy: Busy, load: None, tmp_path: Path) -> None:
    rng = random.Random(42)
    files = {kind: RecordFile(record_path(tmp_path, f"file://{busy / kind}")) for kind in KINDS}
    recorders = {kind: Recorder(LocalStorage(busy / kind), files[kind]) for kind in KINDS}
    looks: Counter[str] = Counter()
    for number in range(LOOKS):
        kind = KINDS[number % len(KINDS)]
        place = busy / kind
        noted = recorders[kind].look()
        assert (noted.behind, noted.batch_id is not None) == (False, True)
        record = read_record(files[kind])
        look = ROUNDS[number // len(KINDS) % len(ROUNDS)]
        if look == "stopped query":
            with busy.stopped():
                found = verify(LocalStorage(place), record=record)
                # Nothing that a restart needs is gone, though older files may be on their way out.
                assert cut(LocalStorage(place), record=record).batch_id == found.batch_id
        elif look == "stopped look":
            found = verify(Stopping(place, rng), record=record)
        else:
            found = checkpoints.verify(place, home=tmp_path)
            shown = checkpoints.read(place)
            assert [store.missing for store in shown.operators[0].stores] == [None, None]
        assert found.problems == (), (number, kind, look, found.problems)
        assert found.recorded_batch is not None
        assert found.recorded_batch >= (noted.batch_id or 0)
        looks[look] += 1
        if number % LOOKS_PER_TAKE == LOOKS_PER_TAKE - 1:
            taken = savepoints.take(place, tmp_path / "savepoints" / kind, home=tmp_path)
            assert taken.manifest.batch_id >= (noted.batch_id or 0)
            looks["take"] += 1
        if number % 50 == 49:
            batches = {kind: newest(LocalStorage(busy / kind)) for kind in KINDS}
            logging.info("%d looks: %s; newest batches %s", number + 1, dict(looks), batches)
    for kind in KINDS:
        # Something has been cleaned up meanwhile, or this would have shown nothing.
        assert checkpoints.read(busy / kind).committed[0] > 0
        assert checkpoints.history(busy / kind)[-1].new_bytes > 0
        # What was cleaned up leaves the file of the record once it has a thousand lines of it.
        assert len(read_record(files[kind]).files) < 1500


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_of_a_running_query_is_whole(busy: Busy, kind: str, tmp_path: Path) -> None:
    source = LocalStorage(busy / kind)
    for attempt in range(50):
        target = LocalStorage(tmp_path / str(attempt))
        try:
            files = cut(source).files
            for file in files:
                target.copy(file.origin, file.path, origin=source)
        except NotFound:
            continue  # cleaned up since it was listed
        found = checkpoints.verify(tmp_path / str(attempt))
        assert found.problems == ()
        assert found.batch_id in found.restorable
        return
    pytest.fail("a running query was faster than fifty cuts")
