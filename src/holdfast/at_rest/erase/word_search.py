"""Look for the text of a key in files that are no state: logs, notes, databases."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from holdfast.at_rest.erase.matching import Subject
from holdfast.formats.sql_names import sql_identifier

_CHUNK: Final = 1 << 20
# A shorter key counts only where it is a word: `7` is in nearly every file.
_LONG: Final = 4
_WORD: Final = rb"[A-Za-z0-9_\x80-\xff]"
_SQLITE: Final = b"SQLite format 3\0"


class WordSearch:
    """Finds the text of a key, as people, logs and JSON write it.

    A long key is found in other words too; a short one only as a word of its own. It is not found where it is
    compressed or encoded.

    Args:
        subject: Who is meant.
    """

    def __init__(self, subject: Subject) -> None:
        forms = {form for value in subject.values.values() for form in _forms(value)}
        self._longest = max(map(len, forms))
        self._pattern = re.compile(b"|".join(_pattern(form) for form in sorted(forms)))

    def is_in(self, data: bytes) -> bool:
        """Whether the text is in these bytes."""
        return self._pattern.search(data) is not None

    def without(self, text: str) -> str:
        """A text with every place of it taken out."""
        return self._pattern.sub(b"[erased]", text.encode()).decode(errors="replace")

    def is_in_file(self, path: Path) -> bool:
        """Whether the text is in a file; of an SQLite database, also in a row that its pages tear apart.

        Raises:
            OSError: The file cannot be read.
        """
        with path.open("rb") as file:
            before = file.read(_CHUNK)
            database = before.startswith(_SQLITE)
            while before:
                after = file.read(_CHUNK)
                # What lies across two pieces is in the second look, with its neighbours.
                if self.is_in(before + after[: self._longest + 2]):
                    return True
                before = before[-self._longest - 2 :] + after if after else b""
        return database and any(self.is_in(text) for text in _cells(path))


def _forms(value: Any) -> Iterator[bytes]:
    text = str(value)
    yield text.encode()
    yield json.dumps(text)[1:-1].encode()
    yield json.dumps(text, ensure_ascii=False)[1:-1].encode()


def _pattern(form: bytes) -> bytes:
    if len(form) >= _LONG:
        return re.escape(form)
    # In JSON a line's first word stands behind `\n`, whose letter is none of the word.
    return rb"(?:(?<!%b)|(?<=\\[nrt]))%b(?!%b)" % (_WORD, re.escape(form), _WORD)


def _cells(path: Path) -> Iterator[bytes]:
    """Every value of every row of a database."""
    # Without a write-ahead log SQLite would make one for a reader too.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    with (
        suppress(sqlite3.DatabaseError),  # its bytes were searched; more cannot be read out of it
        closing(sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True)) as database,
    ):
        database.text_factory = bytes
        tables = [
            row[0].decode() for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in tables:
            for row in database.execute(f"SELECT * FROM {sql_identifier(table)}"):  # noqa: S608 - a name of the database itself
                for value in row:
                    if value is not None:
                        yield value if isinstance(value, bytes) else str(value).encode()
