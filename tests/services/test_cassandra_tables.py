"""Stores in Cassandra: what is cleaned, what a late writer may do, who is let in, what damage does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from cassandra_server import STORE_PASSWORD, CassandraServer
from jvm_table import ExternalError, JvmTable
from tcp_proxy import CountingProxy
from test_external_tables import made

import holdfast as hf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A store's name that no other test has."""
    return f"cassandra:{{{next(_numbers)}}}"


@pytest.fixture
def table(spark: SparkSession, cassandra_server: CassandraServer, name: str) -> Iterator[JvmTable]:
    """A store."""
    opened = JvmTable.cassandra(spark, cassandra_server.port, name)
    yield opened
    opened.close()


def rows(server: CassandraServer, name: str) -> set[tuple[bytes, int]]:
    """Field and attempt of all rows of a store."""
    return {
        (row.field, row.attempt)
        for row in server.ask("SELECT store, field, attempt FROM holdfast.state_rows")
        if row.store == name and row.field is not None
    }


def test_cleaning_leaves_nothing_of_old_versions_and_dead_attempts(
    table: JvmTable, cassandra_server: CassandraServer, name: str
) -> None:
    for version in range(6):
        table.stage(table.begin(version, "run"), {b"never": b"committed"})
        made(table, version, "run", {b"hot": b"%d" % version, b"new%d" % version: b"x", b"old": None})
    table.clean(1)
    # Attempts 10 and 12 have made the two kept versions; number 11 may still commit.
    first = {(b"new%d" % version, 2 * version + 2) for version in range(6)}
    assert rows(cassandra_server, name) == first | {(b"hot", 10), (b"hot", 12), (b"old", 12), (b"never", 11)}
    table.begin(6, "run")
    table.clean(1)
    assert rows(cassandra_server, name) == first | {(b"hot", 10), (b"hot", 12), (b"old", 12)}
    for version in (6, 7):
        made(table, version, "run", {b"hot": None})
    table.clean(1)
    assert rows(cassandra_server, name) == first | {(b"hot", 15)}
    noted = cassandra_server.ask("SELECT store, attempt FROM holdfast.state_changes")
    assert {row.attempt for row in noted if row.store == name} == {15}


def test_cleaning_that_is_cut_anywhere_changes_no_kept_version(
    spark: SparkSession, cassandra_server: CassandraServer, table: JvmTable, name: str
) -> None:
    versions: dict[int, dict[bytes, bytes]] = {0: {}}
    with CountingProxy(cassandra_server.port) as proxy:
        for version, cut_at in enumerate([None, None, None, *range(14_000, 32_000, 1500)]):
            changes = {b"%d" % (number % 40): b"%d" % version for number in range(version, version + 20)}
            gone = dict.fromkeys([b"%d" % (number % 40) for number in range(version, version + 5)])
            table.stage(table.begin(version, "run"), {b"dead": b"x"})
            made(table, version, "run", {**changes, **gone})
            versions[version + 1] = {
                field: value for field, value in {**versions[version], **changes}.items() if field not in gone
            }
            proxy.allow(cut_at)
            cleaner = JvmTable.cassandra(spark, proxy.port, name, patience_ms=0)
            with suppress(ExternalError):
                cleaner.clean(2)
            cleaner.close()
            for kept in range(max(0, version - 1), version + 2):
                assert table.scan(kept) == versions[kept], (cut_at, kept)
    table.clean(1)
    newest, before = max(versions), max(versions) - 1
    assert table.scan(newest) == versions[newest]
    assert table.scan(before) == versions[before]
    # Each field has the row that the oldest kept version reads, and perhaps one more.
    found = rows(cassandra_server, name)
    assert max(len([field for field, _ in found if field == one]) for one, _ in found) <= 2


def test_what_a_dead_attempt_writes_late_never_counts(
    spark: SparkSession, cassandra_server: CassandraServer, table: JvmTable, name: str
) -> None:
    """Not even where all older versions were forgotten in the meantime."""
    slow = JvmTable.cassandra(spark, cassandra_server.port, name)
    made(table, 0, "first", {b"a": b"1"})
    late, open_still = slow.begin(1, "first"), slow.begin(1, "first")
    slow.stage(late, {b"a": b"wrong"})
    for version in range(1, 6):
        made(table, version, "second", {b"b": b"%d" % version})
    table.clean(1)
    assert rows(cassandra_server, name) == {(b"a", 1), (b"b", 7), (b"b", 8)}
    for attempt in (late, open_still):
        slow.stage(attempt, {b"a": b"wrong", b"c": b"wrong"})
    assert table.scan(6) == {b"a": b"1", b"b": b"5"} == slow.scan(6)
    assert table.read(6, [b"a", b"c"]) == [b"1", None]
    for attempt in (late, open_still):
        with pytest.raises(ExternalError, match="a later run of the query has taken over"):
            slow.commit(attempt, "first")
        slow.discard(attempt)
    assert (b"c", 2) not in rows(cassandra_server, name)
    slow.close()


def test_a_part_that_something_else_has_deleted_is_noticed(
    table: JvmTable, cassandra_server: CassandraServer, name: str
) -> None:
    made(table, 0, "run", {b"a": b"1"})
    table.check()
    cassandra_server.ask(f"DELETE FROM holdfast.state_rows WHERE store = '{name}' AND bucket = 7")
    with pytest.raises(ExternalError, match=r"lacks 1 of 64 parts at version 1, among them part 7\. They"):
        table.check()
    cassandra_server.ask(f"DELETE FROM holdfast.state_head WHERE store = '{name}'")
    with pytest.raises(
        ExternalError, match=r"store .* is missing from .* but the checkpoint is at version 1"
    ):
        table.begin(1, "run")
    with pytest.raises(ExternalError, match="its head row is missing"):
        table.begin(0, "run")


def test_what_is_not_as_it_has_to_be_is_an_error_that_says_what_to_do(
    spark: SparkSession, cassandra_server: CassandraServer
) -> None:
    settings = hf.Cassandra(cassandra_server.address, keyspace="not_there")
    with pytest.raises(
        ExternalError,
        match=r"the keyspace not_there does not exist .* Run CREATE KEYSPACE .*'datacenter1': 3}",
    ):
        JvmTable.cassandra_as(spark, settings, "x").begin(0, "run")
    settings = hf.Cassandra(cassandra_server.address, keyspace="ends", replication=1)
    opened = JvmTable.cassandra_as(spark, settings, "x")
    made(opened, 0, "run", {b"a": b"1"})
    opened.close()
    cassandra_server.ask("ALTER TABLE ends.state_rows WITH default_time_to_live = 60")
    with pytest.raises(
        ExternalError,
        match=r"state_rows in .* has a default TTL of 60 s, so Cassandra would delete .* Run ALTER TABLE",
    ):
        JvmTable.cassandra_as(spark, settings, "x").begin(1, "run")


def test_only_who_knows_the_password_and_the_certificate_comes_in(
    spark: SparkSession, closed_cassandra: CassandraServer
) -> None:
    right = hf.Cassandra(
        closed_cassandra.address,
        user="cassandra",
        password="cassandra",
        replication=1,
        tls=True,
        trust_store=str(closed_cassandra.trust_store),
        trust_store_password=STORE_PASSWORD,
    )
    wrong = replace(right, password="sesame")
    with pytest.raises(ExternalError, match=r"rejected the user or the password: .* Check both") as refused:
        JvmTable.cassandra_as(spark, wrong, "x").begin(0, "run")
    assert "sesame" not in str(refused.value)
    stranger = replace(right, trust_store=None, trust_store_password=None)
    with pytest.raises(ExternalError, match="did not answer"):
        JvmTable.cassandra_as(spark, stranger, "x", patience_ms=0).begin(0, "run")
    table = JvmTable.cassandra_as(spark, right, "x")
    assert made(table, 0, "run", {b"a": b"1"}) == 1
    table.close()
