"""Sessions and running totals over files in disorder, and what they must come to, in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyed_runs import read_stream

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "who string, n long, ts timestamp"
DELAY_MS = 10_000
GAP_MS = 3_000
SIZE_MS = 5_000
AGG = {"events": "count(*)", "total": "sum(n)"}
# Behind everything else, so that all sessions but its own end.
CLOSING_MS = 3_600_000

Files = list[list[dict[str, Any]]]
Row = tuple[Any, ...]


def files(seed: int, count: int, size: int, start: int) -> Files:
    """Files whose rows are out of order, some of them too late."""
    chance = random.Random(seed)
    return [
        [
            {
                "who": chance.choice(["ann", "bob", "cyd", None]),
                "n": chance.randrange(100),
                "ts": start + number * 8_000 + chance.randrange(-6_000, 8_000, 250),
            }
            for _ in range(size)
        ]
        + ([{"who": "ann", "n": 1_000, "ts": start - 60_000}] if number > 1 else [])
        for number in range(count)
    ]


def closing(start: int, at: int) -> list[dict[str, Any]]:
    """A file that moves the watermark past all others."""
    return [{"who": "end", "n": 0, "ts": start + CLOSING_MS + at * 1_000}]


def sessions(spark: SparkSession, folder: Path) -> DataFrame:
    events = read_stream(spark, folder, EVENTS)
    return hf.sessions(events, by="who", time="ts", gap="3s", agg=AGG, watermark="10s", key_groups=8)


def running(spark: SparkSession, folder: Path) -> DataFrame:
    events = read_stream(spark, folder, EVENTS)
    return hf.running(events, by="who", time="ts", size="5s", agg=AGG, watermark="10s", key_groups=8)


def on_time(given: Files) -> list[dict[str, Any]]:
    """The rows that no watermark had reached, where a batch is a file."""
    kept: list[dict[str, Any]] = []
    watermark = newest = 0
    for file in given:
        kept += [row for row in file if row["ts"] > watermark]
        newest = max([newest, *(row["ts"] for row in file)])
        watermark = newest - DELAY_MS
    return [row for row in kept if row["who"] != "end"]


def expected_sessions(given: Files) -> Counter[Row]:
    """Who, start, end in milliseconds, events and total of each session."""
    found: list[list[dict[str, Any]]] = []
    for row in sorted(on_time(given), key=lambda each: (str(each["who"]), each["ts"])):
        last = found[-1][-1] if found else None
        if last is None or last["who"] != row["who"] or row["ts"] > last["ts"] + GAP_MS:
            found.append([])
        found[-1].append(row)
    return Counter(
        (
            each[0]["who"],
            each[0]["ts"],
            each[-1]["ts"] + GAP_MS,
            len(each),
            sum(row["n"] for row in each),
        )
        for each in found
    )


def expected_running(given: Files) -> Counter[Row]:
    """Who, n, time in milliseconds, events and total of the five seconds up to each row."""
    rows = on_time(given)
    found: Counter[Row] = Counter()
    for row in rows:
        near = [
            each["n"]
            for each in rows
            if each["who"] == row["who"] and row["ts"] - SIZE_MS <= each["ts"] <= row["ts"]
        ]
        found[(row["who"], row["n"], row["ts"], len(near), sum(near))] += 1
    return found
