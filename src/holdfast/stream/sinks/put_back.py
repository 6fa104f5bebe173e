"""The comparison of a checkpoint's batch numbers with those in the table that its query writes to.

A file sink and a Delta table skip a batch that they already have. A query repeats only its last batch, so
this loses nothing, unless an older or a new checkpoint is used with the same table: its next batches reuse
the numbers of written ones, and their rows would be dropped silently. Conversely, Spark's file sink fails
permanently if its log lacks a batch before the one with which the query resumes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.engine.checkpoint_files import names_in, newest_number, read_text, write_text
from holdfast.engine.connect import is_connect
from holdfast.engine.queries.batch_facts import newest_in_delta
from holdfast.errors import Conflict
from holdfast.formats.logs.batch_logs import OffsetLog, parse_offsets, parse_query
from holdfast.formats.logs.notes import LEDGER_NOTE, LedgerNote, parse_ledger_note
from holdfast.formats.logs.table_logs import LOG_DIRECTORY, empty_log, missing_batch, newest_batch
from holdfast.layout import COMMITS, METADATA, OFFSETS
from holdfast.stream.cautions import ForkWarning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.stream.sinks.ledger import Ledger


def require_files_in_step(spark: SparkSession, checkpoint: str, *, path: str) -> None:
    """Raise an error for a query whose table of files does not match its checkpoint.

    If the table has no files and the query does not begin with batch 0, the log of the table is prepared. The
    function lists the logs of the table and of the checkpoint. Over Spark Connect nothing is checked.

    Raises:
        Conflict: The table has batches that the checkpoint has not planned, or lacks an earlier one.
        Unavailable: The storage does not answer.
    """
    if is_connect(spark):
        return  # the server does not show the log of a table to a client
    names = names_in(spark, path, LOG_DIRECTORY)
    _require_in_step(newest_batch(names), spark, path, checkpoint)
    committed = newest_number(spark, checkpoint, COMMITS)
    if committed is None or (missing := missing_batch(names, committed + 1)) is None:
        return
    wanted = empty_log(committed)
    if wanted.keys() >= set(names) and set(names_in(spark, path, ".")) <= {LOG_DIRECTORY}:
        for name in wanted.keys() - set(names):  # a killed start may have left files
            write_text(spark, path, name, wanted[name].decode(), folder=LOG_DIRECTORY)
        return
    where = f"{path.rstrip('/')}/{LOG_DIRECTORY}/{missing}"
    raise Conflict(
        "the table's log lacks a batch, so Spark's file sink would fail at its next compaction",
        code="HF-E4071",
        where=path,
        found=f"no entry for batch {missing}",
        expected=f"an entry for every batch up to {committed}, the newest that the checkpoint has committed",
        hint=f"if batch {missing} wrote no files, as after a rescale by an earlier release, create the file"
        f" {where} with the two characters v1; otherwise give the query a new, empty directory",
    )


def require_delta_in_step(
    spark: SparkSession, checkpoint: str, *, target: str, is_path: bool, appends: bool = True
) -> None:
    """Raise an error for a query whose Delta table has batches that its checkpoint has not planned.

    Delta distinguishes queries, so a checkpoint with a new id may start at any batch. Over Spark Connect
    nothing is checked.

    Raises:
        Conflict: The table has batches that the checkpoint has not planned.
        Corrupt: The metadata of the checkpoint lacks the query's id.
        Unavailable: The storage does not answer.
    """
    if is_connect(spark):
        return  # only Delta's library in the JVM can read the batches of queries
    query_id = query_id_in(spark, checkpoint)
    written = newest_in_delta(spark, target, is_path=is_path)
    own = None if query_id is None else written.pop(query_id, None)
    _require_in_step(own, spark, target, checkpoint)
    if own is None and appends:
        warn_of_fork(target, written)


def warn_of_fork_in_ledger(
    spark: SparkSession, checkpoint: str, *, ledger: Ledger, sink: str, target: str
) -> None:
    """Issue a warning if a ledger has batches of other queries in a sink, and none of this query.

    Raises:
        Corrupt: The metadata of the checkpoint lacks the query's id.
        Unavailable: The storage or the ledger does not answer.
    """
    queries = {record.query_id for record in ledger.history(sink)}
    if query_id_in(spark, checkpoint) not in queries:
        warn_of_fork(target, queries)


@dataclass(slots=True)
class LedgerWitness:
    """The evidence in a checkpoint of the batches that a ledger must have.

    Args:
        checkpoint: The address of the query's checkpoint.
        sink: The name of the sink in the ledger.
    """

    checkpoint: str
    sink: str
    _is_noted: bool = False

    def batch_owed(self, spark: SparkSession, query_id: str, batch_id: int, newest: int | None) -> int | None:
        """Return the newest batch before `batch_id` that the ledger must have, or None if there is none.

        This reads two small files, and one more for each maintenance batch before `batch_id`.

        Args:
            spark: The session.
            query_id: The id of the query.
            batch_id: The batch that is about to be written; Spark has committed all batches before it.
            newest: The newest batch of the query in the ledger, or None if the ledger has none.

        Raises:
            Corrupt: A file of the checkpoint cannot be parsed.
            Unavailable: The storage does not answer.
        """
        if newest is None and not self._note(spark).has_written(query_id, self.sink, batch_id):
            return None
        owed = batch_id - 1
        after = _offsets(spark, self.checkpoint, owed)
        while after is not None and owed > 0:
            before = _offsets(spark, self.checkpoint, owed - 1)
            if before is None or not after.is_maintenance_after(before):
                break
            owed, after = owed - 1, before
        return owed

    def note(self, spark: SparkSession, query_id: str, batch_id: int) -> None:
        """Record in the checkpoint that the ledger has a batch, at the first batch after a start.

        Over Spark Connect nothing is recorded, because a client cannot write into a checkpoint.

        Raises:
            Corrupt: An existing note cannot be parsed.
            Unavailable: The storage does not answer.
        """
        if self._is_noted or is_connect(spark):
            return
        noted = self._note(spark)
        changed = noted.with_batch(query_id, self.sink, batch_id)
        if changed != noted:
            write_text(spark, self.checkpoint, LEDGER_NOTE, changed.render())
        self._is_noted = True

    def _note(self, spark: SparkSession) -> LedgerNote:
        text = read_text(spark, self.checkpoint, LEDGER_NOTE)
        return LedgerNote("") if text is None else parse_ledger_note(text, f"{self.checkpoint}/{LEDGER_NOTE}")


def query_id_in(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the id of a checkpoint's query, or None before its first start.

    Raises:
        Corrupt: The metadata of the checkpoint lacks the id.
        Unavailable: The storage does not answer.
    """
    metadata = read_text(spark, checkpoint, METADATA, folder=".")
    if metadata is None:
        return None
    return parse_query(metadata.encode(), f"{checkpoint}/{METADATA}").query_id


def first_unplanned(spark: SparkSession, checkpoint: str) -> int:
    """Return the first batch that a query has not planned; the previous batch may run again.

    Raises:
        Unavailable: The storage does not answer.
    """
    planned = newest_number(spark, checkpoint, OFFSETS)
    return 0 if planned is None else planned + 1


def warn_of_fork(target: str, others: Iterable[str]) -> None:
    """Issue a warning that a target has rows of other queries, to which this query adds its own."""
    queries = sorted(others)
    if queries:
        warnings.warn(
            ForkWarning(
                f"{target} has rows of a different query, and this query adds its own\n"
                f"  {len(queries)} other{'s' if len(queries) > 1 else ''}, among them {queries[0]}; if this"
                " query reads the same input, as a fork or a query on a new checkpoint does, rows are"
                " written twice\n"
                "hint: give a fork a separate target. To silence:"
                ' warnings.filterwarnings("ignore", category=holdfast.ForkWarning)'
            ),
            stacklevel=2,
        )


def _offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> OffsetLog | None:
    text = read_text(spark, checkpoint, str(batch_id), folder=OFFSETS)
    return None if text is None else parse_offsets(text.encode(), f"{checkpoint}/{OFFSETS}/{batch_id}")


def _require_in_step(written: int | None, spark: SparkSession, target: str, checkpoint: str) -> None:
    if written is None:
        return
    first = first_unplanned(spark, checkpoint)
    if written >= first:
        raise Conflict(
            "the table has batches that the checkpoint does not have",
            code="HF-E4072",
            where=target,
            found=f"batch {written}",
            expected=f"no batch after batch {first - 1}"
            if first
            else "no batch, because the checkpoint is new",
            hint="give the query a separate table, or the checkpoint that belongs to this table; otherwise"
            " the rows of its next batches would be dropped",
        )
