"""A table written in steps: each row comes once, over restarts and other numbers of instances."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from keyed_runs import START, read_stream, write_batch
from ledger_processes import LEDGERS

import holdfast as hf
from holdfast.stream.sinks.ledger import ledger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def rows_in(address: str) -> list[int]:
    connection = ledger(address).database.connect("looking on")
    try:
        return sorted(row[0] for row in connection.execute("SELECT n FROM events").fetchall())
    finally:
        connection.close()


@pytest.mark.parametrize("database", LEDGERS)
def test_rows_wait_for_a_step_and_come_once(
    spark: SparkSession, tmp_path: Path, ledger_address: Callable[[str], str], database: str
) -> None:
    address = ledger_address(database)
    written = 0

    def run(batches: list[list[int]], **buffer: Any) -> list[int]:
        nonlocal written
        for numbers in batches:
            write_batch(tmp_path / "in", written, [{"n": n, "ts": START} for n in numbers])
            written += 1
        events = read_stream(spark, tmp_path / "in", "n long, ts timestamp")
        made = hf.BufferedSink("events", address, **buffer).sink(events)
        made.start(checkpoint=str(tmp_path / "checkpoint"), trigger=hf.available_now()).awaitTermination()
        return rows_in(address)

    assert run([[1, 2], [3]], rows=4) == []
    assert run([[4], [5, 6]], rows=4) == [1, 2, 3, 4]
    assert run([[7]], rows=4, instances=3) == [1, 2, 3, 4]
    # Three instances have one row each: each is full with two more.
    assert run([[8, 9, 10]], rows=2, instances=3) == list(range(1, 11))
