"""A store of state in Redis: read at a version, or written under a new name.

The scripts `READ` and `SCAN` are the same as in the jar; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from uuid import uuid4

from holdfast.config.spark_defaults import EXTERNAL_LAYOUT
from holdfast.external.redis_connection import ADDRESS, RedisAddress, RedisConnection, open_redis
from holdfast.external.shared_state import SharedHead, StoreListing
from holdfast.external.store_port import (
    BUCKETS,
    StoreLook,
    bucket_of,
    by_bucket,
    gone,
    index_of,
    lacking,
    not_kept,
    note_of,
    require_layout,
    store_in_use,
)

_LAYERS: Final = """local head = KEYS[1]
local function plan_of(text)
  local undo, redo = {}, nil
  local cut = string.find(text, ';', 1, true)
  for number in string.gmatch(string.sub(text, 1, cut - 1), '%d+') do undo[#undo + 1] = number end
  redo = string.sub(text, cut + 1)
  return undo, redo
end
local function slices(list, size, use)
  local first = 1
  while first <= #list do
    local last = math.min(first + size - 1, #list)
    use(first, last)
    first = last + 1
  end
end
local function layers(version, attempt, bucket)
  local names = {}
  local found = redis.call('HMGET', head, 'version', 'plan')
  local newest = tonumber(found[1] or '-1')
  if newest < 0 then return nil, 'absent' end
  if not redis.call('HGET', head .. ':v', version) then
    return nil, 'missing'
  end
  if attempt ~= '' then names[#names + 1] = head .. ':r:' .. attempt .. ':' .. bucket end
  for later = tonumber(version) + 1, newest do
    names[#names + 1] = head .. ':u:' .. redis.call('HGET', head .. ':v', tostring(later)) .. ':' .. bucket
  end
  if found[2] and found[2] ~= '' then
    local undo, redo = plan_of(found[2])
    if tonumber(version) == newest then names[#names + 1] = head .. ':r:' .. redo .. ':' .. bucket end
    for i = 1, #undo do names[#names + 1] = head .. ':u:' .. undo[i] .. ':' .. bucket end
  end
  names[#names + 1] = head .. ':d:' .. bucket
  return names, newest
end
"""

# Arguments: version, attempt or nothing, bucket. Returns the hashes of a bucket, of which the first one
# applies.
SCAN: Final = (
    _LAYERS
    + """local names, why = layers(ARGV[1], ARGV[2], ARGV[3])
if not names then return redis.error_reply('HOLDFAST ' .. why) end
local all = {}
for i = 1, #names do all[i] = redis.call('HGETALL', names[i]) end
return all
"""
)

# Arguments: version, attempt or nothing, bucket, fields. Returns a value for each field.
READ: Final = (
    _LAYERS
    + """local names, why = layers(ARGV[1], ARGV[2], ARGV[3])
if not names then return redis.error_reply('HOLDFAST ' .. why) end
local fields, values = {}, {}
for i = 4, #ARGV do fields[i - 3] = ARGV[i] end
local last = #names
if last > 1 then
  for i = 1, last - 1 do if redis.call('EXISTS', names[i]) == 0 then names[i] = false end end
end
slices(fields, 1000, function(first, final)
  local wanted = {unpack(fields, first, final)}
  local found = redis.call('HMGET', names[last], unpack(wanted))
  for i = last - 1, 1, -1 do
    if names[i] then
      local over = redis.call('HMGET', names[i], unpack(wanted))
      for j = 1, #wanted do if over[j] then found[j] = over[j] end end
    end
  end
  for j = 1, #wanted do values[first + j - 1] = found[j] end
end)
return values
"""
)

# No argument. Returns nothing, or: the newest version, the expected number of fields, the actual number of
# fields, their size in bytes, the encoder, the layout, and the versions with the attempts that created them.
# All values are from one moment, so the two numbers are equal even during a commit, each step of which
# changes both.
LOOK: Final = f"""local head = KEYS[1]
local now = redis.call('HMGET', head, 'version', 'fields', 'encoder', 'layout')
if not now[1] then return {{}} end
local found, bytes = 0, 0
for bucket = 0, {BUCKETS - 1} do
  local data = head .. ':d:' .. bucket
  found = found + redis.call('HLEN', data)
  bytes = bytes + (redis.call('MEMORY', 'USAGE', data) or 0)
end
return {{now[1], now[2], string.format('%.0f', found), string.format('%.0f', bytes), now[3] or '',
  now[4] or '', redis.call('HGETALL', head .. ':v')}}
"""

# Writes the head of a new store, after its data. Arguments: version, a unique id of this write, fields of the
# head with their values. Returns 0 if a different write has written a head. The script may run twice if its
# answer was lost.
CREATE: Final = """local head = KEYS[1]
if redis.call('EXISTS', head) == 1 then
  return redis.call('HGET', head, 'written') == ARGV[2] and 1 or 0
end
redis.call('HSET', head .. ':v', ARGV[1], '0')
redis.call('HSET', head, 'version', ARGV[1], 'floor', ARGV[1], 'reached', ARGV[1], 'run', '', 'retired', '',
  'next', '0', 'plan', '', 'written', ARGV[2], unpack(ARGV, 3))
return 1
"""

# Deletes the data of a new store that no query uses. Returns 0 if a query uses it.
CLEAR: Final = f"""local head = KEYS[1]
local run = redis.call('HGET', head, 'run')
if run and run ~= '' then return 0 end
redis.call('DEL', head, head .. ':v')
for bucket = 0, {BUCKETS - 1} do redis.call('UNLINK', head .. ':d:' .. bucket) end
return 1
"""


_SCANNED_TOGETHER: Final = 8
_WRITTEN_TOGETHER: Final = 20_000
# The prefix of a value, so that an empty answer can mean that there is no value.
_MARK: Final = b"\x01"


class RedisDatabase:
    """A Redis database as a `StateDatabase`; its client may be used by several threads.

    Raises:
        Unsupported: The client library of Redis is not installed.
    """

    def __init__(self, address: RedisAddress) -> None:
        self._connection = open_redis(address)

    def ping(self) -> None:
        """See `StateDatabase`."""
        with self._connection.asked(""):
            self._connection.client.ping()

    def store(self, name: str) -> RedisStore:
        """See `StateDatabase`."""
        return RedisStore(self._connection, name)


class RedisStore:
    """A store of state in Redis; see `ExternalStore`.

    Args:
        connection: The connection to the database, which may be shared.
        name: The name of the store.
    """

    def __init__(self, connection: RedisConnection, name: str) -> None:
        self._connection = connection
        self._client = connection.client
        self.name = name
        self.where = f"{connection.address}, store {name}"

    def look(self) -> StoreLook:
        """Return the store's versions, fields and size; see `ExternalStore`.

        It takes one request; the size is the memory that the data uses in Redis.
        """
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
                    expected=f"{look.fields:,} fields",
                    hint="restore a savepoint, and set maxmemory-policy to noeviction",
                )
            if version not in look.attempts:
                raise not_kept("Redis", self.where, version, look.attempts)
            fields = dict(self._fields(version, look))
            # A repeated batch writes its version again, and may just have done so.
            if self.look().attempts.get(version) == look.attempts[version]:
                return look, fields

    def write(
        self, version: int, rows: Iterable[tuple[bytes, bytes]], facts: Mapping[str, str], index: str
    ) -> int:
        """Create the store: write the data, then the head; see `ExternalStore`."""
        self.clear()
        count = 0
        ordered = iter(rows)
        while some := list(islice(ordered, _WRITTEN_TOGETHER)):
            buckets: dict[int, dict[bytes, bytes]] = {}
            for field, value in some:
                buckets.setdefault(bucket_of(field), {})[field] = _MARK + value
            with self._connection.asked(self.name), self._client.pipeline(transaction=False) as pipeline:
                for bucket, mapping in buckets.items():
                    pipeline.hset(f"{self.name}:d:{bucket}", mapping=mapping)
                pipeline.execute()
            count += len(some)
        with self._connection.asked(self.name):
            self._client.sadd(index, self.name)
        noted = [
            part
            for pair in {**facts, "layout": EXTERNAL_LAYOUT, "fields": str(count)}.items()
            for part in pair
        ]
        if not self._run(CREATE, version, uuid4().hex, *noted):
            raise store_in_use("Redis", self.where)
        return count

    def clear(self) -> None:
        """See `ExternalStore`."""
        if not self._run(CLEAR):
            raise store_in_use("Redis", self.where)

    def _look(self) -> tuple[StoreLook, int]:
        """Return the description of the store, and the number of its existing fields."""
        answer = self._run(LOOK)
        if not answer:
            raise gone(
                "Redis",
                self.where,
                hint=f"check the address, or set {ADDRESS}; if the database was emptied, recover its data"
                " or restore a savepoint",
            )
        newest, fields, found, size, encoder, layout, versions = answer
        require_layout(layout.decode(), self.where)
        attempts = {int(versions[at]): int(versions[at + 1]) for at in range(0, len(versions), 2)}
        return StoreLook(int(newest), int(fields), int(size), encoder.decode(), attempts), int(found)

    def _fields(self, version: int, look: StoreLook) -> Iterator[tuple[bytes, bytes]]:
        for first in range(0, BUCKETS, _SCANNED_TOGETHER):
            buckets = range(first, min(first + _SCANNED_TOGETHER, BUCKETS))
            with self._connection.asked(self.name), self._client.pipeline(transaction=False) as pipeline:
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
        with self._connection.asked(self.name):
            return self._client.register_script(script)(keys=[self.name], args=list(arguments))


_HEAD: Final = ("layout", "run", "reached", "retired")
_FACTS: Final = ("keySchema", "valueSchema", "encoder")


class RedisReader:
    """A query's state in Redis; see `QueryReader`.

    Args:
        address: The address of the database.
        query_id: The id of the query.
        prefix: The prefix of all keys in the database.

    Raises:
        Unsupported: The client library of Redis is not installed.
    """

    def __init__(self, address: RedisAddress, query_id: str, prefix: str) -> None:
        self._connection = open_redis(address)
        self._client = self._connection.client
        self._index, self._query = index_of(prefix, query_id), note_of(prefix, query_id)
        self.place = str(address)
        self.query_id = query_id

    def listing(self) -> StoreListing:
        """See `QueryReader`."""
        with self._connection.asked(self._index), self._client.pipeline(transaction=False) as pipeline:
            pipeline.smembers(self._index)
            pipeline.hget(self._query, "generation")
            names, generation = pipeline.execute()
        return StoreListing(tuple(name.decode() for name in names), (generation or b"").decode())

    def facts(self, store: str) -> Mapping[str, str]:
        """See `QueryReader`."""
        with self._connection.asked(store):
            found = self._client.hmget(store, *_FACTS)
        return {fact: value.decode() for fact, value in zip(_FACTS, found, strict=True) if value is not None}

    def moment(self, stores: Sequence[str]) -> RedisMoment:
        """See `QueryReader`."""
        with self._connection.asked(self._query), self._client.pipeline(transaction=False) as pipeline:
            pipeline.hmget(self._query, "batch", "run", "generation")
            pipeline.scard(self._index)
            for name in stores:
                pipeline.hmget(name, *_HEAD)
            (batch, run, generation), count, *heads = pipeline.execute()
        return RedisMoment(
            self._connection,
            tuple(stores),
            count,
            (generation or b"").decode(),
            None if run is None or batch is None else (run.decode(), int(batch)),
            tuple(_head(*head) for head in heads),
        )


@dataclass(frozen=True, slots=True)
class RedisMoment:
    """The state of a query and some of its stores in Redis at one moment; see `DatabaseMoment`."""

    _connection: RedisConnection
    _names: tuple[str, ...]
    stores: int
    generation: str
    noted: tuple[str, int] | None
    heads: tuple[SharedHead | None, ...]

    def read(self, version: int, fields: Sequence[bytes]) -> dict[bytes, bytes] | None:
        """See `DatabaseMoment`."""
        buckets = by_bucket(fields)
        client = self._connection.client
        script = client.register_script(READ)
        with self._connection.asked(self._names[0]), client.pipeline(transaction=False) as pipeline:
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
                with self._connection.asked(self._names[0]):
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
