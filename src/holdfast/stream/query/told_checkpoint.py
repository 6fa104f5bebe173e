"""Tell the parts of a query that read its offset log where its checkpoint is.

A frame is written before anybody knows its checkpoint. So it is told at the start: tasks by a property that
Spark hands on with each of them, the source of ticks by a file on the driver's machine, where it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.engine.plans.plan_sources import tick_lines
from holdfast.engine.queries.late_watermark import CHECKPOINT_PROPERTY, reads_late_watermark
from holdfast.engine.state.checkpoint_files import qualified
from holdfast.stream.idleness import Told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def told_checkpoint(frame: DataFrame, checkpoint: str) -> Iterator[str]:
    """Tell a frame's parts where its checkpoint is; call it right before the query starts.

    Returns:
        The properties of this thread that are to be taken away once it has.

    Raises:
        Unavailable: Spark does not know the checkpoint's file system.
    """
    lines = tick_lines(frame)
    late = reads_late_watermark(frame)
    if not lines and not late:
        return
    address = qualified(frame.sparkSession, checkpoint)
    for ticks in lines:
        Told(address, ticks.own, ticks.watched).write(ticks.place)
    if late:
        frame.sparkSession.sparkContext.setLocalProperty(CHECKPOINT_PROPERTY, address)
        yield CHECKPOINT_PROPERTY
