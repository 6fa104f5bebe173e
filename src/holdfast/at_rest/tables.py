"""States as Arrow tables with the users' columns, one row for each row of state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from holdfast.at_rest.keys import ColumnDecoder, damaged_row
from holdfast.at_rest.model import NamedState, StateForm
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.contents import bare_values
from holdfast.checkpoints.state.rocksdb import Pairs
from holdfast.checkpoints.state.states import StateCodec
from holdfast.formats.rows.row_forms import KeyKind
from holdfast.formats.rows.spark_types import Struct, arrow_type

if TYPE_CHECKING:
    import pyarrow as pa


EXPIRES: Final = "expires_ms"
PARTITION: Final = "partition_id"
# The approximate number of rows in a record batch.
_BATCH: Final = 1 << 16


def state_table(state: NamedState, *, tell: ProgressCallback | None = None) -> pa.RecordBatchReader:
    """Return the rows of a state as an Arrow stream, which reads them on demand.

    The columns are those of the key, those that distinguish rows of one key, those of the value, the expiry
    time of a value with a TTL, and the partition.

    Cost: about 2 microseconds per row, without Spark; memory for a record batch and for one partition's
    changes since its base.

    Args:
        state: The state.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Raises:
        Corrupt: A file or a row is damaged.
        NotFound: A file that the batch needs is missing.
        Unsupported: The state's format cannot be read.
    """
    import pyarrow as pa

    schema = schema_of(state)
    return pa.RecordBatchReader.from_batches(schema, state.source.tables(state, schema, tell))


def column_names(state: NamedState) -> list[str]:
    """Return the names of a state's columns; a value column named like a key column gets `value_`."""
    names: list[str] = list(state.key.names)
    for prefix, columns in (("map_", state.sub), ("value_", state.value)):
        for name in columns.names:
            names.append(name if name not in names else f"{prefix}{name}")
    return [*names, *([EXPIRES] if state.ttl else []), PARTITION]


def schema_of(state: NamedState) -> pa.Schema:
    """Return the columns of a state's table."""
    import pyarrow as pa

    types = [arrow_type(type_) for type_ in (*state.key.types, *state.sub.types, *state.value.types)]
    types += [pa.int64()] if state.ttl else []
    return pa.schema(list(zip(column_names(state), [*types, pa.int32()], strict=True)))


def gathered(
    chunks: Iterable[tuple[StateCodec, int, Pairs]],
) -> Iterator[tuple[StateCodec, int, Pairs]]:
    """Merge small chunks of one partition, because decoding has a fixed cost per chunk."""
    held: list[Pairs] = []
    last: tuple[StateCodec, int] | None = None
    rows = 0
    for codec, partition, pairs in chunks:
        if last is not None and (last[1] != partition or rows >= _BATCH):
            yield *last, list(chain.from_iterable(held))
            held, rows = [], 0
        last = codec, partition
        held.append(pairs)
        rows += len(pairs)
    if last is not None:
        yield *last, list(chain.from_iterable(held))


def row_batch(
    state: NamedState, codec: StateCodec, partition: int, pairs: Pairs, schema: pa.Schema
) -> pa.RecordBatch:
    """Decode stored rows into columns.

    Raises:
        Corrupt: A row is damaged.
    """
    import numpy as np
    import pyarrow as pa

    keys = _key_columns(state, codec, [key for key, _ in pairs])
    if state.lists_values:
        rows, counts = _elements(codec, pairs)
        at = pa.array(np.repeat(np.arange(len(pairs)), counts))
        keys = [column.take(at) for column in keys]
        columns = ColumnDecoder(codec.value_type, codec.where).take_apart(rows)
    else:
        rows = [value for _, value in pairs]
        columns = _single_values(state, codec, pairs)
    values = _value_columns(state, columns)
    partitions = pa.array(np.full(len(rows), partition, np.int32))
    return pa.RecordBatch.from_arrays([*keys, *values, partitions], schema=schema)


def _key_columns(state: NamedState, codec: StateCodec, keys: Sequence[bytes]) -> list[pa.Array]:
    form, type_ = codec.key_form, codec.key_type
    skip = codec.plain_keys
    if skip is not None:
        behind = ColumnDecoder(type_, codec.where).take_apart_behind(keys, skip)
        rows = [key[skip:] for key in keys] if skip and behind is None else keys
        columns = ColumnDecoder(type_, codec.where).take_apart(rows) if behind is None else behind
    elif form.kind is KeyKind.PREFIX:
        columns = _two_parts(codec, keys)
    else:
        columns = ColumnDecoder(type_, codec.where).take_apart([codec.key_row(key) for key in keys])
    if state.form in (StateForm.MAP, StateForm.TIMERS):
        # The grouping key and the key of a map are each one field of the stored key.
        return [part for column in columns for part in _flat(column)]
    return columns


def _flat(column: pa.Array) -> list[pa.Array]:
    import pyarrow as pa

    return list(column.flatten()) if pa.types.is_struct(column.type) else [column]


def _two_parts(codec: StateCodec, keys: Sequence[bytes]) -> list[pa.Array]:
    """Return the columns of keys that start with their first part and its length."""
    split = len(codec.key_form.first)
    type_ = codec.key_type
    sizes = [int.from_bytes(key[:4], "little") for key in keys]
    if any(not 1 <= size <= len(key) - 4 for size, key in zip(sizes, keys, strict=True)):
        raise damaged_row(codec.where, "a key whose length is wrong")
    first = [key[5 : 4 + size] for key, size in zip(keys, sizes, strict=True)]
    columns = ColumnDecoder(Struct(type_.names[:split], type_.types[:split]), codec.where).take_apart(first)
    if split < len(type_.names):
        rest = [key[5 + size :] for key, size in zip(keys, sizes, strict=True)]
        columns += ColumnDecoder(Struct(type_.names[split:], type_.types[split:]), codec.where).take_apart(
            rest
        )
    return columns


def _elements(codec: StateCodec, pairs: Pairs) -> tuple[list[bytes], list[int]]:
    rows: list[bytes] = []
    counts: list[int] = []
    for _, value in pairs:
        elements, _ = codec.values.rows(value, codec.where)
        rows += elements
        counts.append(len(elements))
    return rows, counts


def _single_values(state: NamedState, codec: StateCodec, pairs: Pairs) -> list[pa.Array]:
    if not state.value.names and not state.ttl:
        return []
    columns = ColumnDecoder(codec.value_type, codec.where)
    before = codec.values.before_row
    behind = None
    if before is not None and (codec.values.rocksdb or not before):
        behind = columns.take_apart_behind([value for _, value in pairs], before)
    return columns.take_apart(bare_values(codec, pairs)) if behind is None else behind


def _value_columns(state: NamedState, columns: list[pa.Array]) -> list[pa.Array]:
    """Return the users' columns from the stored columns."""
    if not state.value.names and not state.ttl:
        return []
    return [*_flat(columns[0]), columns[1]] if state.ttl else columns
