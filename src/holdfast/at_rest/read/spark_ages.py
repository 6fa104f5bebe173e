"""How old the rows of one of Spark's states are, by the times that the state itself carries.

Which times these are differs. States with a time to live note when each value will expire, from which the
time to live is worked out if it is not given. Windows and sessions have their ends, joins the event time of
each row, duplicates within a watermark the time until which they are remembered. Other states carry no times.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.read.model import EVENT, PROCESSING, NamedState, StateAges, StateForm, clock_ms
from holdfast.at_rest.read.tables import EXPIRES, column_names, gathered, row_batch, schema_of
from holdfast.checkpoints.state.families import Pairs
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.errors import Invalid
from holdfast.formats.rows.spark_types import Atom

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Times = NDArray[np.int64]

_DELAY: Final = "spark.watermarkDelayMs"
# When a duplicate within a watermark is forgotten.
UNTIL: Final = "expiresAtMicros"
_MICROS: Final = 1000
_SECOND: Final = 1000
_TIMESTAMPS: Final = (Atom("timestamp"), Atom("timestamp_ntz"))
_WINDOWS: Final = ("window", "session_window")
# Newest times of expiry that are held against the times of batches.
_COMPARED: Final = 200


@dataclass(frozen=True, slots=True)
class _TimeColumn:
    """Where a state has its times: a column, what they are, and what to add to make them that."""

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
    """The times of the rows of one of Spark's states.

    Args:
        files: What reads the operator's files.
        state: The state.
        chunks: Its rows as they are stored.
        by: A column of key or value that has the time, where the state carries none of itself.
        current_ttl_ms: The time to live that the state has now, where it cannot be worked out.

    Raises:
        Invalid: There is no such column, or it holds no times.
        Corrupt: A file or a row is damaged.
        NotFound: A file that the batch needs is gone.
    """
    source = _chosen(state, by) if by is not None else _time_column(state)
    times, sizes, rows, total = _collected(state, chunks, source)
    if source is None:
        return StateAges(state, None, "its rows carry no times", None, times, sizes, rows, total)
    if source.column == EXPIRES and by is None:
        ttl = current_ttl_ms if current_ttl_ms is not None else _worked_out(files, times)
        if ttl is None:
            what = "its rows say when they expire, and nobody when they were written: name the time to live"
            return StateAges(state, None, what, None, times[:0], sizes[:0], rows, total)
        times = times - ttl
        source = _TimeColumn(EXPIRES, PROCESSING, f"written, from a time to live of {ttl} ms")
    now = clock_ms(files, source.clock)
    return StateAges(state, source.clock, source.what, now, times, sizes, rows, total, source.delay_ms)


def watermark_column(state: NamedState) -> str | None:
    """The column whose time, or end of a window, is held against the watermark; None without a watermark."""
    source = _time_column(state)
    return None if source is None or source.delay_ms is None else source.column


def _time_column(state: NamedState) -> _TimeColumn | None:
    """The times that a state carries of itself."""
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
    """The column that the watermark is of, as Spark notes it in a schema: a time, or a window of any name."""
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
            "there is no such column of times",
            where=state.full_name,
            found=by,
            expected=", ".join(able) or "none: no column of this state is a timestamp",
            hint="leave the column out, or name one that `holdfast state list` shows as a timestamp",
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
            rows += sum(_elements(codec, pairs)) if state.form is StateForm.LIST else len(pairs)
            continue
        batch = row_batch(state, codec, partition, pairs, schema)
        rows += batch.num_rows
        if batch.num_rows != len(whole):  # the elements of lists share what the list has
            counts = _elements(codec, pairs)
            whole = np.repeat(whole // np.maximum(counts, 1), counts)
        known, rows_times = _times(batch.column(batch.schema.get_field_index(source.column)), source)
        times.append(rows_times)
        sizes.append(whole[known])
    return np.concatenate(times), np.concatenate(sizes), rows, total


def _elements(codec: StateCodec, pairs: Pairs) -> list[int]:
    """How many elements each list has."""
    return [len(codec.values.rows(value, codec.where)[0]) for _, value in pairs]


def _times(column: Any, source: _TimeColumn) -> tuple[NDArray[np.bool_], Times]:
    """Which rows have a time, and the times of these in milliseconds."""
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
    """The time to live that values were written with.

    A value expires exactly that long after the time of the batch that wrote it, so it is the difference that
    most expiries have to the time of a batch which is kept; None where that cannot be told.
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
    # Where all were written by one batch: people name whole seconds, and batches come at any millisecond.
    whole = [found for found in best if found % _SECOND == 0]
    return whole[0] if len(whole) == 1 else None
