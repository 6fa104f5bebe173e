"""Spark's hash of rows. The expected numbers are what Spark's own `hash` gave for these values."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.rows.row_hashes import partition_of, row_hash

NAN = float("nan")


def fixed(pattern: str, value: Any) -> bytes:
    return struct.pack(pattern, value).ljust(8, b"\0")


def row(*fields: bytes | tuple[bytes] | None) -> bytes:
    """An UnsafeRow, by its definition: bits of nulls, eight bytes a field, then what has no fixed size."""
    bits = sum(1 << index for index, each in enumerate(fields) if each is None)
    head = bits.to_bytes((len(fields) + 63) // 64 * 8, "little")
    at = len(head) + 8 * len(fields)
    words, tail = b"", b""
    for each in fields:
        if each is None:
            words += bytes(8)
        elif isinstance(each, tuple):
            words += struct.pack("<II", len(each[0]), at + len(tail))
            tail += each[0] + bytes(-len(each[0]) % 8)
        else:
            words += each
    return head + words + tail


def array(size: int, *elements: bytes | None) -> bytes:
    bits = sum(1 << index for index, each in enumerate(elements) if each is None)
    head = struct.pack("<q", len(elements)) + bits.to_bytes((len(elements) + 63) // 64 * 8, "little")
    return head + b"".join(bytes(size) if each is None else each[:size] for each in elements)


def struct_of(*kinds: str) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]}


BIG = (-1234567890123456789012).to_bytes(9, "big", signed=True)
CASES: list[tuple[str, Any, bytes | tuple[bytes], int]] = [
    ("an int", "integer", fixed("<i", 1), -559580957),
    ("a byte", "byte", fixed("<b", -3), -1573329414),
    ("a short", "short", fixed("<h", -7), -1618159745),
    ("a boolean", "boolean", fixed("<?", True), -559580957),
    ("a date", "date", fixed("<i", 20517), -224300658),
    ("a long", "long", fixed("<q", 12345678901234), -541747956),
    ("a timestamp", "timestamp", fixed("<q", 1_772_697_600_000_000), 1371003523),
    ("a float", "float", fixed("<f", 1.25), 1410698154),
    ("no number", "float", fixed("<f", NAN), -349261430),
    ("a double", "double", fixed("<d", 1.5), 1290763749),
    ("minus zero", "double", fixed("<d", -0.0), -1670924195),
    ("text", "string", (b"hello",), -1008564952),
    ("text of several scripts", "string", ("grüße, 你好x".encode(),), -431379293),
    ("bytes", "binary", (b"\x00\xff\x10",), -339173231),
    ("a small decimal", "decimal(10,2)", fixed("<q", 1234), -1028144669),
    ("a large decimal", "decimal(30,2)", (BIG,), 333635401),
    ("a struct", struct_of("integer", "string"), (row(fixed("<i", 1), (b"z",)),), 1768728021),
    (
        "an array with a hole",
        {"type": "array", "elementType": "integer", "containsNull": True},
        (array(4, fixed("<i", 1), None, fixed("<i", 3)),),
        1066699649,
    ),
]


@pytest.mark.parametrize(("kind", "value", "wanted"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_it_is_sparks(kind: Any, value: bytes | tuple[bytes], wanted: int) -> None:
    assert row_hash(row(value), [{"name": "a", "type": kind}], 1, "here") == wanted


def test_an_empty_field_leaves_the_hash_as_it_is() -> None:
    fields = [{"name": "a", "type": "integer"}, {"name": "b", "type": "string"}]
    assert row_hash(row(None, (b"x",)), fields, 2, "here") == -80340190


def test_only_the_first_fields_take_part() -> None:
    fields = [{"name": "a", "type": "string"}, {"name": "b", "type": "long"}]
    hashes = {row_hash(row((b"hello",), fixed("<q", index)), fields, 1, "here") for index in range(5)}
    assert hashes == {-1008564952}


def test_a_partition_is_never_negative() -> None:
    fields = [{"name": "a", "type": "string"}]
    assert partition_of(row((b"hello",)), fields, 1, 7, "here") == -1008564952 % 7


def test_a_type_that_is_not_hashed_is_refused() -> None:
    with pytest.raises(Unsupported, match="the partitions of keys of type"):
        row_hash(row((b"",)), [{"name": "a", "type": {"type": "map"}}], 1, "here")
    with pytest.raises(Unsupported, match="the partitions of keys of type"):
        row_hash(row(bytes(8)), [{"name": "a", "type": "interval"}], 1, "here")


@pytest.mark.parametrize("size", [0, 8, 15])
def test_a_row_that_is_cut_off_is_damaged(size: int) -> None:
    with pytest.raises(Corrupt):
        row_hash(row((b"hello",))[:size], [{"name": "a", "type": "string"}], 1, "here")
