"""The states of a checkpoint as they can be edited: what people name, and what Spark keeps beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final

from holdfast.at_rest.edit.state_columns import KEY, PLACE, VALUE, Column, columns_of
from holdfast.at_rest.read.model import NamedOperator, NamedState, StateForm
from holdfast.at_rest.read.tables import EXPIRES
from holdfast.at_rest.read.written_keys import FirstKey, first_key, no_key
from holdfast.checkpoints.state.families import Pairs
from holdfast.checkpoints.state.rows import store_chunks
from holdfast.checkpoints.state.states import OperatorStates, StateCodec
from holdfast.errors import Invalid, Unsupported
from holdfast.formats.operators import FamilyUse, companion, use_of
from holdfast.formats.rows.spark_types import Atom, Struct, parse_struct
from holdfast.layout import StoreId
from holdfast.storage.port import Storage

# The families that are kept in step with a state of transformWithState, by what edits call them.
_COMPANIONS: Final = {
    "rows": FamilyUse.LIST_COUNTER,
    "count": FamilyUse.EXPIRY_COUNTER,
    "least": FamilyUse.FIRST_EXPIRY,
    "expiry": FamilyUse.EXPIRY_INDEX,
}
EXPIRY: Final = "ttlExpirationMs"
INDEX: Final = "index"


class Kind(str, Enum):
    """How the rows that people see are kept."""

    SINGLE = "single"
    LIST = "list"
    TIMER = "timer"
    JOIN = "join"
    JOIN_BY_TIME = "join by time"

    @property
    def several(self) -> bool:
        """Whether a key has several rows, each with a place."""
        return self in (Kind.LIST, Kind.JOIN, Kind.JOIN_BY_TIME)


class Columns:
    """What has columns under names; `label` and `columns` say which."""

    __slots__ = ()
    label: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """A column by its name, in whatever case.

        Raises:
            Invalid: There is none.
        """
        exact = [column for column in self.columns if column.name == name]
        fitting = exact or [column for column in self.columns if column.name.lower() == name.lower()]
        if len(fitting) == 1:
            return fitting[0]
        raise Invalid(
            "there is no such column in the state",
            where=self.label,
            found=name,
            expected=", ".join(column.name for column in self.columns),
            hint="see the columns of each state with `holdfast state list`",
        )

    def unfit(self, column: str, found: str, expected: str) -> Invalid:
        """The error for a value that is not of its column, or for a column that is not of the state."""
        return Invalid(
            "the edit breaks the schema of the state",
            where=f"{self.label}, column {column}",
            found=found,
            expected=expected,
            hint="see the columns and their types with `holdfast state list`",
        )

    def taken(self, row: Mapping[str, Any]) -> Invalid:
        """The error for a row that is to be inserted under a key that is there."""
        key = {column.name: row.get(column.name) for column in self.key_columns()}
        return Invalid(
            "a row cannot be inserted: its key is there already",
            where=self.label,
            found=str(key)[:200],
            hint="change it with --set and --key",
        )

    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the stored key."""
        return tuple(column for column in self.columns if column.side == KEY)

    def repeated(self) -> dict[str, Column]:
        """Columns of the value that only repeat one of the key, by the names of both."""
        keys = {column.path[-1]: column for column in self.key_columns()}
        return {
            column.name: keys[column.path[-1]]
            for column in self.columns
            if column.side == VALUE and len(column.path) == 1 and column.path[-1] in keys
        }


@dataclass(frozen=True)
class EditableState(Columns):
    """One state of an operator, as people know it.

    Attributes:
        label: Its name, with the operator's where that has several.
        operator: The operator.
        kind: How its rows are kept.
        main: The family that has its rows.
        paired: What Spark keeps beside them, by what it is for: `rows` and `count` count them, `least` is the
            first of their times, `expiry` finds them by time, `reverse` finds timers by time.
        key: The columns that a key is asked for by.
        columns: All its columns.
        first_key: Gives a key that it has, for messages.
    """

    label: str
    operator: OperatorStates
    kind: Kind
    main: StateCodec
    paired: dict[str, StateCodec]
    key: Struct
    columns: tuple[Column, ...]
    first_key: FirstKey = field(default=no_key, repr=False, compare=False)

    @property
    def families(self) -> tuple[StateCodec, ...]:
        """Every family that an edit may change."""
        return (self.main, *self.paired.values())

    @property
    def stores(self) -> tuple[str, ...]:
        """Their stores."""
        return tuple(dict.fromkeys(family.name.store for family in self.families))

    def rows(self, view: Storage, partition: int) -> Iterator[tuple[StateCodec, Pairs]]:
        """The rows of a partition in all its families, and in others of the same stores."""
        for name in self.stores:
            store = StoreId(self.operator.operator_id, partition, name)
            yield from store_chunks(view, self.operator, store)


def editable(operator: NamedOperator, state: NamedState) -> EditableState:
    """A state as it can be edited.

    Raises:
        Unsupported: Its rows are of a kind that cannot be changed with certainty.
        Corrupt: It has no schema.
    """
    main = state.codec
    if main is None:
        raise Unsupported(
            "key groups are not edited row by row",
            where=state.full_name,
            hint="name the operator, or one of its states as `holdfast state list` shows them",
        )
    if main.values.avro:
        raise Unsupported(
            "state that is encoded as Avro cannot be edited",
            where=main.where,
            found="spark.sql.streaming.stateStore.encodingFormat=avro",
            expected="unsaferow",
            hint="change it in the query, or start a query with the default encoding from its sources",
        )
    codecs = {family.name.label: family for family in operator.files.known()}
    kind, paired = _kept(main, codecs, state)
    for codec in (main, *paired.values()):
        codec.require_schema()
    return EditableState(
        label=state.full_name,
        operator=operator.files,
        kind=kind,
        main=main,
        paired=paired,
        key=state.key,
        columns=_columns(main, kind, ttl=state.ttl),
        first_key=partial(first_key, state),
    )


def _kept(
    main: StateCodec, codecs: dict[str, StateCodec], state: NamedState
) -> tuple[Kind, dict[str, StateCodec]]:
    labels = {use: companion(main.name.operator, main.name.label, use) for use in FamilyUse}
    main_use = use_of(main.name.operator, main.name.label)
    if main_use is FamilyUse.JOIN_ROWS:
        return Kind.JOIN, {"count": codecs[labels[FamilyUse.JOIN_COUNTS]]}
    if main_use is FamilyUse.JOIN_ROWS_BY_TIME:
        times = codecs.get(labels[FamilyUse.JOIN_TIMES])
        return Kind.JOIN_BY_TIME, {} if times is None else {"count": times}
    if main_use is FamilyUse.JOIN_TIMES:
        raise Unsupported(
            "this is an index of a join's rows, which follows them",
            where=state.full_name,
            hint=f"edit {labels[FamilyUse.JOIN_ROWS_BY_TIME]}",
        )
    if state.form is StateForm.TIMERS:
        return Kind.TIMER, {"reverse": codecs[labels[FamilyUse.TIMER_INDEX]]}
    paired = {role: codecs[labels[use]] for role, use in _COMPANIONS.items() if labels[use] in codecs}
    return (Kind.LIST if {"rows", "least"} & paired.keys() else Kind.SINGLE), paired


def _columns(main: StateCodec, kind: Kind, *, ttl: bool) -> tuple[Column, ...]:
    schema = main.require_schema()
    hidden = frozenset({INDEX}) if kind is Kind.JOIN else frozenset()
    columns = columns_of(
        parse_struct(schema.key_schema, main.where),
        schema.key_schema,
        parse_struct(schema.value_schema, main.where),
        schema.value_schema,
        hidden,
    )
    if ttl:
        columns = tuple(
            Column(EXPIRES, column.side, column.path, column.type, column.nullable)
            if column.path == (EXPIRY,)
            else column
            for column in columns
        )
    if kind.several:
        columns = (*columns, Column(_free(INDEX, columns), PLACE, (), Atom("long"), nullable=False))
    return columns


def _free(name: str, columns: Sequence[Column]) -> str:
    taken = {column.name.lower() for column in columns}
    while name in taken:
        name = f"{name}_"
    return name
