"""Where a query's rows go, and what is promised about them.

No sink is exactly once by name alone: it depends on who reads it and how it is written. So each carries
a `Promise` that says it in words, and a job can be asked for it before it runs.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from holdfast.config.checks import one_of
from holdfast.engine.connect.classic_only import is_connect, refuse_connect
from holdfast.engine.queries.boundary import stop_between_batches
from holdfast.engine.queries.watch import failure_text, frame_of, written_format, written_mode, written_sink
from holdfast.engine.session.object_store import files_of
from holdfast.errors import Conflict, Invalid, Unsupported
from holdfast.formats.logs.plan_note import Plan, PlanSink
from holdfast.stream.event_time import require_stream
from holdfast.stream.keyed.operator_state import checked_operators
from holdfast.stream.late import refuse_complete
from holdfast.stream.query.cautions import cautions, renames_caution
from holdfast.stream.query.plan_notes import note_plan, plan_of
from holdfast.stream.query.real_time import require_runnable
from holdfast.stream.sinks.batch_function import BatchFunction, Fault, kept, query_id_of, requires_three
from holdfast.stream.sinks.delta_upsert import DeltaUpsert
from holdfast.stream.sinks.ledger import Ledger, Transaction
from holdfast.stream.sinks.ledger import ledger as ledger_at
from holdfast.stream.sinks.promises import (
    BATCH,
    BY_FORMAT,
    CONSOLE,
    DELTA,
    FILE_FORMATS,
    FILES,
    MEMORY,
    MERGED,
    RECORDED,
    TABLE,
    TRANSACTED,
    Level,
    Promise,
)
from holdfast.stream.sinks.put_back import require_delta_in_step, require_files_in_step
from holdfast.stream.sinks.sql_table import Change, SqlTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast.config.job.trigger import OneBatch, Trigger

Mode: TypeAlias = Literal["append", "update", "complete"]
MODES: tuple[Mode, ...] = ("append", "update", "complete")
# Of a session and a checkpoint.
InStep: TypeAlias = "Callable[[SparkSession, str], None]"

DELTA_FORMAT = "delta"
DELTA_UPSERT = "delta_upsert"

_ONE_BATCH = "only one batch was to be finished"
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Sink:
    """A query that is ready to start, with what its output promises.

    Attributes:
        frame: The streaming DataFrame; None for a writer that was made elsewhere.
        name: The sink's name, by which a ledger knows it.
        kind: `parquet`, `delta`, `console`, `memory`, `foreach_batch`, `append`, `upsert`, `replace`, …
        promise: What is promised.
        mode: Spark's output mode; None leaves Spark's own default.
        target: The path or table that is written to, where there is one.
        require_in_step: Refuses a checkpoint that does not know of batches which the table has and would pass
            by; None where no batch is passed by.
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
        """What the last batch of a ledger sink or batch function raised, itself and not as Spark's text.

        A Conflict here means that another owner took over: starting again would take the sink back.
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
        """Start the query. A sink with a ledger is claimed first: from then on its former owner is refused.

        Warns with `WatermarkWarning` if the query has more than one watermark, and with
        `ObjectStoreWarning` if its checkpoint is on S3 and Spark would rename files there.

        Args:
            checkpoint: Where the query keeps its checkpoint. It overrules one set on an adopted writer.
            trigger: When batches run; None leaves Spark's own, as soon as possible.
            query_name: Spark's name for the query.
            term: Where one of several supervisors leads, the token of its term: a ledger then refuses what an
                earlier leader has started, even if that claims the sink again.
            repeats: Whether the batches that come ran before with the same input, so that a ledger that has
                them may pass them by.

        Raises:
            Conflict: A later leader has claimed the sink.
            Unsupported: The format is not in the session, or the query cannot run with its trigger.
            Unavailable: The ledger cannot be reached.
            Invalid: An existing table does not fit the query, or keyed state in the checkpoint could not
                be read by it.
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
            if frame is not None:
                if self.require_in_step is not None and not repeats:
                    with _has_source(self.kind):
                        self.require_in_step(frame.sparkSession, checkpoint)
                note_plan(frame, checkpoint, self.plan(trigger))
            with _has_source(self.kind), _files_of(frame, checkpoint):
                return writer.toTable(self.to_table) if self.to_table else writer.start()

    def _require_runnable(self, trigger: Trigger | OneBatch | None) -> None:
        """Look at the trigger before a ledger is claimed; that of a writer counts where no other is given."""
        # A sink of `sink(…)` has no trigger of its own, and making its writer may claim a ledger.
        writer = self.writer() if self.frame is None else None
        frame = self.frame if writer is None else frame_of(writer)
        written = None if writer is None else written_sink(writer)
        mode = self.mode if written is None else written[0].mode
        own = None if written is None else written[1]
        require_runnable(frame, self.kind, mode, own if trigger is None else str(trigger))

    def plan(self, trigger: Trigger | OneBatch | None = None) -> Plan | None:
        """What the query's code says, in words that another process can compare; starts and claims nothing.

        None for a writer that hides its frame, or where Spark's internals do not tell.
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
        """Let Spark commit a batch that this sink holds already, and that Spark has not noted.

        A file or Delta sink skips a batch that it holds without reading it, so its state is not computed
        again, and with state-checkpoint format 2 Spark then refuses to commit: the query can never start
        again. Here the same plan runs that one batch into nothing, which computes the state, and Spark
        commits it. Call it only for a query that failed in just this way (`engine.watch.was_skipped`):
        for any other batch its rows would be lost.

        Returns:
            Whether it could be done: a batch function of an adopted writer cannot be put aside.
        """
        writer = self._prepared(checkpoint)
        refuse_connect(
            writer, "a batch of Holdfast's own", where="Sink.finish_batch", hint="start it in a job"
        )
        former = written_format(writer)
        if former is None or former == "foreachBatch":
            return False
        begun = Event()

        def compute(batch: DataFrame, _batch_id: int) -> None:
            if begun.is_set():
                raise Conflict(_ONE_BATCH, hint="start the query again: the batch is committed")
            begun.set()
            batch.write.format("noop").mode("overwrite").save()

        frame, mode = self._frame(writer), self.mode or written_mode(writer)
        plain = writer
        if frame is not None and mode is not None:
            # Of its own, since one that partitions its table cannot be given a batch function.
            plain = frame.writeStream.option("checkpointLocation", checkpoint).outputMode(mode)
        with _checked(frame, checkpoint):
            query = plain.foreachBatch(compute).start()
        while query.isActive and not begun.wait(_LOOK_S):
            pass
        while not stop_between_batches(query):
            time.sleep(_LOOK_S)
        if plain is writer:
            # An adopted one is the user's only one; it goes back to what it was.
            writer.format(former)
        text = failure_text(query)
        return begun.is_set() and (text is None or _ONE_BATCH in text)

    def _frame(self, writer: DataStreamWriter) -> DataFrame | None:
        return self.frame if self.frame is not None else frame_of(writer)

    def _prepared(self, checkpoint: str) -> DataStreamWriter:
        writer = self.writer().option("checkpointLocation", checkpoint)
        return writer if self.mode is None else writer.outputMode(self.mode)


@dataclass(frozen=True, slots=True)
class DeltaSink(Sink):
    """A Delta table that a query appends to, or whose rows it replaces by key."""

    partition_by: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False)

    def upsert(self, keys: Sequence[str], *, delete_when: str | None = None) -> Sink:
        """Put each row in place of the one with its key, by MERGE. A batch may hold one row per key.

        The table is made if it is not there. A MERGE that another writer or OPTIMIZE gets in the way of is
        tried again, ten times at most. Costs the computation of the batch, which is kept meanwhile, a count
        of its rows by key, and the MERGE.

        Args:
            keys: The columns that tell rows apart. Their values must not be null.
            delete_when: A condition on a row, in SQL, such as `op = 'delete'`: what has its key is removed.

        Raises:
            Invalid: A key is no column of the query, or is there twice.
        """
        frame, fault = self.frame, Fault()
        if frame is None or self.target is None:  # not of `SinkBuilder.delta`
            raise Invalid(
                "a Delta table is needed for an upsert", hint="hf.sink(df).delta(path).upsert(keys)"
            )
        evolves = {name.lower(): value for name, value in self.options.items()}.get("mergeschema") == "true"
        table = DeltaUpsert.of(
            self.target, frame.schema, keys, delete_when, is_path=self.to_table is None, evolves=evolves
        )

        def run(batch: DataFrame, batch_id: int) -> None:
            table.write(batch, query_id_of(batch.sparkSession, fault.checkpoint), batch_id)

        def writer() -> DataStreamWriter:
            with _has_source(DELTA_UPSERT):
                table.prepare(frame.sparkSession, frame.schema, self.partition_by)
            return frame.writeStream.foreachBatch(kept(fault, run))

        mode = self.mode or "update"
        return Sink(
            frame, self.name, DELTA_UPSERT, MERGED, mode,
            writer=writer, fault=fault, target=self.target, require_in_step=self.require_in_step,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SinkBuilder:
    """What is to be written; each method says where to and returns the sink."""

    frame: DataFrame
    name: str | None = None
    mode: Mode | None = None

    def parquet(self, path: str | Path, partition_by: Sequence[str] = (), **options: str) -> Sink:
        """Append to a directory of Parquet files."""
        return self.files("parquet", path, partition_by, **options)

    def files(
        self,
        format: str,  # noqa: A002  Spark's own word
        path: str | Path,
        partition_by: Sequence[str] = (),
        **options: str,
    ) -> Sink:
        """Append to a directory of files: avro, csv, json, orc, parquet or text.

        Classic mistake: reading the directory with a glob. See the promise's reader rule.
        """
        if format not in FILE_FORMATS:
            raise Invalid(
                "not a format of files",
                found=repr(format),
                expected=", ".join(FILE_FORMATS),
                hint="write hf.sink(df).delta(…) for Delta, and .foreach_batch(…) for what has no method",
            )
        target = str(path)
        sink = self._files(format, FILES, ("append",), target, partition_by, options | {"path": target})
        return replace(sink, require_in_step=partial(require_files_in_step, path=target))

    def delta(self, path_or_table: str | Path, partition_by: Sequence[str] = (), **options: str) -> DeltaSink:
        """Write to a Delta table: append, or the whole result each time in complete mode.

        `.delta(…).upsert(keys)` puts each row in place of the one with its key instead. Needs Delta in the
        session: `hf.session(extras=["delta"])`.

        Args:
            path_or_table: A path if it holds a slash, otherwise a table of the catalog.
            partition_by: Columns to partition a new table by.
            **options: Delta's own, such as `mergeSchema`.
        """
        target = str(path_or_table)
        is_path = isinstance(path_or_table, Path) or "/" in target
        path = {"path": target} if is_path else {}
        sink = self._files(DELTA_FORMAT, DELTA, ("append", "complete"), target, partition_by, options | path)
        return DeltaSink(
            sink.frame, sink.name, sink.kind, sink.promise, sink.mode,
            writer=sink.writer, to_table=None if is_path else target, target=target,
            require_in_step=partial(require_delta_in_step, target=target, is_path=is_path),
            partition_by=tuple(partition_by), options=options,
        )  # fmt: skip

    def console(self, rows: int = 20, *, truncate: bool = True) -> Sink:
        """Print the first rows of each batch."""
        options = {"numRows": rows, "truncate": truncate}
        return self._sink("console", CONSOLE, lambda writer: writer.format("console").options(**options))

    def memory(self, table: str) -> Sink:
        """Keep all rows in the driver, as a temporary table of the session. The table names the query."""
        sink = self._sink("memory", MEMORY, lambda writer: writer.format("memory").queryName(table))
        return replace(sink, name=self.name or table, target=table)

    def foreach_batch(self, fn: BatchFunction, ledger: Ledger | str | Path | None = None) -> Sink:
        """Call a function with each batch: `fn(batch, batch_id)`, or `fn(batch, batch_id, tx)`.

        With a ledger a recorded batch is not passed again and a stale owner is refused. A function that
        requires a third argument gets the ledger's `Transaction` and is exactly once in what it writes
        with it. Read the whole batch: Spark keeps the state of what was read, and no more.

        Args:
            fn: The function. It runs in the driver, on the query's thread.
            ledger: A ledger or its address. The sink then needs a name.
        """
        takes_transaction = requires_three(fn)
        if ledger is None:
            if takes_transaction:
                raise Invalid(
                    "a function of three arguments writes through a ledger's transaction",
                    found="no ledger",
                    hint='.foreach_batch(fn, ledger="sqlite:///ledger.db")',
                )
            fault = Fault()
            # Over Spark Connect the function is sent to the server, which then needs no Holdfast for it.
            call: Callable[..., Any] = fn if is_connect(self.frame) else kept(fault, fn)
            sink = self._sink("foreach_batch", BATCH, lambda writer: writer.foreachBatch(call))
            return replace(sink, fault=fault)
        if self.name is None:
            raise Invalid("a sink with a ledger needs a name", hint='hf.sink(frame, name="…")')

        def write(batch: DataFrame, batch_id: int, transaction: Transaction) -> None:
            fn(batch, batch_id, transaction) if takes_transaction else fn(batch, batch_id)

        promise = TRANSACTED if takes_transaction else RECORDED
        return self._ledgered("foreach_batch", promise, self.mode, self.name, ledger_at(ledger), write)

    def append(self, table: str, ledger: Ledger | str | Path) -> Sink:
        """Add each batch's rows to a table in the ledger's database; it is made if it is not there.

        In update mode a row that changes is added again each time: a log of changes.
        Costs one Spark job per partition and batch; every row passes through the driver.
        """
        self._allowed("append", ("append", "update"))
        return self._sql(table, ledger, "append", self.mode or "append", ())

    def upsert(self, table: str, keys: Sequence[str], ledger: Ledger | str | Path) -> Sink:
        """Put each row in place of the one with its key. A batch may hold one row per key.

        Costs as `append` does. A row that leaves the result stays in the table.
        """
        self._allowed("upsert", ("append", "update"))
        return self._sql(table, ledger, "upsert", self.mode or "update", keys)

    def replace(self, table: str, ledger: Ledger | str | Path) -> Sink:
        """Put each batch, which is the whole result, in place of the table's rows (complete mode).

        Costs as `append` does, for the whole result in every batch.
        """
        self._allowed("replace", ("complete",))
        return self._sql(table, ledger, "replace", "complete", ())

    def _sql(
        self,
        table: str,
        ledger: Ledger | str | Path,
        change: Change,
        mode: Mode,
        keys: Sequence[str],
    ) -> Sink:
        at = ledger_at(ledger)
        target = SqlTable.of(table, self.frame.schema, at, change, keys)

        def write(batch: DataFrame, batch_id: int, transaction: Transaction) -> None:  # noqa: ARG001
            target.write(batch, transaction)

        made = self._ledgered(change, TABLE, mode, self.name or table, at, write, lambda: target.prepare(at))
        return replace(made, target=table)

    def _ledgered(
        self,
        kind: str,
        promise: Promise,
        mode: Mode | None,
        name: str,
        ledger: Ledger,
        write: Callable[[DataFrame, int, Transaction], None],
        prepare: Callable[[], None] = lambda: None,
    ) -> Sink:
        frame, fault = self.frame, Fault()

        def writer() -> DataStreamWriter:
            prepare()
            token = ledger.claim(name, f"{socket.gethostname()} pid {os.getpid()}", term=fault.term)

            def run(batch: DataFrame, batch_id: int) -> None:
                query_id = query_id_of(batch.sparkSession, fault.checkpoint)
                doing = ledger.transaction(name, query_id, batch_id, token, repeats=fault.repeats)
                with doing as transaction:
                    if transaction is None:
                        # The rows are there, but the operators' state is saved only by reading the batch.
                        batch.write.format("noop").mode("overwrite").save()
                    else:
                        write(batch, batch_id, transaction)

            return frame.writeStream.foreachBatch(kept(fault, run))

        return Sink(frame, name, kind, promise, mode, writer=writer, fault=fault)

    def _files(
        self,
        format: str,  # noqa: A002  as above
        promise: Promise,
        modes: tuple[Mode, ...],
        target: str,
        partition_by: Sequence[str],
        options: Mapping[str, str],
    ) -> Sink:
        def made(writer: DataStreamWriter) -> DataStreamWriter:
            writer = writer.format(format).options(**options)
            return writer.partitionBy(*partition_by) if partition_by else writer

        return replace(self._sink(format, promise, made, modes), name=self.name or target, target=target)

    def _sink(
        self,
        kind: str,
        promise: Promise,
        made: Callable[[DataStreamWriter], DataStreamWriter],
        modes: tuple[Mode, ...] = MODES,
    ) -> Sink:
        self._allowed(kind, modes)
        frame = self.frame
        return Sink(frame, self.name, kind, promise, self.mode, writer=lambda: made(frame.writeStream))

    def _allowed(self, kind: str, modes: tuple[Mode, ...]) -> None:
        if self.mode is not None and self.mode not in modes:
            raise Invalid(
                f"a sink of kind {kind!r} cannot be written in this output mode",
                found=self.mode,
                expected=" or ".join(modes),
                hint=f'write hf.sink(df, mode="{modes[0]}"), or leave the mode out',
            )


def sink(df: DataFrame, *, name: str | None = None, mode: Mode | None = None) -> SinkBuilder:
    """Say what is to be written; the methods of the result say where to.

    Args:
        df: A streaming DataFrame.
        name: The sink's name in a ledger. Tables have their own name unless told; two queries that write
            to one table need a name each, or each refuses the other.
        mode: `append`, `update` or `complete`; left out, the one that suits the sink.
    """
    require_stream(df, where="holdfast.sink(…)")
    if mode is not None:
        one_of(mode, "holdfast.sink(…): mode", MODES)
    return SinkBuilder(df, name, mode)


def adopt(writer: DataStreamWriter, name: str | None = None) -> Sink:
    """Take a writer that was made with plain PySpark.

    The promise is read off the writer's format. Spark offers no public way to ask for it, so where its
    internals do not answer the promise is NONE, and says so.
    """
    kind = written_format(writer)
    unknown = Promise(
        Level.NONE, f"nothing is known of the format {kind!r}" if kind else "the writer hides its format"
    )
    promise = BY_FORMAT.get(kind or "", unknown)

    def require_in_step(spark: SparkSession, checkpoint: str) -> None:
        written = written_sink(writer)  # an adopted writer may still be changed until it starts
        target = None if written is None else written[0].target
        if target is not None and kind in FILE_FORMATS:
            require_files_in_step(spark, checkpoint, path=target)
        elif target is not None and kind == DELTA_FORMAT:
            require_delta_in_step(spark, checkpoint, target=target, is_path="/" in target)

    return Sink(
        None, name, kind or "unknown", promise, writer=lambda: writer, require_in_step=require_in_step
    )


@contextmanager
def _files_of(frame: DataFrame | None, checkpoint: str) -> Iterator[None]:
    """Within the block a query on S3 starts with the file manager for S3; a frame may be hidden."""
    if frame is None:
        yield
        return
    with files_of(frame.sparkSession, checkpoint) as ready:
        if not ready:
            warnings.warn(renames_caution(checkpoint), stacklevel=4)
        yield


@contextmanager
def _has_source(kind: str) -> Iterator[None]:
    """Say it in our words where the session lacks a format's jar."""
    try:
        yield
    except Exception as error:
        # Spark raises this one as a bare Java error: its condition is to be had from the text alone.
        if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
            raise
        ours = kind in (DELTA_FORMAT, DELTA_UPSERT)
        raise Unsupported(
            f"the session has no data source for {(DELTA_FORMAT if ours else kind)!r}",
            hint="ask for it with extras=['delta'] in @hf.job or hf.session"
            if ours
            else "add its jar with spark.jars.packages",
        ) from error


def _checked(frame: DataFrame | None, checkpoint: str) -> AbstractContextManager[None]:
    return nullcontext() if frame is None else checked_operators(frame, checkpoint)
