"""The errors for a table that does not take a batch's rows, or not now, whatever its database."""

from __future__ import annotations

from holdfast.errors import Invalid, NotFound, Unavailable


def came_between(address: str, found: str) -> Unavailable:
    """A deadlock, or what another writer has changed meanwhile."""
    return Unavailable(
        "another transaction came between",
        where=address,
        found=found,
        hint="start the query again: it repeats the batch",
    )


def gone(table: str, address: str, found: str) -> NotFound:
    """There is no such table."""
    return NotFound(
        f"the table {table!r} is gone",
        where=address,
        found=found,
        hint="start the query again: it makes the table anew, without the rows of earlier batches",
    )


def lacks_column(table: str, address: str, found: str) -> Invalid:
    """The query has a column that the table has not."""
    return Invalid(
        f"the table {table!r} lacks a column of the query",
        where=address,
        found=found,
        hint="add the column with ALTER TABLE, or take it out of the query; then start it again",
    )


def breaks_rule(table: str, address: str, found: str) -> Invalid:
    """A row breaks a rule such as UNIQUE."""
    return Invalid(
        f"a row of the batch breaks a rule of the table {table!r}",
        where=address,
        found=found,
        hint="filter such rows out, upsert by the columns of the rule, or drop the rule; no row of"
        " the batch is in the table",
    )


def does_not_fit(table: str, address: str, found: str) -> Invalid:
    """A value is too large for its column, or is none of its type."""
    return Invalid(
        f"a value of the batch does not fit into the table {table!r}",
        where=address,
        found=found,
        hint="give the column a wider type, or filter such rows out; no row of the batch is in the table",
    )
