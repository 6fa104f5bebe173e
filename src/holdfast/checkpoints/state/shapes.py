"""What a checkpoint's operators keep: their stores and the schemas of these, as Spark noted them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast import layout
from holdfast.checkpoints.logs.logs import operator_folders, read_operator
from holdfast.errors import NotFound
from holdfast.formats.logs.operator_metadata import OperatorMetadata, StoreInfo, schema_place
from holdfast.formats.logs.state_schema import ColumnFamily, parse_schema
from holdfast.formats.operators import is_internal
from holdfast.storage.port import Storage


@dataclass(frozen=True, slots=True)
class StoreShape:
    """A store by name, with its column families; none where its schema is not there."""

    name: str
    families: tuple[ColumnFamily, ...]


@dataclass(frozen=True, slots=True)
class OperatorShape:
    """What an operator keeps, whatever it has kept so far.

    Attributes:
        operator_id: Its number in the plan.
        kind: Spark's name for what it does, such as `dedupe`.
        stores: Its stores.
        variables: The state variables of transformWithState by name, as Spark notes them.
        properties: What the operator notes of itself besides.
    """

    operator_id: int
    kind: str
    stores: tuple[StoreShape, ...]
    variables: Mapping[str, Mapping[str, Any]]
    properties: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Number and name, for people."""
        return f"{self.operator_id} {self.kind}"


def shapes(storage: Storage, batch_id: int) -> tuple[OperatorShape, ...]:
    """What each operator keeps as of a batch, by number. Reads two or three small files an operator.

    Args:
        storage: The checkpoint.
        batch_id: The batch; it need not be committed.

    Raises:
        Corrupt: A file that was read is damaged.
        Unavailable: The storage does not answer.
    """
    found = []
    for folder in operator_folders(storage, batch_id):
        metadata = read_operator(storage, folder.metadata_path)
        if metadata is not None:
            found.append(_shape(storage, metadata))
    return tuple(found)


def _shape(storage: Storage, metadata: OperatorMetadata) -> OperatorShape:
    properties = dict(metadata.properties)
    listed = properties.pop("stateVariables", [])
    return OperatorShape(
        operator_id=metadata.operator_id,
        kind=metadata.name,
        stores=tuple(_store(storage, metadata.operator_id, store) for store in metadata.stores),
        variables={
            variable["stateName"]: variable
            for variable in listed
            if isinstance(variable, dict) and not is_internal(str(variable.get("stateName", "$")))
        },
        properties=properties,
    )


def _store(storage: Storage, operator_id: int, store: StoreInfo) -> StoreShape:
    noted = schema_place(store.schema_paths[-1]) if store.schema_paths else None
    path = noted or layout.SchemaFile(operator_id, store.name).render()
    try:
        return StoreShape(store.name, parse_schema(storage.read(path), path).families)
    except NotFound:
        return StoreShape(store.name, ())
