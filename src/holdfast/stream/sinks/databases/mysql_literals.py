"""Arrow batches as INSERT statements of MySQL.

The driver writes values one by one in Python. Here Arrow writes a column at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from holdfast.errors import Invalid
from holdfast.formats.sql_names import sql_identifier
from holdfast.stream.sinks.databases.database import TASK

# A server takes 16 MiB or more in a packet, unless told otherwise. A longer row is a statement of its own.
MOST_CHARACTERS: Final = 1 << 20


def insert_statements(table: str, batch: Any, task: int) -> Iterator[str]:
    """Statements that insert a batch's rows into a staging table, each of many rows.

    Args:
        table: The table, as SQL names it.
        batch: An Arrow record batch.
        task: What the column of the task holds.

    Raises:
        Invalid: A number is infinite, which MySQL has no value for.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = ", ".join([*map(sql_identifier, batch.schema.names), TASK])
    head = f"INSERT INTO {table} ({names}) VALUES "  # noqa: S608  quoted names
    parts = [pc.fill_null(_literals(column), "NULL") for column in batch.columns]
    rows = pc.binary_join_element_wise(*parts, pa.scalar(f"{task})"), ",").to_pylist()
    begin, length = 0, 0
    for at, row in enumerate(rows):
        if at > begin and length + len(row) > MOST_CHARACTERS:
            yield head + "(" + ",(".join(rows[begin:at])
            begin, length = at, 0
        length += len(row) + 2
    if rows:
        yield head + "(" + ",(".join(rows[begin:])


def _literals(column: Any) -> Any:
    """A column's values as literals; null stays null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        if pc.any(pc.is_inf(column)).as_py():
            raise Invalid(
                "MySQL has no value for infinity",
                found="an infinite number in a row",
                hint="filter such rows out, or make them null; no row of the batch is in the table",
            )
        number = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        return number.cast(pa.float64()).cast(pa.string())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        values = [None if value is None else f"x'{value.hex()}'" for value in column.to_pylist()]
        return pa.array(values, pa.string())
    if pa.types.is_timestamp(kind):
        # A time comes without its zone, as UTC has it.
        column = column.cast(pa.timestamp("us"))
    text = column.cast(pa.string())
    for sign in ("\\", "'"):
        text = pc.replace_substring(text, sign, "\\" + sign)
    return pc.binary_join_element_wise("'", text, "'", "")
