"""Late rows: how many a query dropped, and the rows themselves at the side of an operator.

Spark drops a late row inside of its operators and shows it nowhere. So the rows are judged a second time
beside the operator, by the same watermark: a branch of the same plan, over the same batch of the same source.
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
    """Count what the stateful operators of one batch dropped as late.

    Reads a progress as Spark gives it: `query.lastProgress` or the JSON of a listener's event. Each
    stateful operator counts what it drops itself; an operator behind it never sees that row, so the sum
    counts nothing twice, except a row that two branches of one plan read.

    A join and a deduplication count rows. A windowed aggregation is combined before it meets its
    state, so it counts late *groups* of a batch: at least one if there was a late row, and at most as
    many as there were. With `side_outputs=True` the rows themselves are put out, and can be counted. A
    keyed operator counts events, and tells it in a metric of its own.
    """
    dropped = sum(int(operator.get(DROPPED, 0)) for operator in progress.get("stateOperators") or ())
    return dropped + late_events(progress)


def check_side_outputs(frames: Sequence[DataFrame], columns: Sequence[str], *, where: str) -> None:
    """Refuse streams whose late rows cannot be told as Spark tells them.

    Args:
        frames: The streams of the operator, with watermarks.
        columns: The columns of the operator's result.
        where: The operator, for errors.

    Raises:
        Invalid: A frame is not a stream or has an operator with state in it, two streams read one source, or
            a column has the name of a side column.
    """
    from holdfast.engine.described import relations, steps_of
    from holdfast.worker.packets import SIDE_COLUMNS

    for frame in frames:
        require_stream(frame, where=where, hint="leave side_outputs=True out: no row at rest is late")
        stateful = [step.kind for step in steps_of(frame) if step.stateful]
        if stateful:
            raise Invalid(
                "late rows are put out at the side of the first operator with state, and this is a later one",
                code="HF-E2334",
                where=where,
                found=f"{stateful[0]} before it",
                hint="leave side_outputs=True out here, and give it to the first operator",
            )
    read = [relation for frame in frames for relation in relations(frame)]
    if any(one.equals(other) for at, one in enumerate(read) for other in read[:at]):
        raise Invalid(
            "both streams read one source, which Spark then reads twice, each time up to another point",
            code="HF-E2335",
            where=where,
            hint="leave side_outputs=True out, or read the source with spark.readStream once for each",
        )
    fact = "a column has the name of a side output's"
    refuse_repeated(columns, where=where, taken=SIDE_COLUMNS, fact=fact, hint="rename it before the operator")


def with_late_rows(main: DataFrame, sides: Sequence[DataFrame]) -> DataFrame:
    """The rows of an operator, and at their side the late ones, in the columns that keyed state has for it.

    Args:
        main: What the operator puts out.
        sides: Of each stream what `late_side` gave.
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
    """The rows of a stream that Spark drops as late.

    Args:
        rows: The stream, with its watermark, as it meets the operator.
        end: What Spark compares with the watermark: the row's time, or the end of its window.
        stream: The stream's name.
        event: The stream's own columns.
        shown: Columns of the operator's result that a late row has too.
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
    """Refuse late rows at the side of a whole result: Spark drops none there.

    Raises:
        Invalid: The mode is `complete` and the frame has late rows at its side.
    """
    if mode == "complete" and reads_late_watermark(frame):
        raise Invalid(
            "in output mode `complete` Spark drops no late row, so there is none for the side output",
            code="HF-E2336",
            found='mode="complete" and side_outputs=True',
            expected="mode append or update",
            hint="leave side_outputs=True out of the operator",
        )
