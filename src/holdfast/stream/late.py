"""How many rows a query dropped because they came after the watermark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.engine.queries.watch import late_events

DROPPED: Final = "numRowsDroppedByWatermark"


def late_rows(progress: Mapping[str, Any]) -> int:
    """Count what the stateful operators of one batch dropped as late.

    Reads a progress as Spark gives it: `query.lastProgress` or the JSON of a listener's event. Each
    stateful operator counts what it drops itself; an operator behind it never sees that row, so the sum
    counts nothing twice, except a row that two branches of one plan read.

    A join and a deduplication count rows. A windowed aggregation is combined before it meets its
    state, so it counts late *groups* of a batch: at least one if there was a late row, and at most as
    many as there were. A keyed operator counts events, and tells it in a metric of its own.
    """
    dropped = sum(int(operator.get(DROPPED, 0)) for operator in progress.get("stateOperators") or ())
    return dropped + late_events(progress)
