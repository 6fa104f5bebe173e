"""One store of state in Redis: read at a version, or made under a new name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.spark_defaults import EXTERNAL_LAYOUT
from holdfast.errors import Conflict, Corrupt, NotFound, Unsupported
from holdfast.external.redis_place import ADDRESS, RedisPlace
from holdfast.external.redis_scripts import BUCKETS, CLEAR, CREATE, LOOK, SCAN, bucket_of

if TYPE_CHECKING:
    from redis import Redis

_SCANNED_TOGETHER: Final = 8
_WRITTEN_TOGETHER: Final = 20_000
# Before a value, so that nothing at all can say that there is none.
_MARK: Final = b"\x01"


@dataclass(frozen=True, slots=True)
class StoreLook:
    """What a store's head says, with what is there.

    Attributes:
        newest: The newest version.
        fields: How many fields that has.
        found: How many are there.
        size_bytes: The memory that they take in Redis.
        encoder: How rows lie in fields: `plain`, or `prefix:` and a number of columns.
        layout: How the store lies there.
        attempts: The attempt that made each version that is kept.
    """

    newest: int
    fields: int
    found: int
    size_bytes: int
    encoder: str
    layout: str
    attempts: Mapping[int, int]


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
        """What is there. Cost: one request, whatever the size.

        Raises:
            Corrupt: There is no such store.
            Unsupported: It is of another release.
            Unavailable, Invalid: As `RedisPlace.asked`.
        """
        answer = self._run(LOOK)
        if not answer:
            raise Corrupt(
                "the state is not in Redis",
                where=self.where,
                found="no such store",
                expected="the one that the checkpoint names",
                hint=f"see that the address is right, or set {ADDRESS}; if the database was emptied, bring"
                " its data back or restore a savepoint",
            )
        newest, fields, found, size, encoder, layout, versions = answer
        if layout.decode() != EXTERNAL_LAYOUT:
            raise Unsupported(
                "the store is of another release of Holdfast",
                where=self.where,
                found=f"layout {layout.decode() or 'unknown'}",
                expected=f"layout {EXTERNAL_LAYOUT}",
                hint="let the query run a batch with this release, or use the release that it runs with",
            )
        attempts = {int(versions[at]): int(versions[at + 1]) for at in range(0, len(versions), 2)}
        return StoreLook(
            int(newest), int(fields), int(found), int(size), encoder.decode(), layout.decode(), attempts
        )

    def scan(self, version: int) -> tuple[StoreLook, dict[bytes, bytes]]:
        """All fields at a version, with what the head said before.

        The query may run meanwhile. Cost: the whole store is read and held in memory.

        Raises:
            NotFound: The version is not kept.
            Corrupt: Some of it is gone.
            Unavailable, Invalid, Unsupported: As `look`.
        """
        while True:
            look = self.look()
            if look.found != look.fields:
                raise Corrupt(
                    "state in Redis is damaged: something else has deleted a part of it",
                    where=self.where,
                    found=f"{look.found:,} fields",
                    expected=f"{look.fields:,}",
                    hint="restore a savepoint, and let Redis delete nothing: maxmemory-policy noeviction",
                )
            if version not in look.attempts:
                raise self._not_kept(version, look)
            fields = dict(self._fields(version, look))
            # A batch that runs again makes its version anew, and may just have done so.
            if self.look().attempts.get(version) == look.attempts[version]:
                return look, fields

    def write(self, version: int, rows: Iterable[tuple[bytes, bytes]], head: Mapping[str, str]) -> int:
        """Make the store, under a name that no other has: its data, and then its head, which makes it count.

        What an earlier try has left, that no query has begun on, is deleted before.

        Args:
            version: The version that it is to be at.
            rows: Fields with their values; no field twice.
            head: What its head says of the rows.

        Returns:
            How many fields there are.

        Raises:
            Conflict: There is such a store.
            Unavailable, Invalid: As `RedisPlace.asked`.
        """
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
        noted = [
            part
            for pair in {**head, "layout": EXTERNAL_LAYOUT, "fields": str(count)}.items()
            for part in pair
        ]
        if not self._run(CREATE, version, *noted):
            raise self._taken()
        return count

    def note(self, index: str) -> None:
        """Note the store in the set that lists a query's stores."""
        with self._place.asked(self.name):
            self._client.sadd(index, self.name)

    def clear(self) -> None:
        """Delete the store, which no query has begun on.

        Raises:
            Conflict: A query has.
            Unavailable, Invalid: As `RedisPlace.asked`.
        """
        if not self._run(CLEAR):
            raise self._taken()

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
                            raise self._not_kept(version, look)
                        raise answer
            for hashes in answers:
                over: dict[bytes, bytes] = {}
                for pairs in reversed(hashes):
                    over.update(zip(pairs[::2], pairs[1::2], strict=True))
                yield from ((field, value[1:]) for field, value in over.items() if value)

    def _run(self, script: str, *arguments: object) -> Any:
        with self._place.asked(self.name):
            return self._client.register_script(script)(keys=[self.name], args=list(arguments))

    def _not_kept(self, version: int, look: StoreLook) -> NotFound:
        kept = sorted(look.attempts)
        return NotFound(
            "Redis does not keep this version of the state any more",
            where=self.where,
            found=f"versions {kept[0]} to {kept[-1]}" if kept else "none",
            expected=f"version {version}, which batch {version - 1} made",
            hint="name a newer batch; hf.Redis(retain=…) says how many are kept",
        )

    def _taken(self) -> Conflict:
        return Conflict(
            "Redis has a store of this name, and a query uses it",
            where=self.where,
            hint="name a new directory; a store is never overwritten",
        )
