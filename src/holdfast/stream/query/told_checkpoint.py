"""Tell the parts of a query that read its offset log where its checkpoint is.

A frame is written before anybody knows its checkpoint. So tasks are told at the start, by a property that Spark
hands on with each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.engine.queries.late_watermark import CHECKPOINT_PROPERTY, reads_late_watermark
from holdfast.engine.state.checkpoint_files import qualified

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def told_checkpoint(frame: DataFrame, checkpoint: str) -> Iterator[str]:
    """Tell a frame's parts where its checkpoint is; call it right before the query starts.

    Returns:
        The properties of this thread that are to be taken away once it has.

    Raises:
        Unavailable: Spark does not know the checkpoint's file system.
    """
    if reads_late_watermark(frame):
        address = qualified(frame.sparkSession, checkpoint)
        frame.sparkSession.sparkContext.setLocalProperty(CHECKPOINT_PROPERTY, address)
        yield CHECKPOINT_PROPERTY
