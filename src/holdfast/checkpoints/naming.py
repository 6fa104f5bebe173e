"""The names of a checkpoint's operators, and the settings that Spark pinned in it.

The settings and their defaults were extracted from the classes of each Spark release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast import layout
from holdfast.config.spark_versions import UNFIXED_PARTITIONS, minor
from holdfast.errors import Corrupt, NotFound
from holdfast.formats.logs.batch_logs import (
    CODEC,
    ENCODING,
    MERGE_OPERATOR,
    PROVIDER,
    ROW_CHECKSUM,
    SHUFFLE_PARTITIONS,
)
from holdfast.formats.logs.notes import PLAN_NOTE, PlanNote, QueryPlan, parse_note
from holdfast.formats.logs.operator_metadata import OperatorMetadata
from holdfast.formats.operators import KEYED_VARIABLES, OperatorName, is_internal, operator_names
from holdfast.layout import OwnFile
from holdfast.storage.port import Storage, full

_STREAMING: Final = "spark.sql.streaming"


@dataclass(frozen=True, slots=True)
class PinnedSetting:
    """A setting that Spark writes to the offset log and reads from there on every restart.

    Attributes:
        name: The name of the setting.
        since: The first release that writes it.
        filled_in: The value that a later release uses if the log has none; None if it uses the session's
            value.
        meaning: The effect of the setting.
    """

    name: str
    since: str
    filled_in: str | None
    meaning: str


PINNED: Final = (
    PinnedSetting(SHUFFLE_PARTITIONS, "2.3", None, "the number of state partitions"),
    PinnedSetting(PROVIDER, "2.3", None, "the class of the state store"),
    PinnedSetting(
        f"{_STREAMING}.multipleWatermarkPolicy", "2.4", "min", "which of several watermarks is used"
    ),
    PinnedSetting(
        f"{_STREAMING}.flatMapGroupsWithState.stateFormatVersion",
        "2.4",
        "1",
        "the state format of flatMapGroupsWithState",
    ),
    PinnedSetting(
        f"{_STREAMING}.aggregation.stateFormatVersion", "2.4", "1", "the state format of aggregations"
    ),
    PinnedSetting(f"{_STREAMING}.join.stateFormatVersion", "3.0", "1", "the state format of joins"),
    PinnedSetting(CODEC, "3.1", "lz4", "the compression of state files"),
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
        "whether a filter that is never true may remove stateful operators from the plan (SPARK-49699)",
    ),
    PinnedSetting(ENCODING, "4.0", "unsaferow", "the encoding of state rows"),
    PinnedSetting(ROW_CHECKSUM, "4.2", "false", "whether each row of state has a checksum"),
    PinnedSetting(MERGE_OPERATOR, "4.2", "1", "how RocksDB merges the elements of a list"),
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
        "whether the key columns of a deduplication have a fixed order",
    ),
    PinnedSetting(
        f"{_STREAMING}.statefulOperator.alwaysNullableOutput.enabled",
        "4.3",
        "false",
        "whether the output of a stateful operator is always nullable",
    ),
)
# The releases whose checkpoints and behaviour are known, oldest first.
RELEASES: Final = ("3.4", "3.5", "4.0", "4.1", "4.2", "4.3")
# Settings that patch releases of the previous release also write.
BACKPORTED: Final = frozenset({"spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"})


def pinned_by(release: str) -> tuple[PinnedSetting, ...]:
    """Return the settings that a release writes to the offset log."""
    return tuple(setting for setting in PINNED if minor(setting.since) <= minor(release))


def written_by(confs: Mapping[str, str], noted: str | None = None) -> tuple[str, ...]:
    """Return the Spark versions that may have written a checkpoint, oldest first.

    Args:
        confs: The settings that the newest batch pins.
        noted: The version that Holdfast recorded.
    """
    if noted is not None:
        return ("{}.{}".format(*minor(noted)),)
    known = {setting.name for setting in PINNED}
    recorded = frozenset(confs) & known
    fitting = tuple(release for release in RELEASES if _pins(release, recorded))
    if fitting:
        return fitting
    # A checkpoint keeps its first settings, so the newest of them shows the oldest possible release.
    floor = max((setting.since for setting in PINNED if setting.name in recorded), key=minor, default="3.4")
    return tuple(release for release in RELEASES if minor(release) >= minor(floor)) or (RELEASES[0],)


def _pins(release: str, recorded: frozenset[str]) -> bool:
    """Return whether a checkpoint that began with a release would have exactly these settings."""
    pinned = {setting.name for setting in pinned_by(release)}
    optional = BACKPORTED | ({SHUFFLE_PARTITIONS} if minor(release) == UNFIXED_PARTITIONS else set())
    return recorded <= pinned and pinned - recorded <= optional


def name_operators(
    storage: Storage,
    operators: Mapping[int, OperatorMetadata | None],
    spark_names: Mapping[int, str],
    batch_id: int | None,
) -> dict[int, OperatorName]:
    """Return the names of the operators that the checkpoint records.

    Cost: reads one small file if there are keyed operators, or lists one folder if there is a single keyed
    operator.

    Args:
        storage: The checkpoint, or a savepoint's view.
        operators: Spark's metadata of each operator, by number.
        spark_names: Spark's name for each operator; empty if unknown.
        batch_id: The batch; None if none is committed.
    """
    keyed = [number for number, noted in operators.items() if set(variables(noted)) == KEYED_VARIABLES]
    return operator_names(spark_names, _users_names(storage, keyed, batch_id))


def plan_note(storage: Storage) -> PlanNote | None:
    """Return the recorded plans of a checkpoint's query, or None if none is recorded.

    Raises:
        Corrupt: The record cannot be read.
    """
    path = OwnFile(PLAN_NOTE).render()
    try:
        return parse_note(storage.read(path), full(storage.uri, path))
    except NotFound:
        return None


def noted_plan(storage: Storage, batch_id: int) -> QueryPlan | None:
    """Return the recorded plan of a batch; None if none was recorded or it cannot be read."""
    try:
        note = plan_note(storage)
    except Corrupt:
        return None
    return None if note is None else note.at(batch_id)


def variables(metadata: OperatorMetadata | None) -> tuple[str, ...]:
    """Return the state variables of transformWithState, except Spark's internal ones."""
    listed = () if metadata is None else metadata.properties.get("stateVariables", [])
    found = (variable.get("stateName") for variable in listed if isinstance(variable, dict))
    return tuple(sorted(name for name in found if isinstance(name, str) and not is_internal(name)))


def _users_names(storage: Storage, numbers: Sequence[int], batch_id: int | None) -> dict[int, str | None]:
    """Return the names that users gave to operators, from the recorded plan if there are several."""
    if not numbers:
        return {}
    plan = None if batch_id is None else noted_plan(storage, batch_id)
    names = () if plan is None else plan.operators
    if len(names) != len(numbers):
        noted = map(layout.noted_operator, storage.list(layout.OWN).names)
        names = tuple(name for name in noted if name is not None)
        if not len(names) == len(numbers) == 1:
            return dict.fromkeys(numbers)
    return dict(zip(numbers, names, strict=True))
