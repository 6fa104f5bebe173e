"""Which aggregate functions a step of a plan has, and which columns of state each of them keeps.

Spark names the columns of an aggregation's state after what a function keeps, `sum` or `count`, and never
after the query's own columns. What belongs to which is told by the plan: the functions stand there in the
order in which their columns stand in the state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

# Stands for what a function keeps before its first row, where a person has to say it.
UNKNOWN: Final = object()

# Columns by name, each with what it has before the first row.
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
# A count of nothing is 0, and so is a count of rows that nobody has counted: a person says which it is.
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
        name: Its name, such as `sum`.
        text: The whole call, as the plan has it.
        alias: What its result is called, where the result is nothing but that; else None.
    """

    name: str
    text: str
    alias: str | None


@dataclass(frozen=True, slots=True)
class AggregateStep:
    """What a step says that groups rows.

    Attributes:
        keys: The expressions that it groups by.
        key_names: What each of them is called in the result; the expression where it is not in there.
        functions: Its functions, each once, in the order in which they keep their columns.
    """

    keys: tuple[str, ...]
    key_names: tuple[str, ...]
    functions: tuple[AggregateFunction, ...]


def parse_step(text: str) -> AggregateStep | None:
    """Read the text of an `Aggregate` step of a plan: what it groups by, then what it gives.

    Returns:
        None where the text cannot be taken apart: an alias or a literal has brackets in it.
    """
    lists = _lists(text)
    if lists is None or len(lists) > 2 or not lists:
        return None
    keys, results = lists if len(lists) == 2 else ([], lists[0])
    functions: dict[str, AggregateFunction] = {}
    for result in results:
        expression, alias = _named(result)
        for name, call in _calls(expression):
            whole = alias if call == expression else None
            known = functions.get(call)
            if known is None or known.alias is None:
                functions[call] = AggregateFunction(name, call, whole)
    names: dict[str, str] = {}
    for result in results:
        names.setdefault(*_named(result))
    return AggregateStep(tuple(keys), tuple(names.get(key, key) for key in keys), tuple(functions.values()))


def kept_columns(functions: Sequence[AggregateFunction], columns: Sequence[str]) -> tuple[_Kept, ...] | None:
    """Which of a state's columns each function keeps, by name, with what each has before the first row.

    Args:
        functions: The functions, in their order.
        columns: The names of the columns, in theirs.

    Returns:
        None where these functions do not keep exactly these columns.
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


def _named(result: str) -> tuple[str, str]:
    """An expression, and what its result is called."""
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
    """Behind the bracket that closes the one at a place."""
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
    """Lists in brackets, one behind the other, each by its items."""
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
