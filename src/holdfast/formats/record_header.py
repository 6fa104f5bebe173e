"""The Kafka header by which repeats of a record are identified.

A record that `hf.sink(…).kafka(…)` writes has the header `holdfast-record`, four ASCII words separated by
spaces:

    <query id> <batch> <generation> <identity>

The identity is unique within a batch, and the same in each repeat of the batch.
The generation counts the owners of a sink with a ledger; it is `-` for a sink without one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

RECORD_HEADER: Final = "holdfast-record"
NO_GENERATION: Final = "-"
_DIGITS: Final = 19  # digits of Java's `Long`, the type of batch ids
# The column with the headers in Spark's source and sink.
HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True)
class RecordHeader:
    """The header of a record.

    Attributes:
        query_id: The id of the query that wrote the record.
        batch_id: The batch of the record.
        generation: The token of the writer, or None for a sink without a ledger.
        identity: The identity of the record within the batch, the same in each repeat.
    """

    query_id: str
    batch_id: int
    generation: int | None
    identity: str


def parse_header(value: bytes | bytearray | memoryview | None) -> RecordHeader | None:
    """Parse the value of a header; return None if it is not in Holdfast's format."""
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
    """Parse the headers of a record; return None if a different program wrote the record.

    Args:
        headers: Pairs of name and value, as returned by Kafka clients. The last header with a name is used.
    """
    found = None
    for name, value in headers or ():
        if name == RECORD_HEADER:
            found = parse_header(value)
    return found
