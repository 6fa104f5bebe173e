"""Rows of a stream into tables: through the driver and from the executors to PostgreSQL, and to MariaDB."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import holdfast as hf
from holdfast.errors import Failed
from holdfast.stream.sinks.ledger import Ledger
from holdfast.stream.sinks.mysql import MySQL
from holdfast.stream.sinks.postgresql import PostgreSQL
from holdfast_bench.measure import Bench, Series, beside, note
from holdfast_bench.tables.mariadb import MariaDB
from holdfast_bench.tables.postgres import postgres_server
from holdfast_bench.turns import in_turn, measuring

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER: Final = "through the driver"
EXECUTORS: Final = "from executors"
MARIADB: Final = "from executors to MariaDB"
CHANGES: Final = ("append", "upsert")
SIDES: Final = (DRIVER, EXECUTORS, MARIADB)
_PATIENCE_S: Final = 60.0
# As many as there are cores: so many tasks have a batch at once.
_FILES: Final = 2
_SCHEMA: Final = "id bigint, customer string, amount decimal(12,2), at timestamp"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the measurement is.

    Attributes:
        rows: Rows in a batch.
        batches: Counted batches of a run.
    """

    rows: int = 100_000
    batches: int = 5


@dataclass(frozen=True, slots=True)
class ThroughDriver(PostgreSQL):
    """A database that executors do not reach."""

    def loader(self) -> None:  # type: ignore[override]
        """Leave all rows to the driver."""
        return

    def load(self, connection: Any, table: str, kinds: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> int:
        """Copy rows in."""
        count = 0
        with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows:
                copy.write_row([bytes(v) if isinstance(v, bytearray) else v for v in row])
                count += 1
        del kinds  # the driver knows how to write every type
        return count


def tables(sizes: Sizes, *, runs: int, say: Callable[[str], None] = lambda _: None) -> Bench:
    """Measure batches that add rows, and batches that replace all by key; both ways by turns in one session.

    Args:
        sizes: How large everything is.
        runs: Counted runs of each side; one more is not counted.
        say: Told what is being measured.

    Raises:
        NotFound: PostgreSQL or MariaDB is not installed.
        Failed: The sides do not leave the same rows.
    """
    say(f"measuring tables, {runs} runs of each side …")
    cases = [(change, side) for change in CHANGES for side in SIDES]
    taken: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
    with postgres_server() as postgres, MariaDB.running() as mariadb, measuring() as (spark, folder):
        books = {
            DRIVER: ThroughDriver(postgres, _PATIENCE_S),
            EXECUTORS: PostgreSQL(postgres, _PATIENCE_S),
            MARIADB: MySQL(mariadb.database(), _PATIENCE_S),
        }
        _write(spark, folder, sizes)
        for number in range(runs + 1):
            left = {}
            for case in in_turn(cases, number):
                seconds, left[case] = _run(spark, folder, Ledger(books[case[1]]), case, number)
                if number:
                    taken[case] += seconds
                    note(": ".join(case), *seconds)
            _compare(left)
    series = tuple(Series(": ".join(case), tuple(seconds)) for case, seconds in taken.items())
    ratios = {}
    for change in CHANGES:
        ours, theirs = taken[change, EXECUTORS], taken[change, DRIVER]
        ratios[f"{change}: {EXECUTORS} / {DRIVER}"] = beside(ours, theirs)
        for side in SIDES:
            ratios[f"{change}: rows a second {side}"] = sizes.rows / median(taken[change, side])
    what = (
        f"a batch of {sizes.rows:,} rows into a table of PostgreSQL, and of MariaDB, with the record of the"
        " batch; an upsert replaces all rows of the table"
    )
    return Bench("tables", what, series, ratios)


def _write(spark: SparkSession, folder: Path, sizes: Sizes) -> None:
    """Files of which each two are a batch, and one batch more than is counted; each has all keys."""
    source = folder / "source"
    source.mkdir()
    for batch in range(sizes.batches + 1):
        rows = spark.range(sizes.rows, numPartitions=_FILES).selectExpr(
            f"cast(pmod(id * 7919 + {batch}, {sizes.rows}) as bigint) id",
            "concat('customer ', id % 1000) customer",
            f"cast((id + {batch}) / 100 as decimal(12,2)) amount",
            "timestamp_millis(1772700000000 + id) at",
        )
        place = folder / f"batch-{batch}"
        rows.write.parquet(str(place))
        for part, file in enumerate(sorted(place.glob("part-*.parquet"))):
            file.rename(source / f"{batch:04d}-{part}.parquet")
        shutil.rmtree(place)


def _run(
    spark: SparkSession, folder: Path, book: Ledger, case: tuple[str, str], number: int
) -> tuple[list[float], tuple[object, ...]]:
    """The counted batches of one run, and what the table has at its end."""
    change, side = case
    stream = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", _FILES)
    # Of a name of its own: each run is another query.
    out = hf.sink(stream.parquet(str(folder / "source")), name=f"{change} {side} {number}")
    to = out.append("measured", book) if change == "append" else out.upsert("measured", ["id"], book)
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        query = to.start(checkpoint=checkpoint, trigger=hf.available_now())
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
    connection = book.database.connect("measured")
    try:
        *left, newest = connection.execute(
            "SELECT count(*), sum(id), sum(amount), max(at) FROM measured"
        ).fetchone()
        connection.execute("DROP TABLE measured")
    finally:
        connection.close()
    seconds = [each["durationMs"]["triggerExecution"] / 1000 for each in progress[1:]]
    return seconds, (*left, newest.replace(tzinfo=None))


def _compare(left: dict[tuple[str, str], tuple[object, ...]]) -> None:
    for change in CHANGES:
        sides = {side: left[change, side] for side in SIDES}
        if len(set(sides.values())) != 1:
            raise Failed("the sides wrote different rows", where=f"bench tables: {change}", found=str(sides))
