"""Warnings and refusals before a query starts: real-time mode, sinks, and settings.

Spark itself refuses more, such as operators with state in 4.2: in part when a query starts, in part in its
first batch. Here is only what no version takes that Holdfast knows, in words that say what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.engine.connect import is_connect
from holdfast.engine.described import describe
from holdfast.engine.planned_state import watermark_count
from holdfast.engine.queries.watch import is_real_time, refuse_continuous
from holdfast.engine.session.jars import RENAMES, package_hint
from holdfast.errors import Unsupported
from holdfast.stream.operator_check import defined_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WatermarkWarning(UserWarning):
    """A query has more than one watermark, and a restart may change what it takes for late.

    Given once each time Holdfast starts such a query, and told by `holdfast run`. Silence it with
    `warnings.filterwarnings("ignore", category=holdfast.WatermarkWarning)`.
    """


class ForkWarning(UserWarning):
    """A query writes to a table or topic that has rows of another query.

    Given once each time Holdfast starts such a query and the target has nothing of its own yet; told by
    `holdfast run`. Silence it with `warnings.filterwarnings("ignore", category=holdfast.ForkWarning)`.
    """


class ObjectStoreWarning(UserWarning):
    """A query has its checkpoint on S3 and no file manager that is made for it.

    Given once each time Holdfast starts such a query, and told by `holdfast run`. Silence it with
    `warnings.filterwarnings("ignore", category=holdfast.ObjectStoreWarning)`.
    """


def renames_caution(checkpoint: str) -> ObjectStoreWarning:
    """Return the caution about a checkpoint on S3 whose files are renamed into place."""
    return ObjectStoreWarning(
        f"the checkpoint is on S3, and Spark renames its files into place: {RENAMES}\n"
        f"  {checkpoint}\n"
        f"hint: {package_hint()}"
    )


def cautions(frame: DataFrame) -> tuple[WatermarkWarning, ...]:
    """Return the cautions about a streaming frame; reads its plan, and runs nothing."""
    count = watermark_count(frame)
    if count < 2:
        return ()
    text = (
        f"the query has {count} watermarks, and Spark's checkpoint keeps only what they come to together\n"
        "  after a restart event time stands still until each of these streams has sent rows again: what "
        "waits for it waits longer, and rows may be in time that would have been late\n"
        "hint: this matters where a stream can be silent for long: give it idle_after in hf.watermarked. "
        'To silence: warnings.filterwarnings("ignore", category=holdfast.WatermarkWarning)'
    )
    return (WatermarkWarning(text),)


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
            code="HF-E7106",
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
            code="HF-E7107",
            where=_WHERE,
            expected=", ".join(_SINKS),
            hint="give the query another trigger, such as hf.every('1 second'): a table, a file or a batch"
            " function is written batch by batch",
        )
    if defined_in(frame):
        raise Unsupported(
            "keyed state in Python cannot run in real-time mode",
            code="HF-E7108",
            where=_WHERE,
            found="an operator of Holdfast's",
            hint="Spark runs no Python in it: give the query another trigger, such as hf.every('1 second')",
        )
    described = None if is_connect(frame) else describe(frame)
    foreign = [] if described is None else [s.kind for s in described[0] if s.kind not in _SOURCES]
    if foreign:
        raise Unsupported(
            f"a source of kind {foreign[0]!r} cannot be read in real-time mode",
            code="HF-E7109",
            where=_WHERE,
            expected=", ".join(_SOURCES),
            hint="give the query another trigger, such as hf.every('1 second')",
        )
