"""The columns of an operator's state, with the names that the query gives them.

Spark names the columns of an aggregation's state after the parts of a function, such as `sum` or `count`, and
never after the columns of the query. They are assigned with the plan, which lists the functions in the order
of their columns in the state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.checkpoints.state.states import OperatorShape
from holdfast.formats.operators import OperatorName
from holdfast.formats.rows.spark_types import DataType, Struct, parse_struct

# The marker for an initial value of a function that a user must specify.
UNKNOWN: Final = object()

# Columns by name, each with its value before the first row.
_Kept = Mapping[str, Any]
_MOMENTS: Final = {"n": 0.0, "avg": 0.0, "m2": 0.0}
_PAIRS: Final = {"n": 0.0, "xAvg": 0.0, "yAvg": 0.0, "ck": 0.0}
_SUM: Final[tuple[_Kept, ...]] = ({"sum": None, "isEmpty": True}, {"sum": None})
_AVERAGE: Final[tuple[_Kept, ...]] = ({"sum": 0, "count": 0},)
_FIRST: Final[tuple[_Kept, ...]] = ({"first": None, "valueSet": False},)
_LAST: Final[tuple[_Kept, ...]] = ({"last": None, "valueSet": False},)
_MIN: Final[tuple[_Kept, ...]] = ({"min": None},)
_MAX: Final[tuple[_Kept, ...]] = ({"max": None},)
_SPREAD: Final[tuple[_Kept, ...]] = (_MOMENTS,)
_EXTREME: Final[tuple[_Kept, ...]] = ({"valueWithExtremumOrdering": None, "extremumOrdering": None},)
# A count of nothing is 0, but so is a count of existing uncounted rows, so the user must specify it.
_COUNT: Final[tuple[_Kept, ...]] = ({"count": UNKNOWN},)
_BUFFER: Final[tuple[_Kept, ...]] = ({"buf": UNKNOWN},)
_SKETCH: Final = "approx_count_distinct"
_SKETCH_WORD: Final = re.compile(r"MS\[\d+\]")

FUNCTIONS: Final[Mapping[str, tuple[_Kept, ...]]] = {
    **dict.fromkeys(("count", "count_if"), _COUNT),
    **dict.fromkeys(("sum", "try_sum"), _SUM),
    **dict.fromkeys(("avg", "mean", "try_avg"), _AVERAGE),
    **dict.fromkeys(("min", "bool_and", "every"), _MIN),
    **dict.fromkeys(("max", "bool_or", "some", "any"), _MAX),
    **dict.fromkeys(("first", "first_value", "any_value"), _FIRST),
    **dict.fromkeys(("last", "last_value"), _LAST),
    **dict.fromkeys(
        ("stddev", "std", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop"), _SPREAD
    ),
    "skewness": ({**_MOMENTS, "m3": 0.0},),
    "kurtosis": ({**_MOMENTS, "m3": 0.0, "m4": 0.0},),
    "corr": ({**_PAIRS, "xMk": 0.0, "yMk": 0.0},),
    **dict.fromkeys(("covar_pop", "covar_samp"), (_PAIRS,)),
    **dict.fromkeys(("max_by", "min_by"), _EXTREME),
    **{name: ({name: UNKNOWN},) for name in ("bit_and", "bit_or", "bit_xor", "product")},
    **dict.fromkeys(("collect_list", "collect_set", "mode", "median", "percentile"), _BUFFER),
    _SKETCH: (),
}
_CALL: Final = re.compile(r"(?<![\w.])(" + "|".join(sorted(FUNCTIONS, key=len, reverse=True)) + r")\(")
_FILTER: Final = " FILTER ("
_OPEN, _CLOSE = "([", ")]"


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function of a step.

    Attributes:
        name: The name of the function, such as `sum`.
        text: The whole call, as in the plan.
        alias: The name of the result, if the function is the whole result expression; otherwise None.
    """

    name: str
    text: str
    alias: str | None


@dataclass(frozen=True, slots=True)
class AggregateStep:
    """The description of a grouping step.

    Attributes:
        keys: The grouping expressions.
        key_names: The name of each grouping expression in the result, or the expression if it is not in the
            result.
        functions: The functions, without duplicates, in the order of their columns.
    """

    keys: tuple[str, ...]
    key_names: tuple[str, ...]
    functions: tuple[AggregateFunction, ...]


def parse_step(text: str) -> AggregateStep | None:
    """Parse the text of an `Aggregate` step of a plan, with its grouping expressions and results.

    Returns:
        The step; None if the text cannot be parsed because an alias or a literal contains brackets.
    """
    lists = _lists(text)
    if lists is None or len(lists) > 2 or not lists:
        return None
    keys, results = lists if len(lists) == 2 else ([], lists[0])
    functions: dict[str, AggregateFunction] = {}
    for result in results:
        expression, alias = _split_alias(result)
        for name, call in _calls(expression):
            whole = alias if call == expression else None
            known = functions.get(call)
            if known is None or known.alias is None:
                functions[call] = AggregateFunction(name, call, whole)
    names: dict[str, str] = {}
    for result in results:
        names.setdefault(*_split_alias(result))
    return AggregateStep(tuple(keys), tuple(names.get(key, key) for key in keys), tuple(functions.values()))


def kept_columns(functions: Sequence[AggregateFunction], columns: Sequence[str]) -> tuple[_Kept, ...] | None:
    """Return the columns of a state, each with its function and its initial value.

    Args:
        functions: The functions, in order.
        columns: The names of the columns, in order.

    Returns:
        The columns; None if these functions do not have exactly these columns.
    """
    if not functions:
        return () if not columns else None
    for kept in _alternatives(functions[0].name, columns):
        if list(kept) == list(columns[: len(kept)]):
            rest = kept_columns(functions[1:], columns[len(kept) :])
            if rest is not None:
                return (kept, *rest)
    return None


def _alternatives(name: str, columns: Sequence[str]) -> tuple[_Kept, ...]:
    if name != _SKETCH:
        return FUNCTIONS[name]
    words: dict[str, Any] = {}
    for column in columns:
        if not _SKETCH_WORD.fullmatch(column) or column in words:
            break
        words[column] = 0
    return (words,) if words else ()


def _split_alias(result: str) -> tuple[str, str]:
    """Split a result into an expression and the name of the result."""
    expression, separator, alias = result.rpartition(" AS ")
    return (expression, alias) if separator else (result, result)


def _calls(expression: str) -> Iterator[tuple[str, str]]:
    at = 0
    while (found := _CALL.search(expression, at)) is not None:
        end = _closed(expression, found.end() - 1)
        if end is not None and expression.startswith(_FILTER, end):
            end = _closed(expression, end + len(_FILTER) - 1)
        if end is None:
            return
        yield found[1], expression[found.start() : end]
        at = end


def _closed(text: str, start: int) -> int | None:
    """Return the position after the bracket that closes the bracket at a position; None if unclosed."""
    depth = 0
    for at in range(start, len(text)):
        if text[at] in _OPEN:
            depth += 1
        elif text[at] in _CLOSE:
            depth -= 1
            if not depth:
                return at + 1
    return None


def _lists(text: str) -> list[list[str]] | None:
    """Parse consecutive bracketed lists, each into its items."""
    found: list[list[str]] = []
    at = 0
    while at < len(text):
        end = _closed(text, at) if text[at] == "[" else None
        if end is None:
            return None
        items = _items(text[at + 1 : end - 1])
        if items is None:
            return None
        found.append(items)
        at = end
        if text[at : at + 2] == ", ":
            at += 2
        elif at != len(text):
            return None
    return found


def _items(text: str) -> list[str] | None:
    items, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        if sign in _OPEN:
            depth += 1
        elif sign in _CLOSE:
            depth -= 1
            if depth < 0:
                return None
        elif sign == "," and not depth and text[at + 1 : at + 2] == " ":
            items.append(text[start:at])
            start = at + 2
    return None if depth else [*items, text[start:]] if text else []


AGGREGATE: Final = "stateStoreSave"
SESSIONS: Final = "sessionWindowStateStoreSaveExec"
DEDUPE: Final = "dedupe"
DEDUPE_WITHIN: Final = "dedupeWithinWatermark"
# The operators whose rows can be converted.
EVOLVING: Final = frozenset({AGGREGATE, SESSIONS, DEDUPE, DEDUPE_WITHIN})
# The settings that determine the format of an aggregation's values: with or without a copy of the key.
VERSION: Final = "spark.sql.streaming.aggregation.stateFormatVersion"
_SESSION_MARK: Final = "spark.sessionWindow"


@dataclass(frozen=True, slots=True)
class StateColumn:
    """A column of a key or of a value.

    Attributes:
        label: The name in the query: a grouping column, the result of an aggregate, or for an aggregate with
            several columns, the result and the column, as in `mean.sum`.
        name: The name in the schema; of equal names, the later ones have a number.
        type: The type of the column.
        type_text: The type as text.
        nullable: Whether the column may have nulls.
        function: The aggregate function to which the column belongs; None if unknown.
        aggregate: The name of the aggregate in the query; empty if there is none.
        expression: The expression of a key column; empty if unknown.
        kept: Spark's name for the column within its function.
        empty: The value before the first row; `UNKNOWN` if the user must give it.
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
    """An operator with the columns of its state.

    Attributes:
        shape: Spark's metadata of the operator.
        named: The names of the operator.
        step: The text of the operator's step in the plan; None without a plan.
        keys: The columns of the key.
        copies: The columns of the value that repeat the key, each as the index of the key column; None for
            the window of a session.
        copied: The columns of `copies`.
        values: The other columns of the value.
        key_type: The type of the key.
        value_type: The type of the value.
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
        """The number of the operator in the plan."""
        return self.shape.operator_id

    @property
    def kind(self) -> str:
        """Spark's name for the operator's type."""
        return self.shape.kind

    @property
    def evolves(self) -> bool:
        """Return whether the rows of the operator can be converted."""
        return self.kind in EVOLVING and bool(self.value_type.names)

    @property
    def labels(self) -> frozenset[str]:
        """The labels of all columns of the operator."""
        return frozenset(
            name for column in (*self.keys, *self.values) for name in (column.label, column.aggregate) if name
        )


def columns_of(
    shape: OperatorShape, named: OperatorName, step: str | None, confs: Mapping[str, str], where: str
) -> OperatorColumns:
    """Return the columns of an operator's state.

    Args:
        shape: Spark's metadata of the operator.
        named: The names of the operator.
        step: The text of the operator's step in the plan; None without a plan.
        confs: The settings that are pinned in the checkpoint.
        where: The checkpoint, for messages.

    Raises:
        Unsupported: A column has a type that is not supported.
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
    # The key of a session ends with its start; the value has the window instead.
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
    """Return a Spark type as text, from its JSON."""
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
