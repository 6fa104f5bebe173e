"""The databases that may keep blobs of keyed state, for tests that go for each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cassandra_server import CassandraServer
from redis_server import RedisServer

import holdfast as hf
from holdfast.worker.state.blob_store import BlobDatabase
from holdfast.worker.state.cassandra_blobs import CassandraBlobs, CassandraBlobServer, CassandraRequests
from holdfast.worker.state.redis_blobs import RedisBlobs, RedisBlobServer, RedisRequests

KEYSPACE = "blobs"
PATIENCE_MS = 60_000


class RedisKeeper:
    """Blobs in a Redis."""

    product = "Redis"

    def __init__(self, server: RedisServer) -> None:
        self.service = server
        self.port = server.port

    def choice(self, port: int | None = None, **more: Any) -> hf.Redis:
        """As a job says where they are."""
        return hf.Redis(f"127.0.0.1:{port or self.port}", **more)

    def place(self, port: int | None = None, **more: Any) -> RedisBlobServer:
        """As workers know where they are."""
        return replace(RedisBlobServer("127.0.0.1", port or self.port, patience_ms=PATIENCE_MS), **more)

    def database(self, place: Any = None, **more: Any) -> BlobDatabase:
        """A connection of the test's own."""
        return RedisBlobs(RedisRequests(place or self.place(), **more))

    def close(self, database: BlobDatabase) -> None:
        """Its connections end by themselves."""

    def keys(self, prefix: str = "holdfast") -> list[str]:
        """All blobs that are there."""
        there = self.service.ask("KEYS", f"{prefix}:*").split()
        return [key for key in there if "-" in key.rpartition(":")[2]]

    def notes(self, home: str, group: int) -> int:
        """How many names an index has."""
        return int(self.service.ask("ZCARD", f"{home}:{group}"))

    def lose(self, key: str) -> None:
        """Take a blob away."""
        self.service.ask("DEL", key)

    def damage(self, key: str) -> None:
        """Change a byte of a blob."""
        self.service.ask("SETRANGE", key, "50", "x")

    def lose_all(self) -> None:
        """Take everything away."""
        self.service.ask("FLUSHALL")


class CassandraKeeper:
    """Blobs in a Cassandra."""

    product = "Cassandra"

    def __init__(self, server: CassandraServer) -> None:
        self.service = server
        self.port = server.port

    def choice(self, port: int | None = None, **more: Any) -> hf.Cassandra:
        """As a job says where they are."""
        return hf.Cassandra(f"127.0.0.1:{port or self.port}", keyspace=KEYSPACE, replication=1, **more)

    def place(self, port: int | None = None, **more: Any) -> CassandraBlobServer:
        """As workers know where they are."""
        place = CassandraBlobServer(
            f"127.0.0.1:{port or self.port}", KEYSPACE, replication=1, patience_ms=PATIENCE_MS
        )
        return replace(place, **more)

    def database(self, place: Any = None, **more: Any) -> BlobDatabase:
        """A connection of the test's own."""
        return CassandraBlobs(CassandraRequests(place or self.place(), **more))

    def close(self, database: BlobDatabase) -> None:
        """End its threads."""
        assert isinstance(database, CassandraBlobs)
        database.requests.close()

    def keys(self, prefix: str = "holdfast") -> list[str]:
        """All blobs that are there."""
        found = self.service.ask(f"SELECT DISTINCT key FROM {KEYSPACE}.keyed_blobs")
        return [row.key for row in found if row.key.startswith(f"{prefix}:")]

    def notes(self, home: str, group: int) -> int:
        """How many names an index has."""
        rows = self.service.ask(
            f"SELECT name FROM {KEYSPACE}.keyed_index WHERE home = '{home}' AND key_group = {group}"
        )
        return len({row.name for row in rows})

    def lose(self, key: str) -> None:
        """Take a blob away."""
        self.service.ask(f"DELETE FROM {KEYSPACE}.keyed_blobs WHERE key = '{key}'")

    def damage(self, key: str) -> None:
        """Change a byte of a blob."""
        (row,) = self.service.ask(f"SELECT bytes FROM {KEYSPACE}.keyed_blobs WHERE key = '{key}'")
        damaged = bytearray(row.bytes)
        damaged[50] ^= 1
        self.service.ask(
            f"UPDATE {KEYSPACE}.keyed_blobs SET bytes = 0x{damaged.hex()} WHERE key = '{key}' AND part = 0"
        )

    def lose_all(self) -> None:
        """Take everything away."""
        self.service.ask(f"TRUNCATE {KEYSPACE}.keyed_blobs")


Keeper = RedisKeeper | CassandraKeeper
PRODUCTS = ("redis", "cassandra")


def keeper_of(request: pytest.FixtureRequest, product: str, *, own: bool = False) -> Keeper:
    """The databases of a product: a server that is shared, or one that the test may kill."""
    server = request.getfixturevalue(f"own_{product}" if own else f"{product}_server")
    return RedisKeeper(server) if isinstance(server, RedisServer) else CassandraKeeper(server)
