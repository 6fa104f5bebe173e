"""Jobs that fail, are in each other's way, or are asked to end: what a person sees, and what stays."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from command import Holdfast
from process_table import working_in
from running_job import JOBS, BatchLogs, RunningJob, commit_held_up, running, transaction_open, until
from small_day import BATCHES, Row, SmallDay, found_in_ledger, order_one_more

from holdfast.stream.sinks.ledger import ledger

pytestmark = [pytest.mark.fault, pytest.mark.spark]

COPIES = JOBS / "copied_orders.py"
FAILING = JOBS / "failing.py"
ROWS = "SELECT id, account, amount FROM copies"


@pytest.fixture
def day(tmp_path: Path) -> Iterator[SmallDay]:
    """A day in the test's folder; at the end nobody works there any more."""
    made = SmallDay.make(5)
    made.write(tmp_path / "day")
    (tmp_path / "out").mkdir()
    yield made
    until(lambda: working_in(tmp_path) == [], "every process of the test has ended", seconds=10)


def status(holdfast: Holdfast, job: str) -> dict[str, Any]:
    answer = holdfast("status", job, "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def refused(answer: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Hold an answer against its exit code and the words that must be in its message."""
    assert answer.returncode == code, answer.stderr
    assert "error: " in answer.stderr
    assert "Traceback" not in answer.stderr
    for word in words:
        assert word in answer.stderr


def failures(holdfast: Holdfast, job: str) -> list[tuple[str, str]]:
    """Each attempt's ending and the line that says why."""
    return [
        (each["ending"], f"{each['failure']['error_class']}: {each['failure']['line']}")
        for each in status(holdfast, job)["attempts"]
    ]


def test_a_job_that_fails_at_start_is_given_up_with_the_users_own_words(
    holdfast: Holdfast, tmp_path: Path, day: SmallDay
) -> None:
    with running(f"{FAILING}:at-start", tmp_path) as job:
        ended = job.ended()
    assert ended.code == 1
    # Another start would fail the same way, so there is none.
    assert ended.kinds.count("starting") == 1
    assert "Traceback" not in ended.words
    assert "RuntimeError: the menu is empty" in ended.text
    assert "gave up: no query had started" in ended.text
    assert failures(holdfast, "at-start") == [("failed", "RuntimeError: the menu is empty")]
    assert status(holdfast, "at-start")["state"] == "FAILED"
    # The whole traceback, with the line of the file, is in the log that the status of the job leads to.
    log = Path(job.await_event("log")["log"]).read_text()
    assert 'failing.py", line' in log
    assert 'raise RuntimeError("the menu is empty")' in log
    assert not (tmp_path / "checkpoint").exists()


def test_a_job_file_that_needs_spark_while_it_is_loaded_is_told_why(
    holdfast: Holdfast, tmp_path: Path, day: SmallDay
) -> None:
    file = tmp_path / "early.py"
    file.write_text("from pyspark.sql.functions import udf\n\n@udf('long')\ndef one(x):\n    return 1\n")
    refused(holdfast("run", str(file)), 2, f"{file}:", "loaded before Spark starts", "LongType()")


def test_a_strict_job_is_refused_before_a_query_begins(
    holdfast: Holdfast, tmp_path: Path, day: SmallDay
) -> None:
    file = tmp_path / "strict.py"
    file.write_text(
        "import holdfast as hf\n\n\n"
        "@hf.job(name='strict', checkpoint='checkpoint', strict=True)\n"
        "def strict(spark):\n"
        "    rates = spark.readStream.format('rate').load().selectExpr('value as id', 'timestamp as ts')\n"
        "    timed = rates.withWatermark('ts', '10 minutes')\n"
        "    return hf.sink(timed.dropDuplicates(['id'])).parquet('once')\n"
    )
    said = holdfast("run", str(file))
    refused(said, 2, "the job is strict, and lint found 1 error", "line 8: HF104", "holdfast lint ", "--plan")
    assert said.stderr.count("is starting") == 1
    assert not (tmp_path / "checkpoint").exists()
    assert not (tmp_path / "once").exists()


def test_a_job_that_always_fails_in_one_batch_is_given_up(
    holdfast: Holdfast, tmp_path: Path, day: SmallDay
) -> None:
    with running(f"{FAILING}:in-batch", tmp_path) as job:
        ended = job.ended()
    why = ("failed", "ZeroDivisionError: integer division or modulo by zero")
    assert ended.code == 1
    assert "Traceback" not in ended.words
    assert why[1] in ended.text
    assert failures(holdfast, "in-batch") == [why, why]
    assert BatchLogs(tmp_path / "checkpoint").commits == {0, 1}


def test_a_mistake_in_a_udf_is_told_by_its_own_line(
    holdfast: Holdfast, tmp_path: Path, day: SmallDay
) -> None:
    with running(f"{FAILING}:in-udf", tmp_path) as job:
        ended = job.ended()
    why = ("failed", "ZeroDivisionError: integer division or modulo by zero")
    assert (ended.code, ended.kinds.count("starting")) == (1, 1)
    assert "Traceback" not in ended.words
    assert why[1] in ended.text
    assert failures(holdfast, "in-udf") == [why]
    kept = {each.id for file in day.orders[:2] for each in file}
    found = found_in_ledger(tmp_path / "out" / "shared.db", "SELECT id FROM shared")
    assert {name for (name,) in found} == kept


@contextmanager
def at_rest(tmp_path: Path) -> Iterator[RunningJob]:
    """A job that never ends and has read everything there is."""
    with running(COPIES, tmp_path, settings={"trigger": "50ms"}) as job:
        job.await_event("batch", BATCHES)
        yield job


@contextmanager
def held_in_a_batch(tmp_path: Path) -> Iterator[Row]:
    """Within the block the job is in the middle of a batch of one row."""
    database = tmp_path / "out" / "copies.db"
    with commit_held_up(database):
        row = order_one_more(tmp_path / "day")
        until(lambda: transaction_open(database), "a transaction that has written")
        yield row


def written(tmp_path: Path) -> list[int]:
    """The batches that the ledger knows."""
    return [each.batch_id for each in ledger(tmp_path / "out" / "copies.db").history("copies")]


def test_a_running_job_is_alone(holdfast: Holdfast, tmp_path: Path, day: SmallDay) -> None:
    others = ("run", str(COPIES), "--set", "name=others")
    held = (4, "in use by another job", "job 'copies'", str(tmp_path / "home"))
    with at_rest(tmp_path) as job:
        refused(holdfast("run", str(COPIES)), 4, "already running", "holdfast status copies")
        refused(holdfast(*others), *held)
        refused(holdfast(*others, "--home", "elsewhere"), *held)
        refused(holdfast("run", str(COPIES), "--home", "elsewhere"), *held)
        assert json.loads(holdfast("list", "--json", "--home", "elsewhere").stdout)["jobs"] == []
        assert [each["name"] for each in json.loads(holdfast("list", "--json").stdout)["jobs"]] == ["copies"]
        ck = str(tmp_path / "checkpoint")
        for verb in (
            ("rescale", ck, "--partitions", "3"),
            ("state", "migrate", ck, "--backend", "memory"),
            ("state", "erase", str(tmp_path), "1", "--checkpoint", ck, "--yes"),
        ):
            # Whatever is said, and whosever state home it is.
            refused(holdfast(*verb, "--confirm-stopped"), *held)
            refused(holdfast(*verb, "--dry-run"), *held)
        now = status(holdfast, "copies")
        assert (now["state"], now["supervised"], len(now["attempts"])) == ("RUNNING", True, 1)
        os.kill(job.pid, signal.SIGTERM)
        ended = job.ended()
    assert (ended.code, ended.words) == (0, "")
    assert found_in_ledger(tmp_path / "out" / "copies.db", ROWS) == day.copies()


def test_a_stopped_job_ends_its_batch_first(holdfast: Holdfast, tmp_path: Path, day: SmallDay) -> None:
    logs = BatchLogs(tmp_path / "checkpoint")
    with at_rest(tmp_path) as job:
        with held_in_a_batch(tmp_path) as row:
            refused(holdfast("stop", "copies", "--timeout", "0.1"), 5, "has not ended yet")
            job.await_event("stopping")
            assert (logs.newest, logs.uncommitted) == (BATCHES, True)
        ended = job.ended()
    assert (ended.code, ended.words) == (0, "")
    assert logs.offsets == logs.commits == set(range(BATCHES + 1))
    assert written(tmp_path) == list(range(BATCHES + 1))
    assert found_in_ledger(tmp_path / "out" / "copies.db", ROWS) == day.copies() + Counter([row])
    assert status(holdfast, "copies")["state"] == "FINISHED"
    for verb in ("stop", "cancel"):
        refused(holdfast(verb, "copies"), 4, "already ended")
        refused(holdfast(verb, "nobody"), 3, "no job 'nobody'")


def test_a_canceled_job_ends_within_its_batch_and_goes_on_with_the_next_run(
    holdfast: Holdfast, tmp_path: Path, day: SmallDay
) -> None:
    logs = BatchLogs(tmp_path / "checkpoint")
    with at_rest(tmp_path) as job:
        with held_in_a_batch(tmp_path) as row:
            answer = holdfast("cancel", "copies")
            assert (answer.returncode, answer.stdout) == (0, "copies: CANCELED\n")
            assert job.ended().code == 0
        assert (logs.newest, logs.uncommitted) == (BATCHES, True)
        assert written(tmp_path) == list(range(BATCHES))
    assert working_in(tmp_path) == []
    with running(COPIES, tmp_path) as job:
        assert job.ended().code == 0
    assert found_in_ledger(tmp_path / "out" / "copies.db", ROWS) == day.copies() + Counter([row])
    assert written(tmp_path) == list(range(BATCHES + 1))


def test_a_job_whose_sink_was_taken_over_ends_and_does_not_take_it_back(
    holdfast: Holdfast, tmp_path: Path, day: SmallDay
) -> None:
    database = tmp_path / "out" / "copies.db"
    with running(COPIES, tmp_path, settings={"trigger": "50ms"}) as job:
        job.await_event("batch", 2)
        token = ledger(database).claim("copies", "somebody else")
        with closing(sqlite3.connect(database)) as db:
            (taken,) = db.execute("SELECT count(*) FROM copies").fetchone()
        ended = job.ended()
    assert ended.code == 4
    assert "Traceback" not in ended.words
    assert "the sink 'copies' has a different owner" in ended.text
    assert "somebody else" in ended.text
    assert ended.kinds.count("starting") == 1
    assert sum(found_in_ledger(database, ROWS).values()) == taken
    fence = ledger(database).holder("copies")
    assert fence is not None
    assert (fence.token, fence.owner) == (token, "somebody else")
    assert status(holdfast, "copies")["state"] == "FAILED"
