"""Read a query's plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Each has an id, which its copies share: a frame that is joined with itself has one watermark.
_WATERMARK = re.compile(r"EventTimeWatermark ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


def watermark_count(frame: DataFrame) -> int:
    """How many watermarks a frame's plan has; as many does Spark keep apart while the query runs."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    return len(set(_WATERMARK.findall(plan.toString())))
