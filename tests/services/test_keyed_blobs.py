"""Blobs of keyed state in a real Redis or Cassandra: what batches name is there, and what none names goes."""

from __future__ import annotations

import itertools
import os
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from blob_databases import KEYSPACE, PRODUCTS, CassandraKeeper, Keeper, keeper_of
from blob_histories import LEAST, append, check_calls, check_history, contents, fold
from cassandra_server import CassandraServer
from redis_server import RedisServer
from tcp_proxy import CountingProxy

from holdfast.errors import Corrupt, Invalid, Unavailable
from holdfast.worker.state.blob_store import (
    BlobDatabase,
    BlobName,
    BlobReader,
    Blobs,
    BlobStore,
    BlobTask,
    BlobWrites,
    database_at,
    is_name,
)
from holdfast.worker.state.cassandra_blobs import CassandraBlobs, CassandraRequests
from holdfast.worker.state.redis_blobs import RedisBlobServer, RedisRequests
from holdfast.worker.state.store import MemoryStore

pytestmark = pytest.mark.services

_numbers = itertools.count()


@pytest.fixture(params=PRODUCTS)
def keeper(request: pytest.FixtureRequest) -> Keeper:
    """A shared server."""
    return keeper_of(request, request.param)


@pytest.fixture
def prefix() -> str:
    """What no other test's keys begin with."""
    return f"blobs{next(_numbers)}"


@pytest.fixture
def database(keeper: Keeper) -> Iterator[BlobDatabase]:
    """A connection to it."""
    database = keeper.database()
    yield database
    keeper.close(database)


class Tasks:
    """Tasks over one connection, with keys of the test's own."""

    def __init__(self, keeper: Keeper, database: BlobDatabase, prefix: str) -> None:
        self.keeper = keeper
        self.database = database
        self.server = keeper.place(prefix=prefix)
        self.home = f"{prefix}:keyed:query:visits"

    def __call__(self, store: MemoryStore, batch: int, token: str, **more: Any) -> BlobStore:
        facts = replace(BlobTask("visits", "query", batch, token, 3), **more)
        return BlobStore(store, Blobs(self.server, LEAST), facts, self.database)

    def reader(self, store: MemoryStore) -> BlobReader:
        return BlobReader(store, "visits", self.database)

    def blobs(self) -> list[str]:
        return self.keeper.keys(self.server.prefix)


@pytest.fixture
def task(keeper: Keeper, database: BlobDatabase, prefix: str) -> Tasks:
    """Makes a task's store."""
    return Tasks(keeper, database, prefix)


def test_any_history_of_tasks_leaves_every_retained_version_whole(task: Tasks) -> None:
    check_history(
        task.database, task.server, task.blobs, rounds=500 if task.keeper.product == "Redis" else 100
    )
    own = [key for key in task.blobs() if key.startswith(f"{task.home}:0:")]
    assert task.keeper.notes(task.home, 0) == len(own)


def test_any_calls_are_answered_as_the_model_does(task: Tasks) -> None:
    check_calls(task.database, rounds=100)


def test_a_late_task_does_not_make_a_blob_look_long_replaced(task: Tasks) -> None:
    """A worker that was frozen in batch 2 goes on when batch 20 has replaced the blob."""
    store, blob = MemoryStore(), b"b" * LEAST
    task(store, 1, "a").write([fold(0, store, blob)])
    early, before = store.snapshot(), store.snapshot()
    task(store, 20, "b").write([fold(0, store, b"c" * LEAST)])
    task(early, 2, "late").write([fold(0, early, b"d" * LEAST)])
    task(store, 21, "c").write([fold(0, store, b"e" * LEAST)])
    assert contents(task(before, 20, "again").load(0)) == (blob,)


def test_a_blob_that_a_late_task_writes_behind_the_cleaning_is_deleted_by_the_next(task: Tasks) -> None:
    store = MemoryStore()
    task(store, 1, "a").write([fold(0, store, b"a" * LEAST)])
    late = store.snapshot()
    for batch in (30, 60):
        task(store, batch, "b").write([fold(0, store, b"b" * LEAST)])
    task(late, 2, "late").write([fold(0, late, b"l" * LEAST)])
    assert f"{task.home}:0:2-late-0" in task.blobs()
    task(store, 61, "c").write([fold(0, store, b"c" * LEAST)])
    assert sorted(task.blobs()) == [f"{task.home}:0:{name}" for name in ("30-b-0", "60-b-0", "61-c-0")]
    assert task.keeper.notes(task.home, 0) == 3


def test_small_blobs_stay_and_both_kinds_are_read_at_any_time(task: Tasks) -> None:
    """A query moves to the database and back, while each group has blobs of both kinds."""
    store, small, large = MemoryStore(), b"s" * (LEAST - 1), b"l" * LEAST
    store.write([fold(0, store, large)])
    task(store, 1, "a").write([append(0, store, large), append(1, store, small)])
    assert [is_name(blob) for blob in contents(store.load(0))] == [False, True]
    assert contents(task(store, 2, "b").load(0)) == (large, large)
    assert contents(store.load(1)) == (small,)
    back = BlobStore(store, Blobs(task.server, None), BlobTask("visits", "query", 3, "c"), task.database)
    back.write([fold(0, store, large + large)])
    assert contents(BlobReader(store, "visits").load(0)) == (large + large,)


def test_a_query_deletes_nothing_that_another_one_has_written(task: Tasks) -> None:
    """The checkpoint of a query was copied for another: both have the first one's blobs."""
    store = MemoryStore()
    task(store, 1, "a").write([append(0, store, bytes(LEAST))])
    fork = store.snapshot()
    for batch in range(2, 60):
        task(fork, batch, str(batch), query_id="fork").write([fold(0, fork, bytes(LEAST))])
    assert contents(task.reader(store).load(0)) == (bytes(LEAST),)
    assert len(task.blobs()) < 30


def test_a_lost_and_a_damaged_blob_are_named(task: Tasks) -> None:
    store, product = MemoryStore(), task.keeper.product
    task(store, 7, "abc").write([append(2, store, bytes(100)), append(1, store, bytes(100))])
    damaged, lost = (f"{task.home}:{group}:7-abc-{n}" for n, group in enumerate((2, 1)))
    task.keeper.lose(lost)
    task.keeper.damage(damaged)
    with pytest.raises(Corrupt, match=f"is missing in {product}") as gone:
        task.reader(store).load(1)
    assert gone.value.where == f"operator visits, key group 1, key {lost}"
    with pytest.raises(Corrupt, match=f"is damaged in {product}") as other:
        task.reader(store).load(2)
    assert other.value.where == f"operator visits, key group 2, key {damaged}"


# Cassandra's client takes seconds to see that a connection has ended in the middle of an answer.
_CUTS = [
    *(("redis", passed) for passed in (0, 150, 40_000, 300_000)),
    *(("cassandra", passed) for passed in (0, 300_000)),
]


@pytest.mark.parametrize(("keeper", "passed"), _CUTS, indirect=["keeper"])
def test_a_connection_that_breaks_anywhere_is_made_anew(keeper: Keeper, passed: int) -> None:
    blobs = [bytes([n]) * 50_000 for n in range(8)]
    with CountingProxy(keeper.port) as proxy:
        server, store = keeper.place(proxy.port), MemoryStore()
        pauses = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            proxy.allow(None)
            time.sleep(seconds)

        database = keeper.database(server, pause=pause)
        written = BlobStore(store, Blobs(server, LEAST), BlobTask("visits", "cut", passed, "a"), database)
        proxy.allow(passed)
        written.write([fold(0, store, *blobs)])
        assert pauses
        proxy.allow(passed)
        assert contents(written.load(0)) == tuple(blobs)
        keeper.close(database)


def test_a_process_that_was_forked_has_a_connection_of_its_own(keeper: Keeper) -> None:
    """A worker that shared a connection would take answers that are another's."""
    server, name = keeper.place(prefix="forked"), BlobName.of("forked:keyed:q:o:0:1-a-0", b"blob")
    database = database_at(server)
    database.write("forked:keyed:q:o", BlobWrites(1, 0, {0: ["1-a-0"]}, {name.key: b"blob"}))
    child = os.fork()
    if not child:
        code = 1
        try:
            own = database_at(server)
            code = 0 if own is not database and list(own.fetch([name])) == [b"blob"] else 2
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert database_at(server) is database
    assert list(database.fetch([name])) == [b"blob"]
    keeper.close(database)


def test_what_asking_again_does_not_change_is_said_at_once(own_redis: RedisServer) -> None:
    place = RedisBlobServer("127.0.0.1", own_redis.port)

    def failing(**more: Any) -> RedisRequests:
        return RedisRequests(replace(place, **more), pause=lambda _: pytest.fail("it asks again"))

    own_redis.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(Invalid, match="delete state when its memory is full"):
        failing().ask([("PING",)])
    own_redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    own_redis.ask("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(Unavailable, match="Redis is out of memory"):
        failing().ask([("MSET", "key", bytes(100))])
    own_redis.ask("CONFIG", "SET", "maxmemory", "0")
    own_redis.ask("CONFIG", "SET", "requirepass", "right")
    for password in (None, "wrong"):
        with pytest.raises(Invalid, match="rejected the user or the password") as refused:
            failing(password=password).ask([("PING",)])
        assert "wrong" not in str(refused.value)
    assert failing(password="right").ask([("PING",)]) == [True]
    assert "right" not in repr(replace(place, password="right"))


def test_one_that_is_gone_is_asked_for_as_long_as_it_may_be(own_redis: RedisServer) -> None:
    place = RedisBlobServer("127.0.0.1", own_redis.port, patience_ms=20_000)
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 5 and own_redis.process.poll() is not None:
            own_redis.start()

    patient = RedisRequests(place, clock=lambda: now[0], pause=pause)
    own_redis.kill()
    assert patient.ask([("PING",)]) == [True]
    own_redis.kill()
    short = replace(place, patience_ms=2_000)
    with pytest.raises(Unavailable, match="Redis does not answer"):
        RedisRequests(short, clock=lambda: now[0], pause=lambda s: now.__setitem__(0, now[0] + s)).ask(
            [("PING",)]
        )
    own_redis.start()


def noted(batch: int, *names: str) -> BlobWrites:
    return BlobWrites(batch, 0, {0: list(names)})


def test_what_cassandra_refuses_is_said_at_once(cassandra_server: CassandraServer) -> None:
    keeper = CassandraKeeper(cassandra_server)

    def failing(**more: Any) -> CassandraBlobs:
        place = keeper.place(**more)
        return CassandraBlobs(CassandraRequests(place, pause=lambda _: pytest.fail("it asks again")))

    with pytest.raises(Invalid, match="keyspace not_there does not exist") as refused:
        failing(keyspace="not_there", replication=None).write("x:keyed:q:o", noted(1, "1-a-0"))
    assert "'datacenter1': 3}" in str(refused.value.hint)
    first = failing(keyspace="ends")
    first.write("x:keyed:q:o", noted(1, "1-a-0"))
    cassandra_server.ask("ALTER TABLE ends.keyed_index WITH default_time_to_live = 60")
    with pytest.raises(Invalid, match="would delete state") as refused:
        failing(keyspace="ends").write("x:keyed:q:o", noted(1, "1-a-0"))
    assert "ALTER TABLE ends.keyed_index WITH default_time_to_live = 0" in str(refused.value.hint)
    cassandra_server.ask("DROP TABLE ends.keyed_index")
    with pytest.raises(Invalid, match="rejected a statement"):
        first.write("x:keyed:q:o", noted(1, "1-a-0"))
    first.requests.close()


def test_only_who_knows_the_password_and_the_certificate_comes_into_cassandra(
    closed_cassandra: CassandraServer,
) -> None:
    keeper = CassandraKeeper(closed_cassandra)
    right = keeper.place(
        user="cassandra", password="cassandra", tls=True, authorities=str(closed_cassandra.certificate)
    )
    database = CassandraBlobs(CassandraRequests(right))
    name = BlobName.of("x:keyed:q:o:0:1-a-0", b"blob")
    database.write("x:keyed:q:o", BlobWrites(1, 0, {0: ["1-a-0"]}, {name.key: b"blob"}))
    assert list(database.fetch([name])) == [b"blob"]
    database.requests.close()
    for password in (None, "sesame"):
        connection = CassandraRequests(
            replace(right, password=password), pause=lambda _: pytest.fail("it asks again")
        )
        with pytest.raises(Invalid, match="rejected the user or the password") as refused:
            CassandraBlobs(connection).fetch([name])
        assert "sesame" not in str(refused.value)
    assert "sesame" not in repr(replace(right, password="sesame"))
    with pytest.raises(Invalid, match="cannot be read"):
        CassandraBlobs(CassandraRequests(replace(right, authorities="/none.pem"))).fetch([name])
    stranger = replace(right, authorities=None, patience_ms=0)
    with pytest.raises(Unavailable, match="Cassandra does not answer") as silent:
        CassandraBlobs(CassandraRequests(stranger)).fetch([name])
    assert "certificate verify failed" in str(silent.value)


def test_cassandra_may_be_killed_and_frozen(own_cassandra: CassandraServer) -> None:
    keeper = CassandraKeeper(own_cassandra)
    asked_again = []

    def pause(seconds: float) -> None:
        asked_again.append(seconds)
        own_cassandra.thaw()
        if own_cassandra.process.poll() is not None:
            own_cassandra.start()
        time.sleep(seconds)

    name = BlobName.of("killed:keyed:q:o:0:1-a-0", bytes(600_000))
    place = keeper.place(patience_ms=1_000)
    database = keeper.database(place, pause=pause, clock=lambda: 0.0)
    database.write("killed:keyed:q:o", BlobWrites(1, 0, {0: ["1-a-0"]}, {name.key: bytes(600_000)}))
    own_cassandra.kill()
    assert list(database.fetch([name])) == [bytes(600_000)]
    assert asked_again
    asked_again.clear()
    own_cassandra.freeze()
    assert list(database.fetch([name])) == [bytes(600_000)]
    assert asked_again
    keeper.close(database)
    own_cassandra.freeze()
    with pytest.raises(Unavailable, match="Cassandra does not answer"):
        keeper.database(keeper.place(patience_ms=0)).fetch([name])
    own_cassandra.thaw()


def test_cleaning_in_cassandra_leaves_few_tombstones_to_read(cassandra_server: CassandraServer) -> None:
    """A read that meets too many of them is refused, and they stay for a day."""
    keeper = CassandraKeeper(cassandra_server)
    database, store = keeper.database(), MemoryStore()
    tasks = Tasks(keeper, database, "tombstones")
    for batch in range(1, 300):
        tasks(store, batch, "a").write([fold(0, store, bytes(LEAST))])
    (row,) = [
        row
        for row in cassandra_server.ask("SELECT * FROM system_views.tombstones_per_read")
        if (row.keyspace_name, row.table_name) == (KEYSPACE, "keyed_index")
    ]
    assert row.max < 20
    keeper.close(database)
