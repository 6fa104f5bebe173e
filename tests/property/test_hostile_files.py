"""Every reader of bytes gives a value or an error of ours, whatever a stranger put into a file. Seeded."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from file_formats import FORMATS, WHERE, drained, files_of, reader, streams
from grid import one_in
from hostile import Format, entry_of, require_answered, with_entry

from golden import NAMES, golden, golden_files
from holdfast import layout
from holdfast.checkpoints.state.rows import state_chunks
from holdfast.checkpoints.state.states import StateCodec, operator_states
from holdfast.errors import Corrupt
from holdfast.formats.files.compression import decompressed, lz4_block
from holdfast.formats.files.records import parse_head
from holdfast.formats.files.snapshot import METADATA, parse_snapshot, snapshot_entries
from holdfast.formats.files.sst import check_sst, sst_entries
from holdfast.formats.logs.batch_logs import parse_commit
from holdfast.formats.logs.operator_metadata import parse_operator
from holdfast.formats.logs.table_logs import LOG_DIRECTORY, committed_files
from holdfast.formats.text import PARTITIONS, ZIP_ENTRIES
from holdfast.layout import FileKind


@pytest.mark.parametrize("name", one_in(4, list(FORMATS)))
def test_a_strangers_file_is_read_or_refused(name: str) -> None:
    format_ = FORMATS[name]()
    assert format_.files
    for each in format_.files:
        format_.parse(each)
    require_answered(format_)


def test_a_small_file_does_not_become_a_large_one() -> None:
    """Thirty-two kilobytes that would unpack to a gigabyte, or say that they do."""
    bomb = pa.Codec("zstd", 19).compress(bytes(1 << 25), asbytes=True) * 32
    assert len(bomb) < 1 << 16
    archive = files_of(layout.StoreFile, store=FileKind.ZIP)[0]
    large = with_entry(archive, METADATA, entry_of(archive, METADATA) + bytes(300 << 20))
    tracemalloc.start()
    with pytest.raises(Corrupt, match="exceeds the size limit"):
        decompressed(bomb, "zstd", WHERE)
    with pytest.raises(Corrupt) as error:
        parse_snapshot(large, WHERE)
    assert "bytes" in str(error.value.found)
    # A length that is only stated is not believed either.
    snappy = b"\x82SNAPPY\0" + struct.pack(">iiI", 1, 1, 6) + b"\xff\xff\xff\xff\x0f\0"
    with pytest.raises(Corrupt):
        decompressed(snappy, "snappy", WHERE)
    lz4 = struct.pack("<8sBIII", b"LZ4Block", 0x2F, 10, 1 << 25, 0) + bytes(10)
    with pytest.raises(Corrupt):
        decompressed(lz4, "lz4", WHERE)
    assert tracemalloc.get_traced_memory()[1] < 256 << 20
    tracemalloc.stop()


def test_a_length_that_is_only_stated_takes_no_memory() -> None:
    """A block of LZ4 is unpacked into as many bytes as it states, which ten bytes cannot hold."""
    tracemalloc.start()
    with pytest.raises(ValueError, match="in a block of 10"):
        lz4_block(bytes(10), 1 << 28)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def archive_of(names: Iterable[str], method: int) -> bytes:
    """A snapshot with more entries, each of which is empty."""
    data = io.BytesIO(files_of(layout.StoreFile, store=FileKind.ZIP)[0])
    with zipfile.ZipFile(data, "a", method) as archive:
        for name in names:
            archive.writestr(name, b"")
    return data.getvalue()


def test_a_snapshot_has_few_entries_that_java_can_unpack() -> None:
    parse_snapshot(archive_of([f"{number}.log" for number in range(10)], zipfile.ZIP_DEFLATED), WHERE)
    many = archive_of((f"{number}.log" for number in range(ZIP_ENTRIES)), zipfile.ZIP_STORED)
    packed = archive_of(["1.log"], zipfile.ZIP_LZMA)
    for data, said in ((many, "entries of"), (packed, "unsupported compression")):
        with pytest.raises(Corrupt) as error:
            parse_snapshot(data, WHERE)
        assert said in str(error.value.found)
        with pytest.raises(Corrupt):
            drained(snapshot_entries(data, WHERE))


def test_a_block_of_a_data_file_has_its_checksum() -> None:
    """RocksDB sums up each block; one flipped bit in any of them is seen."""
    data = max(files_of(layout.SharedSstFile, suffix=".sst"), key=len)
    assert list(sst_entries(data, WHERE))
    for at in range(0, len(data) - 53, 61):
        flipped = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        with pytest.raises(Corrupt):
            check_sst(reader(flipped), len(data), WHERE)


def test_a_block_that_says_it_holds_more_than_it_can_is_refused_unopened() -> None:
    """Without sums, which a stranger can leave out, RocksDB would believe the length of its first block."""
    footer, endless = 53, b"\xff\xff\xff\xff\x0f"
    refused = []
    for data in files_of(layout.SharedSstFile, suffix=".sst"):
        bare = data[:-footer] + b"\0" + data[1 - footer :]
        check_sst(reader(bare), len(bare), WHERE)
        claims = endless + bare[len(endless) :]
        with suppress(Corrupt):
            check_sst(reader(claims), len(claims), WHERE)
            continue  # its first block is not packed, and states no length
        with pytest.raises(Corrupt) as error:
            check_sst(reader(claims), len(claims), WHERE)
        refused.append(str(error.value.found))
    assert refused
    assert all(found.startswith("4294967295 bytes in a block of") for found in refused), refused


def test_as_many_partitions_as_nobody_has_are_damage() -> None:
    for data in files_of(layout.OperatorMetadataFile):
        head, text = data.decode().split("\n")
        fields = json.loads(text)
        fields["stateStoreInfo"][0]["numPartitions"] = PARTITIONS
        assert parse_operator(f"{head}\n{json.dumps(fields)}".encode(), WHERE).stores
        fields["stateStoreInfo"][0]["numPartitions"] = PARTITIONS + 1
        with pytest.raises(Corrupt, match="damaged"):
            parse_operator(f"{head}\n{json.dumps(fields)}".encode(), WHERE)


def test_an_id_in_a_lineage_leads_nowhere_else() -> None:
    """A part of the name of another file: of the changes before these."""
    lineages = [data for data in streams(FileKind.CHANGELOG) if b"checkpointUniqueId" in data]
    assert lineages
    for data in lineages:
        parse_head(data, WHERE)
        start = data.index(b'"checkpointUniqueId":"') + len(b'"checkpointUniqueId":"')
        with pytest.raises(Corrupt) as error:
            parse_head(data[:start] + b"../" + data[start + 3 :], WHERE)
        assert "lineage" in str(error.value.found)


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63), 10**40])
def test_a_number_that_java_cannot_have_is_damage(number: int) -> None:
    fits = max(-(1 << 63) + 1, min((1 << 63) - 1, number))
    text = 'v1\n{{"nextBatchWatermarkMs":{}}}'
    assert parse_commit(text.format(fits).encode(), WHERE).next_watermark_ms == fits
    with pytest.raises(Corrupt, match="damaged"):
        parse_commit(text.format(number).encode(), WHERE)


@pytest.mark.parametrize("name", ["4.2/aggregate-rocksdb", "4.2/session-rocksdb", "4.2/state-format2"])
def test_a_strangers_rows_are_read_or_refused(name: str) -> None:
    (operator_,) = operator_states(golden(name))
    rows = {
        (codec.name.family, codec.name.store): (codec, pairs)
        for codec, _, pairs in state_chunks(golden(name), operator_.batch_id)
    }
    for family, (codec, pairs) in rows.items():

        def key(data: bytes, codec: StateCodec = codec) -> None:
            codec.key_values(codec.key_row(data))

        def value(data: bytes, codec: StateCodec = codec) -> None:
            parts, _ = codec.values.rows(data, codec.where)
            for part in parts:
                codec.value_values(part)

        require_answered(Format(f"{name} {family} keys", key, [key_ for key_, _ in pairs]))
        require_answered(Format(f"{name} {family} values", value, [value_ for _, value_ in pairs]))


def test_a_strangers_sink_log_is_read_or_refused(tmp_path: Path) -> None:
    line = {"path": "file:/out/part-0.parquet", "size": 7, "isDir": False, "action": "add"}
    text = b"v1\n" + json.dumps(line).encode() + b"\n" + json.dumps(line).encode()
    (tmp_path / LOG_DIRECTORY).mkdir()

    def parse(data: bytes) -> None:
        (tmp_path / LOG_DIRECTORY / "0").write_bytes(data)
        committed_files(tmp_path)

    require_answered(Format("sink log", parse, [text]))


def test_paths_are_taken_apart_whatever_they_are() -> None:
    paths = [path.encode() for name in NAMES[:6] for path in golden_files(name)]

    def parse(data: bytes) -> None:
        path = data.decode("utf-8", "replace")
        place = layout.parse(path)
        assert place.render() == path
        known = not isinstance(place, (layout.UnknownFile, layout.Temporary))
        of = getattr(place, "of", None)
        assert not known or of is not None or not {"", ".", ".."} & {*path.split("/")}

    require_answered(Format("paths", parse, paths))
