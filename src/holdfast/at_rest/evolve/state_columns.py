"""The columns of an operator's state, each by the name that the query has for it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.at_rest.evolve.aggregate_functions import (
    UNKNOWN,
    AggregateFunction,
    AggregateStep,
    kept_columns,
    parse_step,
)
from holdfast.checkpoints.state.shapes import OperatorShape
from holdfast.formats.operators import OperatorName
from holdfast.formats.rows.spark_types import DataType, Struct, parse_struct

AGGREGATE: Final = "stateStoreSave"
SESSIONS: Final = "sessionWindowStateStoreSaveExec"
DEDUPE: Final = "dedupe"
DEDUPE_WITHIN: Final = "dedupeWithinWatermark"
# The operators whose rows can be brought into another form.
EVOLVING: Final = frozenset({AGGREGATE, SESSIONS, DEDUPE, DEDUPE_WITHIN})
# Which form an aggregation's values have: with a copy of the key before them, or without.
VERSION: Final = "spark.sql.streaming.aggregation.stateFormatVersion"
_SESSION_MARK: Final = "spark.sessionWindow"


@dataclass(frozen=True, slots=True)
class StateColumn:
    """A column of a key or of a value.

    Attributes:
        label: What the query calls it: a grouping column, the result of an aggregate, or of one that keeps
            several columns that and the column, as in `mean.sum`.
        name: Its name in the schema; where two have the same, the later ones with a number.
        type: Its type.
        type_text: Its type in words.
        nullable: Whether it may have nulls.
        function: The aggregate function that keeps it; None where nothing tells.
        aggregate: What the query calls the aggregate; empty where there is none.
        expression: What a key is computed by; empty where nothing tells.
        kept: The column as Spark calls it among those of its function.
        empty: What it has before the first row; `UNKNOWN` where that has to be said.
    """

    label: str
    name: str
    type: DataType
    type_text: str
    nullable: bool
    function: AggregateFunction | None = None
    aggregate: str = ""
    expression: str = ""
    kept: str = ""
    empty: Any = UNKNOWN


@dataclass(frozen=True, slots=True)
class OperatorColumns:
    """An operator, and the columns of its state.

    Attributes:
        shape: What Spark noted of it.
        named: What it is called.
        step: What the plan says of it; None where there is no plan.
        keys: The columns of its keys.
        copies: The columns of its values that repeat the key. Each is given by the place of the key column
            that it repeats; None for the window of a session.
        copied: The columns behind `copies`.
        values: The other columns of its values.
        key_type: The type of its keys.
        value_type: The type of its values.
    """

    shape: OperatorShape
    named: OperatorName
    step: str | None
    keys: tuple[StateColumn, ...] = ()
    copies: tuple[int | None, ...] = ()
    copied: tuple[StateColumn, ...] = ()
    values: tuple[StateColumn, ...] = ()
    key_type: Struct = field(default_factory=lambda: Struct((), ()))
    value_type: Struct = field(default_factory=lambda: Struct((), ()))

    @property
    def number(self) -> int:
        """Spark's number of it."""
        return self.shape.operator_id

    @property
    def kind(self) -> str:
        """Spark's name for what it does."""
        return self.shape.kind

    @property
    def evolves(self) -> bool:
        """Whether its rows can be brought into another form."""
        return self.kind in EVOLVING and bool(self.value_type.names)

    @property
    def labels(self) -> frozenset[str]:
        """All that one of its columns may be called."""
        return frozenset(
            name for column in (*self.keys, *self.values) for name in (column.label, column.aggregate) if name
        )


def columns_of(
    shape: OperatorShape, named: OperatorName, step: str | None, confs: Mapping[str, str], where: str
) -> OperatorColumns:
    """The columns of an operator's state.

    Args:
        shape: What Spark noted of it.
        named: What it is called.
        step: The text of its step in the plan; None where there is no plan.
        confs: What the checkpoint is fixed to.
        where: The checkpoint, for messages.

    Raises:
        Unsupported: A column has a type that is not known here.
        Corrupt: A schema is damaged.
    """
    plain = OperatorColumns(shape, named, step)
    if shape.kind not in EVOLVING or len(shape.stores) != 1 or len(shape.stores[0].families) != 1:
        return plain
    family = shape.stores[0].families[0]
    key_type = parse_struct(family.key_schema, where)
    value_type = parse_struct(family.value_schema, where)
    keys: Sequence[Any] = json.loads(family.key_schema)["fields"]
    values: Sequence[Any] = json.loads(family.value_schema)["fields"]
    known = parse_step(step) if step is not None and shape.kind in (AGGREGATE, SESSIONS) else None
    copies = _copies(shape.kind, keys, values, confs)
    count = len(copies)
    return OperatorColumns(
        shape,
        named,
        step,
        keys=_keys(keys, key_type, known if shape.kind == AGGREGATE else None),
        copies=copies,
        copied=_plain(values[:count], value_type, 0),
        values=_values(values[count:], value_type, count, known),
        key_type=key_type,
        value_type=value_type,
    )


def _copies(
    kind: str, keys: Sequence[Any], values: Sequence[Any], confs: Mapping[str, str]
) -> tuple[int | None, ...]:
    if kind == AGGREGATE:
        return tuple(range(len(keys))) if confs.get(VERSION, "2") == "1" else ()
    if kind != SESSIONS:
        return ()
    # A session's key ends with its start, and its value has the window in place of that.
    places: list[int | None] = []
    for column in values[: len(keys)]:
        is_window = _SESSION_MARK in (column.get("metadata") or {})
        places.append(None if is_window else sum(place is not None for place in places))
    return tuple(places)


def _plain(columns: Sequence[Any], type_: Struct, first: int) -> tuple[StateColumn, ...]:
    return tuple(_column(column, type_, first + at) for at, column in enumerate(columns))


def _keys(columns: Sequence[Any], type_: Struct, step: AggregateStep | None) -> tuple[StateColumn, ...]:
    if step is None or len(step.keys) != len(columns):
        return _plain(columns, type_, 0)
    return tuple(
        _column(column, type_, at, label=name, expression=expression)
        for at, (column, name, expression) in enumerate(zip(columns, step.key_names, step.keys, strict=True))
    )


def _values(
    columns: Sequence[Any], type_: Struct, first: int, step: AggregateStep | None
) -> tuple[StateColumn, ...]:
    names = [str(column["name"]) for column in columns]
    kept = None if step is None else kept_columns(step.functions, names)
    if step is None or kept is None:
        return _plain(columns, type_, first)
    found: list[StateColumn] = []
    for function, parts in zip(step.functions, kept, strict=True):
        aggregate = function.alias or function.text
        for name, empty in parts.items():
            at = len(found)
            found.append(
                _column(
                    columns[at],
                    type_,
                    first + at,
                    label=aggregate if len(parts) == 1 else f"{aggregate}.{name}",
                    function=function,
                    aggregate=aggregate,
                    kept=name,
                    empty=0 if name == "sum" and "isEmpty" in parts else empty,
                )
            )
    return tuple(found)


def _column(column: Mapping[str, Any], type_: Struct, at: int, **more: Any) -> StateColumn:
    name = type_.names[at]
    more.setdefault("label", name)
    return StateColumn(
        name=name,
        type=type_.types[at],
        type_text=type_text(column["type"]),
        nullable=bool(column.get("nullable", True)),
        **more,
    )


def type_text(given: Any) -> str:
    """A type of Spark's in words, from its JSON."""
    if isinstance(given, str):
        return given
    kind = given.get("type")
    if kind == "struct":
        inner = ", ".join(f"{part['name']} {type_text(part['type'])}" for part in given["fields"])
        return f"struct<{inner}>"
    if kind == "array":
        return f"array<{type_text(given['elementType'])}>"
    if kind == "map":
        return f"map<{type_text(given['keyType'])}, {type_text(given['valueType'])}>"
    return str(kind)
