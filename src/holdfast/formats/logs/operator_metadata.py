"""The metadata that Spark writes for a stateful operator, with the schemas of its state.

Schema files of version 1 and 2 have one column family; those of version 3 have several, each with the
encoding of its keys. The schemas are Spark's JSON and stay as text in this module.

The metadata file has a version line and a line of JSON. Version 2 also has the absolute paths of each store's
schema files: a copied checkpoint still has the paths of the original directory.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast import layout
from holdfast.formats.files.compression import CHUNK, ByteReader, encode_utf
from holdfast.formats.text import (
    PARTITIONS,
    compact,
    damaged,
    decoded,
    foreign_json,
    json_object,
    json_value,
    plain_name,
    string,
    version_of,
    whole_number,
)
from holdfast.layout import DEFAULT_STORE

STATE_SCHEMA_VERSIONS: Final = (1, 2, 3)
_STATE_SCHEMA = "a state schema"


@dataclass(frozen=True, slots=True)
class ColumnFamily:
    """A column family of a store: its name and the schemas of its keys and values.

    Attributes:
        name: The name of the family; in transformWithState that of the state variable.
        key_schema: The schema of the keys, as JSON.
        value_schema: The schema of the values, as JSON.
        key_schema_id: The number of changes of the key schema; only in version 3.
        value_schema_id: The number of changes of the value schema; only in version 3.
        encoder: The encoding of keys as bytes, as JSON; only in version 3.
        user_key: The schema of a map's own keys, as JSON; only in version 3.
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
    """The schema of a store: its version and its column families."""

    version: int
    families: tuple[ColumnFamily, ...]

    def render(self) -> bytes:
        """Return the bytes of the file."""
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
    """Parse a schema file.

    Raises:
        Corrupt: The file is not in the format that Spark writes.
        Unsupported: The version of the file is unknown.
    """
    reader = ByteReader(data, _STATE_SCHEMA, where)
    version = version_of(reader.text(), STATE_SCHEMA_VERSIONS, _STATE_SCHEMA, where)
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


def _family(reader: ByteReader, where: str) -> ColumnFamily:
    name = reader.text()
    key_id = reader.short()
    key = _joined(reader, where)
    value_id = reader.short()
    value = _joined(reader, where)
    return ColumnFamily(name, key, value, key_id, value_id, _joined(reader, where), _joined(reader, where))


def _joined(reader: ByteReader, where: str) -> str:
    count = reader.integer()
    if count < 0:
        raise reader.damaged(f"{count} chunks")
    return _json("".join(reader.text() for _ in range(count)), where)


def _json(text: str, where: str) -> str:
    json_value(text, _STATE_SCHEMA, where)
    return text


def _chunks(text: str) -> bytes:
    """Return text in chunks as Spark writes it: at least one chunk, each short enough for `writeUTF`."""
    parts = [text[start : start + CHUNK] for start in range(0, max(len(text), 1), CHUNK)]
    return struct.pack(">i", len(parts)) + b"".join(encode_utf(part) for part in parts)


OPERATOR_METADATA_VERSIONS: Final = (1, 2)
_OPERATOR_METADATA = "an operator's metadata"
_PATHS = "stateSchemaFilePaths"


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store that an operator has in each partition.

    Attributes:
        name: The name of the store; its index among the operator's stores is its index in the commit log.
        partitions: The number of partitions.
        schema_paths: The absolute paths of its schema files, as written by Spark; empty in version 1.
    """

    name: str
    partitions: int
    schema_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorMetadata:
    """The metadata of a stateful operator.

    Attributes:
        version: The version of the file format: 1 or 2.
        operator_id: The number of the operator in the plan.
        name: Spark's name of the operation, such as `stateStoreSave`.
        stores: The stores of the operator.
        fields: All fields of the file, unchanged.
    """

    version: int
    operator_id: int
    name: str
    stores: tuple[StoreInfo, ...]
    fields: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, Any]:
        """Return the properties that the operator records; for transformWithState, its time mode and
        variables.
        """
        try:
            value = foreign_json(self.fields.get("operatorPropertiesJson", "{}"))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def moved_to(self, root: str) -> OperatorMetadata:
        """Return the metadata with the paths of schema files moved to a different checkpoint.

        Args:
            root: The address of the checkpoint in Hadoop's notation, such as `file:/data/checkpoint`.
        """
        stores = [
            {**store, _PATHS: [_moved(path, root) for path in store[_PATHS]]} if _PATHS in store else store
            for store in self.fields["stateStoreInfo"]
        ]
        return self._with_stores(stores)

    def with_partitions(self, partitions: int) -> OperatorMetadata:
        """Return the metadata with this number of partitions."""
        return self._with_stores(
            [{**store, "numPartitions": partitions} for store in self.fields["stateStoreInfo"]]
        )

    def renumbered(self, operator_id: int) -> OperatorMetadata:
        """Return the metadata with a different number of the operator in the plan."""
        before, after = (f"/{layout.STATE}/{number}/" for number in (self.operator_id, operator_id))
        stores = [
            {**store, _PATHS: [_other_number(path, before, after) for path in store[_PATHS]]}
            if _PATHS in store
            else store
            for store in self.fields["stateStoreInfo"]
        ]
        info = {**self.fields["operatorInfo"], "operatorId": operator_id}
        fields = {**self.fields, "operatorInfo": info, "stateStoreInfo": stores}
        return replace(self, operator_id=operator_id, stores=_stores(stores, ""), fields=fields)

    def _with_stores(self, stores: list[dict[str, Any]]) -> OperatorMetadata:
        return replace(self, stores=_stores(stores, ""), fields={**self.fields, "stateStoreInfo": stores})

    def render(self) -> bytes:
        """Return the bytes of the file."""
        return f"v{self.version}\n{compact(self.fields)}".encode()


def parse_operator(data: bytes, where: str) -> OperatorMetadata:
    """Parse the metadata file of an operator.

    Raises:
        Corrupt: The file is not in the format that Spark writes.
        Unsupported: The version of the file is unknown.
    """
    version_line, *lines = decoded(data, _OPERATOR_METADATA, where).split("\n")
    version = version_of(version_line, OPERATOR_METADATA_VERSIONS, _OPERATOR_METADATA, where)
    place = f"{where}, line 2"
    if len(lines) != 1:
        raise damaged(_OPERATOR_METADATA, where, f"{len(lines) + 1} lines", "a version line and a JSON line")
    fields = json_object(lines[0], _OPERATOR_METADATA, place)
    info = fields.get("operatorInfo")
    if not isinstance(info, dict):
        raise damaged(_OPERATOR_METADATA, place, f"`operatorInfo` is {info!r}", "an object")
    operator_id = whole_number(info, "operatorId", _OPERATOR_METADATA, place)
    name = string(info, "operatorName", _OPERATOR_METADATA, place)
    return OperatorMetadata(version, operator_id, name, _stores(fields.get("stateStoreInfo"), place), fields)


def schema_place(path: str) -> str | None:
    """Return the path of a schema file within its checkpoint, given its absolute path, or None."""
    head, slash, tail = path.rpartition(f"/{layout.STATE_SCHEMA}/")
    operator = head.rpartition("/")[2]
    relative = f"{layout.STATE}/{operator}/{layout.STATE_SCHEMA}/{tail}"
    known = slash and isinstance(layout.parse(relative), layout.SchemaFile)
    return relative if known and head.endswith(f"/{layout.STATE}/{operator}") else None


def schema_root(path: str) -> str | None:
    """Return the checkpoint in the absolute path of a schema file, or None for other paths."""
    relative = schema_place(path)
    return None if relative is None else path[: -len(relative) - 1]


def _other_number(path: str, before: str, after: str) -> str:
    head, found, tail = path.rpartition(before)
    return path if not found or schema_place(path) is None else f"{head}{after}{tail}"


def _moved(path: str, root: str) -> str:
    relative = schema_place(path)
    return path if relative is None else f"{root.rstrip('/')}/{relative}"


def _stores(given: Any, where: str) -> tuple[StoreInfo, ...]:
    if not isinstance(given, list) or not all(isinstance(store, dict) for store in given):
        raise damaged(_OPERATOR_METADATA, where, f"`stateStoreInfo` is {given!r}", "a list of stores")
    stores = []
    for store in given:
        paths = store.get(_PATHS, [])
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise damaged(_OPERATOR_METADATA, where, f"`{_PATHS}` is {paths!r}", "a list of paths")
        name = plain_name(string(store, "storeName", _OPERATOR_METADATA, where), _OPERATOR_METADATA, where)
        partitions = whole_number(store, "numPartitions", _OPERATOR_METADATA, where)
        if not 0 < partitions <= PARTITIONS:
            raise damaged(_OPERATOR_METADATA, where, f"{partitions:,} partitions", f"1 to {PARTITIONS:,}")
        stores.append(StoreInfo(name, partitions, tuple(paths)))
    return tuple(stores)
