"""What the source and the plan of a job say of the same thing, as one finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.advice.findings import Evidence, Finding
from holdfast.advice.plan.plan_checks import PlanHit
from holdfast.advice.reports import SourceFile
from holdfast.advice.source.hits import Hit
from holdfast.advice.source.values import Stateful
from holdfast.engine.plans.planned_state import PlannedOperator

# What code calls an operator that the plan calls otherwise: those of Holdfast are Spark's in the plan.
_KINDS: Final = {
    "aggregate": ("aggregate", "own"),
    "dedupe": ("dedupe", "own"),
    "dedupe-within": ("dedupe-within", "own"),
    "join": ("join", "own"),
}


def with_plan(source: SourceFile, hits: Sequence[PlanHit], function: str) -> tuple[Finding, ...]:
    """The findings of a file together with those of the plan that one of its functions makes.

    A plan has no lines. What it shows of an operator is put where the source has the only one of this kind
    and these keys, and else at the function.

    Args:
        source: The file.
        hits: What the plan shows.
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
            if each.rule == hit.rule and position not in merged and Evidence.SOURCE in each.evidence
        ]
        here = [position for position in same if at is None or found[position].line == at[0]]
        if here:
            each = found[here[0]]
            merged.add(here[0])
            found[here[0]] = replace(each, evidence=(*each.evidence, Evidence.PLAN), in_plan=hit.seen)
        else:
            found.append(source.finding(hit.rule, (Evidence.PLAN,), hit.seen, at or start))
    return tuple(found)


def _place(source: SourceFile, operator: PlannedOperator) -> tuple[int, int] | None:
    """Where the source has an operator of the plan; None where that cannot be told."""
    alike = [
        each
        for each in source.followed.operators()
        if each.kind in _KINDS.get(operator.kind, (operator.kind,))
    ]
    keys = {key.lower() for key in operator.keys}
    named = [each for each in alike if keys and _keys(each) == keys]
    open_ = [each for each in alike if not (keys and _keys(each))]  # whose keys may be these
    places = {(id(each.node), Hit("", each.node, "")) for each in named or open_}
    if len({node for node, _ in places}) != 1:
        return None
    hit = next(iter(places))[1]
    return hit.line, hit.column


def _keys(operator: Stateful) -> set[str]:
    """The names of an operator's keys, as a plan would have them."""
    aliases = {name for name, _ in operator.keys.aliases}
    windows = operator.keys.calls & {"window", "session_window"} if not aliases else set()
    return set(operator.keys.names) | aliases | set(windows)
