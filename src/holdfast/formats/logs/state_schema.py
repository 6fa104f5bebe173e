"""Schemas of state: what the keys and values of a store's column families are.

Version 1 and 2 know one family, version 3 several, each with how its keys are encoded. The schemas are
Spark's JSON and stay as text here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from holdfast.formats.java_io import CHUNK, Reader, encode_utf
from holdfast.formats.text import json_value, version_of
from holdfast.layout import DEFAULT_STORE

VERSIONS: Final = (1, 2, 3)
_WHAT = "a state schema"


@dataclass(frozen=True, slots=True)
class ColumnFamily:
    """Keys and values of one kind.

    Attributes:
        name: The family's name; that of a state variable in transformWithState.
        key_schema: The keys' schema as JSON.
        value_schema: The values' schema as JSON.
        key_schema_id: Counts the changes of the keys' schema. Version 3.
        value_schema_id: Counts the changes of the values' schema. Version 3.
        encoder: How keys become bytes, as JSON. Version 3.
        user_key: The schema of a map's own keys, as JSON. Version 3.
    """

    name: str
    key_schema: str
    value_schema: str
    key_schema_id: int = 0
    value_schema_id: int = 0
    encoder: str = ""
    user_key: str = ""


@dataclass(frozen=True, slots=True)
class StateSchema:
    """The schema of a store."""

    version: int
    families: tuple[ColumnFamily, ...]

    def render(self) -> bytes:
        """The file."""
        head = encode_utf(f"v{self.version}")
        if self.version < 3:
            only, write = self.families[0], encode_utf if self.version == 1 else _chunks
            return head + write(only.key_schema) + write(only.value_schema)
        parts = [head, struct.pack(">i", len(self.families))]
        for family in self.families:
            parts += [
                encode_utf(family.name),
                struct.pack(">h", family.key_schema_id),
                _chunks(family.key_schema),
                struct.pack(">h", family.value_schema_id),
                _chunks(family.value_schema),
                _chunks(family.encoder),
                _chunks(family.user_key),
            ]
        return b"".join(parts)


def parse_schema(data: bytes, where: str) -> StateSchema:
    """Read a schema file.

    Raises:
        Corrupt: Spark cannot have written it.
        Unsupported: Its version is newer than what is known here.
    """
    reader = Reader(data, _WHAT, where)
    version = version_of(reader.text(), VERSIONS, _WHAT, where)
    if version == 1:
        families = [ColumnFamily(DEFAULT_STORE, _json(reader.text(), where), _json(reader.text(), where))]
    elif version == 2:
        families = [ColumnFamily(DEFAULT_STORE, _joined(reader, where), _joined(reader, where))]
    else:
        count = reader.integer()
        if count < 0:
            raise reader.damaged(f"{count} column families")
        families = [_family(reader, where) for _ in range(count)]
    reader.end()
    return StateSchema(version, tuple(families))


def _family(reader: Reader, where: str) -> ColumnFamily:
    name = reader.text()
    key_id = reader.short()
    key = _joined(reader, where)
    value_id = reader.short()
    value = _joined(reader, where)
    return ColumnFamily(name, key, value, key_id, value_id, _joined(reader, where), _joined(reader, where))


def _joined(reader: Reader, where: str) -> str:
    count = reader.integer()
    if count < 0:
        raise reader.damaged(f"{count} chunks")
    return _json("".join(reader.text() for _ in range(count)), where)


def _json(text: str, where: str) -> str:
    json_value(text, _WHAT, where)
    return text


def _chunks(text: str) -> bytes:
    """Text in as many chunks as Spark makes of it: at least one, none longer than `writeUTF` can take."""
    parts = [text[start : start + CHUNK] for start in range(0, max(len(text), 1), CHUNK)]
    return struct.pack(">i", len(parts)) + b"".join(encode_utf(part) for part in parts)
