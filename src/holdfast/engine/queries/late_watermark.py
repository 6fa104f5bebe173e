"""The watermark by which Spark takes rows of a batch for late, as a table of one row.

Spark judges lateness in batch N by the watermark that batch N - 1 ran under, and shows it to no expression.
It is in the offset log before batch N is planned, and stays there for as long as batch N can be repeated. So
one small task of each batch reads it there, and a repeated batch reads the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast import layout
from holdfast.engine.connect.classic_only import is_connect
from holdfast.errors import Corrupt, Invalid, NotFound
from holdfast.formats.logs.offset_log import parse_offsets
from holdfast.storage import open_storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.storage.port import Storage

# The column of the one row, in milliseconds since 1970.
COLUMN: Final = "holdfast_late_watermark_ms"
# What the tasks of a query know its checkpoint by, once Holdfast has started it.
CHECKPOINT_PROPERTY: Final = "holdfast.checkpoint"

_BATCH_PROPERTY: Final = "streaming.sql.batchId"
# Without it Spark judges lateness by the batch's own watermark, as it did before 3.4.
_CHAINED_KEY: Final = "spark.sql.streaming.statefulOperator.allowMultiple"


def late_watermark(spark: SparkSession) -> DataFrame:
    """The watermark for late rows of whichever batch reads it: one row, in the column `COLUMN`."""
    batches_back = 1 if (spark.conf.get(_CHAINED_KEY, None) or "true").lower() == "true" else 0
    row = spark.sparkContext.parallelize([batches_back], 1).map(_of_this_batch)
    return spark.createDataFrame(row, f"{COLUMN} long")


def reads_late_watermark(frame: DataFrame) -> bool:
    """Whether a frame has late rows at its side; over Spark Connect there are none."""
    if is_connect(frame):
        return False
    plan: Any = frame._jdf.queryExecution().analyzed()
    return COLUMN in plan.toString()


def watermark_before(storage: Storage, batch_id: int, batches_back: int = 1) -> int:
    """The watermark for late rows of a batch, in milliseconds.

    Args:
        storage: The query's checkpoint.
        batch_id: The batch.
        batches_back: How many batches before it the watermark is from.

    Raises:
        Corrupt: The offset log lacks that batch.
    """
    number = batch_id - batches_back
    if number < 0:
        return 0
    name = layout.LogFile(layout.Log.OFFSETS, number).render()
    try:
        data = storage.read(name)
    except NotFound as error:
        raise Corrupt(
            "the offset log lacks the batch whose watermark decides which rows are late",
            where=f"{storage.uri}/{name}",
            hint="see what is left of the checkpoint with `holdfast checkpoint verify`",
        ) from error
    return parse_offsets(data, f"{storage.uri}/{name}").watermark_ms


def _of_this_batch(batches_back: int) -> tuple[int]:
    """Runs in a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    checkpoint = None if context is None else context.getLocalProperty(CHECKPOINT_PROPERTY)
    batch = None if context is None else context.getLocalProperty(_BATCH_PROPERTY)
    if checkpoint is None or batch is None:
        raise Invalid(
            "late rows are put out at the side, and the query was not started by Holdfast",
            hint="start it with hf.sink(frame)…start(checkpoint=…), or by hf.adopt(writer)",
        )
    return (watermark_before(open_storage(checkpoint), int(batch), batches_back),)
