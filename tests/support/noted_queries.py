"""Small queries of each kind of which Holdfast notes something in the checkpoint."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import broadcast_programs
import instance_programs
import keyed_programs
import split_programs
from keyed_runs import START, program, read_stream, write_batch

import holdfast as hf
from holdfast.engine.session.workers import ship_by_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Noted:
    """A query, its input, and its output mode."""

    write: Callable[[Path], None]
    build: Callable[[SparkSession, Path], DataFrame]
    mode: Literal["append", "update"] = "append"


def write_rules(folder: Path) -> None:
    files = broadcast_programs.events_and_rules(1, batches=2, size=10, start=START)
    for number, (events, rules) in enumerate(files):
        write_batch(folder / "events", number, events)
        write_batch(folder / "rules", number, rules)


def broadcast(spark: SparkSession, folder: Path) -> DataFrame:
    ship_by_value(broadcast_programs)
    rules = read_stream(spark, folder / "rules", broadcast_programs.RULES)
    by_name = hf.broadcast(rules, key="rule", version="version", withdrawn="off", name="rules")
    events = read_stream(spark, folder / "events", broadcast_programs.EVENTS)
    stream = hf.keyed(events, by="who", key_groups=4).with_broadcast(by_name)
    return stream.process(broadcast_programs.Alerts(), output=broadcast_programs.OUTPUT, name="alerts")


def write_numbers(folder: Path) -> None:
    for number, numbers in enumerate(((1, 2, 3), (4, 5))):
        write_batch(folder / "in", number, [{"n": n, "ts": START} for n in numbers])


def instances(spark: SparkSession, folder: Path) -> DataFrame:
    ship_by_value(instance_programs)
    events = read_stream(spark, folder / "in", instance_programs.EVENTS)
    stream = hf.operate(events, instances=2)
    return stream.process(instance_programs.Holds(), output=instance_programs.OUTPUT, name="holds")


def write_program(folder: Path) -> None:
    for number, events in enumerate(program(3, batches=3, events=20)):
        write_batch(folder / "in", number, events)


def everything(spark: SparkSession, folder: Path) -> DataFrame:
    """Every kind of state, with TTL and timers."""
    ship_by_value(keyed_programs)
    events = read_stream(spark, folder / "in", keyed_programs.EVENTS).withWatermark("ts", "5 seconds")
    stream = hf.keyed(events, by="who", key_groups=4)
    return stream.process(keyed_programs.Everything(), output=keyed_programs.OUTPUT, name="everything")


def write_baskets(folder: Path) -> None:
    for number, events in enumerate(split_programs.batches(1, count=2, size=20, start=START)):
        write_batch(folder / "in", number, events)


def basket(spark: SparkSession, folder: Path) -> DataFrame:
    """Keys whose events are taken together before the shuffle."""
    ship_by_value(split_programs)
    events = read_stream(spark, folder / "in", split_programs.EVENTS)
    stream = hf.keyed(events, by="who", key_groups=4).split_hot(["hot"])
    return stream.process(split_programs.Basket(), output=split_programs.OUTPUT, name="basket")


def split_join(spark: SparkSession, folder: Path) -> DataFrame:
    """A join of streams in which a hot key is split into parts."""
    left = read_stream(spark, folder / "left", "who string, n long, ts timestamp")
    right = read_stream(spark, folder / "right", "who string, paid long, ts timestamp")
    return hf.split_hot(left, by="who", hot=["hot"], parts=3).join_within(
        right.withColumnRenamed("ts", "paid_at"),
        times=("ts", "paid_at"),
        bound=(dt.timedelta(minutes=-1), dt.timedelta(minutes=1)),
        watermark="1 minute",
        name="meeting",
    )


def write_sides(folder: Path) -> None:
    for side, amount in (("left", "n"), ("right", "paid")):
        for number in range(2):
            rows = [{"who": who, amount: number, "ts": START + number} for who in ("hot", "ann")]
            write_batch(folder / side, number, rows)


NOTED = {
    "everything": Noted(write_program, everything),
    "broadcast": Noted(write_rules, broadcast),
    "instances": Noted(write_numbers, instances),
    "basket": Noted(write_baskets, basket),
    "split-join": Noted(write_sides, split_join),
}
