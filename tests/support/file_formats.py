"""Every reader of Spark's files and of savepoints, with real files for it: for hostile inputs and fuzzing."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache

from catalogs import Hands, catalog
from hostile import Format, entry_of, with_entry

from golden import NAMES, STATELESS, UNNAMED, golden, golden_files
from holdfast import layout
from holdfast.formats.files.checksums import parse_hadoop_checksum, parse_spark_checksum
from holdfast.formats.files.compression import compressed, decompressed
from holdfast.formats.files.records import parse_head, records_of
from holdfast.formats.files.snapshot import METADATA, parse_metadata, parse_snapshot, snapshot_entries
from holdfast.formats.files.sst import check_sst, sst_entries
from holdfast.formats.logs.batch_logs import log_offset, parse_commit, parse_offsets, parse_query
from holdfast.formats.logs.notes import LedgerNote, parse_ledger_note, parse_note
from holdfast.formats.logs.operator_metadata import parse_operator, parse_schema, schema_place
from holdfast.formats.logs.table_logs import parse_source
from holdfast.formats.manifest import parse_manifest
from holdfast.formats.rows.row_forms import KeyCodec, parse_encoder
from holdfast.formats.rows.spark_types import parse_struct
from holdfast.formats.text import decoded
from holdfast.layout import FileKind, Place

WHERE = "a/file"
# A packed chunk: `a`, ten times; then `abc` and the same again.
LZF_PACKED = b"ZV\1\0\5\0\x0a\0a\xe0\0\0" + b"ZV\1\0\6\0\6\2abc\x20\2"


@cache
def files_of(kind: type, *, store: FileKind | None = None, suffix: str = "") -> tuple[bytes, ...]:
    """Small golden files of one kind, one of each content."""
    found = {
        data
        for name in [*NAMES, *UNNAMED, STATELESS]
        for path, data in golden_files(name).items()
        if _is(layout.parse(path), kind, store) and path.endswith(suffix) and len(data) < 1 << 15
    }
    return tuple(sorted(found)[:: max(len(found) // 60, 1)])


def _is(place: Place, kind: type, store: FileKind | None) -> bool:
    return isinstance(place, kind) and (store is None or getattr(place, "kind", None) is store)


def log_files(log: layout.Log) -> tuple[bytes, ...]:
    return tuple(
        data
        for name in [*NAMES, *UNNAMED]
        for path, data in golden_files(name).items()
        if isinstance(place := layout.parse(path), layout.LogFile) and place.log is log and "11" in path
    )


def streams(kind: FileKind) -> tuple[bytes, ...]:
    return tuple(decompressed(each, "lz4", WHERE) for each in files_of(layout.StoreFile, store=kind))


def drained(rows: Iterable[object]) -> None:
    deque(rows, maxlen=0)


def offsets(data: bytes) -> None:
    found = parse_offsets(data, WHERE)
    assert found.partitions is None or found.partitions > 0
    for each in found.offsets.values():
        log_offset(each)
    (found.watermark_ms, found.timestamp_ms, found.notes_operators, found.render())


def operator(data: bytes) -> None:
    found = parse_operator(data, WHERE)
    for store in found.stores:
        assert "/" not in store.name
        for path in store.schema_paths:
            place = schema_place(path)
            assert place is None or ".." not in place.split("/")
    (found.moved_to("file:/new").render(), found.with_partitions(3).render(), found.properties)


def schema(data: bytes) -> None:
    for family in parse_schema(data, WHERE).families:
        parse_struct(family.key_schema, WHERE)
        parse_struct(family.value_schema, WHERE)
        if family.encoder.strip():
            KeyCodec(parse_encoder(family.encoder, WHERE), parse_struct(family.key_schema, WHERE), WHERE)


def snapshot(data: bytes) -> None:
    for shared in parse_snapshot(data, WHERE).shared:
        assert not {"/", "\\", "\0"} & {*shared.name, *shared.local_name}
        assert shared.name not in ("", ".", "..")
    drained(snapshot_entries(data, WHERE))


def reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda start, size: data[start : start + size]


def table(data: bytes) -> None:
    check_sst(reader(data), len(data), WHERE)
    drained(sst_entries(data, WHERE))
    drained(sst_entries(data, WHERE, {b"key"}))


def commit(data: bytes) -> None:
    for partitions in (parse_commit(data, WHERE).state_ids or {}).values():
        assert not any("/" in each for stores in partitions for each in stores)


def changelog(stream: bytes) -> None:
    assert not any("/" in each.unique_id for each in parse_head(stream, WHERE).lineage)
    drained(records_of(FileKind.CHANGELOG, stream, WHERE))


def hadoop(data: bytes) -> None:
    parse_hadoop_checksum(data, WHERE).mismatch(bytes(2000))


def manifests() -> list[bytes]:
    into = catalog()
    for name in ("4.2/aggregate-memory", "4.2/join-format2"):
        Hands().take(golden(name), into)
    return [data for path, data in into.files.items() if path.endswith("manifest.json")]


def manifest(data: bytes) -> None:
    for file in parse_manifest(data, WHERE).files:
        assert ".." not in file.path.split("/")


def note(data: bytes) -> None:
    found = parse_note(data, WHERE)
    if found is not None:
        (found.at(3), found.render())


def ledger_note(data: bytes) -> None:
    found = parse_ledger_note(decoded(data, "a note", WHERE), WHERE)
    (found.with_batch("q", "sales", 3), found.render())


LEDGER = LedgerNote("q", {"sales": 3, "till": 0}).render().encode()
PLAN = json.dumps(
    {
        "version": 1,
        "plans": [
            {
                "from_batch": 0,
                "sources": [
                    {"name": "0", "kind": "kafka", "options": {"topic": "t"}, "columns": {"v": "long"}}
                ],
                "steps": [{"kind": "Filter", "text": "v > 1", "bare": "> 1", "stateful": False}],
                "operators": ["visits"],
                "sink": {"kind": "noop", "mode": "append", "target": None},
                "trigger": "1 second",
            }
        ],
    }
).encode()


def repacked(codec: str) -> Callable[[bytes], None]:
    def parse(stream: bytes) -> None:
        assert decompressed(compressed(stream, codec), codec, WHERE) == stream
        drained(records_of(FileKind.DELTA, stream, WHERE))

    return parse


def summed(archive: bytes) -> Callable[[bytes], None]:
    """Spark's list of data files in an archive that is right otherwise."""

    def parse(content: bytes) -> None:
        snapshot(with_entry(archive, METADATA, content))
        parse_metadata(content, WHERE)

    return parse


def resummed(data: bytes) -> bytes:
    """A data file of RocksDB without checksums, so that what is changed in it gets to its reader."""
    return data[:-53] + b"\0" + data[-52:]


FORMATS: dict[str, Callable[[], Format]] = {
    "offset log": lambda: Format("offset log", offsets, log_files(layout.Log.OFFSETS)),
    "commit log": lambda: Format("commit log", commit, log_files(layout.Log.COMMITS)),
    "source log": lambda: Format(
        "source log",
        lambda data: parse_source(data, WHERE).list_files(WHERE),
        files_of(layout.SourceLogFile),
    ),
    "operator": lambda: Format("operator", operator, files_of(layout.OperatorMetadataFile)),
    "schema": lambda: Format("schema", schema, files_of(layout.SchemaFile)),
    "query": lambda: Format(
        "query", lambda data: parse_query(data, WHERE), files_of(layout.QueryMetadataFile)
    ),
    "plan note": lambda: Format("plan note", note, [PLAN]),
    "ledger note": lambda: Format("ledger note", ledger_note, [LEDGER]),
    "manifest": lambda: Format("manifest", manifest, manifests()),
    "spark checksum": lambda: Format(
        "spark checksum",
        lambda data: parse_spark_checksum(data, WHERE).mismatch(b"data"),
        files_of(layout.SparkChecksumFile),
    ),
    "hadoop checksum": lambda: Format("hadoop checksum", hadoop, files_of(layout.HadoopChecksumFile)),
    "snapshot": lambda: Format("snapshot", snapshot, files_of(layout.StoreFile, store=FileKind.ZIP)),
    "snapshot's list": lambda: Format(
        "snapshot's list",
        summed(files_of(layout.StoreFile, store=FileKind.ZIP)[0]),
        [entry_of(each, METADATA) for each in files_of(layout.StoreFile, store=FileKind.ZIP)],
    ),
    "data file": lambda: Format("data file", table, files_of(layout.SharedSstFile, suffix=".sst")),
    "data file without checksums": lambda: Format(
        "data file without checksums",
        table,
        [resummed(each) for each in files_of(layout.SharedSstFile, suffix=".sst")],
    ),
    "lz4": lambda: Format(
        "lz4",
        lambda data: decompressed(data, "lz4", WHERE),
        files_of(layout.StoreFile, store=FileKind.DELTA),
    ),
    "lzf": lambda: Format(
        "lzf",
        lambda data: decompressed(data, "lzf", WHERE),
        [LZF_PACKED + compressed(each, "lzf") for each in streams(FileKind.DELTA)],
    ),
    "snappy": lambda: Format(
        "snappy",
        lambda data: decompressed(data, "snappy", WHERE),
        [compressed(each, "snappy") for each in streams(FileKind.DELTA)],
    ),
    "zstd": lambda: Format(
        "zstd",
        lambda data: decompressed(data, "zstd", WHERE),
        [compressed(each, "zstd") for each in streams(FileKind.DELTA)],
    ),
    "changelog": lambda: Format("changelog", changelog, streams(FileKind.CHANGELOG)),
    "delta": lambda: Format("delta", repacked("lz4"), streams(FileKind.DELTA)),
    "base": lambda: Format("base", repacked("zstd"), streams(FileKind.SNAPSHOT)),
}
