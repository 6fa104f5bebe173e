"""Spark's stateful operators, and the inference of an operator from its stores.

The names are those of Spark 3.5 to 4.x. A state is identified by its label: its column family, or its store
if the store has no other families. The rows and the counts of a join are separate stores in some formats and
families of one store in others, with the same labels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from holdfast.formats.key_groups import BASE, FORMS, LOG, META
from holdfast.formats.logs.operator_metadata import ColumnFamily
from holdfast.formats.text import json_object
from holdfast.layout import DEFAULT_STORE


class FamilyUse(str, Enum):
    """The use of an internal column family, which does not have the values of a state."""

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
    """The part of a stored key that decides its partition."""

    WHOLE_KEY = "all fields except those that distinguish rows of one key"
    FIRST_FIELDS = "the first fields, as many as the operator's metadata gives"
    GROUPING_KEY = "the grouping key, at the position that the family has it"
    ONE_PARTITION = "none: one task has all rows"


@dataclass(frozen=True, slots=True)
class Family:
    """The internal column families with one use.

    Attributes:
        use: The use of the families.
        prefix: The prefix of their labels.
        suffix: The suffix of their labels. Between prefix and suffix is the state to which a family belongs:
            the name of a state variable, the side of a join, or the clock of timers.
        row_fields: The number of trailing key fields that only distinguish rows of the same key.
    """

    use: FamilyUse
    prefix: str = ""
    suffix: str = ""
    row_fields: int = 0

    def label(self, state: str) -> str:
        """Return the label of the family for a state."""
        return f"{self.prefix}{state}{self.suffix}"

    def state(self, label: str) -> str:
        """Return the state to which the family with this label belongs."""
        return label[len(self.prefix) : len(label) - len(self.suffix)]

    def has(self, label: str) -> bool:
        """Return whether a label is that of such a family."""
        return label.startswith(self.prefix) and label.endswith(self.suffix) and bool(self.state(label))


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """A kind of stateful operator in Spark.

    Attributes:
        alias: The display name of an operator of this kind that has no name of its own.
        words: The operation as named in Spark's documentation; empty if it equals Spark's name.
        names: Spark's names of the kind, in metadata and in the progress of a query.
        placement: The part of a key that determines the partition.
        families: The internal column families.
    """

    alias: str
    words: str
    names: tuple[str, ...]
    placement: KeyPlacement
    families: tuple[Family, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorName:
    """The name of a query's operator.

    Attributes:
        operator_id: The number of the operator in the plan.
        display_name: The name to show: the name given by the user, otherwise a short name of the operation.
            If several operators have the same name, it is followed by the operator's number.
        operator_kind: The operation as named in Spark's documentation.
        spark_name: Spark's name of the operation. Spark before 4.0 does not record it; then it is inferred
            from the state's schema, and is empty if unknown.
        user_name: The name given by the user, or null without one.

    Example:
        names: dict[int, hf.OperatorName] = hf.savepoints.show("savepoints@daily").operator_names
        assert names[0].display_name == "aggregate"
    """

    operator_id: int
    display_name: str
    operator_kind: str
    spark_name: str
    user_name: str | None = None

    @property
    def label(self) -> str:
        """Return the number and the name, as shown in tables and metrics."""
        return f"{self.operator_id} {self.display_name}"

    @property
    def spellings(self) -> frozenset[str]:
        """Return all names by which a user may refer to the operator."""
        kind = operator_kind(self.spark_name)
        alias = set() if kind is None or self.user_name is not None else {kind.alias}
        words = {str(self.operator_id), self.display_name, self.operator_kind, self.spark_name}
        return frozenset((words | alias) - {""})


# Spark's name of the operator of a stream-stream join.
STREAM_JOIN: Final = "symmetricHashJoin"
# The variables of Holdfast's keyed operators, which distinguish them from others of the same kind.
KEYED_VARIABLES: Final = frozenset({META, FORMS, BASE, LOG})
# The name of an operator of `hf.keyed` in Holdfast's documentation.
KEYED_WORDS: Final = "keyed state"
# The label of all state that a keyed operator stores for its keys.
KEYED_LABEL: Final = "keyed"
LIST_COUNTER: Final = Family(FamilyUse.LIST_COUNTER, prefix="$rowCounter_")
TIMERS: Final = Family(FamilyUse.TIMERS, "$", "Timers_keyToTimestamp")
TIMER_INDEX: Final = Family(FamilyUse.TIMER_INDEX, "$", "Timers_timestampToKey")
# The clocks of timers, and the displayed names of their timers.
TIMER_NAMES: Final[Mapping[str, str]] = {"event": "event_timers", "proc": "timers"}
# The displayed suffix of an internal family, after the name of the state to which it belongs.
_KEPT_BESIDE: Final = {
    FamilyUse.LIST_COUNTER: "lengths",
    FamilyUse.EXPIRY_INDEX: "expiry",
    FamilyUse.FIRST_EXPIRY: "first expiry",
    FamilyUse.EXPIRY_COUNTER: "expiry count",
    FamilyUse.TIMER_INDEX: "by time",
    FamilyUse.JOIN_COUNTS: "counts",
    FamilyUse.JOIN_TIMES: "times",
}

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
    "transformWithState",
    ("transformWithStateExec", "transformWithStateInPandasExec", "transformWithStateInPySparkExec"),
    KeyPlacement.GROUPING_KEY,
    _PROCESSOR_FAMILIES,
)
OPERATORS: Final = (
    # The second is that of real-time mode.
    OperatorKind(
        "aggregate",
        "aggregation",
        ("stateStoreSave", "StatefulStreamlineAggregate"),
        KeyPlacement.WHOLE_KEY,
    ),
    OperatorKind("dedupe", "deduplication", ("dedupe",), KeyPlacement.WHOLE_KEY),
    OperatorKind(
        "dedupe", "deduplication within watermark", ("dedupeWithinWatermark",), KeyPlacement.WHOLE_KEY
    ),
    OperatorKind(
        "sessions",
        "session window aggregation",
        ("sessionWindowStateStoreSaveExec",),
        KeyPlacement.FIRST_FIELDS,
    ),
    OperatorKind("join", "stream-stream join", (STREAM_JOIN,), KeyPlacement.WHOLE_KEY, _JOIN_FAMILIES),
    OperatorKind("limit", "limit", ("globalLimit",), KeyPlacement.ONE_PARTITION),
    OperatorKind(
        "groups",
        "",
        ("flatMapGroupsWithState", "mapGroupsWithState", "applyInPandasWithState"),
        KeyPlacement.WHOLE_KEY,
    ),
    PROCESSOR,
)
_PROCESSOR_PREFIX: Final = "transformWithState"
_BY_NAME: Final = {name: kind for kind in OPERATORS for name in kind.names}
_ALL_FAMILIES: Final = tuple(family for kind in OPERATORS for family in kind.families)


def operator_kind(name: str) -> OperatorKind | None:
    """Return the kind of operator with this Spark name, or None if unknown.

    Spark has a name of transformWithState for each language, and may add more.
    """
    return PROCESSOR if name.startswith(_PROCESSOR_PREFIX) else _BY_NAME.get(name)


def operator_names(
    spark_names: Mapping[int, str], keyed: Mapping[int, str | None] | None = None
) -> dict[int, OperatorName]:
    """Return the names of a query's stateful operators; no other function determines them.

    Args:
        spark_names: Spark's names of the operators by number in the plan; an empty name if Spark recorded
            none.
        keyed: The names of Holdfast's keyed operators by number in the plan; None for a name that is not
            recorded.
    """
    own = keyed or {}
    bases = {
        number: short_name(name) if number not in own else own[number] or f"operator-{number}"
        for number, name in spark_names.items()
    }
    times = Counter(bases.values())
    return {
        number: OperatorName(
            number,
            f"{base}_{number}" if times[base] > 1 else base,
            KEYED_WORDS if number in own else kind_in_words(spark_names[number]),
            spark_names[number],
            own.get(number),
        )
        for number, base in bases.items()
    }


def state_name(operator: OperatorName, label: str) -> str:
    """Return the displayed name of an operator's state.

    Args:
        operator: The operator.
        label: The column family of the state, or its store if the store has no other families.
    """
    if label == DEFAULT_STORE or (label == KEYED_LABEL and operator.operator_kind == KEYED_WORDS):
        return operator.display_name
    family = family_of(operator.spark_name, label)
    if family is None:
        return label
    state = family.state(label)
    return " ".join(part for part in (TIMER_NAMES.get(state, state), _KEPT_BESIDE.get(family.use)) if part)


def short_name(name: str) -> str:
    """Return the display name of an operator without a name of its own, from Spark's name of its kind."""
    kind = operator_kind(name)
    return name or "operator" if kind is None else kind.alias


def kind_in_words(name: str) -> str:
    """Return the operation as named in Spark's documentation, from Spark's name."""
    kind = operator_kind(name)
    return (kind.words if kind is not None else "") or name or "stateful operator"


def is_processor(name: str) -> bool:
    """Return whether Spark's name is that of transformWithState, which requires RocksDB."""
    return operator_kind(name) is PROCESSOR


def is_internal(family: str) -> bool:
    """Return whether a column family or a state variable is internal to Spark."""
    return family.startswith("$")


def family_of(operator: str, label: str) -> Family | None:
    """Return the description of an internal family, or None for a family with the values of a state.

    Args:
        operator: Spark's name of the operator. Spark 3.5 records none; then only the label is used.
        label: The label of the family.
    """
    kind = operator_kind(operator)
    families = _ALL_FAMILIES if kind is None else kind.families
    return next((family for family in families if family.has(label)), None)


def use_of(operator: str, label: str) -> FamilyUse | None:
    """Return the use of an internal family, or None for a family with the values of a state."""
    family = family_of(operator, label)
    return None if family is None else family.use


def companion(operator: str, label: str, use: FamilyUse) -> str:
    """Return the label of the family that has the given use for the same state."""
    family = family_of(operator, label)
    state = label if family is None else family.state(label)
    return next(other.label(state) for other in _ALL_FAMILIES if other.use is use)


_SCHEMA: Final = "a state schema"
_JOIN_USES: Final = (FamilyUse.JOIN_ROWS, FamilyUse.JOIN_COUNTS)
# Spark adds this mark to the metadata of a session window's column.
_SESSION_MARK: Final = "spark.sessionWindow"
_SESSION_START: Final = "sessionStartTime"
# Spark's names of the first field of some values. The fields of an aggregate are named after its functions.
_BY_VALUE: Final = {
    "__dummy__": "dedupe",
    "expiresAtMicros": "dedupeWithinWatermark",
    # applyInPandasWithState stores the same fields.
    "groupState": "flatMapGroupsWithState",
}
_LIMIT: Final = ("key", "void")


def inferred_operator(stores: Iterable[str], families: Sequence[ColumnFamily], where: str) -> str:
    """Return Spark's name of an operator without metadata, inferred from its stores.

    Args:
        stores: The names of the operator's stores.
        families: The column families of the first store; empty if its schema is missing.
        where: The schema file, for error messages.

    Returns:
        The name that a newer version of Spark would record; empty if unknown.

    Raises:
        Corrupt: A schema is malformed.
    """
    if all(use_of("", store) in _JOIN_USES for store in stores):
        return STREAM_JOIN
    if not families:
        return ""
    keys, values = _fields(families[0].key_schema, where), _fields(families[0].value_schema, where)
    if [(field.get("name"), field.get("type")) for field in keys] == [_LIMIT]:
        return "globalLimit"
    if session_columns(families[0], where):
        return "sessionWindowStateStoreSaveExec"
    return _BY_VALUE.get(str(values[0].get("name")), "stateStoreSave") if values else "stateStoreSave"


def session_columns(family: ColumnFamily, where: str) -> int:
    """Return the number of leading key columns of session windows, or 0 if the state has no sessions.

    The keys end with the start of the session, and the values have the window of the session.

    Raises:
        Corrupt: A schema is malformed.
    """
    keys = _fields(family.key_schema, where)
    if not keys or (keys[-1].get("name"), keys[-1].get("type")) != (_SESSION_START, "timestamp"):
        return 0
    marked = any(
        (field.get("metadata") or {}).get(_SESSION_MARK) for field in _fields(family.value_schema, where)
    )
    return len(keys) - 1 if marked else 0


def _fields(schema: str, where: str) -> Sequence[Mapping[str, Any]]:
    found: Sequence[Mapping[str, Any]] = json_object(schema, _SCHEMA, where).get("fields") or ()
    return found
