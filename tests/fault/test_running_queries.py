"""Plain queries that run, and commands that would change, replace or double their checkpoints: refused.

The queries know nothing of Holdfast. Only their files show that they run, and between two batches not even
these do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from grid import WHOLE
from running_job import until
from triggered_queries import RESTS, ROWS

import holdfast as hf
from holdfast import checkpoints, savepoints
from holdfast.errors import Conflict

pytestmark = [pytest.mark.fault, pytest.mark.spark]

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "triggered_queries.py"
VERBS = ("erase", "rescale", "migrate")
# All commands are done well within this time, if nobody stops them.
SECONDS = 15 if WHOLE else 5


@pytest.fixture
def queries(tmp_path: Path) -> Iterator[Path]:
    """One that never rests, and one for each command, which is between two batches nearly all the time."""
    names = ["restless=0", *(f"{verb}={SECONDS}" for verb in VERBS)]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(tmp_path), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "busy\n", (tmp_path / "log").read_text()[-2000:]
            yield tmp_path
            assert process.poll() is None
        finally:
            process.communicate("", timeout=60)


def batches(folder: Path, name: str) -> int:
    """How many batches a query has put out whole."""
    return checkpoints.read(folder / name).committed[-1] + 1


def check_exact(folder: Path, name: str) -> None:
    """Every batch has put out once what a plain count of its numbers says."""
    made = {int(file.stem): json.loads(file.read_text()) for file in (folder / f"{name}-out").iterdir()}
    assert sorted(made) == list(range(len(made)))
    for batch_id, counts in made.items():
        assert counts == Counter(str(number % RESTS) for number in range(ROWS * (batch_id + 1)))


def test_they_are_refused_and_the_queries_go_on(queries: Path) -> None:
    catalog = queries / "sp"
    until(lambda: all(batches(queries, verb) >= 3 for verb in VERBS), "batches at their usual interval")
    savepoints.take(queries / "erase", catalog)

    def act(verb: str, name: str, *, stopped: bool) -> None:
        place = queries / name
        if verb == "erase":
            hf.erase("3", everywhere=catalog, checkpoint=place, stopped=stopped)
        elif verb == "rescale":
            savepoints.rescale(place, queries / "new" / f"{verb}-{name}", partitions=3, stopped=stopped)
        else:
            hf.migrate(place, queries / "new" / f"{verb}-{name}", backend="rocksdb", stopped=stopped)

    for verb in VERBS:
        with pytest.raises(Conflict):
            act(verb, verb, stopped=False)
        with pytest.raises(Conflict):
            act(verb, "restless", stopped=True)
    told: dict[str, str] = {}

    def wrongly(verb: str) -> None:
        newest = batches(queries, verb)
        until(lambda: batches(queries, verb) > newest, "a batch has just ended", seconds=60)
        try:
            act(verb, verb, stopped=True)
            told[verb] = "it was done"
        except Conflict as error:
            told[verb] = error.fact

    at_once(*(lambda verb=verb: wrongly(verb) for verb in VERBS))
    assert sorted(told) == sorted(VERBS)
    # It depends on the moment who sees it: that a batch is planned, a file open, or something written.
    assert "it was done" not in told.values()
    assert not (queries / "new").exists() or not list((queries / "new").glob("[!.]*"))
    before = {name: batches(queries, name) for name in ("restless", *VERBS)}
    until(
        lambda: all(batches(queries, name) > newest + 1 for name, newest in before.items()),
        "two more batches of each",
        seconds=60,
    )
    for name in before:
        check_exact(queries, name)
        assert checkpoints.verify(queries / name).ok


def at_once(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
