"""State in a database, and a driver, a server and their connection that end in the middle of a batch."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from cassandra_server import CassandraServer
from process_table import working_in
from redis_server import RedisServer
from running_job import JOBS, BatchLogs, commit_held_up, running, transaction_open, until
from small_day import BATCHES, TOTALS, SmallDay, found_in_ledger
from state_clients import state_jars
from tcp_proxy import CountingProxy

import holdfast as hf
from holdfast.stream.sinks.ledger import ledger

pytestmark = [pytest.mark.fault, pytest.mark.spark, pytest.mark.services]

SEED = 20260911
# Less than what a batch has to say to the server.
SOME_BYTES = (300, 2500)


@pytest.mark.parametrize("kind", ["redis", "cassandra"])
def test_kills_in_the_middle_of_a_commit_lose_nothing_and_count_nothing_twice(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The connection is cut at some byte of a task's words with the server, and there the driver is killed.

    Once the server is killed with it. The last kill comes when the state is committed and the batch is not.
    """
    server: RedisServer | CassandraServer = request.getfixturevalue(f"own_{kind}")
    rng = random.Random(SEED)
    day = SmallDay.make(SEED)
    day.write(tmp_path / "day")
    (tmp_path / "out").mkdir()
    database = tmp_path / "out" / "totals.db"
    logs = BatchLogs(tmp_path / "checkpoint")

    def begun(batch: int) -> Callable[[], bool]:
        return lambda: logs.newest >= batch and logs.uncommitted

    with CountingProxy(server.port) as proxy, ExitStack() as held:
        address = f"127.0.0.1:{proxy.port}"
        backend = hf.Redis(address) if kind == "redis" else hf.Cassandra(address, replication=1)
        conf = {**backend.spark_conf(), **state_jars()}
        job = held.enter_context(running(JOBS / "running_totals.py:running_totals", tmp_path, conf=conf))
        for attempt, batch in ((1, 1), (2, 3)):
            driver = job.driver(attempt)
            until(begun(batch), f"batch {batch} begins")
            proxy.allow(rng.randrange(*SOME_BYTES))
            until(lambda: proxy.cut, "the connection is cut")
            if attempt == 2:
                server.kill()
                server.start()
            os.killpg(driver, signal.SIGKILL)
            proxy.allow(None)
        driver = job.driver(3)
        until(begun(6), "batch 6 begins")
        with commit_held_up(database):
            until(lambda: transaction_open(database), "a transaction that has written")
            os.killpg(driver, signal.SIGKILL)
        ended = job.ended()
    assert (ended.code, ended.words) == (0, "")
    assert ended.kinds.count("starting") == 4
    assert logs.offsets == logs.commits
    assert found_in_ledger(database, TOTALS) == day.totals()
    assert [each.batch_id for each in ledger(database).history("totals")] == list(range(BATCHES))
    assert working_in(tmp_path) == []
