"""How many bytes values take, as far as their types tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from holdfast.worker.declarations.state_descriptors import Kind, State

# Hash and ordinal of a key in a row, and those with the slot of an element in a row.
ROW_BYTES: Final = 8 + 4
ELEMENT_BYTES: Final = 8 + 4 + 8
STAMP_BYTES: Final = 8
SLOT_BYTES: Final = 8
OFFSET_BYTES: Final = 4
# One timer: its text with an offset, and the columns of the two clocks.
TIMER_BYTES: Final = 24 + OFFSET_BYTES + 2 * 8


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a type does not tell.

    Attributes:
        text_bytes: How long a string or binary is.
        elements: How many elements a key has in a list or map state.
        nested: How many elements an array or a map has inside a value.
    """

    text_bytes: int = 16
    elements: int = 10
    nested: int = 4


def value_bytes(read: pa.DataType, assumed: Assumptions) -> int:
    """Estimate the bytes of one value in an Arrow column, before compression and without null bits."""
    if kinds.is_boolean(read):
        return 1
    if kinds.is_string(read) or kinds.is_binary(read):
        return OFFSET_BYTES + assumed.text_bytes
    if kinds.is_list(read):
        return OFFSET_BYTES + assumed.nested * value_bytes(read.value_type, assumed)
    if kinds.is_map(read):
        entry = value_bytes(read.key_type, assumed) + value_bytes(read.item_type, assumed)
        return OFFSET_BYTES + assumed.nested * entry
    if kinds.is_struct(read):
        return sum(value_bytes(field.type, assumed) for field in read)
    return int(read.bit_width) // 8


def varies(read: pa.DataType) -> bool:
    """Whether the size of a value depends on the value."""
    if kinds.is_struct(read):
        return any(varies(field.type) for field in read)
    return bool(kinds.is_string(read) or kinds.is_binary(read) or kinds.is_list(read) or kinds.is_map(read))


def state_bytes(state: State, assumed: Assumptions) -> int:
    """Estimate the bytes of one state for one key: its cell in the key's row, or all of its elements."""
    stamp = STAMP_BYTES if state.ttl else 0
    one = value_bytes(state.type, assumed) + stamp
    if state.kind not in (Kind.LIST, Kind.MAP):
        return one
    key = value_bytes(state.key_type, assumed) if state.key_type is not None else 0
    return SLOT_BYTES + assumed.elements * (ELEMENT_BYTES + key + one)
