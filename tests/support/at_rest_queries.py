"""Every kind of stateful query whose state is read at rest, over a stream of small files.

The kinds of `grid_queries` that differ in how their keys and values are put into bytes, and those that it
does not have: state with times to live and timers, a function over groups, joins in each of Spark's forms.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 3
SCHEMA = "who string, amount long, ts timestamp"
YEARS_MS = 40 * 365 * 86_400_000
FAR_MS = 4_102_444_800_000
START_S = 1_772_697_600
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"


@dataclass(frozen=True)
class Kind:
    """A query.

    Attributes:
        build: The query over its input folder.
        mode: Its output mode.
        heap: Whether the memory provider can hold its state.
        settings: What the session has to say.
    """

    build: Callable[[SparkSession, Path], DataFrame]
    mode: str = "update"
    heap: bool = True
    settings: dict[str, str] = field(default_factory=dict)


def write_input(folder: Path, files: int = FILES) -> None:
    """Ten events a file, seven customers; one of them has no name."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        lines = [
            {
                "who": None if (number * 3 + each) % 7 == 6 else f"c{(number * 3 + each) % 7}",
                "amount": number * 10 + each,
                "ts": f"2026-03-05T08:{number:02}:{each * 5:02}Z",
            }
            for each in range(10)
        ]
        file = folder / f"{number}.json"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(file, (START_S + number,) * 2)  # the order in which Spark takes them


def events(spark: SparkSession, folder: Path, late: str | None = None) -> DataFrame:
    """The stream, one file a batch."""
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(folder))
    return stream.withWatermark("ts", late) if late else stream


def aggregate(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

    seen = events(spark, folder).groupBy("who")
    return seen.agg(
        F.count("*").alias("n"), F.avg("amount").alias("mean"), F.collect_list("amount").alias("all")
    )


def many_types(spark: SparkSession, folder: Path) -> DataFrame:
    """Keys of every type that a person can group by."""
    from pyspark.sql import functions as F  # noqa: N812 - as above

    keys = {
        "b": F.col("amount") % 2 == 0,
        "i8": (F.col("amount") % 3).cast("byte"),
        "i16": -(F.col("amount") % 4).cast("short"),
        "i32": (F.col("amount") % 5).cast("int"),
        "i64": F.when(F.col("amount") % 7 != 0, F.col("amount")),
        "f32": (F.col("amount") % 2).cast("float") / 3,
        "f64": -(F.col("amount") % 2).cast("double"),
        "small": (F.col("amount") / 8).cast("decimal(10,3)"),
        "large": (F.col("amount") * -1).cast("decimal(30,5)"),
        "day": F.date_add(F.to_date("ts"), (F.col("amount") % 9).cast("int")),
        "at": F.col("ts"),
        "raw": F.encode(F.concat(F.lit("é"), F.col("amount").cast("string")), "utf-8"),
        "point": F.struct(F.col("who").alias("x"), (F.col("amount") % 2).alias("y")),
        "path": F.array(F.col("amount"), F.lit(None).cast("long"), F.col("amount") + 1),
    }
    named = events(spark, folder).select(*[value.alias(name) for name, value in keys.items()])
    return named.groupBy(*keys).count()


def everything(spark: SparkSession, folder: Path) -> DataFrame:
    return events(spark, folder).groupBy().count()


def windowed(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as above

    return events(spark, folder, "1 minute").groupBy(F.window("ts", "30 seconds"), "who").count()


def sessions(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as above

    return events(spark, folder, "10 minutes").groupBy(F.session_window("ts", "12 seconds"), "who").count()


def dedupe(spark: SparkSession, folder: Path) -> DataFrame:
    return events(spark, folder).dropDuplicates(["who", "amount"])


def dedupe_within(spark: SparkSession, folder: Path) -> DataFrame:
    return events(spark, folder, "10 minutes").dropDuplicatesWithinWatermark(["who"])


def joined(spark: SparkSession, folder: Path) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as above

    left = events(spark, folder, "10 minutes")
    right = left.select(F.col("who").alias("also"), F.col("amount").alias("paid"), F.col("ts").alias("at"))
    near = F.expr("who = also and at between ts - interval 1 minute and ts")
    return left.join(right, near, "left_outer")


def in_groups(spark: SparkSession, folder: Path) -> DataFrame:
    """A function over groups in processing time: it runs on without end, and each run notes other times."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    def until(state: Any) -> None:
        state.setTimeoutDuration(YEARS_MS)

    return _counted(events(spark, folder), until, GroupStateTimeout.ProcessingTimeTimeout)


def in_groups_by_event(spark: SparkSession, folder: Path) -> DataFrame:
    """The same in event time: one run is like another."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    def until(state: Any) -> None:
        state.setTimeoutTimestamp(FAR_MS)

    return _counted(events(spark, folder, "10 minutes"), until, GroupStateTimeout.EventTimeTimeout)


def _counted(stream: DataFrame, until: Callable[[Any], None], timeout: str) -> DataFrame:
    import pandas as pd  # type: ignore[import-untyped]

    def count(key: Any, frames: Any, state: Any) -> Any:
        n = sum(len(each) for each in frames) + (state.get[0] if state.exists else 0)
        state.update((n, f"seen {n}"))
        until(state)
        yield pd.DataFrame({"who": [key[0]], "n": [n]})

    keyed = stream.groupBy("who")
    return keyed.applyInPandasWithState(count, "who string, n long", "n long, word string", "update", timeout)


def with_state(spark: SparkSession, folder: Path) -> DataFrame:
    """Values, lists and maps, with and without a time to live, and timers."""
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Held(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle
            self.count = handle.getValueState("count", "n long")
            self.amounts = handle.getListState("amounts", "amount long, word string")
            self.often = handle.getMapState("often", "amount long, even boolean", "n long")
            self.last = handle.getValueState("last", "amount long", YEARS_MS)
            self.short = handle.getListState("short", "amount long", YEARS_MS)
            self.kept = handle.getMapState("kept", "k string", "x long", YEARS_MS)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803
            amounts = [int(each) for batch in rows for each in batch["amount"]]
            noted = self.count.get()
            count = (noted[0] if noted else 0) + len(amounts)
            self.count.update((count,))
            self.last.update((amounts[-1],))
            for each in amounts:
                self.amounts.appendValue((each, "é" * (each % 12)))
                self.short.appendValue((each,))
                self.often.updateValue((each % 5, each % 2 == 0), (each,))
                self.kept.updateValue((f"k{each % 3}",), (each,))
            if amounts[0] % 7 == 0:
                self.amounts.clear()
            self.handle.registerTimer(FAR_MS + amounts[0])
            yield pd.DataFrame({"who": [key[0]], "n": [count]})

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N802, N803
            yield pd.DataFrame({"who": [key[0]], "n": [0]})

        def close(self) -> None:
            pass

    return (
        events(spark, folder)
        .groupBy("who")
        .transformWithStateInPandas(Held(), "who string, n long", "Update", "processingTime")
    )


class Visits(hf.Keyed):
    """How often each came, what he spent and on what, with times to live and a timer."""

    visits = hf.value("long", default=0)
    spent = hf.reducing("long", hf.add, ttl="7d")
    words = hf.list("string")
    often = hf.map("long", "long", ttl="7d")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Any:
        state.visits += 1
        state.spent.add(event.amount)
        state.words.append(f"w{event.amount}")
        state.often[event.amount % 3] = event.amount
        ctx.timer(event.ts + hf.minutes(500), name="nudge")
        yield {"who": event.who, "n": state.visits}

    def on_timer(self, timer: Any, state: Any, ctx: Any) -> Any:
        yield {"who": ctx.key, "n": 0}


def keyed(spark: SparkSession, folder: Path) -> DataFrame:
    return hf.keyed(events(spark, folder, "10 minutes"), by="who", key_groups=8).process(
        Visits(), output="who string, n long", name="visits"
    )


def keyed_by_two(spark: SparkSession, folder: Path) -> DataFrame:
    stream = events(spark, folder, "10 minutes")
    return hf.keyed(stream, by=["who", "amount"], key_groups=8).process(
        Visits(), output="who string, n long", name="pairs"
    )


KINDS: dict[str, Kind] = {
    "aggregate": Kind(aggregate),
    "types": Kind(many_types),
    "everything": Kind(everything, "complete"),
    "window": Kind(windowed),
    "session": Kind(sessions, "append"),
    "dedupe": Kind(dedupe, "append"),
    "dedupe_within": Kind(dedupe_within, "append"),
    "join2": Kind(joined, "append", settings={JOIN_FORMAT: "2"}),
    "join3": Kind(joined, "append", heap=False, settings={JOIN_FORMAT: "3"}),
    "groups": Kind(in_groups),
    "groups_by_event": Kind(in_groups_by_event),
    "state": Kind(with_state, heap=False),
    "keyed": Kind(keyed, "append", heap=False),
    "keyed_by_two": Kind(keyed_by_two, "append", heap=False),
}


def run(frame: DataFrame, checkpoint: Path, mode: str, files: int = FILES) -> None:
    """Run until all files have been taken; a query in processing time would go on for ever."""
    writer = frame.writeStream.format("noop").outputMode(mode)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    while (progress := query.lastProgress) is None or progress["batchId"] < files - 1:
        query.awaitTermination(1)
    query.stop()
