"""The election of an owner, with terms that have increasing tokens.

An owner holds a term. The token of a term is greater than that of every earlier term, and the term has an
end, which its owner extends by renewing the term. Late writes of an earlier owner have a smaller token and
are refused: by the registry, at the checkpoint's lock and by the ledgers of sinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.errors import Conflict, Unavailable
from holdfast.ownership.process_identity import ProcessIdentity

# The share of a lease on which its owner relies. The rest covers clocks of different speed, and the time from
# the end of a lease until its driver has ended.
COUNTED: Final = 0.8
UNKNOWN: Final = "an unknown process"

# Seconds on a monotonic clock; only differences within one process are meaningful.
Now = Callable[[], float]
# Seconds since 1970. They are the first token of an election without terms, so that an election that has lost
# its terms does not restart below the tokens that registries and ledgers know.
Wall = Callable[[], float]


class LeadershipLost(Conflict):
    """The error for a process whose term is over, so that it may no longer write."""


class CannotLead(LeadershipLost):
    """The error for a supervisor that won a term but cannot use it, so that it resigns and stands by."""


@dataclass(frozen=True, slots=True)
class Term:
    """The period in which one candidate is the owner.

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
        token: The fencing token of the term.
        holder: The supervisor of the leader: host and process.
        address: The address of the election.
        lease_ms: The time without a renewal after which a standby takes over, in milliseconds.
        since_ms: The start of the term, in epoch milliseconds.
        beat_ms: The time of the last renewal, in epoch milliseconds.
    """

    token: int
    holder: str
    address: str
    lease_ms: int
    since_ms: int
    beat_ms: int

    def lives(self, now_ms: int) -> bool:
        """Return whether the leader renewed its term within two leases; clocks may differ by one lease."""
        return now_ms - self.beat_ms < 2 * self.lease_ms


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The owner of the newest term if it was not released; whether it is alive is found only by watching.

    Attributes:
        holder: The process of the owner: host, process id and purpose.
        lease_s: The time in seconds for which it stays the owner without a renewal.
    """

    holder: str
    lease_s: float


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The state of one election.

    Attributes:
        election_id: The id of the election, equal for all addresses of the same election; empty before the
            first term.
        token: The token of the newest term; None before the first.
        holder: The process that won the newest term: host and process id; None if unknown.
        record: The newest record that an owner wrote for later ones.
        record_token: The token of the term in which `record` was written.
        process: The identity of the holder's process; None if unknown.
    """

    election_id: str
    token: int | None
    holder: str | None = None
    record: bytes | None = None
    record_token: int | None = None
    process: ProcessIdentity | None = None


class Election(Protocol):
    """A candidate in the election of one owner.

    Not thread-safe: use it from one thread at a time.
    """

    @property
    def address(self) -> str:
        """The address of the election, for messages."""

    @property
    def lease_s(self) -> float:
        """The time in seconds for which an owner without a renewal stays the owner."""

    @property
    def saw_life(self) -> bool:
        """Return whether a campaign of this candidate failed because the owner is alive."""

    def campaign(self) -> Term | None:
        """Try once to become the owner; return None while there is a different owner.

        Call this function several times in each lease, because some elections detect by watching whether the
        owner is alive.

        Raises:
            Unavailable: The election does not answer; this candidate did not become the owner.
        """

    def renew(self, term: Term) -> Term:
        """Extend a term and return it.

        Raises:
            LeadershipLost: A different process is the owner.
            Unavailable: The election does not answer; the end of the term is unchanged.
        """

    def look(self) -> ElectionState:
        """Read the state of the election. Any process may read it.

        Raises:
            Unavailable: The election does not answer.
        """

    def incumbent(self) -> Incumbent | None:
        """Return the owner of the newest term; None if the term was released or never existed.

        Raises:
            Unavailable: The election does not answer.
        """

    def write_record(self, term: Term, record: bytes) -> None:
        """Write a record for later owners; a late write of a former owner has no effect.

        Raises:
            LeadershipLost: A different process is the owner.
            Unavailable: The election does not answer.
        """

    def resign(self, term: Term) -> None:
        """Release a term, so that the next owner need not wait for its end. Never raises an error."""

    def close(self) -> None:
        """Close connections; a later call reopens them. A term that was not released continues to its end."""


def terms_missing(where: str, known: int, token: int | None) -> Unavailable:
    """Return the error for an election whose newest term is older than one seen before.

    An unmounted disk appears as an empty directory; a candidate that won a term there would be a second
    leader.
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
