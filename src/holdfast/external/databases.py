"""The databases with state, opened by address if the user has named the address."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.config.database_stores import Cassandra, Redis
from holdfast.config.spark_defaults import CASSANDRA_PROVIDER, REDIS_PROVIDER
from holdfast.errors import Invalid
from holdfast.external import cassandra_address, redis_connection
from holdfast.external.cassandra_address import CassandraAddress
from holdfast.external.cassandra_store import CassandraDatabase
from holdfast.external.named_addresses import addresses_in, named_databases
from holdfast.external.redis_connection import RedisAddress
from holdfast.external.redis_store import RedisDatabase
from holdfast.external.store_port import ExternalStore, StateDatabase

_Parse = Callable[[str, Mapping[str, str]], RedisAddress | CassandraAddress]


@dataclass(frozen=True, slots=True)
class _Product:
    """A type of database.

    Attributes:
        name: The name in error messages.
        variable: The environment variable with its addresses.
        parse: Parses an address; an address in the environment variable may replace it.
        database: Returns the database at an address, without connecting.
    """

    name: str
    variable: str
    parse: _Parse
    database: Callable[[str], StateDatabase]


_REDIS: Final = _Product(
    "Redis",
    redis_connection.ADDRESS,
    redis_connection.redis_address,
    lambda address: RedisDatabase(redis_connection.redis_address(address)),
)
_CASSANDRA: Final = _Product(
    "Cassandra",
    cassandra_address.ADDRESS,
    cassandra_address.cassandra_address,
    lambda address: CassandraDatabase(cassandra_address.cassandra_address(address)),
)
_BY_SCHEME: Final[Mapping[str, _Product]] = {"cassandra": _CASSANDRA, "redis": _REDIS, "rediss": _REDIS}
_BY_PROVIDER: Final[Mapping[str, _Product]] = {CASSANDRA_PROVIDER: _CASSANDRA, REDIS_PROVIDER: _REDIS}


def database_at(address: str) -> StateDatabase:
    """Return the database at an address that the user has named, without connecting to it.

    Raises:
        Invalid: The address is malformed.
        Unsupported: The client library of the database is not installed.
    """
    return _product_at(address).database(address)


def require_named(address: str, where: str, environ: Mapping[str, str] | None = None) -> None:
    """Raise an error for an address that was read from a file, unless the user has named it.

    Args:
        address: The address.
        where: The file from which the address was read.
        environ: The environment; by default that of this process.

    Raises:
        Invalid: The user has not named the address, or the address is malformed.
    """
    product = _product_at(address)
    wanted = product.parse(address, {})
    listed = addresses_in(os.environ if environ is None else environ, product.variable)
    if len(listed) == 1:
        return  # this address is used instead of the one in the file
    named = [one for one in named_databases() if _BY_SCHEME.get(one.partition("://")[0]) is product]
    for one in (*listed, *named):
        if wanted.endpoints <= product.parse(address, {product.variable: one}).endpoints:
            return
    shown = str(wanted)
    raise Invalid(
        f"refused to connect to a {product.name} server with an address that is set only in a file",
        code="HF-E2200",
        where=where,
        found=shown,
        expected=f"an address in {product.variable}, in --database, or in the backend of a job",
        hint=f"if you trust this server, set {product.variable}={shlex.quote(' '.join((*listed, shown)))}",
    )


def address_of(provider: str, database: str) -> str:
    """Return an address in the form used by checkpoints.

    Args:
        provider: The state store provider class for this type of database.
        database: The address as given by the user.

    Raises:
        Invalid: The address is malformed for this type of database.
    """
    return str(_BY_PROVIDER[provider].parse(database, {}))


def address_of_backend(backend: Redis | Cassandra) -> str:
    """Return the address of a job's backend."""
    if isinstance(backend, Redis):
        return f"{'rediss' if backend.tls else 'redis'}://{backend.address}/{backend.database}"
    return f"cassandra://{backend.contact_points}/{backend.keyspace}"


def _product_at(address: str) -> _Product:
    scheme, separator, _ = address.partition("://")
    if not separator or scheme not in _BY_SCHEME:
        raise Invalid(
            "invalid database address",
            code="HF-E2201",
            found="an address with a user or password" if "@" in address else address or "none",
            expected="redis://HOST:PORT/N, rediss:// for TLS, or cassandra://HOST:PORT/KEYSPACE",
            hint="pass an address such as redis://localhost:6379/0 with --database",
        )
    return _BY_SCHEME[scheme]


class Databases:
    """The stores of several databases, with one client per database."""

    def __init__(self) -> None:
        self._databases: dict[str, StateDatabase] = {}

    def store(self, database: str, name: str, where: str) -> ExternalStore:
        """Return a store, without connecting to its database.

        Args:
            database: The address of the database, as read from a file.
            name: The name of the store.
            where: The file with the address.

        Raises:
            Invalid: The address is malformed, or the user has not named it.
            Unsupported: The client library of the database is not installed.
        """
        if database not in self._databases:
            require_named(database, where)
            self._databases[database] = database_at(database)
        return self._databases[database].store(name)
