"""Read a query's plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from holdfast.engine.connect.classic_only import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ID = re.compile(rf"#\d+|@[0-9a-f]+|{_UUID}")
# Each has an id, which its copies share: a frame that is joined with itself has one watermark.
_ANALYSED = "== Analyzed Logical Plan ==\n"
_WATERMARK = re.compile(f"EventTimeWatermark ({_UUID})")


def analysed_plan(frame: DataFrame) -> str:
    """The analysed plan as text. Over Spark Connect it comes from the server's explanation of the frame."""
    if is_connect(frame):
        remote: Any = frame
        # `explain` is the public one, and prints it.
        _, _, rest = remote._explain_string(extended=True).partition(_ANALYSED)
        return str(rest.partition("\n== ")[0])
    plan: Any = frame._jdf.queryExecution().analyzed()
    return str(plan.toString())


def watermark_count(frame: DataFrame) -> int:
    """How many watermarks a frame's plan has; as many does Spark keep apart while the query runs."""
    return len(set(_WATERMARK.findall(analysed_plan(frame))))


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
