"""The target of a query's rows, and its guarantee.

No sink is exactly once by name alone: it depends on who reads it and how it is written. So each carries
a `Promise` that says it in words, and a job can be asked for it before it runs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.checks import one_of
from holdfast.engine.connect import is_connect, refuse_connect
from holdfast.engine.queries.watch import written_format, written_sink
from holdfast.errors import Invalid
from holdfast.extras import require_package
from holdfast.stream.event_time import require_stream
from holdfast.stream.sinks.batch_function import BatchFunction, Fault, keep_fault, query_id_of, requires_three
from holdfast.stream.sinks.database import Change
from holdfast.stream.sinks.delta_upsert import DeltaUpsert
from holdfast.stream.sinks.kafka import KafkaStart, KafkaTopic
from holdfast.stream.sinks.ledger import Ledger, Transaction
from holdfast.stream.sinks.ledger import ledger as ledger_at
from holdfast.stream.sinks.put_back import (
    LedgerWitness,
    require_delta_in_step,
    require_files_in_step,
    warn_of_fork_in_ledger,
)
from holdfast.stream.sinks.query_sink import (
    BATCH,
    BATCH_FUNCTION,
    BY_FORMAT,
    CONSOLE,
    DELTA,
    FILE_FORMATS,
    FILES,
    MEMORY,
    MERGED,
    RECORDED,
    SENT,
    TABLE,
    TRANSACTED,
    Level,
    Mode,
    Promise,
    Sink,
    has_source,
)
from holdfast.stream.sinks.sql_table import SqlTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

MODES: tuple[Mode, ...] = ("append", "update", "complete")
DELTA_FORMAT = "delta"
DELTA_UPSERT = "delta_upsert"
KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class DeltaSink(Sink):
    """A Delta table that a query appends to, or whose rows it replaces by key."""

    partition_by: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False)

    def upsert(self, keys: Sequence[str], *, delete_when: str | None = None) -> Sink:
        """Put each row in place of the one with its key, by MERGE. A batch may hold one row per key.

        The table is made if it is missing. A MERGE that another writer or OPTIMIZE gets in the way of is
        tried again, ten times at most. Costs the computation of the batch, which is kept meanwhile, a count
        of its rows by key, and the MERGE.

        Args:
            keys: The columns that tell rows apart. Their values must not be null.
            delete_when: A condition on a row, in SQL, such as `op = 'delete'`: what has its key is removed.

        Raises:
            Invalid: A key is not a column of the query, or is there twice.
        """
        frame, fault = self.frame, Fault()
        if frame is None or self.target is None:  # not of `SinkBuilder.delta`
            raise Invalid(
                "a Delta table is needed for an upsert",
                code="HF-E2379",
                hint="hf.sink(df).delta(path).upsert(keys)",
            )
        evolves = {name.lower(): value for name, value in self.options.items()}.get("mergeschema") == "true"
        table = DeltaUpsert.of(
            self.target, frame.schema, keys, delete_when, is_path=self.to_table is None, evolves=evolves
        )

        def run(batch: DataFrame, batch_id: int) -> None:
            table.write(batch, query_id_of(batch.sparkSession, fault.checkpoint), batch_id)

        def writer() -> DataStreamWriter:
            with has_source(DELTA_UPSERT):
                table.prepare(frame.sparkSession, frame.schema, self.partition_by)
            return frame.writeStream.foreachBatch(keep_fault(fault, run))

        mode = self.mode or "update"
        return Sink(
            frame, self.name, DELTA_UPSERT, MERGED, mode,
            writer=writer, fault=fault, target=self.target,
            require_in_step=partial(
                require_delta_in_step, target=self.target, is_path=self.to_table is None, appends=False
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SinkBuilder:
    """A builder of sinks; each method names a target and returns the sink."""

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
                code="HF-E2380",
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
                    code="HF-E2381",
                    found="no ledger",
                    hint='.foreach_batch(fn, ledger="sqlite:///ledger.db")',
                )
            fault = Fault()
            # Over Spark Connect the function is sent to the server, which then needs no Holdfast for it.
            call: Callable[..., Any] = fn if is_connect(self.frame) else keep_fault(fault, fn)
            sink = self._sink(BATCH_FUNCTION, BATCH, lambda writer: writer.foreachBatch(call))
            return replace(sink, fault=fault)
        if self.name is None:
            raise Invalid(
                "a sink with a ledger needs a name", code="HF-E2382", hint='hf.sink(frame, name="…")'
            )

        def write(batch: DataFrame, batch_id: int, transaction: Transaction) -> None:
            fn(batch, batch_id, transaction) if takes_transaction else fn(batch, batch_id)

        promise = TRANSACTED if takes_transaction else RECORDED
        return self._ledgered(BATCH_FUNCTION, promise, self.mode, self.name, ledger_at(ledger), write)

    def append(self, table: str, ledger: Ledger | str | Path) -> Sink:
        """Add each batch's rows to a table in the ledger's database; it is made if it is missing.

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

    def kafka(
        self,
        servers: str,
        topic: str,
        *,
        key: str | None = None,
        identify_by: Sequence[str] = (),
        ledger: Ledger | str | Path | None = None,
        **options: str,
    ) -> Sink:
        """Send each row to a topic of Kafka, marked so that a repeat of it is recognised.

        A batch that runs again is sent again: an ordinary consumer sees its records twice.
        `hf.without_repeats` and `hf.RepeatFilter` give each record once. A frame with a column `value` is
        sent as Spark's own sink does it, by `key`, `value`, `headers` and `partition`; of any other frame
        each row is sent as JSON. Needs Spark's connector: `hf.session(extras=["kafka"])`.

        Costs a shuffle of the batch by key. Records with one key keep the order that they have in the batch.

        Args:
            servers: The brokers, as `host:port,host:port`.
            topic: The topic. It has to be there.
            key: The column that becomes the key, as text. By default the column `key` beside `value`.
            identify_by: The columns by which a row is known when its batch runs again. By default all that
                the record holds. Name them where a column may come out otherwise: a sum of doubles, a time
                taken by a Python function.
            ledger: A ledger or its address: a batch that it has is not sent again, and records of a former
                owner are distinguished from those of the owner. The sink has the topic's name in it unless
                told.
            **options: Spark's own for Kafka, such as `**{"kafka.compression.type": "zstd"}`.

        Raises:
            Invalid: A column or an option is not what it should be.
            Unsupported: The frame is one of Spark Connect.
        """
        frame, name, mode = self.frame, self.name or topic, self.mode
        refuse_connect(
            frame,
            "marked records",
            where="holdfast.sink(…).kafka(…)",
            hint='write with df.writeStream.format("kafka"), which sends a repeated batch again',
        )
        started = KafkaStart(KafkaTopic.of(frame, servers, topic, key, identify_by, options))

        def write(batch: DataFrame, batch_id: int, transaction: Transaction | None = None) -> None:  # noqa: ARG001
            started.write(batch, query_id_of(batch.sparkSession, started.fault.checkpoint), batch_id)

        def prepare() -> None:
            started.prepare(frame.sparkSession)

        def writer() -> DataStreamWriter:
            prepare()
            return frame.writeStream.foreachBatch(keep_fault(started.fault, write))

        if ledger is None:
            made = Sink(frame, name, KAFKA, SENT, mode, writer=writer, fault=started.fault)
        else:
            made = self._ledgered(KAFKA, SENT, mode, name, ledger_at(ledger), write, prepare)
            started.fault = made.fault
        return replace(made, target=topic, require_in_step=started.require_in_step)

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
        if change != "append":  # other changes leave one row for a key, or the newest result
            return replace(made, target=table)
        warn = partial(warn_of_fork_in_ledger, ledger=at, sink=self.name or table, target=table)
        return replace(made, target=table, require_in_step=warn)

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
            token = fault.token = ledger.claim(
                name, f"{socket.gethostname()} pid {os.getpid()}", term=fault.term
            )

            witness = LedgerWitness(fault.checkpoint, name)

            def run(batch: DataFrame, batch_id: int) -> None:
                spark = batch.sparkSession
                query_id = query_id_of(spark, fault.checkpoint)
                owed = partial(witness.batch_owed, spark, query_id, batch_id)
                doing = ledger.transaction(name, query_id, batch_id, token, repeats=fault.repeats, owed=owed)
                with doing as transaction:
                    if transaction is None:
                        # The rows are there, but the operators' state is saved only by reading the batch.
                        batch.write.format("noop").mode("overwrite").save()
                    else:
                        write(batch, batch_id, transaction)
                witness.note(spark, query_id, batch_id)

            return frame.writeStream.foreachBatch(keep_fault(fault, run))

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
        def configure(writer: DataStreamWriter) -> DataStreamWriter:
            writer = writer.format(format).options(**options)
            return writer.partitionBy(*partition_by) if partition_by else writer

        return replace(self._sink(format, promise, configure, modes), name=self.name or target, target=target)

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
                code="HF-E2383",
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
    require_package("pyspark")
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
