"""The events of running queries: progress and failures."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from holdfast.config.policies import available_now, every, real_time
from holdfast.config.spark_versions import installed, require_spark_of_program
from holdfast.engine.connect import (
    default_checkpoint,
    is_connect,
    listen_to_server,
    progress_after,
    written_remotely,
)
from holdfast.engine.queries.batch_facts import offset_value, table_of, version_of
from holdfast.engine.queries.skew_metric import observed_metrics, skew_in
from holdfast.errors import Unsupported
from holdfast.formats.access_times import COUNTERS as REQUEST_COUNTERS
from holdfast.formats.access_times import KEYED_BUCKETS
from holdfast.formats.logs.notes import PlanSink
from holdfast.formats.operators import is_processor, operator_names
from holdfast.model import (
    VERSIONS,
    BatchProgress,
    KeyedProgress,
    KeyedState,
    OperatorProgress,
    PartitionPosition,
    SourceProgress,
)
from holdfast.worker.counts import BYTES, COLUMN, ENTRIES, EXPIRED, count_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager
    from pyspark.sql.streaming.readwriter import DataStreamWriter


# For a source with more partitions only the topics are recorded, because many batches are kept.
_MOST: Final = 200

Offsets = Mapping[tuple[str, int], int]


def sources_in(progress: Mapping[str, Any]) -> tuple[SourceProgress, ...]:
    """Return the progress of each source, in the order of the offset log."""
    return tuple(
        SourceProgress(
            number,
            str(source.get("description") or ""),
            int(source.get("numInputRows") or 0),
            tuple(_positions(source)),
        )
        for number, source in enumerate(progress.get("sources") or ())
    )


def _positions(source: Mapping[str, Any]) -> Iterator[PartitionPosition]:
    table = table_of(source)
    if table is not None:
        next_, latest = version_of(source.get("endOffset")), version_of(source.get("latestOffset"))
        if next_ is not None and latest is not None:
            yield PartitionPosition(table, None, next_, latest, VERSIONS)
        return
    read, there = offsets_in(source.get("endOffset")), offsets_in(source.get("latestOffset"))
    known = sorted(read.keys() & there.keys())
    if len(known) <= _MOST:
        for topic, partition in known:
            place = (topic, partition)
            yield PartitionPosition(topic, partition, read[place], there[place])
        return
    for topic in sorted({topic for topic, _ in known}):
        of_topic = [place for place in known if place[0] == topic]
        yield PartitionPosition(
            topic, None, sum(read[place] for place in of_topic), sum(there[place] for place in of_topic)
        )


def offsets_in(given: Any) -> Offsets:
    """Return Kafka offsets by topic and partition; empty for an offset of a different source."""
    given = offset_value(given)
    if not isinstance(given, dict):
        return {}
    return {
        (topic, int(partition)): offset
        for topic, partitions in given.items()
        if isinstance(partitions, dict)
        for partition, offset in partitions.items()
        if partition.isdecimal() and isinstance(offset, int) and not isinstance(offset, bool)
    }


# The prefix of a keyed operator's metric, followed by the operator's name.
KEYED_METRIC = "holdfast."
# The prefix of Spark's name of the operator in which Holdfast's operators run.
_OPERATORS = re.compile(
    rf"CollectMetrics {re.escape(KEYED_METRIC)}([^,\s]+),|\b(TransformWithState)", re.IGNORECASE
)
# The options of a writer that name its target, for Spark's own formats and well-known others.
_REAL_TIME = "RealTimeTrigger"
_TARGETS = ("path", "topic", "dbtable", "table")

# The counters of the state store that a metric or an alert uses.
STORE_COUNTERS = REQUEST_COUNTERS | frozenset(
    {
        "loadedMapCacheHitCount",
        "loadedMapCacheMissCount",
        "numSnapshotsAutoRepaired",
        "rocksdbGetCount",
        "rocksdbGetLatency",
        "rocksdbLoadLatencyMs",
        "rocksdbNumSnapshotsAutoRepaired",
        "rocksdbPutCount",
        "rocksdbPutLatency",
        "rocksdbReadBlockCacheHitCount",
        "rocksdbReadBlockCacheMissCount",
        "rocksdbSstFileSize",
        "stateOnCurrentVersionSizeBytes",
    }
)
# The name of the time that tasks took to load a store, in Spark's metrics.
LOADING = "rocksdbLoadLatencyMs"
# The step of a batch in which Spark records it as committed.
_COMMIT = "commitOffsets"

Heard = Callable[[str, Mapping[str, Any]], None]


def listen(spark: SparkSession, heard: Heard) -> None:
    """Call `heard` for events of the queries of a session, until the session ends; see `listen_to`."""
    listen_to(spark.streams, heard)


def listen_to(streams: StreamingQueryManager, heard: Heard) -> Callable[[], None]:
    """Call `heard("progress", {...})` after each batch and `heard("terminated", {...})` at a query's end.

    `heard("started", {...})` is called when a query starts. All calls are on a thread of Py4J, in the order
    of the events, so `heard` must return quickly. The progress of a query is always reported before its end.

    Returns:
        The function that removes the listener.
    """
    from pyspark import SparkContext
    from pyspark.sql.streaming.listener import (
        JStreamingQueryListener,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryListener,
    )

    class ClassicListener(StreamingQueryListener):
        def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
            heard("started", {"id": str(event.id), "runId": str(event.runId)})

        def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
            heard("progress", json.loads(event.progress.json))

        def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
            ids = {"id": str(event.id), "runId": str(event.runId)}
            heard("terminated", {**ids, "exception": event.exception})

        @property
        def _jlistener(self) -> Any:
            if not hasattr(self, "_jlistenerobj"):
                jvm: Any = SparkContext._jvm
                self._jlistenerobj = jvm.PythonStreamingQueryListenerWrapper(Whole(self))
            return self._jlistenerobj

    class Whole(JStreamingQueryListener):
        """A listener that reads the progress of a batch as one JSON document.

        PySpark's own listener requests each of about a hundred values from the JVM, which takes at least 20
        ms.
        """

        def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
            heard("progress", json.loads(jevent.progress().json()))

    listener = ClassicListener()
    streams.addListener(listener)
    return lambda: streams.removeListener(listener)


def listen_to_query(query: StreamingQuery, heard: Heard) -> Callable[[], None]:
    """Call `heard` for events of all queries in a query's session; see `listen_to`.

    Listeners of other sessions do not receive these events.
    """
    from pyspark.sql.streaming.query import StreamingQueryManager

    if is_connect(query):
        return listen_to_server(query, heard)
    return listen_to(StreamingQueryManager(query._jsq.sparkSession().streams()), heard)


def checkpoint_of(query: StreamingQuery) -> str | None:
    """Return the checkpoint of a running query, or None if it cannot be read from this version of Spark."""
    if is_connect(query):
        return default_checkpoint(query)
    from py4j.protocol import Py4JError

    try:
        inner: Any = query._jsq.streamingQuery()
        return str(inner.resolvedCheckpointRoot())
    except (AttributeError, Py4JError):
        return None


def recent_progress(query: StreamingQuery, after: int | None = None) -> list[tuple[Mapping[str, Any], int]]:
    """Return the progress reports that Spark still has for a query, the oldest first, with the end of each
    batch.

    Args:
        query: The query; if it was started again in its session, its current run.
        after: The batch after which reports are returned, or None for all.
    """
    found = []
    if is_connect(query):
        reports = progress_after(query, after)
    else:
        reports = [
            json.loads(report.json())
            for report in _running(query).recentProgress()
            if after is None or report.batchId() > after
        ]
    for progress in reports:
        began = dt.datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        took_ms = int((progress.get("durationMs") or {}).get("triggerExecution") or 0)
        found.append((progress, int(began * 1000) + took_ms))
    return found


def is_working(query: StreamingQuery) -> bool:
    """Return whether a query is processing a batch."""
    status = query.status
    return bool(status["isTriggerActive"] and status["isDataAvailable"])


def committed_batch(
    query: str,
    progress: Mapping[str, Any],
    now_ms: int,
    order: Sequence[str | None] = (),
    *,
    add: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
) -> BatchProgress | None:
    """Return a progress report as a batch, or None for a trigger that ran no batch.

    Args:
        query: The name of the query.
        progress: The report.
        now_ms: The time of the report, in epoch milliseconds.
        order: The names of the query's keyed operators, from `keyed_order`.
        add: A function that returns a report with missing fields of its sources added, or None.
    """
    durations = progress.get("durationMs") or {}
    if "addBatch" not in durations:
        return None
    if add is not None:
        progress = add(progress)
    return BatchProgress(
        query=query,
        batch_id=int(progress["batchId"]),
        committed_ms=now_ms,
        input_rows=int(progress.get("numInputRows") or 0),
        duration_ms=int(durations.get("triggerExecution") or 0),
        watermark=(progress.get("eventTime") or {}).get("watermark"),
        operators=with_keyed(
            [_operator(state) for state in progress.get("stateOperators") or ()], keyed_in(progress), order
        ),
        late_events=late_events(progress),
        skew=skew_in(progress),
        phases_ms={name: int(ms) for name, ms in durations.items() if name != "triggerExecution"},
        input_rate=_rate(progress, "inputRowsPerSecond"),
        processed_rate=_rate(progress, "processedRowsPerSecond"),
        load_ms=load_ms(operator.get("customMetrics") for operator in progress.get("stateOperators") or ()),
        commit_ms=int(durations.get(_COMMIT) or 0),
        sources=sources_in(progress),
    )


def _rate(progress: Mapping[str, Any], name: str) -> float | None:
    """Return a rate from a progress report, or None for a batch that took no time."""
    value = progress.get(name)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def load_ms(metrics: Iterable[Mapping[str, Any] | None]) -> int | None:
    """Return the total time for which the tasks of a batch loaded state, or None if not reported."""
    loads = [int(metric[LOADING]) for metric in metrics if metric and LOADING in metric]
    return sum(loads) if loads else None


def late_events(progress: Mapping[str, Any]) -> int:
    """Return the number of events that the keyed operators of one batch dropped as late."""
    metrics = observed_metrics(progress)
    found = [metric for name, metric in metrics.items() if name.startswith(KEYED_METRIC)]
    return sum(int(_counts(metric).get("late") or 0) for metric in found)


def keyed_in(progress: Mapping[str, Any]) -> dict[str, KeyedProgress]:
    """Return the counts of a batch's keyed operators, by name; empty if the batch ran none of them."""
    found = {}
    for name, metric in observed_metrics(progress).items():
        if name.startswith(KEYED_METRIC):
            operator = name.removeprefix(KEYED_METRIC)
            found[operator] = _keyed(operator, _counts(metric))
    return found


def _keyed(name: str, counts: Mapping[str, Any]) -> KeyedProgress:
    uncounted = counts.get("uncounted_groups")
    # A total without the groups that were not counted would be too small.
    known = uncounted == 0

    def total(count: str) -> int | None:
        return int(counts[count]) if known and counts.get(count) is not None else None

    def number(count: str) -> int:
        return int(counts.get(count) or 0)

    ending = f".{ENTRIES}"
    names = [count.removeprefix("state.").removesuffix(ending) for count in counts if count.endswith(ending)]
    states = tuple(
        KeyedState(
            state,
            total(count_of(state, ENTRIES)),
            total(count_of(state, BYTES)),
            number(count_of(state, EXPIRED)),
        )
        for state in names
    )
    size = counts.get("total_bytes")
    return KeyedProgress(
        name=name,
        keys=total("total_keys"),
        timers=total("total_timers"),
        size_bytes=None if size is None else int(size),
        uncounted_groups=None if uncounted is None else int(uncounted),
        touched=number("keys"),
        written=number("keys_written"),
        added=number("keys_added"),
        removed=number("keys_removed"),
        expired=sum(state.expired for state in states),
        events=number("events"),
        late=number("late"),
        failed=number("failed"),
        read_us=number("read_us"),
        write_us=number("write_us"),
        states=states,
        accesses=tuple(number(bucket) for bucket in KEYED_BUCKETS),
    )


def keyed_order(query: StreamingQuery, progress: Mapping[str, Any]) -> tuple[str | None, ...]:
    """Return the names of a query's keyed operators, in the order in which Spark reports such operators.

    The names are read from the plan, and only for a batch with several such operators. The name of a user's
    own `transformWithState` operator is None. The result is empty if the plan cannot be read from this
    version of Spark.
    """
    if is_connect(query):
        return ()
    from py4j.protocol import Py4JError

    names = [str(operator.get("operatorName", "")) for operator in progress.get("stateOperators") or ()]
    if sum(is_processor(name) for name in names) < 2 or not keyed_in(progress):
        return ()
    try:
        planned = query._jsq.streamingQuery().lastExecution()
        if planned is None:
            return ()
        text = str(planned.analyzed().toString())
    except (AttributeError, Py4JError):
        return ()
    return keyed_names_in(text)


def keyed_names_in(plan: str) -> tuple[str | None, ...]:
    """Return the names of keyed operators in a printed plan, in which an operator is below its metric."""
    found: list[str | None] = []
    metric: str | None = None
    for name, kind in _OPERATORS.findall(plan):
        if kind:
            found.append(metric)
        metric = name or None
    return tuple(found)


def with_keyed(
    operators: Sequence[OperatorProgress],
    keyed: Mapping[str, KeyedProgress],
    order: Sequence[str | None],
) -> tuple[OperatorProgress, ...]:
    """Return Spark's reports on operators, with Holdfast's counts added to those of keyed operators.

    Without an order, the counts are added only if there is exactly one keyed operator.
    """
    of_kind = [at for at, operator in enumerate(operators) if is_processor(operator.name)]
    if len(order) != len(of_kind):
        order = tuple(keyed) if len(of_kind) == len(keyed) == 1 else ()
    names = dict(zip(of_kind, order, strict=False))
    own = {at: name for at, name in names.items() if name}
    called = operator_names({at: operator.name for at, operator in enumerate(operators)}, own)
    return tuple(
        replace(
            operator if (mine := keyed.get(names.get(at) or "")) is None else _as_keyed(operator, mine),
            spark_name=operator.name,
            display_name=called[at].display_name,
            operator_kind=called[at].operator_kind,
        )
        for at, operator in enumerate(operators)
    )


def _as_keyed(operator: OperatorProgress, keyed: KeyedProgress) -> OperatorProgress:
    return replace(
        operator,
        name=keyed.name,
        rows=keyed.keys,
        updated=keyed.written,
        removed=keyed.removed,
        keyed=keyed,
    )


def _counts(metric: Any) -> Mapping[str, Any]:
    """Return the counts of a keyed operator's metric by name; empty for a batch that did not run it.

    The metric is a Row in Spark's progress, and a mapping in the JSON of a progress.
    """
    plain: Mapping[str, Any] = metric.asDict() if hasattr(metric, "asDict") else metric
    return plain.get(COLUMN) or {}


def _operator(fields: Mapping[str, Any]) -> OperatorProgress:
    def number(name: str) -> int:
        return int(fields.get(name) or 0)

    return OperatorProgress(
        name=str(fields.get("operatorName", "")),
        rows=number("numRowsTotal"),
        updated=number("numRowsUpdated"),
        removed=number("numRowsRemoved"),
        late_rows=number("numRowsDroppedByWatermark"),
        memory_bytes=number("memoryUsedBytes"),
        commit_ms=number("commitTimeMs"),
        partitions=number("numShufflePartitions"),
        update_ms=number("allUpdatesTimeMs") + number("allRemovalsTimeMs"),
        store={
            name: int(value)
            for name, value in (fields.get("customMetrics") or {}).items()
            if name in STORE_COUNTERS and value is not None
        },
    )


def await_end(query: StreamingQuery) -> None:
    """Wait until a query ends; then `failure_text` returns its error with all causes."""
    from pyspark.errors import StreamingQueryException

    try:
        query.awaitTermination()
    except StreamingQueryException:
        pass
    finally:
        query.stop()


def failure_text(query: StreamingQuery) -> str | None:
    """Return the complete text of a failed query's exception with all causes, or None if it did not fail."""
    from pyspark import SparkContext

    found = query._jsq.exception()
    if not found.isDefined():
        return None
    jvm: Any = SparkContext._jvm
    return str(jvm.org.apache.spark.util.Utils.exceptionString(found.get()))


def was_skipped(text: str) -> bool:
    """Return whether a query failed because its sink skipped a batch that it already had.

    With state-checkpoint format 2, Spark requires from each stateful operator the state that it has just
    written; a batch that was not read has none.
    """
    return "CheckpointInfo length: 0" in text


def written_format(writer: DataStreamWriter) -> str | None:
    """Return the format of a writer, for which Spark has no public method, or None."""
    written = written_sink(writer)
    return None if written is None else written[0].kind


def written_sink(writer: DataStreamWriter) -> tuple[PlanSink, str | None] | None:
    """Return the target and the trigger of a writer, or None if they cannot be read from this version of
    Spark.
    """
    if is_connect(writer):
        return written_remotely(writer)
    from py4j.protocol import Py4JError

    from holdfast.engine.described import plain_map

    try:
        inner: Any = writer._jwrite
        options = plain_map(inner.extraOptions())
        target = next((options[key] for key in _TARGETS if key in options), None)
        sink = PlanSink(str(inner.source()), str(inner.outputMode().toString()).lower(), target)
        return sink, _trigger(str(inner.trigger().toString()))
    except (AttributeError, TypeError, Py4JError):
        return None


def written_place(writer: DataStreamWriter) -> tuple[str | None, str | None]:
    """Return the checkpoint and the query name of a writer, each None if unknown."""
    from py4j.protocol import Py4JError

    from holdfast.engine.described import plain_map

    try:
        inner: Any = writer._jwrite
        options = plain_map(inner.extraOptions())
    except (AttributeError, TypeError, Py4JError):
        return None, None
    return options.get("checkpointlocation"), options.get("queryname")


def _trigger(text: str) -> str | None:
    """Return a trigger in Holdfast's notation, given Spark's text."""
    interval_ms = interval_in(text)
    if text.startswith("ProcessingTimeTrigger"):
        return str(every(interval_ms)) if interval_ms else None
    if interval_ms and is_real_time(text):
        return str(real_time(interval_ms))
    return str(available_now()) if text.startswith("AvailableNowTrigger") else text


def interval_in(trigger: str) -> int | None:
    """Return the interval of a trigger in milliseconds, or None without one; `trigger` is Spark's text."""
    interval = re.fullmatch(rf"(?:ProcessingTimeTrigger|{_REAL_TIME})\((\d+)\)", trigger)
    return int(interval[1]) or None if interval is not None else None


def is_real_time(trigger: str) -> bool:
    """Return whether a trigger, given as Spark's text, is that of real-time mode."""
    return trigger.startswith(_REAL_TIME)


def refuse_continuous(trigger: str | None, where: str) -> None:
    """Raise an error for a query with continuous processing, which has epochs instead of batches.

    Args:
        trigger: The trigger as Spark's text, or as named in a Connect message, or None.
        where: The call, for the error message.

    Raises:
        Unsupported: The trigger is continuous.
    """
    if trigger is not None and trigger.lower().startswith("continuous"):
        raise Unsupported(
            "continuous processing is not supported: it has no batches",
            code="HF-E7047",
            where=where,
            found=trigger,
            hint='use .trigger(realTime="5 minutes") or .trigger(processingTime="1 second")',
        )


def trigger_of(query: StreamingQuery) -> str | None:
    """Return the trigger of a running query as Spark's text, or None if it cannot be read."""
    if is_connect(query):
        return None
    from py4j.protocol import Py4JError

    try:
        return str(_running(query).streamingQuery().trigger().toString())
    except (AttributeError, Py4JError):
        return None


def _running(query: StreamingQuery) -> Any:
    """Return the JVM object of the query's current run, or of the given run if none is active."""
    mine: Any = query._jsq
    return mine.sparkSession().streams().get(str(query.id)) or mine


def written_mode(writer: DataStreamWriter) -> str | None:
    """Return the output mode of a writer, for which Spark has no public method, or None."""
    written = written_sink(writer)
    return None if written is None else written[0].mode


def is_running_query(value: object) -> TypeGuard[StreamingQuery]:
    """Return whether the value is a query of a classic session."""
    from pyspark.sql.streaming.query import StreamingQuery

    return isinstance(value, StreamingQuery)


def is_writer(value: object) -> TypeGuard[DataStreamWriter]:
    """Return whether the value is a writer of a classic session."""
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    return isinstance(value, DataStreamWriter)


def frame_of(writer: DataStreamWriter) -> DataFrame | None:
    """Return the frame of a writer, for which Spark has no public method, or None."""
    from pyspark.sql import DataFrame

    found = getattr(writer, "_df", None)
    return found if isinstance(found, DataFrame) else None


def require_session(value: SparkSession | StreamingQuery, where: str) -> None:
    """Check that Holdfast supports the Spark of a program's own session.

    Args:
        value: The session, or a query of it.
        where: The call, for the error message.

    Raises:
        Unsupported: The version of Spark or Java is not supported.
    """
    if is_connect(value):
        # The server's version would cost a request, and the client's is what receives the events.
        require_spark_of_program(installed("pyspark") or "0", where, connect=True)
        return
    from pyspark import SparkContext

    inner: Any = value
    version = inner._jsq.sparkSession().version() if is_running_query(value) else inner.version
    jvm: Any = SparkContext._jvm
    java = str(jvm.java.lang.System.getProperty("java.specification.version"))
    require_spark_of_program(str(version), where, java=java)


def java_pid(spark: SparkSession) -> int:
    """Return the process id of the session's JVM."""
    jvm: Any = spark._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())
