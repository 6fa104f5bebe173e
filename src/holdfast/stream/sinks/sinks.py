"""The sinks of queries, with their guarantees.

Whether a sink is exactly once depends on how it is written and how it is read. So each sink has a `Promise`
with its guarantee, which a job can show before it runs.
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
    SHARED,
    TABLE,
    TRANSACTED,
    FileFormat,
    Mode,
    Promise,
    PromiseLevel,
    Sink,
    has_source,
)
from holdfast.stream.sinks.row_sink import RowTarget
from holdfast.stream.sinks.sql_table import SqlTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast.config.database_stores import Cassandra, Redis

MODES: tuple[Mode, ...] = ("append", "update", "complete")
DELTA_FORMAT = "delta"
DELTA_UPSERT = "delta_upsert"
KAFKA = "kafka"
SHARE = "share"


@dataclass(frozen=True, slots=True)
class DeltaSink(Sink):
    """A sink that appends to a Delta table, and whose `upsert` replaces rows by key.

    Example:
        sink: hf.DeltaSink = hf.sink(events, name="sales").delta("tables/sales")
        assert sink.kind == "delta" and sink.promise.level is hf.PromiseLevel.EXACTLY_ONCE
    """

    partition_by: tuple[str, ...] = field(default=(), kw_only=True, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, kw_only=True, repr=False)

    def upsert(self, keys: Sequence[str], *, delete_when: str | None = None) -> Sink:
        """Return a sink that replaces the row with the same key by each new row, with a MERGE.

        A batch may have one row per key. The table is created if missing. A MERGE that conflicts with a
        concurrent writer or OPTIMIZE is tried at most ten times. A batch costs its computation, during which
        it is persisted, a count of its rows by key, and the MERGE.

        Args:
            keys: The key columns. Their values must not be null.
            delete_when: An SQL condition, such as `op = 'delete'`, under which a row deletes the row with its
                key.

        Raises:
            Invalid: A key is not a column of the query, or is given twice.
        """
        frame, fault = self.frame, Fault()
        if frame is None or self.target is None:  # not created by `SinkBuilder.delta`
            raise Invalid(
                "upsert needs a Delta sink with a target",
                code="HF-E2379",
                hint="write hf.sink(df).delta(path).upsert(keys)",
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
    """A builder of sinks; each method sets a target and returns the sink.

    Example:
        builder: hf.SinkBuilder = hf.sink(events, name="sales")
        assert builder.files("json", "tables/sales").kind == "json"
    """

    frame: DataFrame
    name: str | None = None
    mode: Mode | None = None

    def parquet(self, path: str | Path, partition_by: Sequence[str] = (), **options: str) -> Sink:
        """Return a sink that appends to a directory of Parquet files."""
        return self.files("parquet", path, partition_by, **options)

    def files(
        self,
        format: FileFormat,  # noqa: A002  Spark's own word
        path: str | Path,
        partition_by: Sequence[str] = (),
        **options: str,
    ) -> Sink:
        """Return a sink that appends to a directory of files in the format avro, csv, json, orc, parquet or
        text.

        Do not read the directory with a glob; see the reader rule of the sink's promise.
        """
        if format not in FILE_FORMATS:
            raise Invalid(
                "unknown file format",
                code="HF-E2380",
                found=repr(format),
                expected=", ".join(FILE_FORMATS),
                hint="use hf.sink(df).delta(…) for Delta, and .foreach_batch(…) for other formats",
            )
        target = str(path)
        sink = self._files(format, FILES, ("append",), target, partition_by, options | {"path": target})
        return replace(sink, require_in_step=partial(require_files_in_step, path=target))

    def delta(self, path_or_table: str | Path, partition_by: Sequence[str] = (), **options: str) -> DeltaSink:
        """Return a sink for a Delta table: it appends rows or, in complete mode, replaces all of them in each
        batch.

        To replace rows by key, use `.delta(…).upsert(keys)`. The session must have Delta:
        `hf.session(extras=["delta"])`.

        Args:
            path_or_table: A path if it contains a slash, otherwise a table of the catalog.
            partition_by: The columns by which a new table is partitioned.
            **options: Options of Delta, such as `mergeSchema`.
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
        """Return a sink that prints the first rows of each batch."""
        options = {"numRows": rows, "truncate": truncate}
        return self._sink("console", CONSOLE, lambda writer: writer.format("console").options(**options))

    def memory(self, table: str) -> Sink:
        """Return a sink that collects all rows in the driver, in a temporary table named like the query."""
        sink = self._sink("memory", MEMORY, lambda writer: writer.format("memory").queryName(table))
        return replace(sink, name=self.name or table, target=table)

    def foreach_batch(self, fn: BatchFunction, ledger: Ledger | str | Path | None = None) -> Sink:
        """Return a sink that calls a function with each batch: `fn(batch, batch_id)` or `fn(batch, batch_id,
        tx)`.

        With a ledger, a recorded batch is not passed again and an outdated owner is rejected. A function with
        a required third argument gets the ledger's `Transaction`, and its writes through it are exactly once.
        Read the complete batch, because Spark saves only the state of the rows that were read.

        Args:
            fn: The function. It runs in the driver, on the query's thread.
            ledger: The ledger or its address; the sink then needs a name. None for no ledger.
        """
        takes_transaction = requires_three(fn)
        if ledger is None:
            if takes_transaction:
                raise Invalid(
                    "a batch function with a third argument needs a ledger",
                    code="HF-E2381",
                    hint='add a ledger, as in .foreach_batch(fn, ledger="sqlite:///ledger.db")',
                )
            fault = Fault()
            # Over Spark Connect the function is sent to the server, where Holdfast need not be installed.
            call: Callable[..., Any] = fn if is_connect(self.frame) else keep_fault(fault, fn)
            sink = self._sink(BATCH_FUNCTION, BATCH, lambda writer: writer.foreachBatch(call))
            return replace(sink, fault=fault)
        if self.name is None:
            raise Invalid(
                "a sink with a ledger needs a name",
                code="HF-E2382",
                hint='name the sink: hf.sink(frame, name="…")',
            )

        def write(batch: DataFrame, batch_id: int, transaction: Transaction) -> None:
            fn(batch, batch_id, transaction) if takes_transaction else fn(batch, batch_id)

        promise = TRANSACTED if takes_transaction else RECORDED
        return self._ledgered(BATCH_FUNCTION, promise, self.mode, self.name, ledger_at(ledger), write)

    def append(self, table: str, ledger: Ledger | str | Path) -> Sink:
        """Return a sink that appends each batch's rows to a table in the ledger's database, created if
        missing.

        In update mode a row that changes is appended each time, so the table is a log of changes. Executors
        write directly to a database server; SQLite is written by the driver, with one Spark job per partition
        and batch.
        """
        self._allowed("append", ("append", "update"))
        return self._sql(table, ledger, "append", self.mode or "append", ())

    def upsert(self, table: str, keys: Sequence[str], ledger: Ledger | str | Path) -> Sink:
        """Return a sink that replaces the row with the same key by each new row. A batch may have one row per
        key.

        The cost is that of `append`. A row that disappears from the result stays in the table.
        """
        self._allowed("upsert", ("append", "update"))
        return self._sql(table, ledger, "upsert", self.mode or "update", keys)

    def replace(self, table: str, ledger: Ledger | str | Path) -> Sink:
        """Return a sink that replaces the table's rows by each batch, which is the complete result (complete
        mode).

        The cost is that of `append`, for the complete result in every batch.
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
        """Return a sink that sends each row to a Kafka topic, with a header that identifies repeats.

        A batch that runs again is sent again, so a consumer without a filter receives its records twice.
        `hf.without_repeats` and `hf.RepeatFilter` return each record once. A frame with a column `value` is
        sent as in Spark's own sink, with `key`, `value`, `headers` and `partition`; rows of any other frame
        are sent as JSON. The session must have Spark's connector: `hf.session(extras=["kafka"])`.

        A batch costs a shuffle by key. Records with the same key keep the order of the batch.

        Args:
            servers: The brokers, in the form `host:port,host:port`.
            topic: The topic, which must exist.
            key: The column with the key, sent as text. The default is the column `key`, if there is a column
                `value`.
            identify_by: The columns that identify a row when its batch runs again; by default all contents of
                the record. Set it if a column may differ in a repeat, such as a sum of doubles, or a time
                taken by a Python function.
            ledger: The ledger or its address. A batch that it has is not sent again, and records of a former
                owner are distinguished from those of the current one. The sink's name in the ledger is by
                default that of the topic.
            **options: Options of Spark's Kafka sink, such as `**{"kafka.compression.type": "zstd"}`.

        Raises:
            Invalid: A column or an option is invalid.
            Unsupported: The frame is a Spark Connect frame.
        """
        frame, name, mode = self.frame, self.name or topic, self.mode
        refuse_connect(
            frame,
            "a Kafka sink with identifying headers",
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

    def share(
        self, database: Redis | Cassandra, keys: Sequence[str], *, delete_when: str | None = None
    ) -> Sink:
        """Return a sink that writes each row to Redis or Cassandra under its key, for other services to read.

        The newest row of a key replaces the one before. `hf.shared.redis_rows` and
        `hf.shared.cassandra_rows` read the rows by the sink's name, and any Redis or Cassandra client reads
        them by their documented format. If a batch has several rows for a key, the last one counts; the frame
        must then be the output of an operator whose state has this key, because only its rows have an order.

        A batch costs one Spark job, a request for each thousand rows of a task, and two requests of the
        driver.

        Args:
            database: `hf.Redis(…)` or `hf.Cassandra(…)`. The address of Redis may be that of a server, of a
                node of a Redis Cluster, or of a Sentinel. `retain` and `cache` are ignored, and `trust_store`
                must be a PEM file.
            keys: The key columns, of type string, boolean or an integer type.
            delete_when: An SQL condition, such as `visits = 0`, under which a row deletes the row of its key.

        Raises:
            Invalid: The sink has no name, or a key, a column or the database is invalid.
            Unsupported: The client library of the database is not installed, or the frame is a Spark Connect
                frame.
        """
        frame, mode = self.frame, self.mode or "update"
        self._allowed(SHARE, ("append", "update"))
        refuse_connect(
            frame,
            "a sink of shared rows",
            where="holdfast.sink(…).share",
            hint="start the query in a classic session, or write a table with .upsert(…)",
        )
        target, fault = RowTarget.of(frame, database, self.name, keys, delete_when), Fault()

        def writer() -> DataStreamWriter:
            start = target.claim(frame.sparkSession)

            def run(batch: DataFrame, batch_id: int) -> None:
                target.write(batch, query_id_of(batch.sparkSession, fault.checkpoint), batch_id, start)

            return frame.writeStream.foreachBatch(keep_fault(fault, run))

        return Sink(
            frame, self.name, SHARE, SHARED, mode, writer=writer, fault=fault, target=target.name
        )  # fmt: skip

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
        if change != "append":  # other changes leave one row per key, or only the newest result
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
                        # The ledger has the rows, but the operators' state is saved only if the batch is
                        # read.
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
                f"the sink {kind!r} does not support output mode {self.mode!r}",
                code="HF-E2383",
                expected=" or ".join(modes),
                hint=f'write hf.sink(df, mode="{modes[0]}"), or remove the mode',
            )


def sink(df: DataFrame, *, name: str | None = None, mode: Mode | None = None) -> SinkBuilder:
    """Return a builder of sinks for a stream; its methods set the target and return an `hf.Sink`.

    Files: `.parquet(path)`, `.files(format, path)`. Delta: `.delta(path_or_table)`, and after it
    `.upsert(keys)`. A table of a database with a ledger: `.append(table, ledger)`, `.upsert(table, keys,
    ledger)`, `.replace(table, ledger)`. Kafka: `.kafka(servers, topic)`. Rows by key in Redis or Cassandra:
    `.share(database, keys)`. A function of your own: `.foreach_batch(fn)`. For tests: `.console()`,
    `.memory(table)`.

    Args:
        df: A streaming DataFrame.
        name: The name of the sink in a ledger; by default that of the table. Two queries that write to one
            table need different names, because each start would reject the other query.
        mode: The output mode `append`, `update` or `complete`; by default the one that suits the sink.

    Example:
        sink = hf.sink(events, name="sales").parquet("tables/sales", partition_by=["drink"])
        assert sink.promise.level == "exactly once"

        query = sink.start(checkpoint="checkpoints/sales", trigger=hf.available_now())
        query.awaitTermination()
        assert spark.read.parquet("tables/sales").count() == 1
    """
    require_stream(df, where="holdfast.sink(…)")
    if mode is not None:
        one_of(mode, "holdfast.sink(…): mode", MODES)
    return SinkBuilder(df, name, mode)


def adopt(writer: DataStreamWriter, name: str | None = None) -> Sink:
    """Return a sink for a writer created with plain PySpark.

    The promise follows from the format of the writer, which Spark exposes only through internals. If the
    format cannot be determined, the promise is NONE, with that reason.

    Args:
        writer: The writer: `df.writeStream` with a format and options, not started.
        name: The name of the sink.

    Example:
        sink = hf.adopt(events.writeStream.format("parquet").option("path", "tables/sales"))
        assert (sink.kind, sink.promise.level) == ("parquet", "exactly once")
    """
    require_package("pyspark")
    kind = written_format(writer)
    unknown = Promise(
        PromiseLevel.NONE,
        f"unknown format {kind!r}" if kind else "the format of the writer cannot be determined",
    )
    promise = BY_FORMAT.get(kind or "", unknown)

    def require_in_step(spark: SparkSession, checkpoint: str) -> None:
        written = written_sink(writer)  # an adopted writer may still change before it starts
        target = None if written is None else written[0].target
        if target is not None and kind in FILE_FORMATS:
            require_files_in_step(spark, checkpoint, path=target)
        elif target is not None and kind == DELTA_FORMAT:
            require_delta_in_step(spark, checkpoint, target=target, is_path="/" in target)

    return Sink(
        None, name, kind or "unknown", promise, writer=lambda: writer, require_in_step=require_in_step
    )
