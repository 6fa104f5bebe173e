"""The settings that Spark pins in the offset log, each with the first release that does.

They, and the values that are filled in, were read from the releases' own classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.engine.versions import minor
from holdfast.formats.logs.offset_log import (
    CODEC,
    ENCODING,
    MERGE_OPERATOR,
    PROVIDER,
    ROW_CHECKSUM,
    SHUFFLE_PARTITIONS,
)

_STREAMING: Final = "spark.sql.streaming"


@dataclass(frozen=True, slots=True)
class PinnedSetting:
    """A setting that Spark writes to the offset log, and takes from there ever after.

    Attributes:
        name: The setting.
        since: The first release that writes it.
        filled_in: What a later release takes where the log has no value of it; None where it takes the
            session's.
        meaning: What the setting decides.
    """

    name: str
    since: str
    filled_in: str | None
    meaning: str


PINNED: Final = (
    PinnedSetting(SHUFFLE_PARTITIONS, "2.3", None, "how many partitions the state has"),
    PinnedSetting(PROVIDER, "2.3", None, "the class that keeps the state"),
    PinnedSetting(
        f"{_STREAMING}.multipleWatermarkPolicy", "2.4", "min", "which of several watermarks counts"
    ),
    PinnedSetting(
        f"{_STREAMING}.flatMapGroupsWithState.stateFormatVersion",
        "2.4",
        "1",
        "how flatMapGroupsWithState keeps its state",
    ),
    PinnedSetting(
        f"{_STREAMING}.aggregation.stateFormatVersion", "2.4", "1", "how aggregations keep their state"
    ),
    PinnedSetting(f"{_STREAMING}.join.stateFormatVersion", "3.0", "1", "how joins keep their state"),
    PinnedSetting(CODEC, "3.1", "lz4", "how state files are compressed"),
    PinnedSetting(
        f"{_STREAMING}.stateStore.rocksdb.formatVersion", "3.2", None, "the format of RocksDB's data files"
    ),
    PinnedSetting(
        f"{_STREAMING}.statefulOperator.useStrictDistribution",
        "3.3",
        "false",
        "whether rows are always shuffled by the whole key of a stateful operator",
    ),
    PinnedSetting(
        "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",
        "3.5",
        "true",
        "whether a filter that is never true may take stateful operators out of the plan (SPARK-49699)",
    ),
    PinnedSetting(ENCODING, "4.0", "unsaferow", "how rows of state are encoded"),
    PinnedSetting(ROW_CHECKSUM, "4.2", "false", "whether each row of state has a checksum"),
    PinnedSetting(MERGE_OPERATOR, "4.2", "1", "how RocksDB joins the elements of a list"),
    PinnedSetting(
        f"{_STREAMING}.queryEvolution.enableSourceEvolution", "4.2", "false", "whether sources have names"
    ),
    PinnedSetting(
        "spark.sql.function.protobufExtensions.enabled",
        "4.2",
        "false",
        "whether protobuf extensions are read",
    ),
    PinnedSetting(
        "spark.sql.dropDuplicates.deterministicKeyOrder.enabled",
        "4.3",
        "false",
        "whether the columns of a deduplication's key have one order",
    ),
    PinnedSetting(
        f"{_STREAMING}.statefulOperator.alwaysNullableOutput.enabled",
        "4.3",
        "false",
        "whether what a stateful operator puts out is nullable whatever its input is",
    ),
)
# Settings that patch releases of the release before theirs write too.
BACKPORTED: Final = frozenset({"spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"})


def pinned_by(release: str) -> tuple[PinnedSetting, ...]:
    """The settings that a release writes to the offset log."""
    return tuple(setting for setting in PINNED if minor(setting.since) <= minor(release))
