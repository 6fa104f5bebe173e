"""A history into state: as a stream, a batch for each file, and with `hf.bootstrap`, by turns."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import holdfast as hf
from holdfast.errors import Failed
from holdfast_bench.measure import Bench, Series, beside, note
from holdfast_bench.turns import in_turn, measuring

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM: Final = "stream"
BOOTSTRAP: Final = "bootstrap"
QUERIES: Final = ("keyed state", "aggregate")
_SCHEMA: Final = "customer long, amount long, ts timestamp"
_KEYS: Final = 50_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurement is.

    Attributes:
        rows: Rows in a file.
        batches: Files of the history, each a batch of the stream.
    """

    rows: int = 20_000
    batches: int = 100


class Spend(hf.Keyed):
    """The number of orders of a customer, and what they cost."""

    orders = hf.value("long", default=0)
    total = hf.value("long", default=0)

    def on_event(self, event: Any, state: Any, ctx: Any) -> tuple[int, int]:  # noqa: ARG002 - as called
        """Add one order."""
        state.orders += 1
        state.total += event.amount
        return state.orders, state.total


def history(sizes: Sizes, *, runs: int, say: Callable[[str], None] = lambda _: None) -> Bench:
    """Time both ways for keyed state and for an aggregate, and compare what they leave.

    Args:
        sizes: How large everything is.
        runs: Counted runs of each side; one more is not counted.
        say: Told what is being measured.

    Raises:
        Failed: The two ways do not leave the same state.
    """
    sides = [(query, way) for query in QUERIES for way in (STREAM, BOOTSTRAP)]
    taken: dict[tuple[str, str], list[float]] = {side: [] for side in sides}
    with measuring() as (spark, folder):
        _write(spark, folder / "in", sizes)
        for number in range(runs + 1):
            left: dict[tuple[str, str], Any] = {}
            for query, way in in_turn(sides, number):
                say(f"{query}, {way}: {'warming up' if not number else f'run {number} of {runs}'} …")
                ran = folder / "run"
                began = time.monotonic()
                place = (_streamed if way == STREAM else _bootstrapped)(spark, folder / "in", ran, query)
                seconds = time.monotonic() - began
                left[query, way] = _left(place, query)
                shutil.rmtree(ran)
                if number:
                    taken[query, way].append(seconds)
                    note(f"{query}, {way}", seconds)
            for query in QUERIES:
                _require_same(query, left[query, STREAM], left[query, BOOTSTRAP], sizes)
    ratios = {
        f"{query}: {STREAM} / {BOOTSTRAP}": beside(taken[query, STREAM], taken[query, BOOTSTRAP])
        for query in QUERIES
    }
    what = f"{sizes.batches} files of {sizes.rows:,} rows into the state of {_KEYS:,} keys"
    series = tuple(Series(f"{query}, {way}", tuple(seconds)) for (query, way), seconds in taken.items())
    return Bench("history", what, series, ratios)


def _write(spark: SparkSession, place: Path, sizes: Sizes) -> None:
    rows = spark.range(sizes.rows * sizes.batches, numPartitions=sizes.batches).selectExpr(
        f"(id * 7919) % {_KEYS} as customer",
        "id % 97 as amount",
        "timestamp_seconds(1767225600 + cast(id / 1000 as bigint)) as ts",
    )
    rows.write.parquet(str(place))


def _query(rows: DataFrame, query: str) -> Any:
    if query == "aggregate":
        counted = rows.groupBy("customer").agg({"amount": "sum", "ts": "max"})
        return hf.sink(counted, name="spend", mode="update").foreach_batch(_nothing)
    keyed = hf.keyed(rows, by="customer").process(Spend(), output="orders long, total long", name="spend")
    return hf.sink(keyed, name="spend", mode="append").foreach_batch(_nothing)


def _nothing(rows: DataFrame, _: int) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _live(spark: SparkSession, place: Path, query: str) -> Any:
    stream = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(place))
    return _query(stream, query)


def _streamed(spark: SparkSession, place: Path, ran: Path, query: str) -> str:
    running = _live(spark, place, query).start(checkpoint=str(ran / "ck"), trigger=hf.available_now())
    running.awaitTermination()
    return str(ran / "ck")


def _bootstrapped(spark: SparkSession, place: Path, ran: Path, query: str) -> str:
    past = spark.read.schema(_SCHEMA).parquet(str(place))
    made = hf.bootstrap(_live(spark, place, query), str(ran / "savepoints"), history=past)
    hf.savepoints.restore(made.uri, str(ran / "ck"))
    return str(ran / "ck")


def _left(place: str, query: str) -> tuple[int, int]:
    """The keys and the sum of all amounts that a state has."""
    name, column = ("aggregate", "sum") if query == "aggregate" else ("spend", "total")
    table = hf.state(place).arrow(name).read_all()
    return table.num_rows, sum(map(int, table.column(column).to_pylist()))


def _require_same(query: str, streamed: tuple[int, int], made: tuple[int, int], sizes: Sizes) -> None:
    wanted = sum(number % 97 for number in range(sizes.rows * sizes.batches))
    if not streamed == made == (min(_KEYS, sizes.rows * sizes.batches), wanted):
        raise Failed(
            "the two ways do not leave the same state",
            where=query,
            found=f"{streamed} and {made}",
            expected=str(wanted),
        )
