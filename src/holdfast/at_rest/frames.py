"""States as DataFrames of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.at_rest.naming import NamedOperator, NamedState
from holdfast.at_rest.reading import StateReader
from holdfast.at_rest.tables import state_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(
    reader: StateReader, operator: NamedOperator, state: NamedState, spark: SparkSession | None
) -> DataFrame:
    """The rows of a state as a DataFrame; read here, and handed to Spark as Arrow.

    Cost: about 3 microseconds a row in this process, and its memory. Spark's own reader of state takes
    several times as long, knows neither savepoints nor Holdfast's keyed state, and names no columns.

    Args:
        reader: The checkpoint or savepoint at its batch.
        operator: The operator.
        state: One of its states.
        spark: The session; the running one, or a new one, by default.
    """
    from pyspark.sql import SparkSession as Session  # noqa: PLC0415 - only who asks for a DataFrame has Spark

    from holdfast.engine.session import session  # noqa: PLC0415 - as above

    running: Any = spark or Session.getActiveSession() or session("holdfast-state")
    table = state_table(reader, operator, state).whole()
    return running.createDataFrame(table)  # type: ignore[no-any-return]
