"""What each Spark release pins and does otherwise: the facts that a verdict between releases rests on.

The settings and the values that are filled in were read from the releases' own classes. What a release does
otherwise is from Spark's migration guide and its issues, which are named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.engine.versions import minor
from holdfast.formats.logs.offset_log import CODEC, ENCODING, MERGE_OPERATOR, PROVIDER, ROW_CHECKSUM
from holdfast.formats.logs.offset_log import SHUFFLE_PARTITIONS as PARTITIONS

# The releases whose checkpoints and behaviour are known, oldest first.
RELEASES: Final = ("3.4", "3.5", "4.0", "4.1", "4.2", "4.3")
JOIN_FORMAT: Final = "spark.sql.streaming.join.stateFormatVersion"
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


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Something that a release does otherwise than those before it.

    Attributes:
        since: The first release that does.
        text: What it does.
        hint: What to do about it; None where there is nothing to do.
        reference: Where that is from.
        state_formats: The formats of state files that it concerns; None stands for queries without state.
    """

    since: str
    text: str
    hint: str | None
    reference: str
    state_formats: tuple[int | None, ...] = (None, 1, 2)


PINNED: Final = (
    PinnedSetting(PARTITIONS, "2.3", None, "how many partitions the state has"),
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
    PinnedSetting(JOIN_FORMAT, "3.0", "1", "how joins keep their state"),
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

BEHAVIOURS: Final = (
    Behaviour(
        "4.0",
        "a query with a source that cannot do Trigger.AvailableNow reads all that is there in a single batch",
        None,
        "SPARK-45178",
    ),
    Behaviour(
        "4.0",
        "maintenance deletes old state files in groups: up to 30 % of the state's files stay for longer",
        f"{_STREAMING}.ratioExtraSpaceAllowedInCheckpoint=0 deletes as before",
        "SPARK-48931",
        state_formats=(1, 2),
    ),
    Behaviour(
        "4.0",
        "a relative path of a file sink is resolved by the driver and no longer by the executors",
        "give the sink an absolute path",
        "SPARK-50854",
    ),
    Behaviour(
        "4.1",
        "adaptive execution plans the batches of queries without state, which may put rows into other files",
        "spark.sql.adaptive.streaming.stateless.enabled=false plans as before",
        "Spark's migration guide, 4.0 to 4.1",
        state_formats=(None,),
    ),
    Behaviour(
        "4.1",
        "state files get checksum files beside them, and are checked by these when they are read",
        None,
        "SPARK-51972",
        state_formats=(2,),
    ),
    Behaviour(
        "4.2",
        "a checkpoint whose `metadata` is gone does not start; before, it started as another query",
        None,
        "SPARK-55058",
    ),
)

# Settings that patch releases of the release before theirs write too.
BACKPORTED: Final = frozenset({"spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"})


def pinned_by(release: str) -> tuple[PinnedSetting, ...]:
    """The settings that a release writes to the offset log."""
    return tuple(setting for setting in PINNED if minor(setting.since) <= minor(release))


def behaviours_between(written: str, target: str, state_format: int | None) -> tuple[Behaviour, ...]:
    """What changes from one release to a later one.

    Args:
        written: The release that wrote the checkpoint.
        target: The one that is to go on.
        state_format: The format of the state files; None without state.
    """
    return tuple(
        behaviour
        for behaviour in BEHAVIOURS
        if minor(written) < minor(behaviour.since) <= minor(target)
        and state_format in behaviour.state_formats
    )
