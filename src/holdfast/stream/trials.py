"""The trial of a query on a copy of a checkpoint, without its sink.

The sink is not used, and a ledger is not claimed: the same plan runs into a function that writes the rows to
files or discards them. Other side effects of the user's code, for example in a UDF, still happen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.checkpoints.copy import batch_files, empty_batch
from holdfast.checkpoints.logs import Logs
from holdfast.engine.described import FILES, IDLE_TICKS, SourceRead, sources_in
from holdfast.engine.file_manager import choose_file_manager
from holdfast.engine.planned_state import watermark_count
from holdfast.engine.queries.watch import await_end, failure_text, frame_of, load_ms, written_mode
from holdfast.errors import Failed, Invalid, Unsupported
from holdfast.model import TrialBatch
from holdfast.storage import open_storage
from holdfast.stream.keyed.operator_state import checked_operators

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from holdfast.storage.port import Storage
    from holdfast.stream.sinks.query_sink import Sink

# Sources that return the same range of input to any reader, any number of times.
REPEATABLE: Final = (FILES, "delta", "kafka", "rate", "rate-micro-batch", IDLE_TICKS)
# The option with which a file source deletes or moves the files that it has read.
_CLEANS: Final = "cleansource"
# The steps of a batch after its planning, with their names in Spark's progress.
_WORK: Final = ("addBatch", "commitBatch", "commitOffsets")


class QueryFailed(Exception):
    """The exception for a failed query of a trial; `text` is Spark's complete message."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class _Enough(Exception):
    """The exception that ends a query after the requested number of batches."""


class Trial:
    """A query that can run on a copy of its checkpoint.

    Args:
        frame: The frame of the query.
        mode: The output mode of the query.
        checkpoint: The copy of the checkpoint.
        output: The directory for the rows, with a subdirectory per batch, or None to discard them.
    """

    def __init__(self, frame: DataFrame, mode: str, checkpoint: str, output: str | None) -> None:
        self.frame = frame
        self._mode = mode
        self._checkpoint = checkpoint
        self._output = output

    @classmethod
    def of(cls, sink: Sink, checkpoint: str, output: str | None) -> Trial:
        """Return the trial of a sink's query.

        Raises:
            Unsupported: The writer does not expose its frame, or a source cannot be read twice.
        """
        frame, mode = query_of(sink)
        check_sources(sources_in(frame))
        return cls(frame, mode, checkpoint, output)

    @property
    def watermarks(self) -> int:
        """Return the number of watermarks in the query's plan."""
        return watermark_count(self.frame)

    def run(self, most: int) -> tuple[TrialBatch, ...]:
        """Process the available input in the batches that the sources define, at most `most` of them.

        Raises:
            QueryFailed: Spark reported a failure of the query.
            Invalid: The query cannot read the keyed state in the checkpoint.
        """
        return tuple(self._run({"availableNow": True}, most))

    def run_once(self, *, history: bool = False) -> TrialBatch:
        """Run one batch with all available input; due timers or a new watermark start no further batch.

        Args:
            history: Whether the input is a history, which processors handle in the order of event time.

        Raises:
            QueryFailed: Spark reported a failure of the query.
            Failed: Spark ran no batch.
        """
        for batch in self._run({"once": True}, 1, history=history):
            return batch
        raise Failed(
            "Spark ran no batch in the trial",
            code="HF-E1006",
            where=self._checkpoint,
            found="no input",
            hint="check that the source has input that the savepoint has not read",
        )

    def repeat(self, original: Storage) -> Iterator[TrialBatch]:
        """Run the batches that a different copy of the same savepoint has committed, with the same input.

        Each batch costs one start of the query, which loads its state again.

        Args:
            original: The storage of the other checkpoint.

        Raises:
            QueryFailed: Spark reported a failure of the query.
            Invalid: The query cannot read the keyed state in the checkpoint.
        """
        own = open_storage(self._checkpoint)
        newest = Logs(own).newest
        for batch_id in Logs(original).committed:
            if newest is None or batch_id > newest:
                yield self._run_one(own, batch_id, batch_files(original, own, batch_id))

    def run_empty(self, now_ms: int) -> TrialBatch:
        """Run one batch without input, which loads and commits the state.

        Raises:
            QueryFailed: Spark reported a failure of the query.
            Invalid: The query cannot read the keyed state in the checkpoint.
        """
        own = open_storage(self._checkpoint)
        batch_id = (Logs(own).newest or 0) + 1
        return self._run_one(own, batch_id, [empty_batch(own, batch_id, now_ms)])

    def _run_one(self, own: Storage, batch_id: int, files: Iterable[tuple[str, bytes]]) -> TrialBatch:
        for path, data in files:
            own.write(path, data)
        # Spark's other triggers continue with available input; this one runs only the planned batch.
        for batch in self._run({"once": True}, 1):
            if batch.batch_id == batch_id:
                return batch
        raise Failed(
            f"Spark did not run batch {batch_id}, which was planned for the trial",
            code="HF-E1007",
            where=self._checkpoint,
            hint="report this as a bug, with the driver's log",
        )

    def _run(self, trigger: Mapping[str, Any], most: int, *, history: bool = False) -> Iterator[TrialBatch]:
        began: dict[int, float] = {}
        enough = False

        def take(batch: DataFrame, batch_id: int) -> None:
            nonlocal enough
            if len(began) >= most:
                enough = True
                raise _Enough
            began[batch_id] = time.monotonic()
            if self._output is None:
                batch.write.format("noop").mode("overwrite").save()
            else:
                batch.write.mode("overwrite").parquet(f"{self._output}/{batch_id}")

        writer = self.frame.writeStream.outputMode(self._mode).foreachBatch(take).trigger(**trigger)
        with (
            checked_operators(self.frame, self._checkpoint, trial=True, history=history),
            choose_file_manager(self.frame.sparkSession, self._checkpoint),
        ):
            query = writer.option("checkpointLocation", self._checkpoint).start()
        await_end(query)
        text = failure_text(query)
        if text is not None and not enough:
            raise QueryFailed(text)
        return _batches(query, began)


def _batches(query: StreamingQuery, began: Mapping[int, float]) -> Iterator[TrialBatch]:
    for progress in query.recentProgress:
        took = dict(progress.durationMs)
        if progress.batchId not in began or "addBatch" not in took:
            continue
        yield TrialBatch(
            batch_id=int(progress.batchId),
            input_rows=max(int(progress.numInputRows or 0), 0),
            began_s=began[progress.batchId],
            work_ms=sum(int(took.get(step, 0)) for step in _WORK),
            load_ms=load_ms(operator.customMetrics for operator in progress.stateOperators),
        )


def query_of(sink: Sink) -> tuple[DataFrame, str]:
    """Return the frame and the output mode of a sink's query.

    Raises:
        Unsupported: The writer does not expose its frame.
    """
    if sink.frame is not None:
        return sink.frame, sink.mode or "append"
    writer = sink.writer()
    frame, mode = frame_of(writer), written_mode(writer)
    if frame is None or mode is None:
        raise Unsupported(
            "cannot determine the frame of this writer",
            code="HF-E7116",
            found=type(writer).__name__,
            hint="return hf.sink(frame)… from the job instead of the writer",
        )
    return frame, mode


def check_sources(sources: Iterable[SourceRead]) -> None:
    """Raise an error for sources that a trial cannot read while the query reads them, too.

    Raises:
        Unsupported: A source cannot be read twice, or reading it changes it.
    """
    for source in sources:
        if source.kind not in REPEATABLE:
            raise Unsupported(
                "a trial cannot read this source a second time",
                code="HF-E7117",
                found=source.kind,
                expected=", ".join(REPEATABLE),
                hint="write the input to files, Kafka or Delta first, and read it from there",
            )
        if source.options.get(_CLEANS, "off").lower() != "off":
            raise Unsupported(
                "a trial would delete or move the files of this source",
                code="HF-E7118",
                found=f"cleanSource={source.options[_CLEANS]}",
                expected="cleanSource=off",
                hint="make the option a parameter of the job and set it to `off` for the trial",
            )


def chosen(sinks: Iterable[Sink], wanted: str | None, checkpoint: str) -> Sink:
    """Return the sink to which a savepoint belongs, by its name or by the checkpoint of the savepoint.

    Args:
        sinks: All sinks of the job.
        wanted: The name given by the user, or None.
        checkpoint: The checkpoint's address; it ends in the sink's name if there are several sinks.

    Raises:
        Invalid: The name is unknown, or several sinks match.
    """
    several = list(sinks)
    if len(several) == 1 and wanted is None:
        return several[0]
    name = wanted if wanted is not None else checkpoint.rstrip("/").rpartition("/")[2]
    wanted_sink = next((sink for sink in several if sink.name == name), None)
    if wanted_sink is None:
        raise Invalid(
            "unknown query" if wanted else "cannot determine which query of the job the savepoint belongs to",
            code="HF-E2397",
            found=name,
            expected=" or ".join(sink.name or "a query without a name" for sink in several),
            hint="choose a query with --query",
        )
    return wanted_sink
