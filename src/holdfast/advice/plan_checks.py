"""Lint checks for the plan of a query, merged with the findings of its source and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.advice.findings import Finding, FindingEvidence
from holdfast.advice.reports import SourceFile
from holdfast.advice.sizes import too_many
from holdfast.advice.source.query_checks import PROVIDER, STORE, STREAMING, UNSAFE, delay_ms
from holdfast.advice.source.values import CodeLocation, Stateful
from holdfast.config.spark_defaults import MEMORY_PROVIDER, ROCKSDB_PROVIDER, SHUFFLE_PARTITIONS_KEY
from holdfast.engine.planned_state import PlannedOperator, PlannedQuery, PlannedWatermark

_POLICY: Final = f"{STREAMING}multipleWatermarkPolicy"
_RETAINED: Final = f"{STREAMING}minBatchesToRetain"
_CHANGELOG: Final = f"{STORE}rocksdb.changelogCheckpointing.enabled"
_BOUNDED: Final = f"{STORE}rocksdb.boundedMemoryUsage"
_CHECKSUM: Final = f"{STORE}rowChecksum.enabled"
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"
_NAMED_SOURCES: Final = f"{STREAMING}queryEvolution.enableSourceEvolution"
# The settings that are read from the session.
SETTINGS: Final = (
    PROVIDER,
    SHUFFLE_PARTITIONS_KEY,
    _POLICY,
    _RETAINED,
    _CHANGELOG,
    _BOUNDED,
    _CHECKSUM,
    _DYNAMIC,
    _NAMED_SOURCES,
    *UNSAFE,
)
_DAY_MS: Final = 24 * 3_600_000
_FEWEST_BATCHES: Final = 3
# The minimum number of columns for a finding about a whole row as a key.
_MANY_COLUMNS: Final = 4


@dataclass(frozen=True, slots=True)
class PlanHit:
    """A violation of a rule in a plan.

    Attributes:
        rule: The ID of the rule.
        seen: The observation.
        operator: The operator; None for a violation of the whole query.
    """

    rule: str
    seen: str
    operator: PlannedOperator | None = None


def plan_hits(query: PlannedQuery, cores: int | None) -> Iterator[PlanHit]:
    """Yield the violations in a plan.

    Args:
        query: The plan.
        cores: The number of tasks that run at once in production; None if unknown.
    """
    for operator in query.operators:
        yield from _of_operator(operator)
        if query.mode == "complete" and operator.kind == "aggregate" and operator.many:
            yield PlanHit("HF108", f"output mode complete with the keys {_listed(operator.keys)}", operator)
    if query.refused is not None:
        yield PlanHit("HF112", f"output mode {query.mode}: {query.refused}")
    yield from _watermark_hits(query)
    yield from _source_hits(query)
    yield from _setting_hits(query, cores)


def _of_operator(operator: PlannedOperator) -> Iterator[PlanHit]:
    if operator.kind == "aggregate":
        for rule, seen in _aggregate_hits(operator):
            yield PlanHit(rule, seen, operator)
        if operator.collects is not None:
            what = "every row" if operator.whole_rows else "every value"
            yield PlanHit("HF109", f"{operator.collects} keeps {what} of a group in its state", operator)
    elif operator.kind in ("dedupe", "dedupe-within"):
        for rule, seen in _dedupe_hits(operator):
            yield PlanHit(rule, seen, operator)
    elif operator.kind == "join":
        for rule, seen in _join_hits(operator):
            yield PlanHit(rule, seen, operator)
    elif operator.kind == "groups":
        yield PlanHit("HF501", "the plan contains applyInPandasWithState", operator)
        if operator.timeout == "NoTimeout":
            yield PlanHit("HF502", "its timeout is NoTimeout", operator)


def _aggregate_hits(operator: PlannedOperator) -> Iterator[tuple[str, str]]:
    if not operator.keys or operator.timed:
        return
    if not operator.watermarks:
        if operator.windowed:
            yield "HF101", "an aggregate over windows has no watermark before it"
        elif operator.many:
            yield "HF102", f"the keys {_listed(operator.keys)} include neither a window nor a watermark"
        return
    columns = [mark.column for mark in operator.watermarks]
    if operator.windowed:
        if set(columns) & set(operator.window_of):
            yield "HF208", f"the window is computed from {_listed(columns)}, but does not carry the watermark"
        else:
            yield "HF202", f"the window uses a column other than the watermark's, {_listed(columns)}"
    elif operator.many:
        yield "HF102", f"none of the keys {_listed(operator.keys)} is the event time"


def _dedupe_hits(operator: PlannedOperator) -> Iterator[tuple[str, str]]:
    if not operator.watermarks:
        yield "HF103", f"duplicates of {_listed(operator.keys)} are dropped without a watermark"
    elif operator.kind == "dedupe" and not operator.timed:
        yield "HF104", f"none of the keys {_listed(operator.keys)} is the event time"
    elif operator.kind == "dedupe" and len(operator.keys) > 1 and not operator.whole_rows:
        yield "HF105", f"the keys {_listed(operator.keys)} include the event time"
    if operator.whole_rows and len(operator.keys) >= _MANY_COLUMNS:
        yield "HF111", f"all {len(operator.keys)} columns are keys"


def _join_hits(operator: PlannedOperator) -> Iterator[tuple[str, str]]:
    sides = [side for side, marks in (("left", operator.watermarks), ("right", operator.other)) if not marks]
    if sides:
        which = "neither side has" if len(sides) == 2 else f"the {sides[0]} side does not have"
        yield "HF106", f"two streams are joined, and {which} a watermark"
    elif operator.bounded is not None and not all(operator.bounded):
        left, right = operator.bounded
        which = "either side" if not (left or right) else "the left side" if right else "the right side"
        yield "HF107", f"the condition does not bound the rows of {which}"


def _watermark_hits(query: PlannedQuery) -> Iterator[PlanHit]:
    for mark in query.watermarks:
        ms = delay_ms(mark.delay)
        if ms is not None and ms > _DAY_MS:
            yield PlanHit("HF204", f"the watermark on `{mark.column}` has a delay of {mark.delay}")
    for operator in query.operators:
        marks = {mark.id for mark in (*operator.watermarks, *operator.other)}
        if len(marks) > 1:
            names = _columns((*operator.watermarks, *operator.other))
            yield PlanHit("HF206", f"{len(marks)} watermarks are combined here, on {names}", operator)
            break


def _source_hits(query: PlannedQuery) -> Iterator[PlanHit]:
    for source in query.sources:
        options = {key.lower(): value.lower() for key, value in source.options.items()}
        if options.get("failondataloss") == "false":
            yield PlanHit("HF306", f"source {source.name}, {source.kind}, has failOnDataLoss=false")
    unnamed = [source for source in query.sources if source.name.isdecimal()]
    if len(query.sources) > 1 and unnamed:
        yield PlanHit("HF412", f"{len(unnamed)} of {len(query.sources)} sources have no name")


def _setting_hits(query: PlannedQuery, cores: int | None) -> Iterator[PlanHit]:
    given = query.settings
    for key, (bad, outcome) in UNSAFE.items():
        if given.get(key, "").lower() == bad:
            yield PlanHit("HF305", f"`{key}` is {bad} in the session: {outcome}")
    if given.get(_POLICY) == "max" and len(query.watermarks) > 1:
        yield PlanHit("HF207", "the session sets the policy for several watermarks to max")
    retained = given.get(_RETAINED, "")
    if retained.isdecimal() and int(retained) < _FEWEST_BATCHES:
        yield PlanHit("HF307", f"the session retains {retained} batches")
    if query.operators:
        yield from _stateful_hits(query, cores)


def _stateful_hits(query: PlannedQuery, cores: int | None) -> Iterator[PlanHit]:
    given = query.settings
    provider = given.get(PROVIDER)
    if provider == MEMORY_PROVIDER:
        yield PlanHit("HF301", "the session uses HDFSBackedStateStoreProvider")
    elif provider == ROCKSDB_PROVIDER:
        if given.get(_BOUNDED) == "false":
            yield PlanHit("HF303", "the session uses RocksDB with boundedMemoryUsage=false")
        if given.get(_CHANGELOG) == "false":
            yield PlanHit("HF308", "changelog checkpointing is off in the session")
    if given.get(_CHECKSUM) == "false":
        yield PlanHit("HF309", "row checksums are off in the session")
    if given.get(_DYNAMIC) == "true":
        yield PlanHit("HF311", "dynamic allocation is on in the session, and the query is stateful")
    partitions = given.get(SHUFFLE_PARTITIONS_KEY, "")
    if cores is not None and partitions.isdecimal() and too_many(int(partitions), cores):
        states = len(query.operators)
        what = f"{partitions} partitions of {states} stateful operator{'s' if states > 1 else ''}"
        yield PlanHit("HF312", f"{what} run on {cores} cores")


def _columns(marks: Sequence[PlannedWatermark]) -> str:
    return _listed(dict.fromkeys(mark.column for mark in marks))


def _listed(names: Iterator[str] | Sequence[str] | dict[str, None]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# The names in code of operators with a different name in the plan: Holdfast's operators are Spark's in the
# plan.
_KINDS: Final = {
    "aggregate": ("aggregate", "own"),
    "dedupe": ("dedupe", "own"),
    "dedupe-within": ("dedupe-within", "own"),
    "join": ("join", "own"),
}


def with_plan(source: SourceFile, hits: Sequence[PlanHit], function: str) -> tuple[Finding, ...]:
    """Return the findings of a file merged with those of the plan that one of its functions builds.

    A plan has no line numbers. A finding about an operator is located at the only operator of the source with
    this kind and these keys, and otherwise at the function.

    Args:
        source: The file.
        hits: The violations in the plan.
        function: The name of the job's function.
    """
    found = source.findings()
    node = source.followed.functions.get(function)
    start = (1, 1) if node is None else (node.lineno, node.col_offset + 1)
    merged: set[int] = set()
    for hit in hits:
        at = None if hit.operator is None else _place(source, hit.operator)
        same = [
            position
            for position, each in enumerate(found)
            if each.rule == hit.rule and position not in merged and FindingEvidence.SOURCE in each.evidence
        ]
        here = [position for position in same if at is None or found[position].line == at[0]]
        if here:
            each = found[here[0]]
            merged.add(here[0])
            found[here[0]] = replace(each, evidence=(*each.evidence, FindingEvidence.PLAN), in_plan=hit.seen)
        else:
            found.append(source.finding(hit.rule, (FindingEvidence.PLAN,), hit.seen, at or start))
    return tuple(found)


def _place(source: SourceFile, operator: PlannedOperator) -> tuple[int, int] | None:
    """Find an operator of the plan in the source; None if it cannot be determined."""
    alike = [
        each
        for each in source.followed.operators()
        if each.kind in _KINDS.get(operator.kind, (operator.kind,))
    ]
    keys = {key.lower() for key in operator.keys}
    named = [each for each in alike if keys and _keys(each) == keys]
    open_ = [each for each in alike if not (keys and _keys(each))]  # its keys may be these
    places = {(id(each.node), CodeLocation("", each.node, "")) for each in named or open_}
    if len({node for node, _ in places}) != 1:
        return None
    hit = next(iter(places))[1]
    return hit.line, hit.column


def _keys(operator: Stateful) -> set[str]:
    """Return the names of an operator's keys as they appear in a plan."""
    aliases = {name for name, _ in operator.keys.aliases}
    windows = operator.keys.calls & {"window", "session_window"} if not aliases else set()
    return set(operator.keys.names) | aliases | set(windows)
