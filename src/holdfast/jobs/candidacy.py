"""A supervisor's part in the leadership of its job: it stands for it, holds it, and loses it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.jobs.elections import Elections
from holdfast.jobs.leadership import Deposed, Election, Leader, Now, Term, myself
from holdfast.jobs.registry import JobRecord, Registry
from holdfast.jobs.registry_file import writer_of
from holdfast.jobs.tenure import Tenure

# So many times in a lease a candidate looks whether the leader still lives.
_LOOKS: Final = 8
# How long a new leader waits for somebody who writes to the registry, before it looks who that is.
_PATIENCE_S: Final = 1.0


class Candidacy:
    """One supervisor's candidacy for one job.

    Args:
        elections: How to take part in elections.
        job: The job's name.
        registry: The registry's path is taken from it.
        clock: Epoch milliseconds.
        now: The clock of the elections.

    Attributes:
        former: Who led the job before, and when he was last heard of; known once this one has won.
        last_seen: Who led it when this one began to stand by.
    """

    def __init__(
        self,
        elections: Elections,
        job: str,
        registry: Registry,
        clock: Callable[[], int],
        now: Now = time.monotonic,
    ) -> None:
        self._election: Election = elections(job)
        self._job = job
        self._path = registry.path
        self._clock = clock
        self._now = now
        self._tenure: Tenure | None = None
        self.former: Leader | None = None
        self.last_seen: Leader | None = None

    @property
    def pause_s(self) -> float:
        """How long to wait between two tries."""
        return self._election.lease_s / _LOOKS

    @property
    def address(self) -> str:
        """Where the elections are held."""
        return self._election.address

    @property
    def leads(self) -> bool:
        """Whether this supervisor has won; `require` tells whether that still holds."""
        return self._tenure is not None

    @property
    def token(self) -> int | None:
        """The token of the term; None while somebody else leads."""
        return None if self._tenure is None else self._tenure.token

    @property
    def until_s(self) -> float:
        """The moment until which the term may be counted on now."""
        return 0.0 if self._tenure is None else self._tenure.until_s

    def stand(self) -> Leader | None:
        """Try to become the leader, once; the leader that this supervisor then is, or None.

        Raises:
            Unavailable: The place of the elections, or the registry, does not answer.
            Conflict: The job is led by way of elections at another place.
        """
        term = self._election.campaign()
        if term is None:
            return None
        try:
            leader = self._take(term)
        except Deposed:
            return None
        except Unavailable:
            self._election.resign(term)
            self._end_frozen()
            raise
        except BaseException:
            self._election.resign(term)
            raise
        registry = Registry(self._path, term.token)
        self._tenure = Tenure(
            self._election, term, self._now, lambda: registry.beat(self._job, self._clock())
        )
        return leader

    def require(self) -> None:
        """Go on only as the leader.

        Raises:
            Deposed: It leads no longer.
        """
        if self._tenure is None:
            raise Deposed("this supervisor does not lead the job", where=self._election.address)
        self._tenure.require()

    def step_down(self, *, resign: bool) -> None:
        """Lead no longer; with `resign` another one may begin at once."""
        if self._tenure is not None:
            if resign:
                with suppress(HoldfastError):
                    Registry(self._path, self._tenure.token).beat(self._job, 0)
            self._tenure.close(resign=resign)
            self._tenure = None
            if not resign:
                # What was lost must not come back by itself, with the connection: the next term is a new one.
                self._election.close()

    def close(self) -> None:
        """Give up what is held, and end."""
        self.step_down(resign=True)
        self._election.close()

    def _take(self, term: Term) -> Leader:
        now = self._clock()
        registry = Registry(self._path, patience_s=_PATIENCE_S)
        self.former = former = registry.leader(self._job)
        if former is not None and former.address != self.address and former.lives(now):
            raise Conflict(
                f"job {self._job!r} is led by way of elections at another place",
                where=str(self._path),
                found=f"{former.holder}, elected at {former.address}",
                expected=self.address,
                hint="give all supervisors of a job the same --ha",
            )
        lease_ms = int(self._election.lease_s * 1000)
        leader = Leader(term.token, myself(), self.address, lease_ms, now, now)
        registry.lead(self._job, leader)
        return leader

    def _end_frozen(self) -> None:
        """End the former leader if it was frozen while it wrote to the registry, which nobody else can then.

        Its transaction is rolled back by the next one who opens the file.
        """
        pid = writer_of(self._path)
        if pid is not None and self.last_seen is not None and self.last_seen.holder == myself(pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def live_leader(registry: Registry, job: str, now_ms: int) -> Leader | None:
    """The leader of a job that has several supervisors, if one lives."""
    leader = registry.leader(job)
    return leader if leader is not None and leader.lives(now_ms) else None


def ended_job(registry: Registry, job: str) -> JobRecord | None:
    """The job, if it has ended for good."""
    return next((each for each in registry.jobs() if each.name == job and each.state.terminal), None)
