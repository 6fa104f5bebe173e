"""Checkpoints with state in a database, by the verbs that read files: read, saved, restored, moved."""

from __future__ import annotations

import datetime as dt
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import grid_queries
import pytest
from grid_queries import GAP_MS, KINDS, WINDOW_MS, Event, Row, in_the_end
from grid_runs import PARTITIONS_KEY, PROVIDERS, run
from jvm_table import JvmTable
from state_databases import StateDatabase

import holdfast as hf
from holdfast import checkpoints, savepoints
from holdfast.changes import reshaping
from holdfast.checkpoints.state.contents import contents
from holdfast.errors import Conflict, NotFound
from holdfast.external.view import open_checkpoint
from holdfast.savepoints.address import StateAddress
from holdfast.savepoints.restoring import RestoreKind, plan_restore, restore
from holdfast.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.usefixtures("guards_wait_no_time")]
Settings = Callable[[dict[str, str]], None]


class Query:
    """A query of the grid over three files, of which the last ends every window and session."""

    def __init__(self, spark: SparkSession, folder: Path, kind: str) -> None:
        self._spark = spark
        self.folder = folder
        self.kind = kind
        self.made = grid_queries.files(3, count=2, size=40)
        self.given = 0

    def give(self, files: int) -> None:
        """Have so many more files."""
        for number in range(self.given, self.given + files):
            grid_queries.write(self.folder, number, self.made[number])
        self.given += files

    def run(self, checkpoint: Path) -> list[Row]:
        """Take what there is."""
        return run(self._spark, self.kind, self.folder, checkpoint)

    def events(self) -> tuple[list[Event], list[Event]]:
        """What both sides have been given."""
        given = self.made[: self.given]
        return [each for left, _ in given for each in left], [each for _, right in given for each in right]

    def expect(self, rows: list[Row]) -> None:
        """See that these are all rows that there are to be."""
        kind = KINDS[self.kind]
        assert in_the_end(rows, kind.key_columns) == kind.model(*self.events())


def in_state(kind: str, left: list[Event]) -> Counter[Row]:
    """What the state of a kind is, by a model: every window is open, and so are the newest sessions."""
    if kind == "aggregate":
        return KINDS[kind].model(left, [])
    if kind == "dedupe":
        return Counter({(who, amount) for who, amount, _ in left})
    if kind == "window":
        return Counter((ts // WINDOW_MS * WINDOW_MS, who) for who, _, ts in left)
    last = max(ts for _, _, ts in left)
    every = KINDS["session"].model([*left, (grid_queries.LAST, 0, last + 10 * GAP_MS)], [])
    return Counter({row: n for row, n in every.items() if row[1] > last})


def read_state(kind: str, checkpoint: Path) -> Counter[Row]:
    """The same, out of the database."""
    (state,) = hf.state(checkpoint).operators()[0].states
    found: Counter[Row] = Counter()
    for row in hf.state(checkpoint).arrow(state.name).read_all().to_pylist():
        if kind == "aggregate":
            found[row["who"], row["count"], row["sum"], row["max"]] += 1
        elif kind == "dedupe":
            found[row["who"], row["amount"]] += 1
        elif kind == "window":
            found[since_epoch(row["window"]["start"]), row["who"]] += row["count"]
        else:
            begin, end = (since_epoch(row["session_window"][side]) for side in ("start", "end"))
            found[begin, end, row["who"], row["count"]] += 1
    return found


def since_epoch(moment: dt.datetime) -> int:
    """A time in milliseconds."""
    return grid_queries.ms(moment.replace(tzinfo=None))


@pytest.mark.parametrize("kind", ["aggregate", "window", "session", "dedupe", "join"])
def test_saved_and_restored_while_the_query_goes_on(
    spark: SparkSession, settings: Settings, database: StateDatabase, tmp_path: Path, kind: str
) -> None:
    """The original and what was restored each go on exactly, in stores of their own."""
    settings({**database.conf, PARTITIONS_KEY: "2"})
    query = Query(spark, tmp_path, kind)
    checkpoint, again = tmp_path / "checkpoint", tmp_path / "again"
    query.give(2)
    before = query.run(checkpoint)
    if kind != "join":
        assert read_state(kind, checkpoint) == in_state(kind, query.events()[0])
    assert checkpoints.verify(checkpoint).problems == ()
    taken = savepoints.take(checkpoint, tmp_path / "savepoints", deep=True)
    query.give(1)
    query.expect([*before, *query.run(checkpoint)])
    ended = contents(open_checkpoint(checkpoint))
    assert savepoints.verify(taken.uri, deep=True).ok
    savepoints.restore(taken.uri, again)
    assert contents(open_checkpoint(again)) == contents(open_checkpoint(checkpoint), taken.manifest.batch_id)
    query.expect([*before, *query.run(again)])
    assert contents(open_checkpoint(checkpoint)) == ended == contents(open_checkpoint(again))


def test_moved_there_and_back(
    spark: SparkSession, settings: Settings, database: StateDatabase, tmp_path: Path
) -> None:
    """From RocksDB to the database, out of it into other partitions, and on: every answer is right."""
    query = Query(spark, tmp_path, "session")
    places = [tmp_path / name for name in ("first", "second", "third")]
    settings({**PROVIDERS["rocksdb2"], PARTITIONS_KEY: "2"})
    query.give(1)
    rows = query.run(places[0])
    there = reshaping.migrate(
        places[0], places[1], backend=database.kind, database=database.address, stopped=True
    )
    assert there.before == there.after == contents(open_checkpoint(places[1]))
    settings({**database.conf, PARTITIONS_KEY: "2"})
    query.give(1)
    rows += query.run(places[1])
    last: reshaping.BackendName
    last, provider = ("rocksdb", "rocksdb2") if database.kind == "redis" else ("memory", "memory")
    back = reshaping.migrate(places[1], places[2], backend=last, partitions=3, stopped=True)
    assert (back.plan.backend_before, back.plan.after.backend) == (database.kind, last)
    assert back.before == back.after
    settings({**PROVIDERS[provider], PARTITIONS_KEY: "2"})
    query.give(1)
    query.expect([*rows, *query.run(places[2])])


def test_every_version_that_is_kept_is_read(spark: SparkSession, database: StateDatabase) -> None:
    """While tasks write: attempts under way, batches that run again, versions that are forgotten."""
    chance, name = Random(5), "test:{python/0/0/default}"
    table = JvmTable.of(database.kind, spark, database.server.address, name)
    store = database.store(name)
    versions: dict[int, dict[bytes, bytes]] = {0: {}}
    newest = 0
    for _ in range(25):
        again = newest > 1 and chance.random() < 0.3
        attempt = table.begin(newest - 1 if again else newest, "run-1")
        newest = int(attempt.version()) + 1
        changes = {
            str(chance.randrange(60)).encode(): chance.choice([None, b"", bytes([chance.randrange(256)])])
            for _ in range(20)
        }
        table.stage(attempt, changes)
        database.describe(name)
        assert store.scan(newest - 1)[1] == versions[newest - 1]
        table.commit(attempt, "run-1")
        made = {**versions[newest - 1], **changes}
        versions[newest] = {field: value for field, value in made.items() if value is not None}
        if chance.random() < 0.2:
            table.clean(3)
        kept = store.look().attempts
        assert {version: store.scan(version)[1] for version in kept} == {v: versions[v] for v in kept}
    table.clean(3)
    with pytest.raises(NotFound, match="does not have this version"):
        store.scan(newest - 4)
    table.close()


KILLED = """
import os, signal, sys
from holdfast import savepoints
from holdfast.external.cassandra_store import CassandraStore
from holdfast.external.redis_store import RedisStore

kind = {"Cassandra": CassandraStore, "Redis": RedisStore}[sys.argv.pop(1)]
whole, given = kind.write, []

def write(self, *arguments):
    given.append(whole(self, *arguments))
    if len(given) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return given[-1]

kind.write = write
savepoints.restore(*sys.argv[1:])
"""


def test_a_restore_that_is_killed_is_begun_again(
    spark: SparkSession, settings: Settings, database: StateDatabase, tmp_path: Path
) -> None:
    """Spark refuses what it has left, and nothing of it stays in the database."""
    settings({**database.conf, PARTITIONS_KEY: "2"})
    query = Query(spark, tmp_path, "aggregate")
    checkpoint, again = tmp_path / "checkpoint", tmp_path / "again"
    query.give(2)
    rows = query.run(checkpoint)
    taken = savepoints.take(checkpoint, tmp_path / "savepoints")
    words = [database.title, taken.uri, str(again)]
    ended = subprocess.run([sys.executable, "-c", KILLED, *words], check=False)
    assert ended.returncode == -signal.SIGKILL
    query.give(1)
    with pytest.raises(Exception, match="MISSING_METADATA_FILE"):
        query.run(again)
    savepoints.restore(taken.uri, again)
    assert len(database.listed(taken.manifest.query_id)) == 4
    assert len(database.heads(taken.manifest.query_id)) == 4
    query.expect([*rows, *query.run(again)])
    with pytest.raises(Conflict):
        savepoints.restore(taken.uri, again)
    # As a drill has it, which must not write to the database.
    catalog, savepoint_id = StateAddress.resolve(taken.uri).open_savepoint()
    target = LocalStorage(tmp_path / "drill")
    restore(catalog, target, plan_restore(catalog, savepoint_id, target, RestoreKind.RESTORE, in_files=True))
    query.expect([*rows, *query.run(tmp_path / "drill")])
    assert checkpoints.read(tmp_path / "drill").provider == "HDFSBackedStateStoreProvider"
    assert len(database.listed(taken.manifest.query_id)) == 4
