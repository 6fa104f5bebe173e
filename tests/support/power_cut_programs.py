"""What is cut: a program for each verb and each file that Holdfast keeps.

It runs in a directory with a checkpoint `ck` and a catalog `catalog`, and says when something is promised.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from guard_time import passing_time
from power_cuts import MARK

import holdfast as hf
from holdfast import savepoints
from holdfast.checkpoints.record import Recorder, RecordFile
from holdfast.config.settings import make_directory
from holdfast.jobs.registry.registry import REGISTRY, insert
from holdfast.ownership import checkpoint_guard
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage.local import LocalStorage
from holdfast.storage.shared_database import SharedDatabase

CHECKPOINT, CATALOG, NEW, HOME = Path("ck"), Path("catalog"), Path("made/new"), Path("home")
RECORD, REGISTRY_FILE, LEDGER, ELECTION = (
    HOME / "record.jsonl",
    HOME / "jobs.sqlite",
    "ledger.db",
    Path("all"),
)
KEY = "c3"


def promise(*words: object) -> None:
    """Say what has been promised from here on."""
    sys.stdout.write(f"{MARK} {' '.join(map(str, words))}\n")
    sys.stdout.flush()


def take() -> None:
    """Take two savepoints, the second with most objects of the first."""
    newest = hf.checkpoints.read(CHECKPOINT).batch_id or 0
    for batch in (newest - 1, newest):
        promise(savepoints.take(CHECKPOINT, CATALOG, batch=batch, home=HOME).uri)


def label() -> None:
    """Give a savepoint one label after another."""
    (saved,) = savepoints.list(CATALOG)
    for text in ("first", "second"):
        savepoints.label(saved.uri, text)
        promise(text)


def restore() -> None:
    """Restore a savepoint."""
    savepoints.restore(savepoints.list(CATALOG)[0].uri, NEW)
    promise("made")


def change() -> None:
    """Move the state to three partitions."""
    hf.change(CHECKPOINT, home=HOME).partitions(3).to(NEW, stopped=True)
    promise("made")


def erase() -> None:
    """Erase a key from a catalog and from the checkpoint in place."""
    assert hf.erase(KEY, everywhere=CATALOG, checkpoint=CHECKPOINT, stopped=True, home=HOME).proved
    promise("erased")


def delete() -> None:
    """Delete the older one of two savepoints."""
    savepoints.delete(min(each.uri for each in savepoints.list(CATALOG)))
    promise("deleted")


def gc() -> None:
    """Delete what no savepoint needs."""
    savepoints.gc(CATALOG, older_than="0s")
    promise("swept")


def record() -> None:
    """Record the batches of a checkpoint as they are committed."""
    recorder = Recorder(LocalStorage(CHECKPOINT), RecordFile(RECORD))
    hidden = sorted(Path("hidden").iterdir(), key=lambda path: int(path.name))
    recorder.begin()
    recorder.look()
    for commit in hidden:
        (CHECKPOINT / "commits" / commit.name).write_bytes(commit.read_bytes())
        promise(recorder.look().batch_id)


def registry() -> None:
    """Write rows of the registry, one in each transaction."""
    make_directory(HOME)
    database = SharedDatabase(REGISTRY_FILE, REGISTRY)
    for number in range(4):
        with database.write() as db:
            insert(db, "requests", {"id": number, "job": "shop" * 500, "verb": "stop", "asked_ms": number})
        promise(number)


def ledger() -> None:
    """Write batches of a sink."""
    kept = hf.ledger(f"sqlite:///{LEDGER}")
    token = kept.claim("till", "somebody")
    promise("token", token)
    for batch in range(3):
        with kept.transaction("till", "query", batch, token) as transaction:
            assert transaction is not None
            transaction.execute("create table if not exists sales (batch, text)")
            transaction.execute("insert into sales values (?, ?)", (batch, "x" * 9000))
        promise("batch", batch)


def lease() -> None:
    """Be elected again and again, with a record for later owners."""
    for number in range(3):
        candidate = StorageElection(LocalStorage(ELECTION), "job", 30.0, lambda: 0.0, lambda: 1000.0)
        term = candidate.campaign()
        assert term is not None
        promise("token", term.token)
        candidate.write_record(term, f"{number}".encode())
        promise("record", number)
        candidate.resign(term)


PROGRAMS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (take, label, restore, change, erase, delete, gc, record, registry, ledger, lease)
}

if __name__ == "__main__":
    checkpoint_guard.MACHINE_TIMING = passing_time()
    PROGRAMS[sys.argv[1]]()
