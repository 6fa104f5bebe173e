"""Tasks that die while they bring rows to a real database: their second run counts, and counts once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from command import answer_of
from ledger_processes import stages

from holdfast.stream.sinks.ledger import ledger

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.fault]

SCRIPT = Path(__file__).parent / "jobs" / "retried_copy.py"
ROWS = 1000


@pytest.mark.parametrize("database", ["postgres", "mysql"])
def test_a_task_that_died_is_tried_again_and_counts_once(
    database: str, home: Path, tmp_path: Path, ledger_address: Callable[[str], str]
) -> None:
    address = ledger_address(database)
    found = answer_of(SCRIPT, {"database": address, "folder": str(tmp_path), "rows": ROWS}, home)
    assert found == {"rows": ROWS, "deaths": 2}
    at = ledger(address).database
    with closing(at.connect("looking on")) as connection:
        there = [row[0] for row in connection.execute("SELECT id FROM numbers ORDER BY id").fetchall()]
        left = stages(connection, at)
    assert there == list(range(ROWS))
    assert left == []
