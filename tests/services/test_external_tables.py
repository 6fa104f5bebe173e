"""Stores in external databases: which attempt may commit, what is read at which version, what damage does."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from cassandra_server import CassandraServer
from jvm_table import ExternalError, JvmTable
from loopback import free_ports
from redis_server import RedisServer
from tcp_proxy import CountingProxy
from tikv_server import RUN, CountedRequests, TikvServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.services]

Open = Callable[[], JvmTable]
Server = RedisServer | CassandraServer | TikvServer
_numbers = itertools.count()


class Network(Protocol):
    """Connections to a server that can be cut."""

    @property
    def address(self) -> str:
        """Where they are made."""

    @property
    def direct(self) -> str:
        """Where nothing is cut."""

    @property
    def passed(self) -> int:
        """How much has passed since `allow`: bytes, and of TiKV requests."""

    def allow(self, number: int | None, *, once: bool = False) -> None:
        """End all connections after so much has passed; None for never, `once` for no more after that."""

    def mend(self) -> None:
        """Pass on everything from now."""


@pytest.fixture(params=["redis", "cassandra", "tikv"])
def kind(request: pytest.FixtureRequest) -> str:
    """A database."""
    return str(request.param)


@pytest.fixture
def address(request: pytest.FixtureRequest, kind: str) -> str:
    """Where a server of it is, for tests that do nothing to the server."""
    if kind == "tikv":
        return str(request.getfixturevalue("tikv_address"))
    found: Server = request.getfixturevalue(f"{kind}_server")
    return found.address


@pytest.fixture
def network(request: pytest.FixtureRequest, kind: str) -> Iterator[Network]:
    """A server of it, with connections that can be cut."""
    if kind == "tikv":
        # Its driver tells where its stores are, so no proxy would be asked.
        yield CountedRequests(request.getfixturevalue("own_tikv"))
        return
    with CountingProxy(request.getfixturevalue(f"{kind}_server").port) as proxy:
        yield proxy


@pytest.fixture
def own_server(request: pytest.FixtureRequest, kind: str) -> Server:
    """A server of it that the test may freeze or kill."""
    found: Server = request.getfixturevalue(f"own_{kind}")
    return found


@pytest.fixture
def reopen(spark: SparkSession, kind: str, address: str) -> Iterator[Open]:
    """Opens one store of a database, as often as it is called, each time as another executor would."""
    opened: list[JvmTable] = []
    name = f"{RUN if kind == 'tikv' else ''}test:{{{next(_numbers)}}}"

    def one_more() -> JvmTable:
        opened.append(JvmTable.of(kind, spark, address, name))
        return opened[-1]

    yield one_more
    for table in opened:
        table.close()


def made(table: JvmTable, version: int, run: str, changes: dict[bytes, bytes | None]) -> int:
    """Make the version after this one; how many fields it has."""
    attempt = table.begin(version, run)
    table.stage(attempt, changes)
    return table.commit(attempt, run)


def test_any_history_reads_as_a_plain_model_says(reopen: Open) -> None:
    """Versions, attempts that are given up, batches that run again, cleaning: at random, with a seed."""
    chance = Random(11)
    table = reopen()
    versions: dict[int, dict[bytes, bytes]] = {0: {}}
    newest, reached, run, retain = 0, 0, 0, 4
    for _ in range(60):
        step = chance.random()
        if step < 0.15:
            # The query starts again, perhaps with its last batch.
            run += 1
            table = reopen()
            newest = chance.choice([version for version in versions if reached <= version <= newest])
            for older in [version for version in versions if version < reached]:
                with pytest.raises(ExternalError, match=f"at version {older}, but a later batch"):
                    table.begin(older, str(run))
        elif step < 0.25:
            table.clean(retain)
            versions = {version: held for version, held in versions.items() if version >= newest - retain}
        changes = {
            str(chance.randrange(80)).encode(): chance.choice([None, b"", bytes([chance.randrange(256)]) * 9])
            for _ in range(chance.randrange(30))
        }
        attempt, reached = table.begin(newest, str(run)), newest
        staged = dict(versions[newest])
        for part in (dict(list(changes.items())[::2]), changes):
            table.stage(attempt, part)
            staged.update({field: value for field, value in part.items() if value is not None})
            for field in [field for field, value in part.items() if value is None]:
                staged.pop(field, None)
        assert table.scan(newest, attempt) == staged
        if chance.random() < 0.2:
            table.discard(attempt)
        else:
            assert table.commit(attempt, str(run)) == len(staged) == table.size()
            newest += 1
            versions = {version: held for version, held in versions.items() if version < newest}
            versions[newest] = staged
        other = reopen() if chance.random() < 0.1 else table
        for version in chance.sample(sorted(versions), min(2, len(versions))):
            fields = [str(number).encode() for number in chance.sample(range(80), 20)]
            assert other.read(version, fields) == [versions[version].get(field) for field in fields]
            assert other.scan(version) == versions[version]
    table.check()


def test_an_attempt_of_an_earlier_run_cannot_commit(reopen: Open) -> None:
    stale, fresh = reopen(), reopen()
    made(stale, 0, "first", {b"a": b"1"})
    late = stale.begin(1, "first")
    stale.stage(late, {b"a": b"wrong"})
    made(fresh, 1, "second", {b"b": b"2"})
    with pytest.raises(ExternalError, match="a later run of the query has taken over: second"):
        stale.commit(late, "first")
    with pytest.raises(ExternalError, match="a later run of the query has taken over: second"):
        stale.begin(2, "first")
    assert fresh.scan(2) == {b"a": b"1", b"b": b"2"}


def test_a_run_that_was_frozen_before_its_first_batch_cannot_undo_later_versions(reopen: Open) -> None:
    """The frozen run has read from the checkpoint that it begins at version 2, and has never begun."""
    frozen, other = reopen(), reopen()
    expected = {}
    for version, run in enumerate(["first", "first", "second", "second", "second"]):
        made(other, version, run, {b"%d" % version: run.encode()})
        expected[b"%d" % version] = run.encode()
    with pytest.raises(ExternalError, match=r"at version 2, but a later batch .* has begun at version 4"):
        frozen.begin(2, "frozen")
    assert other.scan(5) == expected
    # The run that made the later versions continues, and the next one after it.
    made(other, 5, "second", {b"5": b"second"})
    made(frozen, 6, "third", {b"6": b"third"})
    assert other.scan(7) == {**expected, b"5": b"second", b"6": b"third"}
    frozen.check()


def test_an_attempt_of_a_batch_that_is_over_cannot_commit(reopen: Open) -> None:
    slow, quick = reopen(), reopen()
    late = slow.begin(0, "run")
    slow.stage(late, {b"a": b"wrong"})
    made(quick, 0, "run", {b"a": b"1"})
    following = quick.begin(1, "run")
    with pytest.raises(ExternalError, match="late to commit version 1: the query is at 1"):
        slow.commit(late, "run")
    with pytest.raises(
        ExternalError, match="began at version 0, but a later batch of the query has begun at version 1"
    ):
        slow.begin(0, "run")
    quick.stage(following, {b"b": b"2"})
    quick.commit(following, "run")
    assert quick.scan(2) == {b"a": b"1", b"b": b"2"}


def test_of_two_attempts_at_a_batch_the_later_one_counts_and_they_do_not_mix(reopen: Open) -> None:
    one, other = reopen(), reopen()
    made(one, 0, "run", {b"stays": b"0", b"goes": b"0"})
    first, second = one.begin(1, "run"), other.begin(1, "run")
    one.stage(first, {b"a": b"first", b"goes": None})
    other.stage(second, {b"b": b"second"})
    assert one.scan(1, first) == {b"stays": b"0", b"a": b"first"}
    assert other.scan(1, second) == {b"stays": b"0", b"goes": b"0", b"b": b"second"}
    one.commit(first, "run")
    assert other.commit(second, "run") == 3
    assert other.scan(2) == {b"stays": b"0", b"goes": b"0", b"b": b"second"}
    assert other.changes(2) == {b"b": b"second"}
    # Asked again because the answer was lost: the same answer, and nothing changes.
    assert other.commit(second, "run") == 3
    assert other.scan(2) == {b"stays": b"0", b"goes": b"0", b"b": b"second"}


def test_a_version_that_is_not_there_is_never_taken_for_an_empty_one(reopen: Open) -> None:
    table = reopen()
    with pytest.raises(
        ExternalError, match=r"store .* is missing from .* but the checkpoint is at version 3"
    ):
        table.begin(3, "run")
    for version in range(8):
        made(table, version, "run", {str(version).encode(): b"x"})
    table.clean(2)
    with pytest.raises(
        ExternalError, match=r"version 4 of store .* is no longer in .* the newest version is 8\. "
    ):
        table.begin(4, "again")
    with pytest.raises(ExternalError, match=r"version 0 of store .* is no longer in"):
        table.begin(0, "again")
    with pytest.raises(ExternalError, match=r"version 9 of store .* is no longer in"):
        table.begin(9, "again")
    assert table.scan(6) == {str(version).encode(): b"x" for version in range(6)}


@pytest.mark.parametrize("kind", ["redis"])
def test_cleaning_leaves_nothing_of_old_versions_and_dead_attempts(
    reopen: Open, redis_server: RedisServer
) -> None:
    table = reopen()
    for version in range(6):
        table.stage(table.begin(version, "run"), {b"never": b"committed"})
        made(table, version, "run", {str(number).encode(): b"x" for number in range(version, version + 100)})
    prefix = f"test:{{{next(_numbers) - 1}}}"
    table.clean(1)
    kept = {name for name in redis_server.ask("KEYS", f"{prefix}:*").split() if ":d:" not in name}
    # The last attempt of the batch that is not over may still commit.
    attempts = {name.split(":")[3] for name in kept if ":u:" in name or ":r:" in name}
    assert len(attempts) == 2, kept
    table.begin(6, "run")
    table.clean(1)
    kept = {name for name in redis_server.ask("KEYS", f"{prefix}:*").split() if ":r:" in name}
    assert kept == set()


@pytest.mark.parametrize("kind", ["redis"])
def test_a_store_of_which_something_else_has_deleted_a_part_is_refused(
    reopen: Open, redis_server: RedisServer
) -> None:
    table = reopen()
    made(table, 0, "run", {str(number).encode(): b"x" for number in range(500)})
    table.check()
    redis_server.ask("DEL", f"test:{{{next(_numbers) - 1}}}:d:7")
    with pytest.raises(
        ExternalError, match=r"has \d+ of 500 fields\. The others were deleted outside Holdfast"
    ):
        table.check()


def cuts(kind: str, network: Network) -> Iterator[int | None]:
    """First none, then after so many bytes, of TiKV after each request, until there were not so many."""
    yield None
    first, step = (1, 1) if kind == "tikv" else (600, max(900, network.passed // 16))
    for cut_at in itertools.count(first, step):
        yield cut_at
        if network.passed < cut_at:
            return


def test_a_connection_that_is_cut_anywhere_in_a_batch_leaves_the_old_or_the_new(
    spark: SparkSession, kind: str, network: Network
) -> None:
    """The connection ends after so many bytes; then another executor goes on."""
    name, before = f"test:{{{next(_numbers)}}}", {f"old{number}".encode(): b"0" * 30 for number in range(80)}
    changes: dict[bytes, bytes | None] = {f"new{number}".encode(): b"1" * 30 for number in range(80)}
    changes |= dict.fromkeys(list(before)[:20])
    after = {**before, **changes}
    expected = {field: value for field, value in after.items() if value is not None}
    outcomes, lost = set(), False
    direct = JvmTable.of(kind, spark, network.direct, name)
    made(direct, 0, "run0", dict(before))
    made(direct, 1, "run0", {})
    for number, cut_at in enumerate(cuts(kind, network)):
        run = f"run{number + 1}"
        network.allow(cut_at)
        table = JvmTable.of(kind, spark, network.address, name, patience_ms=0)
        attempt = None
        try:
            attempt = table.begin(1, run)
            table.stage(attempt, changes)
            table.commit(attempt, run)
            told = True
        except ExternalError:
            told = False
        table.close()
        network.mend()
        # A task gives up what has failed; that it was decided, and the answer lost, it cannot know.
        if attempt is not None and not told:
            direct.discard(attempt)
        # An executor that comes finishes what was decided; it reads one or the other.
        direct.begin(1, f"{run}-look")
        found = direct.scan(2)
        assert found == expected if told else found in (before, expected), cut_at
        if cut_at is not None:
            outcomes.add("old" if found == before else "new")
            lost = lost or (found == expected and not told)
        # Whoever runs the batch again makes the same.
        assert made(direct, 1, f"{run}-again", changes) == len(expected)
        assert direct.scan(2) == expected
        assert direct.scan(1) == before
        made(direct, 1, f"{run}-back", {})
        # Else each time there would be more to read past, and more bytes pass.
        direct.clean(1)
    assert outcomes == {"old", "new"}
    # Of TiKV each request was cut, so also the one that decides.
    assert lost or kind != "tikv"
    direct.check()
    direct.close()


def test_an_answer_that_is_lost_anywhere_in_a_batch_is_asked_for_again(
    spark: SparkSession, kind: str, network: Network
) -> None:
    """The connection is cut once: the batch is made all the same, and nothing of it twice."""
    name, before = f"test:{{{next(_numbers)}}}", {f"old{number}".encode(): b"0" * 30 for number in range(80)}
    direct = JvmTable.of(kind, spark, network.direct, name)
    made(direct, 0, "run", dict(before))
    for number, cut_at in enumerate(cuts(kind, network)):
        changes: dict[bytes, bytes | None] = {f"new{number}".encode(): b"1" * 30, b"old1": b"%d" % number}
        changes |= dict.fromkeys([f"old{number + 2}".encode()])
        network.allow(cut_at, once=True)
        table = JvmTable.of(kind, spark, network.address, name)
        count = made(table, number + 1, "run", changes)
        table.close()
        network.mend()
        before.update({field: value for field, value in changes.items() if value is not None})
        del before[f"old{number + 2}".encode()]
        assert count == len(before) == direct.size(), cut_at
        assert direct.scan(number + 2) == before, cut_at
    direct.close()


def test_giving_up_what_has_committed_changes_nothing(reopen: Open) -> None:
    """A task whose commit was not answered in time gives up, and it may have committed."""
    table = reopen()
    attempt = table.begin(0, "run")
    table.stage(attempt, {b"a": b"1"})
    table.commit(attempt, "run")
    table.discard(attempt)
    table.clean(1)
    assert reopen().scan(1) == {b"a": b"1"}


def test_a_server_that_is_frozen_is_waited_for(spark: SparkSession, kind: str, own_server: Server) -> None:
    table = JvmTable.of(kind, spark, own_server.address, "frozen", patience_ms=30_000)
    attempt = table.begin(0, "run")
    table.stage(attempt, {b"a": b"1"})
    own_server.freeze()
    timer = threading.Timer(1, own_server.thaw)
    timer.start()
    assert table.commit(attempt, "run") == 1
    timer.join()
    assert table.scan(1) == {b"a": b"1"}


def test_a_server_that_is_killed_and_comes_back_has_lost_nothing(
    spark: SparkSession, kind: str, own_server: Server
) -> None:
    table = JvmTable.of(kind, spark, own_server.address, "killed", patience_ms=300_000)
    made(table, 0, "run", {b"a": b"1"})
    attempt = table.begin(1, "run")
    table.stage(attempt, {b"b": b"2"})
    own_server.kill()
    starting = threading.Timer(0.3, own_server.start)
    starting.start()
    assert table.commit(attempt, "run") == 2
    starting.join()
    assert table.scan(2) == {b"a": b"1", b"b": b"2"}


def test_a_server_that_is_gone_is_an_error_that_says_what_is_not_known(
    spark: SparkSession, kind: str, own_server: Server
) -> None:
    # A server that has just started may take longer for its first answer than the other waits.
    patient = JvmTable.of(kind, spark, own_server.address, "gone")
    patient.begin(0, "run")
    patient.close()
    table = JvmTable.of(kind, spark, own_server.address, "gone", patience_ms=1000)
    attempt = table.begin(0, "run")
    own_server.kill()
    with pytest.raises(ExternalError, match=r"did not answer for .* may not have taken effect"):
        table.commit(attempt, "run")
    own_server.start()
    (nobody,) = free_ports(1)
    with pytest.raises(ExternalError, match="did not answer"):
        JvmTable.of(kind, spark, f"127.0.0.1:{nobody}", "nobody", patience_ms=0).begin(0, "run")


def test_a_server_that_is_full_refuses_a_batch_and_takes_it_when_there_is_room(
    spark: SparkSession, own_redis: RedisServer
) -> None:
    table = JvmTable.redis(spark, own_redis.port, "full")
    made(table, 0, "run", {b"a": b"1"})
    large: dict[bytes, bytes | None] = {str(number).encode(): b"x" * 5000 for number in range(600)}
    attempt = table.begin(1, "run")
    used = int(own_redis.ask("INFO", "memory").partition("used_memory:")[2].split()[0])
    own_redis.ask("CONFIG", "SET", "maxmemory", str(used + (1 << 20)))
    with pytest.raises(ExternalError, match=r"is out of memory, so the batch was not committed"):
        _stage_piecemeal(table, attempt, large)
    assert table.scan(1) == {b"a": b"1"}
    own_redis.ask("CONFIG", "SET", "maxmemory", "0")
    assert made(table, 1, "again", large) == 601


def _stage_piecemeal(table: JvmTable, attempt: Any, changes: dict[bytes, bytes | None]) -> None:
    fields = list(changes)
    for number in range(0, len(fields), 40):
        table.stage(attempt, {field: changes[field] for field in fields[number : number + 40]})


def test_a_server_that_throws_keys_away_is_refused(spark: SparkSession, own_redis: RedisServer) -> None:
    own_redis.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    table = JvmTable.redis(spark, own_redis.port, "evicts")
    with pytest.raises(ExternalError, match=r"maxmemory-policy allkeys-lru.* noeviction"):
        table.check()
