"""Column families of a store: which family a key is of, and the numbers that are given out."""

from __future__ import annotations

from typing import Any

import pytest

from golden import golden
from holdfast.checkpoints.state.rocksdb import NO_FAMILIES, Families
from holdfast.checkpoints.state.states import OperatorStates, operator_states
from holdfast.formats.files.snapshot import SnapshotMetadata


@pytest.fixture(scope="module")
def processor() -> OperatorStates:
    (operator,) = operator_states(golden("4.2/state-format2"))
    return operator


def snapshot(**fields: Any) -> SnapshotMetadata:
    return SnapshotMetadata(1, (), 0, fields)


def test_a_key_begins_with_the_number_of_its_family() -> None:
    families = Families({"default": 1, "count": 0x0102})
    assert families.split(b"\x02\x01key") == ("count", b"key")
    assert families.split(b"\x03\0key") == (None, b"key")
    rows = [(b"\x01\0a", b"1"), (b"\x02\x01b", b"2"), (b"\x01\0c", b"3")]
    assert list(families.sorted_out(rows)) == [
        (b"\x01\0", [(b"a", b"1"), (b"c", b"3")]),
        (b"\x02\x01", [(b"b", b"2")]),
    ]


def test_a_key_of_a_store_without_families_is_as_it_is() -> None:
    assert NO_FAMILIES.split(b"key") == ("default", b"key")
    assert list(NO_FAMILIES.sorted_out([(b"key", b"1")])) == [(b"", [(b"key", b"1")])]
    assert not NO_FAMILIES.forgotten


def test_numbers_are_given_out_as_spark_does(processor: OperatorStates) -> None:
    numbers = {"default": 1, "count": 2, "$rowCounter_amounts": 3, "amounts": 4}
    found = Families.of(processor, "default", snapshot(columnFamilyMapping=numbers, maxColumnFamilyId=4))
    assert not found.forgotten
    assert found.with_names(["count", "later"]).numbers == {**numbers, "later": 5}
    assert Families({}).with_names(["b", "a"]).numbers == {"default": 1, "a": 2, "b": 3}


def test_the_number_of_a_family_that_is_no_more_is_not_given_out_again(processor: OperatorStates) -> None:
    said = snapshot(columnFamilyMapping={"default": 1, "count": 2}, maxColumnFamilyId=4)
    found = Families.of(processor, "default", said)
    assert found.forgotten
    again = found.with_names(["later"])
    assert again.numbers == {"default": 1, "count": 2, "later": 5}
    assert (again.most, again.forgotten) == (5, True)


def test_what_no_snapshot_can_say(processor: OperatorStates) -> None:
    with pytest.raises(ValueError, match="columnFamilyMapping"):
        Families.of(processor, "default", snapshot(columnFamilyMapping=[1]))
