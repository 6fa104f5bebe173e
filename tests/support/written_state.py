"""One of everything that Holdfast writes to a disk, small, and made by the code itself without Spark.

`python tests/support/written_state.py` packs it into `tests/golden/written/`, from where a test reads it:
what was written once must stay readable, wherever the code lies by then. Make it anew only when a new kind of
file is to be in it. `files_by_pattern` says what there is by name and field, for the list of public names.

    checkpoint/   a golden checkpoint of Spark's
    catalog/      savepoints: with digests, with digests pending, a later label, an edit and its undo, a drill
    erased/       a catalog from which a key was erased; certificate.json is its certificate
    restored/     a checkpoint made of a savepoint; forked/ one for another query
    home/         a state home: registry, operations, alerts, integrity records
    leases/       elections by lease, with the leader's record
    ledger.db     a ledger in SQLite
    home-v1/, home-v2/   registries of earlier versions
"""

from __future__ import annotations

import io
import itertools
import json
import re
import shutil
import socket
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.changes.edit_api import edit, erase, undo
from holdfast.checkpoints.record import Recorder, RecordFile, record_path
from holdfast.jobs.candidacy import LeaderRecord, QueryPlace
from holdfast.jobs.fallback_note import DAMAGED, NOTE, FallbackNote
from holdfast.jobs.recovery import PHASES, RecoveryTimes, StateSize
from holdfast.jobs.registry.operation_log import Operations, TakeSavepoint, Verify
from holdfast.jobs.registry.registry import VERSION, JobRecord, Registry, job_id
from holdfast.jobs.rollback import Rollback
from holdfast.jobs.state_home import StateHome
from holdfast.model import (
    BatchProgress,
    Failure,
    HeavyKey,
    JobState,
    KeyedProgress,
    KeyedState,
    OperatorProgress,
    QueryStarted,
    SavepointNote,
    SkewReport,
)
from holdfast.observe.alerting import WAITING, AlertStore, evaluate
from holdfast.observe.metrics import sample
from holdfast.ownership.checkpoint_lock import Owner, fence, lock_path
from holdfast.ownership.election import Leader
from holdfast.ownership.process_identity import ProcessIdentity
from holdfast.ownership.storage_election import StorageElection
from holdfast.savepoints import planning
from holdfast.savepoints.catalog import Drill, note
from holdfast.savepoints.leases import GcLease, TakeLease
from holdfast.server.access.guard import home_token
from holdfast.storage.local import LocalStorage
from holdfast.stream.sinks.ledger import Ledger

PACKED = Path(__file__).parents[1] / "golden" / "written"
CHECKPOINT = "4.2/aggregate-changelog"
NOW_MS = 1_772_700_100_000
SAVEPOINT_ID = "20260305T084140.000Z-0123abcd-b41-0001"
JOB = JobRecord(
    "shop",
    job_id("shop"),
    "shop.py",
    "file:///data/shop",
    "retain",
    JobState.RUNNING,
    None,
    NOW_MS - 90_000,
    NOW_MS - 1_000,
    None,
    4242,
)
FAILURE = Failure("query", "ZeroDivisionError", "division by zero", "visits", "Traceback …", "user code")
QUERY = QueryStarted(
    "visits", "00000000-0000-4000-8000-000000000000", "run", "file:///data/shop", "none: it is a test"
)
KEYED = KeyedProgress(
    "visits", 10, 2, 5000, 0, 7, 6, 5, 1, 3, 20, 4, 1, 800, 900, (KeyedState("spend", 10, 400, 2),)
)
BATCH = BatchProgress(
    "visits",
    41,
    NOW_MS - 2_000,
    20,
    50,
    "2026-03-05T08:00:00.000Z",
    (OperatorProgress("stateStoreSave", 100, 5, 1, 2, 10_000, 7, 2, {"rocksdbGetCount": 3}, KEYED),),
    late_events=4,
    skew=(SkewReport("orders", ("customer",), 20, 20, (HeavyKey(("c1",), 10, 0.5, 1),), 0.01, (0.4, 0.6)),),
    phases_ms={"addBatch": 30, "walCommit": 5},
    input_rate=20.0,
    processed_rate=400.0,
    load_ms=7,
    commit_ms=3,
)
SAVEPOINT = SavepointNote(
    "visits", NOW_MS - 500, 40, f"file:///data/savepoints/savepoints/{SAVEPOINT_ID}", 41, 2000, 300, None
)
RECOVERY = RecoveryTimes(
    2, NOW_MS - 80_000, "source: it was away", dict.fromkeys(PHASES, 10), 5, 7, 2, StateSize(1000, 3)
)
LEADER = Leader(7, "app-1 pid 4242", "file:///leases", 1000, NOW_MS - 90_000, NOW_MS - 1_000)
RECORD = LeaderRecord(
    "app-1 pid 4711",
    "s3a://bucket/job",
    1_800_000_000_000,
    ran=True,
    queries={"visits": QueryPlace("s3a://bucket/job", "5b1f")},
    driver=ProcessIdentity("app-1 boot", 4712, 99),
    request="stop",
    resigned=True,
    state=JobState.FINISHED,
    reason="stopped",
)
DRILL = Drill(
    NOW_MS, "file:///data/savepoints/savepoints/one", "q", 10, "shop", False, {"verify": 100, "copy": 200}, 30
)
STAMP = "20260305T080000Z"
OWNER = Owner("shop", "/home/ann/.holdfast", 4243, 7, "place", "app-1 boot", "restore")
ASKED, DONE, FAILED = "1" * 32, "2" * 32, "3" * 32


def write(folder: Path) -> None:
    """Make one of everything."""
    checkpoint = golden_on_disk(CHECKPOINT, folder / "checkpoint")
    write_catalogs(folder, checkpoint)
    write_home(folder / "home", checkpoint)
    write_registry(folder / "home-v2", 2)
    write_registry(folder / "home-v1", 1)
    election = StorageElection(
        LocalStorage(folder / "leases"), "shop", 10.0, lambda: 0.0, lambda: 1_800_000_000
    )
    term = election.campaign()
    assert term is not None
    election.write_record(election.renew(term), RECORD.render())
    ledger = Ledger.sqlite(folder / "ledger.db", clock=lambda: NOW_MS)
    token = ledger.claim("sales", "app-1 pid 4243")
    with ledger.transaction("sales", "q", 41, token) as transaction:
        assert transaction is not None
        transaction.execute("CREATE TABLE sales (n INTEGER)")
        transaction.execute("INSERT INTO sales VALUES (1)")
    beside = folder / "beside" / "shop"
    beside.parent.mkdir()
    assert fence(lock_path(f"file://{beside}", folder / "home"), OWNER)
    way = way_back(beside)
    note = FallbackNote(way.query, DAMAGED, STAMP, way.savepoint, way.batch_id, way.newest)
    LocalStorage(beside.parent).write(f".{beside.name}{NOTE}", note.render(), replace=True)


def way_back(checkpoint: Path) -> Rollback:
    """A fallback of a checkpoint; its note has no paths."""
    aside = f"{checkpoint}.damaged-{STAMP}"
    return Rollback("visits", f"file://{checkpoint}", aside, "file:///data/one", 40, 41, False)


def write_catalogs(folder: Path, checkpoint: Path) -> None:
    catalog, erased = folder / "catalog", folder / "erased"
    first = savepoints.take(checkpoint, catalog, label="first", deep=True)
    with counted_later():
        for back in (1, 2):
            later = savepoints.take(checkpoint, catalog, batch=first.manifest.batch_id - back, digest=False)
    savepoints.digest(later.uri, gentle=False)  # the other one stays pending
    savepoints.label(first.uri, "renamed")
    edited = edit(first.uri, "aggregate", set={"count": 1}, key="customer=c1", why="it was wrong", who="ann")
    undo(edited.uri, why="it was right", who="ann")
    savepoints.restore(first.uri, folder / "restored")
    savepoints.fork(first.uri, folder / "forked")
    note(LocalStorage(catalog), DRILL, b"abcd")
    savepoints.take(checkpoint, erased, deep=True)
    certificate = erase("c1", everywhere=erased, why="asked for", who="ann", home=folder / "no-home")
    (folder / "certificate.json").write_bytes(certificate.render())
    clock = itertools.count(NOW_MS).__next__
    TakeLease(LocalStorage(catalog), "aa11", clock).begin()
    GcLease(LocalStorage(erased), "bb22", clock, 3_600_000).begin()


@contextmanager
def counted_later() -> Iterator[None]:
    """However small a state is, a take does not read its rows."""
    small, planning.SMALL_BYTES = planning.SMALL_BYTES, 0  # type: ignore[misc]
    try:
        yield
    finally:
        planning.SMALL_BYTES = small  # type: ignore[misc]


def write_home(place: Path, checkpoint: Path) -> None:
    home = StateHome(place)
    write_registry(place)
    Registry(home.registry, LEADER.token).lead("shop", LEADER)
    Registry(home.registry).add_recovery("shop", RECOVERY)
    storage = LocalStorage(checkpoint)
    file = RecordFile(record_path(place, storage.uri))
    Recorder(storage, file).look(ended=True)
    operations = Operations(home)
    operations.ask(ASKED, "savepoint", "shop", TakeSavepoint("file:///data/savepoints"), NOW_MS)
    for number, operation_id in enumerate((DONE, FAILED)):
        operations.ask(operation_id, "verify", None, Verify("file:///data/one"), NOW_MS + number)
        mine = operations.begin(operation_id, "app-1 pid 4242", NOW_MS + 10)
        assert mine is not None
        mine = operations.note(mine, at="half")
        operations.tell(mine, 3, 10, "reading")
        if operation_id == DONE:
            operations.complete(mine, {"ok": True}, NOW_MS + 20)
        else:
            operations.fail(mine, {"error": "it was away", "kind": "unavailable"}, NOW_MS + 20)
    numbers = [
        sample("holdfast_alert_threshold", 10.0, "shop", "state_size"),
        sample("holdfast_state_bytes", 12.0, "shop", "visits", "0 dedupe"),
    ]
    standing, events = evaluate(numbers, {}, NOW_MS)
    totals: dict[tuple[str, tuple[str, ...]], float] = {("holdfast_rows_total", ("shop", "visits")): 41.0}
    AlertStore(place).save(
        "shop", NOW_MS, samples=numbers, totals=totals, standing=standing, events=events, told=WAITING
    )
    home_token(place)


def write_registry(place: Path, version: int = VERSION) -> None:
    """A registry as a version of it was: the upgrades of `jobs.registry.schema` taken back."""
    place.mkdir(exist_ok=True)
    registry = Registry(StateHome(place).registry)
    registry.start_job(JOB)
    first = registry.start_attempt("shop", 4243, NOW_MS - 89_000, recovers=False)
    registry.end_attempt("shop", first, "failed", FAILURE, NOW_MS - 85_000)
    second = registry.start_attempt("shop", 4244, NOW_MS - 84_000, recovers=True)
    registry.queries_started("shop", second, [QUERY], NOW_MS - 82_000, ["redis://redis.example:6379/0"])
    registry.add_batch("shop", second, BATCH)
    registry.request("shop", "stop", NOW_MS)
    registry.add_savepoint("shop", SAVEPOINT)
    if version == VERSION:
        return
    with closing(sqlite3.connect(registry.path)) as db:
        db.execute("ALTER TABLE jobs DROP COLUMN savepoint_catalog")
        db.execute("ALTER TABLE jobs DROP COLUMN kind")
        db.execute("DROP VIEW attempt_kinds")
        since = (
            "databases",
            "standbys",
            "dropped_attempts",
            "leaders",
            "recoveries",
            *(("savepoints",) if version == 1 else ()),
        )
        for table in since:
            db.execute(f"DROP TABLE {table}")
        for table, column, gone in (("batches", "body", "load_ms"), ("attempts", "failure", "cause")):
            db.execute(f"UPDATE {table} SET {column} = json_remove({column}, '$.{gone}')")
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()


def unpacked(name: str, folder: Path) -> Path:
    """What was packed once, in a folder of the test's own."""
    with tarfile.open(PACKED / f"{name}.tar.xz") as archive:
        archive.extractall(folder / name, filter="data")
    return folder / name


def pack(folder: Path, target: Path) -> None:
    """All files, the same of them beside each other."""
    target.parent.mkdir(exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                data = file.read_bytes()
                info = tarfile.TarInfo(str(file.relative_to(folder)))
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))


VARYING = (
    (re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{8}-b[0-9]+-[0-9a-f]{4}"), "SAVEPOINT"),
    (re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z-[0-9a-f]{8}"), "TIME-CHANCE"),
    (re.compile(r"objects/[0-9a-f]/[0-9a-f]{64}"), "objects/DIGIT/SHA-256"),
    (re.compile(r"[0-9a-f]{24}"), "HASH"),
    (re.compile(r"\b1800000001\b"), "TOKEN"),
)
SPARKS = ("commits", "metadata", "offsets", "sources", "state")


def files_by_pattern(folder: Path) -> dict[str, list[str]]:
    """Every file of ours by its name, with what varies left out, and the fields in it."""
    found: dict[str, set[str]] = {}
    for file in sorted(folder.rglob("*")):
        path = str(file.relative_to(folder))
        if not file.is_file() or any(part in SPARKS for part in Path(path).parts) or path.endswith(".crc"):
            continue
        for pattern, word in VARYING:
            path = pattern.sub(word, path)
        found.setdefault(path, set()).update(fields_of(file))
    return {path: sorted(fields) for path, fields in sorted(found.items())}


def fields_of(file: Path) -> Iterator[str]:
    """The fields of JSON, in one document or line by line, and the tables and columns of a database."""
    data = file.read_bytes()
    if data.startswith(b"SQLite format 3"):
        yield from columns_of(file)
        return
    for text in [data, *data.splitlines()]:
        try:
            value = json.loads(text.rpartition(b"\t")[0] or text)
        except ValueError:
            continue
        yield from field_paths(value)
        if text is data:
            return


def columns_of(file: Path) -> Iterator[str]:
    with closing(sqlite3.connect(file)) as db:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version:
            yield f"version {version}"
        kept = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (table,) in db.execute(kept).fetchall():
            columns = [(row[1], row[2]) for row in db.execute(f"PRAGMA table_info({table})")]
            for column, kind in columns:
                yield f"{table}.{column} {kind}"
                for (value,) in db.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"):
                    if isinstance(value, str) and value[:1] in "[{":
                        yield from (f"{table}.{column}.{path}" for path in field_paths(json.loads(value)))


def field_paths(value: Any, before: str = "") -> Iterator[str]:
    """`a.b[].c` for each field; what is no word of ours, such as a path or a key, is `*`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            word = name if re.fullmatch(r"[a-z][a-zA-Z_]*[0-9]*", name) else "*"
            path = f"{before}.{word}" if before else word
            yield path
            yield from field_paths(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from field_paths(inner, f"{before}[]")


def main(names: Iterable[str]) -> None:
    socket.gethostname = lambda: "app-1"
    for name in names:
        with tempfile.TemporaryDirectory(prefix="written-", dir="/tmp") as temporary:
            folder = Path(temporary)
            write(folder)
            shutil.rmtree(folder / "no-home", ignore_errors=True)
            pack(folder, PACKED / f"{name}.tar.xz")
            print(PACKED / f"{name}.tar.xz")  # noqa: T201 - says what it has made


if __name__ == "__main__":
    main(sys.argv[1:] or ["state"])
