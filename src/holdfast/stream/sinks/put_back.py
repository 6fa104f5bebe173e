"""A checkpoint that was put back, under a table that has later batches.

A sink of files and a Delta table skip a batch that they have. A query runs again only the batch that it ran
last, so that loses nothing, until somebody puts an older checkpoint, or a new one, under the same table: the
batches that come have the numbers of others, and their rows would be thrown away without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.connect.classic_only import is_connect
from holdfast.engine.queries.written_batches import newest_in_delta, newest_in_files
from holdfast.engine.state.checkpoint_files import newest_number, read_text
from holdfast.errors import Conflict
from holdfast.formats.logs.query import parse_query
from holdfast.layout import METADATA, OFFSETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_files_in_step(spark: SparkSession, checkpoint: str, *, path: str) -> None:
    """Refuse to start a query whose table of files has batches that its checkpoint has not planned.

    Costs a listing of the table's log and of the checkpoint's. Over Spark Connect it is not looked at.

    Raises:
        Conflict: It has.
        Unavailable: The storage does not answer.
    """
    if is_connect(spark):
        return  # the server's reader hides the log of a table from a client
    _require_in_step(newest_in_files(spark, path), spark, path, checkpoint)


def require_delta_in_step(spark: SparkSession, checkpoint: str, *, target: str, is_path: bool) -> None:
    """The same for a Delta table, which tells queries apart: a checkpoint with a new id may go on anywhere.

    Over Spark Connect it is not looked at.

    Raises:
        Conflict: It has.
        Corrupt: The checkpoint does not tell the query's id.
        Unavailable: The storage does not answer.
    """
    if is_connect(spark):
        return  # what Delta notes of queries only its library in the JVM tells
    metadata = read_text(spark, checkpoint, METADATA, folder=".")
    if metadata is not None:
        query = parse_query(metadata.encode(), f"{checkpoint}/{METADATA}")
        written = newest_in_delta(spark, target, is_path=is_path, query_id=query.query_id)
        _require_in_step(written, spark, target, checkpoint)


def _require_in_step(written: int | None, spark: SparkSession, target: str, checkpoint: str) -> None:
    if written is None:
        return
    planned = newest_number(spark, checkpoint, OFFSETS)
    first = 0 if planned is None else planned + 1
    if written >= first:
        raise Conflict(
            "the table has batches that the checkpoint does not know",
            where=target,
            found=f"batch {written}",
            expected=f"none after batch {planned}" if planned is not None else "none: the checkpoint is new",
            hint="rows of the batches that come would be thrown away, as if the table had them; give the"
            " query a table of its own, or the checkpoint that belongs to this one",
        )
