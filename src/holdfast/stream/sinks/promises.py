"""What each sink promises, in words that a person can hold it to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

FILE_FORMATS = ("avro", "csv", "json", "orc", "parquet", "text")


class Level(str, Enum):
    """How often a row that left the query is in the sink after crashes and restarts."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    NONE = "no promise"


@dataclass(frozen=True, slots=True)
class Promise:
    """What a sink promises, why, and what its readers must do for it to hold."""

    level: Level
    why: str
    reader_rule: str = "none"


FILES = Promise(
    Level.EXACTLY_ONCE,
    "the query logs the files of each batch in `_spark_metadata`; files of a failed attempt are in no log",
    "read with Spark, or the files that `hf.committed_files` lists; a bare glob of the directory also finds"
    " files of failed attempts",
)
DELTA = Promise(
    Level.EXACTLY_ONCE,
    "each commit to the table carries query id and batch, and Delta skips one that it has; a query started"
    " on a new checkpoint has a new id and writes everything again",
    "read it as a Delta table",
)
MERGED = Promise(
    Level.EXACTLY_ONCE,
    "each MERGE carries query id and batch in its commit, and Delta passes by one that it has; a query"
    " started on a new checkpoint has a new id and merges everything again, which leaves the same rows",
    "read it as a Delta table",
)
CONSOLE = Promise(Level.NONE, "rows are printed and gone; a batch that runs again is printed again")
MEMORY = Promise(Level.NONE, "rows live in the driver's memory and are lost with it; for tests and looks")
BATCH = Promise(
    Level.AT_LEAST_ONCE,
    "a batch whose process dies before Spark has noted it runs again, and so does the function",
    "expect a batch twice, unless the function is idempotent",
)
RECORDED = Promise(
    Level.AT_LEAST_ONCE,
    "a recorded batch never runs again, but one whose process died between the write and the record does:"
    " exactly once only if the function is idempotent. Take a third argument to write in the ledger's own"
    " transaction",
    "expect the newest batch twice, unless the function is idempotent",
)
TRANSACTED = Promise(
    Level.EXACTLY_ONCE,
    "rows and the record of their batch are committed in one transaction, and a stale owner is refused;"
    " it covers what the function writes through that transaction and nothing else",
    "read committed rows, as every database does unless told otherwise",
)
TABLE = Promise(
    Level.EXACTLY_ONCE,
    "rows and the record of their batch are committed in one transaction, and a stale owner is refused; a"
    " query started on a new checkpoint has a new id and writes everything again",
    "read committed rows, as every database does unless told otherwise",
)
SENT = Promise(
    Level.AT_LEAST_ONCE,
    "a batch that runs again is sent again, and so is a task that is tried again; each record says in a"
    " header which one it is. A query started on a new checkpoint has a new id and sends everything again",
    "read with `hf.without_repeats` or `hf.RepeatFilter`, which give each record once; any other consumer"
    " sees the records of a repeated batch twice",
)
# What Spark's own sinks promise to a query that was written without `hf.sink`.
BY_FORMAT: Mapping[str, Promise] = {
    **dict.fromkeys(FILE_FORMATS, FILES),
    "delta": DELTA,
    "console": CONSOLE,
    "memory": MEMORY,
    "noop": Promise(Level.NONE, "rows are thrown away"),
    "foreachBatch": BATCH,
    "foreach": Promise(
        Level.AT_LEAST_ONCE,
        "a task that is tried again, or a batch that runs again, passes its rows again",
        "expect a row twice, unless the function is idempotent",
    ),
    "kafka": Promise(
        Level.AT_LEAST_ONCE,
        "Spark writes to Kafka without transactions; a task that is tried again sends its rows again",
        "drop duplicates by a key of the message",
    ),
}
