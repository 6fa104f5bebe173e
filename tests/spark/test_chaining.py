"""A processor's result has a watermark: what Spark and a second processor make of it, by models."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import chain_programs
import pytest
from chain_programs import (
    DELAY,
    EVENTS,
    OUTPUT,
    REACH,
    DedupeModel,
    JoinModel,
    Quiet,
    QuietModel,
    Row,
    Visits,
    VisitsModel,
    WindowModel,
    files,
)
from keyed_runs import START, batches_read, read_stream, run, write_batch
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody gives it
from rescaled import MIGRATE, RESCALE, rescale

import holdfast as hf
from holdfast.engine.planned_state import has_state
from holdfast.engine.session.workers import ship_by_value
from holdfast.errors import Invalid
from holdfast.stream.event_time import watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::holdfast.stream.cautions.WatermarkWarning"),
]
ship_by_value(chain_programs)
FILES = 9


def events_of(spark: SparkSession, folder: Path) -> DataFrame:
    return read_stream(spark, folder, EVENTS).withWatermark("ts", f"{DELAY} milliseconds")


def visits_of(events: DataFrame, **options: Any) -> DataFrame:
    return hf.keyed(events, by="who", key_groups=12).process(
        Visits(), output=OUTPUT, name="visits", event_time="ts", **options
    )


def counted(events: DataFrame) -> DataFrame:
    window = F.window("ts", f"{chain_programs.WINDOW} milliseconds")
    counts = visits_of(events).groupBy(window, "who").count()
    return counts.select("who", F.col("window.start").alias("ts"), "count")


def once(events: DataFrame) -> DataFrame:
    return visits_of(events).dropDuplicates(["who", "ts"]).select("who", "ts")


def joined(events: DataFrame) -> DataFrame:
    others = events.withColumnsRenamed({"who": "other", "ts": "at"})
    near = F.expr(f"who = other AND at BETWEEN ts - INTERVAL {REACH // 1000} SECONDS AND ts")
    return visits_of(events).join(others, near).drop("other")


def quiet(events: DataFrame) -> DataFrame:
    second = hf.keyed(visits_of(events), by="who", key_groups=12)
    return second.process(Quiet(), output=OUTPUT, name="quiet")


def ms(value: Any) -> Any:
    if not isinstance(value, dt.datetime):
        return value
    return int(value.replace(tzinfo=dt.timezone.utc).timestamp() * 1000)


def run_all(
    spark: SparkSession,
    folder: Path,
    batches: list[list[dict[str, Any]]],
    follow: Callable[[DataFrame], DataFrame],
    way: str,
) -> tuple[list[Path], dict[int, list[tuple[Any, ...]]]]:
    """Run a query with a restart, and a change of partitions, after every third file."""
    checkpoints = [folder / "checkpoint"]
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for number, batch in enumerate(batches):
        write_batch(folder / "in", number, batch)
        if number % 3 != 2:
            continue
        if number == 5:
            checkpoints.append(rescale(spark, checkpoints[-1], 3, way))
        for batch_id, row in run(follow(events_of(spark, folder / "in")), checkpoints[-1], "append"):
            rows.setdefault(batch_id, []).append(tuple(map(ms, row.values())))
    return checkpoints, rows


def first_rows(
    checkpoints: list[Path], batches: list[list[dict[str, Any]]]
) -> tuple[VisitsModel, list[tuple[int, int, list[Row], list[dict[str, Any]]]]]:
    """For each batch: the watermark, the one before it, the rows of `Visits`, and the events."""
    model = VisitsModel()
    found = []
    before = 0
    for _, watermark, events in batches_read(checkpoints, batches):
        found.append((watermark, before, model.batch(watermark, events), events))
        before = watermark
    return model, found


def filled(batches: list[list[tuple[Any, ...]]]) -> dict[int, list[tuple[Any, ...]]]:
    return {number: rows for number, rows in enumerate(batches) if rows}


@pytest.mark.parametrize(
    ("follow", "model", "way"), [(counted, WindowModel(), RESCALE), (once, DedupeModel(), MIGRATE)]
)
def test_a_window_or_deduplication_behind_a_processor(
    spark: SparkSession, tmp_path: Path, follow: Callable[[DataFrame], DataFrame], model: Any, way: str
) -> None:
    batches = files(3, START, FILES, 30)
    checkpoints, rows = run_all(spark, tmp_path, batches, follow, way)
    first, each = first_rows(checkpoints, batches)
    wanted = filled([model.batch(watermark, before, made) for watermark, before, made, _ in each])
    assert {number: sorted(some) for number, some in rows.items()} == wanted
    assert first.late
    assert model.late


def test_a_join_behind_a_processor(spark: SparkSession, tmp_path: Path) -> None:
    batches = files(4, START, FILES, 20)
    checkpoints, rows = run_all(spark, tmp_path, batches, joined, RESCALE)
    _, each = first_rows(checkpoints, batches)
    model = JoinModel()
    wanted = filled([model.batch(before, made, events) for _, before, made, events in each])
    assert {number: sorted(some) for number, some in rows.items()} == wanted
    assert model.late


def by_key(rows: list[tuple[Any, ...]]) -> dict[Any, list[tuple[Any, ...]]]:
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def test_a_second_processor_behind_a_processor(spark: SparkSession, tmp_path: Path) -> None:
    """No row is late; a row that the watermark has reached comes before the timers of its key."""
    batches = files(5, START, FILES, 30)
    checkpoints, rows = run_all(spark, tmp_path, batches, quiet, RESCALE)
    _, each = first_rows(checkpoints, batches)
    model = QuietModel()
    wanted = filled([model.batch(watermark, before, made) for watermark, before, made, _ in each])
    assert {number: by_key(some) for number, some in rows.items()} == {
        number: by_key(some) for number, some in wanted.items()
    }
    assert model.before_timers


def test_a_processor_behind_a_window_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark emits a window when the watermark has passed its end; the window is not late for that."""
    batches = files(6, START, 6, 30)
    for number, batch in enumerate(batches):
        write_batch(tmp_path / "in", number, batch)
    window = F.window("ts", f"{chain_programs.WINDOW} milliseconds")
    counts = events_of(spark, tmp_path / "in").groupBy(window, "who").count()
    timed = counts.select("who", F.lit("window").alias("what"), F.window_time("window").alias("ts"))
    frame = hf.keyed(timed, by="who", key_groups=4).process(Quiet(), output=OUTPUT, name="quiet")
    rows = [row for _, row in run(frame, tmp_path / "checkpoint", "append") if row["what"] == "window"]
    model, before, wanted = WindowModel(), 0, 0
    for _, watermark, events in batches_read(tmp_path / "checkpoint", batches):
        made = [(event["who"], "", event["ts"], 0) for event in events]
        wanted += len(model.batch(watermark, before, made))
        before = watermark
    assert len(rows) == wanted > 0


def test_a_table_processor_behind_a_processor_sees_early_rows_before_timers(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = files(7, START, 6, 30)
    for number, batch in enumerate(batches):
        write_batch(tmp_path / "in", number, batch)
    first = visits_of(events_of(spark, tmp_path / "in"))
    table = hf.keyed(first, by="who", key_groups=4).process(
        chain_programs.QuietTable(), output=OUTPUT, name="quiet"
    )
    rows: dict[int, list[tuple[Any, ...]]] = {}
    for batch_id, row in run(table, tmp_path / "checkpoint", "append"):
        rows.setdefault(batch_id, []).append(tuple(map(ms, row.values())))
    _, each = first_rows([tmp_path / "checkpoint"], batches)
    model = chain_programs.QuietTableModel()
    wanted = filled([model.batch(watermark, made) for watermark, _, made, _ in each])
    assert {number: sorted(some) for number, some in rows.items()} == {
        number: sorted(some) for number, some in wanted.items()
    }
    assert model.before_timers


def test_the_result_has_the_longest_delay_of_the_streams(spark: SparkSession, tmp_path: Path) -> None:
    write_batch(tmp_path / "in", 0, files(1, START, 1, 3)[0])
    events = events_of(spark, tmp_path / "in")
    assert watermarks(visits_of(events)) == {"ts": DELAY}
    assert watermarks(visits_of(events, side_outputs=True)) == {"ts": DELAY}
    plain = hf.keyed(events, by="who").process(Visits(), output=OUTPUT, name="visits")
    assert watermarks(plain) == {}


def test_an_operator_with_state_is_known_in_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    write_batch(tmp_path / "in", 0, files(1, START, 1, 3)[0])
    events = events_of(spark, tmp_path / "in")
    other = events.select(F.col("who").alias("w"), F.col("ts").alias("t"))
    static = spark.createDataFrame([("ann", 1)], "w string, n int")
    assert not has_state(events)
    assert not has_state(events.join(static.distinct(), F.expr("who = w")))
    assert not has_state(events.select(F.col("ts")).union(events.select("ts")))
    assert has_state(events.join(other, F.expr("who = w AND t BETWEEN ts AND ts + INTERVAL 1 SECOND")))
    assert has_state(events.dropDuplicates(["who"]).filter("who > 'a'").select("ts"))
    assert has_state(visits_of(events))
    assert has_state(events.groupBy("who").count().join(static, F.expr("who = w")))


def test_refusals(spark: SparkSession, tmp_path: Path) -> None:
    write_batch(tmp_path / "in", 0, files(1, START, 1, 3)[0])
    stream = read_stream(spark, tmp_path / "in", EVENTS)
    with pytest.raises(Invalid, match="no stream of the processor has one"):
        visits_of(stream)
    events = events_of(spark, tmp_path / "in")
    keyed = hf.keyed(events, by="who")
    with pytest.raises(Invalid, match="no column `at`"):
        keyed.process(Visits(), output=OUTPUT, name="visits", event_time="at")
    with pytest.raises(Invalid, match="time column `n` has the wrong type"):
        keyed.process(Visits(), output=OUTPUT, name="visits", event_time="n")
