"""Read a query's plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ID = re.compile(rf"#\d+|@[0-9a-f]+|{_UUID}")
# Each has an id, which its copies share: a frame that is joined with itself has one watermark.
_WATERMARK = re.compile(f"EventTimeWatermark ({_UUID})")


def watermark_count(frame: DataFrame) -> int:
    """How many watermarks a frame's plan has; as many does Spark keep apart while the query runs."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    return len(set(_WATERMARK.findall(plan.toString())))


def optimised_plan(frame: DataFrame) -> str:
    """The optimised plan as text, with ids numbered in the order in which they come.

    A streaming frame has no optimised plan of its own, so the session's optimiser is asked. What Spark does
    with a plan depends on nothing else, so equal plans are the same work.
    """
    spark: Any = frame.sparkSession
    plan = frame._jdf.queryExecution().analyzed()
    text = spark._jsparkSession.sessionState().optimizer().execute(plan).toString()
    seen: dict[str, str] = {}
    return _ID.sub(lambda found: seen.setdefault(found[0], f"#{len(seen)}"), text)
