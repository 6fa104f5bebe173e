"""The sink of a query that is ready to start, with its guarantee."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from threading import Event
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from holdfast.config.spark_defaults import SHUFFLE_PARTITIONS_KEY
from holdfast.engine.checkpoint_files import unfixed_partitions
from holdfast.engine.connect import refuse_connect
from holdfast.engine.file_manager import changed, choose_file_manager
from holdfast.engine.queries.boundary import stop_between_batches
from holdfast.engine.queries.watch import failure_text, frame_of, written_format, written_mode, written_sink
from holdfast.errors import Conflict, Unsupported
from holdfast.formats.logs.notes import PlanSink, QueryPlan
from holdfast.storage.remote import hadoop_address
from holdfast.stream.cautions import cautions, renames_caution, require_runnable
from holdfast.stream.keyed.operator_state import checked_operators
from holdfast.stream.late import refuse_complete
from holdfast.stream.operator_check import note_plan, plan_of
from holdfast.stream.sinks.batch_function import Fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast.config.policies import OneBatch, Trigger


FileFormat: TypeAlias = Literal["avro", "csv", "json", "orc", "parquet", "text"]
FILE_FORMATS: Final = get_args(FileFormat)


class PromiseLevel(str, Enum):
    """The delivery guarantee for a row after crashes and restarts.

    Example:
        sink = hf.sink(events).parquet("tables/sales")
        assert sink.promise.level is hf.PromiseLevel.EXACTLY_ONCE
    """

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"
    NONE = "no promise"


@dataclass(frozen=True, slots=True)
class Promise:
    """The guarantee of a sink, the reason for it, and the condition for readers.

    Attributes:
        level: The guarantee: "exactly once", "at least once" or "no promise".
        why: The reason for the guarantee.
        reader_rule: The condition under which the guarantee applies to readers, or "none" without a
            condition.

    Example:
        promise = hf.sink(events).console().promise
        assert promise.level == "no promise"
        print(promise.why)
    """

    level: PromiseLevel
    why: str
    reader_rule: str = "none"


FILES = Promise(
    PromiseLevel.EXACTLY_ONCE,
    "the query logs the files of each batch in `_spark_metadata`; files of a failed attempt are not logged",
    "read with Spark, or the files that `hf.committed_files` lists; a bare glob of the directory also finds"
    " files of failed attempts",
)
DELTA = Promise(
    PromiseLevel.EXACTLY_ONCE,
    "each commit to the table carries query id and batch, and Delta skips one that it already has; a query"
    " on a new checkpoint has a new id and writes everything again",
    "read it as a Delta table",
)
MERGED = Promise(
    PromiseLevel.EXACTLY_ONCE,
    "each MERGE carries query id and batch in its commit, and Delta skips one that it already has; a query"
    " on a new checkpoint has a new id and merges everything again, which leaves the same rows",
    "read it as a Delta table",
)
CONSOLE = Promise(PromiseLevel.NONE, "rows are only printed; a batch that runs again is printed again")
MEMORY = Promise(PromiseLevel.NONE, "rows are kept in the driver's memory and lost with it; use it for tests")
BATCH = Promise(
    PromiseLevel.AT_LEAST_ONCE,
    "a batch whose process dies before Spark has committed it runs again, and so does the function",
    "expect a batch twice, unless the function is idempotent",
)
RECORDED = Promise(
    PromiseLevel.AT_LEAST_ONCE,
    "a recorded batch never runs again, but one whose process died between the write and the record does:"
    " exactly once only if the function is idempotent. Add a third argument to the function to write in"
    " the ledger's transaction",
    "expect the newest batch twice, unless the function is idempotent",
)
TRANSACTED = Promise(
    PromiseLevel.EXACTLY_ONCE,
    "rows and the record of their batch are committed in one transaction, and a stale owner is refused;"
    " the guarantee covers only the function's writes through that transaction",
    "read committed rows, the default of every database",
)
TABLE = Promise(
    PromiseLevel.EXACTLY_ONCE,
    "rows and the record of their batch are committed in one transaction, and a stale owner is refused; a"
    " query on a new checkpoint has a new id and writes everything again",
    "read committed rows, the default of every database",
)
SHARED = Promise(
    PromiseLevel.EXACTLY_ONCE,
    "each row records the start and the batch that wrote it; a batch that runs again writes the same rows,"
    " and an older batch or start never replaces a newer row",
    "each row is of one batch; rows of the newest batch are visible before Spark has committed it",
)
SENT = Promise(
    PromiseLevel.AT_LEAST_ONCE,
    "a repeated batch or task sends its rows again; a header identifies each record. A query on a new"
    " checkpoint has a new id and sends everything again",
    "read with `hf.without_repeats` or `hf.RepeatFilter`, which return each record once; any other"
    " consumer sees the records of a repeated batch twice",
)
# The guarantees of Spark's own sinks, for a query that does not use `hf.sink`.
BY_FORMAT: Mapping[str, Promise] = {
    **dict.fromkeys(FILE_FORMATS, FILES),
    "delta": DELTA,
    "console": CONSOLE,
    "memory": MEMORY,
    "noop": Promise(PromiseLevel.NONE, "rows are discarded"),
    "foreachBatch": BATCH,
    "foreach": Promise(
        PromiseLevel.AT_LEAST_ONCE,
        "a repeated task or batch passes its rows again",
        "expect a row twice, unless the function is idempotent",
    ),
    "kafka": Promise(
        PromiseLevel.AT_LEAST_ONCE,
        "Spark writes to Kafka without transactions; a repeated task or batch sends its rows again",
        "drop duplicates by a key of the message",
    ),
}


Mode: TypeAlias = Literal["append", "update", "complete"]
# A function of a session and a checkpoint.
InStep: TypeAlias = "Callable[[SparkSession, str], None]"

# The extra of a session that has the data source of a sink.
_EXTRAS = {"delta": "delta", "delta_upsert": "delta", "kafka": "kafka"}
BATCH_FUNCTION = "foreach_batch"
_ONE_BATCH = "Sink.finish_batch runs one batch, but Spark started a second one"
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Sink:
    """A query that is ready to start, with the guarantee of its output.

    Create it with a method of `hf.sink(…)`, or with `hf.adopt`.

    Attributes:
        frame: The streaming DataFrame, or None for an adopted writer.
        name: The name of the sink in a ledger.
        kind: The kind of sink: `parquet`, `delta`, `console`, `memory`, `foreach_batch`, `append`, `upsert`,
            `replace`, …
        promise: The delivery guarantee.
        mode: Spark's output mode, or None for Spark's default.
        target: The path, table or topic that is written to, if any.
        require_in_step: A function that raises an error if the table has batches that the checkpoint lacks
            and that would be skipped, or None if the sink skips no batch.

    Example:
        sink = hf.sink(events).append("sales", ledger="sqlite:///shop.db")
        assert (sink.kind, sink.name, sink.target, sink.mode) == ("append", "sales", "sales", "append")

        query = sink.start(checkpoint="checkpoints/sales", trigger=hf.available_now())
        query.awaitTermination()
        assert sink.error is None
    """

    frame: DataFrame | None
    name: str | None
    kind: str
    promise: Promise
    mode: Mode | None = None
    writer: Callable[[], DataStreamWriter] = field(kw_only=True, repr=False, compare=False)
    to_table: str | None = field(default=None, kw_only=True, repr=False)
    target: str | None = field(default=None, kw_only=True, repr=False)
    fault: Fault = field(default_factory=Fault, kw_only=True, repr=False, compare=False)
    require_in_step: InStep | None = field(default=None, kw_only=True, repr=False, compare=False)

    @property
    def error(self) -> BaseException | None:
        """Return the error that the last batch of a ledger sink or batch function raised, or None.

        A Conflict means that a different owner took over; a new start would claim the sink again.
        """
        return self.fault.error

    def start(
        self,
        *,
        checkpoint: str,
        trigger: Trigger | OneBatch | None = None,
        query_name: str | None = None,
        term: int | None = None,
        repeats: bool = False,
    ) -> StreamingQuery:
        """Start the query. A sink with a ledger is claimed first, after which its former owner is rejected.

        It issues a `WatermarkWarning` if the query has more than one watermark, and an `ObjectStoreWarning`
        if its checkpoint is on S3 and Spark would rename files there.

        Args:
            checkpoint: The directory of the query's checkpoint. It overrides the one set on an adopted
                writer.
            trigger: The trigger, or None for Spark's default, which runs batches as soon as possible.
            query_name: Spark's name for the query.
            term: With several supervisors, the token of the leader's term. A ledger then rejects queries
                started by an earlier leader, even if they claim the sink again.
            repeats: Whether the next batches ran before with the same input, so that a ledger may skip those
                that it has.

        Raises:
            Conflict: A later leader has claimed the sink.
            Unsupported: The session lacks the format, or the query cannot run with the trigger.
            Unavailable: The ledger cannot be reached.
            Invalid: An existing table does not match the query, or the query cannot read the keyed state in
                the checkpoint.
        """
        self._require_runnable(trigger)
        self.fault.term, self.fault.repeats, self.fault.checkpoint = term, repeats, checkpoint
        writer = self._prepared(checkpoint)
        if trigger is not None:
            writer = writer.trigger(**trigger.spark_kwargs())  # type: ignore[call-overload]
        if query_name is not None:
            writer = writer.queryName(query_name)
        self.fault.error = None
        frame = self._frame(writer)
        for caution in () if frame is None else cautions(frame):
            warnings.warn(caution, stacklevel=2)
        if frame is not None:
            refuse_complete(frame, self.mode or written_mode(writer))
        with _checked(frame, checkpoint):
            if frame is not None and self.require_in_step is not None and not repeats:
                with has_source(self.kind):
                    self.require_in_step(frame.sparkSession, checkpoint)
            noted = nullcontext() if frame is None else note_plan(frame, checkpoint, self.plan(trigger))
            with noted, has_source(self.kind), _settings_for(frame, checkpoint):
                return writer.toTable(self.to_table) if self.to_table else writer.start()

    def _require_runnable(self, trigger: Trigger | OneBatch | None) -> None:
        """Check that the query can run with the trigger, or the writer's own, before a ledger is claimed."""
        # A sink of `sink(…)` has no trigger of its own, and creating its writer may claim a ledger.
        writer = self.writer() if self.frame is None else None
        frame = self.frame if writer is None else frame_of(writer)
        written = None if writer is None else written_sink(writer)
        mode = self.mode if written is None else written[0].mode
        own = None if written is None else written[1]
        # A sink of `sink(…).kafka` adds its headers in a batch function.
        kind = BATCH_FUNCTION if writer is None and self.kind == "kafka" else self.kind
        require_runnable(frame, kind, mode, own if trigger is None else str(trigger))

    def plan(self, trigger: Trigger | OneBatch | None = None) -> QueryPlan | None:
        """Return the plan of the query's code for comparison, or None; starts and claims nothing.

        The result is None if the writer or this version of Spark does not expose the plan.
        """
        writer = self.writer() if self.frame is None else None
        frame = self.frame if writer is None else frame_of(writer)
        if frame is None:
            return None
        sink, default = PlanSink(self.kind, self.mode or "append", self.target), None
        written = None if writer is None else written_sink(writer)
        if written is not None:
            sink, default = written
        return plan_of(frame, sink, default if trigger is None else str(trigger))

    def finish_batch(self, checkpoint: str) -> bool:
        """Commit a batch that this sink already has, but that Spark has not committed.

        A file or Delta sink skips a batch that it already has without reading it, so the state of the batch
        is not computed. With state-checkpoint format 2 Spark then does not commit the batch, and the query
        cannot start again. This method runs that batch with the same plan and discards its rows, which
        computes the state, so that Spark commits it. Call it only for a query that failed in this way
        (`engine.watch.was_skipped`), because the rows of any other batch would be lost.

        Returns:
            True if the batch is committed; False for a batch function of an adopted writer, which cannot be
            replaced.
        """
        writer = self._prepared(checkpoint)
        refuse_connect(
            writer, "finishing a skipped batch", where="Sink.finish_batch", hint="start the query in a job"
        )
        former = written_format(writer)
        if former is None or former == "foreachBatch":
            return False
        begun = Event()

        def compute(batch: DataFrame, _batch_id: int) -> None:
            if begun.is_set():
                raise Conflict(
                    _ONE_BATCH, code="HF-E4073", hint="start the query again: the skipped batch is committed"
                )
            begun.set()
            batch.write.format("noop").mode("overwrite").save()

        frame, mode = self._frame(writer), self.mode or written_mode(writer)
        plain = writer
        if frame is not None and mode is not None:
            # A new writer, because one that partitions its table cannot be given a batch function.
            plain = frame.writeStream.outputMode(mode)
            plain = plain.option("checkpointLocation", hadoop_address(checkpoint))
        with _checked(frame, checkpoint), _settings_for(frame, checkpoint):
            query = plain.foreachBatch(compute).start()
        while query.isActive and not begun.wait(_LOOK_S):
            pass
        while not stop_between_batches(query):
            time.sleep(_LOOK_S)
        if plain is writer:
            # The writer of an adopted sink belongs to the user, so its settings are restored.
            writer.format(former)
        text = failure_text(query)
        return begun.is_set() and (text is None or _ONE_BATCH in text)

    def _frame(self, writer: DataStreamWriter) -> DataFrame | None:
        return self.frame if self.frame is not None else frame_of(writer)

    def _prepared(self, checkpoint: str) -> DataStreamWriter:
        writer = self.writer().option("checkpointLocation", hadoop_address(checkpoint))
        return writer if self.mode is None else writer.outputMode(self.mode)


@contextmanager
def _settings_for(frame: DataFrame | None, checkpoint: str) -> Iterator[None]:
    """Set what suits a checkpoint while a query starts in the block, if the frame is known.

    That is the file manager, and the number of partitions if Spark would use a different one.
    """
    if frame is None:
        yield
        return
    spark = frame.sparkSession
    partitions = unfixed_partitions(spark, checkpoint)
    fixed = {} if partitions is None else {SHUFFLE_PARTITIONS_KEY: str(partitions)}
    with choose_file_manager(spark, checkpoint) as ready, changed(spark, fixed):
        if not ready:
            warnings.warn(renames_caution(checkpoint), stacklevel=4)
        yield


@contextmanager
def has_source(kind: str) -> Iterator[None]:
    """Raise a Holdfast error if the session lacks a format's jar."""
    try:
        yield
    except Exception as error:
        # Spark raises a plain Java error for this, so its error class can only be read from the message.
        if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
            raise
        extra = _EXTRAS.get(kind)
        raise Unsupported(
            f"the session lacks the data source {(extra or kind)!r}",
            code="HF-E7115",
            hint=f"add the data source with extras=[{extra!r}] in @hf.job or hf.session"
            if extra
            else "add the jar of the data source with spark.jars.packages",
        ) from error


def _checked(frame: DataFrame | None, checkpoint: str) -> AbstractContextManager[None]:
    return nullcontext() if frame is None else checked_operators(frame, checkpoint)
