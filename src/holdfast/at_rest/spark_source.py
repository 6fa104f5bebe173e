"""A reader of the states of Spark's operators, with the ages of their rows.

The meaning of the times depends on the state. States with a TTL record the expiry time of each value, from
which the TTL is computed if it is not given. Windows and sessions record their ends, joins record the event
time of each row, and deduplication within a watermark records the time until which a key is kept. Other
states have no times.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.model import (
    EVENT,
    PROCESSING,
    KeySize,
    NamedState,
    StateAges,
    StateEntry,
    StateForm,
    by_key,
    clock_ms,
)
from holdfast.at_rest.tables import EXPIRES, column_names, gathered, row_batch, schema_of
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.state.key_partition import partition_of_key, placing_fields
from holdfast.checkpoints.state.lookup import Sought, find, sought
from holdfast.checkpoints.state.rocksdb import Pairs
from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.errors import Internal, Invalid, Unsupported
from holdfast.formats.rows.row_forms import KeyKind
from holdfast.formats.rows.spark_types import Atom
from holdfast.savepoints.view import SavepointView
from holdfast.storage.port import Storage

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    Times = NDArray[np.int64]

_DELAY: Final = "spark.watermarkDelayMs"
# The column with the time at which deduplication within a watermark forgets a key.
UNTIL: Final = "expiresAtMicros"
_MICROS: Final = 1000
_SECOND: Final = 1000
_TIMESTAMPS: Final = (Atom("timestamp"), Atom("timestamp_ntz"))
_WINDOWS: Final = ("window", "session_window")
# The number of newest expiry times that are compared with the times of batches.
_COMPARED: Final = 200


@dataclass(frozen=True, slots=True)
class _TimeColumn:
    """The column with the times of a state, its unit, and the offset to add."""

    column: str
    clock: str
    what: str
    delay_ms: int | None = None
    end_of_window: bool = False
    micros: bool = False


def spark_ages(
    files: OperatorStates,
    state: NamedState,
    chunks: Iterable[tuple[StateCodec, int, Pairs]],
    by: str | None,
    current_ttl_ms: int | None,
) -> StateAges:
    """Return the times of the rows of a state of a Spark operator.

    Args:
        files: The reader of the operator's files.
        state: The state.
        chunks: The stored rows of the state.
        by: A column of key or value with the time, if the state records none.
        current_ttl_ms: The current TTL of the state, for use if it cannot be computed from the files.

    Raises:
        Invalid: The column does not exist or does not contain times.
        Corrupt: A file or a row is damaged.
        NotFound: A file that the batch needs is missing.
    """
    source = _chosen(state, by) if by is not None else _time_column(state)
    times, sizes, rows, total = _collected(state, chunks, source)
    if source is None:
        return StateAges(state, None, "rows of this state have no timestamp", None, times, sizes, rows, total)
    if source.column == EXPIRES and by is None:
        ttl = current_ttl_ms if current_ttl_ms is not None else _worked_out(files, times)
        if ttl is None:
            what = "its rows have expiry times but no write times: give the current TTL"
            return StateAges(state, None, what, None, times[:0], sizes[:0], rows, total)
        times = times - ttl
        source = _TimeColumn(EXPIRES, PROCESSING, f"written, computed from a TTL of {ttl} ms")
    now = clock_ms(files, source.clock)
    return StateAges(state, source.clock, source.what, now, times, sizes, rows, total, source.delay_ms)


def watermark_column(state: NamedState) -> str | None:
    """Return the column whose time or window end is compared with the watermark; None without one."""
    source = _time_column(state)
    return None if source is None or source.delay_ms is None else source.column


def _time_column(state: NamedState) -> _TimeColumn | None:
    """Return the column with the times that a state records; None if it records none."""
    event = _event_column(state)
    names = column_names(state)
    if state.ttl:
        return _TimeColumn(EXPIRES, PROCESSING, "written")
    if UNTIL in names:
        return _TimeColumn(UNTIL, EVENT, "remembered until", micros=True)
    window = next((name for name in _WINDOWS if name in names), None)
    if window is not None and (event is None or not event.end_of_window):
        delay = None if event is None else event.delay_ms
        return _TimeColumn(window, EVENT, "end of the window", delay, end_of_window=True)
    return event


def _event_column(state: NamedState) -> _TimeColumn | None:
    """Return the event-time column in the schema: a time, or a window of any name."""
    schema = None if state.codec is None else state.codec.schema
    if schema is None:
        return None
    names = column_names(state)
    for text, offset in (
        (schema.key_schema, 0),
        (schema.value_schema, len(state.key.names) + len(state.sub.names)),
    ):
        for at, field in enumerate(json.loads(text)["fields"]):
            delay = (field.get("metadata") or {}).get(_DELAY)
            if delay is None or offset + at >= len(names):
                continue
            name, type_ = names[offset + at], field["type"]
            if type_ in ("timestamp", "timestamp_ntz"):
                return _TimeColumn(name, EVENT, "event time", int(delay))
            if isinstance(type_, dict) and [part["name"] for part in type_["fields"]] == ["start", "end"]:
                return _TimeColumn(name, EVENT, "end of the window", int(delay), end_of_window=True)
    return None


def _chosen(state: NamedState, by: str) -> _TimeColumn:
    names = column_names(state)
    types = [*state.key.types, *state.sub.types, *state.value.types]
    if by == EXPIRES and state.ttl:
        return _TimeColumn(EXPIRES, PROCESSING, "expires")
    able = [name for name, type_ in zip(names, types, strict=False) if type_ in _TIMESTAMPS]
    if by not in able:
        raise Invalid(
            "the state has no timestamp column with this name",
            code="HF-E2026",
            where=state.full_name,
            found=by,
            expected=", ".join(able) or "no column, because the state has no timestamp column",
            hint="give a timestamp column, as listed by `holdfast state list CHECKPOINT`, or omit the column",
        )
    return _TimeColumn(by, EVENT, f"column {by}", micros=False)


def _collected(
    state: NamedState, chunks: Iterable[tuple[StateCodec, int, Pairs]], source: _TimeColumn | None
) -> tuple[Times, Times, int, int]:
    import numpy as np

    schema = schema_of(state)
    times: list[Times] = [np.empty(0, np.int64)]
    sizes: list[Times] = [np.empty(0, np.int64)]
    rows = total = 0
    for codec, partition, pairs in gathered(chunks):
        whole = np.array([len(key) + len(value) for key, value in pairs], np.int64)
        total += int(whole.sum())
        if source is None:
            rows += sum(_elements(codec, pairs)) if state.lists_values else len(pairs)
            continue
        batch = row_batch(state, codec, partition, pairs, schema)
        rows += batch.num_rows
        if batch.num_rows != len(whole):  # the elements of a list share its metadata
            counts = _elements(codec, pairs)
            whole = np.repeat(whole // np.maximum(counts, 1), counts)
        known, rows_times = _times(batch.column(batch.schema.get_field_index(source.column)), source)
        times.append(rows_times)
        sizes.append(whole[known])
    return np.concatenate(times), np.concatenate(sizes), rows, total


def _elements(codec: StateCodec, pairs: Pairs) -> list[int]:
    """Return the number of elements of each list."""
    return [len(codec.values.rows(value, codec.where)[0]) for _, value in pairs]


def _times(column: Any, source: _TimeColumn) -> tuple[NDArray[np.bool_], Times]:
    """Return a mask of the rows that have a time, and these times in milliseconds."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if source.end_of_window:
        column = pc.struct_field(column, "end")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        divisor = _MICROS
    else:
        divisor = _MICROS if source.micros else 1
    known = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    values = column.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return known, values // divisor


def _worked_out(files: OperatorStates, expiries: Times) -> int | None:
    """Return the TTL with which values were written.

    A value expires exactly one TTL after the time of the batch that wrote it, so the TTL is the most frequent
    difference between expiry times and times of kept batches; None if that is not unique.
    """
    import numpy as np

    logs = files.logs
    planned = [
        offsets.timestamp_ms
        for batch_id in logs.committed
        if batch_id <= files.batch_id and (offsets := logs.offsets(batch_id)) is not None
    ]
    newest: list[int] = np.unique(expiries)[-_COMPARED:].tolist()
    votes: Counter[int] = Counter(expiry - at for expiry in newest for at in planned if expiry > at)
    most = max(votes.values(), default=0)
    best = [found for found, times in votes.items() if times == most]
    if len(best) == 1 and (most > 1 or len(planned) == 1):
        return best[0]
    # If one batch wrote all values: TTLs are whole seconds, while batches are planned at any millisecond.
    whole = [found for found in best if found % _SECOND == 0]
    return whole[0] if len(whole) == 1 else None


# Each of these stores a key as one field of the stored key.
_NESTED_KEY = (StateForm.MAP, StateForm.TIMERS)


@dataclass(frozen=True, slots=True)
class SparkSource:
    """A reader of the states of one Spark operator.

    Attributes:
        storage: The checkpoint, or a savepoint's view.
        files: The reader of the operator's files.
    """

    storage: Storage
    files: OperatorStates

    @property
    def notes_writes(self) -> bool:
        """True, because each change of a row is a record."""
        return True

    def get(self, state: NamedState, key: Mapping[str, Any]) -> Iterable[StateEntry]:
        """Return the rows of a key. Cost: reads the files of one partition that can contain the key."""
        codec = self._codec(state)
        return _in_order(
            state,
            [
                entry
                for stored in self._stored_keys(state, codec, key)
                for stored_rows in find(self.storage, self.files, codec, stored)
                for entry in _entries_of(state, codec, stored_rows.partition, stored_rows.pairs)
            ],
        )

    def scan(self, state: NamedState, tell: ProgressCallback | None = None) -> Iterator[StateEntry]:
        """Yield every row. Cost: several microseconds per row."""
        for codec, partition, pairs in self.chunks(state, tell):
            yield from _entries_of(state, codec, partition, pairs)

    def tables(
        self, state: NamedState, schema: pa.Schema, tell: ProgressCallback | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows as record batches. Cost: about 2 microseconds per row."""
        from holdfast.at_rest.tables import gathered, row_batch

        for codec, partition, pairs in gathered(self.chunks(state, tell)):
            yield row_batch(state, codec, partition, pairs, schema)

    def key_sizes(self, state: NamedState, tell: ProgressCallback | None = None) -> Iterator[KeySize]:
        """Yield the size of each key; if keys have several rows, all keys are held in memory."""
        if state.form not in (StateForm.VALUE, StateForm.LIST):
            yield from by_key(self._row_sizes(state, tell))
            return
        for codec, partition, pairs in self.chunks(state, tell):
            read = partial(_key_of, state, codec)
            for key, value in pairs:
                yield KeySize(1, len(key) + len(value), partition, read, key)

    def has_ages(self, state: NamedState) -> bool:  # noqa: ARG002 - any state of Spark may have times
        """Return True, because any state may have times."""
        return True

    def ages(
        self,
        state: NamedState,
        by: str | None = None,
        current_ttl_ms: int | None = None,
        tell: ProgressCallback | None = None,
    ) -> StateAges:
        """Return the times of a state's rows. Cost: about 2 microseconds and 16 bytes of memory per row."""
        return spark_ages(self.files, state, self.chunks(state, tell), by, current_ttl_ms)

    def locate(
        self, state: NamedState, key: Mapping[str, Any], files: OperatorStates
    ) -> tuple[list[Sought], int | None]:
        """Return the lookup of the stored key, or of the prefix of its rows."""
        codec = files.codec_of(*state.stored)
        values = {codec.key_type.names[0]: key} if state.form in _NESTED_KEY else dict(key)
        placing = dict(list(values.items())[: placing_fields(codec)])
        return [sought(codec, values)], partition_of_key(files, codec, placing)

    def decode(
        self,
        state: NamedState,
        key: Mapping[str, Any],  # noqa: ARG002 - each row contains its key
        stored: Iterable[tuple[StateCodec, int, Pairs]],
    ) -> Iterable[StateEntry]:
        """Return the decoded form of stored rows."""
        return _in_order(state, [entry for rows in stored for entry in _entries_of(state, *rows)])

    def ttl_clock(self, state: NamedState) -> str:  # noqa: ARG002 - the same for all states of Spark
        """Return the processing-time clock, the only one for a TTL in Spark."""
        return PROCESSING

    def key_group(self, state: NamedState, key: Mapping[str, Any]) -> int | None:  # noqa: ARG002 - not needed
        """Return None, because Spark has no key groups."""
        return None

    def plain_value(self, state: NamedState, entry: StateEntry) -> Any:  # noqa: ARG002 - all states have columns
        """Return the columns of the value."""
        return dict(entry.value)

    def spark_reads(self, state: NamedState) -> bool:
        """Return whether Spark's reader can read a state, which excludes savepoints and collections."""
        collection = state.form in (StateForm.LIST, *_NESTED_KEY)
        return not collection and not isinstance(self.storage, SavepointView)

    def chunks(
        self, state: NamedState, tell: ProgressCallback | None = None
    ) -> Iterator[tuple[StateCodec, int, Pairs]]:
        """Yield the stored rows of a state in chunks, each with its partition."""
        name = self._codec(state).name
        for codec, partition, pairs in state_chunks(
            self.storage, self.files.batch_id, operator_id=state.operator_id, tell=tell
        ):
            if codec.name == name:
                yield codec, partition, pairs

    def _codec(self, state: NamedState) -> StateCodec:
        codec = state.codec
        if codec is None:
            raise Internal(
                "a Spark state cannot be read, because it has no codec",
                code="HF-E9001",
                where=state.full_name,
                hint="please report this",
            )
        if codec.values.avro:
            raise Unsupported(
                "state in Avro encoding cannot be read from files",
                code="HF-E7004",
                where=state.full_name,
                hint="read the state with Spark: hf.state(…).frame(…)",
            )
        return codec

    def _stored_keys(
        self, state: NamedState, codec: StateCodec, key: Mapping[str, Any]
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the stored keys of a key, or their prefixes."""
        counts = state.counts
        if state.form is StateForm.ROWS and counts is not None:
            index = state.sub.names[0]
            counted = dict(zip(counts.key_type.names, key.values(), strict=True))
            for counted_rows in find(self.storage, self.files, counts, counted):
                for _, value in counted_rows.pairs:
                    rows, _ = counts.values.rows(value, counts.where)
                    (count,) = counts.value_values(rows[0]).values()
                    for place in range(count):
                        yield {**key, index: place}
        elif state.form in _NESTED_KEY:
            yield {codec.key_type.names[0]: key}
        else:
            yield key

    def _row_sizes(self, state: NamedState, tell: ProgressCallback | None) -> Iterator[tuple[Any, KeySize]]:
        """Yield the sizes of rows if keys have several, each with a value that identifies its key."""
        for codec, partition, pairs in self.chunks(state, tell):
            prefixed = codec.values.rocksdb and codec.key_form.kind is KeyKind.PREFIX
            read = partial(_key_of, state, codec)
            for key, value in pairs:
                row = KeySize(1, len(key) + len(value), partition, read, key)
                if prefixed:
                    yield key[: 4 + int.from_bytes(key[:4], "little")], row
                else:
                    yield repr(list(row.key().values())), row


def _entries_of(state: NamedState, codec: StateCodec, partition: int, pairs: Pairs) -> Iterator[StateEntry]:
    """Decode stored rows.

    Raises:
        Corrupt: A row is damaged.
        Unsupported: The schema has a type that is not supported.
    """
    for stored, value in pairs:
        fields = codec.key_values(codec.key_row(stored))
        key, sub = _key_parts(state, fields)
        rows, _ = codec.values.rows(value, codec.where)
        # The overhead of a list is added to its first element.
        size = len(stored) + len(value) - sum(map(len, rows))
        for row in rows:
            fields_of_value, expires = _value_parts(state, codec.value_values(row))
            yield StateEntry(key, sub, fields_of_value, expires, partition, size + len(row))
            size = 0


def _key_of(state: NamedState, codec: StateCodec, stored: bytes) -> Mapping[str, Any]:
    """Return the columns of a stored key.

    Raises:
        Corrupt: The row is damaged.
        Unsupported: The schema has a type that is not supported.
    """
    return _key_parts(state, codec.key_values(codec.key_row(stored)))[0]


def _key_parts(state: NamedState, fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    if state.form in (StateForm.MAP, StateForm.TIMERS):
        key, sub = fields.values()
        if state.form is StateForm.TIMERS:
            sub = {state.sub.names[0]: sub}
        return key, sub
    return {name: fields[name] for name in state.key.names}, {name: fields[name] for name in state.sub.names}


def _value_parts(state: NamedState, fields: Any) -> tuple[dict[str, Any], int | None]:
    expires = None
    if state.ttl:
        fields, expires = fields.values()
    return {name: fields[name] for name in state.value.names}, expires


def _in_order(state: NamedState, entries: list[StateEntry]) -> list[StateEntry]:
    """Return a key's rows in the order of their distinguishing columns."""
    if state.form in (StateForm.ROWS, StateForm.SESSIONS, StateForm.TIMERS):
        return sorted(entries, key=lambda entry: next(iter(entry.sub.values())))
    if state.form is StateForm.MAP:
        return sorted(entries, key=lambda entry: repr(list(entry.sub.values())))
    return entries
