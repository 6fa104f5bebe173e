"""State of a running query for services without Spark: `holdfast.shared`.

from holdfast import shared

counts = shared.redis("redis.example:6379", "95478…")
counts.get(customer="c1").value["count"]
"""

from __future__ import annotations

from holdfast.external.redis_place import redis_place
from holdfast.external.shared_state import SharedRow, SharedState

__all__ = ["SharedRow", "SharedState", "redis"]


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
        NotFound: There is no such state.
        Invalid: It is no address; or the query has several operators; or Redis does not let us in.
        Unsupported: The package `redis` is not installed; or the state is of another release.
        Unavailable: Redis does not answer.
    """
    place = redis_place(address)
    return SharedState(place, place.connect(), query_id, operator_id=operator_id, store=store, prefix=prefix)
