"""Broadcast streams, such as rules, rates or settings, which are visible to every key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import Invalid
from holdfast.stream.event_time import (
    NOT_KEYS,
    key_columns,
    quoted,
    require_columns,
    require_stream,
    type_of,
    watermarks,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.worker.runtime.broadcast import Broadcast
    from holdfast.worker.state.layout import Layout

_WHERE = "holdfast.broadcast(…)"
_NO_KEY = (*NOT_KEYS, "float", "double", "binary")
_NO_ORDER = (*_NO_KEY, "boolean")


@dataclass(frozen=True, slots=True)
class BroadcastStream:
    """A broadcast stream for `KeyedStream.with_broadcast`, returned by `hf.broadcast`.

    Attributes:
        frame: The rows of the stream.
        described: The definition of the stream for the workers.

    Example:
        from pathlib import Path

        Path("prices").mkdir()
        frame = spark.readStream.schema("drink string, price double, version long").json("prices")
        prices: hf.BroadcastStream = hf.broadcast(frame, key="drink", version="version")
        assert prices.frame is frame
    """

    frame: DataFrame
    described: Broadcast


def broadcast(
    df: DataFrame,
    *,
    key: str | Iterable[str],
    version: str | None = None,
    withdrawn: str | None = None,
    name: str = "broadcast",
) -> BroadcastStream:
    """Declare a stream of rows, such as rules, whose current version is visible to all keys of a keyed
    stream.

    A row replaces the one with its key. All rows that arrive in a batch are applied before the batch's
    events, so that all keys see the same rows. The checkpoint stores them with the keyed state. Define
    `on_broadcast(self, row, rows, ctx)` on the processor to apply a row to `rows` yourself, or to reject it
    by raising an exception, which leaves `rows` unchanged.

    Every key group stores a copy of all rows, so that groups can move between partitions. Use it for a few
    thousand rows that rarely change; join a larger table as a separate stream.

    Args:
        df: A stream without a watermark, because a stream without new rows would hold event time back.
        key: The columns that identify a row.
        version: A column that orders the rows of a key; a row that is not newer than the stored one is
            ignored. Without it, the last row to arrive counts, and sources keep the order of rows only within
            a partition.
        withdrawn: A boolean column; a row in which it is true deletes the row with the same key.
        name: The name of the stream and of the state that stores it.

    Raises:
        Invalid: The frame is not a stream or has a watermark, or a column is missing or has an
            unsupported type.

    Example:
        from pathlib import Path


        class Bills(hf.Keyed):
            def on_event(self, event, state, ctx):
                price = ctx.broadcast.get(event.drink)
                yield {"customer": event.customer, "price": None if price is None else price.price}


        Path("prices").mkdir()
        prices = spark.readStream.schema("drink string, price double, version long").json("prices")
        bills = (
            hf.keyed(events, by="customer")
            .with_broadcast(hf.broadcast(prices, key="drink", version="version"))
            .process(Bills(), output="customer string, price double", name="bills")
        )
        assert bills.columns == ["customer", "price"]
    """
    from holdfast.worker.declarations.types import schema_of
    from holdfast.worker.runtime.broadcast import Broadcast

    keys = key_columns(df, key, where=_WHERE, argument="key")
    if not name.isidentifier():
        raise not_an_identifier(name, _WHERE)
    named = [*keys, *(column for column in (version, withdrawn) if column is not None)]
    require_columns(df, named, where=_WHERE)
    hint = "read the frame with spark.readStream, or pass rows that never change to the processor"
    require_stream(df, where=_WHERE, hint=hint)
    if watermarks(df):
        raise Invalid(
            "a broadcast stream cannot have a watermark, which would hold back event time in the whole query",
            code="HF-E2314",
            where=_WHERE,
            found=f"a watermark on {', '.join(watermarks(df))}",
            hint="remove withWatermark from the broadcast stream",
        )
    for column in keys:
        _check_type(df, column, _NO_KEY, "be a key")
    if version is not None:
        _check_type(df, version, _NO_ORDER, "be the version")
    if withdrawn is not None and type_of(df, withdrawn) != "boolean":
        raise Invalid(
            "the withdrawn= column is not a boolean",
            code="HF-E2315",
            where=f"{_WHERE}: {withdrawn}",
            found=type_of(df, withdrawn),
            hint=f'convert it: .withColumn("{withdrawn}", F.col("{withdrawn}").cast("boolean"))',
        )
    described = Broadcast(name, schema_of(df.schema), tuple(keys), version, withdrawn)
    return BroadcastStream(df, described)


def _check_type(df: DataFrame, column: str, refused: tuple[str, ...], use: str) -> None:
    kind = type_of(df, column)
    if kind.startswith(refused):
        raise Invalid(
            f"a column of type {kind} cannot {use}",
            code="HF-E2316",
            where=f"{_WHERE}: {column}",
            expected="text, a whole number, a date or a time",
            hint=f'name a different column, or convert it first: .withColumn("{column}", …)',
        )


def not_an_identifier(name: str, where: str) -> Invalid:
    """Return the error for a stream name that is not a Python identifier, as handlers and states require."""
    return Invalid(
        "invalid stream name",
        code="HF-E2317",
        where=where,
        found=repr(name),
        expected="a Python identifier",
        hint='use letters, digits and underscores, as in name="orders"',
    )


def pack_rows(stream: BroadcastStream, layout: Layout, number: int) -> DataFrame:
    """Return the rows of a broadcast stream as packets for every key group."""
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.worker.packets import Spreader, packet_columns

    schema = stream.described.schema
    rows = stream.frame.select(*(F.col(quoted(name)) for name in schema.names))
    spreader = Spreader(schema, number, layout)
    return rows.mapInArrow(spreader.__call__, packet_columns(layout.numbering))
