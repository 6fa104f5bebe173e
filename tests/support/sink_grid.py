"""A query that a verb moves between its batches, into every sink, with a model of its rows in plain Python.

The query drops repeated pairs, or sums up what each customer spent. Three files come before the move, and 25
after it, one a batch, so that Spark's file sink compacts its log twice; the short form has 12, with one
compaction.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grid import WHOLE

import holdfast as hf
from holdfast import savepoints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEFORE = 3
AFTER = 25 if WHOLE else 12
_ROWS = 5
_SCHEMA = "who string, amount long"
_FOREIGN = "foreign"

Pair = tuple[str, int]
Expected = Counter[Pair]


def input_files(seed: int) -> list[list[Pair]]:
    """Pairs by file; many of them come again in a later one."""
    chance = random.Random(seed)
    return [
        [(f"w{chance.randrange(5)}", chance.randrange(12)) for _ in range(_ROWS)]
        for _ in range(BEFORE + AFTER)
    ]


@dataclass
class Query:
    """A query, its input, checkpoint and table.

    Attributes:
        spark: The session.
        folder: A directory of its own.
        files: The pairs of each input file.
        totals: Whether it sums up, in place of dropping repeated pairs.
        checkpoint: Where it keeps its state now.
        table: Where it writes now.
    """

    spark: SparkSession
    folder: Path
    files: list[list[Pair]]
    totals: bool = False
    checkpoint: Path = field(init=False)
    table: Path = field(init=False)

    def __post_init__(self) -> None:
        self.checkpoint, self.table = self.folder / "first", self.folder / "table"

    def put(self, first: int, last: int) -> None:
        """Write some of the input files, in the order in which Spark reads them."""
        place = self.folder / "in"
        place.mkdir(exist_ok=True)
        for number in range(first, last):
            file = place / f"{number:03}.json"
            rows = [json.dumps({"who": who, "amount": amount}) for who, amount in self.files[number]]
            file.write_text("\n".join(rows))
            os.utime(file, (1_700_000_000 + number,) * 2)

    def frame(self) -> DataFrame:
        """The query's rows."""
        from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

        read = self.spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        rows = read.json(str(self.folder / "in"))
        if self.totals:
            return rows.groupBy("who").agg(F.sum("amount").alias("amount"))
        return rows.dropDuplicates(["who", "amount"])

    def model(self, first: int = 0, last: int = BEFORE + AFTER, known: int = 0) -> Expected:
        """The rows that the query puts out for some of its files, over state of the first `known` files."""
        pairs = [pair for rows in self.files[first:last] for pair in rows]
        seen = {pair for rows in self.files[:known] for pair in rows}
        return Counter(set(pairs) - seen)

    def sums(self) -> Expected:
        """The totals in the end."""
        spent: Counter[str] = Counter()
        for rows in self.files:
            for who, amount in rows:
                spent[who] += amount
        return Counter(spent.items())


class Sink:
    """A sink: starts the query into itself, and tells what it holds."""

    totals = False
    # Whether rows of the first query and of the moved one are in one place.
    shared = True

    def __init__(self, query: Query) -> None:
        self.query = query

    def run(self) -> None:
        """Let the query take what is there."""
        self.start().awaitTermination()

    def start(self) -> Any:
        """Start the query."""
        raise NotImplementedError

    def rows(self) -> Counter[Pair]:
        """What the query's table holds now."""
        raise NotImplementedError


def _writer(query: Query, mode: str = "append") -> Any:
    writer = query.frame().writeStream.outputMode(mode).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(query.checkpoint))


def _pairs(frame: DataFrame) -> Counter[Pair]:
    return Counter((row.who, row.amount) for row in frame.collect())


class Files(Sink):
    """Spark's own sink of files."""

    kind = "parquet"

    def start(self) -> Any:
        return _writer(self.query).format(self.kind).option("path", str(self.query.table)).start()

    def rows(self) -> Counter[Pair]:
        return _pairs(self.query.spark.read.schema(_SCHEMA).format(self.kind).load(str(self.query.table)))


class JsonFiles(Files):
    kind = "json"


class DeltaTable(Files):
    kind = "delta"

    def rows(self) -> Counter[Pair]:
        return _pairs(self.query.spark.read.format("delta").load(str(self.query.table)))


class OwnFiles(Files):
    """`hf.sink(…).parquet`."""

    def start(self) -> Any:
        sink = hf.sink(self.query.frame()).parquet(self.query.table)
        return sink.start(checkpoint=str(self.query.checkpoint), trigger=hf.available_now())


class OwnDelta(DeltaTable):
    """`hf.sink(…).delta`."""

    def start(self) -> Any:
        sink = hf.sink(self.query.frame()).delta(self.query.table)
        return sink.start(checkpoint=str(self.query.checkpoint), trigger=hf.available_now())


class OwnUpsert(DeltaTable):
    """`hf.sink(…).delta(…).upsert`."""

    totals = True

    def start(self) -> Any:
        sink = hf.sink(self.query.frame()).delta(self.query.table).upsert(["who"])
        return sink.start(checkpoint=str(self.query.checkpoint), trigger=hf.available_now())


class BatchFunction(Sink):
    """`foreachBatch`."""

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self.seen: dict[Path, Counter[Pair]] = {}

    def start(self) -> Any:
        mine = self.seen.setdefault(self.query.table, Counter())
        return _writer(self.query).foreachBatch(lambda batch, _: mine.update(_pairs(batch))).start()

    def rows(self) -> Counter[Pair]:
        return self.seen[self.query.table]


class Memory(Sink):
    """The memory sink, which Spark lets resume in complete mode only."""

    totals = True

    def start(self) -> Any:
        return _writer(self.query, "complete").format("memory").queryName(self._name).start()

    def rows(self) -> Counter[Pair]:
        return _pairs(self.query.spark.table(self._name))

    @property
    def _name(self) -> str:
        return f"grid_{abs(hash(str(self.query.folder)))}"


class Console(Sink):
    """The console, whose rows no program can read: the state tells what was put out."""

    totals = True

    def start(self) -> Any:
        return _writer(self.query, "update").format("console").option("numRows", 1).start()

    def rows(self) -> Counter[Pair]:
        [state] = [state for each in hf.state(self.query.checkpoint).operators() for state in each.states]
        table = hf.state(self.query.checkpoint).arrow(state.full_name).read_all().to_pylist()
        return Counter(
            (row.pop("who"), row.popitem()[1]) for row in table if row.pop("partition_id") is not None
        )


class OwnAppend(Sink):
    """`hf.sink(…).append` into SQLite."""

    def start(self) -> Any:
        self.query.table.mkdir(exist_ok=True)
        sink = hf.sink(self.query.frame(), name="pairs").append("pairs", self._ledger)
        return sink.start(checkpoint=str(self.query.checkpoint), trigger=hf.available_now())

    def rows(self) -> Counter[Pair]:
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(self.query.table / "shop.db")) as database:
            return Counter(database.execute("SELECT who, amount FROM pairs"))

    @property
    def _ledger(self) -> Any:
        return hf.ledger(self.query.table / "shop.db")


class OwnRows(OwnAppend):
    """`hf.sink(…).upsert` into SQLite."""

    totals = True

    def start(self) -> Any:
        self.query.table.mkdir(exist_ok=True)
        sink = hf.sink(self.query.frame(), name="pairs").upsert("pairs", ["who"], self._ledger)
        return sink.start(checkpoint=str(self.query.checkpoint), trigger=hf.available_now())


class Topic(Sink):
    """A topic of Kafka: by Spark's own sink, which repeats rows only of a batch that ran again."""

    def start(self) -> Any:
        writer = self._writer().format("kafka").option("topic", self._topic)
        return writer.option("kafka.bootstrap.servers", os.environ["GRID_KAFKA"]).start()

    def rows(self) -> Counter[Pair]:
        reader = self.query.spark.read.format("kafka").option("subscribe", self._topic)
        reader = reader.option("kafka.bootstrap.servers", os.environ["GRID_KAFKA"])
        values = reader.load().selectExpr("cast(value as string) value").collect()
        parsed = [json.loads(row.value) for row in values if row.value != _FOREIGN]
        return Counter((row["who"], row["amount"]) for row in parsed)

    @property
    def _topic(self) -> str:
        return f"{self.query.folder.name}-{self.query.table.name}"

    def _writer(self) -> Any:
        from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

        values = self.query.frame().select(F.to_json(F.struct("who", "amount")).alias("value"))
        writer = values.writeStream.outputMode("append").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.query.checkpoint))


class OwnTopic(Topic):
    """`hf.sink(…).kafka`, which wants an existing topic: another program has written a record to it."""

    made = ""

    def start(self) -> Any:
        if self.made != self._topic:
            rows = self.query.spark.createDataFrame([(_FOREIGN,)], "value string").write.format("kafka")
            rows.option("kafka.bootstrap.servers", os.environ["GRID_KAFKA"]).option(
                "topic", self._topic
            ).save()
            self.made = self._topic
        sink = hf.sink(self.query.frame()).kafka(os.environ["GRID_KAFKA"], self._topic, key="who")
        return sink.start(checkpoint=str(self.query.checkpoint), trigger=hf.available_now())


SINKS: Mapping[str, type[Sink]] = {
    "parquet": Files,
    "json": JsonFiles,
    "own_parquet": OwnFiles,
    "foreachBatch": BatchFunction,
    "memory": Memory,
    "console": Console,
    "own_append": OwnAppend,
    "own_upsert": OwnRows,
    "delta": DeltaTable,
    "own_delta": OwnDelta,
    "own_delta_upsert": OwnUpsert,
    "kafka": Topic,
    "own_kafka": OwnTopic,
}


def restore(query: Query) -> Expected:
    taken = savepoints.take(query.checkpoint, query.folder / "savepoints")
    savepoints.restore(taken.uri, query.folder / "second")
    return query.model()


def _into_new_table(query: Query, verb: Callable[..., Any], batch: int) -> Expected:
    taken = savepoints.take(query.checkpoint, query.folder / "savepoints", batch=batch)
    query.table = query.folder / "table-2"
    verb(taken.uri, query.folder / "second", table=query.table)
    return query.model(first=batch + 1, known=batch + 1)


def restore_older(query: Query) -> Expected:
    """Of a batch before the newest, into a new table: what came behind it comes again there."""
    return _into_new_table(query, savepoints.restore, BEFORE - 2)


def fork(query: Query) -> Expected:
    return _into_new_table(query, savepoints.fork, BEFORE - 1)


def rescale(query: Query) -> Expected:
    savepoints.rescale(query.checkpoint, query.folder / "second", partitions=3, stopped=True)
    return query.model()


def migrate(query: Query) -> Expected:
    from holdfast.config.spark_defaults import FORMAT_KEY

    hf.migrate(query.checkpoint, query.folder / "second", backend="memory", partitions=1, stopped=True)
    query.spark.conf.set(FORMAT_KEY, "1")  # the only format that the store on the heap has
    return query.model()


def migrate_twice(query: Query) -> Expected:
    """The second move begins with what the first has made."""
    hf.migrate(query.checkpoint, query.folder / "between", backend="memory", stopped=True)
    hf.migrate(
        query.folder / "between", query.folder / "second", backend="rocksdb", partitions=3, stopped=True
    )
    return query.model()


def evolve(query: Query) -> Expected:
    """New code with the same operator, planned by Spark."""
    mode = "update" if query.totals else "append"
    code = [query.frame().writeStream.outputMode(mode) for _ in range(2)]
    if query.totals:
        from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

        read = query.spark.readStream.schema(_SCHEMA).json(str(query.folder / "in"))
        old = read.groupBy("who").agg(F.sum("amount").alias("amount"), F.max("amount").alias("most"))
        code[1] = old.writeStream.outputMode(mode)
    hf.evolve(query.checkpoint, query.folder / "second", to=code[0], old=code[1], stopped=True)
    return query.model()


def skip_file(query: Query) -> Expected:
    """A file that the query has not read is left out."""
    skipped = BEFORE + 1
    query.put(skipped, skipped + 1)
    place = (query.folder / "in" / f"{skipped:03}.json").as_uri()
    hf.move_offsets(query.checkpoint, query.folder / "second", skip_files=(place,), stopped=True)
    query.files[skipped] = []
    return query.model()


def edit(query: Query) -> Expected:
    """One pair is forgotten, so it is put out once more when it comes again."""
    pair = _repeated(query)
    taken = savepoints.take(query.checkpoint, query.folder / "savepoints")
    [state] = [state for each in hf.state(query.checkpoint).operators() for state in each.states]
    key = json.dumps({"who": pair[0], "amount": pair[1]})
    edited = hf.edit(taken.uri, state.full_name, key=key, delete=True)
    savepoints.restore(edited.uri, query.folder / "second")
    return Counter(query.model()) + Counter([pair])


def undo(query: Query) -> Expected:
    pair = _repeated(query)
    taken = savepoints.take(query.checkpoint, query.folder / "savepoints")
    [state] = [state for each in hf.state(query.checkpoint).operators() for state in each.states]
    key = json.dumps({"who": pair[0], "amount": pair[1]})
    edited = hf.edit(taken.uri, state.full_name, key=key, delete=True)
    savepoints.restore(hf.undo(edited.uri).uri, query.folder / "second")
    return query.model()


def erase(query: Query) -> Expected:
    """The same in place: the erased checkpoint takes the place of the old one."""
    pair = _repeated(query)
    savepoints.take(query.checkpoint, query.folder / "savepoints")
    hf.erase(
        json.dumps({"who": pair[0], "amount": pair[1]}),
        everywhere=query.folder / "savepoints",
        checkpoint=query.checkpoint,
        stopped=True,
        home=query.folder / "home",
    )
    query.checkpoint.rename(query.folder / "second")
    return Counter(query.model()) + Counter([pair])


def _repeated(query: Query) -> Pair:
    """A pair of the files before that comes again after them."""
    before, after = query.model(0, BEFORE), query.model(BEFORE)
    return min(pair for pair in before if pair in after)


MOVES: Mapping[str, Callable[[Query], Expected]] = {
    "restore": restore,
    "restore_older": restore_older,
    "fork": fork,
    "rescale": rescale,
    "migrate": migrate,
    "migrate_twice": migrate_twice,
    "evolve": evolve,
    "skip_file": skip_file,
    "edit": edit,
    "undo": undo,
    "erase": erase,
}
# What a query that sums up has no model of here: the pairs of its files do not say what it puts out.
PAIRS_ONLY = frozenset({"restore_older", "fork", "skip_file", "edit", "undo", "erase"})


def fits(sink: str, move: str) -> bool:
    """Whether a cell of the grid has a meaning."""
    return not (SINKS[sink].totals and move in PAIRS_ONLY)


def run_cell(spark: SparkSession, folder: Path, sink: str, move: str) -> tuple[Expected, Expected]:
    """Run a query, move it, and run it on; what is expected in its table, and what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    query = Query(spark, folder, input_files(sum(map(ord, sink + move))), SINKS[sink].totals)
    into = SINKS[sink](query)
    query.put(0, BEFORE)
    into.run()
    expected = MOVES[move](query)
    query.checkpoint = folder / "second"
    query.put(BEFORE, BEFORE + AFTER)
    into.run()
    return (query.sums() if query.totals else expected), into.rows()
