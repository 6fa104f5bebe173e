"""The configuration of keyed state with its blobs in a database, checked and passed to the workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.database_stores import (
    CASSANDRA_PASSWORD_VARIABLE,
    REDIS_PASSWORD_VARIABLE,
    Cassandra,
    Redis,
)
from holdfast.config.spark_defaults import EXTERNAL_PROVIDERS, PROVIDER_KEY
from holdfast.config.units import Size, parse_duration, parse_size
from holdfast.errors import Invalid, Unsupported
from holdfast.external import cassandra_connection, redis_connection
from holdfast.external.databases import address_of_backend
from holdfast.external.named_addresses import name_database
from holdfast.formats.providers import DATABASES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.worker.state.blob_store import Blobs
    from holdfast.worker.state.cassandra_blobs import CassandraBlobServer
    from holdfast.worker.state.layout import Layout
    from holdfast.worker.state.redis_blobs import RedisBlobServer
    from holdfast.worker.state.store import MemoryStore

# Smaller blobs take no more space in Spark's store than their names would.
BLOBS_FROM: Final = "512b"


def blobs_of(database: Redis | Cassandra | None, least: Size | None, where: str) -> Blobs | None:
    """Return the workers' configuration of blobs in a database, or None without a database.

    Raises:
        Invalid: The type of database is not supported, or its client library does not support a setting.
        Unsupported: The client library of the database is not installed.
    """
    from holdfast.worker.state.blob_store import Blobs

    if database is None:
        return None
    server = server_of(database, f"{where}: blobs")
    return Blobs(server, None if least is None else parse_size(least, f"{where}: blobs_from"))


def server_of(database: Redis | Cassandra, where: str) -> RedisBlobServer | CassandraBlobServer:
    """Return the workers' address of a database, and record that the user has named it.

    Raises:
        Invalid: The type of database is not supported, or its client library does not support a setting.
        Unsupported: The client library of the database is not installed.
    """
    word = where.rpartition(" ")[2]
    if not isinstance(database, (Redis, Cassandra)):
        raise Invalid(
            "unsupported database for keyed state",
            code="HF-E2312",
            where=where,
            found=type(database).__name__,
            expected="hf.Redis(…) or hf.Cassandra(…)",
            hint=f'write {word}=hf.Redis("redis.example:6379") or'
            f' {word}=hf.Cassandra("cassandra.example:9042")',
        )
    name = type(database).__name__
    if database.trust_store_password is not None:
        raise Invalid(
            "keyed state does not support trust_store_password, because the Python client reads a PEM file",
            code="HF-E2313",
            where=where,
            hint=f'write hf.{name}(…, tls=True, trust_store="/etc/ssl/ca.pem") without a password',
        )
    server = _redis(database) if isinstance(database, Redis) else _cassandra(database)
    name_database(address_of_backend(database))
    return server


def _redis(redis: Redis) -> RedisBlobServer:
    from holdfast.worker.state.redis_blobs import RedisBlobServer

    redis_connection.client_library()
    address = redis_connection.redis_address(redis.address, {})
    return RedisBlobServer(
        address.host,
        address.port,
        redis.database,
        redis.user,
        redis.password or os.environ.get(REDIS_PASSWORD_VARIABLE),
        redis.tls,
        redis.trust_store,
        redis.prefix,
        parse_duration(redis.patience),
    )


def _cassandra(cassandra: Cassandra) -> CassandraBlobServer:
    from holdfast.worker.state.cassandra_blobs import CassandraBlobServer

    cassandra_connection.client_library()
    return CassandraBlobServer(
        cassandra.contact_points,
        cassandra.keyspace,
        cassandra.local_datacenter,
        cassandra.user,
        cassandra.password or os.environ.get(CASSANDRA_PASSWORD_VARIABLE),
        cassandra.tls,
        cassandra.trust_store,
        cassandra.consistency,
        cassandra.replication,
        cassandra.prefix,
        parse_duration(cassandra.patience),
    )


def refuse_external_provider(spark: SparkSession, where: str) -> None:
    """Raise an error for keyed state in a session whose state store provider does not support it.

    Raises:
        Unsupported: The state store provider of the session stores all state in a database.
    """
    provider = spark.conf.get(PROVIDER_KEY, None)
    if provider in EXTERNAL_PROVIDERS:
        names = [DATABASES[provider]] if provider in DATABASES else list(DATABASES.values())
        choices = " or ".join(f"blobs=hf.{name}(…)" for name in names)
        place = " or ".join(names)
        raise Unsupported(
            "keyed operators need RocksDB as Spark's state store",
            code="HF-E7110",
            where=where,
            found=f"{PROVIDER_KEY}={provider}",
            hint=f"set backend=hf.RocksDB(); to keep the rows in {place}, write process(…, {choices})",
        )


def with_blobs(store: MemoryStore, blobs: Blobs | None, operator: str) -> MemoryStore:
    """Return a copy of a store with its blobs in place of their names."""
    from holdfast.worker.state.blob_store import BlobReader, database_at
    from holdfast.worker.state.store import MemoryStore

    if blobs is None:
        return store
    reader, whole = BlobReader(store, operator, database_at(blobs.server)), MemoryStore()
    for group, meta in zip(store.groups, reader.metas(store.groups), strict=True):
        whole.put(group, b"" if meta is None else meta.encode(), reader.load(group))
    return whole


def groups_elsewhere(frame: DataFrame, checkpoint: str, layout: Layout, forms: Mapping[str, Any]) -> int:
    """Return the number of an operator's key groups with blobs in a database.

    This runs a few small Spark jobs over the query's state. Operators with the same tables are not
    distinguished.
    """
    from holdfast.engine.spark_state import stored_groups
    from holdfast.worker.state.blob_store import is_name

    count = 0
    for store in stored_groups(frame.sparkSession, checkpoint):
        for group, meta in zip(store.groups, store.metas(store.groups), strict=True):
            if meta is None or meta.form.hex() not in {*forms, layout.form.fingerprint.hex()}:
                continue
            stored = store.load(group)
            count += any(map(is_name, (*stored.base, *stored.log)))
    return count
