"""What Spark notes of a stateful operator: its name, its stores, their partitions.

A file is a version line and a line of JSON. Version 2 also names each store's schema files, by absolute
path: a checkpoint that was copied as it stands still points at the place it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast import layout
from holdfast.formats.limits import PARTITIONS
from holdfast.formats.names import plain_name
from holdfast.formats.text import (
    compact,
    damaged,
    decoded,
    foreign_json,
    json_object,
    string,
    version_of,
    whole_number,
)

VERSIONS: Final = (1, 2)
_WHAT = "an operator's metadata"
_PATHS = "stateSchemaFilePaths"


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store that an operator keeps in each partition.

    Attributes:
        name: The store's name; its place among the operator's stores is its place in the commit log's ids.
        partitions: How many partitions there are.
        schema_paths: Where its schemas are, as Spark wrote it down; empty in version 1.
    """

    name: str
    partitions: int
    schema_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorMetadata:
    """A stateful operator.

    Attributes:
        version: 1 or 2.
        operator_id: Its number in the plan.
        name: Spark's name for what it does, such as `stateStoreSave`.
        stores: Its stores.
        fields: Everything as it stands.
    """

    version: int
    operator_id: int
    name: str
    stores: tuple[StoreInfo, ...]
    fields: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, Any]:
        """What the operator notes of itself: transformWithState its time mode and variables."""
        try:
            value = foreign_json(self.fields.get("operatorPropertiesJson", "{}"))
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def moved_to(self, root: str) -> OperatorMetadata:
        """The same with its schema files under another checkpoint.

        Args:
            root: The checkpoint's address as Hadoop writes it, such as `file:/data/checkpoint`.
        """
        stores = [
            {**store, _PATHS: [_moved(path, root) for path in store[_PATHS]]} if _PATHS in store else store
            for store in self.fields["stateStoreInfo"]
        ]
        return self._with_stores(stores)

    def with_partitions(self, partitions: int) -> OperatorMetadata:
        """The same with so many partitions."""
        return self._with_stores(
            [{**store, "numPartitions": partitions} for store in self.fields["stateStoreInfo"]]
        )

    def renumbered(self, operator_id: int) -> OperatorMetadata:
        """The same for another number in the plan."""
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
        """The file."""
        return f"v{self.version}\n{compact(self.fields)}".encode()


def parse_operator(data: bytes, where: str) -> OperatorMetadata:
    """Read an operator's metadata.

    Raises:
        Corrupt: Spark cannot have written it.
        Unsupported: Its version is newer than what is known here.
    """
    version_line, *lines = decoded(data, _WHAT, where).split("\n")
    version = version_of(version_line, VERSIONS, _WHAT, where)
    place = f"{where}, line 2"
    if len(lines) != 1:
        raise damaged(_WHAT, where, f"{len(lines) + 1} lines", "a version and a line of JSON")
    fields = json_object(lines[0], _WHAT, place)
    info = fields.get("operatorInfo")
    if not isinstance(info, dict):
        raise damaged(_WHAT, place, f"`operatorInfo` is {info!r}", "an object")
    operator_id = whole_number(info, "operatorId", _WHAT, place)
    name = string(info, "operatorName", _WHAT, place)
    return OperatorMetadata(version, operator_id, name, _stores(fields.get("stateStoreInfo"), place), fields)


def schema_place(path: str) -> str | None:
    """Where in a checkpoint a schema file lies, from the absolute path that Spark wrote down."""
    head, slash, tail = path.rpartition(f"/{layout.STATE_SCHEMA}/")
    operator = head.rpartition("/")[2]
    relative = f"{layout.STATE}/{operator}/{layout.STATE_SCHEMA}/{tail}"
    known = slash and isinstance(layout.parse(relative), layout.SchemaFile)
    return relative if known and head.endswith(f"/{layout.STATE}/{operator}") else None


def schema_root(path: str) -> str | None:
    """The checkpoint that an absolute path of a schema file leads into."""
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
        raise damaged(_WHAT, where, f"`stateStoreInfo` is {given!r}", "a list of stores")
    stores = []
    for store in given:
        paths = store.get(_PATHS, [])
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise damaged(_WHAT, where, f"`{_PATHS}` is {paths!r}", "a list of paths")
        name = plain_name(string(store, "storeName", _WHAT, where), _WHAT, where)
        partitions = whole_number(store, "numPartitions", _WHAT, where)
        if not 0 < partitions <= PARTITIONS:
            raise damaged(_WHAT, where, f"{partitions:,} partitions", f"1 to {PARTITIONS:,}")
        stores.append(StoreInfo(name, partitions, tuple(paths)))
    return tuple(stores)
