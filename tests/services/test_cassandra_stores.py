"""Stores that Python makes in Cassandra: what a query goes on with, what a kill leaves, who is let in."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from cassandra_server import CassandraServer
from jvm_table import JvmTable
from state_databases import CassandraState
from tcp_proxy import CountingProxy
from test_external_tables import made

from holdfast.errors import Conflict, Invalid, Unavailable
from holdfast.external.cassandra_connection import CassandraConnection
from holdfast.external.databases import database_at
from holdfast.external.store_port import ExternalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

FACTS = {"keySchema": "{}", "valueSchema": "{}", "encoder": "plain"}
ROWS = {b"field %d" % number: b"value %d" % number for number in range(300)}
_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A store's name that no other test has."""
    return f"made:{{query/0/{next(_numbers)}/default/word}}"


@pytest.fixture
def database(cassandra_server: CassandraServer) -> CassandraState:
    """A keyspace."""
    return CassandraState(cassandra_server)


def write(store: ExternalStore, version: int = 5, rows: dict[bytes, bytes] | None = None) -> None:
    """Make a store."""
    store.write(version, (ROWS if rows is None else rows).items(), FACTS, "made:stores:query")


def there(server: CassandraServer, name: str) -> dict[str, Any]:
    """What the tables have of a store: its head, the attempts of its rows, the marks of parts, the notes."""
    (head,) = server.ask(f"SELECT * FROM holdfast.state_head WHERE store = '{name}'")
    rows = [row for row in server.ask("SELECT * FROM holdfast.state_rows") if row.store == name]
    notes = server.ask("SELECT store, attempt FROM holdfast.state_changes")
    return {
        "head": head,
        "attempts": sorted(row.attempt for row in rows if row.field is not None),
        "marks": {row.bucket for row in rows if row.present},
        "notes": {note.attempt for note in notes if note.store == name},
    }


def test_a_query_goes_on_with_a_store_that_was_made(
    spark: SparkSession, database: CassandraState, cassandra_server: CassandraServer, name: str
) -> None:
    """As with one of its own, which is at that version and has been cleaned."""
    store = database.store(name)
    write(store)
    assert store.scan(5)[1] == ROWS
    table, own = (JvmTable.cassandra(spark, cassandra_server.port, each) for each in (name, f"{name} 2"))
    for version in range(5):
        made(own, version, "a run", dict(ROWS))
    for each in (table, own):
        each.check()
        each.discard(each.begin(5, "a run"))
        each.clean(0)
        each.clean(0)
    ours, theirs = (there(cassandra_server, each) for each in (name, f"{name} 2"))
    for kept in ("reached", "fields", "open", "unfolded", "undeleted"):
        assert getattr(ours["head"], kept) == getattr(theirs["head"], kept), kept
    assert (ours["marks"], ours["notes"]) == (theirs["marks"], theirs["notes"]) == (set(range(64)), set())
    assert (ours["attempts"], theirs["attempts"]) == ([1] * 300, [5] * 300)
    changes = {b"field 1": b"other", b"field 2": None, b"new": b""}
    after = {**{field: value for field, value in ROWS.items() if field != b"field 2"}, b"field 1": b"other"}
    after[b"new"] = b""
    for each in (table, own):
        assert made(each, 5, "a run", dict(changes)) == 300
        assert (each.size(), each.scan(6), each.scan(5)) == (300, after, ROWS)
        assert made(each, 6, "a run", {b"new": None}) == 299
        each.clean(1)
    assert store.scan(7)[1] == own.scan(7)
    with pytest.raises(Conflict, match="a query already uses a store"):
        write(store)
    with pytest.raises(Conflict, match="a query already uses a store"):
        store.clear()
    assert table.scan(7) == own.scan(7)
    for each in (table, own):
        each.close()


def test_a_write_that_is_cut_anywhere_is_begun_again(
    spark: SparkSession, database: CassandraState, cassandra_server: CassandraServer, name: str
) -> None:
    """What it has left never counts, whatever the next try has written."""
    chance = Random(3)  # the client compresses what it sends
    large = {field: chance.randbytes(1000) for field in ROWS}
    with CountingProxy(cassandra_server.port) as proxy:
        address = f"cassandra://127.0.0.1:{proxy.port}/holdfast"
        proxy.allow(None)
        write(database_at(address).store(f"{name} 2"), rows=large)
        whole = proxy.passed
        for part in range(2, 8):
            gc.collect()
            proxy.allow(whole * part // 8)
            with suppress(Unavailable):
                write(database_at(address).store(name), rows={b"cut": b"x", **large})
    left = there(cassandra_server, name)
    assert left["attempts"], "no try came as far as to rows"
    assert len(left["head"].versions) == 1
    store = database.store(name)
    rows = {field: value for field, value in ROWS.items() if not field.endswith(b"7")}
    write(store, rows=rows)
    assert store.scan(5)[1] == rows
    found = there(cassandra_server, name)
    assert set(found["attempts"]) == {found["head"].next}
    table = JvmTable.cassandra(spark, cassandra_server.port, name)
    table.check()
    made(table, 5, "a run", {b"new": b"1"})
    table.clean(1)
    assert table.scan(6) == {**rows, b"new": b"1"}
    table.close()


def test_of_two_that_write_one_store_one_is_refused(database: CassandraState, name: str) -> None:
    """The later one has it, whole."""
    store = database.store(name)

    def rows() -> Iterator[tuple[bytes, bytes]]:
        yield b"mine", b"1"
        write(database.store(name), rows={b"other": b"2"})

    with pytest.raises(Conflict):
        store.write(5, rows(), FACTS, "made:stores:query")
    assert store.scan(5)[1] == {b"other": b"2"}


@pytest.mark.parametrize("lost", [1, 2])
def test_a_transaction_whose_answer_is_lost(
    database: CassandraState, name: str, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """It was done, and nobody has said so."""
    whole, calls = CassandraConnection.transact, itertools.count(1)

    def transact(self: CassandraConnection, cql: str, *values: object) -> bool:
        done = whole(self, cql, *values)
        return done and next(calls) != lost

    monkeypatch.setattr(CassandraConnection, "transact", transact)
    store = database.store(name)
    write(store)
    assert store.scan(5)[1] == ROWS


def test_a_store_that_is_given_up_leaves_no_rows(
    database: CassandraState, cassandra_server: CassandraServer, name: str
) -> None:
    """Its name can be used again."""
    store = database.store(name)
    store.clear()
    write(store)
    store.clear()
    assert there(cassandra_server, name)["attempts"] == []
    assert store.look().attempts == {0: 0}
    write(store, 9, {b"a": b"1"})
    assert store.scan(9)[1] == {b"a": b"1"}
    assert store.look().attempts == {9: 2}


def test_a_field_whose_row_was_lost(
    database: CassandraState, cassandra_server: CassandraServer, name: str
) -> None:
    """Spark's tasks do not notice it, and whoever reads all does."""
    from holdfast.errors import Corrupt

    store = database.store(name)
    write(store)
    row = next(row for row in cassandra_server.ask("SELECT * FROM holdfast.state_rows") if row.store == name)
    cassandra_server.ask(
        f"DELETE FROM holdfast.state_rows WHERE store = '{name}' AND bucket = {row.bucket}"
        f" AND field = 0x{row.field.hex()}"
    )
    with pytest.raises(Corrupt, match=r"(?s)deleted outside Holdfast.*299 fields, expected 300"):
        store.scan(5)


def test_only_who_knows_the_password_and_the_certificate_comes_in(
    closed_cassandra: CassandraServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"cassandra://{closed_cassandra.address}/system"
    monkeypatch.setenv("HOLDFAST_CASSANDRA_CA", str(closed_cassandra.certificate))
    with pytest.raises(Invalid, match=r"(?s)rejected the user or the password.*HOLDFAST_CASSANDRA_PASSWORD"):
        database_at(address).ping()
    monkeypatch.setenv("HOLDFAST_CASSANDRA_USER", "cassandra")
    monkeypatch.setenv("HOLDFAST_CASSANDRA_PASSWORD", "sesame")
    with pytest.raises(Invalid, match="rejected the user or the password") as refused:
        database_at(address).ping()
    assert "sesame" not in str(refused.value)
    monkeypatch.setenv("HOLDFAST_CASSANDRA_PASSWORD", "cassandra")
    database_at(address).ping()
    # The certificate is of 127.0.0.1, and of nobody's authority.
    monkeypatch.delenv("HOLDFAST_CASSANDRA_CA")
    with pytest.raises(Unavailable, match="HOLDFAST_CASSANDRA_CA"):
        database_at(address).ping()


def test_a_session_ends_with_who_has_it(database: CassandraState) -> None:
    def open_sessions() -> int:
        gc.collect()
        return sum(thread.name == "Connection heartbeat" for thread in threading.enumerate())

    before = open_sessions()
    one, other = database_at(database.address), database_at(database.address)
    assert open_sessions() == before
    one.ping()
    other.ping()
    assert open_sessions() <= before + 1
    del one, other
    for _ in range(1000):
        if open_sessions() <= before:
            return
        threading.Event().wait(0.01)
    raise AssertionError("a session has not ended")
