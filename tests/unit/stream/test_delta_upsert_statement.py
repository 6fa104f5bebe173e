"""The MERGE of a batch, and how often it is tried."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StringType, StructType

from holdfast.errors import Invalid, Unavailable
from holdfast.stream.sinks.delta_upsert import DeltaUpsert

SCHEMA = StructType().add("customer", StringType()).add("amount", LongType()).add("a`b", StringType())


def upsert(target: str = "/tables/t", keys: tuple[str, ...] = ("customer",), **given: Any) -> DeltaUpsert:
    options: dict[str, Any] = {"delete_when": None, "is_path": True, "evolves": False, **given}
    return DeltaUpsert.of(target, SCHEMA, keys, **options)


def test_the_statement_of_a_batch() -> None:
    assert upsert().statement() == (
        "MERGE INTO delta.`/tables/t` t"
        " USING (SELECT *, false AS holdfast_deletes FROM holdfast_batch) s ON t.`customer` = s.`customer`"
        " WHEN MATCHED THEN UPDATE SET t.`amount` = s.`amount`, t.`a``b` = s.`a``b`"
        " WHEN NOT MATCHED AND NOT s.holdfast_deletes THEN INSERT (`customer`, `amount`, `a``b`)"
        " VALUES (s.`customer`, s.`amount`, s.`a``b`)"
    )


def test_the_statement_with_deletions_and_new_columns() -> None:
    table = upsert("shop.totals", is_path=False, evolves=True, delete_when="amount < 0 OR `a``b` = 'x'")
    assert table.statement().startswith(
        "MERGE WITH SCHEMA EVOLUTION INTO shop.totals t"
        " USING (SELECT *, coalesce(amount < 0 OR `a``b` = 'x', false) AS holdfast_deletes"
        " FROM holdfast_batch) s ON t.`customer` = s.`customer`"
        " WHEN MATCHED AND s.holdfast_deletes THEN DELETE WHEN MATCHED THEN UPDATE SET"
    )


def test_a_row_that_is_all_key_is_there_or_not() -> None:
    assert "UPDATE" not in upsert(keys=("customer", "amount", "a`b")).statement()


@pytest.mark.parametrize("keys", [(), ("nobody",), ("customer", "customer")])
def test_keys_that_are_none_are_refused(keys: tuple[str, ...]) -> None:
    with pytest.raises(Invalid, match="invalid key columns for an upsert"):
        upsert(keys=keys)


class Session:
    """Answers as Delta does where other writers were quicker so many times."""

    def __init__(self, conflicts: int, text: str) -> None:
        self.conflicts, self.text, self.asked = conflicts, text, 0

    def sql(self, statement: str) -> None:
        assert statement.startswith("MERGE")
        self.asked += 1
        if self.asked <= self.conflicts:
            raise RuntimeError(self.text)


CONFLICT = "[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict detected."


@pytest.mark.parametrize(
    "text", [CONFLICT, "io.delta.exceptions.ConcurrentDeleteReadException: a file was deleted"]
)
def test_a_conflict_is_tried_again(text: str) -> None:
    session, waits = Session(4, text), list[float]()
    upsert().merge(session, waits.append)  # type: ignore[arg-type]  # what it calls of a session is there
    assert session.asked == 5
    assert waits == [0.1, 0.2, 0.4, 0.8]


def test_conflicts_without_end_are_told() -> None:
    session, waits = Session(99, CONFLICT), list[float]()
    with pytest.raises(Unavailable, match="concurrent writers in every attempt") as caught:
        upsert().merge(session, waits.append)  # type: ignore[arg-type]  # as above
    assert session.asked == 10
    assert max(waits) == 5.0
    assert "10 conflicts" in str(caught.value.found)


def test_what_is_no_conflict_is_passed_on() -> None:
    session = Session(1, "[DELTA_MERGE_UNRESOLVED_EXPRESSION] cannot resolve")
    with pytest.raises(RuntimeError, match="UNRESOLVED"):
        upsert().merge(session, lambda _: None)  # type: ignore[arg-type]  # as above
    assert session.asked == 1
