"""Which database an address is of: the one place that knows all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.config.spark_defaults import CASSANDRA_PROVIDER, REDIS_PROVIDER
from holdfast.errors import Invalid
from holdfast.external.cassandra_place import cassandra_place
from holdfast.external.cassandra_store import CassandraDatabase
from holdfast.external.redis_place import redis_place
from holdfast.external.redis_store import RedisDatabase
from holdfast.external.store_port import Database, ExternalStore

_BY_SCHEME: Final[Mapping[str, Callable[[str], Database]]] = {
    "cassandra": lambda address: CassandraDatabase(cassandra_place(address)),
    "redis": lambda address: RedisDatabase(redis_place(address)),
    "rediss": lambda address: RedisDatabase(redis_place(address)),
}
_SHOWN: Final[Mapping[str, Callable[[str], str]]] = {
    CASSANDRA_PROVIDER: lambda address: str(cassandra_place(address, {})),
    REDIS_PROVIDER: lambda address: str(redis_place(address, {})),
}


def database_at(address: str) -> Database:
    """The database of an address as a checkpoint has it; nothing is asked yet.

    Raises:
        Invalid: It is none.
        Unsupported: The library of the database is not installed.
    """
    scheme, found, _ = address.partition("://")
    if not found or scheme not in _BY_SCHEME:
        raise Invalid(
            "this is no address of a database",
            found="one with a user or password in it" if "@" in address else address or "none",
            expected="redis://HOST:PORT/N, rediss:// for TLS, or cassandra://HOST:PORT/KEYSPACE",
            hint="name the database with --database",
        )
    return _BY_SCHEME[scheme](address)


def address_of(provider: str, database: str) -> str:
    """An address as a checkpoint has it.

    Args:
        provider: The class that keeps state in databases of this kind.
        database: What a person has given.

    Raises:
        Invalid: It is none of such a database.
    """
    return _SHOWN[provider](database)


class Databases:
    """The stores of databases, with one client for each database."""

    def __init__(self) -> None:
        self._databases: dict[str, Database] = {}

    def store(self, database: str, name: str) -> ExternalStore:
        """A store, by the address that a checkpoint has of its database; nothing is asked yet.

        Raises:
            Invalid: The address is none.
            Unsupported: The library of the database is not installed.
        """
        if database not in self._databases:
            self._databases[database] = database_at(database)
        return self._databases[database].store(name)
