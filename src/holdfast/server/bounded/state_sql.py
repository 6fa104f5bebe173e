"""The process that answers one query over state: it reads the states, plans and runs within its bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

from holdfast.errors import Invalid
from holdfast.server.bounded.bounded_work import Facts, run

MODULE: Final = "holdfast.server.bounded.state_sql"
_THREADS: Final = 2
_INT64: Final = 1 << 63


def lines(question: Facts, facts: Facts) -> Iterator[bytes]:
    """The rows of the answer as JSON, as many as fit; `facts` says whether there are more.

    Args:
        question: `address`, `batch`, `sql`, `rows` and `bytes` at most; `databases` that may be connected to.
        facts: Filled with `columns`, `more` and `left_out`.

    Raises:
        Invalid: The query is wrong, or its first row alone is too large.
    """
    from holdfast.at_rest.read.state_reader import StateReader
    from holdfast.external.named_addresses import name_database
    from holdfast.formats.rows.plain import plain
    from holdfast.savepoints.places import place_of

    for database in question["databases"]:
        name_database(database)
    place = place_of(question["address"], question["batch"])
    reader = StateReader(place.storage, place.batch_id)
    left_rows, left_bytes = int(question["rows"]), int(question["bytes"])
    facts.update(more=False, left_out=None)
    with reader.asked(question["sql"], most_rows=left_rows + 1, threads=_THREADS) as answer:
        names = facts["columns"] = list(answer.schema.names)
        whole = [name for name in names if str(answer.schema.field(name).type) == "decimal128(38, 0)"]
        for batch in answer:
            for row in batch.to_pylist():
                if left_rows == 0:
                    facts.update(more=True, left_out="rows")
                    return
                line = _encoded(plain(_with_whole_numbers(row, whole)))
                left_bytes -= len(line) + 1
                if left_bytes < 0:
                    _check_some(left_rows, question)
                    facts.update(more=True, left_out="bytes")
                    return
                left_rows -= 1
                yield line


def _check_some(left_rows: int, question: Facts) -> None:
    if left_rows == question["rows"]:
        raise Invalid(
            "a row of the answer is larger than an answer may be",
            expected=f"{question['bytes']:,} bytes at most",
            hint="ask for fewer columns or for parts of a value, as with `left(column, 1000)`",
        )


def _with_whole_numbers(row: dict[str, Any], whole: list[str]) -> dict[str, Any]:
    """DuckDB's sums of whole numbers are decimals of 38 digits."""
    for name in whole:
        value = row[name]
        if isinstance(value, Decimal) and -_INT64 <= value < _INT64:
            row[name] = int(value)
    return row


def _encoded(row: Any) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=str).encode(
        "utf-8", "surrogatepass"
    )


if __name__ == "__main__":
    run(lines)
