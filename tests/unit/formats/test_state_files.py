"""The binary formats: records, schemas, snapshots, checksums."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import pytest
from changelog_heads import render_head
from google_crc32c import value as crc32c

from holdfast.errors import Corrupt, Unsupported
from holdfast.formats.files.checksums import hadoop_checksum, parse_hadoop_checksum, parse_spark_checksum
from holdfast.formats.files.compression import decode_utf, encode_utf
from holdfast.formats.files.records import (
    Head,
    RecordKind,
    StateRecord,
    VersionLineage,
    parse_head,
    records_of,
    render_records,
    without_keys,
)
from holdfast.formats.files.snapshot import check_manifest, parse_snapshot
from holdfast.formats.logs.operator_metadata import ColumnFamily, StateSchema, parse_schema
from holdfast.layout import FileKind

RECORDS = (
    StateRecord(RecordKind.PUT, b"k1", b"value"),
    StateRecord(RecordKind.DELETE, b"k2", None),
    StateRecord(RecordKind.PUT, b"", b""),
)
MERGED = (*RECORDS, StateRecord(RecordKind.MERGE, b"k1", b"more"))
PLAIN = bytes.fromhex("00000002 6b31 00000005 76616c7565 00000002 6b32 ffffffff 00000000 00000000 ffffffff")
MARKED = bytes.fromhex(
    "01 00000002 6b31 00000005 76616c7565 10 00000002 6b32 ffffffff 01 00000000 00000000 00"
)
LINEAGE = b'\x00\x02v4\x00\x2f[{"version":1,"checkpointUniqueId":"a-long-i"}]'


def test_records_as_they_stand_on_disk() -> None:
    assert tuple(records_of(FileKind.DELTA, PLAIN, "f")) == RECORDS
    assert render_records(RECORDS) == PLAIN
    assert tuple(records_of(FileKind.CHANGELOG, PLAIN, "f")) == RECORDS
    assert tuple(records_of(FileKind.CHANGELOG, b"\0\x02v2" + MARKED, "f")) == RECORDS
    assert render_records(RECORDS, 2) == MARKED
    assert tuple(records_of(FileKind.CHANGELOG, LINEAGE + MARKED, "f")) == RECORDS


@pytest.mark.parametrize("version", [2, 4])
def test_merges_are_records_too(version: int) -> None:
    head = render_head(Head(version, (), 0))
    assert tuple(records_of(FileKind.CHANGELOG, head + render_records(MERGED, version), "f")) == MERGED


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_stream_without_some_keys_is_otherwise_as_it_was(version: int) -> None:
    records = [
        StateRecord(RecordKind.PUT, b"stays", b"1"),
        StateRecord(RecordKind.PUT, b"goes", b"22"),
        StateRecord(RecordKind.DELETE, b"xgoes", None),
        StateRecord(RecordKind.DELETE, b"xstays", None),
        StateRecord(RecordKind.PUT, b"goes", b""),
    ]
    if version in (2, 4):
        records.insert(2, StateRecord(RecordKind.MERGE, b"goes", b"333"))
    head = Head(version, (VersionLineage(0, "a"),) if version > 2 else (), 0)
    stream = render_head(head) + render_records(records, version)
    left = without_keys(
        stream,
        records_of(FileKind.CHANGELOG, stream, "f"),
        {b"goes"},
        lambda key: key[1:],
        parse_head(stream, "f"),
    )
    stay = [each for each in records if not each.key.endswith(b"goes")]
    assert left == render_head(head) + render_records(stay, version)


def test_the_head_of_a_changelog() -> None:
    head = parse_head(LINEAGE + MARKED, "f")
    assert (head.version, head.lineage, head.size) == (4, (VersionLineage(1, "a-long-i"),), len(LINEAGE))
    assert render_head(head) == LINEAGE
    assert parse_head(PLAIN, "f").version == 1


@pytest.mark.parametrize(
    "stream",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\x02v2\0\0\0\0\xff\xff\xff\xff",  # a key that reads like a version, without its length
        b"\0\x02\0\0" + b"x" * 0x20000 + b"\0\0\0\0\xff\xff\xff\xff",
    ],
    ids=["empty", "short key", "long key"],
)
def test_a_stream_without_a_head_is_version_1(stream: bytes) -> None:
    assert parse_head(stream, "f") == Head(1, (), 0)
    assert all(each.change is RecordKind.PUT for each in records_of(FileKind.CHANGELOG, stream, "f"))


@pytest.mark.parametrize("stream", [PLAIN, LINEAGE + MARKED, b"\0\x02v2" + MARKED])
def test_a_stream_that_is_cut_off_or_goes_on_is_damaged(stream: bytes) -> None:
    damaged = [stream + b"\0", stream + stream]
    damaged += [stream[:length] for length in range(1, len(stream))]
    for each in damaged:
        with pytest.raises(Corrupt):
            list(records_of(FileKind.CHANGELOG, each, "f"))


def test_a_lineage_with_a_gap_is_damaged() -> None:
    head = render_head(Head(3, (VersionLineage(1, "a"), VersionLineage(3, "b")), 0))
    with pytest.raises(Corrupt, match="damaged"):
        parse_head(head + b"\xff\xff\xff\xff", "f")


@pytest.mark.parametrize("text", ["", "abc", "zwölf", "a\0b", "日本", "😀 and 𝄞"])
def test_text_of_java(text: str) -> None:
    data = encode_utf(text)
    assert int.from_bytes(data[:2], "big") == len(data) - 2
    assert b"\0" not in data[2:]
    assert decode_utf(data[2:]) == text


KEY, VALUE = '{"type":"struct","fields":[]}', '{"type":"struct","fields":[1]}'


@pytest.mark.parametrize(
    "schema",
    [
        StateSchema(1, (ColumnFamily("default", KEY, VALUE),)),
        StateSchema(2, (ColumnFamily("default", KEY, '"' + "x" * 200_000 + '"'),)),
        StateSchema(
            3,
            (
                ColumnFamily("count", KEY, VALUE, 0, 2, '{"keyStateEncoderType":"x"}', "{    }"),
                ColumnFamily("list", KEY, VALUE, 1, 0, "{}", KEY),
            ),
        ),
    ],
    ids=["v1", "v2", "v3"],
)
def test_a_schema(schema: StateSchema) -> None:
    data = schema.render()
    assert parse_schema(data, "f") == schema
    for each in (data + b"x", data[:-1], data[: len(data) // 2], data[:1], b""):
        with pytest.raises(Corrupt):
            parse_schema(each, "f")


def test_a_schema_as_it_stands_on_disk() -> None:
    data = b"\0\x02v2" + b"\0\0\0\x01\0\x02{}" + b"\0\0\0\x02\0\x02[1\0\x01]"
    assert parse_schema(data, "f") == StateSchema(2, (ColumnFamily("default", "{}", "[1]"),))


METADATA = (
    'v1\n{"sstFiles":[{"localFileName":"8.sst","dfsSstFileName":"8-u.sst","sizeBytes":2076}],'
    '"logFiles":[{"localFileName":"9.log","dfsLogFileName":"9-u.log","sizeBytes":1}],"numKeys":3}'
)


# The first record of a manifest that Spark 3.5 wrote: the checksum, four bytes, a whole record, and those.
RECORD = bytes.fromhex("dc20f1ad 0400 01 88400136")


def zipped(**entries: str | bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in entries.items():
            archive.writestr(name.replace("_", "-"), text)
    return data.getvalue()


WHOLE: dict[str, str | bytes] = {
    "MANIFEST_000005": RECORD * 3,
    "CURRENT": "MANIFEST-000005",
    "OPTIONS_000007": "o" * 900,
    "metadata": METADATA,
}


def test_a_snapshot() -> None:
    found = parse_snapshot(zipped(**WHOLE), "f")
    assert [(each.folder, each.name, each.size_bytes) for each in found.shared] == [
        ("SSTs", "8-u.sst", 2076),
        ("logs", "9-u.log", 1),
    ]
    assert (found.keys, found.size_bytes) == (3, 2077)
    assert found.render() == METADATA.encode()


@pytest.mark.parametrize("entry", WHOLE)
def test_a_snapshot_without_an_entry(entry: str) -> None:
    rest = {name: text for name, text in WHOLE.items() if name != entry}
    with pytest.raises(Corrupt, match="damaged"):
        parse_snapshot(zipped(**rest), "f")


def test_a_damaged_snapshot() -> None:
    data = zipped(**WHOLE)
    flipped = bytearray(data)
    flipped[data.index(b"OPTIONS-000007") + 16] ^= 0x10
    for each in (b"", data[:-1], data[: len(data) // 2], bytes(len(data)), bytes(flipped), data + data):
        with pytest.raises(Corrupt):
            parse_snapshot(each, "f")
    with pytest.raises(Unsupported):
        parse_snapshot(zipped(**{**WHOLE, "metadata": METADATA.replace("v1", "v3")}), "f")


@pytest.mark.parametrize(
    ("at", "byte", "told"),
    [
        (6, 5, "a record of kind 5 at byte 11, expected 1 to 4"),  # on which RocksDB never comes to an end
        (6, 2, "checksum mismatch in a record at byte 11"),
        (0, 0xDD, "checksum mismatch in a record at byte 11"),
        (9, 0, "checksum mismatch in a record at byte 11"),
        (4, 200, "a truncated record of 200 bytes at byte 11"),
    ],
)
def test_a_damaged_manifest(at: int, byte: int, told: str) -> None:
    manifest = bytearray(RECORD * 3)
    manifest[len(RECORD) + at] = byte
    with pytest.raises(Corrupt, match="entry MANIFEST-000005") as caught:
        parse_snapshot(zipped(**{**WHOLE, "MANIFEST_000005": bytes(manifest)}), "f")
    assert told in str(caught.value)


def record(kind: int, payload: bytes) -> bytes:
    """As RocksDB's description of its log has it."""
    crc = crc32c(bytes([kind]) + payload)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
    return struct.pack("<IHB", masked, len(payload), kind) + payload


def test_records_of_a_manifest_keep_to_their_blocks() -> None:
    assert record(1, RECORD[-4:]) == RECORD
    first = record(2, bytes(32_768 - 7))
    middle, last = record(3, bytes(32_768 - 7 - 6)), record(4, b"end")
    check_manifest(first + middle + bytes(6) + last, "f")
    check_manifest(b"", "f")
    for wrong in (middle + last, first + middle + last, RECORD[:-1], RECORD + RECORD[:5], bytes(20)):
        with pytest.raises(Corrupt, match="a manifest of RocksDB is damaged"):
            check_manifest(wrong, "f")


def test_a_snapshot_of_spark_4_0_under_state_format_2() -> None:
    metadata = METADATA.replace("v1", "v2")
    found = parse_snapshot(zipped(**{**WHOLE, "metadata": metadata}), "f")
    assert (found.version, found.keys, found.render()) == (2, 3, metadata.encode())


def test_a_checksum_of_spark() -> None:
    # The CRC-32C of "123456789" is E3069283, which Java writes as a negative number.
    text = b'{"algorithm":"CRC32C","value":-486108541,"mainFileSize":9,"creator":{"executorId":"driver"}}'
    sums = parse_spark_checksum(text, "f")
    assert sums.mismatch(b"123456789") is None
    assert "but the checksum is e3069283" in (sums.mismatch(b"123456780") or "")
    assert sums.mismatch(b"12345678") == "8 bytes, but the checksum covers 9"
    assert sums.render() == text
    with pytest.raises(Unsupported):
        parse_spark_checksum(text.replace(b"CRC32C", b"MD5"), "f")


def test_a_checksum_of_hadoop() -> None:
    data = bytes(range(256)) * 5
    head = b"crc\0" + struct.pack(">I", 512)
    body = struct.pack(">3I", *(zlib.crc32(data[start : start + 512]) for start in (0, 512, 1024)))
    sums = parse_hadoop_checksum(head + body, "f")
    assert sums == hadoop_checksum(data)
    assert sums.render() == head + body
    assert sums.mismatch(data) is None
    assert sums.mismatch(data[:-1]) == "bytes 1024 to 1279 differ"
    assert sums.mismatch(data[:512]) == "512 bytes, but the checksums cover about 1536"
    assert hadoop_checksum(b"").mismatch(b"") is None


@pytest.mark.parametrize("data", [b"", b"crc\0", b"crd\0\0\0\2\0", b"crc\0\0\0\2\0x", b"crc\0\0\0\0\0"])
def test_a_damaged_checksum_of_hadoop(data: bytes) -> None:
    with pytest.raises(Corrupt):
        parse_hadoop_checksum(data, "f")
