"""A process that uses an election or a ledger until it is killed, and records each operation with its times.

Arguments: `election` or `ledger`, the address, the file of its record, and its seed. A line is written when
an operation is called, and a line when it returns.
"""

from __future__ import annotations

import json
import random
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.errors import Conflict, Unavailable
from holdfast.ownership.election import LeadershipLost
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage import open_storage
from holdfast.stream.sinks.ledger import Ledger

LEASE_S = 0.4


class Record:
    """The file of one process: every line is written at once, so a kill loses none that was finished."""

    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a", buffering=1)  # noqa: SIM115 - open until the process ends
        self._number = 0

    def call(self, name: str, **known: Any) -> Callable[..., None]:
        """Record the call of an operation; returns what records its end."""
        self._number += 1
        number = self._number
        self._line(number, name=name, call=time.monotonic_ns(), **known)

        def end(outcome: str, at_ns: int | None = None, **values: Any) -> None:
            self._line(number, outcome=outcome, **{"return": at_ns or time.monotonic_ns()}, **values)

        return end

    def _line(self, number: int, **values: Any) -> None:
        self._file.write(json.dumps({"number": number, **values}) + "\n")


def elect(address: str, record: Record, draw: random.Random) -> None:
    """Campaign, lead for a while, and resign or simply stop to renew."""
    election = StorageElection(open_storage(address, "lease"), "job", LEASE_S, time.monotonic, time.time)
    while True:
        end = record.call("win")
        while (term := election.campaign()) is None:
            time.sleep(draw.uniform(0.01, 0.1))
        end("ok", token=term.token)
        for _ in range(draw.randrange(1, 12)):
            end = record.call("hold", token=term.token)
            if (now_ns := time.monotonic_ns()) >= term.until_s * 1e9:
                break
            end("ok", now_ns)
            time.sleep(draw.uniform(0, LEASE_S / 2))
            end = record.call("renew", token=term.token)
            try:
                term = election.renew(term)
            except LeadershipLost:
                end("lost")
                break
            end("ok")
        else:
            if draw.random() < 0.5:
                election.resign(term)


def write(address: str, record: Record, draw: random.Random) -> None:
    """Claim the sink, write batches, some of them twice, and read all rows."""
    ledger = Ledger.sqlite(address, patience_s=0.5)
    while True:
        end = record.call("claim")
        try:
            token = ledger.claim("shop", "worker")
        except Unavailable:  # a frozen process has the lock
            end("unknown")
            continue
        end("ok", token=token)
        for _ in range(draw.randrange(1, 8)):
            last = read(address, record)
            batch = max(0, last + draw.choice([0, 1, 1, 1]))
            value = f"{token}.{draw.randrange(10**9)}"
            end = record.call("write", token=token, batch=batch, value=value)
            try:
                with ledger.transaction("shop", "query", batch, token) as transaction:
                    if transaction is not None:
                        transaction.execute(f"INSERT INTO result VALUES ({batch}, '{value}')")
                        time.sleep(draw.choice([0, 0, 0.02]))
            except Unavailable:
                end("unknown")
                continue
            except Conflict:
                end("refused")
                break
            end("skipped" if transaction is None else "committed")


def read(address: str, record: Record) -> int:
    """Read all rows; returns the newest batch."""
    end = record.call("read")
    with sqlite3.connect(address, timeout=0.5) as connection:
        try:
            rows = connection.execute("SELECT batch, value FROM result ORDER BY batch, rowid").fetchall()
        except sqlite3.OperationalError:
            return -1
        finally:
            connection.rollback()
    connection.close()
    end("ok", value="".join(f"{batch}={value};" for batch, value in rows))
    return max((batch for batch, _ in rows), default=-1)


if __name__ == "__main__":
    use = {"election": elect, "ledger": write}[sys.argv[1]]
    use(sys.argv[2], Record(sys.argv[3]), random.Random(sys.argv[4]))
