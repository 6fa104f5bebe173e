"""A process that is killed between its write and its commit leaves nothing, and its successor writes once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ledger_processes import LEDGERS

from holdfast.stream.sinks.ledger import ledger

pytestmark = pytest.mark.fault


@pytest.fixture(params=LEDGERS)
def address(request: pytest.FixtureRequest, ledger_address: Callable[[str], str]) -> str:
    made = ledger_address(request.param)
    run(made, "CREATE TABLE result (token BIGINT)")
    return made


def run(address: str, statement: str) -> Any:
    connection = ledger(address).database.connect("looking on")
    try:
        cursor = connection.execute(statement)
        return list(cursor.fetchall()) if cursor.description else None
    finally:
        connection.close()


@pytest.mark.parametrize("stop_at", ["claimed", "unlocked", "written"])
def test_a_kill_leaves_nothing_and_the_batch_runs_again(
    address: str, start_worker: Callable[[str, str], Any], stop_at: str
) -> None:
    victim = start_worker(address, stop_at)
    assert [victim.line(), victim.line()] == ["token 1", stop_at]
    victim.kill()
    assert run(address, "SELECT token FROM result") == []
    assert ledger(address).history("shop") == []
    successor = start_worker(address, "none")
    assert [successor.line(), successor.line()] == ["token 2", "committed"]
    late = start_worker(address, "none")
    assert [late.line(), late.line()] == ["token 3", "skipped"]
    assert run(address, "SELECT token FROM result") == [(2,)]
    assert [(row.batch_id, row.token) for row in ledger(address).history("shop")] == [(0, 2)]
