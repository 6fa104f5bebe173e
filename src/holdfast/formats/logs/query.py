"""The file `metadata`: which query a checkpoint belongs to."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from holdfast.formats.text import compact, damaged, decoded, json_object, string

_WHAT = "the query's metadata"


@dataclass(frozen=True, slots=True)
class QueryMetadata:
    """A query's id, which it keeps for life. Sinks such as Delta tell by it what they have already taken."""

    query_id: str

    def render(self) -> bytes:
        """The file."""
        return compact({"id": self.query_id}).encode()


def parse_query(data: bytes, where: str) -> QueryMetadata:
    """Read the file.

    Raises:
        Corrupt: It holds no id.
    """
    query_id = string(json_object(decoded(data, _WHAT, where), _WHAT, where), "id", _WHAT, where)
    try:
        uuid.UUID(query_id)
    except ValueError as error:
        raise damaged(_WHAT, where, repr(query_id), "a UUID") from error
    return QueryMetadata(query_id)
