"""Any sequence of edits, beside a dictionary that is edited in plain Python; each can be taken back."""

from __future__ import annotations

import tempfile
from pathlib import Path

import golden_model as model
import pytest
from catalogs import Hands
from grid import WHOLE
from hypothesis import given, settings
from hypothesis import strategies as st
from mended import counted, simple, view_of

from golden import golden, golden_on_disk
from holdfast.changes.edit.editing import edit, plan_edit
from holdfast.changes.edit.request import Edit
from holdfast.changes.edit.undoing import plan_undo, undo
from holdfast.changes.erase.erasing import erase
from holdfast.changes.erase.searching import subject
from holdfast.errors import Invalid
from holdfast.savepoints.catalog import ids
from holdfast.storage.local import LocalStorage

CUSTOMERS = [f"c{number}" for number in range(10)]
NAMES = st.sampled_from(["4.2/aggregate-memory", "4.2/aggregate-rocksdb", "4.2/aggregate-format2"])
Row = tuple[int, int | None]
Rows = dict[str, Row]

text = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12).filter(
    lambda each: each not in CUSTOMERS
)
longs = st.integers(-(2**63), 2**63 - 1)
steps = st.one_of(
    st.tuples(st.just("set"), st.sampled_from(CUSTOMERS), longs),
    st.tuples(st.just("add"), st.integers(0, 9), st.integers(-1000, 1000)),
    st.tuples(st.just("delete"), st.sampled_from(CUSTOMERS), st.none()),
    st.tuples(st.just("insert"), text, longs),
)


def asked(step: tuple[str, object, object], rows: Rows) -> tuple[Edit | None, Rows]:
    """A step as an edit, and what a dictionary becomes by it; None where it would change nothing."""
    what, which, value = step
    after = dict(rows)
    if what == "set":
        assert isinstance(which, str)
        assert isinstance(value, int)
        if which in rows:
            after[which] = (rows[which][0], value)
        return Edit("aggregate", key=which, set=(f"sum = {value}",)), after
    if what == "add":
        assert isinstance(which, int)
        assert isinstance(value, int)
        where = f"count % 10 = {which} and length(customer) = 2"
        for customer, (count, total) in rows.items():
            if count % 10 == which and len(customer) == 2:
                after[customer] = (count + value, total)
        return Edit("aggregate", where=where, set=(f"count = count + {value}",)), after
    if what == "delete":
        after.pop(str(which), None)
        return Edit("aggregate", where=f"customer = '{which}'", delete=True), after
    after[str(which)] = (1, value)  # type: ignore[assignment]
    return Edit("aggregate", insert=({"customer": which, "count": 1, "sum": value},)), after


@settings(max_examples=30 if WHOLE else 3, deadline=None)
@given(name=NAMES, program=st.lists(steps, min_size=1, max_size=4), erased=st.sampled_from(CUSTOMERS))
def test_edits_do_to_state_what_they_do_to_a_dictionary(
    name: str, program: list[tuple[str, object, object]], erased: str
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, hands = Path(place), Hands()
        catalog = LocalStorage(folder / "catalog")
        hands.take(LocalStorage(golden_on_disk(name, folder / "ck")), catalog)
        rows: Rows = dict(model.aggregate(model.taken(golden(name).files)))
        history = [(ids(catalog)[0], rows)]
        for step in program:
            given_edit, after = asked(step, rows)
            assert given_edit is not None
            newest = history[-1][0]
            if after == rows or (step[0] == "insert" and step[1] in rows):
                with pytest.raises(Invalid):
                    plan_edit(catalog, newest, catalog, given_edit)
                continue
            plan = plan_edit(catalog, newest, catalog, given_edit)
            work = folder / hands.token()
            made = edit(catalog, catalog, plan, work, who="a", clock=hands.clock, chance=hands.chance)
            rows = after
            history.append((made.taken.manifest.savepoint_id, rows))
            assert simple(view_of(catalog, history[-1][0]), "default") == rows
        for at in range(len(history) - 1, 0, -1):
            plan_back = plan_undo(catalog, history[at][0], catalog, history[at - 1][0])
            back = undo(catalog, catalog, plan_back, who="a", clock=hands.clock, chance=hands.chance)
            assert simple(view_of(catalog, back.taken.manifest.savepoint_id), "default") == history[at - 1][1]
        work = folder / hands.token()
        erase(catalog, subject(erased), work, who="a", clock=hands.clock, chance=hands.chance)
        for savepoint_id, was in history:
            expected = {customer: each for customer, each in was.items() if customer != erased}
            assert simple(view_of(catalog, savepoint_id), "default") == expected


@settings(max_examples=20 if WHOLE else 2, deadline=None)
@given(bound=st.integers(-10, 130), keys=st.sets(st.sampled_from(CUSTOMERS)), place=st.integers(0, 3))
def test_lists_keep_their_counters(bound: int, keys: set[str], place: int) -> None:
    with tempfile.TemporaryDirectory() as folder_name:
        folder, hands = Path(folder_name), Hands()
        catalog = LocalStorage(folder / "catalog")
        hands.take(LocalStorage(golden_on_disk("4.2/state-format2", folder / "ck")), catalog)
        before = simple(view_of(catalog, ids(catalog)[0]), "amounts")
        listed = ", ".join(f"'{each}'" for each in (*sorted(keys), "nobody"))
        where = f"customer in ({listed}) and (amount < {bound} or index = {place})"
        expected = {
            customer: [
                row
                for at, row in enumerate(rows)
                if not (customer in keys and (row[0] < bound or at == place))
            ]
            for customer, rows in before.items()
        }
        expected = {customer: rows for customer, rows in expected.items() if rows}
        try:
            plan = plan_edit(catalog, ids(catalog)[0], catalog, Edit("amounts", where=where, delete=True))
        except Invalid:
            assert expected == before
            return
        made = edit(catalog, catalog, plan, folder / "w", who="a", clock=hands.clock, chance=hands.chance)
        view = view_of(catalog, made.taken.manifest.savepoint_id)
        assert simple(view, "amounts") == expected
        counted(view, "amounts")
