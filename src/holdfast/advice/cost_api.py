"""`hf.cost` and `hf.forecast_cost`: the cost of state, for an existing query and for a planned one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from holdfast.advice.cost_report import CostReport, Origin, Situation, StateCost, changes
from holdfast.advice.plan_forecast import CostForecast, PlannedState, forecast
from holdfast.advice.prices import Medium, Money, Prices, medium_of, monthly, read_prices
from holdfast.advice.usage import (
    DAY_MS,
    DailyRequests,
    MeasuredCheckpoint,
    Requests,
    SavedBytes,
    daily_requests,
    measure,
    saved_bytes,
)
from holdfast.checkpoints.checkpoint import CheckpointReport, StatefulOperator, codec_of
from holdfast.checkpoints.logs import Logs
from holdfast.checkpoints.problems import batch_not_kept
from holdfast.config.units import Duration, parse_duration
from holdfast.errors import HoldfastError, Invalid
from holdfast.formats.files.compression import ZSTD, compressed, decompressed
from holdfast.formats.operators import state_name
from holdfast.layout import SAVEPOINTS_BESIDE, beside
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.view import StateLocation
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

Address = str | os.PathLike[str]

# RocksDB's default budget for all stores of an executor, if it is bounded.
_ROCKSDB_BUDGET: Final = 500 << 20
# On the heap, a row is two objects in a map, in addition to its bytes.
_HEAP_TIMES: Final = 2
# A larger change file does not improve the estimate.
_LARGEST_SAMPLE: Final = 4 << 20


def cost(
    address: Address,
    *,
    prices: Prices | Address | None = None,
    interval: Duration | None = None,
    savepoints: Sequence[Address] | None = None,
    memory: Mapping[str, int] | None = None,
) -> CostReport:
    """Estimate the cost of a query's state, and the savings of possible changes.

    The function reads only files, without Spark: logs, listings and one file of changes. The query may be
    running or stopped. The batch interval is measured from the kept batches; for a stopped query, `interval`
    sets the interval to assume.

    Args:
        address: A checkpoint, or a savepoint (`DIR/ID`, `DIR@LABEL`).
        prices: The prices, or the path of a price file; None for the defaults, which have no request prices.
        interval: The time from one batch to the next; None to measure it from the checkpoint.
        savepoints: The savepoint catalogs of the query; None for the one next to the checkpoint.
        memory: The measured memory of each operator in bytes, by name.

    Raises:
        NotFound: The checkpoint, savepoint or price file does not exist, or the batch is not kept.
        Invalid: The price file, the interval or the address is invalid, or the batch is not the newest.
        Corrupt: A file that was read is damaged.
        Unsupported: The state is in a database, or its provider is unknown.
        Unavailable: The storage does not answer.

    Example:
        report = hf.cost("checkpoints/visits", savepoints=["savepoints"])
        assert report.savepoints == 1
        print(report.money.total, report.prices.currency)
        for change in report.changes:
            print(change.what, change.saves_money, change.how)
    """
    paid = _prices(prices)
    given_ms = None if interval is None else parse_duration(interval, "interval")
    place = StateAddress.resolve(address).open_state()
    measured = measure(place.storage)
    checkpoint = measured.checkpoint
    if not place.is_savepoint:
        _require_newest(checkpoint, place)
    if place.is_savepoint:
        looked: list[tuple[Storage, str | None]] = [StateAddress.parse(place.name).open_savepoint()]
    else:
        looked = _catalogs(place.storage.uri, savepoints)
    saved = saved_bytes(looked, checkpoint.query_id)
    interval_ms = given_ms or measured.interval_ms
    origin = None if interval_ms is None else Origin.MEASURED if given_ms is None else Origin.GIVEN
    medium = medium_of(place.storage.uri)
    asked = (
        daily_requests(measured.shape, interval_ms) if medium == "s3" and interval_ms is not None else None
    )
    ratio, packed, codec = _compression(place.storage, measured)
    states = _states(measured, saved, memory, ratio)
    if place.is_savepoint:  # no query runs from it, and its files are not those of a checkpoint
        asked = None
        states = tuple(
            replace(state, local_bytes=0, checkpoint_bytes=0, retained_bytes=0, memory_bytes=None)
            for state in states
        )
    states = tuple(_priced(state, paid, medium, asked, measured) for state in states)
    held = 0 if place.is_savepoint else sum(measured.all_of_state.values()) + measured.other_bytes
    memories = [state.memory_bytes for state in states]
    memory_bytes = None if None in memories else sum(size or 0 for size in memories)
    local_bytes = sum(state.local_bytes for state in states)
    situation = Situation(measured, paid, medium, place.storage.uri, interval_ms, packed, codec)
    return CostReport(
        place=place.name,
        is_savepoint=place.is_savepoint,
        batch_id=checkpoint.batch_id,
        provider=measured.provider,
        medium=medium,
        batches=len(checkpoint.committed),
        interval_ms=interval_ms,
        interval_from=origin,
        states=states,
        other_bytes=measured.other_bytes,
        catalogs=tuple(catalog.uri for catalog, _ in looked),
        savepoints=saved.savepoints,
        savepoint_bytes=saved.size_bytes,
        local_bytes=local_bytes,
        checkpoint_bytes=held,
        memory_bytes=memory_bytes if states else None,
        memory_from=None
        if memory_bytes is None or not states
        else Origin.ESTIMATED
        if memory is None
        else Origin.MEASURED,
        requests=asked,
        money=monthly(
            paid,
            medium,
            local_bytes=local_bytes,
            checkpoint_bytes=held,
            savepoint_bytes=saved.size_bytes,
            requests=None if asked is None else asked.total,
            memory_bytes=memory_bytes,
        ),
        prices=paid,
        changes=() if place.is_savepoint else changes(situation),
    )


def forecast_cost(
    *,
    rate: float,
    keys: int,
    value_bytes: int = 100,
    interval: Duration = "1 minute",
    partitions: int = 200,
    prices: Prices | Address | None = None,
    medium: Medium = "s3",
) -> CostForecast:
    """Forecast the cost of a planned job's state.

    Args:
        rate: The number of rows per second.
        keys: The number of distinct keys in the state at one time.
        value_bytes: The size of one value in bytes.
        interval: The time from one batch to the next.
        partitions: The number of partitions of the state.
        prices: The prices, or the path of a price file; None for the defaults.
        medium: The storage of the checkpoint: `local`, `hdfs` or `s3`.

    Raises:
        Invalid: A value or the price file is invalid.
        NotFound: The price file does not exist.

    Example:
        prices = hf.Prices(writes=5e-6, reads=4e-7)
        forecast = hf.forecast_cost(rate=500, keys=1_000_000, partitions=16, prices=prices)
        assert forecast.rows == 1_000_000
        assert forecast.money.requests > forecast.money.checkpoint
    """
    interval_ms = parse_duration(interval, "interval")
    plan = PlannedState(
        rate, keys, value_bytes=value_bytes, interval_ms=interval_ms, partitions=partitions, medium=medium
    )
    return forecast(plan, _prices(prices))


def _require_newest(checkpoint: CheckpointReport, place: StateLocation) -> None:
    """Check that a location is not an older batch, because the cost covers the files of all kept batches."""
    if place.batch_id in (None, checkpoint.batch_id):
        return
    if place.batch_id not in checkpoint.committed:
        raise batch_not_kept(place.storage, checkpoint.committed, place.batch_id)
    raise Invalid(
        "the cost of a checkpoint can be computed only for the newest batch",
        code="HF-E2003",
        where=place.storage.uri,
        found=f"batch {place.batch_id}",
        expected=f"batch {checkpoint.batch_id}",
        hint="omit the batch; or take a savepoint of the batch with `holdfast savepoint take CHECKPOINT DIR"
        f" --batch {place.batch_id}`, and give the address of the savepoint",
    )


def _prices(given: Prices | Address | None) -> Prices:
    if given is None or isinstance(given, Prices):
        return given or Prices()
    return read_prices(given)


def _catalogs(uri: str, given: Sequence[Address] | None) -> list[tuple[Storage, str | None]]:
    if given is not None:
        return [(open_storage(each, "savepoints"), None) for each in given]
    place = beside(uri, SAVEPOINTS_BESIDE)
    return [] if place is None else [(open_storage(place), None)]


def _states(
    measured: MeasuredCheckpoint,
    saved: SavedBytes,
    memory: Mapping[str, int] | None,
    ratio: float,
) -> tuple[StateCost, ...]:
    """Return the states with their sizes; requests and money are added later."""
    on_disk = measured.provider == "rocksdb"
    found = []
    for operator in measured.checkpoint.operators:
        for name in operator.store_names:
            key = operator.operator_id, name
            newest = measured.newest.get(key, 0)
            found.append(
                StateCost(
                    named=operator.named,
                    state=state_name(operator.named, name),
                    store=name,
                    stores=sum(store.id.name == name for store in operator.stores),
                    local_bytes=newest if on_disk else 0,
                    checkpoint_bytes=newest,
                    retained_bytes=measured.all_of_state.get(key, 0) - newest,
                    savepoint_bytes=saved.states.get(key, 0),
                    memory_bytes=_memory(measured, operator, newest, memory, ratio),
                    requests=None,
                    money=Money(),
                )
            )
    return tuple(found)


def _memory(
    measured: MeasuredCheckpoint,
    operator: StatefulOperator,
    newest: int,
    memory: Mapping[str, int] | None,
    ratio: float,
) -> int | None:
    """Estimate the memory of a store: its share of its operator's measured memory, or a default.

    RocksDB caches recently read and written data within its budget; a store on the heap contains all rows,
    uncompressed.
    """
    if memory is not None:
        taken = memory.get(operator.named.display_name)
        return None if taken is None else round(taken * newest / max(operator.size_bytes, 1))
    if measured.provider == "rocksdb":
        held = min(sum(measured.newest.values()), _ROCKSDB_BUDGET)
        return round(held * newest / max(sum(measured.newest.values()), 1))
    return round(newest * ratio * _HEAP_TIMES)


def _priced(
    state: StateCost,
    prices: Prices,
    medium: Medium,
    asked: DailyRequests | None,
    measured: MeasuredCheckpoint,
) -> StateCost:
    """Return the state with the requests of its stores and the cost added."""
    requests = None if asked is None else _of_stores(measured, asked.batches, state.stores)
    money = monthly(
        prices,
        medium,
        local_bytes=state.local_bytes,
        checkpoint_bytes=state.checkpoint_bytes + state.retained_bytes,
        savepoint_bytes=state.savepoint_bytes,
        requests=requests,
        memory_bytes=state.memory_bytes,
    )
    return replace(state, requests=requests, money=money)


def _of_stores(measured: MeasuredCheckpoint, batches: float, stores: int) -> Requests:
    """Return the requests per day of this number of stores, without the query's logs."""
    some = daily_requests(replace(measured.shape, stores=stores), DAY_MS / batches)
    none = daily_requests(replace(measured.shape, stores=0), DAY_MS / batches)
    return some.total + none.total.times(-1)


def _compression(storage: Storage, measured: MeasuredCheckpoint) -> tuple[float, float | None, str]:
    """Return the unpacked size ratio, the ratio that zstd would reach, and the codec of changes.

    Cost: reads one file.
    """
    checkpoint, file = measured.checkpoint, measured.newest_change
    codec = codec_of(None if checkpoint.batch_id is None else Logs(storage).offsets(checkpoint.batch_id))
    if file is None or not 0 < (storage.size(file.render()) or 0) <= _LARGEST_SAMPLE:
        return 1.0, None, codec
    try:
        packed = storage.read(file.render())
        plain = decompressed(packed, codec, file.render())
    except HoldfastError:  # the file was deleted, or its codec is not supported
        return 1.0, None, codec
    smaller = None if codec == ZSTD else 1 - len(compressed(plain, ZSTD)) / len(packed)
    return len(plain) / len(packed), smaller, codec
