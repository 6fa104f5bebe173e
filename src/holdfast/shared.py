"""Reading a running query's state from Redis or Cassandra, without Spark.

`redis` and `cassandra` open the state of a query whose backend is that database. Each result is from one
committed batch. `redis_rows` and `cassandra_rows` open the rows that a query shares by key with
`hf.sink(…).share(…)`, such as the values of keyed state.

Example:
    def count_visits(customer, query_id):
        visits = hf.shared.redis("redis.example:6379", query_id)
        row = visits.get(customer=customer)
        return 0 if row is None else row.value["count"]
"""

from __future__ import annotations

from holdfast.external.cassandra_address import cassandra_address
from holdfast.external.cassandra_store import CassandraReader
from holdfast.external.redis_connection import redis_address
from holdfast.external.redis_store import RedisReader
from holdfast.external.shared_rows import CassandraRowsReader, RedisRowsReader, SharedRows
from holdfast.external.shared_state import SharedRow, SharedState

__all__ = ["SharedRow", "SharedRows", "SharedState", "cassandra", "cassandra_rows", "redis", "redis_rows"]


def cassandra(
    address: str,
    query_id: str,
    *,
    operator_id: int | None = None,
    store: str = "default",
    prefix: str = "holdfast",
) -> SharedState:
    """Open the state of a query with `hf.Cassandra` for reading.

    The database session is closed when the last state that uses it is garbage-collected.

    Args:
        address: `HOST:PORT` of one or more nodes, separated by commas, or
            `cassandra://HOST:PORT,HOST:PORT/KEYSPACE`; the keyspace is `holdfast` by default. User, password
            and certificate authority are in HOLDFAST_CASSANDRA_USER, HOLDFAST_CASSANDRA_PASSWORD and
            HOLDFAST_CASSANDRA_CA.
        query_id: The query's id, shown by `holdfast checkpoint show` and by Spark as `query.id`.
        operator_id: The number of the operator; required if several have state.
        store: The store of the operator; a join has four.
        prefix: The prefix of all store names, as in `hf.Cassandra(prefix=…)`.

    Raises:
        NotFound: The state does not exist.
        Corrupt: The state has no tables.
        Invalid: The address is invalid, the query has several operators, or Cassandra denies access.
        Unsupported: The package `cassandra-driver` is not installed, or a different release wrote the state.
        Unavailable: Cassandra does not answer.

    Example:
        def count_visits(customer, query_id):
            visits = hf.shared.cassandra("cassandra://cassandra.example:9042/holdfast", query_id)
            row = visits.get(customer=customer)
            return 0 if row is None else row.value["count"]
    """
    reader = CassandraReader(cassandra_address(address), query_id, prefix)
    return SharedState(reader, operator_id=operator_id, store=store)


def redis(
    address: str,
    query_id: str,
    *,
    operator_id: int | None = None,
    store: str = "default",
    prefix: str = "holdfast",
) -> SharedState:
    """Open the state of a query with `hf.Redis` for reading.

    Args:
        address: `HOST:PORT`, or `redis://HOST:PORT/DATABASE`, or `rediss://…` for TLS. User and password are
            in HOLDFAST_REDIS_USER and HOLDFAST_REDIS_PASSWORD.
        query_id: The query's id, shown by `holdfast checkpoint show` and by Spark as `query.id`.
        operator_id: The number of the operator; required if several have state.
        store: The store of the operator; a join has four.
        prefix: The prefix of all keys in the database, as in `hf.Redis(prefix=…)`.

    Raises:
        NotFound: The state does not exist.
        Invalid: The address is invalid, the query has several operators, or Redis denies access.
        Unsupported: The package `redis` is not installed, or a different release wrote the state.
        Unavailable: Redis does not answer.

    Example:
        def count_visits(customer, query_id):
            visits = hf.shared.redis("redis://redis.example:6379/0", query_id)
            row = visits.get(customer=customer)
            return 0 if row is None else row.value["count"]
    """
    reader = RedisReader(redis_address(address), query_id, prefix)
    return SharedState(reader, operator_id=operator_id, store=store)


def redis_rows(address: str, name: str, *, prefix: str = "holdfast") -> SharedRows:
    """Open the rows that a query shares with `hf.sink(…, name=…).share(hf.Redis(…), …)`.

    Args:
        address: `HOST:PORT` of a server, of a node of a Redis Cluster, or of a Sentinel;
            `redis://HOST:PORT/DATABASE`, or `rediss://…` for TLS. User and password are in
            HOLDFAST_REDIS_USER and HOLDFAST_REDIS_PASSWORD.
        name: The name of the sink.
        prefix: The prefix of all keys in the database, as in `hf.Redis(prefix=…)`.

    Raises:
        NotFound: No query has shared rows under this name.
        Invalid: The address is invalid, or Redis denies access.
        Unsupported: The package `redis` is not installed, or a different release wrote the rows.
        Unavailable: Redis does not answer.

    Example:
        def count_visits(customer: str) -> int:
            row = hf.shared.redis_rows("redis://redis.example:6379/0", "visits").get(customer=customer)
            return 0 if row is None else row.value["visits"]
    """
    return SharedRows(RedisRowsReader(redis_address(address), name, prefix))


def cassandra_rows(address: str, name: str, *, prefix: str = "holdfast") -> SharedRows:
    """Open the rows that a query shares with `hf.sink(…, name=…).share(hf.Cassandra(…), …)`.

    Args:
        address: `HOST:PORT` of one or more nodes, separated by commas, or
            `cassandra://HOST:PORT,HOST:PORT/KEYSPACE`; the keyspace is `holdfast` by default. User, password
            and certificate authority are in HOLDFAST_CASSANDRA_USER, HOLDFAST_CASSANDRA_PASSWORD and
            HOLDFAST_CASSANDRA_CA.
        name: The name of the sink.
        prefix: The prefix of all names, as in `hf.Cassandra(prefix=…)`.

    Raises:
        NotFound: No query has shared rows under this name.
        Corrupt: The keyspace has no tables.
        Invalid: The address is invalid, or Cassandra denies access.
        Unsupported: The package `cassandra-driver` is not installed, or a different release wrote the rows.
        Unavailable: Cassandra does not answer.

    Example:
        def count_visits(customer: str) -> int:
            rows = hf.shared.cassandra_rows("cassandra://cassandra.example:9042/holdfast", "visits")
            row = rows.get(customer=customer)
            return 0 if row is None else row.value["visits"]
    """
    return SharedRows(CassandraRowsReader(cassandra_address(address), name, prefix))
