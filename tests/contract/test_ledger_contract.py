"""What every ledger must do, whatever its database."""

from __future__ import annotations

import sqlite3
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pytest
from ledger_processes import LEDGERS, database_open, deadlock

from holdfast.errors import Conflict, Corrupt, HoldfastError, Invalid, NotFound, Unavailable
from holdfast.stream.sinks.database import Change, translated
from holdfast.stream.sinks.ledger import BatchRecord, Ledger, SinkOwner, Transaction, ledger
from holdfast.stream.sinks.postgresql import PostgreSQL
from holdfast.stream.sinks.sqlite import SQLite


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1_000

    def __call__(self) -> int:
        return self.now


def patient(at: Ledger, seconds: float) -> Ledger:
    database: Any = at.database
    return replace(at, database=replace(database, patience_s=seconds))


@pytest.fixture(params=LEDGERS)
def address(request: pytest.FixtureRequest, ledger_address: Callable[[str], str]) -> str:
    made = ledger_address(request.param)
    with connected(ledger(made)) as connection:
        connection.execute("CREATE TABLE result (token BIGINT)")
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def at(address: str, clock: Clock) -> Ledger:
    return replace(ledger(address), clock=clock)


class connected:  # noqa: N801  used as a `with` statement
    """A plain connection to a ledger's database."""

    def __init__(self, at: Ledger) -> None:
        self.connection = at.database.connect("looking on")

    def __enter__(self) -> Any:
        return self.connection

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def results(at: Ledger) -> list[int]:
    with connected(at) as connection:
        return [row[0] for row in connection.execute("SELECT token FROM result ORDER BY token").fetchall()]


def write(at: Ledger, token: int, batch_id: int, value: int, query_id: str = "q") -> bool:
    with at.transaction("shop", query_id, batch_id, token) as tx:
        if tx is None:
            return False
        tx.execute(f"INSERT INTO result (token) VALUES ({value})")
        tx.rows = 1
    return True


def test_a_recorded_batch_is_not_written_again(at: Ledger) -> None:
    token = at.claim("shop", "me")
    assert write(at, token, 0, 10)
    assert write(at, token, 1, 11)
    assert not write(at, token, 1, 99)
    assert results(at) == [10, 11]


def test_a_rerun_after_a_new_claim_is_a_no_op_too(at: Ledger) -> None:
    assert write(at, at.claim("shop", "first"), 7, 10)
    assert not write(at, at.claim("shop", "second"), 7, 99)
    assert results(at) == [10]


def test_each_query_and_each_sink_has_batches_of_its_own(at: Ledger) -> None:
    token = at.claim("shop", "me")
    assert write(at, token, 0, 10, "q")
    assert write(at, token, 0, 20, "fork")
    other = at.claim("till", "me")
    with at.transaction("till", "q", 0, other) as tx:
        assert tx is not None
    assert results(at) == [10, 20]


def test_claims_count_up_and_name_the_holder(at: Ledger, clock: Clock) -> None:
    assert at.holder("shop") is None
    assert at.claim("shop", "first") == 1
    clock.now = 5_000
    assert at.claim("shop", "second") == 2
    assert at.claim("till", "first") == 1
    assert at.holder("shop") == SinkOwner("shop", 2, 5_000, "second")


def test_a_stale_owner_is_refused_and_told_by_whom(at: Ledger, clock: Clock) -> None:
    stale = at.claim("shop", "first")
    clock.now = 1_700_000_000_000
    at.claim("shop", "second")
    with pytest.raises(Conflict, match="the sink 'shop' has a different owner") as caught:
        write(at, stale, 0, 10)
    assert caught.value.expected == "token 2, held by second since 2023-11-14 22:13:20 UTC"
    assert results(at) == []


def test_a_claim_for_an_earlier_leader_is_refused_and_one_without_a_leader_is_not(at: Ledger) -> None:
    assert at.claim("table", "nobody's") == 1
    earlier = at.claim("table", "the first leader's", term=7)
    assert at.claim("table", "the first leader's again", term=7) == earlier + 1
    later = at.claim("table", "the second leader's", term=8)
    assert later > earlier + 1
    # It was frozen before it claimed, and wakes after the other has.
    with pytest.raises(Conflict, match="a later leader has claimed the sink") as caught:
        at.claim("table", "the first leader's late driver", term=7)
    assert caught.value.found == "term 7"
    assert caught.value.expected == "term 8, held by the second leader's"
    holder = at.holder("table")
    assert holder is not None
    assert (holder.token, holder.owner) == (later, "the second leader's")
    # Whoever runs the job without standbys from now on is its only supervisor.
    assert at.claim("table", "nobody's") == later + 1
    assert at.claim("table", "a clock's", term=1_800_000_000) < 2**63


def test_batches_that_are_repeated_with_the_same_input_count_as_recorded(at: Ledger) -> None:
    token = at.claim("shop", "me")
    for batch in range(4):
        assert write(at, token, batch, batch)
    with pytest.raises(Conflict, match="ahead"):
        write(at, token, 2, 2)
    for batch in (2, 3):
        with at.transaction("shop", "q", batch, token, repeats=True) as transaction:
            assert transaction is None
    with at.transaction("shop", "q", 4, token, repeats=True) as transaction:
        assert transaction is not None
        transaction.execute("INSERT INTO result (token) VALUES (4)")
    assert results(at) == [0, 1, 2, 3, 4]


def test_a_sink_must_be_claimed_first(at: Ledger) -> None:
    with pytest.raises(Conflict, match="is not claimed"):
        write(at, 1, 0, 10)


def test_a_claim_between_begin_and_first_statement_is_seen(at: Ledger) -> None:
    token = at.claim("shop", "first")

    def write_late() -> None:
        with at.transaction("shop", "q", 0, token) as tx:
            assert tx is not None
            at.claim("shop", "second")
            tx.execute("INSERT INTO result (token) VALUES (1)")

    with pytest.raises(Conflict):
        write_late()
    assert results(at) == []


@pytest.mark.parametrize("read", ["_fence", "_newest"])
def test_a_batch_that_a_later_owner_writes_between_two_reads_is_refused(
    at: Ledger, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """A stale owner was told that its batch is recorded, which the later owner had written."""
    token = at.claim("shop", "first")
    reading = getattr(Ledger, read)

    def read_then_lose(self: Ledger, *arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        value = reading(self, *arguments, **options)
        assert write(at, at.claim("shop", "second"), 0, 2)
        return value

    monkeypatch.setattr(Ledger, read, read_then_lose)
    with pytest.raises(Conflict, match="different owner"):
        write(at, token, 0, 1)
    assert results(at) == [2]


def test_a_claim_before_the_record_of_a_batch_without_statements_is_seen(at: Ledger) -> None:
    token = at.claim("shop", "first")
    with pytest.raises(Conflict), at.transaction("shop", "q", 0, token):
        at.claim("shop", "second")
    assert at.history("shop") == []


def test_an_exception_rolls_everything_back(at: Ledger) -> None:
    token = at.claim("shop", "me")

    def fail_late() -> None:
        with at.transaction("shop", "q", 0, token) as tx:
            assert tx is not None
            tx.executemany(*insert_many(at, [1, 2, 3]))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_late()
    assert results(at) == []
    assert at.history("shop") == []
    assert write(at, token, 0, 10)


@pytest.mark.parametrize(
    ("statement", "there"), [("COMMIT", [1, 2]), ("ROLLBACK", [2]), ("COMMIT; BEGIN", [1])]
)
def test_a_batch_whose_transaction_a_statement_has_ended_is_not_recorded(
    at: Ledger, statement: str, there: list[int]
) -> None:
    token = at.claim("shop", "me")

    def end_early() -> None:
        with at.transaction("shop", "q", 0, token) as tx:
            assert tx is not None
            tx.execute("INSERT INTO result (token) VALUES (1)")
            for part in statement.split("; "):
                tx.execute(part)
            tx.execute("INSERT INTO result (token) VALUES (2)")

    with pytest.raises(Invalid, match="the transaction of batch 0 ended before the batch was recorded"):
        end_early()
    assert results(at) == there
    assert at.history("shop") == []
    assert write(at, token, 0, 10)


def break_off(at: Ledger, tx: Transaction) -> None:
    """Meet an error that ends a transaction, or makes it one that can only be rolled back."""
    if at.database.row_lock == "":
        tx.execute("CREATE TABLE IF NOT EXISTS till (id INTEGER PRIMARY KEY)")
        tx.execute("INSERT OR ROLLBACK INTO till VALUES (1), (1)")
    else:
        with deadlock(at.database, tx.execute) as statement:
            tx.execute(statement)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_function_that_passes_over_the_end_of_its_transaction_has_written_nothing(
    at: Ledger, goes_on: bool
) -> None:
    token = at.claim("shop", "me")

    def pass_over() -> None:
        with at.transaction("shop", "q", 0, token) as tx:
            assert tx is not None
            tx.execute("INSERT INTO result (token) VALUES (1)")
            with suppress(Exception):
                break_off(at, tx)
            if goes_on:
                tx.execute("INSERT INTO result (token) VALUES (2)")

    told = "ended before the batch was recorded|current transaction is aborted"
    with pytest.raises(Exception, match=told) as caught:
        pass_over()
    # A deadlock passes, a broken rule does not.
    assert goes_on or isinstance(caught.value, Invalid if at.database.row_lock == "" else Unavailable)
    assert results(at) == []
    assert at.history("shop") == []
    assert write(at, token, 0, 10)
    assert results(at) == [10]


def test_an_error_that_leaves_the_transaction_as_it_was_may_be_passed_over(at: Ledger) -> None:
    token = at.claim("shop", "me")
    with at.transaction("shop", "q", 0, token) as tx:
        assert tx is not None
        tx.execute("INSERT INTO result (token) VALUES (1)")
        tx.execute("SAVEPOINT mine")
        with suppress(Exception):
            tx.execute("INSERT INTO nowhere (token) VALUES (1)")
        tx.execute("ROLLBACK TO SAVEPOINT mine")
        tx.execute("INSERT INTO result (token) VALUES (2)")
    assert results(at) == [1, 2]
    assert [record.batch_id for record in at.history("shop")] == [0]


def insert_many(at: Ledger, values: list[int]) -> tuple[str, list[tuple[int]]]:
    mark = "?" if at.database.row_lock == "" else "%s"
    return f"INSERT INTO result (token) VALUES ({mark})", [(value,) for value in values]


def test_many_rows_and_values_in_the_drivers_marks(at: Ledger) -> None:
    token = at.claim("shop", "me")
    with at.transaction("shop", "q", 0, token) as tx:
        assert tx is not None
        statement, rows = insert_many(at, [3, 1, 2])
        tx.executemany(statement, rows)
        tx.execute(statement, (4,))
        assert tx.connection.execute("SELECT count(*) FROM result").fetchone() == (4,)
    assert results(at) == [1, 2, 3, 4]


def test_a_wrong_statement_is_the_drivers_own_error(at: Ledger) -> None:
    token = at.claim("shop", "me")

    def write_nowhere() -> None:
        with at.transaction("shop", "q", 0, token) as tx:
            assert tx is not None
            tx.execute("INSERT INTO nowhere (token) VALUES (1)")

    with pytest.raises(Exception, match="nowhere") as caught:
        write_nowhere()
    assert not isinstance(caught.value, HoldfastError)
    assert at.history("shop") == []


def test_a_batch_older_than_the_newest_is_refused_not_skipped(at: Ledger) -> None:
    token = at.claim("shop", "me")
    write(at, token, 4, 10)
    write(at, token, 5, 11)
    with pytest.raises(Conflict, match="ahead of the query's checkpoint") as caught:
        write(at, token, 4, 99)
    assert caught.value.found == "batch 4 of query q"
    assert at.rewind("shop", "q", 3) == 2
    assert write(at, token, 4, 12)


def test_batch_ids_may_have_gaps(at: Ledger) -> None:
    token = at.claim("shop", "me")
    assert write(at, token, 0, 10)
    assert write(at, token, 2, 12)


def test_a_database_that_lost_committed_batches_is_refused(at: Ledger) -> None:
    """Spark has committed batches 0 to 10; a backup brought the database back to batch 5."""
    token = at.claim("shop", "me")
    for batch in range(6):
        write(at, token, batch, batch)
    asked: list[int | None] = []

    def owed(newest: int | None) -> int | None:
        asked.append(newest)
        return 10

    with (
        pytest.raises(Conflict, match="has lost batches of the query") as caught,
        at.transaction("shop", "q", 11, token, owed=owed),
    ):
        pass
    assert (caught.value.found, asked) == ("batch 5 as the newest", [5])
    assert caught.value.expected == "batch 10, which the query's checkpoint has committed"
    assert [record.batch_id for record in at.history("shop")] == list(range(6))
    at.accept_loss("shop", "q", 10)
    with at.transaction("shop", "q", 11, token, owed=owed) as transaction:
        assert transaction is not None
    with pytest.raises(Conflict, match="because the ledger has this batch") as had:
        at.accept_loss("shop", "q", 10)
    assert had.value.found == "batch 11 as the newest batch of query q"
    with pytest.raises(Conflict, match="no query has written to the sink 'till' with this ledger"):
        at.accept_loss("till", "q", 10)


def test_a_ledger_that_has_the_previous_batch_has_lost_none(at: Ledger) -> None:
    """`owed` lists the batches of the checkpoint, so it is called only after a gap."""
    token = at.claim("shop", "me")
    asked: list[int | None] = []
    for batch_id in (0, 1, 2, 4):
        with at.transaction("shop", "q", batch_id, token, owed=asked.append) as transaction:
            assert transaction is not None
    assert asked == [2]


def test_a_database_that_lost_all_batches_is_refused_if_it_had_any(at: Ledger) -> None:
    token = at.claim("shop", "me")
    with (
        pytest.raises(Conflict, match="has lost batches of the query") as caught,
        at.transaction("shop", "q", 4, token, owed=lambda newest: 3 if newest is None else None),
    ):
        pass
    assert caught.value.found == "no batch of query q"
    with at.transaction("shop", "q", 4, token, owed=lambda _newest: None) as transaction:
        assert transaction is not None


def test_maintenance_batches_may_be_missing(at: Ledger) -> None:
    token = at.claim("shop", "me")
    write(at, token, 5, 5)
    with at.transaction("shop", "q", 8, token, owed=lambda _newest: 5) as transaction:
        assert transaction is not None


def test_a_commit_is_on_disk_when_it_returns(at: Ledger) -> None:
    settings = {"SQLite": ("PRAGMA synchronous", (3,)), "PostgreSQL": ("SHOW synchronous_commit", ("on",))}
    setting = settings.get(type(at.database).__name__)
    if setting is None:
        pytest.skip("MySQL has no such setting of a session")
    if isinstance(at.database, PostgreSQL):
        database = replace(at.database, dsn=f"{at.database.dsn}?options=-csynchronous_commit%3Doff")
        at = replace(at, database=database)
    statement, durable = setting
    with connected(at) as connection:
        assert connection.execute(statement).fetchone() == durable


def test_history_tells_who_wrote_what_when(at: Ledger, clock: Clock) -> None:
    write(at, at.claim("shop", "first"), 0, 10)
    clock.now = 2_000
    with at.transaction("shop", "q", 1, at.claim("shop", "second")):
        pass
    assert at.history("shop") == [
        BatchRecord("shop", "q", 0, 1, 1, 1_000),
        BatchRecord("shop", "q", 1, 2, None, 2_000),
    ]
    assert at.history("till") == []


def test_a_ledger_forgets_old_batches_by_itself(at: Ledger) -> None:
    small = replace(at, retain=3)
    token = small.claim("shop", "me")
    for batch_id in range(8):
        write(small, token, batch_id, batch_id)
    write(small, token, 1, 20, "fork")
    assert [(row.query_id, row.batch_id) for row in small.history("shop")] == [
        ("fork", 1),
        ("q", 5),
        ("q", 6),
        ("q", 7),
    ]


class Worker(Protocol):
    """Another process that owns the sink."""

    def line(self) -> str: ...
    def freeze(self) -> None: ...
    def wake(self) -> None: ...


StartWorker: TypeAlias = Callable[[str, str], Worker]


@pytest.mark.fault
@pytest.mark.parametrize("stop_at", ["claimed", "unlocked"])
def test_an_owner_frozen_before_it_wrote_is_refused_when_it_wakes(
    at: Ledger, address: str, start_worker: StartWorker, stop_at: str
) -> None:
    old = start_worker(address, stop_at)
    assert [old.line(), old.line()] == ["token 1", stop_at]
    old.freeze()
    token = at.claim("shop", "successor")
    assert write(at, token, 0, token)
    old.wake()
    assert old.line() == "conflict"
    assert results(at) == [2]


@pytest.mark.fault
def test_an_owner_frozen_while_it_wrote_never_writes_twice(
    at: Ledger, address: str, start_worker: StartWorker
) -> None:
    old = start_worker(address, "written")
    assert [old.line(), old.line()] == ["token 1", "written"]
    old.freeze()
    hasty = patient(at, 0.3)
    if address.startswith("sqlite"):
        with pytest.raises(Unavailable, match="locked by a different process"):
            hasty.claim("shop", "successor")
        old.wake()
        assert old.line() == "committed"
        assert not write(at, at.claim("shop", "successor"), 0, 99)
        assert results(at) == [1]
    else:
        token = hasty.claim("shop", "successor")
        assert write(at, token, 0, token)
        old.wake()
        assert old.line() == "conflict"
        assert results(at) == [2]


@pytest.mark.fault
def test_claims_at_the_same_moment_get_different_tokens(address: str, start_worker: StartWorker) -> None:
    all_at_once = [start_worker(address, "claimed") for _ in range(3)]
    assert sorted(each.line() for each in all_at_once) == ["token 1", "token 2", "token 3"]


def test_a_locked_ledger_is_unavailable(at: Ledger) -> None:
    token = at.claim("shop", "me")
    hasty = patient(at, 0.2)
    with at.transaction("shop", "q", 0, token) as tx:
        assert tx is not None
        tx.execute("INSERT INTO result (token) VALUES (1)")
        with pytest.raises(Unavailable, match="locked"):
            write(hasty, token, 0, 2)
    assert results(at) == [1]


def test_an_owner_that_a_later_owner_keeps_waiting_is_refused(at: Ledger) -> None:
    """The error is the change of the owner, not the lock on which the statement failed."""
    hasty = patient(at, 0.1)
    stale = at.claim("shop", "first")

    def write_late() -> None:
        with hasty.transaction("shop", "q", 0, stale) as tx:
            assert tx is not None
            with at.transaction("shop", "q", 0, at.claim("shop", "second")) as later:
                assert later is not None
                later.execute("INSERT INTO result (token) VALUES (2)")
                with pytest.raises(Unavailable, match="locked") as locked:
                    tx.execute("INSERT INTO result (token) VALUES (1)")
            raise locked.value

    with pytest.raises(Conflict, match="the sink 'shop' has a different owner"):
        write_late()
    assert results(at) == [2]


def test_a_claim_waits_once_for_a_file_that_another_process_has_locked(tmp_path: Path) -> None:
    """SQLite cannot end the session of that process, so a second wait would end like the first one."""
    connections: list[str] = []

    class Counted(SQLite):
        def connect(self, sink: str, token: int | None = None) -> sqlite3.Connection:
            connections.append(sink)
            return super().connect(sink, token)

    database = Counted(tmp_path / "ledger.db", 0.05)
    with database_open(database) as other:
        database.begin(other)
        connections.clear()
        with pytest.raises(Unavailable, match="locked by a different process"):
            Ledger(database).claim("shop", "me")
    assert connections == ["shop"]


@pytest.mark.parametrize(("between", "evicted"), [(True, False), (False, True)])
def test_a_claim_is_tried_again_after_a_conflict_or_the_end_of_an_owner(
    tmp_path: Path, between: bool, evicted: bool
) -> None:
    refusals = ["first", "second"]

    class Contended(SQLite):
        def connect(self, sink: str, token: int | None = None) -> sqlite3.Connection:
            if refusals:
                raise Unavailable(refusals.pop(), code="HF-E5055", hint="again")
            return super().connect(sink, token)

        def came_between(self, error: BaseException | None, change: Change | None = None) -> bool:
            return between

        def evict(self, sink: str) -> bool:
            return evicted

    assert Ledger(Contended(tmp_path / "ledger.db", 0.05)).claim("shop", "me") == 1
    assert refusals == []


def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_bytes(b"this was never a database, " * 100)
    with pytest.raises(Corrupt) as caught:
        Ledger.sqlite(file).claim("shop", "me")
    assert caught.value.where == str(file)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO accounts (id, full_name) VALUES (3, 'a')",
        "INSERT INTO accounts (id, locked) VALUES (3, 1)",
        "SELECT busy FROM accounts",
        "SELECT json_extract('{', '$.readonly')",
    ],
)
def test_words_of_a_wrong_statement_are_not_taken_for_the_state_of_a_file(
    tmp_path: Path, statement: str
) -> None:
    book = Ledger.sqlite(tmp_path / "ledger.db")
    with connected(book) as connection:
        connection.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, locked INTEGER UNIQUE)")
        connection.execute("INSERT INTO accounts VALUES (1, 1)")
    token = book.claim("shop", "me")
    with pytest.raises(sqlite3.Error), book.transaction("shop", "q", 0, token) as tx:
        assert tx is None or tx.execute(statement)


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("PRAGMA query_only = on", "attempt to write a readonly database"),
        ("PRAGMA max_page_count = 1", "database or disk is full"),
    ],
)
def test_a_file_that_takes_no_more_is_unavailable(tmp_path: Path, setting: str, found: str) -> None:
    database = Ledger.sqlite(tmp_path / "ledger.db").database
    with database_open(database) as connection:
        connection.execute(setting)
        with pytest.raises(Unavailable, match="cannot be opened or written") as caught, translated(database):
            connection.execute("CREATE TABLE words AS SELECT zeroblob(100000) AS word")
    assert caught.value.found == found


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("database is locked", Unavailable),
        ("disk I/O error", Unavailable),
        ("unable to open database file", Unavailable),
        ("database disk image is malformed", Corrupt),
        ("file is not a database", Corrupt),
        ("table accounts has no column named full_name", None),
        ("UNIQUE constraint failed: accounts.locked", None),
        ("malformed JSON", None),
    ],
)
def test_an_error_without_a_code_is_told_by_its_whole_text(
    tmp_path: Path, text: str, kind: type[HoldfastError] | None
) -> None:
    """Python 3.10 gives none."""
    told = Ledger.sqlite(tmp_path / "ledger.db").database.translate(sqlite3.OperationalError(text))
    assert told is None if kind is None else isinstance(told, kind)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Ledger.sqlite(tmp_path / "no" / "ledger.db").claim("shop", "me")
    with pytest.raises(Unavailable, match="cannot be opened"):
        Ledger.sqlite(tmp_path).claim("shop", "me")


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_server_that_is_not_there_is_unavailable_and_its_password_is_not_shown(scheme: str) -> None:
    away = ledger(f"{scheme}://me:secret@127.0.0.1:1/shop")
    assert "secret" not in repr(away)
    with pytest.raises(Unavailable) as caught:
        patient(away, 2).claim("shop", "me")
    assert caught.value.where == f"{scheme}://127.0.0.1:1/shop"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:secret@[oops",
        "mysql://me:secret@[oops",
        "mysql://me:secret@h:port/d",
        "mysql://me:secret@h",
        "mysql://me:secret@h/d?ssl=1",
        "mysql://me:secret@h/d?tls=",
        "mysql:///d?password=secret",
    ],
)
def test_an_address_that_cannot_be_understood_is_told_without_its_password(address: str) -> None:
    with pytest.raises(Invalid, match=r"invalid address of a \w+ ledger") as wrong:
        ledger(address)
    assert "secret" not in "".join(traceback.format_exception(wrong.value))


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql+psycopg://shop:secret@db/shop", "postgresql+psycopg://…"),
        ("jdbc:postgresql://db/shop?user=shop&password=secret", "jdbc:postgresql://…"),
        ("Postgres://shop:secret@db/shop", "Postgres://…"),
        (":memory:", ":memory:"),
        ("", "an empty address"),
    ],
)
def test_of_an_address_without_a_ledger_the_scheme_is_shown(address: str, shown: str) -> None:
    with pytest.raises(Invalid, match="unsupported ledger address") as wrong:
        ledger(address)
    assert wrong.value.found == shown


def test_addresses(tmp_path: Path) -> None:
    assert (
        ledger(f"sqlite:///{tmp_path}/a.db") == ledger(tmp_path / "a.db") == Ledger.sqlite(tmp_path / "a.db")
    )
    assert ledger("postgresql://h/d") == Ledger.postgres("postgresql://h/d")
    assert ledger("mysql://h/d") == Ledger.mysql("mysql://h/d")
    same = Ledger.sqlite("x.db")
    assert ledger(same) is same
    for wrong in ("oracle://h/d", "", ":memory:", "sqlite://x"):
        with pytest.raises(Invalid, match="unsupported ledger address"):
            ledger(wrong)
    with pytest.raises(Invalid):
        replace(same, retain=0)
