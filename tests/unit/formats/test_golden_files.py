"""Every file of each golden checkpoint is read, and renders back byte for byte where it can."""

from __future__ import annotations

import pytest
from changelog_heads import render_head

from golden import NAMES, golden_files
from holdfast import layout
from holdfast.formats.files.checksums import hadoop_checksum, parse_hadoop_checksum, parse_spark_checksum
from holdfast.formats.files.compression import decompressed
from holdfast.formats.files.records import (
    parse_head,
    records_of,
    render_records,
)
from holdfast.formats.files.snapshot import METADATA, parse_metadata, parse_snapshot
from holdfast.formats.logs.batch_logs import parse_commit, parse_offsets, parse_query
from holdfast.formats.logs.operator_metadata import parse_operator, parse_schema
from holdfast.formats.logs.table_logs import parse_source
from holdfast.layout import FileKind

pytestmark = pytest.mark.parametrize("name", NAMES)


def test_text_renders_back(name: str) -> None:
    for path, data in golden_files(name).items():
        place = layout.parse(path)
        if isinstance(place, layout.QueryMetadataFile):
            assert parse_query(data, path).render() == data
        elif isinstance(place, layout.LogFile):
            parse = parse_offsets if place.log is layout.Log.OFFSETS else parse_commit
            assert parse(data, path).render() == data
        elif isinstance(place, layout.SourceLogFile):
            assert parse_source(data, path).render() == data
        elif isinstance(place, layout.OperatorMetadataFile):
            assert parse_operator(data, path).render() == data
        elif isinstance(place, layout.SchemaFile):
            assert parse_schema(data, path).render() == data


def test_state_renders_back(name: str) -> None:
    for path, data in golden_files(name).items():
        place = layout.parse(path)
        if not isinstance(place, layout.StoreFile):
            continue
        if place.kind is FileKind.ZIP:
            assert parse_snapshot(data, path).version == 1
            continue
        stream = decompressed(data, "lz4", path)
        if place.kind is FileKind.CHANGELOG:
            head = parse_head(stream, path)
            records = list(records_of(FileKind.CHANGELOG, stream, path))
            assert render_head(head) + render_records(records, head.version) == stream
            assert (head.version in (3, 4)) == (place.unique_id is not None)
        else:
            assert render_records(list(records_of(FileKind.DELTA, stream, path))) == stream


def test_the_index_of_a_snapshot_renders_back(name: str) -> None:
    import io
    import zipfile

    for path, data in golden_files(name).items():
        if path.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                text = archive.read(METADATA)
            found = parse_metadata(text, path)
            assert found.render() == text
            folder = layout.split(path)[0]
            for shared in found.shared:
                kept = golden_files(name).get(f"{folder}/{shared.folder}/{shared.name}")
                assert kept is None or len(kept) == shared.size_bytes


def test_checksums_fit_and_render_back(name: str) -> None:
    files = golden_files(name)
    for path, data in files.items():
        place = layout.parse(path)
        if isinstance(place, layout.HadoopChecksumFile) and place.of in files:
            assert parse_hadoop_checksum(data, path).render() == data
            assert hadoop_checksum(files[place.of]).render() == data
        elif isinstance(place, layout.SparkChecksumFile):
            sums = parse_spark_checksum(data, path)
            assert sums.render() == data
            assert place.of not in files or sums.mismatch(files[place.of]) is None
