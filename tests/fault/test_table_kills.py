"""SIGKILL of the driver between its rows and their record, and of the database: the table is exact."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from ledger_processes import stages, waits_for_lock
from required import require
from running_job import JOBS, BatchLogs, running, until
from small_day import BATCHES, TOTALS, Row, SmallDay

from holdfast.stream.sinks.ledger import ledger
from holdfast_bench.tables.mariadb import MariaDB

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.fault]

SEED = 20261127


def rows(address: str, statement: str) -> Counter[Row]:
    with closing(ledger(address).database.connect("looking on")) as connection:
        return Counter(connection.execute(statement).fetchall())


def queries(checkpoint: Path) -> list[str]:
    metadata = checkpoint / "metadata"
    return [json.loads(metadata.read_text())["id"]] if metadata.exists() else []


@contextmanager
def record_held_up(address: str, query_id: str, batch_id: int) -> Iterator[Callable[[], bool]]:
    """Let nobody record a batch: its record is there, and not committed; gives whether somebody waits."""
    database = ledger(address).database
    looking_on = database.connect("looking on")
    with closing(database.connect("holding up")) as connection, closing(looking_on):
        database.begin(connection)
        database.run(
            connection,
            """INSERT INTO holdfast_batches (sink, query_id, batch_id, token, committed_ms)
               VALUES (?, ?, ?, 0, 0)""",
            ("totals", query_id, batch_id),
        )

        yield lambda: waits_for_lock(looking_on, "INTO holdfast_batches")


@pytest.mark.parametrize("database", ["postgres", "mysql"])
def test_a_driver_that_dies_between_the_rows_and_their_record_has_written_nothing(
    database: str, tmp_path: Path, ledger_address: Callable[[str], str]
) -> None:
    address = ledger_address(database)
    day = SmallDay.make(SEED)
    day.write(tmp_path / "day")
    checkpoint = tmp_path / "checkpoint"
    logs = BatchLogs(checkpoint)
    with running(JOBS / "running_totals.py:running_totals", tmp_path, settings={"ledger": address}) as job:
        until(lambda: bool(queries(checkpoint)), "the query has an id")
        until(lambda: ledger(address).holder("totals") is not None, "the sink is claimed")
        held = max(4, logs.newest + 2)  # the job may be ahead already
        with record_held_up(address, queries(checkpoint)[0], held) as waits:
            # An insert of an earlier batch may wait for a moment too, for a lock on the gap between two rows.
            until(lambda: logs.newest == held and waits(), f"batch {held} is to be recorded")
            assert rows(address, TOTALS) == day.totals(held)
            os.killpg(job.driver(), signal.SIGKILL)
        ended = job.ended()
    assert ended.code == 0, ended.words
    assert rows(address, TOTALS) == day.totals()
    book = ledger(address)
    assert [record.batch_id for record in book.history("totals")] == list(range(BATCHES))
    with closing(book.database.connect("looking on")) as connection:
        assert stages(connection, book.database) == []


def test_a_database_that_is_killed_is_waited_for(tmp_path: Path) -> None:
    require("mariadb")
    day = SmallDay.make(SEED + 1)
    day.write(tmp_path / "day")
    with MariaDB.running() as server:
        address = server.database()
        with running(
            JOBS / "running_totals.py:running_totals", tmp_path, settings={"ledger": address}
        ) as job:
            job.await_event("batch", 3)
            server.kill()
            restarting = job.await_event("restarting")
            server.start()
            ended = job.ended()
        assert ended.code == 0, ended.words
        assert "MySQL server is unreachable" in json.dumps(restarting)
        assert rows(address, TOTALS) == day.totals()
