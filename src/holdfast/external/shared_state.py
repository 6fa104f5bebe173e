"""The state of a running query, read from its database by who has neither Spark nor the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.spark_defaults import EXTERNAL_LAYOUT
from holdfast.errors import Conflict, Invalid, NotFound, Unsupported
from holdfast.external.packed_rows import prefix_columns, rows_of
from holdfast.external.redis_place import RedisPlace
from holdfast.external.redis_scripts import READ, bucket_of
from holdfast.formats.rows.spark_types import Struct, parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec

if TYPE_CHECKING:
    from redis import Redis

_NAME: Final = re.compile(r".*\{[^/]+/(\d+)/\d+/([^/]+)(?:/([^/]+))?\}")
_HEAD: Final = ("layout", "run", "reached", "retired")
_SCHEMA: Final = ("keySchema", "valueSchema", "encoder")
# A batch that ends between two looks lets the first be too old; more of them than this do not end in between.
_LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class SharedRow:
    """A row of state, as a committed batch has left it.

    Attributes:
        key: The key's columns.
        value: The value's columns.
        batch_id: The batch.
    """

    key: Mapping[str, Any]
    value: Mapping[str, Any]
    batch_id: int


class SharedState:
    """One state of a query in Redis.

    All that one call returns is of one batch, which is committed: never of two, and never of one that runs.
    Nothing is written.

    Args:
        place: The database.
        client: Its client, which decodes nothing.
        query_id: The query's id, which `holdfast checkpoint show` tells, and Spark as `query.id`.
        operator_id: The operator's number; None for the only one.
        store: The operator's store; joins have four.
        prefix: What all keys in the database begin with.

    Raises:
        NotFound: There is no such state.
        Invalid: The query has several operators; or Redis does not let us in.
        Unsupported: The state is of another release.
        Unavailable: Redis does not answer.
    """

    def __init__(
        self,
        place: RedisPlace,
        client: Redis,
        query_id: str,
        *,
        operator_id: int | None = None,
        store: str = "default",
        prefix: str = "holdfast",
    ) -> None:
        self._place = place
        self._client: Any = client
        self._index = f"{prefix}:stores:{query_id}"
        self._query = f"{prefix}:query:{query_id}"
        self.where = f"{place}, query {query_id}"
        self._wanted = (operator_id, store)
        self._count, self._generation, self._names = self._stores()
        key, value, self._encoder = self._schema()
        self._keys, self._values = RowCodec(key), RowCodec(value)
        self._together = prefix_columns(self._encoder, self.where)
        columns = self._together or len(key.names)
        self._field = RowCodec(Struct(key.names[:columns], key.types[:columns]))

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key, by which rows are asked for."""
        return tuple(self._field.type.names)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The columns of the value."""
        return tuple(self._values.type.names)

    @property
    def batch_id(self) -> int | None:
        """The newest batch that is committed; None before the first."""
        version = self._committed()
        return version - 1 if version else None

    def get(self, *key: Any, **columns: Any) -> SharedRow | None:
        """The row of a key: its columns in their order, or by name. None where there is none.

        Cost: two requests, whatever the number of partitions.

        Raises:
            Invalid: Not the columns of the key, or values that do not fit; or the key has several rows.
            NotFound: The state is gone.
            Unavailable: Redis does not answer.
        """
        rows = self.rows(*key, **columns)
        if len(rows) > 1:
            raise Invalid("the key has several rows", found=str(len(rows)), hint="ask for them with rows()")
        return rows[0] if rows else None

    def rows(self, *key: Any, **columns: Any) -> list[SharedRow]:
        """All rows of a key: the session windows of a user, for example.

        Raises:
            Invalid, NotFound, Unavailable: As `get`.
        """
        [found] = self.rows_of_keys([self._as_columns(key, columns)])
        return found

    def rows_of_keys(self, keys: Sequence[Mapping[str, Any]]) -> list[list[SharedRow]]:
        """The rows of many keys, all of one batch.

        Raises:
            Invalid, NotFound, Unavailable: As `get`.
        """
        fields = [self._field.encode(self._as_columns((), key)) for key in keys]
        for _ in range(_LOOKS):
            version = self._committed()
            if version == 0:
                return [[] for _ in fields]
            values = self._read(version, fields)
            if values is not None:
                return [
                    self._decoded(field, values[field], version - 1) if field in values else []
                    for field in fields
                ]
        raise Conflict(
            "the state changes faster than it can be read",
            where=self.where,
            hint="ask again; hf.Redis(retain=…) says how many batches are kept",
        )

    def _as_columns(self, key: Sequence[Any], columns: Mapping[str, Any]) -> dict[str, Any]:
        given = {**dict(zip(self.key_columns, key, strict=False)), **columns}
        if len(key) > len(self.key_columns) or set(given) != set(self.key_columns):
            raise Invalid(
                "these are not the columns of the key",
                where=self.where,
                found=", ".join(map(str, columns)) or f"{len(key)} values",
                expected=", ".join(self.key_columns),
                hint="name each column of the key once",
            )
        return given

    def _stores(self) -> tuple[int, bytes, list[str]]:
        """How many stores the query has ever had, which generation of them it uses, and their names."""
        with self._place.asked(self._index), self._client.pipeline(transaction=False) as pipeline:
            pipeline.smembers(self._index)
            pipeline.hget(self._query, "generation")
            names, generation = pipeline.execute()
        generation = generation or b""
        operator_id, store = self._wanted
        texts = sorted(name.decode() for name in names)
        places = [(match, name) for name in texts if (match := _NAME.fullmatch(name))]
        places = [(match, name) for match, name in places if (match[3] or "") == generation.decode()]
        operators = sorted({int(match[1]) for match, _ in places})
        if not places:
            raise NotFound(
                "there is no state of this query",
                where=self.where,
                hint="take the id from `holdfast checkpoint show`; it has state after its first batch",
            )
        if operator_id is None and len(operators) > 1:
            raise Invalid(
                "the query has several operators with state",
                where=self.where,
                found=", ".join(map(str, operators)),
                hint="name one: operator_id=…",
            )
        wanted = operators[0] if operator_id is None else operator_id
        found = [name for match, name in places if (int(match[1]), match[2]) == (wanted, store)]
        if not found:
            there = sorted({f"{match[1]}/{match[2]}" for match, _ in places})
            raise NotFound(
                "the query has no such state",
                where=self.where,
                found=f"{wanted}/{store}",
                expected=", ".join(there),
            )
        return len(names), generation, found

    def _schema(self) -> tuple[Struct, Struct, str]:
        with self._place.asked(self._names[0]):
            found = self._client.hmget(self._names[0], *_SCHEMA)
        if None in found:
            raise Unsupported(
                "the state does not say what its rows are",
                where=f"{self._place}, store {self._names[0]}",
                hint="let the query run a batch with this release of Holdfast",
            )
        key, value, encoder = (each.decode() for each in found)
        return parse_struct(key, self.where), parse_struct(value, self.where), encoder

    def _committed(self) -> int:
        """The version that the newest committed batch has made.

        A task that begins with a version proves that the batch which made it is committed; the query's note
        says so earlier. Both count for the newest run alone: one that went back has other batches of the same
        numbers, and a store that its tasks have not reached yet tells of the run before.
        """
        while True:
            with self._place.asked(self._query), self._client.pipeline(transaction=False) as pipeline:
                pipeline.hmget(self._query, "batch", "run", "generation")
                pipeline.scard(self._index)
                for name in self._names:
                    pipeline.hmget(name, *_HEAD)
                (batch, run, generation), count, *heads = pipeline.execute()
            if (count, generation or b"") == (self._count, self._generation):
                break
            # A partition had its first batch, or the query goes on from a restored checkpoint.
            self._count, self._generation, self._names = self._stores()
        for name, (layout, run_of_store, _, _) in zip(self._names, heads, strict=True):
            if run_of_store is None:
                raise NotFound(
                    "the state is gone", where=f"{self._place}, store {name}", hint="is the query new?"
                )
            if layout != EXTERNAL_LAYOUT.encode():
                raise Unsupported(
                    "the state is of another release of Holdfast",
                    where=self.where,
                    found=f"layout {(layout or b'unknown').decode()}",
                    expected=f"layout {EXTERNAL_LAYOUT}",
                )
        followed = {former for _, _, _, retired in heads for former in retired.split()}
        proved = [(run_of_store, int(reached)) for _, run_of_store, reached, _ in heads]
        if run in dict(proved):
            proved.append((run, int(batch) + 1))
        return max((version for run_of_proof, version in proved if run_of_proof not in followed), default=0)

    def _read(self, version: int, fields: Sequence[bytes]) -> dict[bytes, bytes] | None:
        """The values that there are; None if the version is not kept any more."""
        buckets: dict[int, list[bytes]] = {}
        for field in dict.fromkeys(fields):
            buckets.setdefault(bucket_of(field), []).append(field)
        script = self._client.register_script(READ)
        with self._place.asked(self._names[0]), self._client.pipeline(transaction=False) as pipeline:
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

    def _decoded(self, field: bytes, value: bytes, batch_id: int) -> list[SharedRow]:
        return [
            SharedRow(self._keys.decode(key, self.where), self._values.decode(row, self.where), batch_id)
            for key, row in rows_of({field: value}, self._encoder, self.where)
        ]
