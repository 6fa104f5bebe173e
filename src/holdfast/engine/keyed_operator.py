"""Put a function of ours where transformWithState has its dispatcher.

PySpark's own dispatcher sets the key and waits before each group, and gives a processor no moment at
which all groups of a partition are known. The function that Spark pickles for it is ordinary, with a
signature that the versions we know share, so ours takes its place; everything else of the operator is
Spark's: the shuffle, the state store, the timers, the checkpoint.

Where the version is not one that we know, the public operator is used, one group at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.engine.definitions import METRIC_COLUMN
from holdfast.engine.versions import OLDEST, TOO_NEW, installed, minor
from holdfast.worker.interface import Moment
from holdfast.worker.kept.spark_store import PlainStore
from holdfast.worker.operator import Operator, answer_row, packets_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

KEY_GROUP = "key_group"


def grafts() -> bool:
    """Whether the installed Spark is one whose dispatcher we know."""
    version = installed("pyspark")
    return version is not None and OLDEST <= minor(version) < TOO_NEW


def stateful(packed: DataFrame, operator: Operator, *, event_time: bool, graft: bool) -> DataFrame:
    """The packets of a stream through the operator, as packed answers.

    Args:
        packed: Packets, with the key group in a column of its own.
        operator: What runs in the tasks.
        event_time: Whether timers run on the watermark; fixed at the query's first start.
        graft: Whether to take the dispatcher's place, or to use the public operator.
    """
    time_mode = "EventTime" if event_time else "None"
    if not graft:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - needs Spark

        # Without event time the public operator does not tell a processor the batch's time.
        timed = packed.withColumn("now_ms", F.unix_millis(F.current_timestamp()))
        public = _public(operator)
        return timed.groupBy(KEY_GROUP).transformWithState(public, answer_type(), "Update", time_mode)
    from pyspark.sql import DataFrame, functions  # noqa: PLC0415 - needs Spark
    from pyspark.util import PythonEvalType  # noqa: PLC0415 - as above

    answer = answer_type()
    make: Any = vars(functions)["pandas_udf"]
    function = make(
        operator.call,
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


def answer_type() -> StructType:
    """The columns of a packed answer."""
    from pyspark.sql.types import ArrayType, LongType, StructType  # noqa: PLC0415 - needs Spark

    return StructType().add("payload", "binary").add("counts", ArrayType(LongType()))


def has_operator(frame: DataFrame, metric: str) -> bool:
    """Whether a frame's plan observes this metric already."""
    plan: Any = frame._jdf.queryExecution().logical()
    return f"CollectMetrics {metric}," in plan.toString()


def mark(number: int) -> Column:
    """A column of an operator's metric that only names its definition; `engine.definitions` reads it."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - needs Spark

    return F.max(F.lit(number)).alias(METRIC_COLUMN)


def _public(operator: Operator) -> Any:
    """The operator as a StatefulProcessor, by the documented calls alone."""
    from pyspark.sql.streaming.stateful_processor import (  # noqa: PLC0415 - needs Spark
        StatefulProcessor,
        StatefulProcessorHandle,
    )

    class GroupAtATime(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.store = PlainStore(handle)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803 - Spark's
            rows = list(rows)
            return self._answers(key, packets_of(rows), timerValues, rows[0].now_ms)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803 - Spark's
            return self._answers(key, [], timerValues, timerValues.getCurrentProcessingTimeInMs())

        def close(self) -> None:
            pass

        def _answers(self, key: Any, packets: Any, times: Any, now_ms: int) -> Iterator[Any]:
            watermark = times.getCurrentWatermarkInMs() if operator.event_time else None
            moment = Moment(now_ms, watermark, None)
            for answer in operator.one_group(self.store, int(key[0]), packets, moment):
                yield answer_row(answer)

    return GroupAtATime()
