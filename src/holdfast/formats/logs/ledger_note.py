"""A note in a checkpoint that its query writes through a batch ledger.

A ledger without any batch of a query is either new to the query or has lost all of them. The checkpoint knows
which: from its first batch with a ledger on, it has this note.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast import layout
from holdfast.formats.text import damaged, json_object, whole_number

NOTE: Final = layout.LEDGER
_VERSION: Final = 1
_WHAT = "the note of a ledger"


@dataclass(frozen=True, slots=True)
class LedgerNote:
    """The sinks of a query that have a ledger.

    Attributes:
        query_id: The query that wrote the note; a fork of the checkpoint has a different id.
        first_batches: For each sink the first batch in its ledger.
    """

    query_id: str
    first_batches: Mapping[str, int] = field(default_factory=dict)

    def with_batch(self, query_id: str, sink: str, batch_id: int) -> LedgerNote:
        """Return the note after a query has written a batch to a sink."""
        known = self.first_batches if query_id == self.query_id else {}
        first = min(batch_id, known.get(sink, batch_id))
        return LedgerNote(query_id, {**known, sink: first})

    def has_written(self, query_id: str, sink: str, batch_id: int) -> bool:
        """Return True if the query wrote an earlier batch than this one to the sink."""
        return query_id == self.query_id and self.first_batches.get(sink, batch_id) < batch_id

    def render(self) -> str:
        """Return the file's text."""
        fields = {"version": _VERSION, "query_id": self.query_id, "first_batches": dict(self.first_batches)}
        return json.dumps(fields)


def parse_ledger_note(text: str, where: str) -> LedgerNote:
    """Read a note; one of a later version says nothing here.

    Raises:
        Corrupt: Holdfast cannot have written it.
    """
    fields = json_object(text, _WHAT, where)
    if fields.get("version") != _VERSION:
        return LedgerNote("")
    query_id, first_batches = fields.get("query_id"), fields.get("first_batches")
    if not isinstance(query_id, str) or not isinstance(first_batches, dict):
        raise damaged(_WHAT, where, repr(fields)[:80], "a query id and the first batch of each sink")
    for sink in first_batches:
        whole_number(first_batches, sink, _WHAT, where)
    return LedgerNote(query_id, first_batches)
