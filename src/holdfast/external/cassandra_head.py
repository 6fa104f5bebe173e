"""What a store's row in Cassandra's `state_head` says; `jvm/` says how a store lies there, and changes it.

The tables and the arithmetic are those of `CassandraSession` and `CassandraHead` there; tests compare.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import Any, Final

# Later than any step of an attempt.
DELETED: Final = 1 << 50
GRACE: Final = "gc_grace_seconds = 86400"
TABLES: Final[Mapping[str, str]] = {
    "state_head": (
        "(store text PRIMARY KEY, generation bigint, run text, retired frozen<list<text>>, reached bigint,"
        " next bigint, versions frozen<map<bigint, bigint>>, fields frozen<map<bigint, bigint>>,"
        " open frozen<set<bigint>>, dead frozen<map<bigint, bigint>>, unfolded frozen<set<bigint>>,"
        " undeleted frozen<set<bigint>>)"
    ),
    "state_rows": (
        "(store text, bucket int, field blob, attempt bigint, live boolean, value blob,"
        " present boolean static, PRIMARY KEY ((store, bucket), field, attempt))"
        " WITH CLUSTERING ORDER BY (field ASC, attempt DESC)"
        f" AND compaction = {{'class': 'LeveledCompactionStrategy'}} AND {GRACE}"
    ),
    "state_changes": (
        "(store text, attempt bigint, part int, fields blob, PRIMARY KEY ((store, attempt), part))"
        f" WITH {GRACE}"
    ),
    "state_stores": "(query text, store text, facts frozen<map<text, text>>, PRIMARY KEY (query, store))",
    "state_queries": "(query text PRIMARY KEY, batch_id bigint, run text, generation text)",
}


@dataclass(frozen=True, slots=True)
class Lineage:
    """The attempts whose rows count at a version.

    Attributes:
        floor: Up to this attempt every one counts that is not dead.
        dead: The dead ones, as ranges from first to last, ascending.
        attempts: Those that count of the later ones.
        last: No row of a later attempt needs to be read.
    """

    floor: int
    dead: Sequence[tuple[int, int]]
    attempts: frozenset[int]
    last: int

    def has(self, attempt: int) -> bool:
        """Whether an attempt's rows count."""
        if attempt > self.floor:
            return attempt in self.attempts
        at = bisect_right(self.dead, attempt, key=itemgetter(0))
        return at == 0 or attempt > self.dead[at - 1][1]


@dataclass(frozen=True, slots=True)
class CassandraHead:
    """The head of a store, with its fields in the order of the columns.

    Attributes:
        generation: What each change makes greater by one.
        run: The query run that may write; nothing where no query has begun.
        retired: The runs before it, the last one first.
        reached: The version that the run's newest batch began with.
        next: The last attempt's number.
        versions: The kept versions, each with the attempt that made it.
        fields: How many fields each of them has.
        open: The attempts that may commit.
        dead: The attempts that do not count, as ranges from first to last.
        unfolded: Committed attempts whose replaced rows nobody has deleted yet.
        undeleted: Dead attempts whose rows nobody has deleted yet.
    """

    generation: int
    run: str
    retired: tuple[str, ...]
    reached: int
    next: int
    versions: Mapping[int, int]
    fields: Mapping[int, int]
    open: frozenset[int]
    dead: Mapping[int, int]
    unfolded: frozenset[int]
    undeleted: frozenset[int]

    @property
    def newest(self) -> int:
        """The newest version."""
        return max(self.versions)

    def lineage(self, version: int) -> Lineage | None:
        """Which rows a reader of a version counts; None where it is not kept."""
        if version not in self.versions:
            return None
        until = frozenset(attempt for kept, attempt in self.versions.items() if kept <= version)
        dead = sorted(self.dead.items())
        return Lineage(self.versions[min(self.versions)], dead, until, self.versions[version])

    def begun(self) -> CassandraHead:
        """The same store emptied, with one attempt that may make it: all before are dead.

        For a store that no query has begun on. What the attempts before have written has to be deleted
        without the notes of changes, which only the state stores of Spark write.
        """
        return replace(
            self.emptied(),
            next=self.next + 1,
            open=frozenset({self.next + 1}),
            generation=self.generation + 1,
        )

    def emptied(self) -> CassandraHead:
        """The same store without a version but the empty one. Numbers go on: no attempt has one of these."""
        return replace(
            EMPTY, generation=self.generation + 1, next=self.next, dead={1: self.next} if self.next else {}
        )

    def made(self, version: int, count: int) -> CassandraHead:
        """The same store with the version that its one attempt has made, whose rows are all there are."""
        return replace(
            self,
            generation=self.generation + 1,
            reached=version,
            versions={version: self.next},
            fields={version: count},
            open=frozenset(),
        )

    def values(self) -> list[Any]:
        """What the columns are to be."""
        return [_stored(getattr(self, name)) for name in COLUMNS]


COLUMNS: Final = tuple(field.name for field in fields(CassandraHead))
EMPTY: Final = CassandraHead(
    generation=1,
    run="",
    retired=(),
    reached=0,
    next=0,
    versions={0: 0},
    fields={0: 0},
    open=frozenset(),
    dead={},
    unfolded=frozenset(),
    undeleted=frozenset(),
)


def head_of(row: Iterable[Any]) -> CassandraHead:
    """The head out of its columns; what is empty comes as nothing."""
    generation, run, retired, reached, last, versions, counts, open_, dead, unfolded, undeleted = row
    return CassandraHead(
        generation,
        run,
        tuple(retired or ()),
        reached,
        last,
        dict(versions or {}),
        dict(counts or {}),
        frozenset(open_ or ()),
        dict(dead or {}),
        frozenset(unfolded or ()),
        frozenset(undeleted or ()),
    )


def _stored(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return set(value) if isinstance(value, frozenset) else value
