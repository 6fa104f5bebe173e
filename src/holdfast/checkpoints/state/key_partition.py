"""The partition of each key of a state, by Spark's hash."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from holdfast.checkpoints.state.states import OperatorStates, StateCodec, StateName
from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.operators import FamilyUse, KeyPlacement, OperatorName, family_of, operator_kind, use_of
from holdfast.formats.rows.row_forms import KeyKind
from holdfast.formats.rows.row_hashes import partition_of, require_hashed, row_hashes
from holdfast.formats.rows.unsafe_row import RowCodec
from holdfast.layout import StoreId
from holdfast.storage.port import full

_COMPOSITE: Final = ("key", "userKey")

_Fields = Sequence[Mapping[str, Any]]


class PlacedOperator(Protocol):
    """An operator with the properties that determine the partition of its keys."""

    @property
    def name(self) -> str:
        """Spark's name for the operator's type."""

    @property
    def named(self) -> OperatorName:
        """The names of the operator."""

    @property
    def gathered(self) -> bool:
        """Return whether one task has all of the operator's state, because it has no key."""


class KeyPartitions:
    """The computation of the partitions of one state's keys.

    Args:
        operator: The state's operator.
        state: The state.
        where: The address of the state, for messages.

    Raises:
        Unsupported: The partitioning of the operator, or the hash of a key's type, is not supported.
        Corrupt: The state has no schema.
    """

    def __init__(self, operator: PlacedOperator, state: StateCodec, where: str) -> None:
        if state.schema is None:
            raise Corrupt(
                f"the schema of state {state.name.label!r} is missing",
                code="HF-E6014",
                where=where,
                hint="list the missing files with `holdfast checkpoint verify CHECKPOINT`",
            )
        self._state = state
        self._where = where
        self._fields: _Fields = json.loads(state.schema.key_schema)["fields"]
        self._part: KeyKind | None = None
        self._inside = 0
        self._hashed = self._by(operator)
        for field in self._fields[: self._hashed]:
            require_hashed(field["type"], where)

    def hashes(self, keys: Sequence[bytes]) -> list[int]:
        """Return Spark's hash of each key; the partition is the hash modulo the number of partitions.

        Args:
            keys: The stored keys, without the number of their column family.

        Raises:
            Corrupt: A key is damaged.
        """
        if not self._hashed:
            # Operators without a key are gathered in one task.
            return [0] * len(keys)
        if self._part is None:
            rows = [self._state.key_row(key) for key in keys]
        else:
            rows = [self._row_of_part(key) for key in keys]
        return row_hashes(rows, self._fields, self._hashed, self._where)

    def _by(self, operator: PlacedOperator) -> int:
        """Return the number of leading fields that are hashed, and set the row that contains them."""
        kind = operator_kind(operator.name)
        placement = None if kind is None else kind.placement
        if placement is KeyPlacement.WHOLE_KEY:
            family = family_of(operator.name, self._state.name.label)
            return len(self._fields) - (0 if family is None else family.row_fields)
        if placement is KeyPlacement.FIRST_FIELDS:
            columns = len(self._state.key_form.first)
            if self._state.values.rocksdb:
                self._part = KeyKind.PREFIX
                self._fields = self._fields[:columns]
            return columns
        if placement is KeyPlacement.GROUPING_KEY:
            return self._by_grouping(operator.name)
        if operator.gathered:
            return 0
        raise Unsupported(
            "the partitions of keys cannot be computed for this operator",
            code="HF-E7036",
            where=self._where,
            found=operator.named.label if operator.name else "an operator without a name",
            hint="keep the current number of partitions",
        )

    def _by_grouping(self, operator: str) -> int:
        """Return the number of hashed fields of a transformWithState family, all in the grouping key."""
        form = self._state.key_form
        if form.kind is KeyKind.ROW:
            return len(self._fields)
        if form.kind in (KeyKind.PREFIX, KeyKind.RANGE):
            self._part = form.kind
            ranged = form.kind is KeyKind.RANGE
            left = [field for at, field in enumerate(self._fields) if (at in form.first) is not ranged]
            self._fields = self._unwrapped(left)
            is_index = use_of(operator, self._state.name.label) is FamilyUse.EXPIRY_INDEX
            if is_index and _names(self._fields) == _COMPOSITE:
                # An index of expiry contains the key of a map's entry, including the grouping key.
                self._fields = self._unwrapped(self._fields)
            return len(self._fields)
        raise self._unknown(f"encoded by {form.kind.value}")

    def _unwrapped(self, fields: _Fields) -> _Fields:
        """Return the inner fields of the first field, a struct, whose hash is that of its fields in order."""
        inner = fields[0]["type"]
        if not isinstance(inner, dict) or inner.get("type") != "struct":
            raise self._unknown(f"of {', '.join(_names(fields))}")
        self._inside += 1
        found: _Fields = inner["fields"]
        return found

    def _unknown(self, keys: str) -> Unsupported:
        return Unsupported(
            f"the partitions of keys {keys} cannot be computed",
            code="HF-E7037",
            where=f"{self._where}, state {self._state.name.label}",
            hint="keep the number of partitions, or let Spark move the keys with"
            " `holdfast rescale CHECKPOINT --partitions N`",
        )

    def _row_of_part(self, key: bytes) -> bytes:
        """Return the part of a key with the grouping key, unwrapped from its structs."""
        size = int.from_bytes(key[:4], "little")
        row = key[5 : 4 + size] if self._part is KeyKind.PREFIX else key[5 + size :]
        for _ in range(self._inside):
            # After eight bytes for nulls, because such a struct has at most two fields, each with offset and
            # size.
            start = int.from_bytes(row[12:16], "little")
            row = row[start : start + int.from_bytes(row[8:12], "little")]
        return row


class PartitionCheck:
    """A check that keys are in the partition that Spark's hash determines.

    States with unsupported partitioning and keys that cannot be read are skipped.

    Args:
        operators: The operators of one batch.
        uri: The checkpoint, for messages.
    """

    def __init__(self, operators: Iterable[OperatorStates], uri: str) -> None:
        self._operators = {operator.operator_id: operator for operator in operators}
        self._uri = uri
        self._placements: dict[StateName, KeyPartitions | None] = {}

    def belonging(self, state: StateCodec, keys: Sequence[bytes]) -> list[int]:
        """Return the correct partition of each key; empty if unknown.

        Args:
            state: The state.
            keys: The stored keys, without the number of their column family.
        """
        operator = self._operators[state.name.operator_id]
        placement = self._placement(operator, state)
        if placement is None:
            return []
        try:
            return [number % operator.partitions for number in placement.hashes(keys)]
        except (Corrupt, Unsupported, struct.error, ValueError, IndexError):
            return []  # the reader of the rows reports the error

    def require(self, state: StateCodec, partition: int, keys: Sequence[bytes]) -> None:
        """Check that all keys are in the correct partition.

        Args:
            state: The state.
            partition: The partition that contains the keys.
            keys: The keys, as for `belonging`.

        Raises:
            Corrupt: A key is in the wrong partition.
        """
        store = StoreId(state.name.operator_id, partition, state.name.store)
        require_in_partition(self.belonging(state, keys), partition, full(self._uri, store.folder))

    def _placement(self, operator: OperatorStates, state: StateCodec) -> KeyPartitions | None:
        if state.name not in self._placements:
            found = None
            if operator.partitions > 1 and not state.values.avro:
                with suppress(Corrupt, Unsupported, ValueError, KeyError):
                    found = KeyPartitions(operator, state, state.where)
            self._placements[state.name] = found
        return self._placements[state.name]


def require_in_partition(places: Iterable[int], partition: int, where: str) -> None:
    """Check that keys are in the partition of their hash.

    Args:
        places: The partition of each key by its hash.
        partition: The partition that contains the keys.
        where: The address of the state, for messages.

    Raises:
        Corrupt: A key is in the wrong partition.
    """
    for other in places:
        if other != partition:
            raise Corrupt(
                "a key is stored in a different partition than its hash requires",
                code="HF-E6015",
                where=where,
                found=f"a key of partition {other}",
                expected=f"only keys of partition {partition}",
                hint="list replaced and damaged files with `holdfast checkpoint verify CHECKPOINT`",
            )


def placing_fields(codec: StateCodec) -> int:
    """Return the number of leading fields of a stored key that form the user's key and set the partition.

    The other fields distinguish rows of one key: the index in a join, the start of a session, the key of a
    map, the time of a timer.
    """
    if codec.key_form.kind is KeyKind.PREFIX:
        return len(codec.key_form.first)
    family = family_of(codec.name.operator, codec.name.label)
    return len(codec.key_type.types) - (0 if family is None else family.row_fields)


def partition_of_key(operator: OperatorStates, codec: StateCodec, values: Mapping[str, Any]) -> int | None:
    """Return the partition of the keys with these values.

    Args:
        operator: The operator.
        codec: A state of the operator.
        values: The values of the first `placing_fields` fields, which determine the partition.

    Returns:
        The partition; None if unknown, so that every partition must be searched.

    Raises:
        Corrupt: The state has no schema.
        Invalid: A value does not have the type of its field.
    """
    if operator.partitions == 1:
        return 0
    kind = operator_kind(operator.name)
    if kind is None or kind.placement is KeyPlacement.ONE_PARTITION or codec.values.avro:
        return None
    count = placing_fields(codec)
    fields = json.loads(codec.require_schema().key_schema)["fields"][:count]
    row = RowCodec(codec.first_fields(count)).encode(values)
    try:
        return partition_of(row, fields, count, operator.partitions, codec.where)
    except Unsupported:
        return None  # the hash of this type is not supported


def _names(fields: _Fields) -> tuple[str, ...]:
    return tuple(str(field["name"]) for field in fields)
