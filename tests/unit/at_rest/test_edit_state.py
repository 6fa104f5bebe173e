"""Edits of real checkpoints' state: the rows that were meant are others, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import golden_model as model
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from catalogs import Hands
from mended import all_rows, counted, joined_rows, rows_of, simple, view_of

from golden import KEYED, golden, golden_on_disk
from holdfast.changes.edit.editing import EditPlan, EditReport, edit, plan_edit
from holdfast.changes.edit.request import Edit
from holdfast.changes.edit.undoing import change_of, plan_undo, undo
from holdfast.errors import Conflict, Corrupt, HoldfastError, Invalid, NotFound
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.catalog import load, object_path
from holdfast.savepoints.labels import set_label
from holdfast.savepoints.proof import prove
from holdfast.storage.local import LocalStorage

pytestmark = pytest.mark.slow

AGGREGATES = [f"4.2/aggregate-{each}" for each in ("memory", "rocksdb", "changelog", "format2")]


class Bench:
    """A catalog with one savepoint of a golden checkpoint."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.hands = Hands()
        self.name = name
        self.catalog = LocalStorage(folder / "catalog")
        checkpoint = LocalStorage(golden_on_disk(name, folder / "ck"))
        self.first = self.hands.take(checkpoint, self.catalog, deep=True).manifest.savepoint_id
        self._works = 0

    def plan(self, asked: Edit, savepoint_id: str | None = None) -> EditPlan:
        return plan_edit(self.catalog, savepoint_id or self.first, self.catalog, asked)

    def edit(self, asked: Edit, savepoint_id: str | None = None) -> EditReport:
        return self.apply(self.plan(asked, savepoint_id))

    def apply(self, plan: EditPlan) -> EditReport:
        self._works += 1
        work = self.folder / f"work-{self._works}"
        made = edit(
            self.catalog,
            self.catalog,
            plan,
            work,
            who="ada@desk",
            why="a test",
            clock=self.hands.clock,
            chance=self.hands.chance,
        )
        assert prove(self.catalog, made.taken.manifest.savepoint_id, deep=True).problems == ()
        return made

    def view(self, made: EditReport | None = None) -> Any:
        return view_of(self.catalog, self.first if made is None else made.taken.manifest.savepoint_id)


@pytest.fixture
def bench(tmp_path: Path) -> Callable[[str], Bench]:
    return lambda name: Bench(tmp_path, name)


def aggregates(name: str) -> dict[str, tuple[int, int]]:
    return model.aggregate(model.taken(golden(name).files))


@pytest.mark.parametrize("name", AGGREGATES)
def test_rows_are_set_deleted_and_inserted(name: str, bench: Callable[[str], Bench]) -> None:
    one = bench(name)
    expected = aggregates(name)
    assert simple(one.view(), "default") == expected
    made = one.edit(
        Edit("aggregate", where="customer in ('c1', 'c2')", set=("count = count + 100", "sum = -1"))
    )
    for customer in ("c1", "c2"):
        expected[customer] = (expected[customer][0] + 100, -1)
    assert simple(one.view(made), "default") == expected
    made = one.edit(Edit("aggregate", key="c3", delete=True), made.taken.manifest.savepoint_id)
    del expected["c3"]
    assert simple(one.view(made), "default") == expected
    new = ({"customer": "zed", "count": 3, "sum": None}, {"customer": "zoe", "count": 1, "sum": 9})
    made = one.edit(Edit("aggregate", insert=new), made.taken.manifest.savepoint_id)
    expected |= {"zed": (3, None), "zoe": (1, 9)}  # type: ignore[dict-item]
    assert simple(one.view(made), "default") == expected
    assert simple(one.view(), "default") == aggregates(name)


@pytest.mark.parametrize("name", AGGREGATES)
def test_partitions_that_are_not_touched_keep_their_files(name: str, bench: Callable[[str], Bench]) -> None:
    one = bench(name)
    plan = one.plan(Edit("aggregate", key="customer=c1", set=("count = 5",)))
    (touched,) = plan.partitions
    made = one.apply(plan)

    def others(savepoint_id: str) -> dict[str, str]:
        return {
            file.path: file.sha256
            for file in load(one.catalog, savepoint_id).files
            if file.path.startswith("state/0/") and not file.path.startswith(f"state/0/{touched}/")
        }

    assert others(one.first) == others(made.taken.manifest.savepoint_id) != {}
    assert made.taken.manifest.batch_id == load(one.catalog, one.first).batch_id
    assert made.taken.manifest.query_id == load(one.catalog, one.first).query_id


@pytest.mark.parametrize("name", ["4.2/join-memory", "4.2/join-format2", "4.3/join-format2"])
def test_a_joins_rows_keep_their_numbers_without_gaps(name: str, bench: Callable[[str], Bench]) -> None:
    one = bench(name)
    before, right = joined_rows(one.view(), "left"), joined_rows(one.view(), "right")
    made = one.edit(Edit("join.left", where="amount % 2 = 0", delete=True))
    kept = {key: [row for row in rows if row[1] % 2] for key, rows in before.items()}
    assert joined_rows(one.view(made), "left") == {key: rows for key, rows in kept.items() if rows}
    assert joined_rows(one.view(made), "right") == right
    row = {"field0": "c1", "customer": "c1", "amount": 77, "ts": "2026-03-05T09:00:00Z", "matched": False}
    made = one.edit(Edit("join.left", insert=(row, {**row, "field0": "new", "amount": 78})))
    after = joined_rows(one.view(made), "left")
    assert [each[1] for each in after["c1"]] == [each[1] for each in before.get("c1", [])] + [77]
    assert [each[1] for each in after["new"]] == [78]
    made = one.edit(Edit("join.left", where="index = 0", set=("matched = not matched",)))
    after = joined_rows(one.view(made), "left")
    assert {key: rows[0][-1] for key, rows in after.items()} == {
        key: not rows[0][-1] for key, rows in before.items()
    }


@pytest.mark.parametrize("name", ["4.2/state-format2", "4.3/state-format2"])
def test_lists_and_their_counters_change_together(name: str, bench: Callable[[str], Bench]) -> None:
    one = bench(name)
    before = simple(one.view(), "amounts")
    made = one.edit(Edit("amounts", where="amount >= 50 or customer = 'c4'", delete=True))
    kept = {key: [row for row in rows if row[0] < 50 and key != "c4"] for key, rows in before.items()}
    assert simple(one.view(made), "amounts") == {key: rows for key, rows in kept.items() if rows}
    counted(one.view(made), "amounts")
    new = (
        {"customer": "c4", "amount": 1},
        {"customer": "zed", "amount": 2},
        {"customer": "zed", "amount": 3},
    )
    made = one.edit(Edit("processor.amounts", insert=new))
    assert simple(one.view(made), "amounts") == {**before, "c4": [*before["c4"], (1,)], "zed": [(2,), (3,)]}
    counted(one.view(made), "amounts")
    made = one.edit(Edit("amounts", where="index = 0", set=("amount = -amount",)))
    turned = {key: [(-rows[0][0],), *rows[1:]] for key, rows in before.items()}
    assert simple(one.view(made), "amounts") == turned
    assert simple(one.view(made), "count") == simple(one.view(), "count")


def test_windows_are_picked_by_their_times(bench: Callable[[str], Bench]) -> None:
    one = bench("4.2/windowed-memory")
    before = {
        (key["window"]["start"], key["customer"]): value["count"]
        for key, value in rows_of(one.view(), "default")
    }
    last = max(start for start, _ in before)
    where = f"\"window\".start = timestamptz '{last.isoformat()}'"
    made = one.edit(Edit("aggregate", where=where, set=("count = 0",)))
    after = {
        (key["window"]["start"], key["customer"]): value["count"]
        for key, value in rows_of(one.view(made), "default")
    }
    assert after == {key: 0 if key[0] == last else count for key, count in before.items()}


def test_a_session_cannot_be_brought_apart_from_its_key(bench: Callable[[str], Bench]) -> None:
    one = bench("4.2/session-rocksdb")
    made = one.edit(Edit("sessions", key="c1", set=("count = count + 9",)))
    before, after = (
        {
            (key["customer"], key["sessionStartTime"]): value["count"]
            for key, value in rows_of(view, "default")
        }
        for view in (one.view(), one.view(made))
    )
    assert after == {key: count + 9 if key[0] == "c1" else count for key, count in before.items()}
    for column in ("customer", "value_customer", "sessionStartTime"):
        with pytest.raises(Invalid, match="key"):
            one.plan(Edit("sessions", where="true", set=(f"{column} = null",)))
    moved = "session_window = {'start': session_window.start + interval 1 second, 'end': session_window.end}"
    with pytest.raises(Invalid, match="does not match its key"):
        one.plan(Edit("sessions", where="true", set=(moved,)))


@pytest.mark.parametrize("name", KEYED)
def test_keyed_state_is_edited_by_its_users_keys(bench: Callable[[str], Bench], name: str) -> None:
    one = bench(name)
    label = "operator-0"

    def rows(made: EditReport | None) -> dict[str, tuple[int | None, int | None]]:
        from holdfast.at_rest.keyed_reader import keyed_states

        (state,) = keyed_states(one.view(made))
        return {row.key[0]: (row.values.get("visits"), row.values.get("spend")) for row in state.rows()}

    before = rows(None)
    made = one.edit(Edit(label, where="visits > 0 and key in ('c1', 'c2')", set=("visits = visits * 2",)))
    doubled = {key: ((v or 0) * 2 if key in ("c1", "c2") else v, s) for key, (v, s) in before.items()}
    assert rows(made) == doubled
    made = one.edit(Edit(label, key="c3", delete=True))
    assert rows(made) == {key: each for key, each in before.items() if key != "c3"}
    made = one.edit(Edit(f"{label}.spend", key="c3", delete=True))
    assert rows(made) == {key: (v, None if key == "c3" else s) for key, (v, s) in before.items()}
    made = one.edit(Edit(label, insert=({"key": "zed", "visits": 4},)))
    assert rows(made) == {**before, "zed": (4, None)}
    with pytest.raises(Invalid, match="exists already"):
        one.plan(Edit(label, insert=({"key": "c1", "visits": 4},)))


def test_a_function_changes_the_whole_table(bench: Callable[[str], Bench]) -> None:
    one = bench("4.2/aggregate-format2")
    expected = aggregates("4.2/aggregate-format2")

    def change(table: pa.Table) -> pa.Table:
        kept = table.filter(pc.not_equal(table["customer"], "c9"))
        sums = pc.add(kept["sum"], pc.max(kept["sum"]))
        more = pa.table({"customer": ["zed"], "count": [1], "sum": [2]}, schema=table.schema)
        return pa.concat_tables([kept.set_column(2, table.schema.field("sum"), sums), more])

    made = one.edit(Edit("aggregate", change=change))
    del expected["c9"]
    most = max(total for _, total in expected.values())
    wanted = {key: (count, total + most) for key, (count, total) in expected.items()} | {"zed": (1, 2)}
    assert simple(one.view(made), "default") == wanted
    for wrong, word in (
        (lambda table: table.drop_columns(["sum"]), "sum"),
        (lambda table: table.append_column("x", pa.nulls(len(table))), "x"),
        (lambda table: table.set_column(1, "count", pa.array(["x"] * len(table))), "count"),
        (lambda table: pa.concat_tables([table, table]), "duplicate key"),
        (lambda _: 3, "table"),
    ):
        with pytest.raises(Invalid, match=word):
            one.plan(Edit("aggregate", change=wrong))


def test_the_plan_counts_and_shows(bench: Callable[[str], Bench]) -> None:
    one = bench("4.2/aggregate-memory")
    found = one.plan(Edit("aggregate", where="customer = 'c1'", set=("count = 1",))).as_dict()
    count, total = aggregates("4.2/aggregate-memory")["c1"]
    assert (found["rows_before"], found["rows_after"], found["changed"]) == (10, 10, 1)
    assert found["samples"] == [
        {
            "before": {"customer": "c1", "count": count, "sum": total},
            "after": {"customer": "c1", "count": 1, "sum": total},
        }
    ]
    assert found["statement"] == "set count = 1 where customer = 'c1'"


def test_the_manifest_says_who_and_what_and_an_undo_brings_back(bench: Callable[[str], Bench]) -> None:
    one = bench("4.2/aggregate-format2")
    made = one.edit(Edit("aggregate", key="c1", delete=True))
    manifest = load(one.catalog, made.taken.manifest.savepoint_id)
    assert manifest.change is not None
    assert {
        name: manifest.change[name] for name in ("kind", "who", "why", "state", "deleted", "rows_before")
    } == {
        "kind": "edit",
        "who": "ada@desk",
        "why": "a test",
        "state": "aggregate",
        "deleted": 1,
        "rows_before": 10,
    }
    change = change_of(manifest, "it")
    assert change.of.endswith(one.first)
    plan = plan_undo(one.catalog, manifest.savepoint_id, one.catalog, one.first)
    back = undo(
        one.catalog, one.catalog, plan, who="bob@desk", clock=one.hands.clock, chance=one.hands.chance
    )
    assert all_rows(view_of(one.catalog, back.taken.manifest.savepoint_id)) == all_rows(one.view())
    assert back.taken.new_files == 0
    assert back.audit.back_to == change.of
    with pytest.raises(Invalid, match="not created by an edit"):
        change_of(load(one.catalog, one.first), "it")


def test_an_edit_and_its_undo_leave_the_label_to_the_original(bench: Callable[[str], Bench]) -> None:
    one = bench("4.2/aggregate-format2")
    set_label(one.catalog, one.first, "before", who="ada@desk", when_ms=one.hands.clock())
    made = one.edit(Edit("aggregate", key="c1", delete=True)).taken.manifest
    plan = plan_undo(one.catalog, made.savepoint_id, one.catalog, one.first)
    back = undo(
        one.catalog, one.catalog, plan, who="ada@desk", clock=one.hands.clock, chance=one.hands.chance
    )
    labelled = undo(
        one.catalog,
        one.catalog,
        plan,
        who="ada@desk",
        label="again",
        clock=one.hands.clock,
        chance=one.hands.chance,
    )
    assert (made.label, back.taken.manifest.label, labelled.taken.manifest.label) == (None, None, "again")
    named = StateAddress.resolve(f"{one.catalog.uri}@before").text
    assert named.rpartition("/")[2] == one.first


BAD: dict[str, tuple[Mapping[str, Any], type[HoldfastError], str]] = {
    "unknown state": ({"state": "nope", "delete": True, "where": "true"}, NotFound, "aggregate"),
    "unknown column": ({"where": "nope = 1", "delete": True}, Invalid, "nope"),
    "unknown target": ({"where": "true", "set": ("nope = 1",)}, Invalid, "nope"),
    "text for a number": ({"where": "true", "set": ("count = 'x'",)}, Invalid, "does not match the schema"),
    "a fraction": ({"where": "true", "set": ("count = 1.5",)}, Invalid, "does not match the schema"),
    "too large": (
        {"where": "true", "set": ("count = 9223372036854775807::hugeint * 2",)},
        Invalid,
        "does not match",
    ),
    "null": ({"where": "true", "set": ("count = null",)}, Invalid, "never null"),
    "a key": ({"where": "true", "set": ("customer = 'x'",)}, Invalid, "a key column cannot be set"),
    "no condition": ({"where": "count", "delete": True}, Invalid, "condition"),
    "a subquery": (
        {"where": "count = (select 1)", "delete": True},
        Invalid,
        "a window function or a parameter",
    ),
    "a window": (
        {"where": "true", "set": ("count = row_number() over ()",)},
        Invalid,
        "a window function or a parameter",
    ),
    "a file": (
        {"where": "true", "set": ("sum = (select 1 from '/etc/passwd')",)},
        Invalid,
        "a window function or a parameter",
    ),
    "two statements": (
        {"where": "true); drop table x; (select true", "delete": True},
        Invalid,
        "be evaluated",
    ),
    "text that is no key": (
        {"key": '{"customer":"c1","x":1}', "delete": True},
        Invalid,
        "key columns: x",
    ),
    "nothing": ({"where": "false", "delete": True}, Invalid, "changes nothing"),
    "all by mistake": ({"delete": True}, Invalid, "every row"),
    "two things": (
        {"delete": True, "set": ("count = 1",), "where": "true"},
        Invalid,
        "exactly one",
    ),
    "no key": ({"insert": ({"count": 1},)}, Invalid, "all key columns"),
    "taken": ({"insert": ({"customer": "c1", "count": 1},)}, Invalid, "exists already"),
    "no number": ({"insert": ({"customer": "x", "count": "1"},)}, Invalid, "does not match the schema"),
    "left out": ({"insert": ({"customer": "x"},)}, Invalid, "count"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("name", ["4.2/aggregate-memory"])
def test_what_does_not_fit_is_refused(name: str, case: str, bench: Callable[[str], Bench]) -> None:
    one = bench(name)
    given, kind, word = BAD[case]
    before = sorted(one.catalog.list("savepoints").names)
    with pytest.raises(kind) as error:
        one.plan(Edit(**{"state": "aggregate", **given}))
    assert word in str(error.value)
    assert sorted(one.catalog.list("savepoints").names) == before


def test_a_savepoint_with_a_missing_file_is_not_edited(bench: Callable[[str], Bench]) -> None:
    one = bench("4.2/aggregate-memory")
    lost = next(file for file in load(one.catalog, one.first).files if file.path.endswith(".snapshot"))
    one.catalog.delete(object_path(lost.sha256))
    with pytest.raises(Corrupt, match="damaged") as error:
        one.plan(Edit("aggregate", key="c1", delete=True))
    assert lost.path in str(error.value)


def test_what_moved_since_the_plan_is_refused(bench: Callable[[str], Bench]) -> None:
    one = bench("4.2/aggregate-memory")
    plan = one.plan(Edit("aggregate", key="c1", delete=True))
    one.hands.delete(one.catalog, one.first)
    with pytest.raises(NotFound):
        one.apply(plan)
    assert one.catalog.list("savepoints").names == []


def test_two_edits_of_one_savepoint_are_two_savepoints(bench: Callable[[str], Bench]) -> None:
    one = bench("4.2/aggregate-rocksdb")
    plans = [one.plan(Edit("aggregate", key=key, delete=True)) for key in ("c1", "c2")]
    made = [one.apply(plan) for plan in plans]
    for key, each in zip(("c1", "c2"), made, strict=True):
        assert set(simple(one.view(), "default")) - set(simple(one.view(each), "default")) == {key}


def test_a_removal_under_way_is_not_disturbed(bench: Callable[[str], Bench]) -> None:
    one = bench("4.2/aggregate-memory")
    plan = one.plan(Edit("aggregate", key="c1", delete=True))
    one.catalog.write("sweep.json", b'{"token":"x","beat_ms":99999999999999,"owner":"somebody"}')
    with pytest.raises(Conflict, match="a removal is running"):
        one.apply(plan)
    assert len(one.catalog.list("savepoints").names) == 1
