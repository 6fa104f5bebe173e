"""Late rows: the number that a query dropped, and the rows themselves as a side output of an operator.

Spark drops late rows inside its operators without showing them. So the rows are compared with the same
watermark a second time, outside the operator, in a branch of the same plan over the same batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.queries.batch_facts import COLUMN, late_watermark, reads_late_watermark
from holdfast.engine.queries.watch import late_events
from holdfast.errors import Invalid
from holdfast.stream.event_time import quoted, refuse_repeated, require_stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DROPPED: Final = "numRowsDroppedByWatermark"


def late_rows(progress: Mapping[str, Any]) -> int:
    """Return the number of rows that the stateful operators of one batch dropped as late.

    The argument is a progress as reported by Spark: `query.lastProgress` or the JSON of a listener's event.
    Each stateful operator counts its own drops, and a dropped row does not reach later operators, so no row
    is counted twice, except a row that two branches of a plan read.

    A join and a deduplication count rows. A windowed aggregation combines rows before it reads its state, so
    it counts late *groups* of a batch: at least one if there was a late row, and at most as many as there
    were late rows. With `side_outputs=True` the rows themselves are returned, and can be counted. A keyed
    operator counts events in its own metric, which is included.

    Args:
        progress: The progress of one batch.

    Example:
        progress = {"stateOperators": [{"numRowsDroppedByWatermark": 2}]}  # or query.lastProgress
        assert hf.late_rows(progress) == 2
    """
    dropped = sum(int(operator.get(DROPPED, 0)) for operator in progress.get("stateOperators") or ())
    return dropped + late_events(progress)


def check_side_outputs(frames: Sequence[DataFrame], columns: Sequence[str], *, where: str) -> None:
    """Raise an error for streams whose late rows cannot be determined in the same way as by Spark.

    Args:
        frames: The streams of the operator, with watermarks.
        columns: The columns of the operator's result.
        where: The operator, for error messages.

    Raises:
        Invalid: A frame is not a stream or contains a stateful operator, two streams read the same source, or
            a column has the name of a side-output column.
    """
    from holdfast.engine.described import relations, steps_of
    from holdfast.worker.packets import SIDE_COLUMNS

    for frame in frames:
        require_stream(frame, where=where, hint="remove side_outputs=True: a batch frame has no late rows")
        stateful = [step.kind for step in steps_of(frame) if step.stateful]
        if stateful:
            raise Invalid(
                "side_outputs=True is supported only on the first stateful operator of a query",
                code="HF-E2334",
                where=where,
                found=f"{stateful[0]} before this operator",
                hint="remove side_outputs=True here, and set it on the first operator",
            )
    read = [relation for frame in frames for relation in relations(frame)]
    if any(one.equals(other) for at, one in enumerate(read) for other in read[:at]):
        raise Invalid(
            "side_outputs=True does not support two streams of one source, because their offsets differ",
            code="HF-E2335",
            where=where,
            hint="remove side_outputs=True, or call spark.readStream once for each stream",
        )
    fact = "a column has the name of a side-output column"
    refuse_repeated(
        columns, where=where, taken=SIDE_COLUMNS, fact=fact, hint="rename the column before the operator"
    )


def with_late_rows(main: DataFrame, sides: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of an operator and its late rows, with the same side-output columns as keyed state.

    Args:
        main: The output of the operator.
        sides: The result of `late_side` for each stream.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.worker.packets import SIDE_COLUMNS

    none = F.lit(None).cast("string")
    whole = main.select("*", *(none.alias(name) for name in SIDE_COLUMNS))
    for side in sides:
        filled = [
            F.col(quoted(field.name))
            if field.name in side.columns
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in whole.schema.fields
        ]
        whole = whole.union(side.select(*filled))
    return whole


def late_side(
    rows: DataFrame,
    end: Column,
    *,
    stream: str,
    event: Sequence[str],
    shown: Mapping[str, Column] | None = None,
) -> DataFrame:
    """Return the rows of a stream that Spark drops as late.

    Args:
        rows: The stream, with its watermark, as it reaches the operator.
        end: The time that Spark compares with the watermark: the time of the row or the end of its window.
        stream: The stream's name.
        event: The columns of the stream.
        shown: The columns of the operator's result that a late row also has.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    watermark = F.broadcast(late_watermark(rows.sparkSession))
    late = rows.join(watermark, end <= F.timestamp_millis(F.col(COLUMN)))
    return late.select(
        *(column.alias(name) for name, column in (shown or {}).items()),
        F.lit("late").alias("side"),
        F.lit(stream).alias("side_stream"),
        F.to_json(F.struct(*(quoted(name) for name in event))).alias("side_event"),
    )


def refuse_complete(frame: DataFrame, mode: str | None) -> None:
    """Raise an error for late rows as a side output in output mode `complete`, in which Spark drops none.

    Raises:
        Invalid: The mode is `complete` and the frame has late rows as a side output.
    """
    if mode == "complete" and reads_late_watermark(frame):
        raise Invalid(
            (
                "side_outputs=True is not supported in output mode `complete`, in which Spark drops"
                " no late rows"
            ),
            code="HF-E2336",
            hint="remove side_outputs=True from the operator, or use mode append or update",
        )
