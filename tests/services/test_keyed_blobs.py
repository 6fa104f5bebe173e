"""Blobs of keyed state in a real Redis: what batches name is there, and what none names goes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from redis_server import RedisServer
from tcp_proxy import CountingProxy

from holdfast.errors import Corrupt, Invalid, Unavailable
from holdfast.worker.state.external.blob_name import BlobName, is_name
from holdfast.worker.state.external.blob_server import BlobServer, Connection
from holdfast.worker.state.external.blob_store import MARGIN, BlobReader, Blobs, BlobStore, BlobTask
from holdfast.worker.state.store import MemoryStore, Meta, Stored, Write

pytestmark = pytest.mark.services

LEAST = 64
GROUPS = 3


@pytest.fixture
def server(redis_server: RedisServer) -> Iterator[BlobServer]:
    """The shared server, emptied."""
    redis_server.ask("FLUSHALL")
    yield place(redis_server.port)
    redis_server.ask("FLUSHALL")


def place(port: int, **more: object) -> BlobServer:
    return replace(BlobServer("127.0.0.1", port, patience_ms=20_000), **more)  # type: ignore[arg-type]


def task(store: MemoryStore, server: BlobServer, batch: int, token: str, **more: object) -> BlobStore:
    facts = replace(BlobTask("visits", "query", batch, token, 3), **more)  # type: ignore[arg-type]
    return BlobStore(store, Blobs(server, LEAST), facts, Connection(server))


def append(group: int, store: MemoryStore, blob: bytes) -> Write:
    (before,) = store.metas([group])
    return Write(group, Meta(GROUPS, b"token---", b"form----"), before, append=blob, forms=b"{}")


def fold(group: int, store: MemoryStore, *blobs: bytes) -> Write:
    (before,) = store.metas([group])
    return Write(group, Meta(GROUPS, b"token---", b"form----"), before, base=blobs)


def contents(stored: Stored) -> tuple[bytes, ...]:
    return (*stored.base, *stored.log)


def keys(redis: RedisServer) -> list[str]:
    """All blobs that are there."""
    return [key for key in redis.ask("KEYS", "*").split() if "-" in key.rpartition(":")[2]]


def test_any_history_of_tasks_leaves_every_retained_version_whole(
    server: BlobServer, redis_server: RedisServer
) -> None:
    """Tasks fail, are repeated or late, and batches are taken back; the model is a dictionary a version."""
    chance = random.Random(20261125)
    versions: dict[int, MemoryStore] = {0: MemoryStore()}
    models: dict[int, dict[int, list[bytes]]] = {0: {}}
    batch = most = attempts = 0
    connection = Connection(server)

    ever = [(0, versions[0], models[0])]

    def attempt(
        number: int, before: MemoryStore, held: dict[int, list[bytes]]
    ) -> tuple[MemoryStore, dict[int, list[bytes]]]:
        nonlocal attempts
        attempts += 1
        store = before.snapshot()
        model = {group: list(blobs) for group, blobs in held.items()}
        blobs = task(store, server, number, f"t{attempts}")
        writes = []
        for group in chance.sample(range(GROUPS), chance.randrange(GROUPS + 1)):
            new = [chance.randbytes(chance.choice([1, LEAST - 1, LEAST, 5 * LEAST])) for _ in range(2)]
            if chance.random() < 0.15:
                writes.append(fold(group, store, *new))
                model[group] = new
            else:
                writes.append(append(group, store, new[0]))
                model.setdefault(group, []).append(new[0])
        blobs.write(writes)
        return store, model

    for _ in range(500):
        chosen = chance.random()
        if chosen < 0.15:
            attempt(batch, versions[batch], models[batch])  # its executor is lost before it commits
        elif chosen < 0.4:
            attempt(*chance.choice(ever))  # a late one, maybe of batches that were taken back
        elif chosen < 0.45:
            batch = max(number for number in versions if number <= max(0, batch - chance.randrange(3)))
        else:
            versions[batch + 1], models[batch + 1] = attempt(batch, versions[batch], models[batch])
            batch += 1
            ever.append((batch, versions[batch], models[batch]))
            most = max(most, batch)
            versions = {number: kept for number, kept in versions.items() if most - 3 <= number <= batch}
        for number, store in versions.items():
            for group, blobs_of in models[number].items():
                assert contents(BlobReader(store, "visits", connection).load(group)) == tuple(blobs_of)
    assert most > 100
    for step in range(MARGIN + 8):
        store = versions[batch].snapshot()
        task(store, server, batch, f"end{step}").write(fold(g, store, bytes(LEAST)) for g in range(GROUPS))
        versions[batch + 1] = store
        batch += 1
    # What is left is what the last batches have replaced, one blob a group and batch, and nothing older.
    left = {int(key.rpartition(":")[2].split("-")[0]) for key in keys(redis_server)}
    assert min(left) >= batch - 3 - MARGIN - 3
    assert len(keys(redis_server)) <= GROUPS * (3 + MARGIN + 3)
    assert int(redis_server.ask("ZCARD", "holdfast:keyed:query:visits:0")) == len(
        [key for key in keys(redis_server) if key.startswith("holdfast:keyed:query:visits:0:")]
    )


def test_a_late_task_does_not_make_a_blob_look_long_replaced(server: BlobServer) -> None:
    """A worker that was frozen in batch 2 goes on when batch 20 has replaced the blob."""
    store, blob = MemoryStore(), b"b" * LEAST
    task(store, server, 1, "a").write([fold(0, store, blob)])
    early, before = store.snapshot(), store.snapshot()
    task(store, server, 20, "b").write([fold(0, store, b"c" * LEAST)])
    task(early, server, 2, "late").write([fold(0, early, b"d" * LEAST)])
    task(store, server, 21, "c").write([fold(0, store, b"e" * LEAST)])
    assert contents(task(before, server, 20, "again").load(0)) == (blob,)


def test_small_blobs_stay_and_both_kinds_are_read_at_any_time(server: BlobServer) -> None:
    """A query moves to Redis and back, while each group has blobs of both kinds."""
    store, small, large = MemoryStore(), b"s" * (LEAST - 1), b"l" * LEAST
    store.write([fold(0, store, large)])
    task(store, server, 1, "a").write([append(0, store, large), append(1, store, small)])
    assert [is_name(blob) for blob in contents(store.load(0))] == [False, True]
    assert contents(task(store, server, 2, "b").load(0)) == (large, large)
    assert contents(store.load(1)) == (small,)
    with pytest.raises(Invalid, match="the operator is not told where"):
        BlobReader(store, "visits").load(0)
    back = BlobStore(store, Blobs(server, None), BlobTask("visits", "query", 3, "c"), Connection(server))
    back.write([fold(0, store, large + large)])
    assert contents(BlobReader(store, "visits").load(0)) == (large + large,)


def test_a_query_deletes_nothing_that_another_one_has_written(
    server: BlobServer, redis_server: RedisServer
) -> None:
    """The checkpoint of a query was copied for another: both have the first one's blobs."""
    store = MemoryStore()
    task(store, server, 1, "a").write([append(0, store, bytes(LEAST))])
    fork = store.snapshot()
    for batch in range(2, 60):
        task(fork, server, batch, str(batch), query_id="fork").write([fold(0, fork, bytes(LEAST))])
    assert contents(BlobReader(store, "visits", Connection(server)).load(0)) == (bytes(LEAST),)
    assert len(keys(redis_server)) < 30


def test_a_lost_and_a_damaged_blob_are_named(server: BlobServer, redis_server: RedisServer) -> None:
    store = MemoryStore()
    task(store, server, 7, "abc").write([append(2, store, bytes(100)), append(1, store, bytes(100))])
    damaged, lost = (f"holdfast:keyed:query:visits:{group}:7-abc-{n}" for n, group in enumerate((2, 1)))
    redis_server.ask("DEL", lost)
    redis_server.ask("SETRANGE", damaged, "50", "x")
    reader = BlobReader(store, "visits", Connection(server))
    with pytest.raises(Corrupt, match="is gone from Redis") as gone:
        reader.load(1)
    assert gone.value.where == f"operator visits, key group 1, key {lost}"
    with pytest.raises(Corrupt, match="is damaged in Redis") as other:
        reader.load(2)
    assert other.value.where == f"operator visits, key group 2, key {damaged}"


def test_a_name_is_read_back_and_no_blob_is_one() -> None:
    name = BlobName.of("holdfast:keyed:ä:1", b"blob")
    assert BlobName.decode(name.encode()) == name
    assert is_name(name.encode())
    assert not is_name(b"blob" * 10)
    with pytest.raises(Corrupt):
        BlobName.decode(name.encode()[:20])


@pytest.mark.parametrize("passed", [0, 150, 40_000, 300_000])
def test_a_connection_that_breaks_anywhere_is_made_anew(redis_server: RedisServer, passed: int) -> None:
    blobs = [bytes([n]) * 50_000 for n in range(8)]
    with CountingProxy(redis_server.port) as proxy:
        server, store = place(proxy.port), MemoryStore()
        connection = Connection(server, pause=lambda _: proxy.allow(None))
        written = BlobStore(store, Blobs(server, LEAST), BlobTask("visits", "cut", passed, "a"), connection)
        proxy.allow(passed)
        written.write([fold(0, store, *blobs)])
        proxy.allow(passed)
        assert contents(written.load(0)) == tuple(blobs)


def test_what_asking_again_does_not_change_is_said_at_once(own_redis: RedisServer) -> None:
    def failing(**more: object) -> Connection:
        return Connection(place(own_redis.port, **more), pause=lambda _: pytest.fail("it asks again"))

    own_redis.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    with pytest.raises(Invalid, match="deletes keys when its memory is full"):
        failing().ask([("PING",)])
    own_redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    own_redis.ask("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(Unavailable, match="the memory of Redis is full"):
        failing().ask([("MSET", "key", bytes(100))])
    own_redis.ask("CONFIG", "SET", "maxmemory", "0")
    own_redis.ask("CONFIG", "SET", "requirepass", "right")
    for password in (None, "wrong"):
        with pytest.raises(Invalid, match="refuses the user or the password") as refused:
            failing(password=password).ask([("PING",)])
        assert "wrong" not in str(refused.value)
    assert failing(password="right").ask([("PING",)]) == [True]
    assert "right" not in repr(place(1, password="right"))


def test_one_that_is_gone_is_asked_for_as_long_as_it_may_be(own_redis: RedisServer) -> None:
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 5 and own_redis.process.poll() is not None:
            own_redis.start()

    patient = Connection(place(own_redis.port), clock=lambda: now[0], pause=pause)
    own_redis.kill()
    assert patient.ask([("PING",)]) == [True]
    own_redis.kill()
    short = place(own_redis.port, patience_ms=2_000)
    with pytest.raises(Unavailable, match="Redis does not answer"):
        Connection(short, clock=lambda: now[0], pause=lambda s: now.__setitem__(0, now[0] + s)).ask(
            [("PING",)]
        )
    own_redis.start()
