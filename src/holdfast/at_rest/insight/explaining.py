"""Why a state holds what it holds for a key: which batch wrote it, from which input, when it expires."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.at_rest.insight.history import key_history
from holdfast.at_rest.read.model import EVENT, PROCESSING, KeyState, NamedOperator, NamedState, clock_ms
from holdfast.at_rest.read.spark_ages import UNTIL, watermark_column
from holdfast.at_rest.read.state_reader import StateReader
from holdfast.checkpoints.logs.batch_input import InputRange, batch_input
from holdfast.checkpoints.values import ProgressCallback
from holdfast.formats.operators import short_name
from holdfast.json_shapes import JsonShape, json_spread

_MICROS: Final = 1000
# Operators whose rows go when the watermark passes the time in them; and those of which it removes none.
_BY_TIME: Final = frozenset({"aggregate", "dedupe", "sessions"})
_BY_NO_WATERMARK: Final = frozenset({"processor", "groups", "limit"})


@dataclass(frozen=True, slots=True)
class Rank(JsonShape):
    """Where a key stands among all of its state, by bytes.

    Attributes:
        rank: 1 for the largest.
        keys: How many keys there are.
        share: Its part of all bytes.
    """

    rank: int
    keys: int
    share: float


@dataclass(frozen=True, slots=True)
class Explanation(JsonShape):
    """What is known of a key.

    Attributes:
        found: What the state holds.
        written_batch: The newest batch that has written it; None where that was before what is kept.
        exact: Whether the files tell of each write, and not only of other values.
        first_kept: The oldest batch that is kept.
        written_ms: When that batch was planned.
        inputs: What the batch had read from each source: files, or offsets of topics and tables.
        watermark_ms: The watermark that the batch ran under.
        watermark_now_ms: The watermark that the newest batch has left.
        expires_ms: When the first and the last of its rows expire. Those of an aggregation stay for good in
            the output mode `complete`, which no file tells.
        clock: Which clock that goes by: `processing` or `event`. With it and without a time, the rows of a
            join go with the watermark, at a time that follows from its condition.
        left_ms: How long until the first expires; negative where it has.
        partition: The partition that it is in.
        partitions: How many there are.
        key_group: The key group, of Holdfast's keyed operators.
        rank: Where it stands among the largest; None where nobody asked.
    """

    found: KeyState = field(metadata=json_spread())
    written_batch: int | None
    exact: bool
    first_kept: int | None
    written_ms: int | None
    inputs: tuple[InputRange, ...]
    watermark_ms: int | None
    watermark_now_ms: int | None
    expires_ms: tuple[int, int] | None
    clock: str | None
    left_ms: int | None
    partition: int | None
    partitions: int
    key_group: int | None
    rank: Rank | None


def explain(
    reader: StateReader,
    operator: NamedOperator,
    state: NamedState,
    key: Mapping[str, Any],
    now_ms: int,
    *,
    rank: bool = True,
    tell: ProgressCallback | None = None,
) -> Explanation:
    """Say of a key what its files and the logs tell.

    Cost: that of `key_history`; with `rank` every row of the state is read too, about a microsecond each.

    Args:
        reader: The checkpoint or savepoint at its batch.
        operator: The operator.
        state: One of its states.
        key: The key, its values of the types of the columns.
        now_ms: The wall clock, by which time to live in processing time goes.
        rank: Whether to say where it stands among the largest.
        tell: Called with stores done, stores in all, and what is being done.

    Raises:
        NotFound: A file has gone while it was about to be read.
        Corrupt: A file is damaged.
        Unsupported: The state is of a kind that cannot be read.
    """
    found = reader.found(state, key)
    history = key_history(reader, operator, state, key)
    logs = operator.files.logs
    batch_id = history.last_written
    offsets = None if batch_id is None else logs.offsets(batch_id)
    watermark_now = clock_ms(operator.files, EVENT)
    clock, times = _expiry(operator, state, found)
    left = None
    if times is not None:
        now = now_ms if clock == PROCESSING else watermark_now
        left = None if now is None else times[0] - now
    return Explanation(
        found=found,
        written_batch=batch_id,
        exact=history.exact,
        first_kept=history.batches[0] if history.batches else None,
        written_ms=None if offsets is None else offsets.timestamp_ms,
        inputs=() if batch_id is None else batch_input(reader.storage, logs, batch_id),
        watermark_ms=None if offsets is None else offsets.watermark_ms or None,
        watermark_now_ms=watermark_now,
        expires_ms=times,
        clock=clock,
        left_ms=left,
        partition=found.partition,
        partitions=operator.partitions,
        key_group=state.source.key_group(state, key),
        rank=_ranked(state, found, tell) if rank and found.exists else None,
    )


def _expiry(
    operator: NamedOperator, state: NamedState, found: KeyState
) -> tuple[str | None, tuple[int, int] | None]:
    """By which clock the rows of a key expire, and when the first and the last of them do."""
    if state.ttl:
        clock: str | None = state.source.ttl_clock(state)
        times = [entry.expires_ms for entry in found.entries if entry.expires_ms is not None]
    elif UNTIL in state.value.names:
        clock, times = EVENT, [entry.value[UNTIL] // _MICROS for entry in found.entries]
    else:
        return _removed_by_watermark(operator, state, found)
    return (clock, (min(times), max(times))) if times else (None, None)


def _removed_by_watermark(
    operator: NamedOperator, state: NamedState, found: KeyState
) -> tuple[str | None, tuple[int, int] | None]:
    """When the watermark removes the rows: at the end of their window, or when it passes the time in the key.

    Of a join only the clock is known: the time follows from its condition, which no file has.
    """
    does = short_name(operator.kind)
    column = None if does in _BY_NO_WATERMARK else watermark_column(state)
    if column is None:
        return None, None
    if does not in _BY_TIME:
        return EVENT, None
    marks = [{**entry.key, **entry.sub, **entry.value}[column] for entry in found.entries]
    # The watermark passes no time that is null.
    times = [_ms(mark["end"] if isinstance(mark, Mapping) else mark) for mark in marks if mark is not None]
    return (EVENT, (min(times), max(times))) if times else (None, None)


def _ms(time: dt.datetime) -> int:
    """A time in epoch milliseconds; one without a zone is held against the watermark as UTC."""
    return round((time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)).timestamp() * 1000)


def _ranked(state: NamedState, found: KeyState, tell: ProgressCallback | None) -> Rank:
    keys = total = larger = 0
    for key in state.source.key_sizes(state, tell):
        keys += 1
        total += key.size_bytes
        larger += key.size_bytes > found.size_bytes
    return Rank(larger + 1, keys, found.size_bytes / max(total, 1))
