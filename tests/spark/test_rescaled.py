"""Another number of partitions in the middle: every answer is that of a run that never changed it."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import broadcast_programs
import instance_programs
import pytest
import split_programs
import timely_programs
from instance_programs import EVENTS as NUMBERS
from instance_programs import OUTPUT as HELD
from instance_programs import Holds
from keyed_programs import EVENTS, OUTPUT, Everything, Model
from keyed_runs import (
    EPOCH,
    START,
    by_batch_and_key,
    expected,
    program,
    read_stream,
    run,
    ship,
    write_batch,
)
from rescaled import MIGRATE, RESCALE, SPARK, rescale

import holdfast as hf
from holdfast.engine.session.workers import ship_by_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ship()
for module in (broadcast_programs, instance_programs, split_programs):
    ship_by_value(module)

WAYS = [SPARK, RESCALE, MIGRATE]
OURS = [RESCALE, MIGRATE]


@pytest.mark.parametrize("way", OURS)
def test_every_kind_of_state_with_timers_and_ttl(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """Values, lists, maps and reducing state, timers on both clocks, and what has a time to live."""
    batches = program(6, batches=9, events=30)
    checkpoints = [tmp_path / "checkpoint"]
    rows = []
    for number, batch in enumerate(batches):
        write_batch(tmp_path / "in", number, batch)
        if number % 3 != 2:
            continue
        if number > 3:
            checkpoints.append(rescale(spark, checkpoints[-1], number, way))
        events = read_stream(spark, tmp_path / "in", EVENTS).withWatermark("ts", "5 seconds")
        keyed = hf.keyed(events, by="who", key_groups=12)
        frame = keyed.process(Everything(), output=OUTPUT, name="everything")
        rows += run(frame, checkpoints[-1])
    wanted = expected(checkpoints, batches, Model().batch)
    assert by_batch_and_key(rows) == {number: answers for number, answers in wanted.items() if answers}


@pytest.mark.parametrize(("way", "partitions"), [(SPARK, 1), (SPARK, 3), (RESCALE, 3), (MIGRATE, 1)])
def test_rules_are_the_same_for_every_key_after_a_rescale(
    spark: SparkSession, tmp_path: Path, way: str, partitions: int
) -> None:
    files = broadcast_programs.events_and_rules(5, batches=6, size=40, start=START)
    found: Counter[Any] = Counter()
    checkpoints = [tmp_path / "checkpoint"]
    for number, (events, rules) in enumerate(files):
        write_batch(tmp_path / "events", number, events)
        write_batch(tmp_path / "rules", number, rules)
        if number % 3 != 2:
            continue
        if number > 3:
            checkpoints.append(rescale(spark, checkpoints[-1], partitions, way))
        stream = hf.keyed(
            read_stream(spark, tmp_path / "events", broadcast_programs.EVENTS), by="who", key_groups=8
        )
        rules_stream = read_stream(spark, tmp_path / "rules", broadcast_programs.RULES)
        by_name = hf.broadcast(rules_stream, key="rule", version="version", withdrawn="off", name="rules")
        frame = stream.with_broadcast(by_name).process(
            broadcast_programs.Alerts(), output=broadcast_programs.OUTPUT, name="alerts"
        )
        found.update(tuple(row.values()) for _, row in run(frame, checkpoints[-1]))
    wanted = broadcast_programs.expected(checkpoints, files)
    assert found == sum(wanted.values(), Counter())
    assert sum(found.values()) > 20


@pytest.mark.parametrize("way", WAYS)
def test_hot_keys_are_merged_into_their_state_after_a_rescale(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    made = [batch for batch in split_programs.batches(12, count=6, size=200, start=START) if batch]
    checkpoint = tmp_path / "checkpoint"
    found: list[set[Any]] = []
    for number, batch in enumerate(made):
        write_batch(tmp_path / "events", number, batch)
        if number == 3:
            checkpoint = rescale(spark, checkpoint, 3, way)
        events = read_stream(spark, tmp_path / "events", split_programs.EVENTS)
        frame = (
            hf.keyed(events, by="who", key_groups=8)
            .split_hot()
            .process(split_programs.Basket(), output=split_programs.OUTPUT, name="basket")
        )
        if number % 3 == 2 or number == len(made) - 1:
            rows = run(frame, checkpoint)
            batches = sorted({batch_id for batch_id, _ in rows})
            found += [{tuple(row.values()) for at, row in rows if at == batch_id} for batch_id in batches]
    assert found == split_programs.expected(made)


@pytest.mark.parametrize("way", OURS)
def test_lists_of_instances_stay_with_them(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """Five numbers went to two instances by turns; the next two go on where the turns were."""
    checkpoint = tmp_path / "checkpoint"

    def tell() -> dict[int, tuple[list[int], list[int]]]:
        events = read_stream(spark, tmp_path / "in", NUMBERS)
        frame = hf.operate(events, instances=2).process(Holds(), output=HELD, name="holds")
        rows = [row for _, row in run(frame, checkpoint)]
        return {row["instance"]: (row["items"], row["seen"]) for row in rows}

    for number, values in enumerate(([0, 1, 2, 3, 4], [-1, -1])):
        write_batch(tmp_path / "in", number, [{"n": n, "ts": START} for n in values])
    assert tell() == {0: ([0, 2, 4], [0, 2, 4]), 1: ([1, 3], [1, 3])}
    checkpoint = rescale(spark, checkpoint, 3, way)
    write_batch(tmp_path / "in", 2, [{"n": n, "ts": START} for n in (5, 6)])
    write_batch(tmp_path / "in", 3, [{"n": -1, "ts": START}] * 2)
    assert sorted(n for items, _ in tell().values() for n in items) == list(range(7))


@pytest.mark.parametrize(
    ("way", "frame", "wanted"),
    [
        (SPARK, timely_programs.sessions, timely_programs.expected_sessions),
        (RESCALE, timely_programs.sessions, timely_programs.expected_sessions),
        (MIGRATE, timely_programs.sessions, timely_programs.expected_sessions),
        (RESCALE, timely_programs.running, timely_programs.expected_running),
        (MIGRATE, timely_programs.running, timely_programs.expected_running),
    ],
)
def test_sessions_and_running_totals_go_on_after_a_rescale(
    spark: SparkSession, tmp_path: Path, way: str, frame: Any, wanted: Any
) -> None:
    given = timely_programs.files(3, count=6, size=25, start=START)
    given.append(timely_programs.closing(START, 0))
    found: Counter[Any] = Counter()
    checkpoint = tmp_path / "checkpoint"
    for number, file in enumerate(given):
        write_batch(tmp_path / "in", number, file)
        if number not in (3, len(given) - 1):
            continue
        if number > 3:
            checkpoint = rescale(spark, checkpoint, 3, way)
        rows = run(frame(spark, tmp_path / "in"), checkpoint)
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
