"""What becomes of the states of a keyed operator, by the note in its checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from holdfast.errors import Invalid
from holdfast.model import Verdict
from holdfast.stream.keyed_upgrades import note_verdicts, noted_states
from holdfast.stream.operator_check import Defined, check_places
from holdfast.worker.declarations.state_descriptors import State, StateKind, Ttl
from holdfast.worker.state.layout import Layout, form_of, periods_as_text, periods_from_text

KEYS = pa.schema([("who", pa.string())])
INT, LONG = pa.int32(), pa.int64()


def value(name: str, type_: pa.DataType = LONG, **more: Any) -> State:
    return State(StateKind.VALUE, type_, name, **more)


def operator(
    *states: State,
    drop: tuple[str, ...] = (),
    key_groups: int = 4,
    keys: pa.Schema = KEYS,
    timers: bool = False,
    at: int = 0,
) -> Defined:
    form = form_of(states, keys, timers=timers)
    return Defined(Layout("visits", key_groups, states, form, tuple(keys.names), drop, at))


def note_of(defined: Defined) -> dict[str, Any]:
    """The note as the next start reads it from its file."""
    noted: dict[str, Any] = json.loads(json.dumps(defined.new_note(None)))
    return noted


def verdicts(old: Defined, new: Defined) -> dict[str, Verdict]:
    found = note_verdicts(new, note_of(old))
    assert {each.operator for each in found} == {"visits"}
    return {each.state: each.verdict for each in found}


def test_without_a_note_all_is_new() -> None:
    assert {each.verdict for each in note_verdicts(operator(value("a"), value("b")), None)} == {Verdict.NEW}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (value("a"), value("a"), {"a": Verdict.MAP}),
        (value("a", INT), value("a", LONG), {"a": Verdict.MIGRATE}),
        (value("a", LONG), value("a", INT), {"a": Verdict.INCOMPATIBLE}),
        (value("a"), value("b", was="a"), {"a": Verdict.MIGRATE}),
        (value("a"), value("b"), {"b": Verdict.NEW, "a": Verdict.INCOMPATIBLE}),
        (value("a"), value("a", ttl=Ttl(1000)), {"a": Verdict.MIGRATE}),
        (value("a", ttl=Ttl(1000)), value("a", ttl=Ttl(1000, clock="event")), {"a": Verdict.MIGRATE}),
        (value("a"), State(StateKind.LIST, LONG, "a"), {"a": Verdict.INCOMPATIBLE}),
        (
            value("a", pa.struct([("x", LONG), ("y", LONG)])),
            value("a", pa.struct([("x", LONG)])),
            {"a": Verdict.MIGRATE, "a.y": Verdict.DROP},
        ),
        (
            State(StateKind.MAP, LONG, "a", key_type=pa.string()),
            State(StateKind.MAP, LONG, "a", key_type=LONG),
            {"a": Verdict.INCOMPATIBLE},
        ),
    ],
)
def test_one_state(old: State, new: State, expected: dict[str, Verdict]) -> None:
    assert verdicts(operator(old), operator(new)) == expected


def test_what_is_dropped_on_purpose_is_told() -> None:
    assert verdicts(operator(value("a"), value("b")), operator(value("a"), drop=("b",))) == {
        "a": Verdict.MAP,
        "b": Verdict.DROP,
    }


def test_timers_need_a_handler_or_a_word() -> None:
    timed = operator(value("a"), timers=True)
    assert verdicts(timed, timed) == {"a": Verdict.MAP, "timers": Verdict.MAP}
    assert verdicts(timed, operator(value("a")))["timers"] is Verdict.INCOMPATIBLE
    assert verdicts(timed, operator(value("a"), drop=("timers",)))["timers"] is Verdict.DROP
    assert verdicts(operator(value("a")), timed) == {"a": Verdict.MAP}


@pytest.mark.parametrize(
    "other",
    [operator(value("a"), key_groups=8), operator(value("a"), keys=pa.schema([("who", LONG)]))],
    ids=["key groups", "key"],
)
def test_what_no_state_survives(other: Defined) -> None:
    (found,) = note_verdicts(other, note_of(operator(value("a"))))
    assert (found.verdict, found.spark_error) == (Verdict.INCOMPATIBLE, "holdfast.Invalid")
    with pytest.raises(Invalid) as refused:
        other.new_note(note_of(operator(value("a"))))
    assert refused.value.fact in found.why


def test_an_older_form_that_cannot_be_read_is_no_way_out() -> None:
    """Blobs in it may be there still, though the newest form fits."""
    first, second = operator(value("a", LONG)), operator(value("a", LONG), value("b"))
    note = dict(second.new_note(note_of(first)) or {})
    third = operator(value("b"), drop=("a",))
    assert {each.state: each.verdict for each in note_verdicts(third, note)} == {
        "b": Verdict.MAP,
        "a": Verdict.DROP,
    }
    assert noted_states(note) == ("a", "b")
    narrow = {**note, "forms": {**note["forms"], **_as_current(note_of(operator(value("b", pa.string()))))}}
    found = note_verdicts(third, narrow)
    assert {each.verdict for each in found} == {Verdict.INCOMPATIBLE}


def noted(*versions: Defined) -> dict[str, Any]:
    """The note after these versions, started one after the other."""
    note: dict[str, Any] | None = None
    for version in versions:
        note = json.loads(json.dumps(version.new_note(note) or note))
    return note or {}


def test_a_state_is_renamed_twice() -> None:
    first, second = operator(value("x")), operator(value("y", was="x"))
    note = noted(first, second)
    with pytest.raises(Invalid, match="does not declare") as refused:
        operator(value("z", was="y")).new_note(note)
    # Keys that were not asked for while it was y still have it as x, so `drop` is no way out.
    assert 'was=["y", "x"]' in str(refused.value.hint)
    assert "drop" not in str(refused.value.hint)
    third = operator(value("z", was=("y", "x")))
    assert {each.state: each.verdict for each in note_verdicts(third, note)} == {"y": Verdict.MIGRATE}
    assert noted(first, second, third)["renamed"] == {"y": ["x"], "z": ["y", "x"]}


def test_a_former_name_stays_in_the_code() -> None:
    note = noted(operator(value("x")), operator(value("y", was="x")))
    with pytest.raises(Invalid, match="does not declare") as refused:
        operator(value("y")).new_note(note)
    assert 'write was="x"' in str(refused.value.hint)
    assert "drop" not in str(refused.value.hint)


def test_a_state_takes_the_name_of_a_dropped_one() -> None:
    before, after = operator(value("a"), value("b")), value("a", was="b")
    assert verdicts(before, operator(after, drop=("a",))) == {"b": Verdict.MIGRATE, "a": Verdict.DROP}
    with pytest.raises(Invalid) as refused:
        operator(after).new_note(note_of(before))
    assert 'drop=["a"]) to read b as a' in str(refused.value.hint)
    (found,) = [each for each in note_verdicts(operator(after), note_of(before)) if each.state == "b"]
    assert 'drop=["a"]) to read b as a' in found.why


def test_a_drop_that_is_taken_out_again_is_missed_at_the_start() -> None:
    before, dropped = operator(value("a"), value("b")), operator(value("b"), drop=("a",))
    note = noted(before, dropped)
    assert dropped.new_note(note) is None
    with pytest.raises(Invalid, match="does not declare"):
        operator(value("b")).new_note(note)


def test_it_is_noted_when_each_form_came() -> None:
    off, on = (operator(value("a"), at=at) for at in (10, 15)), operator(value("a", ttl=Ttl(5)), at=20)
    first, same = off
    note = noted(first, same, on, operator(value("a"), at=30))
    plain, timed = (each.layout.form.fingerprint.hex() for each in (first, on))
    assert note["periods"] == [[plain, 10], [timed, 20], [plain, 30]]
    periods = on.periods(note)
    assert [(each.mark, each.since_ms) for each in periods] == [*map(tuple, note["periods"]), (timed, 20)]
    assert periods_from_text(periods_as_text(periods))[1].states == {
        "a": {"ttl_ms": 5, "clock": "processing", "on_disable": "keep"}
    }


def test_a_note_from_before_does_not_say_when_a_form_came() -> None:
    first, second = operator(value("a"), at=10), operator(value("a", ttl=Ttl(5)), at=20)
    note = note_of(first)
    del note["periods"]
    plain, timed = (each.layout.form.fingerprint.hex() for each in (first, second))
    assert dict(first.new_note(note) or {})["periods"] == [[plain, None]]
    assert dict(second.new_note(note) or {})["periods"] == [[plain, None], [timed, 20]]


def _as_current(note: dict[str, Any]) -> dict[str, Any]:
    forms: dict[str, Any] = note["forms"]
    return forms


def test_keyed_operators_keep_their_places() -> None:
    check_places(("a", "b"), ("a", "b", "c"), "checkpoint")
    check_places(("a", "b"), ("x", "b"), "checkpoint")
    with pytest.raises(Invalid, match="keyed operators have changed places"):
        check_places(("a", "b"), ("b", "a"), "checkpoint")
    with pytest.raises(Invalid, match="keyed operators have changed places"):
        check_places(("a",), ("b", "a"), "checkpoint")
