"""A query's state in Cassandra, for who reads it without the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.external.cassandra_head import CassandraHead, head_of
from holdfast.external.cassandra_place import CassandraConnection, CassandraPlace
from holdfast.external.cassandra_store import FACTS, HEAD
from holdfast.external.shared_state import Listing, SharedHead
from holdfast.external.store_port import by_bucket, index_of, note_of

_STORES: Final = "SELECT store, facts['layout'] FROM @.state_stores WHERE query = ?"
_QUERY: Final = "SELECT batch_id, run, generation FROM @.state_queries WHERE query = ?"
_READ: Final = (
    "SELECT field, attempt, live, value FROM @.state_rows"
    " WHERE store = ? AND bucket = ? AND field IN ? AND attempt <= ?"
)
_FIELDS_TOGETHER: Final = 50


class CassandraReader:
    """A query's state in Cassandra, as `QueryReader` has it.

    Args:
        place: The database.
        query_id: The query.
        prefix: What all names of stores begin with.

    Raises:
        Unsupported: The library is not installed.
    """

    def __init__(self, place: CassandraPlace, query_id: str, prefix: str) -> None:
        self._connection = place.connect()
        self._index, self._query = index_of(prefix, query_id), note_of(prefix, query_id)
        self.place = str(place)
        self.query_id = query_id

    def listing(self) -> Listing:
        """See `QueryReader`."""
        with self._connection.asked(self._index):
            stores, query = self._connection.ask_all([(_STORES, [self._index]), (_QUERY, [self._query])])
            return Listing(tuple(name for name, _ in stores), _noted(query)[2])

    def facts(self, store: str) -> Mapping[str, str]:
        """See `QueryReader`."""
        with self._connection.asked(store):
            row = self._connection.ask(FACTS, self._index, store).one()
        return dict(row[0] or {}) if row else {}

    def moment(self, stores: Sequence[str]) -> CassandraMoment:
        """See `QueryReader`."""
        with self._connection.asked(self._index):
            query, listed, *found = self._connection.ask_all(
                [(_QUERY, [self._query]), (_STORES, [self._index]), *((HEAD, [name]) for name in stores)]
            )
            layouts = dict(listed)
            heads = [_first_head(rows) for rows in found]
        batch, run, generation = _noted(query)
        return CassandraMoment(
            self._connection,
            tuple(stores),
            tuple(heads),
            len(layouts),
            generation,
            None if run is None or batch is None else (run, batch),
            tuple(
                None
                if head is None
                else SharedHead(layouts.get(name) or "", head.run, head.reached, frozenset(head.retired))
                for name, head in zip(stores, heads, strict=True)
            ),
        )


@dataclass(frozen=True, slots=True)
class CassandraMoment:
    """What Cassandra says of a query and some of its stores, as `Moment` has it."""

    _connection: CassandraConnection
    _names: tuple[str, ...]
    _found: tuple[CassandraHead | None, ...]
    stores: int
    generation: str
    noted: tuple[str, int] | None
    heads: tuple[SharedHead | None, ...]

    def read(self, version: int, fields: Sequence[bytes]) -> dict[bytes, bytes] | None:
        """See `Moment`."""
        asked = [
            (bucket, some[first : first + _FIELDS_TOGETHER])
            for bucket, some in by_bucket(fields).items()
            for first in range(0, len(some), _FIELDS_TOGETHER)
        ]
        lineages = [None if head is None else head.lineage(version) for head in self._found]
        questions = [
            (name, bucket, some, lineage)
            for name, lineage in zip(self._names, lineages, strict=True)
            if lineage is not None
            for bucket, some in asked
        ]
        if None in lineages:
            return None
        found: dict[bytes, bytes] = {}
        with self._connection.asked(self._names[0]):
            answers = self._connection.ask_all(
                [(_READ, [name, bucket, some, lineage.last]) for name, bucket, some, lineage in questions]
            )
            for (_, _, _, lineage), rows in zip(questions, answers, strict=True):
                seen: set[bytes] = set()
                for field, attempt, live, value in rows:
                    # The newest row of a field comes first.
                    if lineage.has(attempt) and field not in seen:
                        seen.add(field)
                        if live:
                            found[field] = value
            heads = self._connection.ask_all([(HEAD, [name]) for name in self._names])
            now = [_first_head(rows) for rows in heads]
        # What a version consists of is not cleaned while it is kept, and another one has another attempt.
        same = all(
            head is not None and head.versions.get(version) == lineage.last
            for head, lineage in zip(now, lineages, strict=True)
            if lineage is not None
        )
        return found if same else None


def _noted(rows: Any) -> tuple[int | None, str | None, str]:
    """The batch that was committed last, its run, and the generation of the stores in use."""
    row = rows.one()
    return (None, None, "") if row is None else (row[0], row[1], row[2] or "")


def _first_head(rows: Any) -> CassandraHead | None:
    row = rows.one()
    return None if row is None else head_of(row)
