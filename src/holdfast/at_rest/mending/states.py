"""The states of a checkpoint as they can be edited: what people name, and what Spark keeps beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from holdfast.at_rest.mending.columns import KEY, PLACE, VALUE, Column, columns_of
from holdfast.checkpoints.states import OperatorStates, StateCodec
from holdfast.errors import Corrupt, Invalid, NotFound, Unsupported
from holdfast.formats.row_forms import KeyForm, KeyKind
from holdfast.formats.spark_types import Atom, Struct, parse_struct
from holdfast.layout import DEFAULT_STORE

JOIN: Final = "symmetricHashJoin"
_TRANSFORM: Final = "transformWithState"
_SIDES: Final = ("left", "right")
_COUNTS, _INDEXED = "-keyToNumValues", "-keyWithIndexToValue"
_BY_TIME, _TIMES = "-keyWithTsToValues", "-tsWithKey"
_TIMERS: Final = {"$eventTimers": "timers", "$procTimers": "timers"}
TIMERS: Final = "timers"
EXPIRY: Final = "ttlExpirationMs"
INDEX: Final = "index"


class Kind(str, Enum):
    """How the rows that people see are kept."""

    SINGLE = "single"
    LIST = "list"
    TIMER = "timer"
    JOIN = "join"
    JOIN_BY_TIME = "join by time"


@dataclass(frozen=True, slots=True)
class EditableState:
    """One state of an operator, as people know it.

    Attributes:
        name: Its name: of transformWithState the variable's or `timers`, of a join `left` or `right`, else
            what Spark calls the operator.
        operator: The operator.
        kind: How its rows are kept.
        main: The family that has its rows.
        paired: What Spark keeps beside them, by what it is for: `count`, `expiry`, `least`, `reverse`.
        columns: Its columns.
    """

    name: str
    operator: OperatorStates
    kind: Kind
    main: StateCodec
    paired: dict[str, StateCodec]
    columns: tuple[Column, ...]

    @property
    def label(self) -> str:
        """The name that fits no other state of the checkpoint."""
        return f"{self.operator.operator_id}/{self.name}"

    @property
    def families(self) -> tuple[StateCodec, ...]:
        """Every family that an edit may change."""
        return (self.main, *self.paired.values())

    @property
    def stores(self) -> tuple[str, ...]:
        """Their stores."""
        return tuple(dict.fromkeys(each.name.store for each in self.families))

    def column(self, name: str) -> Column:
        """A column by its name, in whatever case.

        Raises:
            Invalid: There is none.
        """
        exact = [each for each in self.columns if each.name == name]
        found = exact or [each for each in self.columns if each.name.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
        raise Invalid(
            "there is no such column in the state",
            where=self.label,
            found=name,
            expected=", ".join(each.name for each in self.columns),
        )

    def key_columns(self) -> tuple[Column, ...]:
        """The columns of its key."""
        return tuple(each for each in self.columns if each.side == KEY)


def editable_states(operators: Sequence[OperatorStates]) -> list[EditableState]:
    """The states of a checkpoint that people name, Holdfast's own pages apart."""
    found: list[EditableState] = []
    for operator in operators:
        codecs = {each.name.label: each for each in operator.known()}
        if operator.name == JOIN:
            found += _sides(operator, codecs)
        elif operator.name.startswith(_TRANSFORM):
            found += _variables(operator, codecs)
        else:
            found += [
                _state(
                    each.name.label if len(codecs) > 1 else operator.name or each.name.label,
                    operator,
                    Kind.SINGLE,
                    each,
                    {},
                )
                for each in codecs.values()
                if not each.name.internal
            ]
    return found


def find(states: Sequence[EditableState], name: str, where: str) -> EditableState:
    """The state that a person means: `count`, `0/count`, or an operator's id or name where it has only one.

    Raises:
        NotFound: There is none.
        Invalid: There are several.
    """
    operator, slash, rest = name.rpartition("/")
    found = [
        each
        for each in states
        if (
            (slash and _is_operator(each, operator) and each.name == rest)
            or (not slash and (each.name == name or _only(each, states, name)))
        )
    ]
    if len(found) == 1:
        return found[0]
    known = ", ".join(each.label for each in states) or "no state"
    if found:
        raise Invalid(
            "several states have this name",
            where=where,
            found=name,
            expected="one of " + ", ".join(each.label for each in found),
        )
    raise NotFound("there is no such state", where=where, found=name, expected=f"one of {known}")


def _is_operator(state: EditableState, name: str) -> bool:
    return name in (str(state.operator.operator_id), state.operator.name)


def _only(state: EditableState, states: Sequence[EditableState], name: str) -> bool:
    """Whether a name is that of an operator with this state alone."""
    same = [each for each in states if each.operator is state.operator]
    return len(same) == 1 and (_is_operator(state, name) or name == DEFAULT_STORE)


def _sides(operator: OperatorStates, codecs: dict[str, StateCodec]) -> list[EditableState]:
    found = []
    for side in _SIDES:
        if f"{side}{_INDEXED}" in codecs:
            paired = {"count": codecs[f"{side}{_COUNTS}"]}
            main = codecs[f"{side}{_INDEXED}"]
            found.append(_state(side, operator, Kind.JOIN, main, paired, frozenset({INDEX})))
        elif f"{side}{_BY_TIME}" in codecs:
            times = codecs.get(f"{side}{_TIMES}")
            paired = {} if times is None else {"count": times}
            found.append(_state(side, operator, Kind.JOIN_BY_TIME, codecs[f"{side}{_BY_TIME}"], paired))
    return found


def _variables(operator: OperatorStates, codecs: dict[str, StateCodec]) -> list[EditableState]:
    found = []
    for label, codec in codecs.items():
        if codec.name.internal or codec.name.family == DEFAULT_STORE:
            continue
        paired = {
            role: codecs[f"${prefix}_{label}"]
            for role, prefix in (
                ("rows", "rowCounter"),
                ("count", "count"),
                ("least", "min"),
                ("expiry", "ttl"),
            )
            if f"${prefix}_{label}" in codecs
        }
        kind = Kind.LIST if {"rows", "least"} & paired.keys() else Kind.SINGLE
        found.append(_state(label, operator, kind, codec, paired))
    for family in _TIMERS:
        forward, back = codecs.get(f"{family}_keyToTimestamp"), codecs.get(f"{family}_timestampToKey")
        if forward is not None and back is not None:
            found.append(_state(TIMERS, operator, Kind.TIMER, forward, {"reverse": back}))
    return found


def _state(
    name: str,
    operator: OperatorStates,
    kind: Kind,
    main: StateCodec,
    paired: dict[str, StateCodec],
    hidden: frozenset[str] = frozenset(),
) -> EditableState:
    schema = main.schema
    if schema is None:
        raise Corrupt("a state has no schema", where=main.where, found=name)
    columns = columns_of(
        parse_struct(schema.key_schema, main.where),
        schema.key_schema,
        parse_struct(schema.value_schema, main.where),
        schema.value_schema,
        hidden,
    )
    if kind in (Kind.LIST, Kind.JOIN, Kind.JOIN_BY_TIME):
        columns = (*columns, Column(_free(PLACE, columns), PLACE, (), Atom("long"), nullable=False))
    return EditableState(name, operator, kind, main, paired, columns)


def _free(name: str, columns: Sequence[Column]) -> str:
    taken = {each.name.lower() for each in columns}
    while name in taken:
        name = f"{name}_"
    return name


def require_editable(state: EditableState) -> None:
    """Refuse what cannot be changed with certainty.

    Raises:
        Unsupported: The rows are not in a form that is written here.
    """
    if state.main.values.avro:
        raise Unsupported(
            "state that is encoded as Avro cannot be edited",
            where=state.main.where,
            found="spark.sql.streaming.stateStore.encodingFormat=avro",
            expected="unsaferow",
        )
    for codec in state.families:
        if codec.schema is None:
            raise Corrupt("a state has no schema", where=codec.where, found=codec.name.label)


__all__ = [
    "EXPIRY",
    "INDEX",
    "KEY",
    "PLACE",
    "TIMERS",
    "VALUE",
    "EditableState",
    "KeyForm",
    "KeyKind",
    "Kind",
    "Struct",
    "editable_states",
    "find",
    "require_editable",
]
