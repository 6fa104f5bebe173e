"""Spark's types as Arrow's, where rows of state become columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.formats.rows.spark_types import Array, DataType, Decimal, Map, Struct

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_atoms() -> dict[str, pa.DataType]:
    """The types without parts, by Spark's names."""
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "months": pa.int32(),
        "micros": pa.duration("us"),
        "time": pa.time64("ns"),
        "void": pa.null(),
        "calendar": pa.struct([("months", pa.int32()), ("days", pa.int32()), ("microseconds", pa.int64())]),
    }


def arrow_type(type_: DataType, atoms: Mapping[str, pa.DataType] | None = None) -> pa.DataType:
    """Arrow's type for one of Spark's.

    Args:
        type_: The type.
        atoms: The types without parts; by default those of `arrow_atoms`.

    Raises:
        KeyError: `atoms` does not have one of its parts.
    """
    import pyarrow as pa

    atoms = arrow_atoms() if atoms is None else atoms
    if isinstance(type_, Decimal):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, Struct):
        fields = zip(type_.names, type_.types, strict=True)
        return pa.struct([pa.field(name, arrow_type(field, atoms)) for name, field in fields])
    if isinstance(type_, Array):
        return pa.list_(arrow_type(type_.element, atoms))
    if isinstance(type_, Map):
        return pa.map_(arrow_type(type_.key, atoms), arrow_type(type_.value, atoms))
    return atoms[type_.name]
