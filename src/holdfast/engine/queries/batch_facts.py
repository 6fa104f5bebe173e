"""The facts about a batch that Spark does not report: late watermark, Delta versions, and written batches.

Spark decides lateness in batch N by the watermark of batch N - 1, which no expression can read. That
watermark is in the offset log before batch N is planned, and stays there as long as batch N can be repeated.
So one small task of each batch reads it from the log, and a repeated batch reads the same value.

Delta's source reports its own position, not the newest version of the table. A version of a table is a file
with its number in the table's log, without gaps, so a few checks for a file find the newest version.
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
from holdfast.config.checks import place_word
from holdfast.engine.connect import is_connect
from holdfast.errors import Corrupt, Invalid, NotFound
from holdfast.formats.logs.batch_logs import DELTA_VERSION, parse_offsets
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.storage.port import Storage


# The column of the only row, in milliseconds since 1970.
COLUMN: Final = "holdfast_late_watermark_ms"
# The local property with the query's checkpoint, set when Holdfast starts the query.
CHECKPOINT_PROPERTY: Final = "holdfast.checkpoint"

_BATCH_PROPERTY: Final = "streaming.sql.batchId"
# If false, Spark decides lateness by the batch's own watermark, as it did before 3.4.
_CHAINED_KEY: Final = "spark.sql.streaming.statefulOperator.allowMultiple"


def late_watermark(spark: SparkSession) -> DataFrame:
    """Return a one-row frame with the watermark for late rows of the current batch, in column `COLUMN`."""
    batches_back = 1 if (spark.conf.get(_CHAINED_KEY, None) or "true").lower() == "true" else 0
    row = spark.sparkContext.parallelize([batches_back], 1).map(_of_this_batch)
    return spark.createDataFrame(row, f"{COLUMN} long")


def reads_late_watermark(frame: DataFrame) -> bool:
    """Return whether a frame has late rows as a side output; never true over Spark Connect."""
    if is_connect(frame):
        return False
    plan: Any = frame._jdf.queryExecution().analyzed()
    return COLUMN in plan.toString()


def watermark_before(storage: Storage, batch_id: int, batches_back: int = 1) -> int:
    """Return the watermark for late rows of a batch, in milliseconds.

    Args:
        storage: The storage of the query's checkpoint.
        batch_id: The batch.
        batches_back: The number of batches between it and the batch with the watermark.

    Raises:
        Corrupt: The offset log lacks the batch with the watermark.
    """
    number = batch_id - batches_back
    if number < 0:
        return 0
    name = layout.LogFile(layout.Log.OFFSETS, number).render()
    try:
        data = storage.read(name)
    except NotFound as error:
        raise Corrupt(
            f"the watermark for late rows is unknown, because the offset log has no entry for batch {number}",
            code="HF-E6018",
            where=f"{storage.uri}/{name}",
            hint=f"list all damage with `holdfast checkpoint verify {place_word(storage.uri)}`, and restore a"
            " savepoint",
        ) from error
    return parse_offsets(data, f"{storage.uri}/{name}").watermark_ms


def _of_this_batch(batches_back: int) -> tuple[int]:
    """Return the watermark for the batch of the current task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    checkpoint = None if context is None else context.getLocalProperty(CHECKPOINT_PROPERTY)
    batch = None if context is None else context.getLocalProperty(_BATCH_PROPERTY)
    if checkpoint is None or batch is None:
        raise Invalid(
            "side_outputs=True needs a query that is started by Holdfast",
            code="HF-E2187",
            hint="start it with hf.sink(frame)….start(checkpoint=…) or hf.adopt(writer).start(checkpoint=…)",
        )
    return (watermark_before(open_storage(checkpoint), int(batch), batches_back),)


_SOURCE: Final = "DeltaSource["
_PATIENCE_S: Final = 10.0
_TRIES: Final = 3


class TableVersions:
    """A reader of the newest versions of Delta tables.

    It uses a separate thread. If a storage has not answered in time, no table is read any more; a table that
    fails repeatedly is not read again.
    """

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._failures: Counter[str] = Counter()
        self._asked: queue.SimpleQueue[Callable[[], int] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_lost = False

    def added(self, progress: Mapping[str, Any], query: StreamingQuery) -> Mapping[str, Any]:
        """Return a progress report with a `latestOffset` for each Delta source whose log is found.

        It costs one request to the table's storage for a source that has read everything, and two for each
        doubling of the backlog.
        """
        if is_connect(query):
            return progress
        sources = progress.get("sources") or ()
        return {**progress, "sources": [self._with_latest(source, query) for source in sources]}

    def close(self) -> None:
        """Stop the thread."""
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
            with suppress(Exception):  # an error of a storage must not affect the query or its watch
                newest = question()
            self._answers.put(newest)


def table_of(source: Mapping[str, Any]) -> str | None:
    """Return the Delta table of a source in a progress report, read from its description, or None."""
    description = str(source.get("description") or "")
    return description[len(_SOURCE) : -1] if description.startswith(_SOURCE) else None


def offset_value(offset: Any) -> Any:
    """Return an offset of a progress report, parsed if it is a string; None if the string is not JSON."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return None


def version_of(offset: Any) -> int | None:
    """Return the version of a Delta table that a source reads next; it may have read a part of it."""
    offset = offset_value(offset)
    found = offset.get(DELTA_VERSION) if isinstance(offset, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def newest_version(has: Callable[[int], bool], read: int) -> int:
    """Return the newest version of a table.

    Args:
        has: Returns whether the table has a version; called with versions from `read`.
        read: A version that exists or is the next to be written.
    """
    if not has(read):
        return read - 1
    known, step = read, 1
    while has(known + step):
        known, step = known + step, step * 2
    # `known` exists, and `known + step` does not.
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
    """Return the newest batch of each query in a Delta table, by query id.

    Args:
        spark: A session with Delta.
        target: The path or name of the table.
        is_path: Whether `target` is a path; otherwise it is a table of the catalog.

    Returns:
        The newest batches; empty if the table is missing. Queries that Delta has removed after
        `delta.setTransactionRetentionDuration` are not included.
    """
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    if not is_path and not spark.catalog.tableExists(target):
        return {}
    log = jvm.org.apache.spark.sql.delta.DeltaLog
    if type(log).__name__ != "JavaClass":  # the session has no Delta, which the writer reports
        return {}
    table = target if is_path else session.sessionState().sqlParser().parseTableIdentifier(target)
    snapshot = log.forTableWithSnapshot(session, table)._2()
    written, entries = snapshot.transactions(), {}
    names = written.keysIterator()
    while names.hasNext():
        name = names.next()
        entries[str(name)] = int(written.apply(name))
    return entries
