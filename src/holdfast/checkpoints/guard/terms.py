"""Which of several supervisors leads a job: terms, and what every kind of election can do.

A leader holds a term. A term has a token, which is greater than that of every term before, and it is good
until a moment that the leader moves on by renewing it. Whoever may be frozen, cut off, or slow is told
apart from the leader by his token: the registry, the checkpoint's lock and the ledgers of sinks refuse an
older one.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.checkpoints.guard.machine import ProcessIdentity
from holdfast.errors import Conflict, Unavailable

# A leader counts on this part of its lease alone: the rest is for clocks that do not run quite alike, and for
# the time from noticing to having ended a driver.
COUNTED: Final = 0.8


class LeadershipLost(Conflict):
    """This supervisor leads the job no longer, so it must leave it alone."""


class CannotLead(LeadershipLost):
    """This supervisor has won, and lacks what it needs to lead: it gives the term up, and stands by."""


@dataclass(frozen=True, slots=True)
class Term:
    """A time of leading.

    Attributes:
        token: Greater than that of every term before it.
        until_s: The moment until which it may be counted on, on the clock of the election.
    """

    token: int
    until_s: float


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a job, as the registry knows it.

    Attributes:
        token: That of the term.
        holder: The supervisor: host and process.
        address: Where the elections are held.
        lease_ms: After so long without a sign of life another one takes over.
        since_ms: When the term began.
        beat_ms: The last sign of life.
    """

    token: int
    holder: str
    address: str
    lease_ms: int
    since_ms: int
    beat_ms: int

    def lives(self, now_ms: int) -> bool:
        """Whether there was a sign of life of late. Clocks of two machines may differ by a lease."""
        return now_ms - self.beat_ms < 2 * self.lease_ms


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What the place of the elections knows of one job.

    Attributes:
        place_id: Names the place itself, and stays the same however a machine reaches it; empty before the
            first term.
        token: That of the newest term; None before the first.
        holder: The supervisor that won the newest term: host and process; None where that is not known.
        record: What the newest leader that wrote one has put down for its successors.
        record_token: The token of the term in which that was written.
        process: The supervisor's process; None where that is not known.
    """

    place_id: str
    token: int | None
    holder: str | None = None
    record: bytes | None = None
    record_token: int | None = None
    process: ProcessIdentity | None = None


class Election(Protocol):
    """The election of one job's leader, as one candidate takes part in it.

    Used from one thread at a time.
    """

    @property
    def address(self) -> str:
        """Where it is held, as messages show it."""

    @property
    def lease_s(self) -> float:
        """How long a leader that gives no sign of life stays leader."""

    def campaign(self) -> Term | None:
        """Try to become the leader, once and without waiting for others; None if somebody else leads.

        Called again and again, several times in a lease: some kinds find out by watching the leader whether
        it still lives.

        Raises:
            Unavailable: The place of the elections does not answer. Nobody leads on that ground.
        """

    def renew(self, term: Term) -> Term:
        """Move the end of a term on.

        Raises:
            LeadershipLost: Somebody else leads.
            Unavailable: The place of the elections does not answer; the term runs on, to its end.
        """

    def look(self) -> ElectionState:
        """What the place of the elections knows of the job. Anybody may look.

        Raises:
            Unavailable: The place of the elections does not answer.
        """

    def write_record(self, term: Term, record: bytes) -> None:
        """Put down what the leaders to come have to know. A former leader's write changes nothing they read.

        Raises:
            LeadershipLost: Somebody else leads.
            Unavailable: The place of the elections does not answer.
        """

    def resign(self, term: Term) -> None:
        """Give a term up, so that another one need not wait for its end. Never raises."""

    def close(self) -> None:
        """Let go of connections. A term that was not given up runs to its end."""


def myself(pid: int | None = None) -> str:
    """How this process, or another one of this machine, is named to others."""
    return f"{socket.gethostname()} pid {os.getpid() if pid is None else pid}"


def place_lost(where: str, known: int, token: int | None) -> Unavailable:
    """The error for a place of elections that knows less than it did.

    A disk that is not mounted any more looks like an empty directory. Whoever went on there would lead
    beside the leader that the others elect.
    """
    return Unavailable(
        "the place of the elections has lost the terms that it held",
        where=where,
        found="no term" if token is None else f"term {token}",
        expected=f"term {known} or a later one",
        hint="see that its disk is mounted; if it was made anew on purpose, give all another --ha",
    )


# Seconds on a clock that never goes back; only differences count, and only within one process.
Now = Callable[[], float]
# Seconds since 1970: the first token of a place that knows none, so that a place that was lost and made anew
# does not begin below the tokens that registries and ledgers remember.
Wall = Callable[[], float]
