"""The lease beside a checkpoint: of all machines that reach it one process is its owner.

On a local disk the lock beside the checkpoint says that (`engine.state.ownership`). Elsewhere the owner
renews a lease in a folder beside the checkpoint, and everybody else looks whether it moves: by their own
clocks, for as long as the lease says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from holdfast import layout
from holdfast.checkpoints.guard.lease import UNKNOWN, LeaseElection
from holdfast.checkpoints.guard.lease_renewal import LeaseRenewer
from holdfast.checkpoints.guard.terms import Election, Now, Term
from holdfast.clock import steady_s
from holdfast.config.locations import local_path
from holdfast.config.units import rounded_duration
from holdfast.errors import Conflict, HoldfastError
from holdfast.json_shapes import JsonShape
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# How long an owner that gives no sign of life stays the owner, where nobody has said otherwise.
LEASE_S: Final = 30.0
# So many times in a lease others look whether it moves.
LOOKS: Final = 8
# What puts a new file only where none is, in one step.
_OBJECTS: Final = ("s3://", "s3a://", "webhdfs://")

# Told who is waited for, and for how long at most, in seconds.
Waiting = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class LeaseNote(JsonShape):
    """The lease beside a checkpoint, as far as one look tells.

    Attributes:
        holder: Who has it: host, process, and what that does.
        lease_ms: How long it lasts without a sign of life.
    """

    holder: str
    lease_ms: int

    def __str__(self) -> str:
        lease = rounded_duration(self.lease_ms)
        return f"the lease beside it is held by {self.holder}, unless that has ended: it lasts {lease}"


def can_keep_leases(address: str) -> bool:
    """Whether of two who write a new file there at once, one is told that the other was first."""
    return local_path(address) is not None or address.startswith(_OBJECTS)


def lease_place(checkpoint: str) -> tuple[str, str] | None:
    """The directory and the name of a checkpoint's lease; None of a whole bucket: nothing is beside it.

    Args:
        checkpoint: Its canonical URI.
    """
    above, _, name = checkpoint.rstrip("/").rpartition("/")
    if not name or above.endswith(":/"):
        return None
    # That of `file:///name` is the root of the disk.
    return above if above.strip("/").partition(":")[2] else f"{above}/", layout.lease_beside(name)


def lease_of(
    checkpoint: str,
    holder: str | None = None,
    lease_s: float = LEASE_S,
    now: Now = steady_s,
    elected_at: str = "",
) -> LeaseElection | None:
    """The lease beside a checkpoint, as one candidate for it sees it; None where none can be kept.

    Touches nothing yet.

    Args:
        checkpoint: Its canonical URI.
        holder: How others see this candidate; by default its host and process.
        lease_s: How long it is to last.
        now: The clock of the candidate.
        elected_at: Names the elections that have made the candidate the leader of its job, if there are any.

    Raises:
        Unsupported: The library for this kind of storage is not installed.
    """
    place = lease_place(checkpoint)
    if place is None or not can_keep_leases(checkpoint):
        return None
    beside = open_storage(place[0], "lease")
    return LeaseElection(beside, place[1], lease_s, now, time.time, holder, elected_at)


def has_lease(checkpoint: str) -> bool:
    """Whether anybody has ever owned a checkpoint by the lease beside it.

    Cost: one listing.
    """
    place = lease_place(checkpoint)
    if place is None or not can_keep_leases(checkpoint):
        return False
    return bool(open_storage(place[0], "lease").list(place[1]).names)


def lease_note(checkpoint: Storage) -> LeaseNote | None:
    """Who has the lease beside a checkpoint; None if it was given up, or nobody ever had it.

    Cost: a listing, and two small files where there is one. Nothing is waited for.
    """
    election = lease_of(checkpoint.uri) if has_lease(checkpoint.uri) else None
    incumbent = None if election is None else election.incumbent()
    return None if incumbent is None else LeaseNote(incumbent.holder, int(incumbent.lease_s * 1000))


class CheckpointLease:
    """A lease of this process, once it has been taken.

    Args:
        checkpoint: The checkpoint's canonical URI, for messages.
        election: The candidate for the lease.
        now: Its clock.
        renewed: Called with the moment until which the lease holds, at first and after each renewal. The
            renewals are told on a thread of their own.
    """

    def __init__(
        self,
        checkpoint: str,
        election: Election,
        now: Now = steady_s,
        renewed: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._checkpoint = checkpoint
        self._election = election
        self._now = now
        self._renewed = renewed
        self._renewer: LeaseRenewer | None = None

    @property
    def address(self) -> str:
        """Where it is kept."""
        return self._election.address

    @property
    def token(self) -> int | None:
        """Greater than that of every owner before; None before it was taken."""
        return None if self._renewer is None else self._renewer.token

    @property
    def until_s(self) -> float:
        """The moment until which it may be counted on now."""
        return 0.0 if self._renewer is None else self._renewer.until_s

    @property
    def lost(self) -> str | None:
        """Why it is over; None while it is not, and before it was taken."""
        return None if self._renewer is None else self._renewer.lost

    def take(self, goes_on: Callable[[float], bool], waiting: Waiting, *, refuse_living: bool) -> bool:
        """Become the owner. One that gives no sign of life is waited for, until its lease is over.

        Args:
            goes_on: Waits for so many seconds; False if nobody wants to wait any longer.
            waiting: Told once who is waited for.
            refuse_living: Whether an owner that lives is refused at once; otherwise it is waited for too.

        Returns:
            False if `goes_on` said so.

        Raises:
            Conflict: The owner lives, and that is refused.
            Unavailable: The place of the lease does not answer.
        """
        election = self._election
        told = False
        while (term := election.campaign()) is None:
            if refuse_living and isinstance(election, LeaseElection) and election.saw_life:
                raise self.owned()
            if not told:
                told = True
                waiting(*self._incumbent())
            if not goes_on(election.lease_s / LOOKS):
                return False
        self._hold(term)
        return True

    def require(self) -> None:
        """Go on only as the owner.

        Raises:
            LeadershipLost: The lease is over.
        """
        if self._renewer is not None:
            self._renewer.require()

    def release(self) -> None:
        """Own it no longer; the next owner need not wait."""
        if self._renewer is not None:
            self._renewer.close(resign=self._renewer.lost is None)
            self._renewer = None
        self._election.close()

    def owned(self) -> Conflict:
        """The error for a checkpoint that another process owns."""
        holder, lease_s = self._incumbent()
        lease = rounded_duration(int(lease_s * 1000))
        return Conflict(
            "another process owns the checkpoint",
            where=self._checkpoint,
            found=f"{holder}, by the lease at {self.address}",
            hint=f"end it there; its lease is over {lease} after that",
        )

    def _hold(self, term: Term) -> None:
        self._renewed(term.until_s)
        self._renewer = LeaseRenewer(self._election, term, self._now, self._tell)

    def _tell(self) -> None:
        if self._renewer is not None:
            self._renewed(self._renewer.until_s)

    def _incumbent(self) -> tuple[str, float]:
        with suppress(HoldfastError):
            if isinstance(self._election, LeaseElection):
                incumbent = self._election.incumbent()
                if incumbent is not None:
                    return incumbent.holder, incumbent.lease_s
            else:
                return self._election.look().holder or UNKNOWN, self._election.lease_s
        return UNKNOWN, self._election.lease_s
