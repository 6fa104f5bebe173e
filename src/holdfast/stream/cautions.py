"""Checks before a query starts, for real-time mode, sinks and settings: errors and warnings.

Spark itself rejects more, such as operators with state in 4.2, at the start of a query or in its first batch.
This module rejects only what no supported version of Spark accepts.
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
    """A warning that a query has several watermarks, so that a restart may change which rows are late.

    Holdfast issues it each time it starts such a query; `holdfast run` prints it. Silence it with
    `warnings.filterwarnings("ignore", category=holdfast.WatermarkWarning)`.

    Example:
        import warnings

        warnings.filterwarnings("error", category=hf.WatermarkWarning)
        assert issubclass(hf.WatermarkWarning, UserWarning)
    """


class ForkWarning(UserWarning):
    """A warning that a query writes to a table or topic that has rows of a different query.

    Holdfast issues it each time it starts such a query while the target has no rows of this query yet;
    `holdfast run` prints it. Silence it with `warnings.filterwarnings("ignore",
    category=holdfast.ForkWarning)`.

    Example:
        import warnings

        warnings.filterwarnings("ignore", category=hf.ForkWarning)
        assert issubclass(hf.ForkWarning, UserWarning)
    """


class ObjectStoreWarning(UserWarning):
    """A warning that the checkpoint of a query is on S3 and the session has no file manager for S3.

    Holdfast issues it each time it starts such a query; `holdfast run` prints it. Silence it with
    `warnings.filterwarnings("ignore", category=holdfast.ObjectStoreWarning)`.

    Example:
        import warnings

        warnings.filterwarnings("ignore", category=hf.ObjectStoreWarning)
        assert issubclass(hf.ObjectStoreWarning, UserWarning)
    """


def renames_caution(checkpoint: str) -> ObjectStoreWarning:
    """Return the warning for a checkpoint on S3 whose files Spark renames."""
    return ObjectStoreWarning(
        f"the checkpoint is on S3, where Spark renames its files: {RENAMES}\n"
        f"  {checkpoint}\n"
        f"hint: {package_hint()}"
    )


def cautions(frame: DataFrame) -> tuple[WatermarkWarning, ...]:
    """Return the warnings for a streaming frame; reads its plan and runs no job."""
    count = watermark_count(frame)
    if count < 2:
        return ()
    text = (
        f"the query has {count} watermarks, and Spark's checkpoint stores only the combined one\n"
        "  after a restart event time does not advance until each of these streams has sent rows again: "
        "results come later, and rows may be accepted that would have been late\n"
        "hint: if a stream can be silent for long, give it idle_after in hf.watermarked. "
        'To silence: warnings.filterwarnings("ignore", category=holdfast.WatermarkWarning)'
    )
    return (WatermarkWarning(text),)


_SOURCES: Final = ("kafka",)
_SINKS: Final = ("console", "foreach", "kafka")
_MODE: Final = "update"
# The setting by which a user accepts combinations that Spark has not tested.
_LIST_KEY: Final = "spark.sql.streaming.realTimeMode.allowlistCheck"
_WHERE: Final = "trigger: real time"
_OF_CONNECT: Final = "real_time_batch_duration"


def require_runnable(frame: DataFrame | None, kind: str, mode: str | None, trigger: str | None) -> None:
    """Raise an error for a query that cannot run in its mode; starts nothing.

    Args:
        frame: The query's frame, or None if unknown.
        kind: The sink's format.
        mode: The output mode, or None for Spark's default.
        trigger: The trigger as text, as printed by Spark, in a Connect message, or from a Holdfast setting.

    Raises:
        Unsupported: The sink, the output mode or an operator does not support the trigger.
    """
    refuse_continuous(trigger, "trigger: continuous")
    if trigger is None or not (is_real_time(trigger) or trigger.startswith(("real time", _OF_CONNECT))):
        return
    if (mode or "append") != _MODE:
        raise Unsupported(
            "real-time mode supports only output mode update",
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
            f"real-time mode does not support the sink {kind!r}",
            code="HF-E7107",
            where=_WHERE,
            expected=", ".join(_SINKS),
            hint="use a different trigger, such as hf.every('1 second'); tables, files and batch functions"
            " are written batch by batch",
        )
    if defined_in(frame):
        raise Unsupported(
            "real-time mode does not support keyed state in Python",
            code="HF-E7108",
            where=_WHERE,
            found="a Holdfast operator",
            hint="use a different trigger, such as hf.every('1 second')",
        )
    described = None if is_connect(frame) else describe(frame)
    foreign = [] if described is None else [s.kind for s in described[0] if s.kind not in _SOURCES]
    if foreign:
        raise Unsupported(
            f"real-time mode does not support the source {foreign[0]!r}",
            code="HF-E7109",
            where=_WHERE,
            expected=", ".join(_SOURCES),
            hint="use a different trigger, such as hf.every('1 second')",
        )
