"""State of a running query for services without Spark: `holdfast.shared`.

from holdfast import shared

counts = shared.redis("redis.example:6379", "95478…")
counts.get(customer="c1").value["count"]

`shared.cassandra(…)` does the same where the state is in Cassandra.
"""

from __future__ import annotations

from holdfast.external.cassandra_address import cassandra_address
from holdfast.external.cassandra_store import CassandraReader
from holdfast.external.redis_connection import redis_address
from holdfast.external.redis_store import RedisReader
from holdfast.external.shared_state import SharedRow, SharedState

__all__ = ["SharedRow", "SharedState", "cassandra", "redis"]


def cassandra(
    address: str,
    query_id: str,
    *,
    operator_id: int | None = None,
    store: str = "default",
    prefix: str = "holdfast",
) -> SharedState:
    """Open the state that a query with `hf.Cassandra` keeps; nothing of it is written.

    The session with the database ends when nobody has this or another state of it any more.

    Args:
        address: `HOST:PORT` of one node or several, with commas between them, or
            `cassandra://HOST:PORT,HOST:PORT/KEYSPACE`; the keyspace is `holdfast` by default. User, password
            and certificate authority are in HOLDFAST_CASSANDRA_USER, HOLDFAST_CASSANDRA_PASSWORD and
            HOLDFAST_CASSANDRA_CA.
        query_id: The query's id, which `holdfast checkpoint show` tells, and Spark as `query.id`.
        operator_id: The operator's number, where the query has several with state.
        store: The operator's store; joins have four.
        prefix: What all names of stores begin with: `hf.Cassandra(prefix=…)`.

    Raises:
        NotFound: The state does not exist.
        Corrupt: There are no tables of state.
        Invalid: It is not an address; or the query has several operators; or Cassandra does not let us in.
        Unsupported: The package `cassandra-driver` is not installed; or the state is of another release.
        Unavailable: Cassandra does not answer.
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
    """Open the state that a query with `hf.Redis` keeps; nothing of it is written.

    Args:
        address: `HOST:PORT`, or `redis://HOST:PORT/DATABASE`, or `rediss://…` for TLS. User and password are
            in HOLDFAST_REDIS_USER and HOLDFAST_REDIS_PASSWORD.
        query_id: The query's id, which `holdfast checkpoint show` tells, and Spark as `query.id`.
        operator_id: The operator's number, where the query has several with state.
        store: The operator's store; joins have four.
        prefix: What all keys in the database begin with: `hf.Redis(prefix=…)`.

    Raises:
        NotFound: The state does not exist.
        Invalid: It is not an address; or the query has several operators; or Redis does not let us in.
        Unsupported: The package `redis` is not installed; or the state is of another release.
        Unavailable: Redis does not answer.
    """
    reader = RedisReader(redis_address(address), query_id, prefix)
    return SharedState(reader, operator_id=operator_id, store=store)
