"""The replacement of transformWithState's dispatcher by a function of Holdfast.

PySpark's own dispatcher sets the key and waits before each group, and never gives a processor all groups of a
partition. The function that Spark pickles for it is an ordinary function, with the same signature in all
known versions, so a function of Holdfast can replace it. The rest of the operator is Spark's: the shuffle,
the state store, the timers and the checkpoint.

With an unknown version of Spark, or over Spark Connect, where a client has no JVM, the public operator is
used, one group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.config.spark_versions import OLDEST, TOO_NEW, installed, minor
from holdfast.engine.connect import is_connect
from holdfast.engine.planned_state import METRIC_COLUMN, analysed_plan
from holdfast.worker.declarations.types import schema_text
from holdfast.worker.interface import Moment
from holdfast.worker.operator import TaskOperator
from holdfast.worker.packets import answer_schema
from holdfast.worker.passes import Packet, TaskOutput
from holdfast.worker.pickled_operator import PickledOperator
from holdfast.worker.state.spark_store import PlainStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


KEY_GROUP = "key_group"
# The result type of the public operator: rows in Arrow's format, because Spark would convert them one by one.
_IN_BYTES = "payload binary, counts array<bigint>"


def grafts_into(frame: DataFrame) -> bool:
    """Return whether Holdfast's function can replace the dispatcher in a frame's plan."""
    return not is_connect(frame) and grafts()


def grafts() -> bool:
    """Return whether the dispatcher of the installed version of Spark is known."""
    version = installed("pyspark")
    return version is not None and OLDEST <= minor(version) < TOO_NEW


def stateful(packed: DataFrame, operator: TaskOperator, *, event_time: bool, graft: bool) -> DataFrame:
    """Run the packets of a stream through an operator, and return packed results.

    Args:
        packed: The packets, with a column for the key group.
        operator: The operator that runs in the tasks.
        event_time: Whether timers use the watermark; fixed at the query's first start.
        graft: Whether to replace the dispatcher; otherwise the public operator is used.
    """
    time_mode = "EventTime" if event_time else "None"
    from pyspark.sql import DataFrame, functions
    from pyspark.sql.types import StructType

    if not graft:
        # Without event time, the public operator does not pass the batch's time to a processor.
        timed = packed.withColumn("now_ms", batch_time_ms())
        public = _public(operator)
        return timed.groupBy(KEY_GROUP).transformWithState(public, _IN_BYTES, "Update", time_mode)
    from pyspark.util import PythonEvalType

    answer = StructType.fromDDL(schema_text(answer_schema(operator.lane.output)))
    make: Any = vars(functions)["pandas_udf"]
    function = make(
        PickledOperator(operator),
        returnType=answer,
        functionType=PythonEvalType.SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF,
    )
    column = function(*[packed[name] for name in packed.columns])
    session: Any = packed.sparkSession
    grouped: Any = packed.groupBy(KEY_GROUP)
    made = grouped._jgd.transformWithStateInPySpark(
        column._jc, session._jsparkSession.parseDataType(answer.json()), "Update", time_mode, None, ""
    )
    return DataFrame(made, session)


def batch_time_ms() -> Column:
    """Return the time of a batch, as an expression that Spark interprets.

    In generated code Spark writes the time as a literal, and so compiles the code again for each batch and
    runs it without warm-up. It generates no code for a fold over an empty array.
    """
    from pyspark.sql import functions as F  # noqa: N812 - needs Spark

    nothing = F.array().cast("array<int>")
    return F.aggregate(nothing, F.unix_millis(F.current_timestamp()), lambda time, element: time)  # noqa: ARG005 - Spark's two


def has_operator(frame: DataFrame, metric: str) -> bool:
    """Return whether a frame's plan already observes this metric."""
    return f"CollectMetrics {metric}," in analysed_plan(frame)


def mark(number: int) -> Column:
    """Return a metric column with the number of an operator's definition, read by `definitions_in`."""
    from pyspark.sql import functions as F  # noqa: N812 - needs Spark

    return F.max(F.lit(number)).alias(METRIC_COLUMN)


def _public(operator: TaskOperator) -> Any:
    """Return the operator as a StatefulProcessor that uses only documented calls."""
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
    )

    group_at = operator.lane.layout.numbering.group_at

    class GroupAtATime(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.store = PlainStore(handle)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 - Spark's
            rows = list(rows)
            group = group_at(key[0])
            packets = [Packet(group, row.stream, row.part, row.seq, row.payload) for row in rows]
            return self._answers(group, packets, timerValues, rows[0].now_ms)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - Spark's
            now_ms = timerValues.getCurrentProcessingTimeInMs()
            return self._answers(group_at(key[0]), [], timerValues, now_ms)

        def close(self) -> None:
            pass

        def _answers(self, group: int, packets: Any, times: Any, now_ms: int) -> Iterator[Any]:
            watermark = times.getCurrentWatermarkInMs() if operator.event_time else None
            moment = Moment(now_ms, watermark, None)
            for answer in operator.one_group(self.store, group, packets, moment):
                yield _in_bytes(answer, operator.lane.count_names)

    return GroupAtATime()


def _in_bytes(answer: TaskOutput, names: Sequence[str]) -> Any:
    """Return a result as a row of the public operator."""
    from pyspark.sql import Row

    payload = answer.rows.serialize().to_pybytes() if answer.rows is not None else b""
    return Row(payload=payload, counts=answer.listed(names))
