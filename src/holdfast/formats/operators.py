"""Spark's stateful operators: their names, the column families of their state, and what places a key.

The names are those of Spark 3.5 to 4.x. A state is known by its label: its column family, or its store where
that has no other families. The rows and the counts of a join are stores in some of its formats and families
of one store in others, under the same labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class FamilyUse(str, Enum):
    """What a column family is for; a family with the values of a state itself has none of these uses."""

    LIST_COUNTER = "the length of each list"
    EXPIRY_INDEX = "keys by the time of expiry"
    FIRST_EXPIRY = "the first expiry among the elements of each list"
    EXPIRY_COUNTER = "the number of entries in the index of expiry"
    TIMERS = "timers by key"
    TIMER_INDEX = "timers by time"
    JOIN_ROWS = "rows of a side by key and number"
    JOIN_COUNTS = "the number of rows of each key"
    JOIN_ROWS_BY_TIME = "rows of a side by key and event time"
    JOIN_TIMES = "keys of a side by event time"


class KeyPlacement(str, Enum):
    """Which part of a stored key decides its partition."""

    WHOLE_KEY = "all fields but those that tell rows of one key apart"
    FIRST_FIELDS = "as many of the first fields as the operator's metadata says"
    GROUPING_KEY = "the grouping key, wherever the family has it"
    ONE_PARTITION = "nothing: one task has all rows"


@dataclass(frozen=True, slots=True)
class Family:
    """The column families with one use.

    Attributes:
        use: What they are for.
        prefix: What their labels begin with.
        suffix: What their labels end with. Between the two is the state that they belong to: the name of a
            state variable, the side of a join, or the clock of timers.
        row_fields: How many of the last fields of a key only tell rows of one key apart.
    """

    use: FamilyUse
    prefix: str = ""
    suffix: str = ""
    row_fields: int = 0

    def label(self, state: str) -> str:
        """The label of the family that belongs to a state."""
        return f"{self.prefix}{state}{self.suffix}"

    def state(self, label: str) -> str:
        """The state that the family with this label belongs to."""
        return label[len(self.prefix) : len(label) - len(self.suffix)]

    def has(self, label: str) -> bool:
        """Whether this is the label of such a family."""
        return label.startswith(self.prefix) and label.endswith(self.suffix) and bool(self.state(label))


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """A stateful operator of Spark.

    Attributes:
        alias: What people call it.
        names: Spark's names for it, in metadata and in a query's progress.
        placement: Which part of a key decides the partition.
        families: The families beside those with the values of its states.
    """

    alias: str
    names: tuple[str, ...]
    placement: KeyPlacement
    families: tuple[Family, ...] = ()


LIST_COUNTER: Final = Family(FamilyUse.LIST_COUNTER, prefix="$rowCounter_")
TIMERS: Final = Family(FamilyUse.TIMERS, "$", "Timers_keyToTimestamp")
TIMER_INDEX: Final = Family(FamilyUse.TIMER_INDEX, "$", "Timers_timestampToKey")
# The clocks of timers, and what people call the timers of each.
TIMER_NAMES: Final[Mapping[str, str]] = {"event": "event_timers", "proc": "timers"}

_JOIN_FAMILIES: Final = (
    Family(FamilyUse.JOIN_ROWS, suffix="-keyWithIndexToValue", row_fields=1),
    Family(FamilyUse.JOIN_COUNTS, suffix="-keyToNumValues"),
    Family(FamilyUse.JOIN_ROWS_BY_TIME, suffix="-keyWithTsToValues", row_fields=1),
    Family(FamilyUse.JOIN_TIMES, suffix="-tsWithKey", row_fields=1),
)
_PROCESSOR_FAMILIES: Final = (
    LIST_COUNTER,
    Family(FamilyUse.EXPIRY_INDEX, prefix="$ttl_"),
    Family(FamilyUse.FIRST_EXPIRY, prefix="$min_"),
    Family(FamilyUse.EXPIRY_COUNTER, prefix="$count_"),
    TIMERS,
    TIMER_INDEX,
)
PROCESSOR: Final = OperatorKind(
    "processor",
    ("transformWithStateExec", "transformWithStateInPandasExec", "transformWithStateInPySparkExec"),
    KeyPlacement.GROUPING_KEY,
    _PROCESSOR_FAMILIES,
)
OPERATORS: Final = (
    OperatorKind("aggregate", ("stateStoreSave",), KeyPlacement.WHOLE_KEY),
    OperatorKind("dedupe", ("dedupe", "dedupeWithinWatermark"), KeyPlacement.WHOLE_KEY),
    OperatorKind("sessions", ("sessionWindowStateStoreSaveExec",), KeyPlacement.FIRST_FIELDS),
    OperatorKind("join", ("symmetricHashJoin",), KeyPlacement.WHOLE_KEY, _JOIN_FAMILIES),
    OperatorKind("limit", ("globalLimit",), KeyPlacement.ONE_PARTITION),
    OperatorKind(
        "groups",
        ("flatMapGroupsWithState", "mapGroupsWithState", "applyInPandasWithState"),
        KeyPlacement.WHOLE_KEY,
    ),
    PROCESSOR,
)
_PROCESSOR_PREFIX: Final = "transformWithState"
_BY_NAME: Final = {name: kind for kind in OPERATORS for name in kind.names}
_ALL_FAMILIES: Final = tuple(family for kind in OPERATORS for family in kind.families)


def operator_kind(name: str) -> OperatorKind | None:
    """The operator that Spark calls by this name; None where it is not known here.

    Spark has a name for transformWithState in each language, and may get more.
    """
    return PROCESSOR if name.startswith(_PROCESSOR_PREFIX) else _BY_NAME.get(name)


def is_processor(name: str) -> bool:
    """Whether Spark's name is that of transformWithState, which runs on RocksDB only."""
    return operator_kind(name) is PROCESSOR


def is_internal(family: str) -> bool:
    """Whether Spark keeps a column family, or a state variable, for itself."""
    return family.startswith("$")


def family_of(operator: str, label: str) -> Family | None:
    """What a family is besides one with the values of a state; None where it is one.

    Args:
        operator: Spark's name of the operator. Spark 3.5 notes none; then the label alone decides.
        label: The family's label.
    """
    kind = operator_kind(operator)
    families = _ALL_FAMILIES if kind is None else kind.families
    return next((family for family in families if family.has(label)), None)


def use_of(operator: str, label: str) -> FamilyUse | None:
    """What a family is for; None where it has the values of a state."""
    family = family_of(operator, label)
    return None if family is None else family.use


def companion(operator: str, label: str, use: FamilyUse) -> str:
    """The label of the family that is kept for the same state and has another use."""
    family = family_of(operator, label)
    state = label if family is None else family.state(label)
    return next(other.label(state) for other in _ALL_FAMILIES if other.use is use)
