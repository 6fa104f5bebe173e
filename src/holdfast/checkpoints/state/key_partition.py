"""Which partition a key of state is in, as Spark's hash decides it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.rows.murmur3 import partition_of
from holdfast.formats.rows.row_forms import KeyKind
from holdfast.formats.rows.unsafe_row import RowCodec

# Operators of which it is known that their rows go by the key of the state.
_KNOWN: Final = frozenset(
    {
        "stateStoreSave",
        "dedupe",
        "dedupeWithinWatermark",
        "flatMapGroupsWithState",
        "mapGroupsWithState",
        "applyInPandasWithState",
        "sessionWindowStateStoreSaveExec",
        "symmetricHashJoin",
        "transformWithStateExec",
        "transformWithStateInPandasExec",
        "transformWithStateInPySparkExec",
    }
)
_WITH_INDEX: Final = "-keyWithIndexToValue"


def placing_fields(codec: StateCodec) -> int:
    """How many of a key's first fields decide its partition, and are what people call the key.

    The others tell rows of one key apart: a join's index, a session's start, a map's own key, a timer's time.
    """
    fields = len(codec.key_type.types)
    kind = codec.key_form.kind
    if kind is KeyKind.PREFIX:
        return len(codec.key_form.first)
    if kind is KeyKind.TIME_LAST or codec.name.label.endswith(_WITH_INDEX):
        return fields - 1
    return fields


def partition_of_key(operator: OperatorStates, codec: StateCodec, values: Mapping[str, Any]) -> int | None:
    """The partition of the keys with these values.

    Args:
        operator: The operator.
        codec: One of its states.
        values: The fields that decide it: as many of the first as `placing_fields` says.

    Returns:
        None where it is not known: then each has to be looked into.

    Raises:
        Corrupt: The state has no schema.
        Invalid: A value is not of its field's type.
    """
    if operator.partitions == 1:
        return 0
    if operator.name not in _KNOWN or codec.values.avro:
        return None
    count = placing_fields(codec)
    if codec.schema is None:
        raise Corrupt("a state has no schema", where=codec.where, found=codec.name.label)
    fields = json.loads(codec.schema.key_schema)["fields"][:count]
    row = RowCodec(codec.first_fields(count)).encode(values)
    try:
        return partition_of(row, fields, count, operator.partitions, codec.where)
    except Unsupported:
        return None  # the hash of such a type is not known here
