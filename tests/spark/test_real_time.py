"""What cannot run in real-time mode or in continuous processing is refused before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


class Counted(hf.Keyed):
    """Counts."""

    count = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        state.count += 1
        yield {"value": event.value, "count": state.count}


def rate(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


def refused(sink: hf.Sink, tmp_path: Path) -> str:
    place = tmp_path / "ck"
    with pytest.raises(hf.Unsupported) as caught:
        sink.start(checkpoint=str(place), trigger=hf.real_time("5 seconds"))
    assert caught.value.hint
    assert not place.exists()
    return caught.value.fact


def test_real_time_mode_is_refused_where_spark_cannot_run_it(spark: SparkSession, tmp_path: Path) -> None:
    stream = rate(spark)
    keyed = hf.keyed(stream, by="value").process(Counted(), output="value long, count long", name="counted")
    assert refused(hf.sink(stream).console(), tmp_path) == "real-time mode supports only output mode update"
    assert "the sink 'memory'" in refused(hf.sink(stream, mode="update").memory("at_once"), tmp_path)
    assert "keyed state in Python" in refused(hf.sink(keyed, mode="update").console(), tmp_path)
    assert "the source 'rate'" in refused(hf.sink(stream, mode="update").console(), tmp_path)
    ledger = hf.sink(stream, name="t", mode="update").append("t", tmp_path / "ledger.db")
    assert "the sink 'append'" in refused(ledger, tmp_path)


def test_the_trigger_of_an_adopted_writer_counts(spark: SparkSession, tmp_path: Path) -> None:
    writer: Any = rate(spark).writeStream.format("console").outputMode("update")  # its stubs lack realTime
    with pytest.raises(hf.Unsupported, match="the source 'rate'"):
        hf.adopt(writer.trigger(realTime="5 seconds")).start(checkpoint=str(tmp_path / "ck"))
    with pytest.raises(hf.Unsupported, match="continuous processing is not supported"):
        hf.adopt(writer.trigger(continuous="1 second")).start(checkpoint=str(tmp_path / "ck"))
    with pytest.raises(hf.Unsupported, match="continuous processing is not supported"):
        hf.guard(writer.trigger(continuous="1 second"), checkpoint=tmp_path / "ck")


def test_a_query_in_continuous_processing_is_not_watched(spark: SparkSession, tmp_path: Path) -> None:
    writer = rate(spark).writeStream.format("console").option("checkpointLocation", str(tmp_path / "ck"))
    query = writer.trigger(continuous="1 hour").start()
    try:
        with pytest.raises(hf.Unsupported, match="continuous processing is not supported"):
            hf.watch(query)
    finally:
        query.stop()
