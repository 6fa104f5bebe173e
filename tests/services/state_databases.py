"""Databases that keep state, as tests of what is the same for each of them see them."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import pytest
from cassandra_server import CassandraServer
from redis_server import RedisServer

import holdfast as hf
from holdfast import shared
from holdfast.changes.reshaping import BackendName
from holdfast.external.databases import database_at
from holdfast.external.store_port import ExternalStore

KINDS: Final = ("redis", "cassandra")
_numbers = itertools.count()


class StateDatabase(ABC):
    """A database on a server.

    Attributes:
        kind: What `--backend` calls it.
        title: What people call it.
        address: As `--database` takes it.
        server: The server.
    """

    kind: BackendName
    title: str
    address: str
    server: RedisServer | CassandraServer

    @property
    @abstractmethod
    def conf(self) -> dict[str, str]:
        """The settings of a query that keeps its state there."""

    @property
    @abstractmethod
    def shared(self) -> Callable[..., shared.SharedState]:
        """What opens shared state in databases of this kind."""

    @property
    @abstractmethod
    def short_address(self) -> str:
        """The address as short as that takes it."""

    @abstractmethod
    def describe(self, name: str) -> None:
        """Say of a store how its rows lie, as a query does when it begins with it."""

    @abstractmethod
    def listed(self, query_id: str) -> set[str]:
        """The stores that are listed for a query."""

    @abstractmethod
    def heads(self, query_id: str) -> set[str]:
        """The stores of a query that are there."""

    @abstractmethod
    def delete_part(self, name: str) -> None:
        """Delete a part of a store, as something else may do."""

    @abstractmethod
    def delete_all(self) -> None:
        """Delete all of the database."""

    @abstractmethod
    def forget_versions(self, name: str) -> None:
        """Have a store keep other versions than it has."""

    @abstractmethod
    def forget_batch(self, query_id: str) -> None:
        """Delete what is noted of a query's newest batch."""

    @abstractmethod
    def note_batch(self, query_id: str, batch: int, run: str) -> None:
        """Note a batch of a query as committed last."""

    def store(self, name: str) -> ExternalStore:
        """One of its stores."""
        return database_at(self.address).store(name)


class RedisState(StateDatabase):
    """A database of a Redis."""

    kind, title = "redis", "Redis"

    def __init__(self, server: RedisServer, number: int = 0) -> None:
        self.server: RedisServer = server
        self._number = number
        self.address = f"redis://{server.address}/{number}"

    @property
    def conf(self) -> dict[str, str]:
        return hf.Redis(self.server.address, database=self._number).spark_conf()

    @property
    def shared(self) -> Callable[..., shared.SharedState]:
        return shared.redis

    @property
    def short_address(self) -> str:
        return self.server.address

    def describe(self, name: str) -> None:
        self._ask("HSET", name, "encoder", "plain", "layout", "1")

    def listed(self, query_id: str) -> set[str]:
        return set(self._ask("SMEMBERS", f"holdfast:stores:{query_id}").split())

    def heads(self, query_id: str) -> set[str]:
        return set(self._ask("KEYS", f"holdfast:{{{query_id}/*}}").split())

    def delete_part(self, name: str) -> None:
        parts = [key for key in self._ask("KEYS", "*:d:*").split() if key.startswith(name)]
        self._ask("DEL", parts[0])

    def delete_all(self) -> None:
        self._ask("FLUSHDB")

    def forget_versions(self, name: str) -> None:
        self._ask("HDEL", f"{name}:v", *self._ask("HKEYS", f"{name}:v").split())

    def forget_batch(self, query_id: str) -> None:
        self._ask("DEL", f"holdfast:query:{query_id}")

    def note_batch(self, query_id: str, batch: int, run: str) -> None:
        self._ask("HSET", f"holdfast:query:{query_id}", "batch", str(batch), "run", run)

    def _ask(self, *words: str) -> str:
        return self.server.ask("-n", str(self._number), *words)


class CassandraState(StateDatabase):
    """A keyspace of a Cassandra, which is made."""

    kind, title = "cassandra", "Cassandra"

    def __init__(self, server: CassandraServer, keyspace: str = "holdfast") -> None:
        self.server: CassandraServer = server
        self._keyspace = keyspace
        self.address = f"cassandra://{server.address}/{keyspace}"
        copies = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
        server.ask(f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {copies}")

    @property
    def conf(self) -> dict[str, str]:
        return hf.Cassandra(self.server.address, keyspace=self._keyspace).spark_conf()

    @property
    def shared(self) -> Callable[..., shared.SharedState]:
        return shared.cassandra

    @property
    def short_address(self) -> str:
        return f"{self.server.address}/{self._keyspace}"

    def describe(self, name: str) -> None:
        query = f"{name.partition(':{')[0]}:stores:{name.partition('{')[2].partition('/')[0]}"
        self._ask(
            "INSERT INTO {}.state_stores (query, store, facts)"
            f" VALUES ('{query}', '{name}', {{'encoder': 'plain', 'layout': '1'}})"
        )

    def listed(self, query_id: str) -> set[str]:
        rows = self._ask(f"SELECT store FROM {{}}.state_stores WHERE query = 'holdfast:stores:{query_id}'")
        return {row.store for row in rows}

    def heads(self, query_id: str) -> set[str]:
        names = {row.store for row in self._ask("SELECT store FROM {}.state_head")}
        return {name for name in names if name.startswith(f"holdfast:{{{query_id}/")}

    def delete_part(self, name: str) -> None:
        self._ask(f"DELETE FROM {{}}.state_rows WHERE store = '{name}' AND bucket = 7")

    def delete_all(self) -> None:
        self._ask("DROP KEYSPACE {}")

    def forget_versions(self, name: str) -> None:
        self._ask(
            "UPDATE {}.state_head SET versions = {99: 1}, fields = {99: 0}"
            f" WHERE store = '{name}' IF EXISTS"
        )

    def forget_batch(self, query_id: str) -> None:
        self._ask(f"DELETE batch_id, run FROM {{}}.state_queries WHERE query = 'holdfast:query:{query_id}'")

    def note_batch(self, query_id: str, batch: int, run: str) -> None:
        self._ask(
            f"UPDATE {{}}.state_queries SET batch_id = {batch}, run = '{run}'"
            f" WHERE query = 'holdfast:query:{query_id}'"
        )

    def _ask(self, cql: str) -> list[Any]:
        return self.server.ask(cql.replace("{}", self._keyspace))


def _database(request: pytest.FixtureRequest, *, own: bool) -> StateDatabase:
    server = request.getfixturevalue(f"own_{request.param}" if own else f"{request.param}_server")
    if request.param == "redis":
        return RedisState(server, 3 if own else 0)
    return CassandraState(server, f"own_{next(_numbers)}" if own else "holdfast")


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest) -> StateDatabase:
    """A database, for tests that do nothing to its server."""
    return _database(request, own=False)


@pytest.fixture(params=KINDS)
def own_database(request: pytest.FixtureRequest) -> StateDatabase:
    """A database of a test's own, whose server it may freeze or kill if it leaves it running."""
    return _database(request, own=True)
