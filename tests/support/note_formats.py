"""Every reader of what Holdfast's own processes write, with samples: for hostile inputs and for fuzzing."""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from file_formats import FORMATS as FILE_FORMATS
from file_formats import WHERE, files_of, reader
from hostile import Format, entry_of

from golden import KEYED, golden
from holdfast import layout
from holdfast.advice.prices import read_prices
from holdfast.checkpoints import record
from holdfast.checkpoints.keyed import stored_groups
from holdfast.checkpoints.state.states import operator_states
from holdfast.errors import HoldfastError
from holdfast.external import store_port, view
from holdfast.formats.files.snapshot import live_files, masked_crc32c
from holdfast.formats.files.sst import sst_session
from holdfast.formats.key_groups import Meta
from holdfast.formats.manifest import LabelChange, parse_label_change, parse_savepoint_content
from holdfast.formats.record_header import parse_header
from holdfast.jobs import fallback_note
from holdfast.jobs.candidacy import LeaderRecord, QueryPlace
from holdfast.jobs.processes import protocol
from holdfast.jobs.registry import operation_log
from holdfast.jobs.upgrades.deployment_file import read_deployments
from holdfast.layout import FileKind
from holdfast.ownership import checkpoint_lock
from holdfast.ownership.process_identity import ProcessIdentity
from holdfast.ownership.storage_election import StorageElection
from holdfast.server.flink import calls
from holdfast.storage.memory import MemoryStorage
from holdfast.worker.declarations.types import parse_schema, parse_type
from holdfast.worker.state.blob_store import BlobName

PROCESS = {"machine": "m", "pid": 4711, "started": 12345}
PRICES = b'currency = "EUR"\ns3 = { price = 0.023, per = "GB-month" }\n'
DEPLOYMENTS = b'[jobs.shop]\nfile = "shop.py"\nhome = "."\n'


def arguments(data: bytes) -> None:
    """The arguments of each verb; that they are JSON is checked before."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(values, dict):
        for verb in operation_log.KINDS:
            with suppress(HoldfastError):
                operation_log.decode(verb, values)


def in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    def parse(data: bytes) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.write_bytes(data)
            read(path)

    return parse


def election(data: bytes) -> None:
    storage = MemoryStorage({"jobs/1.claim": data, "jobs/1.beat": data}, uri="memory://election")
    claim = StorageElection(storage, "jobs", 10.0, clock, clock)._read("jobs/1.claim")
    ProcessIdentity.parse(claim.get("process"))


def clock() -> float:
    return 0.0


def body(data: bytes) -> None:
    with suppress(calls.FlinkRefusal):
        calls._body(data, "a call")


def record_line(data: bytes) -> None:
    with suppress(ValueError, KeyError):  # what the reader of a record takes for its end
        record._parsed(data)


def fallback(data: bytes) -> None:
    fallback_note.read_note(MemoryStorage({"note": data}, uri="memory://notes"), "note", WHERE)


def rows(data: bytes) -> None:
    deque(store_port.rows_of({b"": data}, "", WHERE), maxlen=0)
    deque(store_port._parts(data, WHERE), maxlen=0)


def text_of(read: Callable[[str], object]) -> Callable[[bytes], None]:
    def parse(data: bytes) -> None:
        read(data.decode(errors="replace"))

    return parse


def rocksdb_manifest(data: bytes) -> None:
    """A record of RocksDB's manifest, with its checksum."""
    part = data[: (32 << 10) - 7]
    live_files(struct.pack("<IHB", masked_crc32c(b"\1" + part), len(part), 1) + part, WHERE)


def manifest_records() -> list[bytes]:
    records = []
    for archive in files_of(layout.StoreFile, store=FileKind.ZIP):
        name = next(line for line in entry_of(archive, "CURRENT").decode().splitlines() if line)
        at, log = 0, entry_of(archive, name)
        while at < len(log):
            _, size, _ = struct.unpack_from("<IHB", log, at)
            records.append(log[at + 7 : at + 7 + size])
            at += 7 + size
    return sorted({one for one in records if one})


def metas() -> list[bytes]:
    storage = golden(KEYED[0])
    (operator,) = operator_states(storage)
    return [group.meta for group in stored_groups(storage, operator) if group.meta is not None]


GO = protocol.Go("/log", restore=True, repeat={"q": "file:/c.bad"}, term=3, election="e", machine="m")
LABEL = LabelChange("s-1", "daily", None, "me", 1_700_000_000_000)
LEADER = LeaderRecord("h", "file:/ck", 1, queries={"q": QueryPlace("file:/ck", "id")})
NOTE = {"query": "q", "stamp": "20260305T080000Z", "savepoint": "file:/sp", "batch_id": 3, "newest": 4}
CONTENT = {"format": 1, "savepoint": "s", "when_ms": 1, "states": [], "stores": []}
ARGUMENTS = ({"partitions": 4, "catalog": "sp"}, {"savepoint": "sp@x", "into": "ck", "drain": True})
TYPES = (b"array<struct<a: long NOT NULL, b: map<string, decimal(10,2)>>>", b"timestamp", b"binary")

FORMATS: dict[str, Callable[[], Format]] = {
    "message": lambda: Format(
        "message",
        protocol.decode,
        [protocol.encode(GO)],
    ),
    "arguments": lambda: Format("arguments", arguments, [json.dumps(each).encode() for each in ARGUMENTS]),
    "lock": lambda: Format(
        "lock", checkpoint_lock._parsed, [json.dumps({**PROCESS, "what": "job"}).encode()]
    ),
    "election": lambda: Format(
        "election",
        election,
        [json.dumps({"id": "a", "lease_s": 10.0, "process": PROCESS}).encode()],
    ),
    "leader": lambda: Format("leader", lambda data: LeaderRecord.parse(data, WHERE), [LEADER.render()]),
    "record": lambda: Format("record", record_line, [record._rendered({"format": 1, "batch": 3})[:-1]]),
    "label": lambda: Format("label", lambda data: parse_label_change(data, WHERE), [LABEL.render()]),
    "content": lambda: Format(
        "content", lambda data: parse_savepoint_content(data, WHERE), [json.dumps(CONTENT).encode()]
    ),
    "fallback": lambda: Format("fallback", fallback, [json.dumps(NOTE).encode()]),
    "header": lambda: Format("header", parse_header, [b"query 12 3 order-1", b"q 1 - k"]),
    "group": lambda: Format("group", Meta.decode, metas()),
    "blob name": lambda: Format("blob name", BlobName.decode, [BlobName.of("k", b"blob").encode()]),
    "rows in a database": lambda: Format(
        "rows in a database", rows, [store_port.packed([(b"key", b"value"), (b"", b"x" * 300)])]
    ),
    "description": lambda: Format(
        "description",
        lambda data: view.parse_description(data, WHERE),
        [view.render_description("redis://h", "s")],
    ),
    "prices": lambda: Format("prices", in_file("prices.toml", read_prices), [PRICES]),
    "deployments": lambda: Format("deployments", in_file("jobs.toml", read_deployments), [DEPLOYMENTS]),
    "flink body": lambda: Format("flink body", body, [b'{"cancel-job": true, "target-directory": "sp"}']),
    "type": lambda: Format("type", text_of(parse_type), TYPES),
    "columns": lambda: Format("columns", text_of(parse_schema), [b"customer string, visits array<long>"]),
    "rocksdb's manifest": lambda: Format("rocksdb's manifest", rocksdb_manifest, manifest_records()),
    "session of a data file": lambda: Format(
        "session of a data file",
        lambda data: sst_session(reader(data), len(data), WHERE),
        FILE_FORMATS["data file without checksums"]().files,
    ),
}
