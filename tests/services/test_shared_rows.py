"""Rows of keyed state in Redis and Cassandra, one per key, read by other programs while the query runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from cassandra_server import cassandra_ring
from redis_server import RedisServer
from redis_topologies import redis_cluster, redis_sentinel

import holdfast as hf
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Conflict, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.stream.keyed.blobs_in_database import server_of
from holdfast.worker.row_writer import RowTable, row_table

ship_by_value(sys.modules[__name__])

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

ROOT = Path(__file__).parents[2]
OUTPUT = "customer string, visits long, last timestamp"
Database = hf.Redis | hf.Cassandra


class Visits(hf.Keyed):
    """Counts the visits of a customer, until the customer leaves."""

    visits = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[Any]:
        state.visits += 1
        if event.leaves:
            state.clear()
        yield {"customer": event.customer, "visits": 0 if event.leaves else state.visits, "last": event.ts}


@pytest.fixture(params=["redis", "cassandra"])
def database(request: pytest.FixtureRequest) -> Database:
    server = request.getfixturevalue(f"{request.param}_server")
    if request.param == "redis":
        return hf.Redis(server.address, prefix=f"t{time.monotonic_ns()}")
    return hf.Cassandra(server.address, replication=1, prefix=f"t{time.monotonic_ns()}")


def reader(database: Database, name: str = "visits") -> hf.shared.SharedRows:
    if isinstance(database, hf.Redis):
        return hf.shared.redis_rows(database.address, name, prefix=database.prefix)
    return hf.shared.cassandra_rows(database.contact_points, name, prefix=database.prefix)


def table(database: Database, name: str = "visits") -> RowTable:
    return row_table(server_of(database, "test"), name)


def write(folder: Path, number: int, *customers: str, leaves: bool = False) -> None:
    """A file of a stream; each is a batch."""
    folder.mkdir(exist_ok=True)
    rows = [{"customer": each, "leaves": leaves, "ts": "2026-03-05T08:00:00Z"} for each in customers]
    file = folder / f"{number:03d}.json"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    os.utime(file, (1_772_697_600 + number,) * 2)  # Spark reads files in the order of their times


def visits(spark: SparkSession, folder: Path) -> DataFrame:
    folder.mkdir(exist_ok=True)
    schema = "customer string, leaves boolean, ts timestamp"
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))
    return hf.keyed(stream, by="customer").process(Visits(), output=OUTPUT, name="visits")


def run(frame: DataFrame, database: Database, folder: Path, name: str = "visits") -> None:
    sink = hf.sink(frame, name=name).share(database, keys=["customer"], delete_when="visits = 0")
    query = sink.start(checkpoint=str(folder / "checkpoint"), trigger=hf.available_now())
    query.awaitTermination()


def uncommit(folder: Path) -> None:
    """Leave the newest batch as a driver does that dies before it notes the batch."""
    newest = max((folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)


def counts(rows: hf.shared.SharedRows, *customers: str) -> list[tuple[int, int] | None]:
    """The visits and the batch of each customer."""
    found = rows.rows_of_keys([{"customer": customer} for customer in customers])
    return [None if row is None else (row.value["visits"], row.batch_id) for row in found]


def test_other_programs_read_the_value_of_a_key_after_each_batch_and_after_a_repeat(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    frame = visits(spark, tmp_path / "in")
    write(tmp_path / "in", 0, "ann", "bob", "ann", 'a "b" \u0007 é {x}')
    run(frame, database, tmp_path)
    rows = reader(database)
    assert (rows.key_columns, rows.batch_id) == (("customer",), 0)
    assert counts(rows, "ann", "bob", 'a "b" \u0007 é {x}', "nobody") == [(2, 0), (1, 0), (1, 0), None]
    row = rows.get("ann")
    assert row is not None
    assert row.key == {"customer": "ann"}
    assert row.value["last"].startswith("2026-03-05T")
    write(tmp_path / "in", 1, "ann")
    write(tmp_path / "in", 2, "bob", leaves=True)
    run(frame, database, tmp_path)
    assert counts(rows, "ann", "bob") == [(3, 1), None]
    for _ in range(2):
        uncommit(tmp_path)
        run(frame, database, tmp_path)
        assert counts(rows, "ann", "bob") == [(3, 1), None]
    # A customer who comes again has a row again.
    write(tmp_path / "in", 3, "bob")
    run(frame, database, tmp_path)
    assert counts(rows, "ann", "bob") == [(3, 1), (1, 3)]
    assert rows.batch_id == 3


def test_no_older_batch_or_start_replaces_a_row(database: Database) -> None:
    written = table(database)
    assert [written.claim('["customer"]') for _ in range(3)] == [1, 2, 3]
    rows = reader(database)

    def text(visits: int) -> str:
        return json.dumps({"customer": "ann", "visits": visits})

    def left(start: int, batch: int, visits: int | None) -> tuple[int, int] | None:
        written.write({'["ann"]': None if visits is None else text(visits)}, start, batch)
        return counts(rows, "ann")[0]

    assert left(2, 7, 70) == (70, 7)
    assert left(2, 6, 60) == (70, 7)
    assert left(1, 9, 90) == (70, 7)
    assert left(2, 7, 70) == (70, 7)
    # A later start repeats from an older batch, as after a restore.
    assert left(3, 5, 50) == (50, 5)
    assert left(2, 8, 80) == (50, 5)
    # Nor does one bring back a row that was deleted.
    assert left(3, 6, None) is None
    assert left(3, 5, 50) is None
    assert left(2, 9, 90) is None
    assert left(3, 7, 1) == (1, 7)
    # What an older start has finished is not noted.
    written.finish(3, 7, "q")
    written.finish(2, 9, "q")
    assert rows.batch_id == 7


def test_a_start_that_a_later_one_has_replaced_writes_no_more(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    frame = visits(spark, tmp_path / "in")
    write(tmp_path / "in", 0, "ann")
    sink = hf.sink(frame, name="visits").share(database, keys=["customer"])
    query = sink.start(checkpoint=str(tmp_path / "checkpoint"))
    try:
        query.processAllAvailable()
        table(database).claim('["customer"]')
        write(tmp_path / "in", 1, "ann")
        with pytest.raises(Exception, match="a later start has taken over the shared rows"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert isinstance(sink.error, Conflict)
    assert counts(reader(database), "ann") == [(1, 0)]


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import test_shared_rows as tests
from pathlib import Path
import holdfast as hf
spark = hf.session("visits", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
tests.run(tests.visits(spark, Path(sys.argv[2]) / "in"), hf.Redis(sys.argv[3]), Path(sys.argv[2]))
"""


def test_rows_are_exact_after_the_driver_is_killed_in_the_middle_of_its_batches(
    redis_server: RedisServer, own_redis: RedisServer, tmp_path: Path
) -> None:
    model: Counter[str] = Counter()
    for number in range(12):
        customers = [f"c{(number * step) % 17}" for step in range(1, 30)]
        model.update(customers)
        write(tmp_path / "in", number, *customers)
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "program.py", str(Path(__file__).parent), str(tmp_path), own_redis.address]
    database = hf.Redis(own_redis.address)
    for killed_at in (2, 6):
        driver = subprocess.Popen(words, cwd=tmp_path, start_new_session=True)
        while int(own_redis.ask("HGET", "holdfast:rows:visits", "batch").strip() or -1) < killed_at:
            assert driver.poll() is None
            time.sleep(0.01)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    subprocess.run(words, cwd=tmp_path, check=True)
    found = reader(database).rows_of_keys([{"customer": customer} for customer in model])
    assert {row.key["customer"]: row.value["visits"] for row in found if row is not None} == dict(model)
    assert reader(database).batch_id == 11


def test_any_client_of_redis_reads_the_documented_format(
    spark: SparkSession, own_redis: RedisServer, tmp_path: Path
) -> None:
    write(tmp_path / "in", 0, "ann")
    run(visits(spark, tmp_path / "in"), hf.Redis(own_redis.address), tmp_path)
    head = own_redis.ask("HMGET", "holdfast:rows:visits", "layout", "keys", "start", "batch").split()
    assert head == ["1", '["customer"]', "1", "0"]
    row, start, batch = own_redis.ask(
        "HMGET", 'holdfast:rows:visits:["ann"]', "row", "start", "batch"
    ).splitlines()
    assert (json.loads(row)["visits"], start, batch) == (1, "1", "0")


def test_rows_are_spread_over_a_redis_cluster(spark: SparkSession, tmp_path: Path) -> None:
    with redis_cluster(tmp_path / "redis") as nodes:
        customers = [f"c{number}" for number in range(60)]
        write(tmp_path / "in", 0, *customers)
        database = hf.Redis(nodes[0].address)
        run(visits(spark, tmp_path / "in"), database, tmp_path)
        # A reader may know another node than the query.
        rows = reader(hf.Redis(nodes[2].address))
        assert counts(rows, *customers) == [(1, 0)] * 60
        sizes = [int(node.ask("DBSIZE")) for node in nodes]
        assert sum(sizes) == 61
        assert min(sizes) > 5
        with pytest.raises(Invalid, match="Redis Cluster has only database 0"):
            hf.shared.redis_rows(f"redis://{nodes[0].address}/1", "visits")


def test_rows_follow_the_primary_of_a_sentinel(spark: SparkSession, tmp_path: Path) -> None:
    with redis_sentinel(tmp_path) as watched:
        database = hf.Redis(watched.address)
        frame = visits(spark, tmp_path / "in")
        write(tmp_path / "in", 0, "ann")
        run(frame, database, tmp_path)
        rows = reader(database)
        assert counts(rows, "ann") == [(1, 0)]
        watched.primary.ask("WAIT", "1", "10000")
        watched.primary.kill()
        watched.await_failover()
        write(tmp_path / "in", 1, "ann")
        run(frame, database, tmp_path)
        assert counts(rows, "ann") == [(2, 1)]
        assert '"visits":2' in watched.replica.ask("HGET", 'holdfast:rows:visits:["ann"]', "row")


def test_rows_in_cassandra_outlive_one_node_of_three(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With three copies, two nodes are a majority; with one node left, the error says what to do."""
    with cassandra_ring(tmp_path / "ring") as nodes:
        points = ",".join(node.address for node in nodes)
        monkeypatch.setenv("HOLDFAST_CASSANDRA_ADDRESS", points)
        database = hf.Cassandra(points, replication=3, patience="30s")
        frame = visits(spark, tmp_path / "in")
        write(tmp_path / "in", 0, "ann", "bob")
        run(frame, database, tmp_path)
        rows = reader(database)
        assert counts(rows, "ann", "bob") == [(1, 0), (1, 0)]
        nodes[2].kill()
        write(tmp_path / "in", 1, "ann")
        run(frame, database, tmp_path)
        assert counts(rows, "ann", "bob") == [(2, 1), (1, 0)]
        nodes[1].kill()
        with pytest.raises(Unavailable, match="Cassandra does not answer") as caught:
            rows.get("ann")
        assert "a majority of the replicas" in str(caught.value.hint)


REFUSED: list[tuple[str, Callable[[Any], object], str]] = [
    ("no name", lambda frame: hf.sink(frame).share(hf.Redis(), ["customer"]), "shared rows need a name"),
    (
        "bad name",
        lambda frame: hf.sink(frame, name="a b").share(hf.Redis(), ["customer"]),
        "invalid name for shared rows",
    ),
    (
        "unknown key",
        lambda frame: hf.sink(frame, name="v").share(hf.Redis(), ["who"]),
        "invalid key columns for shared rows",
    ),
    (
        "key type",
        lambda frame: hf.sink(frame, name="v").share(hf.Redis(), ["last"]),
        "key column 'last' of shared rows has an unsupported type",
    ),
    (
        "database",
        lambda frame: hf.sink(frame, name="v").share(cast("Any", hf.TiKV()), ["customer"]),
        "unsupported database for keyed state",
    ),
    (
        "mode",
        lambda frame: hf.sink(frame, name="v", mode="complete").share(hf.Redis(), ["customer"]),
        "does not support output mode 'complete'",
    ),
]


@pytest.mark.parametrize(
    ("call", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_cannot_be_shared_is_refused_before_the_start(
    spark: SparkSession, tmp_path: Path, call: Callable[[Any], object], message: str
) -> None:
    write(tmp_path / "in", 0, "ann")
    with pytest.raises(HoldfastError, match=message) as caught:
        call(visits(spark, tmp_path / "in"))
    assert caught.value.hint


def test_readers_of_unknown_rows_and_wrong_keys_are_told_what_to_do(database: Database) -> None:
    if isinstance(database, hf.Cassandra):
        table(database, "any").claim('["customer"]')  # creates the tables
    with pytest.raises(NotFound, match="no query has shared rows under this name"):
        reader(database, "nothing")
    table(database).claim('["customer"]')
    with pytest.raises(Invalid, match="other key columns"):
        table(database).claim('["customer","day"]')
    rows = reader(database)
    for values, columns in (((), {}), (("a", "b"), {}), ((), {"day": 1})):
        with pytest.raises(Invalid, match="do not match the key of the shared rows"):
            rows.get(*values, **columns)
