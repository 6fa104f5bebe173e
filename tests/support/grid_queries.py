"""Every kind of stateful query, each with a model in plain Python of what it has put out in the end.

The input is two streams of files, the same for all. In the last file of each an event from far ahead ends
every window and session that is still open.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
START = 1_700_000_040_000
SCHEMA = "who string, amount long, ts timestamp"
WINDOW_MS = 60_000
GAP_MS = 5_000
STEP_MS = 20_000
LAST = "zoe"

Event = tuple[str, int, int]
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Kind:
    """A query.

    Attributes:
        build: The query over its input folder.
        mode: Its output mode.
        model: Its output in the end, from the events of both sides.
        key_columns: Where rows replace each other: how many of their first columns tell which.
        heap: Whether the memory provider can hold its state.
    """

    build: Callable[[SparkSession, Path], DataFrame]
    mode: str
    model: Callable[[list[Event], list[Event]], Counter[Row]]
    key_columns: int = 0
    heap: bool = True


def files(seed: int, count: int, size: int) -> list[tuple[list[Event], list[Event]]]:
    """What each side brings with each file: in order of time, over a few keys."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        begin = START + number * STEP_MS
        sides: list[list[Event]] = []
        for _ in range(2):
            times = sorted(begin + chance.randrange(0, STEP_MS, 500) for _ in range(size))
            sides.append([(f"w{chance.randrange(12)}", chance.randrange(100), each) for each in times])
        made.append((sides[0], sides[1]))
    far = START + 1000 * STEP_MS
    made.append(([(LAST, 0, far)], [(LAST, 1, far)]))
    return made


def write(folder: Path, number: int, sides: tuple[list[Event], list[Event]]) -> None:
    """A file for each side; times of files follow their numbers."""
    for side, events in zip(("left", "right"), sides, strict=True):
        place = folder / side
        place.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"who": who, "amount": amount, "ts": moment(ts).isoformat()}) + "\n"
            for who, amount, ts in events
        ]
        file = place / f"{number:03}.json"
        file.write_text("".join(lines))
        os.utime(file, (START // 1000 + number,) * 2)  # the order in which Spark takes them


def moment(ms: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=ms)


def ms(value: Any) -> int:
    since: dt.timedelta = value.replace(tzinfo=dt.timezone.utc) - EPOCH
    return round(since.total_seconds() * 1000)


def read(spark: SparkSession, folder: Path, side: str = "left", late: str | None = "0 seconds") -> DataFrame:
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(folder / side))
    return stream.withWatermark("ts", late) if late else stream


def aggregate(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    seen = read(spark, folder, late=None).groupBy("who")
    return seen.agg(F.count("*").alias("n"), F.sum("amount").alias("spent"), F.max("amount").alias("most"))


def aggregated(left: list[Event], _: list[Event]) -> Counter[Row]:
    amounts: dict[str, list[int]] = {}
    for who, amount, _ts in left:
        amounts.setdefault(who, []).append(amount)
    return Counter((who, len(each), sum(each), max(each)) for who, each in amounts.items())


def join(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as above

    other = read(spark, folder, "right").select(
        F.col("who").alias("also"), F.col("amount").alias("paid"), F.col("ts").alias("at")
    )
    near = F.expr("who = also and at between ts - interval 10 seconds and ts + interval 10 seconds")
    return read(spark, folder).join(other, near, "left_outer").select("who", "amount", "ts", "paid", "at")


def joined(left: list[Event], right: list[Event]) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for who, amount, ts in left:
        near = [each for each in right if each[0] == who and abs(each[2] - ts) <= 10_000]
        found.update((who, amount, ts, paid, at) for _, paid, at in near)
        if not near:
            found[who, amount, ts, None, None] += 1
    return found


def window(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as above

    counts = read(spark, folder).groupBy(F.window("ts", f"{WINDOW_MS} milliseconds"), "who").count()
    return counts.select("window.start", "who", "count")


def windowed(left: list[Event], _: list[Event]) -> Counter[Row]:
    counts = Counter((ts // WINDOW_MS * WINDOW_MS, who) for who, _amount, ts in left)
    return Counter((start, who, n) for (start, who), n in counts.items() if who != LAST)


def session(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as above

    gap = F.session_window("ts", f"{GAP_MS} milliseconds")
    counts = read(spark, folder).groupBy(gap, "who").count()
    return counts.select("session_window.start", "session_window.end", "who", "count")


def in_sessions(left: list[Event], _: list[Event]) -> Counter[Row]:
    times: dict[str, list[int]] = {}
    for who, _amount, ts in left:
        times.setdefault(who, []).append(ts)
    found: Counter[Row] = Counter()
    for who, each in times.items():
        ordered = sorted(each)
        begin, count = ordered[0], 1
        for before, ts in zip(ordered, [*ordered[1:], ordered[-1] + 2 * GAP_MS], strict=True):
            if ts <= before + GAP_MS:  # windows that touch are one
                count += 1
                continue
            found[begin, before + GAP_MS, who, count] += 1
            begin, count = ts, 1
    return Counter({row: n for row, n in found.items() if row[2] != LAST})


def dedupe(spark: SparkSession, folder: Path) -> DataFrame:
    return read(spark, folder, late=None).dropDuplicates(["who", "amount"]).select("who", "amount")


def deduplicated(left: list[Event], _: list[Event]) -> Counter[Row]:
    return Counter({(who, amount) for who, amount, _ts in left})


def with_state(spark: SparkSession, folder: Path) -> DataFrame:
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Held(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.count = handle.getValueState("count", "n long")
            self.amounts = handle.getListState("amounts", "amount long")
            self.often = handle.getMapState("often", "amount long", "n long")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            amounts = [int(each) for batch in rows for each in batch["amount"]]
            noted = self.count.get()
            count = (noted[0] if noted else 0) + len(amounts)
            self.count.update((count,))
            for each in amounts:
                self.amounts.appendValue((each,))
                often = self.often.getValue((each,))
                self.often.updateValue((each,), ((often[0] if often else 0) + 1,))
            spent = sum(each[0] for each in self.amounts.get())
            distinct = sum(1 for _ in self.often.iterator())
            yield pd.DataFrame({"who": [key[0]], "n": [count], "spent": [spent], "distinct": [distinct]})

        def close(self) -> None:
            pass

    grouped = read(spark, folder, late=None).groupBy("who")
    return grouped.transformWithStateInPandas(
        Held(), "who string, n long, spent long, distinct long", "Update", "None"
    )


def held(left: list[Event], _: list[Event]) -> Counter[Row]:
    amounts: dict[str, list[int]] = {}
    for who, amount, _ts in left:
        amounts.setdefault(who, []).append(amount)
    return Counter((who, len(each), sum(each), len(set(each))) for who, each in amounts.items())


class Visits(hf.Keyed):
    """How often each came, what he spent, and on how many different amounts."""

    visits = hf.value("long", default=0)
    spent = hf.reducing("long", hf.add)
    often = hf.map("long", "long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.visits += 1
        state.spent.add(event.amount)
        state.often[event.amount] = state.often.get(event.amount, 0) + 1
        yield {
            "who": event.who,
            "n": state.visits,
            "spent": state.spent.get(),
            "distinct": len(list(state.often.keys())),
        }


def keyed(spark: SparkSession, folder: Path) -> DataFrame:
    return hf.keyed(read(spark, folder), by="who", key_groups=8).process(
        Visits(), output="who string, n long, spent long, distinct long", name="visits"
    )


KINDS: dict[str, Kind] = {
    "aggregate": Kind(aggregate, "update", aggregated, key_columns=1),
    "join": Kind(join, "append", joined),
    "window": Kind(window, "append", windowed),
    "session": Kind(session, "append", in_sessions),
    "dedupe": Kind(dedupe, "append", deduplicated),
    "state": Kind(with_state, "update", held, key_columns=1, heap=False),
    "keyed": Kind(keyed, "append", held, key_columns=1, heap=False),
}


def plain(row: Any) -> Row:
    """A row with times in epoch milliseconds."""
    return tuple(ms(value) if isinstance(value, dt.datetime) else value for value in row)


def in_the_end(rows: Sequence[Row], key_columns: int) -> Counter[Row]:
    """What all rows together say, the later ones over the earlier."""
    if not key_columns:
        return Counter(rows)
    newest = {row[:key_columns]: row for row in rows}
    return Counter(newest.values())
