"""Checkpoints of Spark 3.4, 4.0 and 4.1: looked at, saved, restored and rescaled."""

from __future__ import annotations

from pathlib import Path

import pytest
from state_rows import state_rows

from golden import EARLIER, golden, golden_on_disk
from holdfast import savepoints
from holdfast.at_rest.create.migrating import migrate
from holdfast.at_rest.read.state_reader import StateReader
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Unsupported
from holdfast.storage import open_storage

STATEFUL = [name for name in EARLIER if "stateless" not in name]
# Spark's names of the operators; 3.4 notes none.
OPERATORS = {"aggregate": "stateStoreSave", "dedupe": "dedupeWithinWatermark", "join": "symmetricHashJoin"}


def kind(name: str) -> str:
    return name.split("/")[1].split("-", maxsplit=1)[0]


def rows_of(address: str) -> list[tuple[bytes, tuple[bytes, ...]]]:
    return sorted((row.key_row, tuple(row.value_rows)) for row in state_rows(open_storage(address)))


def test_each_version_has_some() -> None:
    assert {name.split("/", maxsplit=1)[0] for name in STATEFUL} == {"3.4", "4.0", "4.1"}


@pytest.mark.parametrize("name", EARLIER)
def test_they_are_whole(name: str) -> None:
    found = verify(golden(name))
    assert found.problems == ()
    assert found.batch_id in found.restorable


@pytest.mark.parametrize("name", STATEFUL)
def test_their_operators_are_known(name: str) -> None:
    (operator,) = read(golden(name)).operators
    named = "" if name.startswith("3.4/") else OPERATORS[kind(name)]
    assert (operator.name, operator.partitions) == (named, 2)


@pytest.mark.parametrize("name", [name for name in STATEFUL if kind(name) == "aggregate"])
def test_a_key_has_what_its_events_make(name: str) -> None:
    """Twelve files of ten events, one of each customer: see `golden_queries`."""
    reader = StateReader(golden(name))
    for customer in range(10):
        (entry,) = reader.get("", f"c{customer}").entries
        spend = sum(number * 10 + (customer - number) % 10 for number in range(12))
        assert tuple(entry.value.values()) == (12, spend)


@pytest.mark.parametrize("name", STATEFUL)
def test_a_savepoint_of_them_is_restored(name: str, tmp_path: Path) -> None:
    place = golden_on_disk(name, tmp_path / "ck")
    taken = savepoints.take(place, tmp_path / "sp", home=tmp_path / "home")
    assert savepoints.verify(taken.uri, deep=True).ok
    savepoints.restore(taken.uri, tmp_path / "new")
    assert rows_of(str(tmp_path / "new")) == rows_of(str(place))
    assert verify(open_storage(str(tmp_path / "new"))).ok


@pytest.mark.parametrize("name", STATEFUL)
def test_their_partitions_change_where_operators_have_names(name: str, tmp_path: Path) -> None:
    place = golden_on_disk(name, tmp_path / "ck")
    taken = savepoints.take(place, tmp_path / "sp", home=tmp_path / "home")
    if name.startswith("3.4/"):
        with pytest.raises(Unsupported) as error:
            migrate(taken.uri, tmp_path / "new", partitions=3)
        assert error.value.found == "an operator without a name"
        return
    migrate(taken.uri, tmp_path / "new", partitions=3)
    made = open_storage(str(tmp_path / "new"))
    assert rows_of(str(tmp_path / "new")) == rows_of(str(place))
    assert [operator.partitions for operator in read(made).operators] == [3]
    assert verify(made).ok
