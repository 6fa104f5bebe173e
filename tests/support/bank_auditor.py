"""A thread that looks at the bank at random instants while faults hit it, and the log of all that happens."""

from __future__ import annotations

import json
import os
import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bank_audit import (
    ACCOUNTS,
    OPENING,
    Town,
    audit_journal,
    audit_state,
    audit_volume,
    files_read,
    newest_commit,
)

import holdfast as hf

# A checkpoint that is being exchanged is missing for an instant, on a busy machine for longer.
_LOOKS: Final = 40
# An auditor begins when there is something to see.
_LEAST_BATCH: Final = 2


class EventLog:
    """What happens, as lines of JSON.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()
        self.begun = time.monotonic()

    def line(self, **facts: Any) -> None:
        """Write a line."""
        with self._lock:
            at = round(time.monotonic() - self.begun, 2)
            self._file.write(json.dumps({"at": at, **facts}, default=str) + "\n")


class Auditor:
    """Looks at the state and the sinks of a bank at random instants, on a thread of its own.

    Args:
        town: The model.
        accounts: The checkpoint with the money.
        out: The directory of the sinks.
        seed: Decides which look comes when.
        log: Takes a line for each look.
        on_failure: Called when a look finds a difference, before anything is changed.
    """

    def __init__(
        self,
        town: Town,
        accounts: Path,
        out: Path,
        seed: int,
        log: EventLog,
        on_failure: Callable[[], object],
    ) -> None:
        self._town, self._accounts, self._log = town, accounts, log
        self._on_failure = on_failure
        self._chance = random.Random(f"{seed}/auditor")
        self._over = threading.Event()
        self._looking = threading.Lock()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.failure: BaseException | None = None
        self.done: Counter[str] = Counter()
        self.again: Counter[str] = Counter()
        self.looks: dict[str, Callable[[], object]] = {
            "state of the newest batch": lambda: audit_state(town, accounts),
            "state of an older batch": self._older,
            "one account": self._one,
            "sum by SQL": self._sql,
            "journal": lambda: audit_journal(town, out / "journal.db"),
            "journal by batch": lambda: audit_journal(town, out / "journal.db", accounts),
            "windows": lambda: audit_volume(town, out / "volume"),
        }

    def __enter__(self) -> Auditor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @contextmanager
    def away(self) -> Iterator[None]:
        """Do not look while this lasts."""
        with self._looking:
            yield

    def check(self) -> None:
        """Raise what it has found."""
        if self.failure is not None:
            raise self.failure

    def _work(self) -> None:
        while not self._over.wait(self._chance.uniform(0.2, 3)):
            name = self._chance.choice(sorted(self.looks))
            with self._looking:
                try:
                    self._look(name)
                except BaseException as error:
                    self.failure = error
                    self._log.line(failure=name, error="".join(traceback.format_exception(error)))
                    self._on_failure()
                    return

    def _look(self, name: str) -> None:
        """Look; a checkpoint that was exchanged or cleaned up meanwhile is looked at again."""
        for attempt in range(_LOOKS):
            if newest_commit(self._accounts) < _LEAST_BATCH:
                return
            folder = self._folder()
            begun = time.monotonic()
            try:
                found = self.looks[name]()
            except Exception as error:
                removed = isinstance(error, FileNotFoundError | hf.NotFound)
                exchanged = self._folder() != folder
                if not (removed or exchanged) or attempt == _LOOKS - 1:
                    raise
                self.again[f"{name}: {'exchanged' if exchanged else type(error).__name__}"] += 1
                self._log.line(again=name, exchanged=exchanged, error=str(error))
                if self._over.wait(0.5):
                    return
            else:
                self.done[name] += 1
                self._log.line(audit=name, found=found, seconds=round(time.monotonic() - begun, 2))
                return

    def _folder(self) -> int | None:
        """The directory that has the name of the checkpoint now."""
        try:
            return os.stat(self._accounts).st_ino  # noqa: PTH116 - the number alone is wanted
        except FileNotFoundError:
            return None

    def _older(self) -> int:
        """The state of one of the newest batches that the commit log has."""
        commits = sorted(int(each.name) for each in self._accounts.glob("commits/*") if each.name.isdigit())
        return audit_state(self._town, self._accounts, self._chance.choice(commits[-8:]))

    def _one(self) -> str:
        """One account by its key: what it has, as the model says."""
        account = f"a{self._chance.randrange(ACCOUNTS)}"
        states = hf.state(self._accounts)
        balance = states.get("accounts.balance", account)
        pending = states.get("accounts.pending", account)
        have = sum(entry.value["balance"] for entry in balance.entries) if balance.entries else OPENING
        have += sum(entry.value["pending"] for entry in pending.entries)
        files = files_read(self._accounts, states.batch)
        wanted = OPENING + self._town.worth(files)[account]
        assert have == wanted, f"{account} has {have} after {files} files, not {wanted}"
        return account

    def _sql(self) -> int:
        query = (
            f"select coalesce((select sum(balance - {OPENING}) from accounts.balance), 0)"
            " + coalesce((select sum(pending) from accounts.pending), 0) as total"
        )
        ((total,),) = [tuple(row.values()) for row in hf.state(self._accounts).sql(query).to_pylist()]
        assert total == 0, f"{total} too much by SQL"
        return int(total)
