"""The lease next to a checkpoint, and its renewal.

On a local disk the lock beside the checkpoint says that (`engine.state.ownership`). Elsewhere the owner
renews a lease in a folder beside the checkpoint, and everybody else looks whether it moves: by their own
clocks, for as long as the lease says.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from holdfast import layout
from holdfast.checkpoints.guard.lease import UNKNOWN, Election, LeadershipLost, LeaseElection, Now, Term
from holdfast.clock import steady_s
from holdfast.config.checks import local_path
from holdfast.config.units import rounded_duration
from holdfast.errors import Conflict, HoldfastError
from holdfast.json_shapes import JsonShape
from holdfast.storage import open_storage
from holdfast.storage.port import Storage

# So many times in a lease a term is renewed, and a renewal that failed is tried again.
_RENEWALS: Final = 4
_TRIES: Final = 10


class LeaseRenewer:
    """Holds a term until it is given up or lost.

    Args:
        election: Where it was won; nobody else uses it from now on.
        term: The term.
        now: The clock of the election.
        renewed: Called on the thread of this after each renewal. It may raise `LeadershipLost`; any other
            error of it is passed over.
    """

    def __init__(
        self, election: Election, term: Term, now: Now, renewed: Callable[[], None] = lambda: None
    ) -> None:
        self._election = election
        self._term = term
        self._now = now
        self._renewed = renewed
        self._lost_why: str | None = None
        self._trouble: str | None = None
        # The newest record that has not been written yet.
        self._record: bytes | None = None
        self._record_changed = threading.Condition()
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="holdfast-lease", daemon=True)
        self._thread.start()

    @property
    def token(self) -> int:
        """The term's token."""
        return self._term.token

    @property
    def until_s(self) -> float:
        """The moment until which the term may be counted on now."""
        return self._term.until_s

    @property
    def lost(self) -> str | None:
        """Return why the term is over; None while it holds. A process that was frozen sees it at once."""
        if self._lost_why is not None:
            return self._lost_why
        if self._now() >= self._term.until_s:
            return self._trouble or "the lease could not be renewed in time"
        return None

    def require(self) -> None:
        """Go on only as the leader.

        Raises:
            LeadershipLost: The term is over.
        """
        why = self.lost
        if why is not None:
            raise LeadershipLost(
                "this supervisor leads the job no longer", where=self._election.address, found=why
            )

    def write_record(self, record: bytes) -> None:
        """Have a record put down for the leaders to come; tried until it is there or the term is over."""
        with self._record_changed:
            self._record = record
        self._wake.set()

    def flush(self) -> bool:
        """Wait until the newest record is written; False if the term was over first."""
        with self._record_changed:
            while self._record is not None:
                if self.lost is not None:
                    return False
                self._record_changed.wait(self._election.lease_s / _TRIES)
        return True

    def close(self, *, resign: bool) -> None:
        """End the renewals; with `resign` the next leader need not wait for the end of the lease."""
        self._closing = True
        self._wake.set()
        self._thread.join(self._election.lease_s)
        if resign and not self._thread.is_alive() and self._lost_why is None:
            with suppress(HoldfastError):
                self._put_record()
            self._election.resign(self._term)

    def _keep(self) -> None:
        pause = self._election.lease_s / _RENEWALS
        while True:
            self._wake.wait(pause)
            self._wake.clear()
            if self._closing:
                return
            try:
                self._term = self._election.renew(self._term)
                self._put_record()
                self._trouble = None
                pause = self._election.lease_s / _RENEWALS
                self._renewed()
            except LeadershipLost as error:
                self._lost_why = error.fact
                return
            except HoldfastError as error:
                self._trouble = f"{error.fact}: {error.found}" if error.found else error.fact
                pause = self._election.lease_s / _TRIES
            if self._now() >= self._term.until_s:
                # What came back too late is no lease: somebody else may have it by now.
                self._lost_why = self._trouble or "the lease could not be renewed in time"
                return

    def _put_record(self) -> None:
        record = self._record
        if record is None:
            return
        self._election.write_record(self._term, record)
        with self._record_changed:
            if self._record is record:
                self._record = None
            self._record_changed.notify_all()


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
    """Return whether the storage refuses the second of two writers of a new file."""
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
    """Return whether a checkpoint has ever had an owner by the lease next to it.

    Cost: one listing.
    """
    place = lease_place(checkpoint)
    if place is None or not can_keep_leases(checkpoint):
        return False
    return bool(open_storage(place[0], "lease").list(place[1]).names)


def lease_note(checkpoint: Storage) -> LeaseNote | None:
    """Return the holder of the lease next to a checkpoint; None if it was released, or never held.

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
        """The address of the lease."""
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
        """Return why it is over; None while it holds, and before it was acquired."""
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
