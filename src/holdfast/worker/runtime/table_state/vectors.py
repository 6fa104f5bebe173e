"""What people give to a table of state, as arrays of one length and type; and arrays as numpy."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.errors import Invalid
from holdfast.worker.arrays import whole
from holdfast.worker.declarations.value_checks import check_value
from holdfast.worker.runtime.arrow_columns import Unfit, cast_column, column_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Positions = NDArray[np.int64]


def arrow_of(values: Any, kind: pa.DataType, size: int, what: str) -> pa.Array:
    """Read an array, a list or one value for all, as Arrow of a type.

    Raises:
        Invalid: It has another length, or a value is not of the type.
    """
    if isinstance(values, np.ndarray):
        values = pa.array(values)
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        column = whole(values)
        if column.type != kind:
            column = whole(cast_column(column, kind, what))
    else:
        given: Sequence[Any] = values if isinstance(values, (list, tuple)) else [values] * size
        column = column_at(given, kind, what)
    if len(column) != size:
        raise another_length(column, size, what)
    return column


def column_at(values: Sequence[Any], kind: pa.DataType, where: str) -> pa.Array:
    """Make a column of Python values.

    Raises:
        Invalid: A value is not of the type.
    """
    try:
        return column_of(values, kind)
    except Unfit as unfit:
        raise unfit.moved(where) from unfit


def another_length(array: Sized, size: int, where: str) -> Invalid:
    """An array that has not one value for each key, or for each event."""
    return Invalid(
        "an array has another length",
        where=where,
        found=str(len(array)),
        expected=str(size),
        hint="give a value for each event where something is added, and one for each key where it is set",
    )


def mask_of(where: Any, size: int, what: str) -> Mask | None:
    """Read a mask; None is all.

    Raises:
        Invalid: It is no mask, or has another length.
    """
    if where is None:
        return None
    if isinstance(where, (pa.Array, pa.ChunkedArray)):
        where = whole(where).fill_null(False).to_numpy(zero_copy_only=False)
    mask = np.asarray(where)
    if mask.dtype != np.bool_ or mask.shape != (size,):
        raise Invalid(
            "a mask has a truth value for each key, or for each event",
            where=what,
            found=f"{mask.dtype}, {mask.shape}",
            expected=f"bool, ({size},)",
            hint="compare an array of that length, as in state.visits.get() > 3",
        )
    return mask


def is_plain_number(kind: pa.DataType) -> bool:
    """Whether numpy has this type, and arithmetic is the point of it."""
    return bool(kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind))


def valid(column: pa.Array) -> Mask:
    """Say which cells are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def shown(column: pa.Array, default: Any) -> Any:
    """Give a column to a handler: numpy where it is of numbers and has a default, else Arrow."""
    if default is None:
        return column
    if column.null_count:
        nested = kinds.is_nested(column.type)
        filler = check_value(default, column.type, "default") if nested else pa.scalar(default, column.type)
        column = column.fill_null(filler)
    return column.to_numpy(zero_copy_only=False) if is_plain_number(column.type) else column


def masked(column: pa.Array, keep: Mask) -> pa.Array:
    """Give a column with null where a mask does not say so."""
    if keep.all():
        return column
    return pc.if_else(pa.array(keep), column, pa.scalar(None, column.type))


def numbers_of(column: pa.Array) -> NDArray[Any]:
    """Give a column of numbers as int64 or float64, which hold what Python would compute with; 0 for null."""
    zero = False if kinds.is_boolean(column.type) else 0
    dense = column.fill_null(zero) if column.null_count else column
    values = dense.to_numpy(zero_copy_only=False)
    return np.asarray(values, np.float64 if values.dtype.kind == "f" else np.int64)
