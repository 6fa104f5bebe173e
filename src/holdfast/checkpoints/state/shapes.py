"""What a checkpoint's operators keep: their stores and the schemas of these, as Spark noted them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast import layout
from holdfast.checkpoints.stores import NotedOperator, noted_operators
from holdfast.errors import NotFound
from holdfast.formats.logs.operator_metadata import schema_place
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
        kind: Spark's name for what it does, such as `dedupe`; empty where nothing tells.
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
    return tuple(_shape(storage, operator) for operator in noted_operators(storage, batch_id))


def _shape(storage: Storage, noted: NotedOperator) -> OperatorShape:
    number, metadata = noted.folder.operator_id, noted.metadata
    properties = {} if metadata is None else dict(metadata.properties)
    listed = properties.pop("stateVariables", [])
    places = {} if metadata is None else {store.name: store.schema_paths for store in metadata.stores}
    return OperatorShape(
        operator_id=number,
        kind=noted.named.spark_name,
        stores=tuple(_store(storage, number, name, places.get(name, ())) for name in noted.store_names),
        variables={
            variable["stateName"]: variable
            for variable in listed
            if isinstance(variable, dict) and not is_internal(str(variable.get("stateName", "$")))
        },
        properties=properties,
    )


def _store(storage: Storage, operator_id: int, name: str, schema_paths: Sequence[str]) -> StoreShape:
    noted = schema_place(schema_paths[-1]) if schema_paths else None
    path = noted or layout.SchemaFile(operator_id, name).render()
    try:
        return StoreShape(name, parse_schema(storage.read(path), path).families)
    except NotFound:
        return StoreShape(name, ())
