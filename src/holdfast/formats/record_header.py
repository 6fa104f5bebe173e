"""The header that tells a record of a topic apart from a repeat of it.

A record that `hf.sink(…).kafka(…)` writes has one header more, `holdfast-record`, of four words in ASCII with
a space between them:

    <query id> <batch> <generation> <identity>

The identity is the same in each repeat of the batch for the same record, and of no other record of the batch.
The generation counts the owners of a sink with a ledger; it is `-` for a sink without one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

RECORD_HEADER: Final = "holdfast-record"
NO_GENERATION: Final = "-"
_DIGITS: Final = 19  # of Java's `Long`, which batch ids are
# The column that Spark's source and sink have them in.
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """The header of a record.

    Attributes:
        query_id: The query that wrote it.
        batch_id: The batch that it is of.
        generation: The token under which it was written; None where the sink has no ledger.
        identity: What it has in common with its repeats, and with no other record of the batch.
    """

    query_id: str
    batch_id: int
    generation: int | None
    identity: str


def parse_header(value: bytes | bytearray | memoryview | None) -> RecordHeader | None:
    """Parse the value of a header; None for one that is not in Holdfast's form."""
    words = (b"" if value is None else bytes(value)).split(b" ")
    if len(words) != 4 or not all(words) or not all(word.isascii() for word in words):
        return None
    query_id, batch, generation, identity = (word.decode("ascii") for word in words)
    if not batch.isdigit() or not (generation.isdigit() or generation == NO_GENERATION):
        return None
    if len(batch) > _DIGITS or len(generation) > _DIGITS:
        return None
    return RecordHeader(
        query_id, int(batch), None if generation == NO_GENERATION else int(generation), identity
    )


def header_of(headers: Iterable[tuple[str, bytes | None]] | None) -> RecordHeader | None:
    """Parse the headers of a record; None for a record of somebody else.

    Args:
        headers: Names and values, as clients of Kafka give them. The last of a name counts.
    """
    found = None
    for name, value in headers or ():
        if name == RECORD_HEADER:
            found = parse_header(value)
    return found
