"""The batch ledger's database in an SQLite file."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from holdfast.errors import Corrupt, HoldfastError, NotFound, Unavailable
from holdfast.stream.sinks.database import TABLES, Database, breaks_rule, gone, lacks_column

# SQLite has no types for decimals and times. Text keeps every digit, and ISO 8601 in UTC sorts by time.
COLUMN_TYPES = {
    "tinyint": "INTEGER",
    "smallint": "INTEGER",
    "int": "INTEGER",
    "bigint": "INTEGER",
    "float": "REAL",
    "double": "REAL",
    "decimal": "TEXT",
    "string": "TEXT",
    "boolean": "BOOLEAN",
    "timestamp": "TEXT",
    "timestamp_ntz": "TEXT",
    "date": "TEXT",
    "binary": "BLOB",
}

# Messages of SQLite and their result codes; Python 3.10 gives only the message.
_CODES: Final = {
    "database is locked": 5,
    "database table is locked": 6,
    "attempt to write a readonly database": 8,
    "disk I/O error": 10,
    "database disk image is malformed": 11,
    "database or disk is full": 13,
    "unable to open database file": 14,
    "file is not a database": 26,
}
_LOCKED: Final = (5, 6)
_UNWRITABLE: Final = (8, 10, 13, 14)
_DAMAGED: Final = (11, 26)


def _code(error: BaseException) -> int | None:
    """Return the primary result code of an error, the lowest byte of an extended code."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return code & 0xFF
    return _CODES.get(str(error)) if isinstance(error, sqlite3.DatabaseError) else None


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _instant(value: dt.datetime) -> str:
    return value.isoformat(sep=" ", timespec="microseconds")


ADAPTERS: Mapping[str, Callable[[Any], object]] = {
    "decimal": _decimal,
    "timestamp": _instant,
    "timestamp_ntz": _instant,
    "date": dt.date.isoformat,
}


@dataclass(frozen=True, slots=True)
class SQLite(Database):
    """A ledger's database in an SQLite file. A writer locks the complete file until its commit."""

    mark = "?"
    begins = "BEGIN IMMEDIATE"
    row_lock = ""  # the BEGIN statement has locked the file

    path: Path
    patience_s: float

    @property
    def address(self) -> str:
        """Return the path of the file."""
        return str(self.path)

    def connect(self, sink: str, token: int | None = None) -> sqlite3.Connection:  # noqa: ARG002
        """Open the file; create it if missing."""
        if not self.path.parent.is_dir():
            raise NotFound(
                "the ledger's directory does not exist",
                code="HF-E3064",
                where=str(self.path.parent),
                hint=f"create the directory with `mkdir -p {self.path.parent}`",
            )
        # No isolation level, so that sqlite3 does not begin and commit by itself.
        connection = sqlite3.connect(self.path, timeout=self.patience_s, isolation_level=None)
        try:
            # A batch counts as written when COMMIT returns, so a power failure must not undo it.
            connection.execute("PRAGMA synchronous = EXTRA")
            for table in TABLES:
                connection.execute(table)
        except BaseException:
            connection.close()
            raise
        return connection

    def in_transaction(self, connection: sqlite3.Connection) -> bool:
        """Return whether a transaction is open; some errors, such as a full disk, end it."""
        return connection.in_transaction

    def evict(self, sink: str) -> bool:  # noqa: ARG002
        """Return False, because SQLite cannot end the process that holds a lock."""
        return False

    def translate(self, error: BaseException) -> HoldfastError | None:
        """Return the error for a locked, full, unreadable or damaged file, or None for a wrong statement."""
        text, code = str(error), _code(error)
        if code in _DAMAGED:
            return Corrupt(
                "the ledger is not an SQLite database, or it is damaged",
                code="HF-E6056",
                where=self.address,
                found=text,
                hint="restore the file from a backup, or give the path of a different file",
            )
        if code in _LOCKED:
            return Unavailable(
                "the ledger is locked by a different process",
                code="HF-E5065",
                where=self.address,
                found=f"still locked after {self.patience_s:g} s",
                hint=f"find the process with `fuser {self.path}`; if it does not end by itself, end it",
            )
        if code in _UNWRITABLE:
            return Unavailable(
                "the ledger cannot be opened or written",
                code="HF-E5066",
                where=self.address,
                found=text,
                hint="check the file's permissions with `ls -l` and the free disk space with `df`",
            )
        return None

    def refused(self, error: BaseException, table: str) -> HoldfastError | None:
        """Return the error for a missing table, a missing column or a rejected row, or None for others."""
        text = str(error)
        if isinstance(error, sqlite3.IntegrityError):
            return breaks_rule(table, self.address, text)
        if isinstance(error, sqlite3.OperationalError) and "no such table" in text:
            return gone(table, self.address, text)
        if isinstance(error, sqlite3.OperationalError) and "has no column" in text:
            return lacks_column(table, self.address, text)
        return None

    def column_type(self, kind: str) -> str | None:
        """Return the declared type of a column for a Spark type."""
        return COLUMN_TYPES.get(kind.partition("(")[0])

    def load(
        self,
        connection: sqlite3.Connection,
        table: str,
        kinds: Sequence[str],
        rows: Iterable[tuple[Any, ...]],
    ) -> int:
        """Insert rows into a temporary table, which is a separate file, so that nothing is locked."""
        adapters = [ADAPTERS.get(kind.partition("(")[0]) for kind in kinds]
        adapted = (
            tuple(
                adapt(value) if adapt and value is not None else value
                for adapt, value in zip(adapters, row, strict=True)
            )
            for row in rows
        )
        marks = ", ".join("?" * len(kinds))
        connection.execute("BEGIN")
        cursor = connection.executemany(f"INSERT INTO {table} VALUES ({marks})", adapted)  # noqa: S608  ours
        connection.execute("COMMIT")
        return max(cursor.rowcount, 0)
