"""Analysis of state: the history of a key, the reason for its value, the largest keys, and TTL estimates."""

from __future__ import annotations

import datetime as dt
import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from holdfast import layout
from holdfast.at_rest.model import (
    EVENT,
    PROCESSING,
    KeySize,
    KeyState,
    NamedOperator,
    NamedState,
    StateAges,
    StateForm,
    clock_ms,
)
from holdfast.at_rest.spark_source import UNTIL, watermark_column
from holdfast.at_rest.state_reader import StateReader, pick_operators
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.logs import InputRange, batch_input
from holdfast.checkpoints.state.lookup import KeptRows, Sought, kept_rows
from holdfast.checkpoints.state.states import OperatorStates
from holdfast.config.checks import local_path
from holdfast.errors import HoldfastError, Invalid, NotFound
from holdfast.formats.operators import short_name
from holdfast.formats.rows.plain import plain
from holdfast.formats.text import json_object
from holdfast.json_shapes import JsonShape, in_json, in_json_as, json_as, json_spread
from holdfast.layout import OwnFile
from holdfast.savepoints import catalog as catalogs
from holdfast.savepoints.view import SavepointView
from holdfast.storage.port import Storage, full

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


FIRST: Final = "first"
SET, CHANGED, REMOVED = "set", "changed", "removed"


@dataclass(frozen=True, slots=True)
class KeyVersion(JsonShape):
    """A batch that changed the value of a key, with the new value.

    Attributes:
        batch_id: The batch.
        planned_ms: The time when the batch was planned, in epoch milliseconds.
        change: `set`, `changed` or `removed`; `first` for the value in the oldest kept batch.
        savepoint: The address of the savepoint that has the batch, if the checkpoint no longer has it;
            otherwise None.
        found: The state of the key after the batch.
    """

    batch_id: int
    planned_ms: int | None
    change: str
    savepoint: str | None
    found: KeyState = field(metadata=json_spread("exists", "value"))


@dataclass(frozen=True, slots=True)
class KeyHistory(JsonShape):
    """The history of a key's values.

    Attributes:
        state: The state.
        key: The key.
        versions: The values of the key, oldest first.
        batches: The batches that were read, ascending.
        last_written: The newest batch that wrote the key, even with an unchanged value; None if that was
            before the oldest kept batch, or if the files show only changed values and no value changed.
        exact: Whether the files record each write, and not only changed values.

    Example:
        history: hf.KeyHistory = hf.state("checkpoints/visits").history("aggregate", "c1")
        assert (history.first_batch, history.last_batch) == (5, 11)
    """

    state: NamedState = field(metadata=json_spread("operator_id", "operator", "state"))
    key: Mapping[str, Any] = field(metadata=json_as(convert=plain))
    versions: tuple[KeyVersion, ...]
    batches: tuple[int, ...] = field(
        metadata=json_as(convert=len, says="The number of batches that were read.")
    )
    last_written: int | None
    exact: bool

    @property
    @in_json
    def first_batch(self) -> int | None:
        """The oldest batch that was read."""
        return self.batches[0] if self.batches else None

    @property
    @in_json
    def last_batch(self) -> int | None:
        """The newest batch that was read."""
        return self.batches[-1] if self.batches else None


@dataclass(frozen=True, slots=True)
class _Seen:
    """The state of a key at one batch."""

    batch_id: int
    planned_ms: int | None
    savepoint: str | None
    found: KeyState
    written: bool | None


def key_history(
    reader: StateReader,
    operator: NamedOperator,
    state: NamedState,
    key: Mapping[str, Any],
    *,
    catalog: Storage | None = None,
) -> KeyHistory:
    """Return the values of a key in a state, batch by batch.

    Cost: reads each file of the key's partition once, only for this key. For batches that only a savepoint
    has, reads those files of the savepoint that can contain the key.

    Args:
        reader: The checkpoint, at its newest batch or at the last one to read.
        operator: The operator of the state.
        state: The state.
        key: The values of the key, with the types of its columns.
        catalog: Savepoints of the same query, for batches that the checkpoint does not keep.

    Raises:
        NotFound: A file was deleted before it was read.
        Corrupt: A file is damaged.
        Unsupported: The state's format cannot be read.
    """
    seen = {seen_at.batch_id: seen_at for seen_at in _retained(reader, operator, state, key)}
    if catalog is not None:
        for saved in _saved(catalog, reader, state, key):
            seen.setdefault(saved.batch_id, saved)
    ordered = [seen[batch_id] for batch_id in sorted(seen)]
    written = [batch.batch_id for batch in ordered if batch.written]
    return KeyHistory(
        state,
        dict(key),
        tuple(_versions(ordered)),
        tuple(batch.batch_id for batch in ordered),
        written[-1] if written else None,
        exact=state.source.notes_writes and all(batch.written is not None for batch in ordered[1:]),
    )


def _versions(seen: Sequence[_Seen]) -> Iterator[KeyVersion]:
    before: KeyState | None = None
    for batch in seen:
        value = _comparable(batch.found)
        if before is None:
            if batch.found.exists:
                # The first batch of a query set the existing values; otherwise they existed before the oldest
                # kept batch.
                change = SET if batch.batch_id == 0 else FIRST
                yield KeyVersion(batch.batch_id, batch.planned_ms, change, batch.savepoint, batch.found)
        elif value != _comparable(before):
            change = REMOVED if not batch.found.exists else CHANGED if before.exists else SET
            yield KeyVersion(batch.batch_id, batch.planned_ms, change, batch.savepoint, batch.found)
        before = batch.found


def _comparable(found: KeyState) -> list[str]:
    """Return a representation of state in which equal values compare equal, including NaN."""
    return [repr((entry.sub, entry.value, entry.expires_ms)) for entry in found.entries]


def _retained(
    reader: StateReader, operator: NamedOperator, state: NamedState, key: Mapping[str, Any]
) -> Iterator[_Seen]:
    logs = operator.files.logs
    batches = [batch_id for batch_id in logs.committed if batch_id <= reader.batch_id]
    for files, some in _stretches(reader, operator, batches):
        wanted, partition = state.source.locate(state, key, files)
        partitions = range(operator.partitions) if partition is None else (partition,)
        walks = [kept_rows(reader.storage, files, number, wanted, some) for number in partitions]
        before: KeyState | None = None
        for kept in _together(walks):
            found = _state_of_key(state, key, wanted, kept)
            offsets = logs.offsets(kept[0].batch_id)
            written = _written(kept, before, found, state)
            planned = None if offsets is None else offsets.timestamp_ms
            yield _Seen(kept[0].batch_id, planned, None, found, written)
            before = found


def _stretches(
    reader: StateReader, operator: NamedOperator, batches: Sequence[int]
) -> Iterator[tuple[OperatorStates, list[int]]]:
    """Yield consecutive batches with the same number of partitions, with the reader of their files."""
    logs = operator.files.logs

    def partitions_at(batch_id: int) -> int | None:
        offsets = logs.offsets(batch_id)
        return None if offsets is None else offsets.partitions

    newest = partitions_at(operator.files.batch_id)
    for partitions, run in groupby(batches, key=partitions_at):
        stretch = list(run)
        yield operator.files if partitions == newest else _files_at(reader, operator, stretch[-1]), stretch


def _files_at(reader: StateReader, operator: NamedOperator, batch_id: int) -> OperatorStates:
    older = StateReader(reader.storage, batch_id)
    return next(other.files for other in older.operators if other.operator_id == operator.operator_id)


def _together(walks: Sequence[Iterator[KeptRows]]) -> Iterator[list[KeptRows]]:
    """Yield the rows of each batch that all searched partitions still have."""
    found = [{rows.batch_id: rows for rows in walk} for walk in walks]
    for batch_id in sorted(set.intersection(*map(set, found))):
        yield [partition[batch_id] for partition in found]


def _state_of_key(
    state: NamedState,
    key: Mapping[str, Any],
    wanted: Sequence[Sought],
    kept: Sequence[KeptRows],
) -> KeyState:
    stored = (
        (place.codec, rows.partition, pairs)
        for rows in kept
        for place, pairs in zip(wanted, rows.pairs, strict=True)
    )
    return KeyState(state, kept[0].batch_id, dict(key), tuple(state.source.decode(state, key, stored)))


def _written(
    kept: Sequence[KeptRows], before: KeyState | None, found: KeyState, state: NamedState
) -> bool | None:
    if before is not None and _comparable(before) != _comparable(found):
        return True
    told = [rows.written for rows in kept]
    if not state.source.notes_writes:
        return None if before is None else False
    return None if None in told else any(told)


def _saved(
    catalog: Storage, reader: StateReader, state: NamedState, key: Mapping[str, Any]
) -> Iterator[_Seen]:
    """Yield the state of the key in each savepoint of the query."""
    query_id = _query_id(reader)
    for listed in catalogs.listed(catalog):
        manifest = listed.manifest
        if manifest is None or (query_id is not None and manifest.query_id != query_id):
            continue
        if manifest.batch_id > reader.batch_id:
            continue
        view = SavepointView(catalog, manifest.files, listed.uri)
        try:
            saved = StateReader(view, manifest.batch_id)
            _, there = saved.pick(state.name, state.operator_id)
        except NotFound:
            continue  # the query did not have the state yet
        found = saved.read_key(there, key)
        yield _Seen(manifest.batch_id, manifest.fields.get("planned_ms"), listed.uri, found, None)


def _query_id(reader: StateReader) -> str | None:
    from holdfast.checkpoints.checkpoint import read_query_id
    from holdfast.checkpoints.logs import Logs

    try:
        return read_query_id(reader.storage, Logs(reader.storage))
    except HoldfastError:
        return None


_MICROS: Final = 1000
# Operators whose rows the watermark removes by time, and operators without removal by watermark.
_BY_TIME: Final = frozenset({"aggregate", "dedupe", "sessions"})
_BY_NO_WATERMARK: Final = frozenset({"processor", "groups", "limit"})


@dataclass(frozen=True, slots=True)
class Rank(JsonShape):
    """The rank of a key among all keys of its state, by bytes.

    Attributes:
        rank: The rank; 1 for the largest key.
        keys: The number of keys.
        share: The key's share of all bytes.
    """

    rank: int
    keys: int
    share: float


@dataclass(frozen=True, slots=True)
class KeyExplanation(JsonShape):
    """The explanation of a key's value.

    Attributes:
        found: The state of the key.
        written_batch: The newest batch that wrote the key; None if that was before the oldest kept batch.
        exact: Whether the files record each write, and not only changed values.
        first_kept: The oldest kept batch.
        written_ms: The time when the writing batch was planned.
        inputs: The input of the writing batch from each source: files, or offsets of topics and tables.
        watermark_ms: The watermark with which the writing batch ran.
        watermark_now_ms: The watermark after the newest batch.
        expires_ms: The expiry times of the first and the last row of the key. Rows of an aggregation never
            expire in the output mode `complete`, which no file records.
        clock: The clock for expiry: `processing` or `event`. If it is set but `expires_ms` is not, the
            watermark removes the rows of a join at a time that depends on its condition.
        left_ms: The time until the first row expires, in milliseconds; negative if it has expired.
        partition: The partition of the key.
        partitions: The number of partitions.
        key_group: The key group, for keyed operators; otherwise None.
        rank: The rank of the key by size; None if not computed.

    Example:
        explanation: hf.KeyExplanation = hf.state("checkpoints/visits").explain("aggregate", "c1")
        assert (explanation.written_batch, explanation.partitions) == (11, 2)
        print(explanation.inputs)  # the files or offsets that the batch has read
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
) -> KeyExplanation:
    """Explain a key's value from its files and the logs.

    Cost: that of `key_history`; with `rank`, also reads every row of the state, which takes about a
    microsecond per row.

    Args:
        reader: The checkpoint or savepoint at its batch.
        operator: The operator of the state.
        state: The state.
        key: The values of the key, with the types of its columns.
        now_ms: The current time in epoch milliseconds, for a TTL in processing time.
        rank: Whether to compute the rank of the key by size.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Raises:
        NotFound: A file was deleted before it was read.
        Corrupt: A file is damaged.
        Unsupported: The state's format cannot be read.
    """
    found = reader.read_key(state, key)
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
    return KeyExplanation(
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
    """Return the clock for the expiry of a key's rows, and the first and the last expiry time."""
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
    """Return the times at which the watermark removes the rows: the window's end or the time in the key.

    For a join, only the clock is known, because the time depends on the condition, which no file records.
    """
    does = short_name(operator.kind)
    column = None if does in _BY_NO_WATERMARK else watermark_column(state)
    if column is None:
        return None, None
    if does not in _BY_TIME:
        return EVENT, None
    marks = [{**entry.key, **entry.sub, **entry.value}[column] for entry in found.entries]
    # The watermark never passes a null time.
    times = [_ms(mark["end"] if isinstance(mark, Mapping) else mark) for mark in marks if mark is not None]
    return (EVENT, (min(times), max(times))) if times else (None, None)


def _ms(time: dt.datetime) -> int:
    """Return a time in epoch milliseconds; a time without a zone is UTC, like the watermark."""
    return round((time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)).timestamp() * 1000)


def _ranked(state: NamedState, found: KeyState, tell: ProgressCallback | None) -> Rank:
    keys = total = larger = 0
    for key in state.source.key_sizes(state, tell):
        keys += 1
        total += key.size_bytes
        larger += key.size_bytes > found.size_bytes
    return Rank(larger + 1, keys, found.size_bytes / max(total, 1))


@dataclass(frozen=True, slots=True)
class LargestKey(JsonShape):
    """A key and its size in a state.

    Attributes:
        key: The columns of the key.
        rows: The number of rows: waiting rows of a join, entries of a map, or sessions.
        size_bytes: The stored size of these rows in bytes.
        share: The share of these rows in the bytes of the state.
        partition: The partition of the key.
    """

    key: Mapping[str, Any] = field(metadata=json_as(convert=plain))
    rows: int
    size_bytes: int
    share: float
    partition: int


@dataclass(frozen=True, slots=True)
class HeavyKeys(JsonShape):
    """The largest keys of a state.

    Attributes:
        state: The state.
        keys: The number of keys in the state.
        size_bytes: The size of all rows in bytes.
        heaviest: The largest keys, in descending order of size.

    Example:
        largest: hf.HeavyKeys = hf.state("checkpoints/visits").heaviest("aggregate", most=3)
        assert (largest.keys, len(largest.heaviest)) == (10, 3)
    """

    state: NamedState = field(metadata=json_spread("operator_id"))
    keys: int
    size_bytes: int
    heaviest: tuple[LargestKey, ...]

    @property
    @in_json_as("state")
    def name(self) -> str:
        """The name of the state as OPERATOR.STATE, or only the operator if it has one state."""
        return self.state.full_name


def heaviest(state: NamedState, *, most: int = 10, tell: ProgressCallback | None = None) -> HeavyKeys:
    """Return the keys with the most bytes in a state.

    Cost: reads every row, which takes one or two microseconds per row. If keys have several rows, such as the
    waiting rows of a join, holds all keys in memory.

    Args:
        state: The state.
        most: The number of keys to return.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Raises:
        NotFound: A file was deleted before it was read.
        Corrupt: A file is damaged.
        Unsupported: The state's format cannot be read.
    """
    keys = total = 0
    largest: list[tuple[int, int, KeySize]] = []
    for size in state.source.key_sizes(state, tell):
        keys += 1
        total += size.size_bytes
        # Of keys of the same size, the first one found comes first.
        item = (size.size_bytes, -keys, size)
        if len(largest) < most:
            heapq.heappush(largest, item)
        elif largest and item > largest[0]:
            heapq.heapreplace(largest, item)
    ranked = [size for _, _, size in sorted(largest, reverse=True)]
    return HeavyKeys(state, keys, total, tuple(_heavy_key(size, total) for size in ranked))


def split_joins(storage: Storage) -> tuple[str, ...]:
    """Return the names of the joins with split hot keys in a checkpoint."""
    begin, end = layout.split_note("\0").split("\0")
    names = (name for name in storage.list(layout.OWN).names if name.startswith(begin) and name.endswith(end))
    return tuple(sorted(name.removeprefix(begin).removesuffix(end) for name in names))


def split_note(storage: Storage, join: str) -> Mapping[str, Any]:
    """Return the fields of the file that describes the split of a join.

    Raises:
        NotFound: The checkpoint has no split join with this name.
        Corrupt: The description cannot be read.
    """
    path = OwnFile(layout.split_note(join)).render()
    what = "the description of a split join"
    return json_object(storage.read(path).decode(), what, full(storage.uri, path))


def split_call(storage: Storage, heavy: HeavyKeys) -> str | None:
    """Return the Python call that also splits the largest keys of a join; None if that is not needed.

    The call names the present hot keys and each key with at least a twentieth of the bytes of the state.

    Args:
        storage: The checkpoint.
        heavy: The largest keys of a side of the join. The parts of a key are listed separately.

    Raises:
        Corrupt: The description of the split cannot be read.
    """
    joins = split_joins(storage)
    if len(joins) != 1 or heavy.state.name not in ("left", "right"):
        return None
    note = split_note(storage, joins[0])
    columns, hot = len(note["by"]), [tuple(json.loads(text)) for text in note["hot"]]
    shares: dict[tuple[Any, ...], float] = {}
    for key in heavy.heaviest:
        values = tuple(key.key.values())[:columns]
        shares[values] = shares.get(values, 0) + key.share
    found = [key for key, share in shares.items() if share >= _HOT_SHARE and key not in hot]
    if not hot or not found:
        return None
    keys = ", ".join(repr(key[0] if columns == 1 else key) for key in (*hot, *found))
    place = str(local_path(storage.uri) or storage.uri)
    change = f"hf.change({place!r}).split({joins[0]!r}, hot=[{keys}], parts={note['parts']})"
    return f"{change}.to({place + '-split'!r}, stopped=True)"


def _heavy_key(size: KeySize, total: int) -> LargestKey:
    return LargestKey(size.key(), size.rows, size.size_bytes, size.size_bytes / max(total, 1), size.partition)


# The share of a state's bytes from which a key is worth splitting.
_HOT_SHARE: Final = 0.05
_SECOND: Final = 1000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
# The boundaries of the histogram's bars.
_EDGES: Final = (
    ("1 min", _MINUTE),
    ("5 min", 5 * _MINUTE),
    ("15 min", 15 * _MINUTE),
    ("1 h", _HOUR),
    ("3 h", 3 * _HOUR),
    ("6 h", 6 * _HOUR),
    ("12 h", 12 * _HOUR),
    ("1 d", _DAY),
    ("2 d", 2 * _DAY),
    ("3 d", 3 * _DAY),
    ("7 d", 7 * _DAY),
    ("14 d", 14 * _DAY),
    ("30 d", 30 * _DAY),
    ("90 d", 90 * _DAY),
    ("365 d", 365 * _DAY),
)


@dataclass(frozen=True, slots=True)
class Bar(JsonShape):
    """A bar of a histogram: the rows whose age is in a range.

    Attributes:
        label: The range of ages, as text.
        from_ms: The minimum age in milliseconds; None for times ahead of the clock.
        to_ms: The minimum age of the next bar; None for the last bar.
        rows: The number of rows.
        size_bytes: The size of these rows in bytes.
    """

    label: str
    from_ms: int | None
    to_ms: int | None
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class WhatIf(JsonShape):
    """The effect of a TTL or watermark delay on one state.

    Attributes:
        operator_id: The operator's number.
        name: The name of the state.
        form: The form of the state's values.
        rows: The number of rows: keys, or elements and entries if a key has several.
        size_bytes: The size of these rows in bytes.
        clock: The clock of the state's times; None if it has no times.
        what: The meaning of the times, or the reason why the rule cannot be applied.
        now_ms: The time of this clock after the batch, in epoch milliseconds.
        timed_rows: The number of rows with a time.
        freed_rows: The number of rows that the rule would free; None if it cannot be applied.
        freed_bytes: The size of the freed rows in bytes; None if the rule cannot be applied.
        histogram: The rows by age, youngest first.

    Example:
        effects: tuple[hf.WhatIf, ...] = hf.state("checkpoints/visits").what_if(ttl="1 hour")
        assert [(effect.rows, effect.freed_rows) for effect in effects] == [(10, None)]
        print(effects[0].what)  # the reason: the rows of this state have no timestamp
    """

    operator_id: int
    name: str = field(metadata=json_as("state"))
    form: StateForm
    rows: int
    size_bytes: int
    clock: str | None
    what: str
    now_ms: int | None
    timed_rows: int
    freed_rows: int | None
    freed_bytes: int | None
    histogram: tuple[Bar, ...]


def what_if(
    reader: StateReader,
    *,
    ttl_ms: int | None = None,
    watermark_ms: int | None = None,
    state: str | None = None,
    operator: str | int | None = None,
    by: str | None = None,
    current_ttl_ms: int | None = None,
    tell: ProgressCallback | None = None,
) -> tuple[WhatIf, ...]:
    """Compute which rows a TTL or a watermark delay would free; nothing is changed.

    A TTL frees rows whose age exceeds it. The age is relative to the time of the newest batch if the state
    has processing times, and to the watermark if it has event times. A watermark delay frees the rows that
    the watermark would have passed with this delay; a longer delay than the current one frees nothing.

    Cost: reads every row, which takes about 2 microseconds per row.

    Args:
        reader: The checkpoint or savepoint at its batch.
        ttl_ms: The TTL to apply, in milliseconds.
        watermark_ms: The watermark delay to apply, in milliseconds.
        state: The state to examine; all states by default.
        operator: The operator to examine; all operators by default.
        by: A column of the state with the time, if the state records none.
        current_ttl_ms: The current TTL of a state of Spark, for use if it cannot be computed from the files.
        tell: The progress callback, called with stores done, total stores, and the current step.

    Raises:
        Invalid: Neither or both rules were given, or the column of times does not exist.
        NotFound: The state or operator does not exist, or a file that the batch needs is missing.
        Corrupt: A file or a row is damaged.
    """
    if (ttl_ms is None) == (watermark_ms is None):
        raise Invalid(
            "the estimate needs either a TTL or a watermark delay",
            code="HF-E2018",
            found="neither" if ttl_ms is None else "both",
            hint="give only a TTL, or only a watermark delay",
        )
    if by is not None and state is None:
        raise Invalid(
            f"the time column {by!r} was given without a state",
            code="HF-E2019",
            hint="name the state that has this column",
        )
    asked: NamedState | None = None
    if state is None:
        operators = pick_operators(reader.operators, operator)
    else:
        chosen, asked = reader.pick(state, operator)
        operators = (chosen,)
    if asked is not None and asked.form is not StateForm.KEYED:
        parts = [asked]
    else:
        # The combined state of a keyed operator is examined state by state.
        parts = [part for one in operators for part in one.states if part.source.has_ages(part)]
    return tuple(
        _applied(part.source.ages(part, by, current_ttl_ms, tell), ttl_ms, watermark_ms) for part in parts
    )


def _applied(aged: StateAges, ttl_ms: int | None, watermark_ms: int | None) -> WhatIf:
    cut, why = _cut(aged, ttl_ms, watermark_ms)
    freed = None if cut is None else aged.times <= cut
    return WhatIf(
        aged.state.operator_id,
        aged.state.full_name,
        aged.state.form,
        aged.rows,
        aged.size_bytes,
        aged.clock,
        why or aged.what,
        aged.now_ms,
        len(aged.times) if aged.clock is not None else 0,
        None if freed is None else int(freed.sum()),
        None if freed is None else int(aged.sizes[freed].sum()),
        _histogram(aged) if aged.clock is not None and aged.now_ms is not None else (),
    )


def _cut(aged: StateAges, ttl_ms: int | None, watermark_ms: int | None) -> tuple[int | None, str | None]:
    """Return the time up to which rows would be freed, or None and the reason."""
    if aged.clock is None:
        return None, None
    if aged.now_ms is None:
        return None, "no watermark has been reached yet"
    if ttl_ms is not None:
        return aged.now_ms - ttl_ms, None
    if aged.clock != "event":
        return None, "its times are processing times, which the watermark does not affect"
    if aged.delay_ms is None or watermark_ms is None:
        return None, "its files do not show the current watermark delay"
    return aged.now_ms + aged.delay_ms - watermark_ms, None


def _histogram(aged: StateAges) -> tuple[Bar, ...]:
    import numpy as np

    if not len(aged.times) or aged.now_ms is None:
        return ()
    old: NDArray[np.int64] = aged.now_ms - aged.times
    edges = [0, *(edge for _, edge in _EDGES)]
    place = np.searchsorted(np.array(edges), old, side="right")
    labels = ["ahead", *(f"under {label}" for label, _ in _EDGES), f"{_EDGES[-1][0]} and more"]
    bounds: list[int | None] = [None, *edges, None]
    bars = []
    for at in range(int(place.min()), int(place.max()) + 1):
        here = place == at
        size = int(aged.sizes[here].sum())
        bars.append(Bar(labels[at], bounds[at], bounds[at + 1], int(here.sum()), size))
    return tuple(bars)
