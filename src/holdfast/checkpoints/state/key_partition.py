"""Which partition a key of state is in, as Spark's hash decides it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.errors import Unsupported
from holdfast.formats.operators import KeyPlacement, family_of, operator_kind
from holdfast.formats.rows.murmur3 import partition_of
from holdfast.formats.rows.row_forms import KeyKind
from holdfast.formats.rows.unsafe_row import RowCodec


def placing_fields(codec: StateCodec) -> int:
    """How many of a key's first fields decide its partition, and are what people call the key.

    The others tell rows of one key apart: a join's index, a session's start, a map's own key, a timer's time.
    """
    if codec.key_form.kind is KeyKind.PREFIX:
        return len(codec.key_form.first)
    family = family_of(codec.name.operator, codec.name.label)
    return len(codec.key_type.types) - (0 if family is None else family.row_fields)


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
    kind = operator_kind(operator.name)
    if kind is None or kind.placement is KeyPlacement.ONE_PARTITION or codec.values.avro:
        return None
    count = placing_fields(codec)
    fields = json.loads(codec.require_schema().key_schema)["fields"][:count]
    row = RowCodec(codec.first_fields(count)).encode(values)
    try:
        return partition_of(row, fields, count, operator.partitions, codec.where)
    except Unsupported:
        return None  # the hash of such a type is not known here
