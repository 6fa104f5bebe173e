"""Ledgers for the tests, and other processes that write to them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.stream.sinks.database import Database

WORKER = Path(__file__).with_name("ledger_worker.py")
WAIT_S = 60


class Worker:
    """A process that owns a sink; see ledger_worker.py."""

    def __init__(self, address: str, stop_at: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), address, stop_at],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """What it says next; empty once it has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def freeze(self) -> None:
        """Stop it in its tracks, as a long pause of its machine would."""
        self.process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on from where it was."""
        self.process.send_signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """End it with no chance to tidy up."""
        self.process.kill()
        self.process.communicate(timeout=WAIT_S)


@pytest.fixture
def start_worker() -> Iterator[Callable[[str, str], Worker]]:
    """Starts workers, and ends them with the test."""
    started: list[Worker] = []

    def start(address: str, stop_at: str) -> Worker:
        started.append(Worker(address, stop_at))
        return started[-1]

    yield start
    for each in started:
        if each.process.stdout is not None and not each.process.stdout.closed:
            each.kill()


# A parameter for each kind of ledger.
LEDGERS = ["sqlite", *(pytest.param(server, marks=pytest.mark.services) for server in ("postgres", "mysql"))]


def stages(connection: Any, database: Database, begin: str = "holdfast_stage_") -> list[str]:
    """The tables of a database whose names begin so, as those of attempts do."""
    listed = connection.execute(
        f"SELECT table_name FROM information_schema.tables WHERE table_schema = {database.own_schema}"
    )
    return sorted(name for (name,) in listed.fetchall() if name.startswith(begin))


def waits_for_lock(connection: Any, words: str) -> bool:
    """Whether a session of a server waits for another one, in a statement with these words."""
    if hasattr(connection, "pgconn"):
        waiting = "SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return any(words in query for (query,) in connection.execute(waiting).fetchall())
    # Tables of the same are renewed only where they are not looked at for a while.
    state = connection.execute("SHOW ENGINE INNODB STATUS").fetchone()[2]
    return "LOCK WAIT" in state and words in state


class Rival:
    """Another writer to a server, in a transaction of its own.

    Args:
        database: The server's database.
        begins: What it has done when it is made.
    """

    def __init__(self, database: Database, *begins: str) -> None:
        self._looking_on = database.connect("looking on")
        self._session = database.connect("a rival")
        if hasattr(self._session, "pgconn"):
            self._session.execute("SET deadlock_timeout = '1h'")  # the other one finds it
        database.begin(self._session)
        for statement in begins:
            self._session.execute(statement)
        self._waiting: threading.Thread | None = None

    def waits(self, statement: str) -> None:
        """Let it run a statement for which it has to wait, then give up; comes back once it waits."""
        self._waiting = threading.Thread(target=self._run, args=(statement,), daemon=True)
        self._waiting.start()
        self.until_waiting(statement)

    def until_waiting(self, words: str) -> None:
        """Come back once somebody waits for a lock with these words."""
        until = time.monotonic() + WAIT_S
        while not waits_for_lock(self._looking_on, words):
            assert time.monotonic() < until, "nobody waits"
            time.sleep(0.01)

    def commit(self) -> None:
        """Let what it has written count."""
        self._session.execute("COMMIT")

    def leave(self) -> None:
        """Give up what is not committed."""
        if self._waiting is not None:
            self._waiting.join(WAIT_S)
        for session in (self._session, self._looking_on):
            session.close()

    def _run(self, statement: str) -> None:
        with suppress(Exception):
            self._session.execute(statement)
            self._session.execute("ROLLBACK")


@contextmanager
def rival(database: Database, *begins: str) -> Iterator[Rival]:
    """A rival that is gone at the end."""
    made = Rival(database, *begins)
    try:
        yield made
    finally:
        made.leave()


@contextmanager
def deadlock(database: Database, execute: Callable[[str], object]) -> Iterator[str]:
    """Lead a transaction into a deadlock that it loses; gives the statement with which it comes.

    The rival has changed more rows, so MySQL lets it go on.
    """
    with database_open(database) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS lanes (id INTEGER PRIMARY KEY, n INTEGER)")
        connection.execute("DELETE FROM lanes")
        connection.execute(f"INSERT INTO lanes VALUES {', '.join(f'({n}, 0)' for n in range(200))}")
    execute("UPDATE lanes SET n = 1 WHERE id = 0")
    with rival(database, "UPDATE lanes SET n = 2 WHERE id > 0") as other:
        other.waits("UPDATE lanes SET n = 3 WHERE id = 0")
        yield "UPDATE lanes SET n = 1 WHERE id = 1"


@contextmanager
def database_open(database: Database) -> Iterator[Any]:
    """A plain connection to a ledger's database."""
    connection = database.connect("looking on")
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def ledger_address(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Makes the address of a new ledger: in "sqlite", "postgres" or "mysql"."""

    def make(database: str) -> str:
        if database in ("postgres", "mysql"):
            server: Any = request.getfixturevalue(f"{database}_server")
            return str(server.database())
        directory: Path = request.getfixturevalue("tmp_path")
        return f"sqlite:///{directory}/ledger.db"

    return make
