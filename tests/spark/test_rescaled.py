"""Another number of partitions in the middle: every answer is that of a run that never changed it."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import broadcast_programs
import pytest
import split_programs
import timely_programs
from keyed_runs import EPOCH, START, read_stream, run, write_batch
from rescaled import rescale

import holdfast as hf
from holdfast.engine.workers import ship_by_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ship_by_value(broadcast_programs)
ship_by_value(split_programs)


@pytest.mark.parametrize("partitions", [1, 3])
def test_rules_are_the_same_for_every_key_after_a_rescale(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    files = broadcast_programs.events_and_rules(5, batches=6, size=40, start=START)
    found: Counter[Any] = Counter()
    for number, (events, rules) in enumerate(files):
        write_batch(tmp_path / "events", number, events)
        write_batch(tmp_path / "rules", number, rules)
        if number % 3 != 2:
            continue
        if number > 3:
            rescale(spark, tmp_path / "checkpoint", partitions)
        stream = hf.keyed(
            read_stream(spark, tmp_path / "events", broadcast_programs.EVENTS), by="who", key_groups=8
        )
        rules_stream = read_stream(spark, tmp_path / "rules", broadcast_programs.RULES)
        by_name = hf.broadcast(rules_stream, key="rule", version="version", withdrawn="off", name="rules")
        frame = stream.with_broadcast(by_name).process(
            broadcast_programs.Alerts(), output=broadcast_programs.OUTPUT, name="alerts"
        )
        found.update(tuple(row.values()) for _, row in run(frame, tmp_path / "checkpoint"))
    wanted = broadcast_programs.expected(tmp_path / "checkpoint", files)
    assert found == sum(wanted.values(), Counter())
    assert sum(found.values()) > 20


def test_hot_keys_are_merged_into_their_state_after_a_rescale(spark: SparkSession, tmp_path: Path) -> None:
    made = [batch for batch in split_programs.batches(12, count=6, size=200, start=START) if batch]
    found: list[set[Any]] = []
    for number, batch in enumerate(made):
        write_batch(tmp_path / "events", number, batch)
        if number == 3:
            rescale(spark, tmp_path / "checkpoint", 3)
        events = read_stream(spark, tmp_path / "events", split_programs.EVENTS)
        frame = (
            hf.keyed(events, by="who", key_groups=8)
            .split_hot()
            .process(split_programs.Basket(), output=split_programs.OUTPUT, name="basket")
        )
        if number % 3 == 2 or number == len(made) - 1:
            rows = run(frame, tmp_path / "checkpoint")
            batches = sorted({batch_id for batch_id, _ in rows})
            found += [{tuple(row.values()) for at, row in rows if at == batch_id} for batch_id in batches]
    assert found == split_programs.expected(made)


@pytest.mark.parametrize(
    ("frame", "wanted"),
    [
        (timely_programs.sessions, timely_programs.expected_sessions),
        (timely_programs.running, timely_programs.expected_running),
    ],
)
def test_sessions_and_running_totals_go_on_after_a_rescale(
    spark: SparkSession, tmp_path: Path, frame: Any, wanted: Any
) -> None:
    given = timely_programs.files(3, count=6, size=25, start=START)
    given.append(timely_programs.closing(START, 0))
    found: Counter[Any] = Counter()
    for number, file in enumerate(given):
        write_batch(tmp_path / "in", number, file)
        if number not in (3, len(given) - 1):
            continue
        if number > 3:
            rescale(spark, tmp_path / "checkpoint", 3)
        rows = run(frame(spark, tmp_path / "in"), tmp_path / "checkpoint")
        found.update(plain(row) for _, row in rows)
    assert found == wanted(given)


def plain(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row with its times in milliseconds."""
    return tuple(
        int((value.astimezone(EPOCH.tzinfo) - EPOCH).total_seconds() * 1_000)
        if isinstance(value, dt.datetime)
        else value
        for value in row.values()
    )
