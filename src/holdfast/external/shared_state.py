"""The state of a running query, read from its database without Spark and without the checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from holdfast.errors import Conflict, Invalid, NotFound, Unsupported
from holdfast.external.store_port import prefix_columns, require_layout, rows_of
from holdfast.formats.rows.spark_types import Struct, parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec

_NAME: Final = re.compile(r".*\{[^/]+/(\d+)/\d+/([^/]+)(?:/([^/]+))?\}")
# The maximum number of repeated reads: a batch that ends between two reads can make the first one outdated.
_LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class SharedRow:
    """A row of state, as of a committed batch.

    Attributes:
        key: The columns of the key, by name.
        value: The columns of the value, by name.
        batch_id: The id of the committed batch.

    Example:
        def show_visits(visits: hf.shared.SharedState, customer: str) -> str:
            row = visits.get(customer)
            if row is None:
                return f"{customer}: no visits"
            return f"{customer}: {row.value['count']} visits up to batch {row.batch_id}"
    """

    key: Mapping[str, Any]
    value: Mapping[str, Any]
    batch_id: int


@dataclass(frozen=True, slots=True)
class StoreListing:
    """The stores of a query in a database.

    Attributes:
        names: The names of the stores, including those used before a checkpoint was restored.
        generation: The last part of the names of the stores in use; empty if the names have no such part.
    """

    names: tuple[str, ...]
    generation: str


@dataclass(frozen=True, slots=True)
class SharedHead:
    """The fields of a store's head that a reader uses.

    Attributes:
        layout: The layout version of the store.
        run: The query run that may write to the store.
        reached: The version with which the run's newest batch began.
        retired: The earlier runs.
    """

    layout: str
    run: str
    reached: int
    retired: frozenset[str]


class DatabaseMoment(Protocol):
    """The state of a query and some of its stores in a database, read in one request."""

    @property
    def stores(self) -> int:
        """Return the number of stores that the query has ever had."""

    @property
    def generation(self) -> str:
        """Return the generation of the stores in use."""

    @property
    def noted(self) -> tuple[str, int] | None:
        """Return the newest run with a recorded committed batch, and this batch, or None."""

    @property
    def heads(self) -> Sequence[SharedHead | None]:
        """Return the head of each store, or None for a store that no longer exists."""

    def read(self, version: int, fields: Sequence[bytes]) -> dict[bytes, bytes] | None:
        """Return the values of fields at a version, over all stores.

        The result is None if a store no longer has the version, or has replaced it by one with the same
        number.
        """


class QueryReader(Protocol):
    """A reader of a query's state in a database; its methods raise Unavailable and Invalid as stores do."""

    @property
    def place(self) -> str:
        """Return the address of the database."""

    @property
    def query_id(self) -> str:
        """Return the id of the query."""

    def listing(self) -> StoreListing:
        """Return the existing stores of the query."""

    def facts(self, store: str) -> Mapping[str, str]:
        """Return the description of a store's rows: `keySchema`, `valueSchema` and `encoder`."""

    def moment(self, stores: Sequence[str]) -> DatabaseMoment:
        """Return the current state of the query and these stores, read in one request."""


class SharedState:
    """A state of a query in a database, read-only.

    It is returned by `hf.shared.redis` and `hf.shared.cassandra`. All rows of a call are from the same
    committed batch.

    Args:
        reader: The reader of the query's state.
        operator_id: The id of the operator, or None if the query has only one.
        store: The name of the operator's store; joins have four stores.

    Raises:
        NotFound: The state does not exist.
        Invalid: The query has several operators, or the database rejected the credentials.
        Unsupported: The state was written by a different release.
        Unavailable: The database does not answer.

    Example:
        def count_all(customers: list[str], query_id: str) -> dict[str, int]:
            visits = hf.shared.redis("redis.example:6379", query_id)
            keys = [{"customer": customer} for customer in customers]
            rows = [row for found in visits.rows_of_keys(keys) for row in found]
            return {row.key["customer"]: row.value["count"] for row in rows}
    """

    def __init__(
        self, reader: QueryReader, *, operator_id: int | None = None, store: str = "default"
    ) -> None:
        self._reader = reader
        self.where = f"{reader.place}, query {reader.query_id}"
        self._wanted = (operator_id, store)
        self._stores = self._listed()
        key, value, self._encoder = self._schema()
        self._keys, self._values = RowCodec(key), RowCodec(value)
        self._together = prefix_columns(self._encoder, self.where)
        columns = self._together or len(key.names)
        self._field = RowCodec(Struct(key.names[:columns], key.types[:columns]))

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the names of the key columns."""
        return tuple(self._field.type.names)

    @property
    def value_columns(self) -> tuple[str, ...]:
        """Return the names of the value columns."""
        return tuple(self._values.type.names)

    @property
    def batch_id(self) -> int | None:
        """Return the newest committed batch, or None before the first one."""
        version, _ = self._committed()
        return version - 1 if version else None

    def get(self, *key: Any, **columns: Any) -> SharedRow | None:
        """Return the row of a key, given by its columns in order or by name, or None if the key has no row.

        A call takes two requests in Redis for any number of partitions. In Cassandra it takes three
        consecutive requests per partition, with all partitions in parallel.

        Raises:
            Invalid: The columns or values do not match the key, or the key has several rows.
            NotFound: The state no longer exists.
            Unavailable: The database does not answer.
        """
        rows = self.rows(*key, **columns)
        if len(rows) > 1:
            raise Invalid(
                "get() found several rows for the key",
                code="HF-E2204",
                where=self.where,
                found=f"{len(rows)} rows",
                expected="at most one row",
                hint="read the rows of the key with rows()",
            )
        return rows[0] if rows else None

    def rows(self, *key: Any, **columns: Any) -> list[SharedRow]:
        """Return all rows of a key, for example the session windows of a user.

        Raises:
            Invalid: The columns or values do not match the key.
            NotFound: The state no longer exists.
            Unavailable: The database does not answer.
        """
        [found] = self.rows_of_keys([self._as_columns(key, columns)])
        return found

    def rows_of_keys(self, keys: Sequence[Mapping[str, Any]]) -> list[list[SharedRow]]:
        """Return the rows of many keys, all from the same committed batch.

        Raises:
            Invalid: The columns or values do not match the key.
            NotFound: The state no longer exists.
            Unavailable: The database does not answer.
        """
        fields = [self._field.encode(self._as_columns((), key)) for key in keys]
        for _ in range(_LOOKS):
            version, moment = self._committed()
            if version == 0:
                return [[] for _ in fields]
            values = moment.read(version, fields)
            if values is not None:
                return [
                    self._decoded(field, values[field], version - 1) if field in values else []
                    for field in fields
                ]
        raise Conflict(
            "the query replaced the state during each attempt to read it",
            code="HF-E4012",
            where=self.where,
            hint="retry; if the error occurs again, raise retain=… of the query's backend",
        )

    def _as_columns(self, key: Sequence[Any], columns: Mapping[str, Any]) -> dict[str, Any]:
        given = {**dict(zip(self.key_columns, key, strict=False)), **columns}
        if len(key) > len(self.key_columns) or set(given) != set(self.key_columns):
            raise Invalid(
                "the given columns do not match the key of the state",
                code="HF-E2205",
                where=self.where,
                found=", ".join(map(str, columns)) or f"{len(key)} values",
                expected=", ".join(self.key_columns)
                if columns
                else f"{len(self.key_columns)} values: " + ", ".join(self.key_columns),
                hint="pass each key column once, by position or by name",
            )
        return given

    def _listed(self) -> tuple[int, str, list[str]]:
        """Return the number of stores that the query has ever had, the generation in use, and its store
        names.
        """
        listing = self._reader.listing()
        operator_id, store = self._wanted
        named = [(match, name) for name in sorted(listing.names) if (match := _NAME.fullmatch(name))]
        places = [(match, name) for match, name in named if (match[3] or "") == listing.generation]
        operators = sorted({int(match[1]) for match, _ in places})
        if not places:
            raise NotFound(
                "no state of this query exists",
                code="HF-E3038",
                where=self.where,
                hint="check the query id with `holdfast checkpoint show CHECKPOINT`; if the query is new,"
                " retry after the first batch",
            )
        if operator_id is None and len(operators) > 1:
            raise Invalid(
                "the query has several operators with state",
                code="HF-E2206",
                where=self.where,
                found=f"operators {', '.join(map(str, operators))}",
                hint="name one of these operators with operator_id=…",
            )
        wanted = operators[0] if operator_id is None else operator_id
        found = [name for match, name in places if (int(match[1]), match[2]) == (wanted, store)]
        if not found:
            there = sorted({f"{match[1]}/{match[2]}" for match, _ in places})
            raise NotFound(
                "unknown state of the query",
                code="HF-E3039",
                where=self.where,
                found=f"{wanted}/{store}",
                expected=", ".join(there),
                hint="pass the number as operator_id=… and the name after it as store=…",
            )
        return len(listing.names), listing.generation, found

    def _schema(self) -> tuple[Struct, Struct, str]:
        _, _, names = self._stores
        facts = self._reader.facts(names[0])
        try:
            key, value, encoder = facts["keySchema"], facts["valueSchema"], facts["encoder"]
        except KeyError:
            raise Unsupported(
                "the schema of the state is not recorded in the database",
                code="HF-E7058",
                where=f"{self._reader.place}, store {names[0]}",
                hint="run one batch of the query with this release of Holdfast",
            ) from None
        return parse_struct(key, self.where), parse_struct(value, self.where), encoder

    def _committed(self) -> tuple[int, DatabaseMoment]:
        """Return the version of the newest committed batch, and the database state that proves it.

        A task that begins with a version proves that the batch that wrote the version is committed; the
        record of the query shows it earlier. Both are valid only for the newest run: a run that went back has
        different batches with the same numbers, and a store that its tasks have not reached yet still shows
        the previous run.
        """
        while True:
            count, generation, names = self._stores
            moment = self._reader.moment(names)
            if (moment.stores, moment.generation) == (count, generation):
                break
            # A partition had its first batch, or the query continues from a restored checkpoint.
            self._stores = self._listed()
        heads = []
        for name, head in zip(names, moment.heads, strict=True):
            if head is None:
                raise NotFound(
                    "the state does not exist in the database",
                    code="HF-E3040",
                    where=f"{self._reader.place}, store {name}",
                    hint="if the query is new, retry after its first batch",
                )
            require_layout(head.layout, self.where)
            heads.append(head)
        followed = {former for head in heads for former in head.retired}
        proved = [(head.run, head.reached) for head in heads]
        if moment.noted is not None and moment.noted[0] in dict(proved):
            run, batch = moment.noted
            proved.append((run, batch + 1))
        return max((version for run, version in proved if run not in followed), default=0), moment

    def _decoded(self, field: bytes, value: bytes, batch_id: int) -> list[SharedRow]:
        return [
            SharedRow(self._keys.decode(key, self.where), self._values.decode(row, self.where), batch_id)
            for key, row in rows_of({field: value}, self._encoder, self.where)
        ]
