"""State by key and row by row, out of real checkpoints, against what their input must have left."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import golden_model as model
import pytest
from catalogs import Hands, catalog

import holdfast as hf
from golden import GATHERED, NAMES, REPARTITIONED, golden, golden_files, golden_on_disk
from holdfast.at_rest.model import NamedOperator, NamedState, StateForm
from holdfast.at_rest.state_reader import StateReader, pick, table_names
from holdfast.errors import Conflict, Corrupt, Invalid, NotFound
from holdfast.formats.operators import OperatorName
from holdfast.formats.rows.spark_types import Struct
from holdfast.savepoints.catalog import load
from holdfast.savepoints.view import SavepointView
from holdfast.storage.atomic_swap import exchange
from holdfast.storage.memory import MemoryStorage

if TYPE_CHECKING:
    from holdfast.at_rest.model import StateSource
    from holdfast.checkpoints.state.states import OperatorStates

UTC = dt.timezone.utc
AGGREGATES = [name for name in (*NAMES, REPARTITIONED) if "aggregate" in name]
JOINS = [name for name in NAMES if "join" in name]


def reader(name: str) -> StateReader:
    return StateReader(golden(name))


def taken(name: str) -> list[int]:
    return model.taken(golden_files(name))


def scanned(found: StateReader, state: str) -> dict[Any, Any]:
    rows = list(found.scan(state))
    return {tuple(row.key.values()): row.value for row in rows}


@pytest.mark.parametrize("name", AGGREGATES)
def test_each_key_of_an_aggregate_has_its_sums(name: str) -> None:
    found = reader(name)
    expected = model.aggregate(taken(name))
    for customer, (visits, spend) in expected.items():
        row = found.get("aggregate", customer)
        assert row.exists
        assert row.value == {"count": visits, "sum": spend}
    assert found.get("aggregate", "nobody").exists is False
    assert found.get("aggregate", None).value is None
    rows = scanned(found, "aggregate")
    assert {key[0]: tuple(value.values()) for key, value in rows.items()} == expected


def test_the_state_of_an_exchanged_checkpoint_is_not_combined_with_that_of_the_new_one(
    tmp_path: Path,
) -> None:
    here, there = (golden_on_disk(AGGREGATES[0], tmp_path / name) for name in ("here", "there"))
    states = hf.state(here)
    assert states.get("aggregate", "c1").exists
    exchange(here, there)
    for read in (
        lambda: states.state("aggregate").to_arrow(),
        lambda: states.get("aggregate", "c1"),
        lambda: states.sql("select count(*) from aggregate"),
    ):
        with pytest.raises(Conflict, match="replaced"):
            read()
    assert hf.state(here).get("aggregate", "c1").exists


@pytest.mark.parametrize("name", AGGREGATES)
def test_a_table_has_the_rows_of_a_scan(name: str) -> None:
    from holdfast.at_rest.tables import state_table

    found = reader(name)
    table = state_table(found.pick("aggregate")[1]).read_all()
    assert table.schema.names == ["customer", "count", "sum", "partition_id"]
    rows = {row["customer"]: (row["count"], row["sum"]) for row in table.to_pylist()}
    assert rows == model.aggregate(taken(name))


def test_windows_are_found_by_all_their_columns() -> None:
    found = reader("4.2/windowed-memory")
    for (start, customer), count in model.windows().items():
        window = {"start": start, "end": start + dt.timedelta(minutes=2)}
        written = {"window": {name: each.isoformat() for name, each in window.items()}, "customer": customer}
        assert found.get("aggregate", {"window": window, "customer": customer}).value == {"count": count}
        assert found.get("aggregate", written).value == {"count": count}


def test_sessions_are_found_by_their_key() -> None:
    found = reader("4.2/session-rocksdb")
    sessions = {
        (customer, each["sessionStartTime"])
        for customer in model.aggregate()
        for each in found.get("sessions", customer).value or ()
    }
    assert sessions == model.sessions()
    assert {(e.key["customer"], e.sub["sessionStartTime"]) for e in found.scan("sessions")} == sessions


def test_duplicates_are_remembered_until_their_time() -> None:
    name = "4.2/dedupe-changelog"
    batches = len([path for path in golden_files(name) if path.startswith("commits/")])
    expected = model.seen_within_watermark(taken(name), batches)
    found = reader(name)
    for customer in model.aggregate():
        row = found.get("dedupe", customer)
        assert row.exists == (customer in expected)
        if row.exists:
            assert row.value == {"expiresAtMicros": round(expected[customer].timestamp() * 1_000_000)}


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.slow
def test_each_side_of_a_join_holds_what_can_still_be_joined(name: str) -> None:
    found = reader(name)
    [operator] = found.operators
    assert [state.name for state in operator.states] == ["left", "right"]
    expected: dict[str, list[tuple[int, dt.datetime]]] = {}
    for event in model.joinable():
        expected.setdefault(event.customer, []).append((event.amount, event.ts))
    for customer in model.aggregate():
        left = found.get("left", customer).value or []
        right = found.get("join.right", {"field0": customer}).value or []
        assert sorted((row["amount"], row["ts"]) for row in left) == sorted(expected.get(customer, []))
        assert sorted((row["paid"], row["at"]) for row in right) == sorted(expected.get(customer, []))


@pytest.mark.parametrize("name", [name for name in NAMES if "/state-" in name])
def test_variables_of_a_processor_are_states_of_their_own(name: str) -> None:
    found = reader(name)
    amounts = model.amounts(taken(name))
    [operator] = found.operators
    assert {state.name: state.form for state in operator.states} == {
        "amounts": StateForm.LIST,
        "count": StateForm.VALUE,
    }
    for customer, each in amounts.items():
        assert found.get("count", customer).value == {"n": len(each)}
        assert found.get("processor.amounts", customer).value == [{"amount": amount} for amount in each]


def in_time(files: list[int]) -> dict[str, list[int]]:
    """The amounts of the events that came before the watermark had passed them, by customer."""
    found: dict[str, list[int]] = {}
    for batch, file in enumerate(files):
        before = model.watermark(files[:batch]) if batch else None
        for event in model.events(file):
            if before is None or event.ts > before:
                found.setdefault(event.customer, []).append(event.amount)
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if "/keyed-" in name])
def test_keyed_state_is_found_by_the_users_keys(name: str) -> None:
    found = reader(name)
    [operator] = found.operators
    expected = in_time(taken(name))
    assert set(expected) == {row.key["key"] for row in found.scan(operator.name)}
    for customer, amounts in expected.items():
        assert found.get(operator.name, customer).value == {"visits": len(amounts), "spend": sum(amounts)}
        assert found.get("visits", customer).value == len(amounts)
        assert found.get(f"{operator.name}.spend", [customer]).value == sum(amounts)
    assert not found.get("visits", "nobody").exists


def test_what_goes_by_no_key_has_an_empty_one() -> None:
    everything, limited = (reader(name) for name in GATHERED)
    assert everything.get_written("aggregate", []).value == {"count": 10 * model.FILES}
    assert everything.get("aggregate", {}).partition == 0
    [row] = limited.scan("limit")
    assert list(row.value.values()) == [45]


def test_an_older_batch_has_what_it_had() -> None:
    name = "4.2/aggregate-format2"
    files = taken(name)
    newest = reader(name).batch_id
    older = StateReader(golden(name), newest - 1)
    assert older.batch_id == newest - 1
    expected = model.aggregate(files[:newest])
    assert {key: older.get("aggregate", key).value for key in expected} == {
        key: {"count": visits, "sum": spend} for key, (visits, spend) in expected.items()
    }


def test_a_savepoint_is_read_like_its_checkpoint() -> None:
    storage, hands = catalog(), Hands()
    saved = hands.take(golden("4.2/aggregate-changelog"), storage)
    manifest = load(storage, saved.manifest.savepoint_id)
    view = StateReader(SavepointView(storage, manifest.files, "memory://sp"), manifest.batch_id)
    expected = model.aggregate(taken("4.2/aggregate-changelog"))
    assert {key: view.get("aggregate", key).value["count"] for key in expected} == {
        key: visits for key, (visits, _) in expected.items()
    }


def test_a_state_that_is_not_there_says_which_are() -> None:
    found = reader("4.2/state-format2")
    with pytest.raises(NotFound) as unknown:
        found.get("visits", "c1")
    assert unknown.value.expected == "processor.amounts, processor.count"
    with pytest.raises(NotFound):
        found.get("count", "c1", operator="other")


def test_a_key_of_the_wrong_type_says_what_it_is() -> None:
    found = reader("4.2/windowed-memory")
    with pytest.raises(Invalid) as wrong:
        found.get("aggregate", "c1")
    assert "window struct<start:timestamp,end:timestamp>, customer string" in str(wrong.value)
    with pytest.raises(Invalid, match="invalid value for the key column") as kind:
        reader("4.2/state-format2").get("count", 7)
    assert kind.value.expected == "text, in quotes if it is JSON"


def damaged(name: str, path: str, change: Any) -> StateReader:
    files = dict(golden_files(name))
    changed = change(files[path])
    if changed is None:
        del files[path]
    else:
        files[path] = changed
    return StateReader(MemoryStorage(files, uri="memory://damaged"))


def newest(name: str, suffix: str, partition: int) -> str:
    """The newest file of a kind in a partition."""
    folder = f"state/0/{partition}/"
    found = [path for path in golden_files(name) if path.startswith(folder) and path.endswith(suffix)]
    return max(found, key=lambda path: int(path.removeprefix(folder).split(".")[0].split("_")[0]))


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("4.2/aggregate-memory", ".delta"),
        ("4.2/aggregate-format2", ".changelog"),
        ("4.2/aggregate-rocksdb", ".zip"),
    ],
)
def test_a_missing_or_damaged_file_is_named(name: str, suffix: str) -> None:
    path = newest(name, suffix, 0)
    keys = [key for key in model.aggregate() if reader(name).get("aggregate", key).partition == 0]
    assert keys
    with pytest.raises(NotFound) as gone:
        damaged(name, path, lambda _: None).get("aggregate", keys[0])
    assert path.removesuffix(suffix).split("/")[-1].split("_")[0] in str(gone.value)
    with pytest.raises(Corrupt):
        damaged(name, path, lambda data: data[: len(data) // 2]).get("aggregate", keys[0])


def test_a_checkpoint_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no checkpoint in this directory"):
        hf.state(tmp_path / "nothing")
    golden_on_disk("4.2/aggregate-format2", tmp_path / "ck")
    with pytest.raises(NotFound, match="not committed"):
        hf.state(tmp_path / "ck", batch=99)
    with pytest.raises(Invalid, match="two different batches"):
        hf.state(f"{tmp_path / 'ck'}@3", batch=4)


@pytest.mark.slow
def test_a_key_is_read_without_arrow_numpy_or_spark(tmp_path: Path) -> None:
    golden_on_disk("4.2/aggregate-rocksdb", tmp_path / "ck")
    program = (
        "import sys, holdfast as hf\n"
        f"found = hf.state({str(tmp_path / 'ck')!r}).get('aggregate', 'c1')\n"
        "assert found.exists\n"
        "print([name for name in ('pyarrow', 'numpy', 'duckdb', 'pyspark') if name in sys.modules])\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('/etc/passwd')",
        "select * from read_blob('/etc/passwd')",
        "select * from parquet_scan('/tmp/x.parquet')",
        "select * from glob('/*')",
        "select * from 'https://127.0.0.1:1/x.parquet'",
        "select getenv('HOME')",
        "install httpfs",
        "load httpfs",
        "copy (select 1) to '/tmp/stolen'",
        "drop table aggregate",
        "set lock_configuration = false",
        "pragma enable_external_access",
        "with x as (insert into aggregate select * from aggregate returning *) select * from x",
    ],
)
def test_sql_reaches_neither_files_nor_the_network(query: str) -> None:
    reader = StateReader(golden("4.2/aggregate-changelog"))
    with pytest.raises(Invalid):
        reader.ask(query)
    with pytest.raises(Invalid), reader.stream_query(query) as rows:
        rows.read_all()


def test_a_state_may_have_the_name_of_its_operator() -> None:
    """The name is the combined state's; `OPERATOR.STATE` is the single one."""
    named = OperatorName(0, "spend", "keyed state", "transformWithStateInPySparkExec", "spend")
    empty, source = Struct((), ()), cast("StateSource", None)
    states = tuple(
        NamedState(0, "spend", named.spark_name, named, name, form, empty, empty, empty, False, source)
        for name, form in (("spend", StateForm.KEYED), ("spend", StateForm.VALUE), ("n", StateForm.VALUE))
    )
    operators = [NamedOperator(0, "spend", named.spark_name, named, 2, states, cast("OperatorStates", None))]
    assert [state.full_name for state in states] == ["spend", "spend.spend", "spend.n"]
    for name, wanted in (("spend", 0), ("spend.spend", 1), ("0.spend", 1), ("n", 2), ("spend.n", 2)):
        assert pick(operators, name)[1] is states[wanted], name
    tables = table_names(operators)
    assert {name: state for name, (_, state) in tables.items()} == {
        "spend": states[0],
        "spend.spend": states[1],
        "spend.n": states[2],
        "n": states[2],
    }
