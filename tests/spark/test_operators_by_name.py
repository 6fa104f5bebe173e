"""Keyed operators that swap places keep their state by name; a start that cannot move it is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from grid_runs import PROVIDERS

import holdfast as hf
from holdfast.changes.reordering import find_by_name
from holdfast.engine.session.workers import ship_by_value
from holdfast.model import Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship_by_value(sys.modules[__name__])


class Seen(hf.Keyed):
    """Counts events by twos or by ones, so that two operators have the same schema and different values."""

    seen = hf.value("long", default=0)

    def __init__(self, step: int, label: str) -> None:
        self.step = step
        self.label = label

    def on_event(self, event: Any, state: Any, ctx: Any) -> dict[str, Any]:
        state.seen += self.step
        return {"customer": event.customer, "ones": event.ones, "twos": event.twos, self.label: state.seen}


OUTPUT = "customer string, ones long, twos long"


class Case:
    """A stream of files with two keyed operators in either order, and the model of their results."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.place = folder / "checkpoint"
        self.files = 0
        self.sent: Counter[str] = Counter()

    def send(self, *customers: str) -> None:
        (self.folder / "in").mkdir(exist_ok=True)
        lines = "\n".join(json.dumps({"customer": customer}) for customer in customers)
        (self.folder / "in" / f"{self.files}.json").write_text(lines)
        self.files += 1
        self.sent.update(customers)

    def frame(self, *names: str) -> DataFrame:
        events = self.spark.readStream.schema("customer string").json(str(self.folder / "in"))
        frame = events.selectExpr("customer", "0L AS ones", "0L AS twos")
        for name in names:
            seen = Seen({"ones": 1, "twos": 2}[name], name)
            keyed = hf.keyed(frame, by="customer", key_groups=4)
            frame = keyed.process(seen, output=OUTPUT, name=name)
        return frame

    def sink(self, *names: str) -> hf.Sink:
        return hf.sink(self.frame(*names)).parquet(self.folder / "out")

    def start(self, *names: str) -> None:
        uri = self.place.as_uri()
        self.sink(*names).start(checkpoint=uri, trigger=hf.available_now()).awaitTermination()

    def last(self) -> dict[str, tuple[int, int]]:
        """The highest counts of each customer in the output."""
        rows = self.spark.read.parquet(str(self.folder / "out"))
        found = rows.groupBy("customer").agg({"ones": "max", "twos": "max"}).collect()
        return {row.customer: (row["max(ones)"], row["max(twos)"]) for row in found}

    def model(self) -> dict[str, tuple[int, int]]:
        return {who: (n, 2 * n) for who, n in self.sent.items()}

    def plain(self, frame: DataFrame) -> str | None:
        """Run a plain query to its end, and return the text of its failure."""
        query = frame.writeStream.format("noop").outputMode("append")
        query = query.option("checkpointLocation", str(self.place)).trigger(availableNow=True)
        try:
            query.start().awaitTermination()
        except Exception as error:  # Spark's own
            return str(error)
        return None

    def moved(self, *names: str) -> list[Any]:
        sinks, places = {"q": self.sink(*names)}, {"q": self.place.as_uri()}
        return [reordered for _, reordered in find_by_name(sinks, places)]


@pytest.fixture
def case(spark: SparkSession, tmp_path: Path) -> Case:
    return Case(spark, tmp_path)


@pytest.mark.parametrize("provider", ["rocksdb1", "rocksdb2"])
def test_operators_that_swap_places_keep_their_state_by_name(
    case: Case, settings: Callable[[dict[str, str]], None], provider: str
) -> None:
    settings(PROVIDERS[provider])
    case.send("ann", "ann", "bob")
    case.start("ones", "twos")
    assert case.moved("ones", "twos") == []
    (moved,) = case.moved("twos", "ones")
    # Spark counts operators from the sink.
    assert (moved.before, moved.after) == (("twos", "ones"), ("ones", "twos"))
    assert hf.checkpoints.verify(case.place).ok
    case.send("ann", "cy")
    case.start("twos", "ones")
    assert case.last() == case.model()
    assert hf.checkpoints.verify(moved.kept).ok
    # And back again, over a restart.
    assert len(case.moved("ones", "twos")) == 1
    case.send("bob")
    case.start("ones", "twos")
    assert case.last() == case.model()


def test_a_start_that_does_not_move_the_state_is_refused(case: Case) -> None:
    case.send("ann", "ann")
    case.start("ones", "twos")
    before = hf.checkpoints.read(case.place).batch_id
    with pytest.raises(hf.Invalid, match="keyed operators have changed places") as refused:
        case.start("twos", "ones")
    assert "state migrate" in (refused.value.hint or "")
    assert hf.checkpoints.read(case.place).batch_id == before


def test_a_plain_query_whose_operators_swap_places_fails_before_it_commits(case: Case) -> None:
    case.send("ann", "ann")
    assert case.plain(case.frame("ones", "twos")) is None
    before = hf.checkpoints.read(case.place).batch_id
    case.send("ann")
    text = case.plain(case.frame("twos", "ones"))
    assert text is not None
    assert "operator 'twos' got the state of operator 'ones'" in text or (
        "operator 'ones' got the state of operator 'twos'" in text
    )
    assert "state migrate" in text
    assert hf.checkpoints.read(case.place).batch_id == before
    # The former order continues, with the batch that failed.
    assert case.plain(case.frame("ones", "twos")) is None
    assert hf.checkpoints.read(case.place).batch_id == (before or 0) + 1


def test_state_migrate_finds_the_operators_of_a_plain_query_by_the_names_in_their_state(case: Case) -> None:
    case.send("ann", "ann", "bob")
    assert case.plain(case.frame("ones", "twos")) is None
    new = case.folder / "new"
    code = case.frame("twos", "ones").writeStream.outputMode("append")
    report = hf.check(code, against=case.place)
    assert {state.verdict for state in report.states} == {Verdict.INCOMPATIBLE}
    assert report.migration == ""
    hf.evolve(case.place, new, to=code, stopped=True)
    assert hf.checkpoints.verify(new).ok
    case.place = new
    case.send("ann")
    case.start("twos", "ones")
    assert case.last() == {"ann": case.model()["ann"]}


def test_check_says_that_a_job_keeps_the_state_of_operators_that_swap_places(case: Case) -> None:
    case.send("ann")
    case.start("ones", "twos")
    job = hf.job(name="swapped", checkpoint=str(case.place))(lambda spark: case.sink("twos", "ones"))
    report = hf.check(job, against=case.place, spark=case.spark)
    assert {(state.operator, state.verdict) for state in report.states} == {
        ("ones", Verdict.MIGRATE),
        ("twos", Verdict.MIGRATE),
    }
    assert report.verdict == "kept"


KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast.changes import reordering
from holdfast.changes.erase import checkpoint_swap
from holdfast.changes.reordering import move_by_name, noted_plan_of
from dataclasses import replace
from holdfast.storage import open_storage

place, stop = Path(sys.argv[1]), sys.argv[2]
before = noted_plan_of(open_storage(str(place)))
now = replace(before, operators=tuple(reversed(before.operators)))
calls = 0

def tell(done, total, what):
    global calls
    calls += 1
    if stop.isdigit() and calls == int(stop):
        os.kill(os.getpid(), signal.SIGKILL)

if stop == "exchanged":
    exchange = checkpoint_swap.exchange
    def killed(one, other):
        exchange(one, other)
        os.kill(os.getpid(), signal.SIGKILL)
    checkpoint_swap.exchange = killed
move_by_name(place, before, now, tell)
"""


@pytest.mark.parametrize("stop", ["1", "5", "exchanged"])
def test_a_kill_leaves_the_former_or_the_new_checkpoint(case: Case, stop: str) -> None:
    case.send("ann", "ann", "bob")
    case.start("ones", "twos")
    done = subprocess.run([sys.executable, "-c", KILLED, str(case.place), stop], check=False)
    assert done.returncode == -signal.SIGKILL
    assert hf.checkpoints.verify(case.place).ok
    # The next start finds the former order and moves the state, or finds it moved.
    assert len(case.moved("twos", "ones")) == (0 if stop == "exchanged" else 1)
    case.send("ann")
    case.start("twos", "ones")
    assert case.last() == case.model()
    if stop != "exchanged":  # the next change deletes the working directory of a killed one
        assert not list(case.folder.glob(".holdfast*reorder*"))


JOB = """
import holdfast as hf

class Seen(hf.Keyed):
    seen = hf.value("long", default=0)

    def __init__(self, step, label):
        self.step, self.label = step, label

    def on_event(self, event, state, ctx):
        state.seen += self.step
        counts = {{"ones": event.ones, "twos": event.twos, self.label: state.seen}}
        return {{"customer": event.customer, **counts}}

@hf.job(name="seen", checkpoint="{folder}/checkpoint", trigger=hf.available_now())
def seen(spark):
    events = spark.readStream.schema("customer string").json("{folder}/in")
    frame = events.selectExpr("customer", "0L AS ones", "0L AS twos")
    for name in {names}:
        keyed = hf.keyed(frame, by="customer", key_groups=4)
        seen = Seen({{"ones": 1, "twos": 2}}[name], name)
        frame = keyed.process(seen, output="customer string, ones long, twos long", name=name)
    return hf.sink(frame).parquet("{folder}/out")
"""


def test_holdfast_run_finds_swapped_operators_by_name(case: Case) -> None:
    home = case.folder / "home"
    for names, customers in ((("ones", "twos"), ["ann", "ann", "bob"]), (("twos", "ones"), ["ann"])):
        case.send(*customers)
        file = case.folder / "seen.py"
        file.write_text(JOB.format(folder=case.folder, names=names))
        command = [
            sys.executable,
            "-m",
            "holdfast",
            "run",
            str(file),
            "--home",
            str(home),
            "--master",
            "local[2]",
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "changed places from twos, ones to ones, twos" in done.stdout + done.stderr
    assert case.last() == case.model()
