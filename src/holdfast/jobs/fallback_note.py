"""The note of an unfinished fallback, which is stored next to the checkpoint.

The note may be written by anyone who may write to the checkpoint, and a supervisor on a different machine has
to find it. So it names no paths, which follow from its location.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Final

from holdfast.errors import Corrupt
from holdfast.formats.text import decoded, json_object, string, whole_number
from holdfast.storage.port import Storage

# The end of the note's name, after a dot and the name of the checkpoint.
NOTE: Final = ".holdfast.fallback.json"
WHAT: Final = "the file of an unfinished fallback"
DELETE: Final = "delete this file if the checkpoint next to it is undamaged"
# The reason of a fallback; on a local disk, a part of the new name of the checkpoint that is moved aside.
DAMAGED: Final = "damaged"
UPGRADED: Final = "upgraded"
_STAMP: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")


@dataclass(frozen=True, slots=True)
class FallbackNote:
    """The content of a note.

    Attributes:
        query: The query.
        why: The reason: `damaged` or `upgraded`.
        stamp: The time when the fallback began, such as 20260305T080000Z.
        savepoint: The address of the savepoint from which the older state is restored.
        batch_id: The savepoint's batch.
        newest: The newest committed batch of the damaged checkpoint.
        number: The number of the successor; None on a local disk.
    """

    query: str
    why: str
    stamp: str
    savepoint: str
    batch_id: int
    newest: int
    number: int | None = None

    def render(self) -> bytes:
        """Return the bytes of the note."""
        return json.dumps({key: value for key, value in asdict(self).items() if value is not None}).encode()


def read_note(storage: Storage, name: str, where: str) -> FallbackNote:
    """Read a note.

    Args:
        storage: The directory of the note.
        name: The name of the note.
        where: The address of the note, for errors.

    Raises:
        Corrupt: The note is damaged.
        Unavailable: The storage does not answer.
    """
    try:
        fields = json_object(decoded(storage.read(name), WHAT, where), WHAT, where)
        query, stamp, savepoint = (
            string(fields, key, WHAT, where) for key in ("query", "stamp", "savepoint")
        )
        batch_id, newest = (whole_number(fields, key, WHAT, where) for key in ("batch_id", "newest"))
        why = string(fields, "why", WHAT, where) if "why" in fields else DAMAGED
        number = whole_number(fields, "number", WHAT, where) if "number" in fields else None
    except Corrupt as error:
        raise damaged_note(where, error.found or error.fact, error.expected) from error
    if why not in (DAMAGED, UPGRADED):
        raise damaged_note(where, f"the reason {why!r}", f"{DAMAGED} or {UPGRADED}")
    if not _STAMP.fullmatch(stamp):
        raise damaged_note(where, f"the time {stamp!r}", "a time such as 20260305T080000Z")
    return FallbackNote(query, why, stamp, savepoint, batch_id, newest, number)


def damaged_note(where: str, found: str, expected: str | None) -> Corrupt:
    """Return the error for a note with this content."""
    return Corrupt(
        f"{WHAT} is damaged", code="HF-E6037", where=where, found=found, expected=expected, hint=DELETE
    )
