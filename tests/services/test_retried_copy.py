"""Tasks that die while they bring rows to a real database: their second run counts, and counts once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import answer_of

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
    connection = ledger(address).database.connect("looking on")
    try:
        there = [row[0] for row in connection.execute("SELECT id FROM numbers ORDER BY id").fetchall()]
        left = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'holdfast_stage_%'"
            f" AND table_schema = {ledger(address).database.own_schema}"
        ).fetchall()
    finally:
        connection.close()
    assert there == list(range(ROWS))
    assert list(left) == []
