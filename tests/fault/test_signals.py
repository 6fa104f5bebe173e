"""Ctrl-C, SIGTERM and SIGHUP at seeded moments: a verb ends, says a line at most, and leaves no process.

Savepoints and the checkpoint are whole afterwards, and what was broken off can be done again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from command import PROGRAM, environment
from forked_cli import ForkedCli
from grid import WHOLE
from marked_processes import DEADLINE_S, MARK, wait_for
from verb_calls import WORKING, below, furnished, lines_of, words_of

from holdfast import savepoints

pytestmark = pytest.mark.fault

SEED: Final = os.environ.get("HOLDFAST_SEED", "signals")
NUMBERS: Final = count()
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Ctrl-C is answered, but where the interpreter itself has begun to end; the other two end a process as the
# system has it, or as a verb does that runs on.
ENDINGS: Final[Mapping[int, frozenset[int]]] = {
    signal.SIGINT: frozenset({130, -signal.SIGINT}),
    signal.SIGTERM: frozenset({-signal.SIGTERM, 130}),
    signal.SIGHUP: frozenset({-signal.SIGHUP}),
}
# What stands in the way of the same call is the files that a person can see, and is told.
ONCE: Final = ("init", "tour")
# As the same call is refused whose first had done its work when the signal came.
IN_THE_WAY: Final = ("not empty", "exists", "in the way", "is there already")

JOB: Final = """
import holdfast as hf

@hf.job(name="counts", checkpoint="other")
def counts(spark):
    events = spark.readStream.schema("customer string, amount long").json("in")
    return events.groupBy("customer").count().writeStream.outputMode("update").format("noop")
"""
HISTORY: Final = """
def warm(spark):
    return spark.createDataFrame([("c1", 1), ("c2", 2)], "customer string, amount long")
"""
# What starts Spark, or processes of its own, with the most seconds until the signal comes.
LONG: Final[Mapping[str, float]] = {
    "check COUNTS.py --against CK": 5,
    "doctor --start-spark": 6,
    "drill SP --job COUNTS.py": 6,
    "state bootstrap COUNTS.py made --from WARM.py": 6,
    "fork SP --compare COUNTS.py --original COUNTS.py": 8,
    "run COUNTS.py --port 0": 6,
    "demo --keep made": 1.5,  # later moments have a test of their own: it stops after a batch
    "bench startup --runs 1": 4,
    "serve --port 0": 1,
    "watch CK --every 50ms": 1,
    "savepoint take CK made --every 50ms": 1,
    "status shop --watch": 1,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with furnished(tmp_path_factory.mktemp("signals")) as folder:
        (folder / "COUNTS.py").write_text(JOB)
        (folder / "WARM.py").write_text(HISTORY)
        (folder / "in").mkdir()
        yield folder


def around(place: Path, mark: str) -> dict[str, str]:
    return {**environment(place / "home"), MARK: mark}


def check_place(place: Path, checkpoint: Mapping[str, str]) -> None:
    """Nothing is half-made: the checkpoint is as it was, and every savepoint is whole."""
    assert below(place / "CK") == checkpoint
    for listed in savepoints.list(place / "CAT"):
        assert savepoints.verify(listed.uri).ok, listed


@pytest.mark.parametrize("line", lines_of(WORKING)[:: 1 if WHOLE else 3])
def test_a_verb_that_is_broken_off_ends(line: str, cli: ForkedCli, place: Path) -> None:
    rng = random.Random(f"{SEED} {line}")
    checkpoint = below(place / "CK")
    for number in SIGNALS:
        mark, after_s = uuid.uuid4().hex, rng.uniform(0.0, 0.3)
        context = f"seed {SEED!r}: {signal.Signals(number).name} after {after_s:.3f} s"
        words = words_of(line, place, f"made-{next(NUMBERS)}")
        with (place / "told").open("w+") as told, Path(os.devnull).open("r+") as nothing:
            call = cli.start(
                words,
                cwd=place,
                environ=around(place, mark),
                streams=(nothing.fileno(), nothing.fileno(), told.fileno()),
            )
            call.ends_within(after_s)
            call.send(number, to_group=number != signal.SIGTERM)
            code = call.wait(DEADLINE_S)
            told.seek(0)
            said = told.read()
        assert code in {0, *ENDINGS[number]}, (context, code, said)
        assert "Traceback" not in said, context
        assert said.count("interrupted") == (code == 130 and number == signal.SIGINT), (context, said)
        wait_for(mark, lambda left: not left)
        check_place(place, checkpoint)
        if not line.startswith(ONCE):
            again = cli.run(words, cwd=place, environ=around(place, mark))
            made = any(words in again.stderr for words in IN_THE_WAY)
            # A signal may come when all is done, and only the interpreter has still to end.
            assert again.returncode == 0 or (made and (code == 0 or "it is whole" in again.stderr)), (
                context,
                again.stderr,
            )


@pytest.mark.parametrize("number", SIGNALS)
def test_the_interpreter_may_still_be_starting(number: int, place: Path) -> None:
    """In processes of their own, from the first moment."""
    rng = random.Random(f"{SEED} {number}")
    uri = (place / "SP").read_text()
    checkpoint = below(place / "CK")
    for attempt in range(8):
        after_s = rng.uniform(0.02, 0.35)
        with subprocess.Popen(
            [PROGRAM, *rng.choice((["savepoint", "verify", uri], ["list"], ["state", "scan", "CK"]))],
            cwd=place,
            env=environment(place / "home"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            try:
                running.communicate(timeout=after_s)
            except subprocess.TimeoutExpired:
                running.send_signal(number)
            _, said = running.communicate(timeout=DEADLINE_S)
        context = f"seed {SEED!r}, attempt {attempt}, {after_s:.3f} s: {said}"
        # While Python itself starts, its own words are all that can be said.
        if "holdfast/__main__.py" in said or "Traceback" not in said:
            assert running.returncode in {0, 130, -number}, context
            assert "Traceback" not in said, context
        check_place(place, checkpoint)


def drawn() -> list[tuple[str, int]]:
    """Two signals for each of the long ones, so that all three come as often as each other."""
    pairs = ((0, 1), (1, 2), (2, 0))
    return [
        (line, SIGNALS[place])
        for number, line in enumerate(sorted(LONG))
        for place in pairs[number % len(pairs)]
    ]


@pytest.mark.spark
@pytest.mark.parametrize(("line", "number"), drawn())
def test_what_runs_long_leaves_no_process(line: str, number: int, place: Path) -> None:
    rng = random.Random(f"{SEED} {line} {number}")
    after_s = rng.uniform(0.3, LONG[line])
    mark, checkpoint = uuid.uuid4().hex, below(place / "CK")
    context = f"seed {SEED!r}: {signal.Signals(number).name} after {after_s:.3f} s"
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words_of(line, place, f"made-{next(NUMBERS)}")],
        cwd=place,
        env=around(place, mark),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            running.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            # A terminal tells the whole group; who ends a service, its process alone.
            (os.killpg if number == signal.SIGINT else os.kill)(running.pid, number)
        try:
            _, said = running.communicate(timeout=DEADLINE_S)
        finally:
            running.kill()
    assert "Traceback" not in said, (context, said)
    assert "internal error" not in said, (context, said)
    assert running.returncode in {0, 1, *ENDINGS[number]}, (context, running.returncode, said)
    wait_for(mark, lambda left: not left)
    check_place(place, checkpoint)
