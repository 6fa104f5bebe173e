"""Which batch of a query a table has already, by what Spark and Delta note beside its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def newest_in_delta(spark: SparkSession, target: str, *, is_path: bool) -> dict[str, int]:
    """The newest batch of each query in a Delta table, by the query's id.

    Args:
        spark: A session with Delta.
        target: The table.
        is_path: Whether it is a path, and no table of the catalog.

    Returns:
        None where the table is not there; without those that Delta has forgotten, as it does after
        `delta.setTransactionRetentionDuration`.
    """
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    if not is_path and not spark.catalog.tableExists(target):
        return {}
    log = jvm.org.apache.spark.sql.delta.DeltaLog
    if type(log).__name__ != "JavaClass":  # no Delta in the session: the writer says so
        return {}
    table = target if is_path else session.sessionState().sqlParser().parseTableIdentifier(target)
    snapshot = log.forTableWithSnapshot(session, table)._2()
    written, entries = snapshot.transactions(), {}
    names = written.keysIterator()
    while names.hasNext():
        name = names.next()
        entries[str(name)] = int(written.apply(name))
    return entries
