"""The plan of a query, and the state that the query would store; nothing is started.

An operator's definition stays in its process; the plan has only the number of the definition. If the plan has
a metric of Holdfast, the number is one of its columns; otherwise it is an alias of a frame, which Spark
removes before it runs anything.

Spark deletes state by the column that its plan marks as event time. The mark is in the column's metadata, and
is lost in every expression on the column. So the plan shows the state reliably, while the code only suggests
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.connect import is_connect
from holdfast.engine.described import sources_of
from holdfast.formats.logs.notes import PlanSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_ID = re.compile(rf"#\d+|@[0-9a-f]+|{_UUID}")
# Each watermark has an id, which its copies share: a frame that is joined with itself has one watermark.
_ANALYSED = "== Analyzed Logical Plan ==\n"
_STREAMING = re.compile(
    r"([ :+-]*~)(Aggregate|Deduplicate|DeduplicateWithinWatermark|Distinct|Join|TransformWithState\w*"
    r"|FlatMapGroups\w*WithState)\b"
)
_WATERMARK = re.compile(f"EventTimeWatermark ({_UUID})")


def analysed_plan(frame: DataFrame) -> str:
    """Return the analyzed plan as text; over Spark Connect, from the server's `explain` output."""
    if is_connect(frame):
        remote: Any = frame
        # `explain` is the public method; it prints this text.
        _, _, rest = remote._explain_string(extended=True).partition(_ANALYSED)
        return str(rest.partition("\n== ")[0])
    plan: Any = frame._jdf.queryExecution().analyzed()
    return str(plan.toString())


def has_state(frame: DataFrame) -> bool:
    """Return whether an operator with state is in a stream's plan.

    Spark prints a streaming node with a tilde. A join has state if both of its inputs are streams.
    """
    lines = analysed_plan(frame).splitlines()
    for at, line in enumerate(lines):
        node = _STREAMING.match(line)
        if node is None:
            continue
        if node[2] != "Join":
            return True
        # The inputs of a node are the next lines whose branch begins below its tilde.
        below = (other[node.end(1) - 1 :] for other in lines[at + 1 :])
        if [branch[3:4] for branch in below if branch.startswith((":- ", "+- "))][:2] == ["~", "~"]:
            return True
    return False


def watermark_count(frame: DataFrame) -> int:
    """Return the number of watermarks in a frame's plan; Spark tracks each of them while the query runs."""
    return len(set(_WATERMARK.findall(analysed_plan(frame))))


def optimised_plan(frame: DataFrame) -> str:
    """Return the optimized plan as text, with ids numbered in order of appearance.

    A streaming frame has no optimized plan, so the session's optimizer is called. Spark's work depends only
    on this plan, so equal plans cost the same.
    """
    spark: Any = frame.sparkSession
    plan = frame._jdf.queryExecution().analyzed()
    text = spark._jsparkSession.sessionState().optimizer().execute(plan).toString()
    seen: dict[str, str] = {}
    return _ID.sub(lambda found: seen.setdefault(found[0], f"#{len(seen)}"), text)


METRIC_COLUMN: Final = "definition"
_ALIAS: Final = "holdfast_definition_"
_NUMBERS: Final = re.compile(rf"max\((\d+)\) AS {METRIC_COLUMN}#|SubqueryAlias {_ALIAS}(\d+)\b")


def marked(frame: DataFrame, number: int) -> DataFrame:
    """Return the frame with the number of a definition in its plan."""
    return frame.alias(f"{_ALIAS}{number}")


def definitions_in(frame: DataFrame) -> list[int]:
    """Return the numbers of all definitions in a frame's plan, without duplicates."""
    found = [int(one or other) for one, other in _NUMBERS.findall(analysed_plan(frame))]
    return list(dict.fromkeys(found))


# Spark's marks in the metadata of a column.
_EVENT_TIME: Final = "spark.watermarkDelayMs"
_WINDOW_MARKS: Final = ("spark.timeWindow", "spark.sessionWindow")
_COLLECTING: Final = re.compile(r"\b(collect_list|collect_set|listagg|string_agg)\((struct|named_struct)?")
# Expressions that have as many different results as their input has values.
_KEEPING: Final = frozenset(
    ("AttributeReference", "GetStructField", "Alias", "Cast", "Lower", "Upper", "StringTrim")
) | frozenset(("Coalesce", "Concat", "ConcatWs", "Md5", "Sha1", "Sha2", "XxHash64"))
# A watermark in the far future, with which Spark is asked whether the rows of a join expire at all. It is
# larger than an int, because Py4J passes an int as an int and not as a long.
_SOME_TIME_MS: Final = 1 << 45
# Holdfast's own operators group packets, not the user's rows, by these columns.
_OWN_KEYS: Final = "key_group"
_PROCESSORS: Final = ("TransformWithStateInPySpark", "TransformWithStateInPandas", "TransformWithState")
_GROUPS: Final = ("FlatMapGroupsInPandasWithState", "FlatMapGroupsWithState")


@dataclass(frozen=True, slots=True)
class PlannedWatermark:
    """A watermark in a plan.

    Attributes:
        id: The identifier of the watermark, which its copies share.
        column: The event-time column.
        delay: The delay in Spark's notation.
    """

    id: str
    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class PlannedOperator:
    """A stateful operator in a plan.

    Attributes:
        kind: The kind of operator: `aggregate`, `dedupe`, `dedupe-within`, `join`, `groups`, `processor` or
            `keyed`.
        keys: The columns by which the operator groups; an expression is shown as SQL.
        many: True if the number of key values can grow with the stream; a boolean or `value % 8` has few
            values.
        timed: Whether a key has Spark's event-time mark.
        windowed: Whether a key is a window.
        watermarks: The watermarks of the input; for a join, of the left side.
        other: For a join, the watermarks of the right side.
        bounded: For a join, a pair for the left and the right side: True if Spark can determine when a row
            can no longer match. None if not checked.
        window_of: For a window without an event-time mark, the columns from which it is computed.
        collects: The function that stores every value of a group, or None.
        whole_rows: Whether the input rows are stored with all their columns.
        timeout: For applyInPandasWithState, the timeout, otherwise None.
    """

    kind: str
    keys: tuple[str, ...] = ()
    many: bool = True
    timed: bool = False
    windowed: bool = False
    watermarks: tuple[PlannedWatermark, ...] = ()
    other: tuple[PlannedWatermark, ...] = ()
    bounded: tuple[bool, bool] | None = None
    window_of: tuple[str, ...] = ()
    collects: str | None = None
    whole_rows: bool = False
    timeout: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """The state that a query would store, derived from its plan.

    Attributes:
        operators: The stateful operators, the last one first.
        watermarks: The watermarks, without duplicates.
        sources: The sources, in Spark's order.
        refused: The reason why Spark would not start the query in its output mode, or None.
        mode: The output mode.
        settings: The requested settings that are set in the session.
    """

    operators: tuple[PlannedOperator, ...]
    watermarks: tuple[PlannedWatermark, ...]
    sources: tuple[PlanSource, ...]
    refused: str | None
    mode: str
    settings: Mapping[str, str]


def planned(frame: DataFrame, mode: str, settings: tuple[str, ...]) -> PlannedQuery | None:
    """Return the state that a streaming frame would store, or None if its plan cannot be read.

    The function reads the analyzed plan, uses Spark's optimizer to find the time bounds of joins, and Spark's
    checker for the output mode. It runs no job.

    Args:
        frame: The frame.
        mode: The output mode of its sink.
        settings: The names of the session's settings to read.
    """
    from py4j.protocol import Py4JError

    spark = frame.sparkSession
    found = ((key, spark.conf.get(key, None)) for key in settings)
    try:
        reader = _PlanReader(frame)
        return PlannedQuery(
            operators=tuple(reader.operators()),
            watermarks=reader.watermarks(reader.plan),
            sources=sources_of(frame),
            refused=reader.refused(mode),
            mode=mode,
            settings={key: value for key, value in found if value is not None},
        )
    except (Py4JError, TypeError, ValueError):
        return None


class _PlanReader:
    """A reader of the stateful operators and watermarks in one plan."""

    def __init__(self, frame: DataFrame) -> None:
        self._session: Any = frame.sparkSession._jsparkSession
        self._jvm: Any = frame.sparkSession._jvm
        self.plan: Any = frame._jdf.queryExecution().analyzed()

    def operators(self) -> Iterator[PlannedOperator]:
        """Yield the stateful operators of the plan, the last one first."""
        for node in _nodes(self.plan):
            if not node.isStreaming():
                continue
            made = self._operator(str(node.nodeName()), node)
            if made is not None:
                yield made

    def watermarks(self, node: Any) -> tuple[PlannedWatermark, ...]:
        """Return the watermarks at or below a node, without duplicates."""
        found: dict[str, PlannedWatermark] = {}
        for each in _nodes(node):
            if str(each.nodeName()) == "EventTimeWatermark":
                name = str(each.nodeId().toString())
                delay = str(each.delay().toString())
                found[name] = PlannedWatermark(name, str(each.eventTime().name()), delay)
        return tuple(found.values())

    def refused(self, mode: str) -> str | None:
        """Return the reason why Spark would not start the plan in this output mode, or None."""
        from pyspark.errors import AnalysisException

        modes: Any = self._jvm.org.apache.spark.sql.streaming.OutputMode
        checker: Any = self._jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        by_name = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}
        if mode.lower() not in by_name:
            return None
        try:
            checker.checkForStreaming(self.plan, by_name[mode.lower()]())
        except AnalysisException as error:
            return str(error).splitlines()[0].rstrip(";")
        return None

    def _operator(self, kind: str, node: Any) -> PlannedOperator | None:
        if kind == "Aggregate":
            return self._aggregate(node)
        if kind in ("Deduplicate", "DeduplicateWithinWatermark", "Distinct"):
            return self._dedupe(kind, node)
        if kind == "Join":
            return self._join(node)
        marks = self.watermarks(node)
        if kind in _PROCESSORS:
            names = _names(_items(node.child().output()))
            return PlannedOperator("keyed" if _OWN_KEYS in names else "processor", watermarks=marks)
        if kind in _GROUPS:
            return PlannedOperator("groups", watermarks=marks, timeout=str(node.timeout().toString()))
        return None

    def _aggregate(self, node: Any) -> PlannedOperator:
        keys = _items(node.groupingExpressions())
        collected = _COLLECTING.search(str(node.aggregateExpressions().mkString(", ")))
        lost = [key for key in keys if _is_window(key) and not _is_marked(key, _EVENT_TIME)]
        return PlannedOperator(
            "aggregate",
            keys=_names(keys),
            many=bool(keys) and any(_has_many(key) for key in keys),
            timed=any(_is_marked(key, _EVENT_TIME) for key in keys),
            windowed=any(_is_window(key) for key in keys),
            watermarks=self.watermarks(node),
            window_of=_made_of(node.child(), _names(lost)) if lost else (),
            collects=None if collected is None else collected[1],
            whole_rows=collected is not None and collected[2] is not None,
        )

    def _dedupe(self, kind: str, node: Any) -> PlannedOperator:
        columns = _items(node.child().output())
        keys = columns if kind == "Distinct" else _items(node.keys())
        return PlannedOperator(
            "dedupe-within" if kind == "DeduplicateWithinWatermark" else "dedupe",
            keys=_names(keys),
            many=any(_has_many(key) for key in keys),
            timed=any(_is_marked(key, _EVENT_TIME) for key in keys),
            windowed=any(_is_window(key) for key in keys),
            watermarks=self.watermarks(node),
            whole_rows=len(keys) == len(columns),
        )

    def _join(self, node: Any) -> PlannedOperator | None:
        left, right = node.left(), node.right()
        if not (left.isStreaming() and right.isStreaming()):
            return None
        both = self.watermarks(left), self.watermarks(right)
        bounded = self._bounded(node) if all(both) else None
        return PlannedOperator("join", watermarks=both[0], other=both[1], bounded=bounded)

    def _bounded(self, node: Any) -> tuple[bool, bool] | None:
        """Return whether the rows of the left and of the right side expire, by Spark's own rule.

        The optimizer is called first, because only it splits conditions: `between` becomes two of them.
        """
        helper: Any = self._jvm.org.apache.spark.sql.catalyst.analysis.StreamingJoinHelper
        made = self._session.sessionState().optimizer().execute(node)
        joins = [each for each in _nodes(made) if str(each.nodeName()) == "Join"]
        if not joins:
            return None
        join = joins[0]
        if helper.isWatermarkInJoinKeys(join):
            return True, True
        left, right = join.left().outputSet(), join.right().outputSet()
        some: Any = self._jvm.scala.Option.apply(_SOME_TIME_MS)
        ends = (
            helper.getStateValueWatermark(mine, theirs, join.condition(), some).isDefined()
            for mine, theirs in ((left, right), (right, left))
        )
        first, second = ends
        return bool(first), bool(second)


def _nodes(node: Any) -> Iterator[Any]:
    """Yield a node and all nodes below it, the nearest to the sink first."""
    yield node
    for child in _items(node.children()):
        yield from _nodes(child)


def _items(found: Any) -> list[Any]:
    """Return the items of a Scala Seq as a list."""
    return [found.apply(at) for at in range(found.size())]


def _bare(expression: Any) -> Any:
    """Return an expression without its alias."""
    return expression.child() if _kind(expression) == "Alias" else expression


def _kind(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


def _names(expressions: list[Any]) -> tuple[str, ...]:
    return tuple(
        str(each.name() if _kind(each) in ("AttributeReference", "Alias") else each.sql())
        for each in expressions
    )


def _made_of(node: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns from which the nearest projection computes the columns `names`."""
    for each in _nodes(node):
        if str(each.nodeName()) == "Project":
            made = [item for item in _items(each.projectList()) if str(item.name()) in names]
            found = [name for item in made for name in _names(_items(item.references().toSeq()))]
            if found:
                return tuple(dict.fromkeys(found))
    return ()


def _metadata(expression: Any) -> Mapping[str, Any]:
    if _kind(expression) != "AttributeReference":
        return {}
    found: Mapping[str, Any] = json.loads(str(expression.metadata().json()))
    return found


def _is_marked(expression: Any, mark: str) -> bool:
    return mark in _metadata(_bare(expression))


def _is_window(expression: Any) -> bool:
    metadata = _metadata(_bare(expression))
    return any(mark in metadata for mark in _WINDOW_MARKS)


def _has_many(expression: Any) -> bool:
    """Return whether a key may have any number of values."""
    bare = _bare(expression)
    few = str(bare.dataType().simpleString()) in ("boolean", "void")
    literal = _kind(bare) == "Literal"
    return _kind(bare) in _KEEPING and not few and not literal
