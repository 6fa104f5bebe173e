"""A query's state in Redis, for who reads it without the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.external.redis_place import RedisPlace
from holdfast.external.redis_scripts import READ
from holdfast.external.shared_state import Listing, SharedHead
from holdfast.external.store_port import by_bucket, index_of, note_of

if TYPE_CHECKING:
    from redis import Redis

_HEAD: Final = ("layout", "run", "reached", "retired")
_FACTS: Final = ("keySchema", "valueSchema", "encoder")


class RedisReader:
    """A query's state in Redis, as `QueryReader` has it.

    Args:
        place: The database.
        query_id: The query.
        prefix: What all keys in the database begin with.

    Raises:
        Unsupported: The library is not installed.
    """

    def __init__(self, place: RedisPlace, query_id: str, prefix: str) -> None:
        self._place = place
        self._client: Any = place.connect()
        self._index, self._query = index_of(prefix, query_id), note_of(prefix, query_id)
        self.place = str(place)
        self.query_id = query_id

    def listing(self) -> Listing:
        """See `QueryReader`."""
        with self._place.asked(self._index), self._client.pipeline(transaction=False) as pipeline:
            pipeline.smembers(self._index)
            pipeline.hget(self._query, "generation")
            names, generation = pipeline.execute()
        return Listing(tuple(name.decode() for name in names), (generation or b"").decode())

    def facts(self, store: str) -> Mapping[str, str]:
        """See `QueryReader`."""
        with self._place.asked(store):
            found = self._client.hmget(store, *_FACTS)
        return {fact: value.decode() for fact, value in zip(_FACTS, found, strict=True) if value is not None}

    def moment(self, stores: Sequence[str]) -> RedisMoment:
        """See `QueryReader`."""
        with self._place.asked(self._query), self._client.pipeline(transaction=False) as pipeline:
            pipeline.hmget(self._query, "batch", "run", "generation")
            pipeline.scard(self._index)
            for name in stores:
                pipeline.hmget(name, *_HEAD)
            (batch, run, generation), count, *heads = pipeline.execute()
        return RedisMoment(
            self._place,
            self._client,
            tuple(stores),
            count,
            (generation or b"").decode(),
            None if run is None or batch is None else (run.decode(), int(batch)),
            tuple(_head(*head) for head in heads),
        )


@dataclass(frozen=True, slots=True)
class RedisMoment:
    """What Redis says of a query and some of its stores, as `Moment` has it."""

    _place: RedisPlace
    _client: Redis
    _names: tuple[str, ...]
    stores: int
    generation: str
    noted: tuple[str, int] | None
    heads: tuple[SharedHead | None, ...]

    def read(self, version: int, fields: Sequence[bytes]) -> dict[bytes, bytes] | None:
        """See `Moment`."""
        buckets = by_bucket(fields)
        client: Any = self._client
        script = client.register_script(READ)
        with self._place.asked(self._names[0]), client.pipeline(transaction=False) as pipeline:
            for name in self._names:
                for bucket, some in buckets.items():
                    script(keys=[name], args=[version, "", bucket, *some], client=pipeline)
            answers = pipeline.execute(raise_on_error=False)
        found: dict[bytes, bytes] = {}
        asked = [some for _ in self._names for some in buckets.values()]
        for some, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Exception):
                if "HOLDFAST missing" in str(answer):
                    return None
                with self._place.asked(self._names[0]):
                    raise answer
            found.update((field, value[1:]) for field, value in zip(some, answer, strict=True) if value)
        return found


def _head(
    layout: bytes | None, run: bytes | None, reached: bytes | None, retired: bytes | None
) -> SharedHead | None:
    if run is None or reached is None:
        return None
    former = frozenset((retired or b"").decode().split())
    return SharedHead((layout or b"").decode(), run.decode(), int(reached), former)
