"""A SQLite file that several processes share: its tables, its versions and its errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.config.settings import make_file
from holdfast.errors import Corrupt, Unavailable, Unsupported

PATIENCE_S: Final = 15.0
_TRY_AGAIN: Final = (
    "check that the disk is mounted and has free space, then retry: another process may hold a lock"
)


@dataclass(frozen=True, slots=True)
class DatabaseShape:
    """The tables and versions of a shared database.

    Attributes:
        what: The name of the database in error messages.
        version: The version of the tables.
        schema: The statements that create the tables.
        damaged: The hint for a damaged file.
        upgrades: The statements that upgrade each earlier version to the next.
        lasting: Whether a write is on disk when the call returns.
    """

    what: str
    version: int
    schema: Sequence[str]
    damaged: str
    upgrades: Mapping[int, Sequence[str]] = field(default_factory=dict)
    lasting: bool = True


class SharedDatabase:
    """A SQLite database that is fast to open and may be shared by processes.

    Args:
        path: The path of the file, which is created by the first write.
        shape: The tables and versions of the database.
        patience_s: The maximum wait for a lock of a different process, in seconds.
        read_only: Whether to leave everything unchanged, including the permissions of the file and tables of
            an earlier version.
    """

    def __init__(
        self, path: Path, shape: DatabaseShape, patience_s: float = PATIENCE_S, *, read_only: bool = False
    ) -> None:
        self.path = path
        self._shape = shape
        self._patience_s = patience_s
        self._read_only = read_only

    def read(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Return the rows of a query as dicts; none if the file does not exist.

        Raises:
            Unavailable: The file cannot be read, or stays locked.
            Corrupt: The file is not a valid SQLite database.
            Unsupported: A later version of Holdfast wrote the file.
        """
        try:
            if not self.path.exists():
                return []
        except OSError as error:  # for example a network share that is temporarily unavailable
            found = error.strerror or str(error)
            raise Unavailable(
                f"{self._shape.what} cannot be read",
                code="HF-E5053",
                where=str(self.path),
                found=found,
                hint=_TRY_AGAIN,
            ) from error
        with self._connection() as db:
            return [dict(row) for row in db.execute(statement, values)]

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run a transaction, which is applied completely or not at all.

        Raises:
            Unavailable: The file cannot be written, or stays locked.
            Corrupt: The file is not a valid SQLite database.
            Unsupported: A later version of Holdfast wrote the file.
        """
        with self._connection() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        db: sqlite3.Connection | None = None
        what = self._shape.what
        try:
            db = self._open()
            db.row_factory = sqlite3.Row
            # A commit removes the journal last; until that is flushed, a power failure undoes the commit.
            db.execute(f"PRAGMA synchronous = {'EXTRA' if self._shape.lasting else 'OFF'}")
            self._prepare(db)
            yield db
        except sqlite3.OperationalError as error:
            raise Unavailable(
                f"{what} cannot be read or written",
                code="HF-E5054",
                where=str(self.path),
                found=str(error),
                hint=_TRY_AGAIN,
            ) from error
        except sqlite3.DatabaseError as error:
            raise Corrupt(
                f"{what} is damaged",
                code="HF-E6029",
                where=str(self.path),
                found=str(error),
                hint=self._shape.damaged,
            ) from error
        finally:
            if db is not None:
                db.close()

    def _open(self) -> sqlite3.Connection:
        if self._read_only:
            address = f"{self.path.absolute().as_uri()}?mode=ro"
            return sqlite3.connect(address, timeout=self._patience_s, isolation_level=None, uri=True)
        make_file(self.path)  # SQLite gives its journal the same permissions
        return sqlite3.connect(self.path, timeout=self._patience_s, isolation_level=None)

    def _prepare(self, db: sqlite3.Connection) -> None:
        shape = self._shape
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and not self._read_only:
            self._bring(db, version, shape.schema, shape.version)
        elif version in shape.upgrades and not self._read_only:
            self._bring(db, version, shape.upgrades[version], version + 1)
            self._prepare(db)
        elif version != shape.version:
            raise Unsupported(
                f"{shape.what} was written by a different version of Holdfast",
                code="HF-E7105",
                where=str(self.path),
                found=f"format {version}",
                expected=f"format {shape.version}",
                hint="use the version of Holdfast that wrote it, or a different state home",
            )

    @staticmethod
    def _bring(db: sqlite3.Connection, version: int, statements: Sequence[str], to: int) -> None:
        db.execute("BEGIN IMMEDIATE")
        # A different process may have done it while this one waited for the lock.
        if db.execute("PRAGMA user_version").fetchone()[0] == version:
            for statement in statements:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {to}")
        db.execute("COMMIT")
