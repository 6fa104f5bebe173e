"""The check of the state of Holdfast's own operators against new code, by their notes in the checkpoint.

To Spark all of these operators look the same: a few blobs for each key group. The operator's note describes
the blobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.units import exact_duration
from holdfast.errors import Invalid
from holdfast.model import StateVerdict, Verdict
from holdfast.stream.operator_check import RENAMED, Defined, OperatorNote

if TYPE_CHECKING:
    from holdfast.worker.declarations.state_descriptors import State
    from holdfast.worker.state.layout import BlobSchema


REFUSED: Final = "holdfast.Invalid"
_TIMERS: Final = "timers"


def note_verdicts(operator: OperatorNote, note: Mapping[str, Any] | None) -> tuple[StateVerdict, ...]:
    """Return a verdict for each state of an operator.

    Args:
        operator: The operator of the new code.
        note: The note of the operator with this name in the checkpoint, or None.
    """
    if isinstance(operator, Defined):
        return tuple(_keyed(operator, note))
    name = operator.note_name
    if note is None:
        return (StateVerdict(name, "default", Verdict.NEW, "it starts empty"),)
    try:
        changed = operator.new_note(note) is not None
    except Invalid as error:
        return (StateVerdict(name, "default", Verdict.INCOMPATIBLE, error_line(error), spark_error=REFUSED),)
    why = "its note changes; its state is read as before" if changed else ""
    return (StateVerdict(name, "default", Verdict.MIGRATE if changed else Verdict.MAP, why),)


def noted_states(note: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of an operator's states, read from its note."""
    return tuple(
        state for state in note["forms"][note["current"]]["states"] if not state.startswith("holdfast_")
    )


def error_line(error: Invalid) -> str:
    """Return an error with its details and hint on one line."""
    found = f": found {error.found}" if error.found else ""
    expected = f", expected {error.expected}" if error.expected else ""
    hint = f" ({error.hint})" if error.hint else ""
    return f"{error.fact}{found}{expected}{hint}"


def _keyed(operator: Defined, note: Mapping[str, Any] | None) -> Iterator[StateVerdict]:
    from holdfast.worker.state.layout import form_from_json

    name = operator.layout.operator
    if note is None:
        for state in _own(operator):
            yield StateVerdict(name, state.name, Verdict.NEW, "it starts empty")
        return
    form = form_from_json(note["forms"][note["current"]])
    verdicts = tuple(_states(operator, form, note.get(RENAMED)))
    try:
        operator.new_note(note)
    except Invalid as error:
        if all(verdict.verdict is not Verdict.INCOMPATIBLE for verdict in verdicts):
            # The newest schema can be read, but an older schema or the number of key groups cannot.
            for state_name in noted_states(note):
                yield StateVerdict(
                    name, state_name, Verdict.INCOMPATIBLE, error_line(error), spark_error=REFUSED
                )
            return
    yield from verdicts


def _own(operator: Defined) -> list[State]:
    """Return the states that the user declared, without internal ones."""
    from holdfast.worker.declarations.state_descriptors import SETTLED

    return [state for state in operator.layout.states if state.name != SETTLED]


def _states(operator: Defined, form: BlobSchema, renamed: Mapping[str, Any] | None) -> Iterator[StateVerdict]:
    from holdfast.worker.declarations.state_descriptors import SETTLED
    from holdfast.worker.state.loading import Upgrade

    name = operator.layout.operator
    taken = set()
    for state in _own(operator):
        known = state.stored_as(form.states, operator.layout.drop)
        if known is None:
            yield StateVerdict(name, state.name, Verdict.NEW, "it starts empty")
            continue
        taken.add(known)
        yield from _state(name, state, known, form)
    for left in [state for state in form.states if state not in taken and state != SETTLED]:
        if left in operator.layout.drop:
            yield StateVerdict(name, left, Verdict.DROP, f'dropped by drop=["{left}"] in the code')
        else:
            way_out = Upgrade(operator.layout, renamed).way_out(form, left)
            why = f"not declared by the processor, so it would be lost: {way_out}"
            yield StateVerdict(name, left, Verdict.INCOMPATIBLE, why, spark_error=REFUSED)
    yield from _timers(operator, form)


def _state(name: str, state: State, known: str, form: BlobSchema) -> Iterator[StateVerdict]:
    from holdfast.worker.declarations.evolution import change_of
    from holdfast.worker.state.layout import stored_types

    declared = form.states[known]
    try:
        stored, key = stored_types(form, known)
        change = change_of(state, declared["kind"], stored, key)
    except Invalid as error:
        yield StateVerdict(name, known, Verdict.INCOMPATIBLE, error_line(error), spark_error=REFUSED)
        return
    steps = list(change.steps)
    if known != state.name:
        steps.insert(0, f"renamed to {state.name}")
    before, now = declared.get("ttl_ms"), None if state.ttl is None else state.ttl.duration_ms
    if before != now:
        steps.append(f"the TTL changes from {_time_to_live(before)} to {_time_to_live(now)}")
    elif state.ttl is not None and declared.get("clock") != state.ttl.clock:
        steps.append(f"the TTL's clock changes from {declared.get('clock')} time to {state.ttl.clock} time")
    verdict = Verdict.MIGRATE if steps or not change.is_same else Verdict.MAP
    yield StateVerdict(name, known, verdict, "; ".join(steps))
    for path in change.lost:
        yield StateVerdict(name, f"{known}.{path}", Verdict.DROP, "the new type lacks this field")


def _timers(operator: Defined, form: BlobSchema) -> Iterator[StateVerdict]:
    from holdfast.worker.interface import TIMERS
    from holdfast.worker.state.layout import ROWS

    name = operator.layout.operator
    had, has = (TIMERS in schema.tables[ROWS].names for schema in (form, operator.layout.form))
    if had and has:
        yield StateVerdict(name, _TIMERS, Verdict.MAP)
    elif had and _TIMERS in operator.layout.drop:
        yield StateVerdict(name, _TIMERS, Verdict.DROP, f'dropped by drop=["{_TIMERS}"] in the code')
    elif had:
        why = f'the processor has no on_timer; to delete the timers, write process(…, drop=["{_TIMERS}"])'
        yield StateVerdict(name, _TIMERS, Verdict.INCOMPATIBLE, why, spark_error=REFUSED)


def _time_to_live(ms: int | None) -> str:
    return "none" if ms is None else exact_duration(ms)
