"""Statistics of each sensor, where one sensor sends most of the readings.

    holdfast run sensors.py

A shuffle sends all readings of a sensor to one task. With `split_hot` each task first works off its own share
of a hot sensor's readings, and `merge` merges these parts. The result is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Thousandths of a degree: a sum of floats depends on its order, so a split would change it.
READINGS = "sensor string, millicelsius long"
STATISTICS = "sensor string, readings long, coldest long, hottest long, mean double"


class Statistics(hf.Keyed):
    """Per sensor: the number, the extremes and the sum of its readings."""

    readings: hf.State[int] = hf.value(int, default=0)
    coldest: hf.State[hf.ReducingState[int]] = hf.reducing(int, hf.least)
    hottest: hf.State[hf.ReducingState[int]] = hf.reducing(int, hf.greatest)
    total: hf.State[hf.ReducingState[int]] = hf.reducing(int, hf.add)

    def on_event(self, event: hf.Event, state: Statistics, ctx: hf.Context) -> None:
        """Count a reading."""
        state.readings += 1
        for kept in (state.coldest, state.hottest, state.total):
            kept.add(event.millicelsius)

    def merge(self, state: Statistics, part: Statistics) -> None:
        """Add what a task has counted of a hot sensor."""
        state.readings += part.readings
        state.coldest.merge(part.coldest)
        state.hottest.merge(part.hottest)
        state.total.merge(part.total)

    def on_end(
        self, state: Statistics, ctx: hf.Context
    ) -> Iterator[tuple[str, int, int | None, int | None, float]]:
        """Report a sensor once a batch."""
        total = state.total.get() or 0
        yield ctx.key.sensor, state.readings, state.coldest.get(), state.hottest.get(), total / state.readings


@hf.job(name="sensors", checkpoint="checkpoint", trigger=hf.available_now())
def sensors(spark: SparkSession, data: str = "data") -> hf.Sink:
    """Read readings from a directory of JSON files."""
    readings = spark.readStream.schema(READINGS).json(f"{data}/readings")
    statistics = (
        hf.keyed(readings, by="sensor")
        .split_hot()
        .process(Statistics(), output=STATISTICS, name="statistics")
    )
    return hf.sink(statistics, name="statistics").upsert("sensors", keys=["sensor"], ledger="sensors.db")
