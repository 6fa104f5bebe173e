"""What is to be done to state so that new code can go on from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.at_rest.evolve.column_changes import ColumnChange, RowChange, row_change
from holdfast.at_rest.evolve.matching import Matched, described, match_operators
from holdfast.at_rest.evolve.state_columns import OperatorColumns, columns_of
from holdfast.at_rest.evolve.wishes import Wishes
from holdfast.checkpoints.guard.usage import CheckpointUsage
from holdfast.checkpoints.state.shapes import OperatorShape
from holdfast.errors import Unsupported
from holdfast.formats.logs.plan_note import Plan
from holdfast.formats.operators import KEYED_VARIABLES, operator_names
from holdfast.json_shapes import NOT_IN_JSON, JsonShape, in_json
from holdfast.model import PlanChange
from holdfast.savepoints.restoring import Operation
from holdfast.savepoints.rewrite.state_move import MovePlan
from holdfast.savepoints.upgrade.verdicts import fits, text_of


@dataclass(frozen=True, slots=True)
class OperatorChange(JsonShape):
    """What becomes of an operator's state.

    Attributes:
        change: `kept`, `changed`, `inserted` or `removed`.
        before: The operator in the state; None of an inserted one.
        after: The operator in the new code; None of a removed one.
        columns: What becomes of each column, where the rows change.
    """

    change: str
    before: str | None
    after: str | None
    columns: tuple[ColumnChange, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """What is done for one operator.

    Attributes:
        matched: The operator before and after.
        rows: How its rows change; None where they are moved as they are, or there are none.
    """

    matched: Matched
    rows: RowChange | None = None

    @property
    def moved(self) -> bool:
        """Whether its rows stay as they are."""
        both = self.matched.old is not None and self.matched.new is not None
        return both and (self.rows is None or self.rows.rows_stay)

    def told(self) -> OperatorChange:
        """It in words."""
        old, new = self.matched.old, self.matched.new
        before = None if old is None else described(old)
        after = None if new is None else described(new)
        if old is None or new is None:
            return OperatorChange("inserted" if old is None else "removed", before, after)
        rows = None if self.rows is None else self.rows.columns()
        plain = rows is None or all(column.before == column.after for column in rows)
        return OperatorChange("kept" if plain else "changed", before, after, () if plain else rows or ())


@dataclass(frozen=True, slots=True)
class EvolutionPlan(MovePlan, JsonShape):
    """What bringing state into the form of new code would do.

    Attributes:
        target: The new code.
        operators: What becomes of the state of each operator.
        changes: What else is different in the new code and changes what the state stands for.
        merge: Whether rows that get the same key are put together.
        steps: What is done for each operator.
        state_format: The state-checkpoint format.
        usage: Who may be using the checkpoint, where that was asked; a person has to say that nobody does.
    """

    target: str
    operators: tuple[OperatorChange, ...]
    changes: tuple[PlanChange, ...]
    merge: bool
    steps: tuple[OperatorStep, ...] = field(metadata=NOT_IN_JSON)
    state_format: int = 1
    usage: CheckpointUsage | None = None

    @property
    @in_json
    def operation(self) -> Operation:
        """`evolve`."""
        return Operation.EVOLVE


def operator_columns(
    shapes: Sequence[OperatorShape], plan: Plan | None, confs: Mapping[str, str], where: str
) -> tuple[OperatorColumns, ...]:
    """The operators of a query with the columns of their states.

    Args:
        shapes: What Spark noted of each operator.
        plan: The query's plan; None where nobody knows it.
        confs: What the checkpoint is fixed to.
        where: The checkpoint, for messages.
    """
    stateful = [] if plan is None else [step.text for step in plan.steps if step.stateful]
    texts: list[str | None] = list(stateful) if len(stateful) == len(shapes) else [None] * len(shapes)
    keyed = [shape.operator_id for shape in shapes if set(shape.variables) == KEYED_VARIABLES]
    given = () if plan is None else plan.operators
    names = dict(zip(keyed, given, strict=True)) if len(given) == len(keyed) else dict.fromkeys(keyed)
    called = operator_names({shape.operator_id: shape.kind for shape in shapes}, names)
    return tuple(
        columns_of(shape, called[shape.operator_id], text, confs, where)
        for shape, text in zip(sorted(shapes, key=lambda shape: shape.operator_id), texts, strict=True)
    )


def steps_for(
    old: Sequence[OperatorColumns], new: Sequence[OperatorColumns], wishes: Wishes, where: str
) -> tuple[OperatorStep, ...]:
    """What is to be done for each operator.

    Args:
        old: The saved state's operators.
        new: Those of the new code.
        wishes: What a person has said.
        where: The saved state, for messages.

    Raises:
        Invalid: Which operator or column is which cannot be told, or what a new one starts with.
        Unsupported: An operator's state cannot be brought into the new form.
    """
    steps = []
    for matched in match_operators(old, new, wishes, where):
        before, after = matched.old, matched.new
        if before is None or after is None:
            steps.append(OperatorStep(matched))
        elif before.evolves and after.evolves:
            steps.append(OperatorStep(matched, row_change(before, after, wishes, where)))
        else:
            _refuse_other_rows(before, after, where)
            steps.append(OperatorStep(matched))
    labels = [label for operator in (*old, *new) for label in operator.labels]
    wishes.refuse_unused([*labels, *(operator.named.display_name for operator in (*old, *new))])
    return tuple(steps)


def _refuse_other_rows(old: OperatorColumns, new: OperatorColumns, where: str) -> None:
    """Refuse another form of rows that can only be moved as they are.

    transformWithState is let through: Spark, and Holdfast for its own, read such state through a new schema.
    """
    if old.shape.variables or new.shape.variables:
        return
    import json

    stores = {store.name: store for store in new.shape.stores}
    for store in old.shape.stores:
        there = stores.get(store.name)
        families = {family.name: family for family in (there.families if there is not None else ())}
        for family in store.families:
            now = families.get(family.name)
            pairs = (
                []
                if now is None
                else [(family.key_schema, now.key_schema), (family.value_schema, now.value_schema)]
            )
            for before, after in pairs or [("{}", "{}")]:
                one, other = json.loads(before), json.loads(after)
                if now is None or not fits(other, one):
                    raise Unsupported(
                        f"the state of {old.named.operator_kind} cannot be brought into another form",
                        where=f"{where}, operator {old.named.label}",
                        found=f"({text_of(one)}), and ({text_of(other)}) in the new code"
                        if now is not None
                        else f"{store.name}, which the new code does not have",
                        expected="the same rows; aggregations, session windows and deduplication can change",
                        hint=f"leave this operator as it was, or let its state go with --drop {old.number}",
                    )
