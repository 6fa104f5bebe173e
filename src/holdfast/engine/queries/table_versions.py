"""Where a Delta table is that a query reads.

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

from holdfast.engine.connect.classic_only import is_connect
from holdfast.formats.logs.offset_log import DELTA_VERSION

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

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
    """An offset of a progress report, where it may stand as text too; None for text that is no JSON."""
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
