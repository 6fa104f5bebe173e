"""Calls what Holdfast has with frames, queries and sessions of Spark Connect, and prints what comes of it.

The first argument is JSON: the server's address, a folder, and the names of the cases. The last line is JSON:
for each case its `rows`, or the `kind`, `module`, `fact` and `hint` of what it raised.
"""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import holdfast as hf

# Who, in which minute, how much: in the order of arrival, in two files.
FILES = (
    (("ann", 0, 1), ("bob", 0, 10), ("ann", 1, 2), ("ann", 1, 3)),
    (("bob", 2, 20), ("ann", 3, 4), ("cid", 9, 100)),
)
SCHEMA = "who string, at timestamp, n long"
# Spark gives the process of a batch function ten seconds to begin, which is short on a busy machine.
LATE_WORKER = "failed to connect back"
PATIENCE_S = 240


class Visits(hf.Keyed):
    """Counts a customer's visits."""

    visits = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        state.visits += 1
        yield {"who": event.who, "visits": state.visits}


class Priced(hf.Keyed):
    """Looks up a price in a broadcast stream."""

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        rule = ctx.broadcast.get((event.who,)) or ctx.broadcast.get(event.who)
        yield {"who": event.who, "cost": event.n * (rule.price if rule else 0)}


class Passed(hf.Operator):
    """Hands its rows on."""

    seen = hf.list("long")

    def on_event(self, event: Any, state: Any, ctx: Any) -> Iterator[dict[str, Any]]:
        yield {"n": event.n}


class Cases:
    """What is called, by name."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.source = folder / "in"
        for number, rows in enumerate(FILES):
            timed = [(who, dt.datetime(2026, 1, 1, 8, minute), n) for who, minute, n in rows]
            one = spark.createDataFrame(timed, SCHEMA).coalesce(1)
            one.write.parquet(str(folder / f"made{number}"))
        self.source.mkdir()
        self.arrive(0)

    def arrive(self, number: int) -> None:
        """Let a file be there for those who read the source."""
        (part,) = (self.folder / f"made{number}").glob("*.parquet")
        part.rename(self.source / f"{number}.parquet")

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.source))

    def at_rest(self) -> DataFrame:
        return self.spark.read.schema(SCHEMA).parquet(str(self.source))

    def place(self, name: str) -> str:
        return str(self.folder / "checkpoints" / name)

    def all_arrived(self) -> Any:
        self.arrive(1)

    def rows_of(self, frame: DataFrame, name: str, mode: str = "append") -> list[Any]:
        """What a query puts out over the source as it is."""
        table = name.replace("-", "_")
        sink = hf.sink(frame, mode=mode).memory(table)  # type: ignore[arg-type]
        done(sink.start(checkpoint=self.place(name), trigger=hf.available_now()))
        return plain(self.spark.table(table).collect())

    # Spark's own operators.

    def windowed(self) -> Any:
        made = hf.windowed(self.stream(), time="at", by="who", size="2 minutes", watermark="0 seconds")
        return self.rows_of(made.agg(F.sum("n").alias("total")), "windowed")

    def dedupe(self) -> Any:
        frame = hf.dedupe(self.stream(), by="who", time="at", watermark="1 minute")
        return self.rows_of(frame.select("who", "n"), "dedupe")

    def join_within(self) -> Any:
        frame = hf.join_within(
            self.stream(), self.stream(), by="who", times=("at", "at"), bound="1 minute",
            watermark="1 minute", prefixes=("l_", "r_"),
        )  # fmt: skip
        return self.rows_of(frame.select("who", "l_n", "r_n"), "join")

    def enrich(self) -> Any:
        table = self.spark.createDataFrame([("ann", "A"), ("bob", "B")], "who string, letter string")
        frame = hf.enrich(self.stream(), table, by="who", check=True)
        return self.rows_of(frame.select("who", "n", "letter"), "enrich")

    # Operators in Python.

    def keyed(self) -> Any:
        return self.visits(128)

    def keyed_again(self) -> Any:
        """The second run of `keyed`, over the rows that came since."""
        self.arrive(1)
        return self.visits(128)

    def keyed_with_other_groups(self) -> Any:
        """Nothing would tell a later start of another number, which finds no key again."""
        return self.visits(64)

    def keyed_with_a_note(self) -> Any:
        """The same where a classic start has left its note in the checkpoint: seen before the start."""
        note = Path(self.place("keyed"), "_holdfast", "operator-visits.json")
        note.parent.mkdir(parents=True)
        note.write_text(json.dumps({"key_groups": 64, "current": "", "forms": {}}))
        return self.visits(128)

    def visits(self, key_groups: int) -> Any:
        keyed = hf.keyed(self.stream(), by="who", key_groups=key_groups)
        frame = keyed.process(Visits(), output="who string, visits long", name="visits")
        table = self.place("visits")
        done(hf.sink(frame).parquet(table).start(checkpoint=self.place("keyed"), trigger=hf.available_now()))
        return plain(self.spark.read.parquet(table).collect())

    def operate(self) -> Any:
        frame = hf.operate(self.stream(), instances=2).process(Passed(), output="n long", name="passed")
        return self.rows_of(frame, "operate", "update")

    def broadcast(self) -> Any:
        prices = self.spark.readStream.schema("who string, price long").parquet(str(self.prices()))
        frame = (
            hf.keyed(self.stream(), by="who")
            .with_broadcast(hf.broadcast(prices, key="who", name="prices"))
            .process(Priced(), output="who string, cost long", name="priced")
        )
        return self.rows_of(frame, "broadcast", "update")

    def prices(self) -> Path:
        place = self.folder / "prices"
        rows = self.spark.createDataFrame([("ann", 2), ("bob", 3)], "who string, price long").coalesce(1)
        rows.write.parquet(str(place))
        return place

    def running(self) -> Any:
        frame = hf.running(
            self.stream(), by="who", time="at", size="10 minutes", agg={"total": "sum(n)"},
            watermark="0 seconds", emit="early",
        )  # fmt: skip
        return self.rows_of(frame.select("who", "n", "total"), "running", "update")

    def sessions(self) -> Any:
        frame = hf.sessions(
            self.stream(),
            by="who",
            time="at",
            gap="3 minutes",
            agg={"total": "sum(n)"},
            watermark="0 seconds",
        )
        return self.rows_of(frame.select("who", "total"), "sessions", "update")

    def keyed_in_a_database(self) -> Any:
        keyed = hf.keyed(self.stream(), by="who")
        blobs = hf.Redis("127.0.0.1:6379")
        return keyed.process(Visits(), output="who string, visits long", name="v", blobs=blobs)

    # Hot keys.

    def skew_watch(self) -> Any:
        query = hf.skew.watch(self.stream(), by="who", name="who", every=1).writeStream.format("noop")
        started = query.option("checkpointLocation", self.place("skew")).trigger(availableNow=True).start()
        done(started)
        (report,) = hf.skew.report(started)
        return sorted([key.key[0], key.rows] for key in report.heavy)

    def skew_of_a_table(self) -> Any:
        report = hf.skew.report(self.at_rest(), by="who")
        return [hf.skew.find(self.at_rest(), by="who", share=0.5), report.rows]

    def split_aggregate(self) -> Any:
        frame = hf.split_hot(self.stream(), by="who", hot=["ann"]).agg(hf.skew.sum("n"))
        return self.rows_of(frame, "split-agg", "complete")

    def split_join(self) -> Any:
        split = hf.split_hot(self.stream(), by="who", hot=["ann"])
        return split.join_within(
            self.stream(), times=("at", "at"), bound="1 minute", watermark="1 minute", name="j",
            prefixes=("l_", "r_"),
        )  # fmt: skip

    # Sinks.

    def parquet(self) -> Any:
        sink = hf.sink(self.stream().select("who", "n")).parquet(self.place("table"))
        done(sink.start(checkpoint=self.place("parquet"), trigger=hf.available_now()))
        return plain(self.spark.read.parquet(self.place("table")).collect())

    def adopted(self) -> Any:
        writer = self.stream().select("who", "n").writeStream.format("parquet")
        sink = hf.adopt(writer.option("path", self.place("adopted-table")))
        done(sink.start(checkpoint=self.place("adopted"), trigger=hf.available_now()))
        return [sink.kind, sink.promise.level.value]

    def batch_function(self) -> Any:
        target = self.place("batches")

        def write(batch: Any, number: int) -> None:
            batch.select("who", "n").write.mode("append").parquet(f"{target}/{number}")

        self.patiently(lambda: hf.sink(self.stream()).foreach_batch(write), "batch-function")
        return plain(self.spark.read.parquet(f"{target}/*").collect())

    def ledger(self) -> Any:
        """Twice from the beginning under one query id, as after a kill before the commit."""
        base = self.folder / "ledger.db"
        frame = self.stream().select("who", "n")
        self.patiently(lambda: hf.sink(frame, name="orders").append("orders", base), "ledger")
        newest = max((self.folder / "checkpoints" / "ledger" / "commits").glob("[0-9]*"))
        newest.unlink()
        newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
        self.patiently(lambda: hf.sink(frame, name="orders").append("orders", base), "ledger")
        (query_id,) = {record.query_id for record in hf.Ledger.sqlite(base).history("orders")}
        noted = json.loads((self.folder / "checkpoints" / "ledger" / "metadata").read_text())["id"]
        with sqlite3.connect(base) as database:
            return [sorted(map(list, database.execute("SELECT who, n FROM orders"))), query_id == noted]

    def ledger_of_a_later_owner(self) -> Any:
        """A claim after the start refuses the batch that comes then."""
        base = self.folder / "fenced.db"
        frame = self.stream().select("who", "n")
        sink = hf.sink(frame, name="fenced").append("fenced", base)
        query = self.started(lambda: sink, "fenced", hf.every("1 second"))
        hf.Ledger.sqlite(base).claim("fenced", "another owner")
        self.arrive(1)
        done(query)

    def patiently(self, make: Callable[[], hf.Sink], name: str) -> None:
        """Run a sink with a batch function to its end."""
        done(self.started(make, name, hf.available_now()))

    def started(self, make: Callable[[], hf.Sink], name: str, trigger: Any) -> Any:
        """Start a sink, again and again where the server's Python has taken too long to begin."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return make().start(checkpoint=self.place(name), trigger=trigger)
            except Exception as error:  # noqa: PERF203 - a start takes seconds
                if LATE_WORKER not in str(error) or time.monotonic() > until:
                    raise

    # What measures, and what guards.

    def watch(self) -> Any:
        """Progress that was before the watch, and progress that came while it watched."""
        query = (
            self.stream().groupBy("who").count().writeStream.format("noop").outputMode("complete")
            .option("checkpointLocation", self.place("watched")).queryName("watched").start()
        )  # fmt: skip
        query.processAllAvailable()
        with hf.watch(query, home=self.folder / "home", checkpoint=self.place("watched")) as watch:
            self.arrive(1)
            query.processAllAvailable()
            until = time.monotonic() + PATIENCE_S
            while time.monotonic() < until:
                numbers = {sample.metric: sample.value for sample in watch.metrics()}
                if numbers.get("holdfast_batch_id") == 1:
                    break
                time.sleep(0.05)
            found = [watch.batches()[-1].input_rows, numbers.get("holdfast_state_rows")]
        query.stop()
        return found

    def watch_of_keyed_state(self) -> Any:
        keyed = hf.keyed(self.stream(), by="who").process(
            Visits(), output="who string, visits long", name="visits"
        )
        query = hf.sink(keyed).parquet(self.place("out")).start(checkpoint=self.place("keyed"))
        try:
            query.processAllAvailable()
            with hf.watch(query, home=self.folder / "home", checkpoint=self.place("keyed")) as watch:
                until = time.monotonic() + PATIENCE_S
                while not watch.batches() and time.monotonic() < until:
                    watch.metrics()
                    time.sleep(0.05)
                (operator,) = watch.batches()[0].operators
                assert operator.keyed is not None
                return [operator.keyed.name, operator.keyed.events, hf.late_rows(query.recentProgress[0])]
        finally:
            query.stop()

    def guard(self) -> Any:
        return hf.guard(self.stream().writeStream.option("checkpointLocation", self.place("guarded")))

    def guard_of_a_sink(self) -> Any:
        return hf.guard(hf.sink(self.stream()).console(), checkpoint=self.place("guarded"))

    def guard_of_a_query(self) -> Any:
        writer = self.stream().writeStream.format("noop").option("checkpointLocation", self.place("guarded"))
        query = writer.start()
        try:
            return hf.guard(query, checkpoint=self.place("guarded"))
        finally:
            query.stop()

    def configure(self) -> Any:
        return hf.configure(SparkSession.builder.remote("sc://127.0.0.1"))

    def check(self) -> Any:
        return hf.check(hf.sink(self.stream()).console(), against=self.place("keyed"))

    def bootstrap(self) -> Any:
        return hf.bootstrap(hf.sink(self.stream()).console(), to=self.folder / "warm", states={})

    def lint_of_a_plan(self) -> Any:
        job = self.folder / "job.py"
        job.write_text(JOB)
        return hf.lint(str(job), plan=True, spark=self.spark)

    def real_time_to_a_table(self) -> Any:
        sink = hf.sink(self.stream(), mode="update").memory("real_time")
        return sink.start(checkpoint=self.place("real-time"), trigger=hf.real_time("5 seconds"))

    def continuous(self) -> Any:
        writer = self.stream().writeStream.format("console").trigger(continuous="1 second")
        return hf.adopt(writer).start(checkpoint=self.place("continuous"))


JOB = """import holdfast as hf

@hf.job(name="linted", checkpoint="./ck")
def linted(spark):
    return hf.sink(spark.readStream.format("rate").load()).console()
"""


def done(query: Any) -> None:
    """Wait for a query's end; its failure is raised."""
    assert query.awaitTermination(PATIENCE_S), "the query does not end"


def plain(rows: list[Any]) -> list[Any]:
    return sorted([str(cell) if isinstance(cell, dt.datetime) else cell for cell in row] for row in rows)


def outcome(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        return {"rows": call()}
    except Exception as error:
        said = {"kind": type(error).__name__, "module": type(error).__module__, "text": str(error)}
        return said | {"fact": getattr(error, "fact", None), "hint": getattr(error, "hint", None)}


def main(asked: dict[str, Any]) -> None:
    spark = SparkSession.builder.remote(asked["address"]).getOrCreate()
    folder = Path(asked["folder"])
    found = {}
    for number, group in enumerate(asked["groups"]):
        place = folder / str(number)
        place.mkdir(parents=True)
        cases = Cases(spark, place)
        for name in group:
            found[name] = outcome(getattr(cases, name))
    sys.stdout.write(json.dumps(found, default=str) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
