"""Plans as text that can be compared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plan(spark: SparkSession, frame: DataFrame) -> str:
    """The optimised plan as text, with ids numbered in the order in which they come.

    A streaming frame has no optimised plan of its own, so the session's optimiser is asked. What Spark does
    with a plan depends on nothing else, so equal plans are the same work.
    """
    state: Any = spark._jsparkSession.sessionState()
    text = state.optimizer().execute(frame._jdf.queryExecution().analyzed()).toString()
    seen: dict[str, str] = {}
    return re.sub(
        r"#\d+|@[0-9a-f]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        lambda found: seen.setdefault(found[0], f"#{len(seen)}"),
        text,
    )
