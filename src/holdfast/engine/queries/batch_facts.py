"""The late watermark, the Delta versions, and the written batches of a query.

Spark judges lateness in batch N by the watermark that batch N - 1 ran under, and shows it to no expression.
It is in the offset log before batch N is planned, and stays there for as long as batch N can be repeated. So
one small task of each batch reads it there, and a repeated batch reads the same.

Delta's source reports where it is and not where the table is. A version of a table is a file with its number
in the table's log, without gaps, so a few questions whether a file is there tell the newest one.
"""

from __future__ import annotations

import json
import queue
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from holdfast import layout
from holdfast.engine.connect import is_connect
from holdfast.errors import Corrupt, Invalid, NotFound
from holdfast.formats.logs.batch_logs import DELTA_VERSION, parse_offsets
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.storage.port import Storage


# The column of the one row, in milliseconds since 1970.
COLUMN: Final = "holdfast_late_watermark_ms"
# What the tasks of a query know its checkpoint by, once Holdfast has started it.
CHECKPOINT_PROPERTY: Final = "holdfast.checkpoint"

_BATCH_PROPERTY: Final = "streaming.sql.batchId"
# Without it Spark judges lateness by the batch's own watermark, as it did before 3.4.
_CHAINED_KEY: Final = "spark.sql.streaming.statefulOperator.allowMultiple"


def late_watermark(spark: SparkSession) -> DataFrame:
    """The watermark for late rows of whichever batch reads it: one row, in the column `COLUMN`."""
    batches_back = 1 if (spark.conf.get(_CHAINED_KEY, None) or "true").lower() == "true" else 0
    row = spark.sparkContext.parallelize([batches_back], 1).map(_of_this_batch)
    return spark.createDataFrame(row, f"{COLUMN} long")


def reads_late_watermark(frame: DataFrame) -> bool:
    """Return whether a frame has late rows at its side; over Spark Connect there are none."""
    if is_connect(frame):
        return False
    plan: Any = frame._jdf.queryExecution().analyzed()
    return COLUMN in plan.toString()


def watermark_before(storage: Storage, batch_id: int, batches_back: int = 1) -> int:
    """The watermark for late rows of a batch, in milliseconds.

    Args:
        storage: The query's checkpoint.
        batch_id: The batch.
        batches_back: How many batches before it the watermark is from.

    Raises:
        Corrupt: The offset log lacks that batch.
    """
    number = batch_id - batches_back
    if number < 0:
        return 0
    name = layout.LogFile(layout.Log.OFFSETS, number).render()
    try:
        data = storage.read(name)
    except NotFound as error:
        raise Corrupt(
            "the offset log lacks the batch whose watermark decides which rows are late",
            code="HF-E6018",
            where=f"{storage.uri}/{name}",
            hint="see what is left of the checkpoint with `holdfast checkpoint verify`",
        ) from error
    return parse_offsets(data, f"{storage.uri}/{name}").watermark_ms


def _of_this_batch(batches_back: int) -> tuple[int]:
    """Runs in a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    checkpoint = None if context is None else context.getLocalProperty(CHECKPOINT_PROPERTY)
    batch = None if context is None else context.getLocalProperty(_BATCH_PROPERTY)
    if checkpoint is None or batch is None:
        raise Invalid(
            "late rows are put out at the side, and the query was not started by Holdfast",
            code="HF-E2187",
            hint="start it with hf.sink(frame)…start(checkpoint=…), or by hf.adopt(writer)",
        )
    return (watermark_before(open_storage(checkpoint), int(batch), batches_back),)


_SOURCE: Final = "DeltaSource["
_PATIENCE_S: Final = 10.0
_TRIES: Final = 3


class TableVersions:
    """Asks where the Delta tables are that queries read.

    It asks on a thread of its own. A storage that does not answer in time is not waited for, and nothing is
    asked any more; nor is a table that fails again and again.
    """

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._failures: Counter[str] = Counter()
        self._asked: queue.SimpleQueue[Callable[[], int] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_lost = False

    def added(self, progress: Mapping[str, Any], query: StreamingQuery) -> Mapping[str, Any]:
        """A progress report in which sources of Delta tables have a `latestOffset`, where their log is found.

        Costs one question to the table's storage for a source that has read everything, and two for each
        doubling of what is left.
        """
        if is_connect(query):
            return progress
        sources = progress.get("sources") or ()
        return {**progress, "sources": [self._with_latest(source, query) for source in sources]}

    def close(self) -> None:
        """End the thread."""
        self._asked.put(None)

    def _with_latest(self, source: Mapping[str, Any], query: StreamingQuery) -> Mapping[str, Any]:
        read = version_of(source.get("endOffset"))
        table = table_of(source)
        if read is None or table is None or source.get("latestOffset"):
            return source
        if self._is_lost or self._failures[table] >= _TRIES:
            return source
        newest = self._ask(lambda: newest_version(_versions_of(table, query), read))
        if newest is None:
            self._failures[table] += 1
            return source
        self._failures[table] = 0
        return {**source, "latestOffset": {DELTA_VERSION: newest + 1}}

    def _ask(self, question: Callable[[], int]) -> int | None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer, name="holdfast-tables", daemon=True)
            self._thread.start()
        self._asked.put(question)
        try:
            return self._answers.get(timeout=self._patience_s)
        except queue.Empty:
            self._is_lost = True
            return None

    def _answer(self) -> None:
        while question := self._asked.get():
            newest = None
            with suppress(Exception):  # whatever a storage answers, the query goes on, and so does its watch
                newest = question()
            self._answers.put(newest)


def table_of(source: Mapping[str, Any]) -> str | None:
    """The Delta table that a source of a progress report reads, by what Spark calls the source."""
    description = str(source.get("description") or "")
    return description[len(_SOURCE) : -1] if description.startswith(_SOURCE) else None


def offset_value(offset: Any) -> Any:
    """An offset of a progress report, where it may stand as text too; None for text that is not a JSON."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def version_of(offset: Any) -> int | None:
    """The version that a source reads next, of which it may have read a part."""
    offset = offset_value(offset)
    found = offset.get(DELTA_VERSION) if isinstance(offset, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def newest_version(has: Callable[[int], bool], read: int) -> int:
    """The newest version of a table.

    Args:
        has: Whether the table has a version, of those that come after `read - 1`.
        read: A version which is there or is the next to be written.
    """
    if not has(read):
        return read - 1
    known, step = read, 1
    while has(known + step):
        known, step = known + step, step * 2
    # `known` is there, and `known + step` is not.
    while step > 1:
        step //= 2
        if has(known + step):
            known += step
    return known


def _versions_of(table: str, query: StreamingQuery) -> Callable[[int], bool]:
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path
    log = path(table, "_delta_log")
    files = log.getFileSystem(query._jsq.sparkSession().sessionState().newHadoopConf())

    def has(version: int) -> bool:
        return bool(files.exists(path(log, f"{version:020}.json")))

    return has


def newest_in_delta(spark: SparkSession, target: str, *, is_path: bool) -> dict[str, int]:
    """The newest batch of each query in a Delta table, by the query's id.

    Args:
        spark: A session with Delta.
        target: The table.
        is_path: Whether it is a path, and no table of the catalog.

    Returns:
        None where the table is missing; without those that Delta has forgotten, as it does after
        `delta.setTransactionRetentionDuration`.
    """
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    if not is_path and not spark.catalog.tableExists(target):
        return {}
    log = jvm.org.apache.spark.sql.delta.DeltaLog
    if type(log).__name__ != "JavaClass":  # no Delta in the session: the writer says so
        return {}
    table = target if is_path else session.sessionState().sqlParser().parseTableIdentifier(target)
    snapshot = log.forTableWithSnapshot(session, table)._2()
    written, entries = snapshot.transactions(), {}
    names = written.keysIterator()
    while names.hasNext():
        name = names.next()
        entries[str(name)] = int(written.apply(name))
    return entries
