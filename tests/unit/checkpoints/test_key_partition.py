"""The partition of a key, against the partitions in which Spark has put it."""

from __future__ import annotations

import json

import pytest

from golden import NAMES, golden, golden_files
from holdfast.at_rest.state_reader import named_operators
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.key_partition import (
    KeyPartitions,
    partition_of_key,
    placing_fields,
    require_in_partition,
)
from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.state.states import StateCodec, StateName, operator_states
from holdfast.errors import Corrupt
from holdfast.formats.logs.operator_metadata import ColumnFamily
from holdfast.formats.rows.row_forms import KeyForm, KeyKind, ValueForm
from holdfast.layout import OperatorMetadataFile
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage

# No golden checkpoint has any of these; all fields of their keys place them, as with aggregates.
GROUPS = ("flatMapGroupsWithState", "mapGroupsWithState", "applyInPandasWithState")


def check_partitions(storage: Storage) -> int:
    """Compare both ways of telling the partition with where each row is; returns how many rows there are.

    At the last batch but one: the last one has taken everything out of the state of the deduplication.
    """
    checkpoint = read(storage)
    batch = checkpoint.committed[-2]
    operators = {operator.operator_id: operator for operator in operator_states(storage, batch)}
    found = {operator.operator_id: operator for operator in checkpoint.operators}
    rows = 0
    for codec, partition, pairs in state_chunks(storage, batch):
        states, operator = operators[codec.name.operator_id], found[codec.name.operator_id]
        placement = KeyPartitions(operator, codec, storage.uri)
        keys = [key for key, _ in pairs]
        assert {number % operator.partitions for number in placement.hashes(keys)} == {partition}
        rows += len(keys)
        if codec.name.internal:
            continue  # nobody looks up a key in these
        for key in keys:
            values = codec.key_values(codec.key_row(key))
            placing = dict(list(values.items())[: placing_fields(codec)])
            assert partition_of_key(states, codec, placing) == partition
    return rows


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_where_spark_has_put_them(name: str) -> None:
    assert check_partitions(golden(name)) > 0


def test_a_key_in_the_wrong_partition_is_refused_with_its_own() -> None:
    require_in_partition([], 1, "state/0")
    require_in_partition([1, 1], 1, "state/0")
    with pytest.raises(Corrupt, match="in a different partition") as refused:
        require_in_partition([1, 3, 0], 1, "state/0")
    assert (refused.value.found, refused.value.expected, refused.value.where) == (
        "a key of partition 3",
        "only keys of partition 1",
        "state/0",
    )


@pytest.mark.parametrize("operator", GROUPS)
def test_groups_with_state_are_known_to_every_reader(operator: str) -> None:
    files = dict(golden_files("4.2/aggregate-memory"))
    path = OperatorMetadataFile(0).render()
    files[path] = files[path].replace(b"stateStoreSave", operator.encode())
    checkpoint = MemoryStorage(files)
    (named,) = named_operators(checkpoint)
    assert (named.name, named.kind) == ("groups", operator)
    assert check_partitions(checkpoint) > 0


@pytest.mark.parametrize(
    ("label", "kind"),
    [("left-keyWithTsToValues", KeyKind.TIME_LAST), ("right-tsWithKey", KeyKind.TIME_FIRST)],
)
def test_the_time_of_a_joined_row_does_not_place_it(label: str, kind: KeyKind) -> None:
    """Both families of a side go by the key that is joined by, whatever the order of the bytes."""
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in (("field0", "string"), ("time", "timestamp"))
    ]
    family = ColumnFamily(label, json.dumps({"type": "struct", "fields": fields}), "{}")
    name = StateName(0, "default", label, "symmetricHashJoin")
    assert placing_fields(StateCodec(name, ValueForm(rocksdb=True), family, KeyForm(kind), "here")) == 1
