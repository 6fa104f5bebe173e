"""The check of a checkpoint's state against the code, before a query starts.

A frame is built before its checkpoint is known, so parts of the plan get the address at the start: tasks in a
property that Spark sends to each of them, the source of ticks in a file on the driver's machine.

Workers reject state that they cannot read, in the first batch and before anything is committed. But settings
that only decide *where* rows are stored, such as a split of hot keys, are not visible in the state. Therefore
each operator of a query that Holdfast starts writes a note into the checkpoint, with the settings that must
not change. Before a query starts, its operators are compared with these notes.

`holdfast check` compares new code with the plan of the query that wrote the state. Spark stores no plan in a
checkpoint, so Holdfast writes the plan of each query that it starts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.checkpoints.keyed import BLOBS, described, product_in
from holdfast.config.checks import place_word
from holdfast.engine.checkpoint_files import newest_number, qualified, read_text, write_text
from holdfast.engine.connect import is_connect
from holdfast.engine.described import describe, tick_lines
from holdfast.engine.planned_state import definitions_in
from holdfast.engine.queries.batch_facts import CHECKPOINT_PROPERTY, reads_late_watermark
from holdfast.errors import Invalid
from holdfast.formats.logs.notes import PLAN_NOTE, PlanNote, PlanSink, QueryPlan, parse_note
from holdfast.formats.text import json_object
from holdfast.layout import OPERATOR_NAME, OWN, operator_note
from holdfast.stream.idleness import Told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.worker.runtime.runner_spec import Instances
    from holdfast.worker.state.blob_store import Blobs
    from holdfast.worker.state.layout import Layout, Period


def told_checkpoint(frame: DataFrame, checkpoint: str) -> Iterator[str]:
    """Pass the checkpoint's address to the tick sources of a frame and to the tasks that find late rows.

    Exhaust the iterator immediately before the query starts.

    Yields:
        The name of each local property of this thread to remove after the query has started.

    Raises:
        Unavailable: Spark cannot access the checkpoint's file system.
    """
    lines = tick_lines(frame)
    late = reads_late_watermark(frame)
    if not lines and not late:
        return
    address = qualified(frame.sparkSession, checkpoint)
    for ticks in lines:
        Told(address, ticks.own, ticks.watched).write(ticks.place)
    if late:
        frame.sparkSession.sparkContext.setLocalProperty(CHECKPOINT_PROPERTY, address)
        yield CHECKPOINT_PROPERTY


class OperatorNote(Protocol):
    """An operator that has a note in the checkpoint."""

    @property
    def note_name(self) -> str:
        """Return the note's file name, unique within a query."""

    def new_note(self, before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the note that replaces the earlier one, or None if it is unchanged.

        Raises:
            Invalid: A change of the operator makes its existing state unusable.
        """


@dataclass(frozen=True, slots=True)
class Defined:
    """A keyed operator defined in this process."""

    layout: Layout
    instances: Instances | None = None
    blobs: Blobs | None = None

    @property
    def note_name(self) -> str:
        """Return the note's file name."""
        return operator_note(self.layout.operator)

    def new_note(self, before: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the new note with all schemas of the state, or None if the note is unchanged."""
        from holdfast.worker.state.layout import form_from_json
        from holdfast.worker.state.loading import Upgrade

        layout = self.layout
        form = layout.form
        forms = dict(before["forms"]) if before else {}
        if before and before["key_groups"] != layout.key_groups:
            raise Invalid(
                "key_groups differs from the checkpoint, so stored keys would not be found",
                code="HF-E2343",
                where=f"operator {layout.operator}",
                found=f"key_groups={layout.key_groups}",
                expected=f"key_groups={before['key_groups']}, as in the checkpoint",
                hint=f"write hf.keyed(…, key_groups={before['key_groups']})",
            )
        even = layout.numbering.even
        if before and before.get(_SPREAD, False) != even:
            raise Invalid(
                "the order of key groups differs from the checkpoint, so stored keys would not be found",
                code="HF-E2344",
                where=f"operator {layout.operator}",
                found="key groups spread evenly over partitions"
                if even
                else "key groups in the order of their numbers",
                hint=f"start the query with {SPREAD_KEY}={str(not even).lower()}",
            )
        mark = form.fingerprint.hex()
        renamed = dict((before or {}).get(RENAMED, {}))
        upgrade = Upgrade(layout, renamed)
        for fields in [fields for known, fields in forms.items() if known != mark]:
            upgrade.check(form_from_json(fields))
        forms.setdefault(mark, form.as_json())
        renamed |= {state.name: list(state.former_names) for state in layout.states if state.was}
        noted = {"key_groups": layout.key_groups, "current": mark, "forms": forms}
        if renamed:
            noted[RENAMED] = renamed
        if even:
            noted[_SPREAD] = True  # by default, each group has its own number, as at first
        noted[PERIODS] = [[period.mark, period.since_ms] for period in self.periods(before)]
        # For programs that read the state without the code.
        noted |= {"keys": list(layout.key_names), "placed": layout.placement is not None}
        if self.blobs_left(before) is not None:
            noted[BLOBS] = (before or {})[BLOBS]  # until the state has been found to have no blobs there
        elif self.blobs is not None:
            noted[BLOBS] = described(self.blobs.server)
        if self.instances is not None:
            # The former numbers stay until the state has been found to have the new one.
            mine, known = self.instances.count, (before or {}).get(INSTANCES, [])
            noted[INSTANCES] = [*(number for number in known if number != mine), mine]
        return None if noted == before else noted

    def periods(self, before: Mapping[str, Any] | None) -> tuple[Period, ...]:
        """Return the periods of the state's schemas, including the current one."""
        from holdfast.worker.state.layout import Period, continued

        known: list[Period] = []
        if before:
            states = {mark: fields["states"] for mark, fields in before["forms"].items()}
            known = [Period(mark, at_ms, states[mark]) for mark, at_ms in before.get(PERIODS, [])]
            if not known or known[-1].mark != before["current"]:
                known.append(Period(before["current"], None, states[before["current"]]))
        return continued(known, self.layout)

    def blobs_left(self, before: Mapping[str, Any] | None) -> str | None:
        """Return the database that may still have blobs but is not configured any more, or None."""
        product = product_in((before or {}).get(BLOBS))
        return None if self.blobs is not None and self.blobs.server.product == product else product


# Whether key groups are stored under numbers that Spark distributes evenly over partitions.
SPREAD_KEY: Final = "spark.holdfast.keyGroups.spread"
_SPREAD: Final = "spread"
# The former names of states, as declared by the versions so far.
RENAMED: Final = "renamed"
# The periods of the state's schemas: fingerprints, and the start of the first run with each.
PERIODS: Final = "periods"
# The possible numbers of instances of an operator's state.
INSTANCES: Final = "instances"
_NAME: Final = re.compile(OPERATOR_NAME)

# All operators defined in this process; a plan refers to its operators by their index in this list.
_DEFINED: list[OperatorNote] = []


def checked_name(name: str, *, where: str) -> str:
    """Return an operator's name after checking it, because it is part of the note's file name.

    Raises:
        Invalid: The name is not a valid operator name.
    """
    if not _NAME.fullmatch(str(name)):
        raise Invalid(
            "invalid operator name",
            code="HF-E2345",
            where=where,
            found=repr(name),
            expected="a letter, then letters, digits, '-', '_' and '.'",
            hint='choose a permanent name, as in name="visits"; it identifies the state',
        )
    return name


def same_name(name: str, where: str) -> Invalid:
    """Return the error for two operators of a query that have the same name, and so would share a note."""
    return Invalid(
        "two operators of a query have the same name",
        code="HF-E2346",
        where=where,
        found=name,
        hint='give one operator a different name: name="…"; keep the name of an operator that has state',
    )


def define(operator: OperatorNote) -> int:
    """Register an operator, and return its number in plans."""
    _DEFINED.append(operator)
    return len(_DEFINED) - 1


def defined_in(frame: DataFrame) -> list[OperatorNote]:
    """Return Holdfast's operators in a frame's plan, the last step of the plan first."""
    return [_DEFINED[number] for number in definitions_in(frame)]


def keyed_names(frame: DataFrame) -> tuple[str, ...]:
    """Return the names of a frame's keyed operators, in the order of Spark's operator numbers."""
    return tuple(operator.layout.operator for operator in defined_in(frame) if isinstance(operator, Defined))


def check_operators(frame: DataFrame, checkpoint: str) -> list[tuple[OperatorNote, Mapping[str, Any] | None]]:
    """Check that operators can find and read their state, and write their notes.

    Call it while no query uses the checkpoint. It reads and writes one small file per operator.

    Returns:
        The operators, each with its earlier note or None.

    Raises:
        Invalid: The code would lose or misread state.
        Unavailable: The storage of the checkpoint does not answer.
    """
    operators = defined_in(frame)
    names = [operator.note_name for operator in operators]
    checked: list[tuple[OperatorNote, Mapping[str, Any] | None]] = []
    for operator in operators:
        name = operator.note_name
        if names.count(name) > 1:
            raise same_name(name, checkpoint)
        before = _read_note(frame, checkpoint, name)
        noted = operator.new_note(before)
        # Over Spark Connect no note can be written: workers then check the state that they read.
        if noted is not None and not is_connect(frame):
            write_text(frame.sparkSession, checkpoint, name, json.dumps(noted))
        checked.append((operator, before))
    return checked


def settle(frame: DataFrame, checkpoint: str, operator: Defined) -> None:
    """Record in an operator's note that its state has the current number of instances.

    Raises:
        Unavailable: The storage of the checkpoint does not answer.
    """
    if operator.instances is not None:
        _note(frame, checkpoint, operator, {INSTANCES: [operator.instances.count]})


def note_blobs(frame: DataFrame, checkpoint: str, operator: Defined) -> None:
    """Record the database of an operator's blobs in its note, after no blobs are left in a former one.

    Raises:
        Unavailable: The storage of the checkpoint does not answer.
    """
    blobs = None if operator.blobs is None else described(operator.blobs.server)
    _note(frame, checkpoint, operator, {BLOBS: blobs})


def _read_note(frame: DataFrame, checkpoint: str, name: str) -> Mapping[str, Any] | None:
    """Return an operator's note, or None if it has none.

    Raises:
        Corrupt: The note is not valid JSON.
        Unavailable: The storage of the checkpoint does not answer.
    """
    text = read_text(frame.sparkSession, checkpoint, name)
    return (
        None
        if text is None
        else json_object(text, "the description of an operator", f"{checkpoint}/{OWN}/{name}")
    )


def _note(frame: DataFrame, checkpoint: str, operator: Defined, changes: Mapping[str, Any]) -> None:
    noted = {**(_read_note(frame, checkpoint, operator.note_name) or {}), **changes}
    kept = {name: value for name, value in noted.items() if value is not None}
    write_text(frame.sparkSession, checkpoint, operator.note_name, json.dumps(kept))


def plan_of(frame: DataFrame, sink: PlanSink, trigger: str | None) -> QueryPlan | None:
    """Return the plan of a query's code, or None if it cannot be read from this version of Spark."""
    described = describe(frame)
    if described is None:
        return None
    return QueryPlan(*described, operators=keyed_names(frame), sink=sink, trigger=trigger)


@contextmanager
def note_plan(frame: DataFrame, checkpoint: str, plan: QueryPlan | None) -> Iterator[None]:
    """Write the plan of a query, with the first batch that it could run; start the query in the block.

    Call it while no query uses the checkpoint. It lists the commits and reads one small file, which is
    rewritten if the plan is new. If the plan of the newest batch is recorded, the names of keyed operators
    are compared with it; otherwise the tasks compare them with the names in the state.

    Raises:
        Invalid: A keyed operator would read the state of a different one.
        Unavailable: The storage of the checkpoint does not answer.
    """
    from holdfast.worker.operator import COMPARED_PROPERTY

    if plan is None:
        yield
        return
    spark = frame.sparkSession
    text = read_text(spark, checkpoint, PLAN_NOTE)
    noted = None if text is None else parse_note(text, f"{checkpoint}/{PLAN_NOTE}")
    newest = newest_number(spark, checkpoint, "commits")
    before = None if noted is None or newest is None else noted.at(newest)
    if before is not None:
        check_places(before.operators, plan.operators, checkpoint)
    now = (noted or PlanNote()).with_plan(plan, 0 if newest is None else newest + 1)
    if now != noted:
        write_text(spark, checkpoint, PLAN_NOTE, now.render())
    if before is None:
        yield
        return
    spark.sparkContext.setLocalProperty(COMPARED_PROPERTY, "true")
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty(COMPARED_PROPERTY, None)  # type: ignore[arg-type]  # removes it


def check_places(before: tuple[str, ...], now: tuple[str, ...], where: str) -> None:
    """Raise an error if the order of keyed operators changed, because Spark finds state by number, not by
    name.

    Raises:
        Invalid: An operator would read the state of a different one.
    """
    for name in now:
        if name in before and before.index(name) != now.index(name):
            verb = f"`holdfast state migrate {place_word(where)} NEW --code FILE.py`"
            swapped = sorted(before) == sorted(now)
            at_start = "; `holdfast run` and hf.guard move it at the start" if swapped else ""
            raise Invalid(
                "keyed operators have changed places, so they would read each other's state",
                code="HF-E2347",
                where=where,
                found=", ".join(now),
                expected=f"{', '.join(before)}, as in the checkpoint",
                hint=f"move the state to the new order with {verb}, or restore the former order{at_start}",
            )
