"""The head of a store in Cassandra, as Python reads and makes it: by the rules of Spark's state stores."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from holdfast.external.cassandra_store import COLUMNS, DELETED, EMPTY, GRACE, TABLES, head_of

SCALA = Path(__file__).parents[3] / "jvm/src/holdfast/state"


def plain(text: str) -> str:
    """A text without the margins and breaks of its lines."""
    return " ".join(re.sub(r"(?m)^\s*\|", " ", text).split())


def test_tables_are_those_of_the_state_stores() -> None:
    """Whoever comes first makes them."""
    source = (SCALA / "CassandraPlace.scala").read_text(encoding="utf-8")
    made = source[source.index("private val Tables") :]
    texts = {
        name: (raw or text).replace("$Grace", GRACE)
        for name, raw, text in re.findall(
            r'"(\w+)" ->\s+s?(?:"""(.*?)"""(?:\.stripMargin)|"(.*?)")', made, re.DOTALL
        )
    }
    assert {name: plain(text) for name, text in texts.items()} == dict(TABLES)
    assert f'private val Grace = "{GRACE}"' in source
    assert "private val Deleted = 1L << 50" in source
    assert DELETED == 1 << 50


def test_columns_are_those_of_the_head() -> None:
    source = (SCALA / "CassandraHead.scala").read_text(encoding="utf-8")
    fields = source.partition("final case class CassandraHead(")[2].partition(")")[0]
    assert tuple(re.findall(r"(\w+):", fields)) == COLUMNS


def test_a_version_counts_the_attempts_that_have_led_to_it() -> None:
    """Versions 5, 6 and 7 by attempts 9, 12 and 13; what died before is below 9."""
    head = replace(
        EMPTY, versions={5: 9, 6: 12, 7: 13}, dead={2: 3, 7: 8, 10: 11}, next=14, open=frozenset({14})
    )
    counted = {
        version: [
            attempt for attempt in range(16) if (lineage := head.lineage(version)) and lineage.has(attempt)
        ]
        for version in (4, 5, 6, 7, 8)
    }
    up_to_nine = [0, 1, 4, 5, 6, 9]
    assert counted == {
        4: [],
        5: up_to_nine,
        6: [*up_to_nine, 12],
        7: [*up_to_nine, 12, 13],
        8: [],
    }
    newest, older = head.lineage(7), head.lineage(6)
    assert newest is not None
    assert older is not None
    assert (newest.last, older.last) == (13, 12)
    assert head.newest == 7


def test_a_store_that_is_made_is_one_that_a_query_goes_on_with() -> None:
    """One version, which one attempt has made, and nothing to be cleaned."""
    begun = EMPTY.begun()
    assert (begun.next, begun.open, begun.versions, begun.dead) == (1, frozenset({1}), {0: 0}, {})
    made = begun.made(8, 100)
    assert made == replace(
        EMPTY, generation=made.generation, reached=8, next=1, versions={8: 1}, fields={8: 100}
    )
    assert made.generation > begun.generation > EMPTY.generation


def test_what_a_killed_try_has_left_never_counts() -> None:
    """Not while the next is under way, not when it has ended, and not in a version of a query."""
    made = EMPTY.begun().begun().made(3, 10).begun()
    assert (made.versions, made.dead, made.open, made.next) == ({0: 0}, {1: 2}, frozenset({3}), 3)
    whole = made.made(3, 11)
    lineage = whole.lineage(3)
    assert lineage is not None
    assert [attempt for attempt in range(5) if lineage.has(attempt)] == [0, 3]
    emptied = whole.emptied()
    assert (emptied.versions, emptied.dead, emptied.next, emptied.open) == ({0: 0}, {1: 3}, 3, frozenset())


def test_columns_that_are_empty_come_as_nothing() -> None:
    assert head_of([4, "", None, 0, 0, {0: 0}, {0: 0}, None, None, None, None]) == replace(
        EMPTY, generation=4
    )
    head = replace(EMPTY, retired=("b", "a"), open=frozenset({7}), undeleted=frozenset({3}))
    assert head_of(head.values()) == head
