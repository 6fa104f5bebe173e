"""The note of a query's plan in its checkpoint: what code ran, and from which batch on.

Spark keeps the state of a query and nothing of what the query was, so nobody can tell from a checkpoint
that a filter is new. A query that Holdfast starts leaves its plan beside its state, in plain words. One file
holds the plans of a query's life: each with the batch that it began with, so that a copy at any batch finds
its own, and a start that failed does not speak for the batches before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from holdfast import layout
from holdfast.formats.text import damaged, decoded, json_object

NOTE: Final = layout.PLAN
VERSION: Final = 1
# Plans that are kept; a checkpoint keeps fewer batches than so many changes of code take.
_KEPT: Final = 20
_WHAT = "the note of a plan"


@dataclass(frozen=True, slots=True)
class PlanSource:
    """A source as the code names it.

    Attributes:
        name: Its number in the query, or the name that the query gave it.
        kind: Its format, such as `kafka`.
        options: Its options; secrets are left out.
        columns: Name and type of each column.
    """

    name: str
    kind: str
    options: Mapping[str, str]
    columns: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One node of the plan, the last step of the query first.

    Attributes:
        kind: Spark's name for it, such as `Filter`.
        text: What it does, without what differs from run to run.
        bare: The same without the names of columns, by which a renamed column changes nothing.
        stateful: Whether it keeps state.
    """

    kind: str
    text: str
    bare: str
    stateful: bool

    def same_as(self, other: PlanStep) -> bool:
        """Whether both do the same to their rows."""
        # A function of Python's may stand in another order in `bare` from one process to the next.
        return self.kind == other.kind and (self.text == other.text or self.bare == other.bare)


@dataclass(frozen=True, slots=True)
class PlanSink:
    """Where the rows go: kind, output mode, and the address as far as it is known."""

    kind: str
    mode: str
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a query's code says.

    Attributes:
        sources: Its sources, in Spark's order.
        steps: What is done, the last step first.
        operators: The names of Holdfast's keyed operators, in the order in which Spark numbers them.
        sink: Where the rows go.
        trigger: When batches run, if the job says so.
    """

    sources: tuple[PlanSource, ...]
    steps: tuple[PlanStep, ...]
    operators: tuple[str, ...] = ()
    sink: PlanSink | None = None
    trigger: str | None = None


@dataclass(frozen=True, slots=True)
class PlanNote:
    """The plans of a query's life.

    Attributes:
        plans: Each with the first batch that it could have run, ascending.
    """

    plans: tuple[tuple[int, Plan], ...] = field(default=())

    def at(self, batch_id: int) -> Plan | None:
        """The plan that a batch ran under; None where none had been noted by then."""
        return next((plan for first, plan in reversed(self.plans) if first <= batch_id), None)

    def with_plan(self, plan: Plan, batch_id: int) -> PlanNote:
        """The note once a query with this plan is started and this is its next batch."""
        kept = [plan for plan in self.plans if plan[0] < batch_id]
        if not kept or kept[-1][1] != plan:
            kept.append((batch_id, plan))
        return PlanNote(tuple(kept[-_KEPT:]))

    def render(self) -> str:
        """The file."""
        plans = [{"from_batch": first, **asdict(plan)} for first, plan in self.plans]
        return json.dumps({"version": VERSION, "plans": plans})


def parse_note(data: bytes | str, where: str) -> PlanNote | None:
    """Read a note; None where it is of a version that is not known here, and so tells nothing.

    Raises:
        Corrupt: Holdfast cannot have written it.
    """
    text = data if isinstance(data, str) else decoded(data, _WHAT, where)
    fields = json_object(text, _WHAT, where)
    if fields.get("version") != VERSION:
        return None
    try:
        return PlanNote(tuple((int(entry["from_batch"]), _plan(entry)) for entry in fields["plans"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(_WHAT, where, f"{type(error).__name__}: {error}", "the plans of a query") from error


def _plan(fields: Mapping[str, Any]) -> Plan:
    return Plan(
        sources=tuple(PlanSource(**source) for source in fields["sources"]),
        steps=tuple(PlanStep(**step) for step in fields["steps"]),
        operators=tuple(fields["operators"]),
        sink=None if fields["sink"] is None else PlanSink(**fields["sink"]),
        trigger=fields["trigger"],
    )
