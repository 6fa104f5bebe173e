"""One store of state in Redis: read at a version, or made under a new name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from holdfast.config.spark_defaults import EXTERNAL_LAYOUT
from holdfast.external.redis_place import ADDRESS, RedisPlace
from holdfast.external.redis_scripts import CLEAR, CREATE, LOOK, SCAN
from holdfast.external.store_port import (
    BUCKETS,
    StoreLook,
    bucket_of,
    gone,
    lacking,
    not_kept,
    require_layout,
    taken,
)

if TYPE_CHECKING:
    from redis import Redis

_SCANNED_TOGETHER: Final = 8
_WRITTEN_TOGETHER: Final = 20_000
# Before a value, so that nothing at all can say that there is none.
_MARK: Final = b"\x01"


class RedisDatabase:
    """A database of Redis, as `Database` has it; its client may be used by several threads.

    Raises:
        Unsupported: The library is not installed.
    """

    def __init__(self, place: RedisPlace) -> None:
        self._place = place
        self._client = place.connect()

    def ping(self) -> None:
        """See `Database`."""
        with self._place.asked(""):
            self._client.ping()

    def store(self, name: str) -> RedisStore:
        """See `Database`."""
        return RedisStore(self._place, self._client, name)


class RedisStore:
    """A store of state in Redis.

    Args:
        place: The database.
        client: Its client; it may be shared.
        name: The store.
    """

    def __init__(self, place: RedisPlace, client: Redis, name: str) -> None:
        self._place = place
        self._client: Any = client
        self.name = name
        self.where = f"{place}, store {name}"

    def look(self) -> StoreLook:
        """See `ExternalStore`; one request. The size is the memory that the data takes in Redis."""
        return self._look()[0]

    def scan(self, version: int) -> tuple[StoreLook, dict[bytes, bytes]]:
        """See `ExternalStore`."""
        while True:
            look, found = self._look()
            if found != look.fields:
                raise lacking(
                    "Redis",
                    self.where,
                    found=f"{found:,} fields",
                    expected=f"{look.fields:,}",
                    hint="restore a savepoint, and let Redis delete nothing: maxmemory-policy noeviction",
                )
            if version not in look.attempts:
                raise not_kept("Redis", self.where, version, look.attempts)
            fields = dict(self._fields(version, look))
            # A batch that runs again makes its version anew, and may just have done so.
            if self.look().attempts.get(version) == look.attempts[version]:
                return look, fields

    def write(
        self, version: int, rows: Iterable[tuple[bytes, bytes]], facts: Mapping[str, str], index: str
    ) -> int:
        """See `ExternalStore`: the data, and then the head."""
        self.clear()
        count = 0
        ordered = iter(rows)
        while some := list(islice(ordered, _WRITTEN_TOGETHER)):
            buckets: dict[int, dict[bytes, bytes]] = {}
            for field, value in some:
                buckets.setdefault(bucket_of(field), {})[field] = _MARK + value
            with self._place.asked(self.name), self._client.pipeline(transaction=False) as pipeline:
                for bucket, mapping in buckets.items():
                    pipeline.hset(f"{self.name}:d:{bucket}", mapping=mapping)
                pipeline.execute()
            count += len(some)
        with self._place.asked(self.name):
            self._client.sadd(index, self.name)
        noted = [
            part
            for pair in {**facts, "layout": EXTERNAL_LAYOUT, "fields": str(count)}.items()
            for part in pair
        ]
        if not self._run(CREATE, version, uuid4().hex, *noted):
            raise taken("Redis", self.where)
        return count

    def clear(self) -> None:
        """See `ExternalStore`."""
        if not self._run(CLEAR):
            raise taken("Redis", self.where)

    def _look(self) -> tuple[StoreLook, int]:
        """What is there, and how many fields are."""
        answer = self._run(LOOK)
        if not answer:
            raise gone(
                "Redis",
                self.where,
                hint=f"see that the address is right, or set {ADDRESS}; if the database was emptied, bring"
                " its data back or restore a savepoint",
            )
        newest, fields, found, size, encoder, layout, versions = answer
        require_layout(layout.decode(), self.where)
        attempts = {int(versions[at]): int(versions[at + 1]) for at in range(0, len(versions), 2)}
        return StoreLook(int(newest), int(fields), int(size), encoder.decode(), attempts), int(found)

    def _fields(self, version: int, look: StoreLook) -> Iterator[tuple[bytes, bytes]]:
        for first in range(0, BUCKETS, _SCANNED_TOGETHER):
            buckets = range(first, min(first + _SCANNED_TOGETHER, BUCKETS))
            with self._place.asked(self.name), self._client.pipeline(transaction=False) as pipeline:
                script = self._client.register_script(SCAN)
                for bucket in buckets:
                    script(keys=[self.name], args=[version, "", bucket], client=pipeline)
                answers = pipeline.execute(raise_on_error=False)
                for answer in answers:
                    if isinstance(answer, Exception):
                        if "HOLDFAST" in str(answer):
                            raise not_kept("Redis", self.where, version, look.attempts)
                        raise answer
            for hashes in answers:
                over: dict[bytes, bytes] = {}
                for pairs in reversed(hashes):
                    over.update(zip(pairs[::2], pairs[1::2], strict=True))
                yield from ((field, value[1:]) for field, value in over.items() if value)

    def _run(self, script: str, *arguments: object) -> Any:
        with self._place.asked(self.name):
            return self._client.register_script(script)(keys=[self.name], args=list(arguments))
