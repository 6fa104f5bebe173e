"""How old the rows of a state are, by the times that the state itself carries.

Which times these are differs. Holdfast's keyed states with a time to live note when each value was written;
Spark's note when each will expire, from which the time to live is worked out if it is not given. Windows and
sessions have their ends, joins the event time of each row, duplicates within a watermark the time until which
they are remembered. A state that carries nothing of the kind is told apart.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.read import keyed_source
from holdfast.at_rest.read.model import NamedOperator, NamedState, StateForm
from holdfast.at_rest.read.state_reader import StateReader
from holdfast.at_rest.read.tables import EXPIRES, column_names, gathered, row_batch, schema_of
from holdfast.checkpoints.state.families import Pairs
from holdfast.checkpoints.state.states import StateCodec
from holdfast.checkpoints.values import ProgressCallback
from holdfast.errors import Invalid
from holdfast.formats.rows.spark_types import Atom

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Times = NDArray[np.int64]

_DELAY: Final = "spark.watermarkDelayMs"
_UNTIL: Final = "expiresAtMicros"
_MICROS: Final = 1000
_SECOND: Final = 1000
_TIMESTAMPS: Final = (Atom("timestamp"), Atom("timestamp_ntz"))
_WINDOWS: Final = ("window", "session_window")
# Newest times of expiry that are held against the times of batches.
_COMPARED: Final = 200


@dataclass(frozen=True, slots=True)
class Aged:
    """The times of a state's rows.

    Attributes:
        state: The state.
        clock: By which clock they go, `processing` or `event`; None where the state carries no times.
        what: What the times are, in words; or why there are none.
        now_ms: What that clock showed after the batch.
        times: The time of each row that has one, in epoch milliseconds.
        sizes: The bytes of each of these rows, key and value.
        rows: All rows, with a time or without.
        size_bytes: Their bytes.
        delay_ms: The watermark's delay, where it decides when rows go.
    """

    state: NamedState
    clock: str | None
    what: str
    now_ms: int | None
    times: Times
    sizes: Times
    rows: int
    size_bytes: int
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a state has its times: a column, what they are, and what to add to make them that."""

    column: str
    clock: str
    what: str
    delay_ms: int | None = None
    end_of_window: bool = False
    micros: bool = False


def ages(
    reader: StateReader,
    operator: NamedOperator,
    state: NamedState,
    *,
    by: str | None = None,
    current_ttl_ms: int | None = None,
    tell: ProgressCallback | None = None,
) -> Aged:
    """The times of a state's rows. Cost: every row is read, about 2 microseconds each, and 16 bytes kept.

    Args:
        reader: The checkpoint or savepoint at its batch.
        operator: The operator.
        state: One of its states.
        by: A column of key or value that has the time, where the state carries none of itself.
        current_ttl_ms: The time to live that the state has now, where it cannot be worked out.
        tell: Called with stores done, stores in all, and what is being done.

    Raises:
        Invalid: There is no such column, or it holds no times.
        Corrupt: A file or a row is damaged.
        NotFound: A file that the batch needs is gone.
    """
    if state.own is not None:
        return _own_ages(operator, state)
    source = _chosen(state, by) if by is not None else _source(state)
    times, sizes, rows, total = _collected(reader, operator, state, source, tell)
    if source is None:
        return Aged(state, None, "its rows carry no times", None, times, sizes, rows, total)
    if source.column == EXPIRES and by is None:
        ttl = current_ttl_ms if current_ttl_ms is not None else _worked_out(reader, operator, times)
        if ttl is None:
            what = "its rows say when they expire, and nobody when they were written: name the time to live"
            return Aged(state, None, what, None, times[:0], sizes[:0], rows, total)
        times = times - ttl
        source = _Source(EXPIRES, keyed_source.PROCESSING, f"written, from a time to live of {ttl} ms")
    now = _now(operator, source.clock)
    return Aged(state, source.clock, source.what, now, times, sizes, rows, total, source.delay_ms)


def _source(state: NamedState) -> _Source | None:
    """The times that a state carries of itself."""
    delay, column = _event_column(state)
    names = column_names(state)
    if state.ttl:
        return _Source(EXPIRES, keyed_source.PROCESSING, "written")
    if _UNTIL in names:
        return _Source(_UNTIL, keyed_source.EVENT, "remembered until", micros=True)
    window = next((name for name in _WINDOWS if name in names), None)
    if window is not None:
        return _Source(window, keyed_source.EVENT, "end of the window", delay, end_of_window=True)
    if column is not None:
        return _Source(column, keyed_source.EVENT, "event time", delay)
    return None


def _event_column(state: NamedState) -> tuple[int | None, str | None]:
    """The delay of the watermark and the column that it is of, as Spark notes them in a schema."""
    schema = None if state.codec is None else state.codec.schema
    if schema is None:
        return None, None
    names = column_names(state)
    for text, offset in (
        (schema.key_schema, 0),
        (schema.value_schema, len(state.key.names) + len(state.sub.names)),
    ):
        for at, each in enumerate(json.loads(text)["fields"]):
            delay = (each.get("metadata") or {}).get(_DELAY)
            if delay is not None and offset + at < len(names):
                timestamp = each["type"] in ("timestamp", "timestamp_ntz")
                return int(delay), names[offset + at] if timestamp else None
    return None, None


def _chosen(state: NamedState, by: str) -> _Source:
    names = column_names(state)
    types = [*state.key.types, *state.sub.types, *state.value.types]
    if by == EXPIRES and state.ttl:
        return _Source(EXPIRES, keyed_source.PROCESSING, "expires")
    able = [name for name, type_ in zip(names, types, strict=False) if type_ in _TIMESTAMPS]
    if by not in able:
        raise Invalid(
            "there is no such column of times",
            where=state.full_name,
            found=by,
            expected=", ".join(able) or "none: no column of this state is a timestamp",
        )
    return _Source(by, keyed_source.EVENT, f"column {by}", micros=False)


def _collected(
    reader: StateReader,
    operator: NamedOperator,
    state: NamedState,
    source: _Source | None,
    tell: ProgressCallback | None,
) -> tuple[Times, Times, int, int]:
    import numpy as np  # noqa: PLC0415 - only who asks for ages loads it

    schema = schema_of(state)
    times: list[Times] = [np.empty(0, np.int64)]
    sizes: list[Times] = [np.empty(0, np.int64)]
    rows = total = 0
    for codec, partition, pairs in gathered(reader.chunks(operator, state, tell=tell)):
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
        known, found = _times(batch.column(batch.schema.get_field_index(source.column)), source)
        times.append(found)
        sizes.append(whole[known])
    return np.concatenate(times), np.concatenate(sizes), rows, total


def _elements(codec: StateCodec, pairs: Pairs) -> list[int]:
    """How many elements each list has."""
    return [len(codec.values.rows(value, codec.where)[0]) for _, value in pairs]


def _times(column: Any, source: _Source) -> tuple[NDArray[np.bool_], Times]:
    """Which rows have a time, and the times of these in milliseconds."""
    import numpy as np  # noqa: PLC0415 - as above
    import pyarrow as pa  # noqa: PLC0415 - as above
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    if source.end_of_window:
        column = pc.struct_field(column, "end")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        divisor = _MICROS
    else:
        divisor = _MICROS if source.micros else 1
    known = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    found = column.drop_null().to_numpy(zero_copy_only=False).astype(np.int64)
    return known, found // divisor


def _own_ages(operator: NamedOperator, state: NamedState) -> Aged:
    import numpy as np  # noqa: PLC0415 - as above

    empty = np.empty(0, np.int64)
    if state.form in (StateForm.KEYED, StateForm.TIMERS):
        rows = sum(1 for _ in keyed_source.rows(state)) if state.form is StateForm.TIMERS else 0
        what = (
            "its states are looked at one by one" if state.form is StateForm.KEYED else "timers have no age"
        )
        return Aged(state, None, what, None, empty, empty, rows, 0)
    stamps, sizes = [empty], [empty]
    rows = total = 0
    for found, size in keyed_source.stamps(state):
        rows += len(size)
        total += int(size.sum())
        known = ~np.isnan(found)
        stamps.append(found[known].astype(np.int64))
        sizes.append(size[known])
    if not state.ttl:
        what = "it has no time to live, so nobody noted when its values were written"
        return Aged(state, None, what, None, empty, empty, rows, total)
    clock = keyed_source.clock_of(state)
    now = _now(operator, clock)
    return Aged(state, clock, "written", now, np.concatenate(stamps), np.concatenate(sizes), rows, total)


def _now(operator: NamedOperator, clock: str) -> int | None:
    """What a clock showed after the batch: state at rest does not grow older by lying about."""
    logs = operator.files.logs
    if clock == keyed_source.PROCESSING:
        offsets = logs.offsets(operator.files.batch_id)
        return None if offsets is None else offsets.timestamp_ms
    commit = logs.commit(operator.files.batch_id)
    return None if commit is None else commit.next_watermark_ms or None


def _worked_out(reader: StateReader, operator: NamedOperator, expiries: Times) -> int | None:
    """The time to live that values were written with.

    A value expires exactly that long after the time of the batch that wrote it, so it is the difference that
    most expiries have to the time of a batch which is kept; None where that cannot be told.
    """
    import numpy as np  # noqa: PLC0415 - as above

    logs = operator.files.logs
    planned = [
        offsets.timestamp_ms
        for batch_id in logs.committed
        if batch_id <= reader.batch_id and (offsets := logs.offsets(batch_id)) is not None
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


def states_of(operators: Sequence[NamedOperator]) -> Iterator[tuple[NamedOperator, NamedState]]:
    """The states that have ages of their own: of a keyed operator each by itself."""
    for operator in operators:
        for state in operator.states:
            if state.form is not StateForm.KEYED and not (
                state.own is not None and state.form is StateForm.TIMERS
            ):
                yield operator, state
