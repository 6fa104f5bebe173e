"""How many keys an operator has, and a hash of all they hold that no other number of key groups changes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from holdfast.at_rest.keyed.keyed_reader import keyed_states
from holdfast.checkpoints.keyed.key_rows import KeyRow
from holdfast.checkpoints.state.contents import ContentSum
from holdfast.json_shapes import JsonShape
from holdfast.storage.port import Storage

_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class KeyedContent(JsonShape):
    """What is in one of Holdfast's keyed operators.

    Attributes:
        operator: Its name.
        keys: How many keys it has.
        digest: A hash of them with all their state and timers, in no order.
    """

    operator: str
    keys: int
    digest: str


def keyed_contents(checkpoint: Storage) -> tuple[KeyedContent, ...]:
    """The content of each keyed operator at the newest committed batch.

    Cost: some 15 microseconds a key.

    Raises:
        NotFound: A file is gone.
        Corrupt: A file or a blob is damaged.
    """
    found = []
    for state in keyed_states(checkpoint):
        total = ContentSum()
        rows = state.rows()
        while chunk := list(islice(rows, _CHUNK)):
            total.add([repr(row.key).encode() for row in chunk], [_told(row) for row in chunk])
        found.append(KeyedContent(state.operator.name, total.rows, total.digest()))
    return tuple(found)


def _told(row: KeyRow) -> bytes:
    values = sorted((name, _ordered(value)) for name, value in row.values.items())
    stamps = sorted((name, _ordered(stamp)) for name, stamp in row.stamps.items())
    return repr((values, stamps, sorted(map(repr, row.timers)))).encode()


def _ordered(value: Any) -> str:
    """A value in words; a map's entries in an order of their own, since theirs means nothing."""
    return repr(sorted(map(repr, value.items()))) if isinstance(value, dict) else repr(value)
