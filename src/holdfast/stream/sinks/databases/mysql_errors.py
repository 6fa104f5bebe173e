"""What the numbers of MySQL's and MariaDB's errors mean to a ledger."""

from __future__ import annotations

from typing import Final

from holdfast.errors import HoldfastError, Unavailable
from holdfast.stream.sinks.databases.table_errors import (
    breaks_rule,
    came_between,
    does_not_fit,
    gone,
    lacks_column,
)

LOCKED: Final = frozenset((1205,))  # lock wait timeout
CAME_BETWEEN: Final = frozenset((1020, 1213))  # record has changed, deadlock
REPEATED: Final = frozenset((1062, 1169, 1557, 1586))  # a second row of a unique key
_FULL: Final = frozenset((1021, 1114))  # disk full, table is full
_GONE: Final = frozenset((1146,))  # no such table
_LACKS_COLUMN: Final = frozenset((1054,))  # unknown column
_BREAKS_RULE: Final = frozenset(
    (
        *(1048, 1364),  # null, or no value for a column that has no default
        *REPEATED,
        *(1216, 1217, 1451, 1452),  # foreign keys
        *(3819, 4025),  # CHECK, of MySQL and of MariaDB
    )
)
_DOES_NOT_FIT: Final = frozenset(
    (
        *(1153, 1406),  # larger than a packet, or than the column
        *(1264, 1367, 1690),  # a number that is too large
        *(1265, 1292, 1366, 1411, 3140, 3854),  # no value of the type
    )
)
_AWAY: Final = frozenset(
    (
        *(0, *range(2000, 2062)),  # the client's own: no connection, or one that was lost
        *(1040, 1129, 1203, 1226),  # too many connections
        *(1042, 1043, 1044, 1045, 1049, 1130),  # not let in, or no such database
        *(1053, 1077, 1079),  # shutting down
        *(1152, 1158, 1159, 1160, 1161, 1184),  # the network
        *(1290, 1792, 1836),  # read-only, such as a standby
        *(1317, 1927, 3169, 4031),  # ended by somebody
    )
)


def numbered(error: BaseException) -> tuple[int, str]:
    """The number of a driver's error, and what it says in one line."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else -1
    text = str(error.args[1] if len(error.args) > 1 else error)
    return number, text.partition("\n")[0] or type(error).__name__


def of_server(error: BaseException, address: str, patience_s: float) -> HoldfastError | None:
    """The error for a server that is away, full or locked; None for a wrong statement."""
    number, text = numbered(error)
    if number in LOCKED:
        return Unavailable(
            "the ledger is locked by another session",
            where=address,
            found=f"still locked after {patience_s:g} s",
            hint="see SHOW PROCESSLIST for the session",
        )
    if number in CAME_BETWEEN:
        return came_between(address, text)
    if number in _FULL:
        return Unavailable(
            "the disk of the MySQL server is full",
            where=address,
            found=text,
            hint="make room on the server's disk, then start the query again: it repeats the batch",
        )
    if number in _AWAY:
        return Unavailable(
            "the ledger's MySQL server cannot be reached, or ended the session",
            where=address,
            found=text,
            hint="see whether the server runs: `mysqladmin ping`; the query goes on where it stopped",
        )
    return None


def of_table(error: BaseException, address: str, table: str) -> HoldfastError | None:
    """The error for a table that does not take a batch's rows; None if that is not why it failed."""
    number, text = numbered(error)
    for numbers, told in (
        (_GONE, gone),
        (_LACKS_COLUMN, lacks_column),
        (_BREAKS_RULE, breaks_rule),
        (_DOES_NOT_FIT, does_not_fit),
    ):
        if number in numbers:
            return told(table, address, text)
    return None
