"""Leave a query's plan beside its state, for whoever asks later what has changed.

`holdfast check` compares new code with the plan that the saved state was made by. Spark keeps no plan in a
checkpoint, so a query that Holdfast starts notes its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.engine.plans.described import describe
from holdfast.engine.state.checkpoint_files import newest_number, read_text, write_text
from holdfast.errors import Invalid
from holdfast.formats.logs.plan_note import NOTE, Plan, PlanNote, PlanSink, parse_note
from holdfast.stream.query.operator_check import keyed_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def plan_of(frame: DataFrame, sink: PlanSink, trigger: str | None) -> Plan | None:
    """What a query's code says; None where this Spark's internals do not tell."""
    described = describe(frame)
    if described is None:
        return None
    return Plan(*described, operators=keyed_names(frame), sink=sink, trigger=trigger)


def note_plan(frame: DataFrame, checkpoint: str, plan: Plan | None) -> None:
    """Note the plan of a query that is about to start, with the first batch that it could run.

    Call it while nobody uses the checkpoint. Costs a listing of the commits, and a small file read and, where
    the plan is new, written.

    Raises:
        Invalid: A keyed operator would be given the state of another.
        Unavailable: The checkpoint's storage does not answer.
    """
    if plan is None:
        return
    spark = frame.sparkSession
    text = read_text(spark, checkpoint, NOTE)
    noted = None if text is None else parse_note(text, f"{checkpoint}/{NOTE}")
    newest = newest_number(spark, checkpoint, "commits")
    before = None if noted is None or newest is None else noted.at(newest)
    if before is not None:
        check_places(before.operators, plan.operators, checkpoint)
    now = (noted or PlanNote()).with_plan(plan, 0 if newest is None else newest + 1)
    if now != noted:
        write_text(spark, checkpoint, NOTE, now.render())


def check_places(before: tuple[str, ...], now: tuple[str, ...], where: str) -> None:
    """Refuse keyed operators that have changed places: Spark hands out state by number, not by name.

    Raises:
        Invalid: One would be given the state of another.
    """
    for name in now:
        if name in before and before.index(name) != now.index(name):
            raise Invalid(
                "keyed operators have changed places, and each would be given the state of another",
                where=where,
                found=", ".join(now),
                expected=f"{', '.join(before)}, as the checkpoint has",
                hint="Spark finds the state of operators by their number, counted from the sink: put them"
                " back in the order that they had",
            )
