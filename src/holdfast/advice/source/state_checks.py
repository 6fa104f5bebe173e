"""State without an end or larger than it need be, and watermarks that do not do what they seem to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from holdfast.advice.source.evaluated import Evaluated
from holdfast.advice.source.hits import Hit, listed
from holdfast.advice.source.values import Columns, Const, Module, Stateful, Watermark, Writer
from holdfast.config.units import parse_duration
from holdfast.errors import HoldfastError

_WINDOWS: Final = frozenset(("window", "session_window"))
_COLLECTING: Final = frozenset(("collect_list", "collect_set", "array_agg", "listagg", "string_agg"))
# Functions that have as many results as there are values.
_KEEPING: Final = frozenset(
    [
        "cast",
        "lower",
        "upper",
        "trim",
        "coalesce",
        "concat",
        "concat_ws",
        "md5",
        "sha1",
        "sha2",
        "hash",
        "xxhash64",
    ]
)
_CHANCE: Final = frozenset(("rand", "randn", "uuid", "random"))
_DAY_MS: Final = 24 * 3_600_000
_MONTH_MS: Final = 30 * _DAY_MS
_MONTHS: Final = re.compile(r"(\d{1,4})\s*(month|year)s?")
_LOSING: Final = frozenset(
    ("withWatermark", "dropDuplicates", "dropDuplicatesWithinWatermark", "drop_duplicates")
)


def state_hits(found: Evaluated) -> Iterator[Hit]:
    """What is wrong with the state of each operator, and with watermarks."""
    operators = found.operators()
    for operator in operators:
        yield from _of_operator(operator)
    yield from _watermark_hits(found, operators)
    for writer in found.writers:
        yield from _complete_hits(writer)
        yield from _salt_hits(writer)


def _of_operator(operator: Stateful) -> Iterator[Hit]:
    if operator.kind == "aggregate":
        yield from _aggregate_hits(operator)
        collected = sorted(operator.columns.calls & _COLLECTING)
        if collected:
            yield Hit("HF109", operator.node, f"{collected[0]} keeps every value of a group in its state")
    elif operator.kind == "own" and operator.columns.calls & _COLLECTING:
        collected = sorted(operator.columns.calls & _COLLECTING)
        yield Hit("HF109", operator.node, f"{collected[0]} keeps every value of a window in its state")
    elif operator.kind == "dedupe":
        yield from _dedupe_hits(operator)
    elif operator.kind == "dedupe-within":
        if operator.known and not operator.watermarks:
            yield Hit("HF103", operator.node, f"{operator.method} has no watermark before it")
    elif operator.kind == "join":
        yield from _join_hits(operator)
    elif operator.kind == "groups":
        yield Hit("HF501", operator.node, f"{operator.method} is called")
        timeout = dict(operator.arguments).get("timeoutConf", dict(operator.arguments).get("4"))
        if _is_no_timeout(timeout):
            yield Hit("HF502", operator.node, f"{operator.method} has no timeout")


def _is_no_timeout(value: object) -> bool:
    if isinstance(value, Const):
        return bool(value.value == "NoTimeout")
    return isinstance(value, Module) and value.name.endswith("GroupStateTimeout.NoTimeout")


def _aggregate_hits(operator: Stateful) -> Iterator[Hit]:
    keys = operator.keys
    if not operator.known or not keys.known or not (keys.names or keys.used or keys.calls):
        return  # an aggregate over everything is one row
    if not keys.names and not keys.calls <= _KEEPING | _WINDOWS:
        return  # such as `value % 8`, which has few results
    windowed = bool(keys.calls & _WINDOWS)
    if not operator.watermarks:
        if windowed or keys.names & operator.time_columns:
            yield Hit("HF101", operator.node, "windows are aggregated without a watermark")
        else:
            yield Hit(
                "HF102",
                operator.node,
                f"{operator.method} over {listed(keys)} has no watermark and no window",
            )
        return
    if None in {mark.column for mark in operator.watermarks}:
        return
    columns = {mark.column for mark in operator.watermarks}
    marks = ", ".join(sorted(f"`{column}`" for column in columns))
    if windowed and keys.unmarked & columns:
        yield Hit(
            "HF208", operator.node, f"the window does not have the mark of the watermark's column, {marks}"
        )
    elif windowed and not (keys.used | keys.names) & operator.time_columns:
        if keys.used & columns:
            yield Hit(
                "HF208", operator.node, f"{marks} is made anew behind the watermark, and has no mark then"
            )
            return
        yield Hit("HF202", operator.node, f"the window is over another column than the watermark's, {marks}")
    elif not windowed and not keys.names & operator.time_columns:
        yield Hit("HF102", operator.node, f"the keys {listed(keys)} have neither a window nor the event time")


def _dedupe_hits(operator: Stateful) -> Iterator[Hit]:
    keys = operator.keys
    if not operator.known or not keys.known:
        return
    if not operator.watermarks:
        yield Hit("HF103", operator.node, f"{operator.method} has no watermark before it")
        return
    if not keys.names or None in {mark.column for mark in operator.watermarks}:
        return  # all columns, the event time among them
    if not keys.names & operator.time_columns:
        yield Hit("HF104", operator.node, f"{operator.method} by {listed(keys)} does not have the event time")
    elif len(keys.names) > 1:
        time = ", ".join(f"`{name}`" for name in sorted(keys.names & operator.time_columns))
        yield Hit("HF105", operator.node, f"{operator.method} has the event time {time} among its keys")


def _join_hits(operator: Stateful) -> Iterator[Hit]:
    if not operator.known:
        return
    missing = [
        side for side, marks in (("left", operator.watermarks), ("right", operator.other)) if not marks
    ]
    if missing:
        which = (
            "neither side has a watermark" if len(missing) == 2 else f"the {missing[0]} side has no watermark"
        )
        yield Hit("HF106", operator.node, f"two streams are joined, and {which}")
        return
    keys: Columns = operator.keys
    columns = {mark.column for mark in (*operator.watermarks, *operator.other)}
    if not keys.known or None in columns:
        return
    timed = keys.compares or keys.names & operator.time_columns or keys.calls & {"window", "between"}
    if not timed and not (keys.used & operator.time_columns):
        yield Hit("HF107", operator.node, "two streams are joined without a bound of their times")


def _watermark_hits(found: Evaluated, operators: list[Stateful]) -> Iterator[Hit]:
    again: set[int] = set()
    for frame, node in found.dropped:
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if method in _LOSING and (frame.streaming or method == "withWatermark"):
            yield Hit("HF201", node, f"the frame that {method} gives is not kept")
    for mark, before in found.marks:
        needing = [each for each in before.operators if each.kind == "aggregate" and not each.watermarks]
        if before.streaming and needing and needing[-1].known:
            yield Hit(
                "HF203", mark.node, f"the watermark stands behind the aggregate in line {_line(needing[-1])}"
            )
        if before.watermarks and before.known and not before.operators:
            again.add(id(mark.node))
            yield Hit("HF205", mark.node, "a stream that has a watermark gets another one")
    seen: set[int] = set()
    for operator in operators:
        for mark in (*operator.watermarks, *operator.other):
            if id(mark.node) not in seen:
                seen.add(id(mark.node))
                yield from _long_hits(mark)
    for operator in operators:
        marks = {id(mark.node) for mark in (*operator.watermarks, *operator.other)} - again
        if len(marks) > 1 and operator.known:
            yield Hit("HF206", operator.node, f"{len(marks)} watermarks meet here")
            break


def _line(operator: Stateful) -> int:
    return Hit("", operator.node, "").line


def _long_hits(mark: Watermark) -> Iterator[Hit]:
    ms = delay_ms(mark.delay)
    if ms is not None and ms > _DAY_MS:
        yield Hit("HF204", mark.node, f"the watermark waits {mark.delay}")


def delay_ms(text: str | None) -> int | None:
    """A delay as Spark reads it; None where it cannot be told."""
    if text is None:
        return None
    words = text.lower().removeprefix("interval").strip()
    months = _MONTHS.fullmatch(words)
    if months is not None:
        return int(months[1]) * (12 if months[2] == "year" else 1) * _MONTH_MS
    try:
        return parse_duration(words, "")
    except HoldfastError:
        return None


def _complete_hits(writer: Writer) -> Iterator[Hit]:
    if writer.mode != "complete":
        return
    last = next((each for each in reversed(writer.frame.operators) if each.kind == "aggregate"), None)
    if last is None or not last.keys.known or not (last.keys.names or last.keys.calls):
        return
    node = writer.nodes.get("mode", writer.node)
    yield Hit("HF108", node, f"output mode complete over the keys {listed(last.keys)}")


def _salt_hits(writer: Writer) -> Iterator[Hit]:
    aggregates = [each for each in writer.frame.operators if each.kind == "aggregate"]
    for position, operator in enumerate(aggregates):
        by_chance = operator.keys.calls & _CHANCE or operator.keys.used & operator.random_columns
        if by_chance and position == len(aggregates) - 1 and operator.known:
            yield Hit(
                "HF110",
                operator.node,
                "rows are grouped by a number of chance, and nothing adds the parts up",
            )
