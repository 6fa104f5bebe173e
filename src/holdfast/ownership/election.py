"""The election of an owner: terms with rising tokens, and the part of one candidate in it.

An owner holds a term. The token of a term is greater than that of every earlier term, and the term has an
end, which its owner moves by renewing it. Late writes of an earlier owner are refused by their smaller token:
in the registry, at the checkpoint's lock and in the ledgers of sinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.errors import Conflict, Unavailable
from holdfast.ownership.process_identity import ProcessIdentity

# The part of a lease on which its owner relies. The rest covers clocks of different speed, and the time from
# the end of a lease until its driver has ended.
COUNTED: Final = 0.8
UNKNOWN: Final = "an unknown process"

# Seconds on a clock that never goes back; only differences within one process count.
Now = Callable[[], float]
# Seconds since 1970. They are the first token of an election without terms, so that an election that lost its
# terms does not begin below the tokens that registries and ledgers know.
Wall = Callable[[], float]


class LeadershipLost(Conflict):
    """The term of this process is over, so it may no longer write."""


class CannotLead(LeadershipLost):
    """This supervisor won a term and cannot use it: it resigns and stands by."""


@dataclass(frozen=True, slots=True)
class Term:
    """One owner's time.

    Attributes:
        token: The fencing token, greater than that of every earlier term.
        until_s: The end on which the owner relies, on the clock of the election.
    """

    token: int
    until_s: float


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a job, as the registry records it.

    Attributes:
        token: The token of its term.
        holder: The supervisor: host and process.
        address: The address of the election.
        lease_ms: The time without a sign of life after which a standby takes over.
        since_ms: The start of the term.
        beat_ms: The last sign of life.
    """

    token: int
    holder: str
    address: str
    lease_ms: int
    since_ms: int
    beat_ms: int

    def lives(self, now_ms: int) -> bool:
        """Return True if it was active in the last two leases. Clocks of machines may differ by one lease."""
        return now_ms - self.beat_ms < 2 * self.lease_ms


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The owner by the newest term, unless that was released. Only watching shows whether it is alive.

    Attributes:
        holder: The process: host, number and purpose.
        lease_s: The time for which it stays the owner without a sign of life.
    """

    holder: str
    lease_s: float


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The state of one election.

    Attributes:
        election_id: The id of the election, the same for every address that leads to it; empty before the
            first term.
        token: The token of the newest term; None before the first.
        holder: The process that won the newest term: host and number; None if unknown.
        record: The newest record that an owner wrote for later ones.
        record_token: The token of the term in which that was written.
        process: The process of the holder; None if unknown.
    """

    election_id: str
    token: int | None
    holder: str | None = None
    record: bytes | None = None
    record_token: int | None = None
    process: ProcessIdentity | None = None


class Election(Protocol):
    """The part of one candidate in the election of one owner.

    Used from one thread at a time.
    """

    @property
    def address(self) -> str:
        """The address of the election, for messages."""

    @property
    def lease_s(self) -> float:
        """The time for which an owner without a sign of life stays the owner."""

    @property
    def saw_life(self) -> bool:
        """True if a campaign of this candidate failed because the owner is alive."""

    def campaign(self) -> Term | None:
        """Try once to become the owner; None while there is a different owner.

        Called several times in a lease, because some elections find by watching whether the owner is alive.

        Raises:
            Unavailable: The election does not answer. That makes nobody the owner.
        """

    def renew(self, term: Term) -> Term:
        """Move the end of a term.

        Raises:
            LeadershipLost: A different process is the owner.
            Unavailable: The election does not answer; the term ends when it would have.
        """

    def look(self) -> ElectionState:
        """Read the state of the election. Any process may read it.

        Raises:
            Unavailable: The election does not answer.
        """

    def incumbent(self) -> Incumbent | None:
        """Return the owner by the newest term; None if that was released, or there was none.

        Raises:
            Unavailable: The election does not answer.
        """

    def write_record(self, term: Term, record: bytes) -> None:
        """Write a record for later owners. The write of a former owner does not change what they read.

        Raises:
            LeadershipLost: A different process is the owner.
            Unavailable: The election does not answer.
        """

    def resign(self, term: Term) -> None:
        """End a term, so that the next owner does not wait for its end. Never raises."""

    def close(self) -> None:
        """Close connections; a later call opens them again. A term that was not resigned runs to its end."""


def terms_missing(where: str, known: int, token: int | None) -> Unavailable:
    """Return the error for an election with older terms than it had.

    A disk that is no longer mounted looks like an empty directory. A candidate that won a term there would be
    a second leader.
    """
    return Unavailable(
        "the election address no longer has the terms of earlier leaders",
        code="HF-E5034",
        where=where,
        found="no term" if token is None else f"term {token}",
        expected=f"term {known} or later",
        hint=(
            "check that the disk is mounted; if it was replaced on purpose, give all supervisors"
            " a new --ha address"
        ),
    )
