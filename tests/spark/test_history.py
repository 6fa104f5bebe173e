"""A processor over a batch frame: each key's events in order of time, between the timers due; by a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import history_programs
import pytest
from history_programs import EVENTS, OUTPUT, Sessions, Timed, history, sessions
from keyed_runs import START, batches_read, read_stream, run, write_batch

import holdfast as hf
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
ship_by_value(history_programs)


def in_files(spark: SparkSession, folder: Path, events: list[dict[str, Any]], count: int) -> DataFrame:
    for number in range(count):
        write_batch(folder, number, events[number::count])
    return spark.read.schema(EVENTS).json(str(folder))


def by_key(frame: DataFrame) -> dict[str, list[tuple[Any, ...]]]:
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in frame.collect():
        found.setdefault(row["who"], []).append(tuple(row))
    return found


@pytest.mark.parametrize(("seed", "key_groups"), [(1, 1), (2, 16)])
def test_two_histories_as_in_the_model(
    spark: SparkSession, tmp_path: Path, seed: int, key_groups: int
) -> None:
    """Timers, a TTL in event time, and two frames whose events alternate in time."""
    events, back = history(seed, START, 120), history(seed + 10, START + 250, 60)
    keyed = hf.keyed(
        in_files(spark, tmp_path / "in", events, 3),
        by="who",
        name="go",
        time="ts",
        key_groups=key_groups,
    ).connect(in_files(spark, tmp_path / "back", back, 2), by="who", name="back", time="ts")
    frame = keyed.process(Sessions(), output=OUTPUT, name="sessions")
    assert not frame.isStreaming
    wanted = sessions({"go": events, "back": back})
    assert by_key(frame) == wanted
    assert {row[1] for rows in wanted.values() for row in rows} == {"go", "back", "gap", "after"}


def test_a_history_has_the_rows_of_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    """For a processor that does not depend on the division into batches, the rows are the same."""
    events = sorted(history(3, START, 90), key=lambda event: event["ts"])
    files = [events[at : at + 30] for at in (0, 30, 60)]
    for number, some in enumerate(files):
        write_batch(tmp_path / "in", number, some)

    def rows_of(keyed: hf.KeyedStream) -> DataFrame:
        return keyed.process(Timed(), output=OUTPUT, name="timed")

    stream = read_stream(spark, tmp_path / "in", EVENTS).withWatermark("ts", "1 second")
    live = [tuple(row.values()) for _, row in run(rows_of(hf.keyed(stream, by="who")), tmp_path / "ck")]
    watermark = batches_read(tmp_path / "ck", files)[-1][1]
    batch = spark.read.schema(EVENTS).json(str(tmp_path / "in"))
    rows = [tuple(row) for row in rows_of(hf.keyed(batch, by="who", time="ts")).collect()]
    assert len(rows) == 2 * len(events)
    assert sorted(live) == sorted(row for row in rows if row[1] == "event" or row[2] <= watermark)
    assert any(row[1] != "event" for row in live)


DELAY = 10_000


def test_a_bootstrap_leaves_the_state_of_events_in_order(spark: SparkSession, tmp_path: Path) -> None:
    """Sessions that ended within the history are over, and only the timers of the last ones are left."""
    past = history(4, START, 150)
    batch = in_files(spark, tmp_path / "past", past, 4)
    write_batch(tmp_path / "live", 0, [])
    live = read_stream(spark, tmp_path / "live", EVENTS).withWatermark("ts", f"{DELAY} milliseconds")
    keyed = hf.keyed(live, by="who", name="go", key_groups=8)
    write_batch(tmp_path / "back", 0, [])
    keyed = keyed.connect(read_stream(spark, tmp_path / "back", EVENTS), by="who", name="back")
    frame = keyed.process(Sessions(), output=OUTPUT, name="sessions")
    query = hf.sink(frame, name="sessions", mode="append").console()
    warm = hf.bootstrap(query, tmp_path / "savepoints", history={0: batch}, start={0: "first", 1: "first"})
    left: dict[str, tuple[int, dict[str, int]]] = {}
    end = max(event["ts"] for event in past) - DELAY
    rows = sessions({"go": past}, DELAY, end, left)
    assert warm.watermark_ms == end
    state = hf.state(warm.uri)
    totals = state.arrow("total", operator="sessions").read_all().to_pylist()
    assert {row["who"]: row["total"] for row in totals} == {who: total for who, (total, _) in left.items()}
    timers = state.arrow("timers", operator="sessions").read_all().to_pylist()
    assert sorted((row["who"], row["name"], row["at_ms"]) for row in timers) == sorted(
        (who, name, at) for who, (_, some) in left.items() for name, at in some.items()
    )
    assert timers
    assert sum(row[1] == "gap" for some in rows.values() for row in some) > len(rows)


def test_refusals(spark: SparkSession, tmp_path: Path) -> None:
    write_batch(tmp_path / "in", 0, history(1, START, 3))
    stream = read_stream(spark, tmp_path / "in", EVENTS)
    batch = spark.read.schema(EVENTS).json(str(tmp_path / "in"))
    with pytest.raises(Invalid, match="time= is given for a stream"):
        hf.keyed(stream, by="who", time="ts")
    with pytest.raises(Invalid, match="time column `n` has the wrong type"):
        hf.keyed(batch, by="who", time="n")
    with pytest.raises(Invalid, match="cannot be connected with a batch frame"):
        hf.keyed(stream, by="who").connect(batch, by="who", name="back")
    with pytest.raises(Invalid, match="ticks=True is not supported over a batch frame"):
        hf.keyed(batch, by="who").process(Timed(), output=OUTPUT, name="timed", ticks=True)
    with pytest.raises(Invalid, match="split_hot is not supported over a batch frame"):
        hf.keyed(batch, by="who").split_hot().process(Timed(), output=OUTPUT, name="timed")
