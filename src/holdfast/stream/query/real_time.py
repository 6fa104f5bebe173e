"""Refuse what cannot run in real-time mode before it is started, and continuous processing altogether.

Spark itself refuses more, such as operators with state in 4.2: in part when a query starts, in part in its
first batch. Here is only what no version takes that Holdfast knows, in words that say what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.engine.connect.classic_only import is_connect
from holdfast.engine.plans.described import describe
from holdfast.engine.queries.watch import is_real_time, refuse_continuous
from holdfast.errors import Unsupported
from holdfast.stream.query.operator_check import defined_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SOURCES: Final = ("kafka",)
_SINKS: Final = ("console", "foreach", "kafka")
_MODE: Final = "update"
# With it a person takes the risk of what Spark has not tried.
_LIST_KEY: Final = "spark.sql.streaming.realTimeMode.allowlistCheck"
_WHERE: Final = "trigger: real time"
_OF_CONNECT: Final = "real_time_batch_duration"


def require_runnable(frame: DataFrame | None, kind: str, mode: str | None, trigger: str | None) -> None:
    """Refuse a query in a mode that it cannot run in; starts nothing.

    Args:
        frame: The query's frame; None where it is not known.
        kind: The sink's format.
        mode: The output mode; None for Spark's own.
        trigger: The trigger as Spark, a message of Connect, or a setting of ours prints it.

    Raises:
        Unsupported: It cannot.
    """
    refuse_continuous(trigger, "trigger: continuous")
    if trigger is None or not (is_real_time(trigger) or trigger.startswith(("real time", _OF_CONNECT))):
        return
    if (mode or "append") != _MODE:
        raise Unsupported(
            "real-time mode writes in output mode update alone",
            where=_WHERE,
            found=mode or "append, Spark's default",
            expected=_MODE,
            hint='write hf.sink(df, mode="update"), or .outputMode("update")',
        )
    if frame is None or (frame.sparkSession.conf.get(_LIST_KEY, None) or "true").lower() == "false":
        return
    if kind not in _SINKS:
        raise Unsupported(
            f"a sink of kind {kind!r} cannot be written in real-time mode",
            where=_WHERE,
            expected=", ".join(_SINKS),
            hint="give the query another trigger, such as hf.every('1 second'): a table, a file or a batch"
            " function is written batch by batch",
        )
    if defined_in(frame):
        raise Unsupported(
            "keyed state in Python cannot run in real-time mode",
            where=_WHERE,
            found="an operator of Holdfast's",
            hint="Spark runs no Python in it: give the query another trigger, such as hf.every('1 second')",
        )
    described = None if is_connect(frame) else describe(frame)
    foreign = [] if described is None else [s.kind for s in described[0] if s.kind not in _SOURCES]
    if foreign:
        raise Unsupported(
            f"a source of kind {foreign[0]!r} cannot be read in real-time mode",
            where=_WHERE,
            expected=", ".join(_SOURCES),
            hint="give the query another trigger, such as hf.every('1 second')",
        )
