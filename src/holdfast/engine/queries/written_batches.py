"""Which batch of a query a table has already, by what Spark and Delta note beside its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.engine.state.checkpoint_files import names_in
from holdfast.formats.logs.sink_log import LOG_DIRECTORY, newest_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def newest_in_files(spark: SparkSession, path: str) -> int | None:
    """The newest batch in the log of a table of files; None where it has none.

    Raises:
        Unavailable: The storage does not answer.
    """
    return newest_batch(names_in(spark, path, LOG_DIRECTORY))


def newest_in_delta(spark: SparkSession, target: str, *, is_path: bool, query_id: str) -> int | None:
    """The newest batch of a query in a Delta table.

    Args:
        spark: A session with Delta.
        target: The table.
        is_path: Whether it is a path, and no table of the catalog.
        query_id: The query.

    Returns:
        The batch; None where the table is not there, has none of the query, or has forgotten it, as Delta
        does after `delta.setTransactionRetentionDuration`.
    """
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    if not is_path and not spark.catalog.tableExists(target):
        return None
    table = target if is_path else session.sessionState().sqlParser().parseTableIdentifier(target)
    snapshot = jvm.org.apache.spark.sql.delta.DeltaLog.forTableWithSnapshot(session, table)._2()
    version = snapshot.transactions().get(query_id)
    return None if version.isEmpty() else int(version.get())
