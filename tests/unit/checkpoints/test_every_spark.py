"""Checkpoints of every Spark: every verb over files on every built-in operator, against plain Python.

What is tried is in `spark_matrix`; the documentation's matrix is made from the same.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grid import one_in
from spark_matrix import (
    CELLS,
    JOINS,
    LISTED,
    TRIED,
    VERBS,
    Rows,
    expected,
    expected_history,
    found,
    query_of,
    shown,
)
from state_rows import state_rows

import holdfast as hf
from golden import golden, golden_on_disk
from holdfast import savepoints
from holdfast.at_rest.state_reader import StateReader
from holdfast.changes.reshaping import migrate
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Invalid
from holdfast.storage import open_storage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("guards_wait_no_time")]

# One task has all that they keep.
GATHERED = ("global", "limit")
CUSTOMER = "c3"
SIDES = dict.fromkeys(JOINS, ("left", "right"))


class Tried:
    """A golden checkpoint on a disk, and a savepoint of it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.query = query_of(name)
        self.folder = folder
        self.checkpoint = golden_on_disk(name, folder / "ck")
        self.rows = expected(name)

    def saved(self) -> str:
        return savepoints.take(self.checkpoint, self.folder / "sp", home=self.folder / "home").uri

    def rows_of(self, checkpoint: Path) -> Rows:
        return found(self.name, open_storage(str(checkpoint)))

    def restored(self, savepoint: str, into: str = "restored") -> Path:
        savepoints.restore(savepoint, self.folder / into)
        assert verify(open_storage(str(self.folder / into))).ok
        return self.folder / into

    def without(self, word: str) -> Rows:
        return Counter({row: number for row, number in self.rows.items() if word not in row})


def show(case: Tried) -> None:
    (operator,) = read(open_storage(str(case.checkpoint))).operators
    assert operator.named.operator_kind != "stateful operator"
    assert operator.partitions == (1 if case.query in GATHERED else 2)


def check(case: Tried) -> None:
    told = verify(golden(case.name))
    assert told.problems == ()
    assert told.batch_id in told.restorable


def history(case: Tried) -> None:
    """Each batch has the offsets and the watermark that its files give."""
    told = hf.checkpoints.history(case.checkpoint)
    model = expected_history(case.name)
    assert len(told) >= 2
    assert {
        batch.batch_id: (
            {name: json.loads(end or "")["logOffset"] for name, end in batch.offsets.items()},
            batch.next_watermark_ms or 0,
        )
        for batch in told
    } == {batch.batch_id: model[batch.batch_id] for batch in told}
    for batch in told:
        assert len(batch.operators) == 1
    assert told[-1].new_bytes > 0


def doctor(case: Tried) -> None:
    health = hf.health(case.checkpoint, home=case.folder / "home")
    assert health.problems == ()
    assert health.not_judged == ()
    assert health.batch_id == max(health.restorable)
    assert {source.name for source in health.sources} == {*expected_history(case.name)[0][0]}
    (operator,) = health.operators
    assert operator.partitions == (1 if case.query in GATHERED else 2)
    assert health.restart is not None


def take(case: Tried) -> None:
    proof = savepoints.verify(case.saved(), deep=True)
    assert proof.ok


def restore(case: Tried) -> None:
    assert case.rows_of(case.restored(case.saved())) == case.rows


def rescale(case: Tried) -> None:
    new = case.folder / "rescaled"
    made = savepoints.rescale(case.saved(), new, partitions=3)
    assert not made.plan.starts_spark
    assert case.rows_of(new) == case.rows
    assert verify(open_storage(str(new))).ok
    (operator,) = read(open_storage(str(new))).operators
    assert operator.partitions == (1 if case.query in GATHERED else 3)


def move(case: Tried) -> None:
    new = case.folder / "moved"
    to_memory = not case.name.endswith("-memory") and case.query not in ("state", "join3", *LISTED)
    migrate(case.saved(), new, backend="memory" if to_memory else "rocksdb", partitions=5)
    assert case.rows_of(new) == case.rows
    assert verify(open_storage(str(new))).ok


def get(case: Tried) -> None:
    """A key that is there, and one that is not."""
    storage = open_storage(str(case.checkpoint))
    (operator,) = read(storage).operators
    reader = StateReader(storage)
    if case.query in GATHERED:
        assert reader.get(operator.named.display_name, {"key": None} if case.query == "limit" else {}).exists
        return
    if case.query in ("distinct", "windowed"):
        for row in itertools.islice(state_rows(storage), 3):
            (entry,) = reader.get(operator.named.display_name, row.key).entries
            assert entry.value == ({} if case.query == "distinct" else row.value)
        return
    for state in {**SIDES, "state": ("count", "amounts")}.get(case.query, ("",)):
        rows = [row for row in case.rows if f"'{CUSTOMER}'" in row and f"'{state}'" in f"'', {row}"]
        assert len(reader.get(state, CUSTOMER).entries) == (12 if state == "amounts" else len(rows))
        assert not reader.get(state, "nobody").exists


def scan(case: Tried) -> None:
    """Every row of the states that users know, through the public reader, row by row and in columns."""
    states = {**SIDES, "state": ("count", "amounts")}.get(case.query, ("",))
    (operator,) = read(open_storage(str(case.checkpoint))).operators
    rows: Rows = Counter()
    for state in states:
        lists: dict[str, list[Any]] = {}
        named = state or operator.named.display_name
        entries = list(hf.state(case.checkpoint).scan(named))
        columns = hf.state(case.checkpoint).arrow(named).read_all()
        assert columns.num_rows == len(entries)
        for name in ({"amount", "count"} & {*entries[0].value}) if entries else ():
            assert Counter(columns[name].to_pylist()) == Counter(entry.value[name] for entry in entries)
        for entry in entries:
            key = {**entry.key, **entry.sub}
            if state == "amounts":
                lists.setdefault(key["customer"], []).append(entry.value)
            else:
                rows[shown(case.name, state, key, entry.value)] += 1
        rows.update(
            shown(case.name, state, {"customer": customer}, values) for customer, values in lists.items()
        )
    assert rows == case.rows


def diff(case: Tried) -> None:
    first = case.saved()
    assert savepoints.diff(first, case.checkpoint).same


def edit(case: Tried) -> None:
    first = case.saved()
    if not case.rows:
        with pytest.raises(Invalid, match="changes nothing"):
            hf.edit(first, **_edit_of(case))
        return
    made = hf.edit(first, **_edit_of(case))
    told = savepoints.diff(first, made.uri)
    rows = case.rows_of(case.restored(made.uri))
    undone = hf.undo(made.uri)
    assert not told.same
    if case.query in GATHERED:
        assert rows != case.rows
    elif case.query in JOINS:
        assert rows == case.without(f"('left', ('{CUSTOMER}'")
    elif case.query == "state":
        assert rows == Counter(
            {row: n for row, n in case.rows.items() if f"'amounts', '{CUSTOMER}'" not in row}
        )
    else:
        assert rows == case.without(f"'{CUSTOMER}'")
    assert case.rows_of(case.restored(undone.uri, "undone")) == case.rows


def _edit_of(case: Tried) -> dict[str, Any]:
    (operator,) = read(open_storage(str(case.checkpoint))).operators
    states = {**dict.fromkeys(JOINS, "left"), "state": "amounts"}
    state = states.get(case.query, operator.named.display_name)
    if case.query in GATHERED:
        return {"state": state, "where": "true", "set": {"count" if case.query == "global" else "value": 7}}
    return {"state": state, "where": f"customer = '{CUSTOMER}'", "delete": True}


def erase(case: Tried) -> None:
    if case.query in GATHERED:
        return
    saved = case.saved()
    made = hf.erase(CUSTOMER, everywhere=case.folder / "sp", who="ada@desk", home=case.folder / "home")
    assert made.proved
    assert case.rows_of(case.restored(saved)) == case.without(f"'{CUSTOMER}'")


TRIES: dict[str, Callable[[Tried], None]] = dict(
    zip(
        VERBS,
        (show, check, history, doctor, take, restore, rescale, move, get, scan, diff, edit, erase),
        strict=True,
    )
)


@pytest.mark.parametrize(("name", "verb"), one_in(4, list(itertools.product(TRIED, VERBS))))
def test_a_verb(name: str, verb: str, tmp_path: Path) -> None:
    TRIES[verb](Tried(name, tmp_path))


@pytest.mark.parametrize("name", CELLS)
def test_the_rows_are_those_of_the_input(name: str) -> None:
    assert found(name, golden(name)) == expected(name)
