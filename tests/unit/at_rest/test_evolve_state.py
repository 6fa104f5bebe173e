"""State brought into another form, from files alone: rows as in a model; a kill leaves old or new."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from catalogs import Hands, catalog, target
from spark_structs import fields
from tasks_here import TasksHere

from golden import golden, golden_files
from holdfast.changes.column_changes import OperatorConversion
from holdfast.changes.converting import RowConversion
from holdfast.changes.engine import state_at_rest
from holdfast.changes.evolving import (
    EvolutionPlan,
    Evolved,
    NewCode,
    apply_evolution,
    operator_columns,
    steps_for,
)
from holdfast.changes.operator_matching import Wishes
from holdfast.changes.working_copy import SharedWork
from holdfast.checkpoints.checkpoint import Tree, read
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.state.states import shapes
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import HoldfastError, Internal, Invalid, Unsupported
from holdfast.formats.logs.batch_logs import parse_offsets
from holdfast.formats.logs.notes import PLAN_NOTE, PlanStep, QueryPlan, parse_note
from holdfast.formats.logs.operator_metadata import ColumnFamily, StateSchema, parse_operator
from holdfast.layout import OperatorMetadataFile, OwnFile, SchemaFile
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.key_diff import compare_states
from holdfast.savepoints.restoring import RestoreKind
from holdfast.savepoints.view import StateLocation
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage
from holdfast.testing.failing_storage import FaultyStorage, Killed

pytestmark = pytest.mark.slow

AGGREGATE = "stateStoreSave"
TOTALS = "[customer], [customer, count(1) AS n, sum(amount) AS total]"


class Code:
    """New code of a query, by what Spark would note of it before its first batch."""

    def __init__(self, *texts: str) -> None:
        self.plan = QueryPlan((), tuple(PlanStep("Step", text, text, True) for text in texts))
        self.state = MemoryStorage()

    def operator(self, number: int, kind: str, key: str, value: str, prefix: int = 0) -> Code:
        noted = {
            "operatorInfo": {"operatorId": number, "operatorName": kind},
            "stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": prefix, "numPartitions": 2}],
        }
        family = ColumnFamily("default", key, value)
        self.state.write(f"state/{number}/_metadata/metadata", f"v1\n{json.dumps(noted)}".encode())
        self.state.write(f"state/{number}/0/_metadata/schema", StateSchema(2, (family,)).render())
        return self


def planned(
    source: ChangeSource, into: Storage, code: Code, old: QueryPlan | None = None, **said: Any
) -> EvolutionPlan:
    state = state_at_rest(source, into, RestoreKind.EVOLVE)
    path = f"offsets/{state.batch_id}"
    confs = parse_offsets(state.view.read(path), path).confs
    wishes = Wishes(
        said.get("rename", {}),
        frozenset(said.get("drop", ())),
        said.get("initial", {}),
        said.get("merge", False),
    )
    steps = steps_for(
        operator_columns(shapes(state.view, state.batch_id), old, confs, source.uri),
        operator_columns(shapes(code.state, 0), code.plan, confs, source.uri),
        wishes,
        source.uri,
    )
    told = tuple(step.describe() for step in steps)
    return EvolutionPlan(
        *state.common(into),
        target="new.py",
        operators=told,
        changes=(),
        merge=wishes.merge,
        steps=steps,
        state_format=state.shape.state_format,
    )


def do(
    source: ChangeSource, into: Storage, folder: Path, code: Code, old: QueryPlan | None = None, **said: Any
) -> Evolved:
    """Convert the state in this process, after tasks have made the same of it."""
    plan = planned(source, into, code, old, **said)
    shape = state_at_rest(source, into, RestoreKind.EVOLVE).shape
    new, spread = NewCode(code.state, code.plan), folder / "spread"
    spread.mkdir(parents=True)
    shared = SharedWork(TasksHere(), spread.as_uri())
    there = LocalStorage(folder / "there")
    try:
        in_tasks = apply_evolution(source, there, plan, new, spread, shape=shape, shared=shared)
    except HoldfastError as error:
        with pytest.raises(type(error), match=re.escape(error.fact)):
            apply_evolution(source, into, plan, new, folder, shape=shape)
        raise
    made = apply_evolution(source, into, plan, new, folder, shape=shape)
    assert in_tasks == made
    return made


def rows(storage: Storage, operator_id: int = 0) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Each key with its values, in the order of the columns."""
    found = {}
    for codec, _, pairs in state_chunks(storage, operator_id=operator_id):
        for key, value in pairs:
            [row], _ = codec.values.rows(value, "")
            names = codec.key_values(codec.key_row(key))
            found[tuple(map(frozen, names.values()))] = tuple(map(frozen, codec.value_values(row).values()))
    return found


def places(storage: Storage, operator_id: int = 0) -> dict[tuple[Any, ...], int]:
    """The partition of each key, as it is found."""
    return {
        tuple(map(frozen, codec.key_values(codec.key_row(key)).values())): partition
        for codec, partition, pairs in state_chunks(storage, operator_id=operator_id)
        for key, _ in pairs
    }


def frozen(value: Any) -> Any:
    return tuple(value.values()) if isinstance(value, dict) else value


BACKENDS = [
    "4.2/aggregate-memory",
    "4.2/aggregate-rocksdb",
    "4.2/aggregate-changelog",
    "4.2/aggregate-format2",
]
WIDER = (
    "[customer], [customer, sum(amount) AS total, max(amount) AS most, count(amount) AS paid, count(1) AS n]"
)


def wider() -> Code:
    return Code(WIDER).operator(
        0,
        AGGREGATE,
        fields("customer string"),
        fields("sum long", "max integer", "count long!", "count long!"),
    )


@pytest.mark.parametrize("name", BACKENDS)
def test_aggregates_are_new_and_stand_elsewhere(name: str, tmp_path: Path) -> None:
    old, new = golden(name), target()
    before = rows(old)
    was = QueryPlan((), (PlanStep("Aggregate", TOTALS, TOTALS, True),))
    made = do(ChangeSource(old), new, tmp_path / "w", wider(), was, initial={"paid": "5"})
    assert old.files == golden_files(name)
    assert rows(new) == {key: (total, None, 5, n) for key, (n, total) in before.items()}
    assert len(before) > 3
    assert places(new) == places(old)
    assert len(set(places(old).values())) == 2
    assert made.rows == len(before)
    assert verify(new).problems == ()
    note = parse_note(new.read(OwnFile(PLAN_NOTE).render()), "")
    assert note is not None
    assert note.at(made.batch_id) == wider().plan


def test_a_diff_shows_each_side_with_its_own_columns(tmp_path: Path) -> None:
    old, new = golden("4.2/aggregate-memory"), target()
    more = "[customer], [customer, count(1) AS n, sum(amount) AS total, max(amount) AS most]"
    values = fields("count long!", "sum long", "max integer")
    code = Code(more).operator(0, AGGREGATE, fields("customer string"), values)
    was = QueryPlan((), (PlanStep("Aggregate", TOTALS, TOTALS, True),))
    do(ChangeSource(old), new, tmp_path / "w", code, was)
    sides = (StateLocation(old, None, "old"), StateLocation(new, None, "new"))
    [found] = compare_states(*sides, samples=1000).states
    assert {each.key["customer"]: (each.first, each.second) for each in found.samples} == {
        customer: ({"count": n, "sum": total}, {"count": n, "sum": total, "max": None})
        for (customer,), (n, total) in rows(old).items()
    }


def test_a_savepoint(tmp_path: Path) -> None:
    into, new = catalog(), target()
    taken = Hands().take(golden("4.2/aggregate-memory"), into)
    was = QueryPlan((), (PlanStep("Aggregate", TOTALS, TOTALS, True),))
    source = ChangeSource(into, taken.manifest.savepoint_id)
    made = do(source, new, tmp_path / "w", wider(), was, initial={"paid": "5"})
    assert (made.plan.source, made.plan.checkpoint) == (taken.uri, new.uri)
    assert made.as_dict()["operation"] == "evolve"
    assert len(rows(new)) == len(rows(golden("4.2/aggregate-memory")))


def test_a_column_of_the_key_goes_and_rows_are_put_together(tmp_path: Path) -> None:
    """Counts of windows of customers become counts of windows."""
    old, new = golden("4.2/windowed-memory"), target()
    before = rows(old)
    sums: dict[Any, int] = {}
    for (window, _), (count,) in before.items():
        sums[window] = sums.get(window, 0) + count
    key = json.loads(golden_schema(old).key_schema)
    key["fields"] = key["fields"][:1]
    code = Code("[window], [window, count(1) AS n]").operator(
        0, AGGREGATE, json.dumps(key), fields("count long!")
    )
    with pytest.raises(Invalid, match="rows would get the same key") as refused:
        do(ChangeSource(old), new, tmp_path / "a", code)
    shared = len(before) - len(sums)
    assert str(refused.value.found).startswith(
        f"{shared} rows with the key of another row after dropping customer"
    )
    assert new.files == {}
    made = do(ChangeSource(old), new, tmp_path / "b", code, merge=True)
    assert rows(new) == {(window,): (count,) for window, count in sums.items()}
    assert 0 < shared == made.merged


def test_keys_go_where_spark_has_put_them(tmp_path: Path) -> None:
    """Without its window each customer is where Spark has put it in a query that never had one."""
    old, new, spark = golden("4.2/windowed-memory"), target(), golden("4.2/aggregate-memory")
    code = Code("[customer], [customer, count(1) AS n]").operator(
        0, AGGREGATE, fields("customer string"), fields("count long!")
    )
    do(ChangeSource(old), new, tmp_path / "w", code, merge=True)
    sums: dict[Any, int] = {}
    for (_, customer), (count,) in rows(old).items():
        sums[customer] = sums.get(customer, 0) + count
    assert rows(new) == {(customer,): (count,) for customer, count in sums.items()}
    known = places(spark)
    found = {key: place for key, place in places(new).items() if key in known}
    assert found == {key: known[key] for key in found}
    assert len(set(found.values())) == 2


def test_a_merge_that_is_not_exact_is_refused(tmp_path: Path) -> None:
    old = golden("4.2/windowed-memory")
    key = json.loads(golden_schema(old).key_schema)
    key["fields"] = key["fields"][:1]
    code = Code("[window], [window, first(1) AS n]").operator(
        0, AGGREGATE, json.dumps(key), fields("first long", "valueSet boolean", "count long!")
    )
    code.plan = QueryPlan((), (PlanStep("Step", "?", "?", True),))
    wishes: dict[str, Any] = {"merge": True, "initial": {"first": "1", "valueSet": "true"}}
    plan = planned(ChangeSource(old), target(), code, **wishes)
    [step] = plan.steps
    assert isinstance(step.rows, OperatorConversion)
    assert step.rows.merges
    sessions = golden("4.2/session-rocksdb")
    family = golden_schema(sessions)
    key = json.loads(family.key_schema)
    key["fields"] = key["fields"][1:]
    value = json.loads(family.value_schema)
    value["fields"] = [field for field in value["fields"] if field["name"] != "customer"]
    code = Code("[session_window], [session_window, count(1) AS n]").operator(
        0, "sessionWindowStateStoreSaveExec", json.dumps(key), json.dumps(value)
    )
    with pytest.raises(Unsupported, match="grouping columns of session windows"):
        planned(ChangeSource(sessions), target(), code, merge=True, drop=["customer"])


def test_sessions_keep_their_windows(tmp_path: Path) -> None:
    old, new = golden("4.2/session-rocksdb"), target()
    before = rows(old)
    family = golden_schema(old)
    key = json.loads(family.key_schema)
    key["fields"][0]["name"] = "who"
    value = json.loads(family.value_schema)
    window, who, count = value["fields"]
    value["fields"] = [window, {**who, "name": "who"}, column("sum", "long"), count]
    code = Code("[session_window, who], [session_window, who, sum(amount) AS total, count(1) AS n]").operator(
        0, "sessionWindowStateStoreSaveExec", json.dumps(key), json.dumps(value), prefix=1
    )
    do(ChangeSource(old), new, tmp_path / "w", code, rename={"customer": "who"}, initial={"total": "0"})
    assert rows(new) == {
        each: (window, customer, 0, count) for each, (window, customer, count) in before.items()
    }
    assert len(before) > 1
    assert verify(new).problems == ()


def column(name: str, type_: str) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": {}}


def golden_schema(storage: Storage) -> ColumnFamily:
    return shapes(storage, 99)[0].stores[0].families[0]


@pytest.mark.parametrize("name", ["4.2/aggregate-memory", "4.2/aggregate-format2"])
def test_operators_are_inserted_before_and_behind(name: str, tmp_path: Path) -> None:
    old, new = golden(name), target()
    family = golden_schema(old)
    code = (
        Code("id", "[customer], …", "serial")
        .operator(0, "dedupe", fields("id long"), fields("__dummy__ void"))
        .operator(1, AGGREGATE, family.key_schema, family.value_schema)
        .operator(2, "dedupe", fields("serial long"), fields("__dummy__ void"))
    )
    made = do(ChangeSource(old), new, tmp_path / "w", code)
    assert [each.change for each in made.plan.operators] == ["inserted", "kept", "inserted"]
    assert rows(new, 1) == rows(old)
    assert rows(new, 0) == rows(new, 2) == {}
    assert verify(new).problems == ()
    # And back again, without them.
    back = Code("[customer], …").operator(0, AGGREGATE, family.key_schema, family.value_schema)
    again = target("memory://again")
    made = do(ChangeSource(new), again, tmp_path / "back", back)
    assert [each.change for each in made.plan.operators] == ["kept", "removed", "removed"]
    assert rows(again) == rows(old)
    assert verify(again).problems == ()


def test_keyed_state_moves_with_its_notes(tmp_path: Path) -> None:
    """transformWithState: its families, and schema files whose paths have the operator's number in them."""
    name = "4.2/keyed-format2"
    old, new = golden(name), target()
    code = Code("id", "…").operator(0, "dedupe", fields("id long"), fields("__dummy__ void"))
    for path, place in Tree(old).places():
        there = path.replace("state/0/", "state/1/", 1)
        if isinstance(place, OperatorMetadataFile):
            code.state.write(there, parse_operator(old.read(path), path).renumbered(1).render())
        elif isinstance(place, SchemaFile):
            code.state.write(there, old.read(path))
    made = do(ChangeSource(old), new, tmp_path / "w", code)
    assert [each.change for each in made.plan.operators] == ["inserted", "kept"]
    assert verify(new).problems == ()
    before = {state.state.label: (state.rows, state.digest) for state in contents(old)}
    after = {
        state.state.label: (state.rows, state.digest) for state in contents(new) if state.state.operator_id
    }
    assert after == before
    [moved] = [operator for operator in read(new).operators if operator.operator_id == 1]
    assert moved.variables == read(old).operators[0].variables
    [path] = [path for path in new.files if path.startswith("state/1/_metadata/v2/")]
    metadata = parse_operator(new.read(path), path)
    assert metadata.operator_id == 1
    paths = [place for store in metadata.stores for place in store.schema_paths]
    assert paths
    assert all(place.removeprefix("memory://new/") in new.files for place in paths), paths


@pytest.mark.parametrize("kill", [True, False])
def test_cut_off_anywhere(kill: bool, tmp_path: Path) -> None:
    """The target's storage fails at each step in turn; then a second try makes what the first would have."""
    name = "4.2/aggregate-memory"
    old, whole = golden(name), target()
    was = QueryPlan((), (PlanStep("Aggregate", TOTALS, TOTALS, True),))

    def make(into: Storage, folder: str) -> None:
        do(ChangeSource(old), into, tmp_path / folder, wider(), was, initial={"paid": "5"})

    make(whole, "whole")
    counting = FaultyStorage(target())
    make(counting, "counted")
    assert counting.steps > 10
    for at in range(1, counting.steps + 1, 9):
        into = target()
        with suppress(Killed, HoldfastError):
            make(FaultyStorage(into, at, kill=kill, late=at % 2 == 0), f"try{at}")
        assert old.files == golden_files(name)
        if "metadata" not in into.files:
            make(into, f"again{at}")
        assert verify(into).problems == ()
        assert rows(into) == rows(whole)


def test_what_the_new_code_does_not_accept_is_not_made(tmp_path: Path) -> None:
    old, new = golden("4.2/aggregate-memory"), target()
    was = QueryPlan((), (PlanStep("Aggregate", TOTALS, TOTALS, True),))
    plan = planned(ChangeSource(old), new, wider(), was, initial={"paid": "5"})
    shape = state_at_rest(ChangeSource(old), new, RestoreKind.EVOLVE).shape

    def refuses(made: Storage) -> None:
        assert verify(made).problems == ()
        raise Unsupported("no", hint="no")

    (tmp_path / "w").mkdir()
    code = NewCode(wider().state, wider().plan)
    with pytest.raises(Unsupported, match="no"):
        apply_evolution(ChangeSource(old), new, plan, code, tmp_path / "w", shape=shape, accepts=refuses)
    assert new.files == {}


def test_rows_that_do_not_read_as_they_were_written_are_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert = RowConversion.rows
    monkeypatch.setattr(RowConversion, "rows", lambda self, pairs: list(convert(self, pairs))[1:])
    new = target()
    was = QueryPlan((), (PlanStep("Aggregate", TOTALS, TOTALS, True),))
    with pytest.raises(Internal, match="wrong after the conversion"):
        do(
            ChangeSource(golden("4.2/aggregate-memory")),
            new,
            tmp_path / "w",
            wider(),
            was,
            initial={"paid": "5"},
        )
    assert new.files == {}
