"""Holdfast's own files in a checkpoint: the plan of the query, and its sinks with a ledger.

If a ledger has no batch of a query, it is either new to the query or has lost the query's batches. The ledger
file in the checkpoint distinguishes the two: it exists since the first batch with a ledger.

Spark stores the state of a query but not its plan, so a checkpoint alone does not show, for example, a new
filter. A query that Holdfast starts writes its plan next to its state. One file has all plans of the query,
each with its first batch, so that the plan is found for a copy of the checkpoint at any batch, and a failed
start does not affect earlier batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from holdfast import layout
from holdfast.formats.text import damaged, decoded, json_object, whole_number

LEDGER_NOTE: Final = layout.LEDGER
_VERSION: Final = 1
_LEDGER_NOTE = "the note of a ledger"


@dataclass(frozen=True, slots=True)
class LedgerNote:
    """The sinks of a query that have a ledger.

    Attributes:
        query_id: The query that wrote the note; a fork of the checkpoint has a different id.
        first_batches: The first batch in the ledger, by sink.
    """

    query_id: str
    first_batches: Mapping[str, int] = field(default_factory=dict)

    def with_batch(self, query_id: str, sink: str, batch_id: int) -> LedgerNote:
        """Return the note after a query has written a batch to a sink."""
        known = self.first_batches if query_id == self.query_id else {}
        first = min(batch_id, known.get(sink, batch_id))
        return LedgerNote(query_id, {**known, sink: first})

    def has_written(self, query_id: str, sink: str, batch_id: int) -> bool:
        """Return whether the query has written a batch before this one to the sink."""
        return query_id == self.query_id and self.first_batches.get(sink, batch_id) < batch_id

    def render(self) -> str:
        """Return the text of the file."""
        fields = {"version": _VERSION, "query_id": self.query_id, "first_batches": dict(self.first_batches)}
        return json.dumps(fields)


def parse_ledger_note(text: str, where: str) -> LedgerNote:
    """Parse a ledger note; a note of a later version is returned as an empty one.

    Raises:
        Corrupt: The note is not in the format that Holdfast writes.
    """
    fields = json_object(text, _LEDGER_NOTE, where)
    if fields.get("version") != _VERSION:
        return LedgerNote("")
    query_id, first_batches = fields.get("query_id"), fields.get("first_batches")
    if not isinstance(query_id, str) or not isinstance(first_batches, dict):
        raise damaged(_LEDGER_NOTE, where, repr(fields)[:80], "a query id and the first batch of each sink")
    for sink in first_batches:
        whole_number(first_batches, sink, _LEDGER_NOTE, where)
    return LedgerNote(query_id, first_batches)


PLAN_NOTE: Final = layout.PLAN
VERSION: Final = 1
# The maximum number of plans; a checkpoint retains fewer batches than this many code changes take.
_KEPT: Final = 20
_PLAN_NOTE = "the note of a plan"


@dataclass(frozen=True, slots=True)
class PlanSource:
    """A source in the code of a query.

    Attributes:
        name: The number of the source in the query, or its name.
        kind: The format of the source, such as `kafka`.
        options: The options of the source, without secrets.
        columns: The type of each column, by name.
    """

    name: str
    kind: str
    options: Mapping[str, str]
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One node of a query's plan.

    Attributes:
        kind: Spark's name of the node, such as `Filter`.
        text: The description of the node, without parts that differ between runs.
        bare: The description without column names, so that a renamed column does not change it.
        stateful: Whether the node has state.
    """

    kind: str
    text: str
    bare: str
    stateful: bool

    def same_as(self, other: PlanStep) -> bool:
        """Return whether both nodes do the same to their rows."""
        # In `bare`, a Python function may be in a different position from one process to the next.
        return self.kind == other.kind and (self.text == other.text or self.bare == other.bare)


@dataclass(frozen=True, slots=True)
class PlanSink:
    """The sink in the code of a query: its kind, its output mode, and its address if known."""

    kind: str
    mode: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The plan of a query's code.

    Attributes:
        sources: The sources, in Spark's order.
        steps: The nodes of the plan, the last one first.
        operators: The names of Holdfast's keyed operators, in the order of Spark's numbers.
        sink: The sink, or None.
        trigger: The trigger, or None if the code sets none.

    Example:
        plan: hf.QueryPlan | None = hf.sink(events, name="sales").parquet("tables/sales").plan()
        assert plan is not None and len(plan.sources) == 1
    """

    sources: tuple[PlanSource, ...]
    steps: tuple[PlanStep, ...]
    operators: tuple[str, ...] = ()
    sink: PlanSink | None = None
    trigger: str | None = None


@dataclass(frozen=True, slots=True)
class PlanNote:
    """The plans of a query since its first start.

    Attributes:
        plans: Pairs of the first batch of a plan and the plan, in ascending order.
    """

    plans: tuple[tuple[int, QueryPlan], ...] = field(default=())

    def at(self, batch_id: int) -> QueryPlan | None:
        """Return the plan of a batch, or None if no plan was recorded up to the batch."""
        return next((plan for first, plan in reversed(self.plans) if first <= batch_id), None)

    def with_plan(self, plan: QueryPlan, batch_id: int) -> PlanNote:
        """Return the note after a query with this plan has started at this batch."""
        kept = [plan for plan in self.plans if plan[0] < batch_id]
        if not kept or kept[-1][1] != plan:
            kept.append((batch_id, plan))
        return PlanNote(tuple(kept[-_KEPT:]))

    def render(self) -> str:
        """Return the text of the file."""
        plans = [{"from_batch": first, **asdict(plan)} for first, plan in self.plans]
        return json.dumps({"version": VERSION, "plans": plans})


def parse_note(data: bytes | str, where: str) -> PlanNote | None:
    """Parse a plan note; return None if its version is unknown.

    Raises:
        Corrupt: The note is not in the format that Holdfast writes.
    """
    text = data if isinstance(data, str) else decoded(data, _PLAN_NOTE, where)
    fields = json_object(text, _PLAN_NOTE, where)
    if fields.get("version") != VERSION:
        return None
    try:
        return PlanNote(tuple((int(entry["from_batch"]), _plan(entry)) for entry in fields["plans"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(
            _PLAN_NOTE, where, f"{type(error).__name__}: {error}", "the plans of a query"
        ) from error


def _plan(fields: Mapping[str, Any]) -> QueryPlan:
    return QueryPlan(
        sources=tuple(PlanSource(**source) for source in fields["sources"]),
        steps=tuple(PlanStep(**step) for step in fields["steps"]),
        operators=tuple(fields["operators"]),
        sink=None if fields["sink"] is None else PlanSink(**fields["sink"]),
        trigger=fields["trigger"],
    )
