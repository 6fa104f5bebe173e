"""Put the verdicts on Holdfast's own operators, found by name, in place of those that Spark's words give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast.checkpoints.state.shapes import OperatorShape
from holdfast.formats.logs.plan_note import Plan
from holdfast.formats.operators import KEYED_VARIABLES
from holdfast.formats.text import foreign_json
from holdfast.layout import OWN, OwnFile, noted_operator, operator_note
from holdfast.model import StateVerdict, Verdict
from holdfast.savepoints.upgrade.dry_run_checkpoint import DryRunCheckpoint
from holdfast.savepoints.upgrade.state_sizes import Size, Sizes
from holdfast.savepoints.upgrade.verdicts import HOLDFAST

if TYPE_CHECKING:
    from holdfast.stream.query.operator_check import Defined, Definition


@dataclass(frozen=True, slots=True)
class _Own:
    """Holdfast's operators on both sides.

    Attributes:
        notes: What each has noted, by the note's file name.
        before: The name of each keyed operator of the savepoint by Spark's number; None where nobody knows.
        now: The keyed operators of the new code by Spark's number.
        sizes: How much state there is.
    """

    notes: Mapping[str, Mapping[str, Any]]
    before: Mapping[int, str | None]
    now: Mapping[int, Defined]
    sizes: Sizes

    def note_of(self, operator: str) -> Mapping[str, Any] | None:
        """What a keyed operator has noted."""
        return self.notes.get(operator_note(operator))

    def size_of(self, number: int, state: str) -> Size | None:
        """How much there is of a state of the savepoint."""
        return self.sizes.of(number, state) if number in self.before else None


def with_own(
    verdicts: Sequence[StateVerdict],
    old: Sequence[OperatorShape],
    new: Sequence[OperatorShape],
    operators: Sequence[Definition],
    saved: DryRunCheckpoint,
    sizes: Sizes,
    before: Plan | None,
) -> tuple[StateVerdict, ...]:
    """The same verdicts, but for Holdfast's operators by their names and the names of their states.

    Args:
        verdicts: What comes of comparing what Spark noted.
        old: The savepoint's operators.
        new: Those of the new code.
        operators: The new code's operators of Holdfast, in the order of its plan.
        saved: The savepoint.
        sizes: How much state it has.
        before: The plan that made its state, if that is known.
    """
    from holdfast.stream.query.keyed_upgrades import note_verdicts
    from holdfast.stream.query.operator_check import Defined

    keyed = [operator for operator in operators if isinstance(operator, Defined)]
    own_new = [operator.operator_id for operator in new if _is_own(operator)]
    notes = dict(_notes(saved))
    own = _Own(
        notes,
        _names(old, notes, before),
        dict(zip(own_new, keyed, strict=False)),
        sizes,
    )
    labels = {operator.label: operator.operator_id for operator in (*old, *new) if _is_own(operator)}
    judged: list[StateVerdict] = []
    done: set[int] = set()
    for verdict in verdicts:
        number = labels.get(verdict.operator)
        if number is None:
            judged.append(verdict)
        elif number not in done:
            done.add(number)
            judged += _by_name(number, verdict, own)
    others = [
        operator
        for operator in operators
        if not isinstance(operator, Defined) and operator.note_name in notes
    ]
    for other in others:
        said = note_verdicts(other, notes[other.note_name])
        judged += [verdict for verdict in said if verdict.verdict is Verdict.INCOMPATIBLE]
    return tuple(judged)


def _by_name(number: int, general: StateVerdict, own: _Own) -> Iterator[StateVerdict]:
    """The verdicts on one operator of ours, at its number."""
    from holdfast.stream.query.keyed_upgrades import note_verdicts, noted_states

    was, now = own.before.get(number), own.now.get(number)
    if number not in own.before or now is None:
        # It is there on one side only, and what Spark says of that holds for each of its states.
        note = own.note_of(was) if was is not None else None
        if now is not None:
            states = [(verdict.operator, verdict.state) for verdict in note_verdicts(now, None)]
        elif was is not None and note is not None:
            states = [(was, state) for state in noted_states(note)]
        else:
            states = [(was or general.operator, general.state)]
        for operator, state in states:
            yield _sized(replace(general, operator=operator, state=state), own.size_of(number, state))
        return
    name = now.layout.operator
    mine = own.note_of(name)
    if was is not None and was != name and mine is not None:
        why = (
            f"Spark finds operators by their number: {name} stands where {was} stood, and would be given its"
            " state; put them back in the order that they had"
        )
        for state in noted_states(mine):
            verdict = StateVerdict(name, state, Verdict.INCOMPATIBLE, why, spark_error=HOLDFAST)
            yield _sized(verdict, own.size_of(number, state))
        return
    note = own.note_of(was) if mine is None and was is not None else mine
    called = "" if was in (None, name) else f"the operator was called {was}"
    for verdict in note_verdicts(now, note):
        why = "; ".join(part for part in (called, verdict.why) if part)
        size = None if verdict.verdict is Verdict.NEW else own.size_of(number, verdict.state)
        yield _sized(replace(verdict, why=why), size)


def _sized(verdict: StateVerdict, size: Size | None) -> StateVerdict:
    if size is None:
        return replace(verdict, keys=None, size_bytes=None)
    return replace(verdict, keys=size.keys, size_bytes=size.size_bytes)


def _is_own(shape: OperatorShape) -> bool:
    return frozenset(shape.variables) == KEYED_VARIABLES


def _names(
    old: Sequence[OperatorShape], notes: Mapping[str, Any], before: Plan | None
) -> dict[int, str | None]:
    """The savepoint's keyed operators by number: the plan has their order, and a single one needs none."""
    numbers = [operator.operator_id for operator in old if _is_own(operator)]
    noted = [noted_operator(name) for name, note in notes.items() if "forms" in note]
    names: Sequence[str | None] = [None] * len(numbers)
    if before is not None and len(before.operators) == len(numbers):
        names = before.operators
    elif len(noted) == len(numbers) == 1:
        names = noted
    return dict(zip(numbers, names, strict=True))


def _notes(saved: DryRunCheckpoint) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in saved.storage.list(OWN).names:
        if noted_operator(name) is not None:
            note = None
            with suppress(ValueError):  # who reads the operator's state says that its note is damaged
                note = foreign_json(saved.read(OwnFile(name).render()))
            if isinstance(note, dict):
                yield name, note
