"""The export of states as Spark DataFrames, Parquet and JSON lines."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.at_rest.model import NamedState, StateForm
from holdfast.at_rest.state_reader import StateReader
from holdfast.at_rest.tables import column_names, state_table
from holdfast.errors import Conflict, Invalid, Unavailable, Unsupported
from holdfast.formats.operators import is_processor
from holdfast.formats.rows.plain import plain

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


_LOG: Final = logging.getLogger(__name__)


def frame(reader: StateReader, state: NamedState, spark: SparkSession | None) -> DataFrame:
    """Return the rows of a state as a DataFrame; this process reads them and passes them to Spark as Arrow.

    State that Holdfast cannot read, such as rows in Avro encoding, is read by Spark's own reader if possible,
    and a warning is logged.

    Cost: about 3 microseconds per row in this process, and memory for all rows. Spark's own state reader
    takes several times as long, does not support savepoints or Holdfast's keyed state, and does not name
    columns.

    Args:
        reader: The checkpoint or savepoint at its batch.
        state: The state.
        spark: The session; by default the running one, or else a new one.

    Raises:
        Unsupported: Neither Holdfast nor Spark can read the state.
    """
    from pyspark.sql import SparkSession as Session

    from holdfast.engine.session.session import session

    running: Any = spark or Session.getActiveSession() or session("holdfast-state")
    try:
        table = state_table(state).read_all()
    except Unsupported as error:
        if not state.source.spark_reads(state):
            raise
        _LOG.warning("%s; using Spark's reader instead", error.fact)
        return _by_spark(running, reader, state)
    return running.createDataFrame(table)  # type: ignore[no-any-return]


def _by_spark(spark: SparkSession, reader: StateReader, state: NamedState) -> DataFrame:
    """Return the rows of a state from Spark's state reader, with the columns named as in `state_table`."""
    # State readers need the coordinator of state stores, which Spark creates when streams are first listed.
    spark.streams.active  # noqa: B018 - for its side effect
    source = spark.read.format("statestore").option("operatorId", state.operator_id)
    source = source.option("batchId", reader.batch_id)
    if state.form is StateForm.ROWS:
        source = source.option("joinSide", state.name)
    elif is_processor(state.kind):
        source = source.option("stateVarName", state.name)
    value = ("value.value.*", "value.ttlExpirationMs") if state.ttl else ("value.*",)
    shown = value if state.value.names else ()
    frame = source.load(reader.storage.uri).select("key.*", *shown, "partition_id")
    # Spark's reader of a join returns neither the index of a row nor whether it has matched.
    hidden = {"index", "matched"} if state.form is StateForm.ROWS else set()
    names = [name for name in column_names(state) if name not in hidden]
    return frame.toDF(*names) if len(names) == len(frame.columns) else frame


PARQUET: Final = ".parquet"
LINES: Final = (".jsonl", ".ndjson")


def check_target(target: Path) -> None:
    """Check that a file can be written, before any state is read.

    Raises:
        Invalid: The extension of the file is not supported.
        Conflict: The file exists already.
        Unavailable: The directory of the file does not exist.
    """
    if target.suffix not in (PARQUET, *LINES):
        raise Invalid(
            "unsupported extension of the output file",
            code="HF-E2017",
            found=str(target),
            expected=f"a file name that ends in {PARQUET} or {LINES[0]}",
            hint="use `.parquet` for a smaller file, or `.jsonl` for readable text",
        )
    if target.exists():
        raise Conflict(
            "the output file already exists",
            code="HF-E4001",
            where=str(target),
            hint="give a different file, or delete the existing one",
        )
    if not target.parent.is_dir():
        raise Unavailable(
            "the directory of the output file does not exist",
            code="HF-E5001",
            where=str(target.parent),
            hint="create the directory, or give a file in an existing directory",
        )


def export(rows: pa.RecordBatchReader, target: Path) -> int:
    """Write rows to a new file, which exists only once it is complete.

    Args:
        rows: The rows, which are read while the file is written.
        target: The file; its extension sets the format.

    Returns:
        The number of rows.

    Raises:
        Invalid: The file's extension is not supported.
        Conflict: The file exists already.
        Unavailable: The file cannot be written.
    """
    check_target(target)
    with _beside(target) as part:
        return _parquet(rows, part) if target.suffix == PARQUET else _lines(rows, part)


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        os.link(part, target)
    except FileExistsError as error:
        raise Conflict(
            "the output file already exists",
            code="HF-E4001",
            where=str(target),
            hint="give a different file, or delete the existing one",
        ) from error
    except OSError as error:
        raise Unavailable(
            "the output file cannot be written",
            code="HF-E5002",
            where=str(target),
            found=str(error),
            hint="give a file on a different disk, or in a writable directory",
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _parquet(rows: pa.RecordBatchReader, part: Path) -> int:
    import pyarrow.parquet as pq

    count = 0
    with pq.ParquetWriter(part, rows.schema) as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _lines(rows: pa.RecordBatchReader, part: Path) -> int:
    count = 0
    with part.open("x", encoding="utf-8") as file:
        for batch in rows:
            for row in batch.to_pylist():
                file.write(json.dumps(plain(row), ensure_ascii=False) + "\n")
            count += batch.num_rows
    return count
