"""The waiting rows of a join for new columns of a side, from files alone: rows as in a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from catalogs import target
from spark_structs import fields
from tasks_here import TasksHere

from golden import golden
from holdfast.changes.engine import state_at_rest
from holdfast.changes.evolving import (
    EvolutionPlan,
    Evolved,
    NewCode,
    apply_evolution,
    operator_columns,
    steps_for,
)
from holdfast.changes.join_columns import JoinConversion
from holdfast.changes.operator_matching import Wishes
from holdfast.changes.working_copy import SharedWork
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.state.states import shapes
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import HoldfastError, Internal, Invalid, Unsupported
from holdfast.formats.logs.batch_logs import parse_offsets
from holdfast.formats.logs.operator_metadata import ColumnFamily, StateSchema
from holdfast.savepoints.access import ChangeSource
from holdfast.savepoints.restoring import RestoreKind
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage

pytestmark = pytest.mark.slow

GOLDEN = ["4.2/join-memory", "4.2/join-format2", "3.5/join-rocksdb"]
LEFT = ["customer string", "amount long", "ts timestamp", "matched boolean"]
RIGHT = ["who string", "paid long", "at timestamp", "matched boolean"]
Row = dict[str, Any]


def new_code(left: list[str], right: list[str], key: str = "field0 string") -> MemoryStorage:
    """What Spark notes of a join before its first batch."""
    state = MemoryStorage()
    stores = []
    for side, columns in (("left", left), ("right", right)):
        for name, keys, values in (
            (f"{side}-keyToNumValues", [key], ["value long"]),
            (f"{side}-keyWithIndexToValue", [key, "index long"], columns),
        ):
            stores.append({"storeName": name, "numColsPrefixKey": 0, "numPartitions": 2})
            family = ColumnFamily("default", fields(*keys), fields(*values))
            state.write(f"state/0/0/{name}/_metadata/schema", StateSchema(2, (family,)).render())
    info = {"operatorId": 0, "operatorName": "symmetricHashJoin"}
    noted = {"operatorInfo": info, "stateStoreInfo": stores}
    state.write("state/0/_metadata/metadata", f"v1\n{json.dumps(noted)}".encode())
    return state


def planned(old: Storage, into: Storage, code: MemoryStorage, **said: Any) -> EvolutionPlan:
    source = ChangeSource(old)
    state = state_at_rest(source, into, RestoreKind.EVOLVE)
    path = f"offsets/{state.batch_id}"
    confs = parse_offsets(state.view.read(path), path).confs
    wishes = Wishes(said.get("rename", {}), frozenset(said.get("drop", ())), said.get("initial", {}))
    steps = steps_for(
        operator_columns(shapes(state.view, state.batch_id), None, confs, source.uri),
        operator_columns(shapes(code, 0), None, confs, source.uri),
        wishes,
        source.uri,
    )
    return EvolutionPlan(
        *state.common(into),
        target="new.py",
        operators=tuple(step.describe() for step in steps),
        changes=(),
        merge=False,
        steps=steps,
        state_format=state.shape.state_format,
    )


def evolved(old: Storage, into: Storage, folder: Path, code: MemoryStorage, **said: Any) -> Evolved:
    """Convert the state in this process, after tasks have made the same of it."""
    plan = planned(old, into, code, **said)
    shape = state_at_rest(ChangeSource(old), into, RestoreKind.EVOLVE).shape
    spread = folder / "spread"
    spread.mkdir(parents=True)
    shared = SharedWork(TasksHere(), spread.as_uri())
    there, source, new = LocalStorage(folder / "there"), ChangeSource(old), NewCode(code, None)
    in_tasks = apply_evolution(source, there, plan, new, spread, shape=shape, shared=shared)
    made = apply_evolution(source, into, plan, new, folder, shape=shape)
    assert in_tasks == made
    return made


def rows(storage: Storage, label: str) -> dict[tuple[Any, ...], tuple[int, Row]]:
    """Each key of a state with its partition and its values by column."""
    found = {}
    for codec, partition, pairs in state_chunks(storage):
        for key, value in pairs if codec.name.label == label else ():
            [row], _ = codec.values.rows(value, "")
            values = codec.key_values(codec.key_row(key))
            found[tuple(values.values())] = partition, codec.value_values(row)
    return found


@pytest.mark.parametrize("name", GOLDEN)
def test_columns_are_new_dropped_widened_renamed_and_moved(name: str, tmp_path: Path) -> None:
    old, new = golden(name), target()
    left = ["note string", "ts timestamp", "customer string", "points long", "matched boolean"]
    right = ["who string", "price decimal(22,2)", "at timestamp", "rate double!", "matched boolean"]
    done = evolved(
        old,
        new,
        tmp_path,
        new_code(left, right),
        rename={"right.paid": "right.price"},
        initial={"left.note": "none yet", "left.points": "null", "right.rate": "0.5"},
    )
    before, after = rows(old, "left-keyWithIndexToValue"), rows(new, "left-keyWithIndexToValue")
    assert len(before) == 21
    assert after == {
        key: (
            partition,
            {
                "note": "none yet",
                "ts": row["ts"],
                "customer": row["customer"],
                "points": None,
                "matched": row["matched"],
            },
        )
        for key, (partition, row) in before.items()
    }
    before, after = rows(old, "right-keyWithIndexToValue"), rows(new, "right-keyWithIndexToValue")
    assert after == {
        key: (
            partition,
            {
                "who": row["who"],
                "price": row["paid"],
                "at": row["at"],
                "rate": 0.5,
                "matched": row["matched"],
            },
        )
        for key, (partition, row) in before.items()
    }
    for side in ("left", "right"):
        label = f"{side}-keyToNumValues"
        assert rows(new, label) == rows(old, label)
    assert done.rows == sum(state.rows for state in contents(old)) == sum(each.rows for each in contents(new))
    contents(new, check_partitions=True)
    assert verify(new).problems == ()
    [change] = done.plan.operators
    assert {(column.column, column.change) for column in change.columns} >= {
        ("left.amount", "dropped"),
        ("left.note", "new"),
        ("left.points", "new"),
        ("right.price", "widened"),
        ("right.rate", "new"),
        ("left.ts", "kept"),
    }


def test_an_unchanged_side_keeps_its_bytes(tmp_path: Path) -> None:
    old, new = golden("4.2/join-format2"), target()
    evolved(old, new, tmp_path, new_code([LEFT[0], *LEFT[2:]], RIGHT))
    digests = {state.state.label: state.digest for state in contents(old)}
    same = {state.state.label for state in contents(new) if state.digest == digests[state.state.label]}
    assert same == set(digests) - {"left-keyWithIndexToValue"}


@pytest.mark.parametrize(
    ("left", "right", "said", "error", "text"),
    [
        ([*LEFT[:3], "note string", LEFT[3]], RIGHT, {}, Invalid, "no value for the waiting rows"),
        ([*LEFT[:3], "note string!", LEFT[3]], RIGHT, {"initial": {"left.note": "null"}}, Invalid, "null"),
        ([LEFT[0], "amount integer", *LEFT[2:]], RIGHT, {}, Unsupported, "without loss"),
        ([LEFT[0], "n long", "n long", *LEFT[2:]], RIGHT, {}, Unsupported, "same name"),
        (LEFT, RIGHT, {"initial": {"left.note": "1"}}, Invalid, "does not name"),
    ],
)
def test_what_cannot_be_converted_is_refused(
    left: list[str], right: list[str], said: Any, error: type[HoldfastError], text: str
) -> None:
    with pytest.raises(error, match=text):
        planned(golden(GOLDEN[0]), target(), new_code(left, right), **said)


def test_the_key_and_the_format_of_a_join_stay() -> None:
    with pytest.raises(Unsupported, match="key of a join cannot be changed"):
        planned(golden(GOLDEN[0]), target(), new_code(LEFT, RIGHT, "field0 long"))
    state = new_code(LEFT, RIGHT)
    noted = state.files["state/0/_metadata/metadata"].replace(b"-keyWithIndexToValue", b"-keyWithTsToValues")
    files = {
        path.replace("-keyWithIndexToValue", "-keyWithTsToValues"): data for path, data in state.files.items()
    }
    with pytest.raises(Unsupported, match="cannot be converted from or to this format"):
        planned(golden(GOLDEN[0]), target(), MemoryStorage({**files, "state/0/_metadata/metadata": noted}))


def test_a_lost_row_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, into = golden(GOLDEN[0]), target()
    pairs = JoinConversion.pairs
    monkeypatch.setattr(JoinConversion, "pairs", lambda *given: pairs(*given)[1:])
    with pytest.raises(Internal, match="wrong after the conversion"):
        evolved(old, into, tmp_path, new_code([LEFT[0], *LEFT[2:]], RIGHT))
    assert not into.files
