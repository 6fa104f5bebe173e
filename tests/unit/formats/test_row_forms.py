"""What is put around rows, worked out by hand; real stores are read in tests of checkpoints."""

from __future__ import annotations

import json
import struct

import pytest

from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.rows.row_forms import KeyCodec, KeyForm, KeyKind, ValueForm, parse_encoder
from holdfast.formats.rows.spark_types import Atom, Struct, parse_struct
from holdfast.formats.rows.unsafe_row import RowCodec

LONG = b"\0" * 8 + b"\x07" + b"\0" * 7
OTHER = b"\0" * 8 + b"\x2c" + b"\0" * 7
SUM = b"\xaa\xbb\xcc\xdd"


def sized(data: bytes) -> bytes:
    return struct.pack("<i", len(data)) + data


def summed(data: bytes) -> bytes:
    return SUM + sized(data)


ONE, TWO = b"\0" + LONG, b"\0" + OTHER
SINGLE = {
    "memory": (ValueForm(rocksdb=False), LONG),
    "memory, sums": (ValueForm(rocksdb=False, checksums=True), SUM + LONG),
    "rocksdb": (ValueForm(rocksdb=True), ONE),
    "rocksdb, sums": (ValueForm(rocksdb=True, checksums=True), summed(ONE)),
}
LISTS = {
    "merged": (ValueForm(rocksdb=True), sized(ONE) + sized(TWO)),
    "merged with commas": (ValueForm(rocksdb=True, delimiter=b","), sized(ONE) + b"," + sized(TWO)),
    "sums": (ValueForm(rocksdb=True, checksums=True), summed(sized(ONE)) + summed(sized(TWO))),
    "one sum": (ValueForm(rocksdb=True, checksums=True), summed(sized(ONE) + sized(TWO))),
    "sums and commas": (
        ValueForm(rocksdb=True, checksums=True, delimiter=b","),
        summed(sized(ONE)) + b"," + summed(sized(TWO)),
    ),
}


@pytest.mark.parametrize("case", SINGLE)
def test_one_value(case: str) -> None:
    form, value = SINGLE[case]
    assert form.rows(value, "") == ((LONG,), False)
    assert form.bare_all([value]) == [LONG]


@pytest.mark.parametrize("case", LISTS)
def test_a_list(case: str) -> None:
    form, value = LISTS[case]
    assert form.rows(value, "") == ((LONG, OTHER), True)
    assert form.bare_all([value]) == [sized(LONG) + sized(OTHER)]


@pytest.mark.parametrize("case", ["merged", "sums"])
def test_a_list_of_one(case: str) -> None:
    form = LISTS[case][0]
    value = summed(sized(ONE)) if form.checksums else sized(ONE)
    assert form.rows(value, "") == ((LONG,), True)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        (ValueForm(rocksdb=True), b""),
        (ValueForm(rocksdb=True), sized(ONE)[:-1]),
        (ValueForm(rocksdb=True), sized(ONE) + b","),
        (ValueForm(rocksdb=True), sized(b"\x01" + LONG)),
        (ValueForm(rocksdb=True, delimiter=b","), sized(ONE) + sized(TWO)),
        (ValueForm(rocksdb=True, checksums=True), SUM),
        (ValueForm(rocksdb=True, checksums=True), summed(ONE) + b"x"),
        (ValueForm(rocksdb=False, checksums=True), b"abc"),
    ],
)
def test_bytes_that_are_no_value(form: ValueForm, value: bytes) -> None:
    with pytest.raises(Corrupt, match="a row of state is damaged"):
        form.rows(value, "state x")


def test_the_key_of_a_delete() -> None:
    assert ValueForm(rocksdb=True, checksums=True).deleted(SUM + ONE) == ONE
    assert ValueForm(rocksdb=True).deleted(ONE) == ONE


def typed(**fields: str) -> Struct:
    listed = [{"name": name, "type": type_, "nullable": True} for name, type_ in fields.items()]
    return parse_struct(json.dumps({"type": "struct", "fields": listed}), "")


def test_a_key_in_two_parts() -> None:
    type_ = typed(who="string", at="long")
    first, rest = RowCodec(typed(who="string")), RowCodec(typed(at="long"))
    stored = sized(b"\0" + first.encode({"who": "c1"})) + b"\0" + rest.encode({"at": 5})
    codec = KeyCodec(KeyForm(KeyKind.PREFIX, (0,)), type_, "")
    assert codec.values(stored) == {"who": "c1", "at": 5}
    assert codec.row(stored) == RowCodec(type_).encode({"who": "c1", "at": 5})


@pytest.mark.parametrize(
    ("type_", "value", "data"),
    [
        ("long", 5, "010000000000000005"),
        ("long", -5, "00fffffffffffffffb"),
        ("long", None, "020000000000000000"),
        ("integer", 7, "0100000007"),
        ("double", 1.5, "013ff8000000000000"),
        ("double", -1.5, "004007ffffffffffff"),
        ("float", -2.0, "003fffffff"),
        ("byte", -1, "00ff"),
    ],
)
def test_a_key_in_the_order_of_its_values(type_: str, value: float | None, data: str) -> None:
    """A byte for the sign, then the number the other way round, and below zero with its bits turned."""
    first = RowCodec(typed(at="binary")).encode({"at": bytes.fromhex(data)})
    rest = RowCodec(typed(who="string")).encode({"who": "c1"})
    codec = KeyCodec(KeyForm(KeyKind.RANGE, (1,)), typed(who="string", at=type_), "")
    assert codec.values(sized(b"\0" + first) + b"\0" + rest) == {"who": "c1", "at": value}
    alone = KeyCodec(KeyForm(KeyKind.RANGE, (0,)), typed(at=type_), "")
    assert alone.values(sized(b"\0" + first)) == {"at": value}


@pytest.mark.parametrize("kind", [KeyKind.TIME_FIRST, KeyKind.TIME_LAST])
@pytest.mark.parametrize("at", [0, 5, -5, 2**62])
def test_a_key_with_its_time(kind: KeyKind, at: int) -> None:
    time = ((at + 2**63) % 2**64).to_bytes(8, "big")
    rest = b"\0" + RowCodec(typed(who="string")).encode({"who": "c1"})
    codec = KeyCodec(KeyForm(kind), typed(who="string", at="long"), "")
    stored = time + rest if kind is KeyKind.TIME_FIRST else rest + time
    assert codec.values(stored) == {"who": "c1", "at": at}


@pytest.mark.parametrize("stored", [b"", b"\x01" + LONG, b"\0" + LONG[:-1]])
def test_bytes_that_are_no_key(stored: bytes) -> None:
    with pytest.raises(Corrupt):
        KeyCodec(KeyForm(), typed(at="long"), "").values(stored)
    with pytest.raises(Corrupt):
        KeyCodec(KeyForm(KeyKind.PREFIX, (0,)), typed(at="long", who="string"), "").values(stored)


def test_encoders() -> None:
    assert parse_encoder("", "") == KeyForm()
    assert parse_encoder('{"keyStateEncoderType":"NoPrefixKeyStateEncoderSpec"}', "") == KeyForm()
    prefix = '{"keyStateEncoderType":"PrefixKeyScanStateEncoderSpec","numColsPrefixKey":2}'
    assert parse_encoder(prefix, "") == KeyForm(KeyKind.PREFIX, (0, 1))
    ranges = '{"keyStateEncoderType":"RangeKeyScanStateEncoderSpec","orderingOrdinals":[1]}'
    assert parse_encoder(ranges, "") == KeyForm(KeyKind.RANGE, (1,))
    with pytest.raises(Unsupported, match="SomethingNew"):
        parse_encoder('{"keyStateEncoderType":"SomethingNew"}', "")
    with pytest.raises(Corrupt):
        parse_encoder('{"keyStateEncoderType":"RangeKeyScanStateEncoderSpec"}', "")


def test_types_that_are_not_known() -> None:
    with pytest.raises(Unsupported, match="variant"):
        typed(v="variant")
    with pytest.raises(Corrupt):
        parse_struct('"long"', "")


@pytest.mark.parametrize(
    "form",
    [
        KeyForm(KeyKind.RANGE, (2,)),
        KeyForm(KeyKind.RANGE, (0, -1)),
        KeyForm(KeyKind.PREFIX, (0, 1, 2)),
    ],
)
def test_a_layout_of_fields_that_a_key_does_not_have_is_damaged(form: KeyForm) -> None:
    two = Struct(("who", "at"), (Atom("string"), Atom("long")))
    with pytest.raises(Corrupt, match="an encoder of keys") as caught:
        KeyCodec(form, two, "state/0")
    assert "2 fields" in (caught.value.expected or "")
    with pytest.raises(Corrupt):
        KeyCodec(KeyForm(KeyKind.TIME_LAST), Struct((), ()), "state/0")


def test_a_prefix_of_more_fields_than_a_key_can_have_is_damaged() -> None:
    text = '{"keyStateEncoderType":"PrefixKeyScanStateEncoderSpec","numColsPrefixKey":%d}'
    assert parse_encoder(text % 2, "").first == (0, 1)
    with pytest.raises(Corrupt, match="an encoder of keys"):
        parse_encoder(text % 10**12, "")
