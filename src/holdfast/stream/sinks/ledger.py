"""The batch ledger, with which each batch is written once, by the current owner of its sink.

Spark repeats a batch that is not recorded as committed. Also, a process that was frozen or disconnected may
continue after a different process has taken over. A ledger consists of two small tables in the database of
the results:

- `holdfast_fence`: a token per sink. Each start of a query claims the sink and raises the token; a writer
  with an older token is rejected.
- `holdfast_batches`: the written batches, with the query that wrote them.

Results, batch record and fence are in one transaction: either all of them are committed, or none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.clock import now_ms
from holdfast.errors import Conflict, HoldfastError, Invalid, Unavailable
from holdfast.stream.sinks.database import Connection, Database, sink_digest, translated
from holdfast.stream.sinks.mysql import MySQL
from holdfast.stream.sinks.postgresql import PostgreSQL
from holdfast.stream.sinks.sqlite import SQLite

Clock: TypeAlias = Callable[[], int]
# Takes the newest batch of a query in a ledger; returns the newest earlier batch that the ledger must have.
Owed: TypeAlias = Callable[[int | None], int | None]

# A former owner that still runs may reconnect between its eviction and the next attempt, but only for a
# while.
EVICTIONS = 3
# The number of low bits of a token, which count the claims within a leader's term; the high bits are the
# term.
CLAIM_BITS = 20
# A savepoint set when a batch's transaction begins. It is gone after that transaction, even if a new one
# began.
_BEGINNING = "holdfast_batch"


@dataclass(frozen=True, slots=True)
class SinkOwner:
    """The owner of a sink and its token.

    Example:
        ledger = hf.ledger("sqlite:///shop.db")
        token = ledger.claim("till", "host pid 1")
        owner: hf.SinkOwner | None = ledger.holder("till")
        assert owner is not None and (owner.owner, owner.token) == ("host pid 1", token)
    """

    sink: str
    token: int
    claimed_ms: int
    owner: str


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """The record of a written batch; `rows` is None if the writer did not count them.

    Example:
        ledger = hf.ledger("sqlite:///shop.db")
        token = ledger.claim("till", "host pid 1")
        with ledger.transaction("till", "query-1", 0, token) as transaction:
            transaction.execute("create table sales (drink text)")
        records: list[hf.BatchRecord] = ledger.history("till")
        assert [(record.batch_id, record.token) for record in records] == [(0, token)]
    """

    sink: str
    query_id: str
    batch_id: int
    token: int
    rows: int | None
    committed_ms: int


class Transaction:
    """The transaction of one batch. The first statement begins it and locks the sink.

    Nothing is locked before the first statement, so do slow work, such as reading the batch, first.
    Statements use the driver's placeholders: `?` in SQLite, `%s` in PostgreSQL and MySQL. Do not commit or
    roll back yourself, because the record of the batch must be in the same transaction.

    Attributes:
        rows: The number of rows that the batch wrote, for its record, or None if not counted.
        stage: The prefix of the names of this sink's staging tables.
        token: The token of the writer.
        batch_id: The id of the batch.
        afterwards: The steps after the commit, whose errors are ignored.

    Example:
        import sqlite3

        connection = sqlite3.connect("shop.db")
        connection.execute("create table sales (drink text, amount double)")
        connection.close()


        def write(batch, batch_id: int, tx: hf.Transaction) -> None:
            for row in batch.select("drink", "amount").collect():
                tx.execute("insert into sales values (?, ?)", tuple(row))


        sink = hf.sink(events, name="sales").foreach_batch(write, ledger="sqlite:///shop.db")
        query = sink.start(checkpoint="checkpoints/sales", trigger=hf.available_now())
        query.awaitTermination()
        assert [record.batch_id for record in hf.ledger("sqlite:///shop.db").history("sales")] == [0]
    """

    def __init__(
        self,
        connection: Connection,
        database: Database,
        lock: Callable[[], None],
        *,
        sink: str,
        token: int,
        batch_id: int,
    ) -> None:
        self.rows: int | None = None
        self.stage = f"holdfast_stage_{sink_digest(sink)}_"
        self.token = token
        self.batch_id = batch_id
        self.database = database
        self.afterwards: list[Callable[[], None]] = []
        self._connection = connection
        self._lock = lock
        self._locked = False
        self._ended = False
        self._error: Exception | None = None

    @property
    def connection(self) -> Connection:
        """Return the driver's connection, inside the transaction.

        Raises:
            Conflict: A different owner has claimed the sink.
            Unavailable: The lock of the sink was not granted in time, or an error such as a deadlock has
                ended the transaction.
            Invalid: A different error of a statement has ended the transaction.
        """
        if self._ended:
            raise self._gone(self._error) from self._error
        if not self._locked:
            self._lock()
            self._locked = True
        return self._connection

    @property
    def staging(self) -> Connection:
        """Return the connection before its transaction has begun, for temporary tables only."""
        if self._locked:
            raise Invalid(
                "the transaction has begun, so rows can no longer be staged",
                code="HF-E2365",
                hint="use `staging` first, then `connection` or `execute`",
            )
        return self._connection

    def execute(self, statement: str, values: Sequence[object] | Mapping[str, object] = ()) -> Any:
        """Run one statement and return the driver's cursor; raises the errors of `connection`."""
        with self._watched() as connection:
            return connection.execute(statement, values)

    def executemany(self, statement: str, values: Iterable[Sequence[object]]) -> None:
        """Run one statement for each tuple of values; raises the errors of `connection`."""
        with self._watched() as connection:
            connection.cursor().executemany(statement, values)

    def begin_again(self) -> None:
        """Roll back; the next statement begins the transaction and checks the owner again."""
        with translated(self.database):
            self.database.run(self._connection, "ROLLBACK")
        self._locked = False

    def require_whole(self) -> None:
        """Check that all statements so far are in one transaction; begin it if there was no statement.

        Raises:
            Unavailable: An error such as a deadlock has ended the transaction, or the database cannot be
                reached.
            Invalid: A different error, or a statement that commits or rolls back, has ended the transaction.
        """
        connection = self.connection
        try:
            with translated(self.database):
                self.database.run(connection, f"RELEASE SAVEPOINT {_BEGINNING}")
        except HoldfastError:
            raise
        except Exception as error:
            raise self._gone(self._error or error) from error

    @contextmanager
    def _watched(self) -> Iterator[Connection]:
        """Record an error that ends the transaction, because later statements would be committed at once."""
        connection = self.connection
        try:
            with translated(self.database):
                yield connection
        except Exception as error:
            self._error, self._ended = error, True
            with suppress(Exception):
                self._ended = not self.database.in_transaction(connection)
            raise

    def _gone(self, error: Exception | None) -> HoldfastError:
        found = getattr(error, "found", None) or str(error).partition("\n")[0]
        if isinstance(error, Unavailable):
            return Unavailable(
                f"the transaction of batch {self.batch_id} ended before the batch was recorded",
                code="HF-E5069",
                where=self.database.address,
                found=found,
                hint=_DO_NOT_CATCH,
            )
        return Invalid(
            f"the transaction of batch {self.batch_id} ended before the batch was recorded",
            code="HF-E2529",
            where=self.database.address,
            found=found,
            hint=_DO_NOT_CATCH,
        )


_DO_NOT_CATCH: Final = (
    "do not catch errors of statements in the batch function, and do not commit or roll back in it;"
    " before the batch runs again, remove the rows that such a statement has committed"
)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The batch ledger of one database. It keeps no connection: each call opens one and closes it.

    Create it with `hf.ledger(address)`, `Ledger.sqlite`, `Ledger.postgres` or `Ledger.mysql`.

    Args:
        database: The database.
        clock: Returns the current time in epoch milliseconds.
        retain: The number of batches to keep per sink and query. Only the newest one is required.

    Example:
        ledger = hf.ledger("sqlite:///shop.db")
        token = ledger.claim("till", "host pid 1")
        with ledger.transaction("till", "query-1", 0, token) as transaction:
            transaction.execute("create table sales (drink text, amount real)")
            transaction.execute("insert into sales values (?, ?)", ("tea", 2.6))
        assert [batch.batch_id for batch in ledger.history("till")] == [0]

        with ledger.transaction("till", "query-1", 0, token) as transaction:
            assert transaction is None  # batch 0 is already recorded
    """

    database: Database
    clock: Clock = field(default=now_ms, repr=False)
    retain: int = 1000

    def __post_init__(self) -> None:
        if self.retain < 1:
            raise Invalid(
                "retain= is out of range",
                code="HF-E2366",
                found=f"retain={self.retain}",
                expected="at least 1",
                hint="set retain=1, or remove it",
            )

    @classmethod
    def sqlite(cls, path: str | Path, *, patience_s: float = 30.0, clock: Clock = now_ms) -> Ledger:
        """Return a ledger in an SQLite file on a local disk; the file is created if missing.

        The file allows one writer at a time. Do not use it on a network file system, where locks are
        unreliable.

        Args:
            path: The path of the file. Its directory must exist.
            patience_s: The maximum wait for a lock in seconds; then Unavailable is raised.
            clock: Returns the current time in epoch milliseconds.
        """
        return cls(SQLite(Path(path).absolute(), patience_s), clock)

    @classmethod
    def postgres(cls, dsn: str, *, patience_s: float = 30.0, clock: Clock = now_ms) -> Ledger:
        """Return a ledger in a PostgreSQL database. Requires `pip install 'holdfast[postgres]'`.

        Args:
            dsn: The address, `postgresql://user@host:port/database` or libpq's `key=value` format.
            patience_s: The maximum wait for a connection or a lock in seconds; then Unavailable is raised. A
                claim that has waited that long ends the sessions of the sink's former owner.
            clock: Returns the current time in epoch milliseconds.

        Raises:
            Unavailable: The driver is not installed.
            Invalid: The address is malformed.
        """
        return cls(PostgreSQL(dsn, patience_s), clock)

    @classmethod
    def mysql(cls, address: str, *, patience_s: float = 30.0, clock: Clock = now_ms) -> Ledger:
        """Return a ledger in a MySQL or MariaDB database. Requires `pip install 'holdfast[mysql]'`.

        Args:
            address: The address, `mysql://user@host:port/database`. `?tls=on` encrypts the connection and
                checks the server's certificate; `?tls=/path/to/ca.pem` checks it with the certificates in
                that file.
            patience_s: The maximum wait for a connection or a lock in seconds; then Unavailable is raised. A
                claim that has waited that long ends the sessions of the sink's former owner.
            clock: Returns the current time in epoch milliseconds.

        Raises:
            Unavailable: The driver is not installed.
            Invalid: The address is malformed.
        """
        return cls(MySQL(address, patience_s), clock)

    def claim(self, sink: str, owner: str, *, term: int | None = None) -> int:
        """Claim a sink, and return the token to write with.

        Call it once, when a query starts. After the claim, the ledger rejects every older token. If a former
        owner still holds the sink's lock after `patience_s`, the claim ends that owner's session in
        PostgreSQL and MySQL. In SQLite the claim fails: end the process of the former owner, then start the
        query again.

        Args:
            sink: The name of the sink.
            owner: The name of the owner, for error messages.
            term: With several supervisors, the token of the leader's term. A claim in an earlier term than
                the last one is rejected. Without a term, the last claim wins.

        Raises:
            Conflict: The sink has been claimed under a later term.
            Unavailable: The database cannot be reached, or the sink stays locked.
        """
        if not sink:
            raise Invalid(
                "the sink has no name",
                code="HF-E2367",
                hint='name the sink, as in hf.sink(df, name="orders")',
            )
        for _ in range(EVICTIONS):
            try:
                return self._raise_token(sink, owner, term)
            except Unavailable as error:  # noqa: PERF203  each try may wait as long as the patience
                if not self.database.came_between(error.__cause__) and not self.database.evict(sink):
                    raise
        return self._raise_token(sink, owner, term)

    def _raise_token(self, sink: str, owner: str, term: int | None) -> int:
        least, above = (0, _NO_TERM) if term is None else (term << CLAIM_BITS, (term + 1) << CLAIM_BITS)
        with self._connected(sink) as connection, translated(self.database):
            with self._begun(connection):
                self.database.run(
                    connection,
                    self.database.claims,
                    (sink, least + 1, self.clock(), owner, above),
                )
                fence = self._fence(connection, sink)
            assert fence is not None  # noqa: S101  the sink has just been claimed
            if fence.token >= above:
                raise Conflict(
                    f"a later leader has claimed the sink {sink!r}",
                    code="HF-E4065",
                    where=self.database.address,
                    found=f"term {term}",
                    expected=f"term {fence.token >> CLAIM_BITS}, held by {fence.owner}",
                    hint="end this process",
                )
            return fence.token

    def holder(self, sink: str) -> SinkOwner | None:
        """Return the owner of a sink, or None if it was never claimed."""
        with self._connected(sink) as connection, translated(self.database):
            return self._fence(connection, sink)

    @contextmanager
    def transaction(
        self,
        sink: str,
        query_id: str,
        batch_id: int,
        token: int,
        *,
        repeats: bool = False,
        owed: Owed | None = None,
    ) -> Iterator[Transaction | None]:
        """Write a batch and its record in one transaction.

        The value of the `with` statement is the transaction to write with, or None if the batch is already
        recorded and must not be written again. At the end of the block, the batch is recorded and committed;
        an exception rolls everything back. The batch is not recorded if the transaction ended within the
        block, through a deadlock that the caller ignored or a statement that commits.

        A Spark query repeats only its last batch. An older batch means that the query's checkpoint was
        replaced by an older one, whose batches may have different rows than the recorded batches with the
        same ids. Such a batch is rejected, because skipping it would lose rows. With `repeats` the caller
        guarantees that batches have the same input as before; then an older batch counts as recorded.

        A database that was restored from a backup, or replaced by a lagging replica, has lost batches that
        the checkpoint has committed. With `owed` such a ledger is rejected.

        Args:
            sink: The name of the sink.
            query_id: The id of the query.
            batch_id: The id of the batch.
            token: The token returned by the claim.
            repeats: Whether a batch that runs again has the same input as before.
            owed: A function that takes the newest recorded batch and returns the newest earlier batch that
                the ledger must have, or None. It is called only if the previous batch is not recorded.

        Raises:
            Conflict: The token is outdated, the ledger is ahead of the query's checkpoint, or the ledger has
                lost batches.
            Unavailable: The database cannot be reached, or the sink stays locked.
            Invalid: The transaction ended before the batch could be recorded.
        """
        with self._connected(sink, token) as connection:
            with translated(self.database):
                # The batch is read before the token: a token that is valid afterwards was valid at that read,
                # so a former owner never takes a batch of a later owner for its own.
                newest = self._newest(connection, sink, query_id)
                self._admit(self._fence(connection, sink), sink, token)
                recorded = self._recorded(newest, sink, query_id, batch_id, repeats)
            if owed is not None and not recorded:
                self._require_owed(newest, sink, query_id, batch_id, owed)
            if recorded:
                yield None
                return

            def lock() -> None:
                with translated(self.database):
                    self.database.begin(connection)
                    self._admit(self._fence(connection, sink, lock=True), sink, token)
                    self.database.run(connection, f"SAVEPOINT {_BEGINNING}")

            transaction = Transaction(
                connection, self.database, lock, sink=sink, token=token, batch_id=batch_id
            )
            try:
                yield transaction
                transaction.require_whole()
                with translated(self.database):
                    self._record(connection, sink, query_id, batch_id, token, transaction.rows)
                    self.database.run(connection, "COMMIT")
            except BaseException as error:
                self._abandon(connection, sink, token, error)
                raise
            for step in transaction.afterwards:
                with suppress(Exception):
                    step()

    def history(self, sink: str) -> list[BatchRecord]:
        """Return the recorded batches of a sink, the oldest first."""
        with self._connected(sink) as connection, translated(self.database):
            rows = self.database.run(
                connection,
                """SELECT sink, query_id, batch_id, token, "rows", committed_ms FROM holdfast_batches
                   WHERE sink = ? ORDER BY committed_ms, token, batch_id""",
                (sink,),
            )
            return [BatchRecord(*row) for row in rows.fetchall()]

    def rewind(self, sink: str, query_id: str, batch_id: int) -> int:
        """Delete the records of a query's batches after `batch_id`, so that they can be written again.

        Use it after a checkpoint was deliberately replaced by an older one. The rows of those batches are not
        deleted; delete them yourself.
        """
        with self._connected(sink) as connection, translated(self.database), self._begun(connection):
            forgotten = self.database.run(
                connection,
                "DELETE FROM holdfast_batches WHERE sink = ? AND query_id = ? AND batch_id > ?",
                (sink, query_id, batch_id),
            )
            return int(forgotten.rowcount)

    def accept_loss(self, sink: str, query_id: str, batch_id: int) -> None:
        """Record a batch that the database has lost, so that the query can continue without its rows.

        Use it after a database was restored to an earlier state, if there is no newer backup.

        Args:
            sink: The name of the sink.
            query_id: The id of the query.
            batch_id: The newest batch that the query's checkpoint has committed.

        Raises:
            Conflict: The sink was never claimed in this ledger, or the ledger has this batch or a later one.
        """
        with self._connected(sink) as connection, translated(self.database), self._begun(connection):
            fence = self._fence(connection, sink, lock=True)
            newest = self._newest(connection, sink, query_id)
            if fence is None:
                raise Conflict(
                    f"cannot accept the loss of batch {batch_id}: no query has written to the sink {sink!r}"
                    " with this ledger",
                    code="HF-E4074",
                    where=self.database.address,
                    hint="check the address of the ledger and the name of the sink",
                )
            if newest is not None and newest >= batch_id:
                raise Conflict(
                    f"cannot accept the loss of batch {batch_id} of the sink {sink!r}, because the ledger has"
                    " this batch",
                    code="HF-E4066",
                    where=self.database.address,
                    found=f"batch {newest} as the newest batch of query {query_id}",
                    expected=f"a newest batch before batch {batch_id}",
                    hint="check the id of the query, and list the batches of the sink with"
                    f" `history({sink!r})` of the ledger",
                )
            self._record(connection, sink, query_id, batch_id, fence.token, None)

    @contextmanager
    def _connected(self, sink: str, token: int | None = None) -> Iterator[Connection]:
        with translated(self.database):
            connection = self.database.connect(sink, token)
        try:
            yield connection
        finally:
            connection.close()

    @contextmanager
    def _begun(self, connection: Connection) -> Iterator[None]:
        # After a failure the connection is closed immediately, which rolls back.
        self.database.begin(connection)
        yield
        self.database.run(connection, "COMMIT")

    def _fence(self, connection: Connection, sink: str, *, lock: bool = False) -> SinkOwner | None:
        suffix = self.database.row_lock if lock else ""
        row = self.database.run(
            connection,
            "SELECT sink, token, claimed_ms, owner FROM holdfast_fence WHERE sink = ?" + suffix,  # noqa: S608
            (sink,),
        ).fetchone()
        return SinkOwner(*row) if row else None

    def _admit(self, fence: SinkOwner | None, sink: str, token: int) -> None:
        if fence is None:
            raise Conflict(
                f"the sink {sink!r} is not claimed",
                code="HF-E4067",
                where=self.database.address,
                hint="claim the sink first; if it was claimed before, the ledger has been replaced",
            )
        if fence.token != token:
            raise Conflict(
                f"the sink {sink!r} has a different owner",
                code="HF-E4068",
                where=self.database.address,
                found=f"token {token}",
                expected=f"token {fence.token}, held by {fence.owner} since {_utc(fence.claimed_ms)}",
                hint="end this process; two queries that write to one table need different sink names",
            )

    def _newest(self, connection: Connection, sink: str, query_id: str) -> int | None:
        (newest,) = self.database.run(
            connection,
            "SELECT max(batch_id) FROM holdfast_batches WHERE sink = ? AND query_id = ?",
            (sink, query_id),
        ).fetchone()
        return None if newest is None else int(newest)

    def _require_owed(self, newest: int | None, sink: str, query_id: str, batch_id: int, owed: Owed) -> None:
        before = -1 if newest is None else newest
        least = owed(newest) if before < batch_id - 1 else None
        if least is None or before >= least:
            return
        raise Conflict(
            f"the ledger of sink {sink!r} has lost batches of the query",
            code="HF-E4069",
            where=self.database.address,
            found=f"no batch of query {query_id}" if newest is None else f"batch {newest} as the newest",
            expected=f"batch {least}, which the query's checkpoint has committed",
            hint="restore a newer backup of the database, or a savepoint that ends with the ledger's newest"
            " batch; to continue without the lost rows, call"
            f" `accept_loss({sink!r}, {query_id!r}, {least})` of the ledger",
        )

    def _recorded(self, newest: int | None, sink: str, query_id: str, batch_id: int, repeats: bool) -> bool:
        if repeats and newest is not None and batch_id <= newest:
            return True
        if newest is not None and batch_id < newest:
            raise Conflict(
                f"the ledger of sink {sink!r} is ahead of the query's checkpoint",
                code="HF-E4070",
                where=self.database.address,
                found=f"batch {batch_id} of query {query_id}",
                expected=f"batch {newest}, the newest batch of the ledger, or a later one",
                hint="if the checkpoint was replaced by an older one, delete the rows that batch"
                f" {batch_id} and later ones wrote, and call"
                f" `rewind({sink!r}, {query_id!r}, {batch_id - 1})` of the ledger; or continue on a fork"
                " (`holdfast fork`), which has a new query id, and give it its own table",
            )
        return bool(newest == batch_id)

    def _record(
        self, connection: Connection, sink: str, query_id: str, batch_id: int, token: int, rows: int | None
    ) -> None:
        self.database.run(
            connection,
            """INSERT INTO holdfast_batches (sink, query_id, batch_id, token, "rows", committed_ms)
               VALUES (?, ?, ?, ?, ?, ?)""",
            (sink, query_id, batch_id, token, rows, self.clock()),
        )
        self.database.run(
            connection,
            "DELETE FROM holdfast_batches WHERE sink = ? AND query_id = ? AND batch_id <= ?",
            (sink, query_id, batch_id - self.retain),
        )

    def _abandon(self, connection: Connection, sink: str, token: int, error: BaseException) -> None:
        """Roll back by closing the connection; if a new owner ended the session, raise the error for that."""
        connection.close()
        if isinstance(error, Unavailable):
            try:
                fence = self.holder(sink)
            except HoldfastError:
                return
            if fence is not None and fence.token != token:
                self._admit(fence, sink, token)


def ledger(address: str | Path | Ledger) -> Ledger:
    """Return the ledger at an address.

    Args:
        address: The address: `postgresql://…`, `mysql://…`, `sqlite:///relative`, `sqlite:////absolute`, or
            the path of an SQLite file.

    Raises:
        Invalid: The database is not supported.

    Example:
        ledger = hf.ledger("sqlite:///shop.db")
        assert ledger.holder("orders") is None
    """
    if isinstance(address, Ledger):
        return address
    text = str(address)
    if text.startswith(("postgresql://", "postgres://")):
        return Ledger.postgres(text)
    if text.startswith(("mysql://", "mariadb://")):
        return Ledger.mysql(text)
    if text.startswith("sqlite:///"):
        return Ledger.sqlite(text.removeprefix("sqlite:///"))
    if not text or "://" in text or text == ":memory:":
        raise Invalid(
            "unsupported ledger address",
            code="HF-E2368",
            found=text.partition("://")[0] + "://…" if "://" in text else text or "an empty address",
            expected="postgresql://…, mysql://…, sqlite:///file or the path of a file",
            hint='name a file, as in "sqlite:///ledger.db"',
        )
    return Ledger.sqlite(text)


# Above every token: without a term, every claim is accepted.
_NO_TERM = (1 << 63) - 1


def _utc(ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(ms / 1000))
