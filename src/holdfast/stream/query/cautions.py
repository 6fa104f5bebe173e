"""What a person should know of a query before it runs, and that is no error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.plans.plans import watermark_count
from holdfast.engine.session.object_store import RENAMES, package_hint

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
    """What is to be said of a checkpoint on S3 whose files are renamed into place."""
    return ObjectStoreWarning(
        f"the checkpoint is on S3, and Spark renames its files into place: {RENAMES}\n"
        f"  {checkpoint}\n"
        f"hint: {package_hint()}"
    )


def cautions(frame: DataFrame) -> tuple[WatermarkWarning, ...]:
    """What is to be said of a streaming frame; reads its plan, and runs nothing."""
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
