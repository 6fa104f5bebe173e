"""The lease of an owner: a term of an election that a thread renews until it is released or lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.clock import steady_s
from holdfast.errors import Conflict, HoldfastError
from holdfast.ownership.election import UNKNOWN, Election, LeadershipLost, Now, Term
from holdfast.quantities import rounded_duration

# The default duration of a lease in seconds.
LEASE_S: Final = 30.0
# The number of checks per lease in which a candidate tests whether its owner is alive.
LOOKS: Final = 8
# The number of renewals per lease; a failed renewal is retried.
_RENEWALS: Final = 4
_TRIES: Final = 10

# A callback with the owner whose lease must end first, and the longest wait in seconds.
Waiting = Callable[[str, float], None]
# A callback with the end of a lease, on the election's clock. It may raise `LeadershipLost`.
Renewed = Callable[[float], None]


def ignore_end(_until_s: float) -> None:
    """Do nothing with the end of a lease."""


class Lease:
    """A term of an election that this process holds.

    Args:
        election: The election; only the lease uses it until the release.
        term: The term that was won.
        now: The clock of the election.
        renewed: The callback after each renewal, called on the thread of the lease; errors other than
            `LeadershipLost` are ignored.
    """

    def __init__(self, election: Election, term: Term, now: Now, renewed: Renewed = ignore_end) -> None:
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
        """The fencing token, greater than that of every earlier owner."""
        return self._term.token

    @property
    def until_s(self) -> float:
        """The end of the lease if it is not renewed, on the election's clock."""
        return self._term.until_s

    @property
    def lost(self) -> str | None:
        """The reason why the lease is over; None while it is valid. Also correct after a suspension."""
        if self._lost_why is not None:
            return self._lost_why
        if self._now() >= self._term.until_s:
            return self._trouble or "the lease could not be renewed in time"
        return None

    def require(self) -> None:
        """Check that this process is still the owner.

        Raises:
            LeadershipLost: The lease is over.
        """
        why = self.lost
        if why is not None:
            raise LeadershipLost(
                "this process no longer holds the lease",
                code="HF-E4044",
                where=self._election.address,
                found=why,
                hint="start the query again, unless a different process has taken over",
            )

    def release(self, *, resign: bool = True) -> None:
        """End the renewals and close the election.

        Args:
            resign: Whether to release the term, so that the next owner need not wait for its end.
        """
        self._closing = True
        self._wake.set()
        self._thread.join(self._election.lease_s)
        if resign and not self._thread.is_alive() and self.lost is None:
            with suppress(HoldfastError):
                self._put_record()
            self._election.resign(self._term)
        self._election.close()

    def write_record(self, record: bytes) -> None:
        """Write a record for later owners, in the background, until it is written or the lease is over."""
        with self._record_changed:
            self._record = record
        self._wake.set()

    def flush(self) -> bool:
        """Wait until the newest record is written; return False if the lease was over first."""
        with self._record_changed:
            while self._record is not None:
                if self.lost is not None:
                    return False
                self._record_changed.wait(self._election.lease_s / _TRIES)
        return True

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
                self._renewed(self._term.until_s)
            except LeadershipLost as error:
                self._lost_why = error.fact
                return
            except HoldfastError as error:
                self._trouble = f"{error.fact}: {error.found}" if error.found else error.fact
                pause = self._election.lease_s / _TRIES
            if self._now() >= self._term.until_s:
                # A late renewal is invalid, because a different process may be the owner by now.
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


def acquire(
    election: Election,
    checkpoint: str,
    goes_on: Callable[[float], bool],
    waiting: Waiting,
    *,
    refuse_living: bool,
    now: Now = steady_s,
    renewed: Renewed = ignore_end,
) -> Lease | None:
    """Become the owner of a checkpoint; wait for the end of an unresponsive owner's lease.

    Args:
        election: The election of the checkpoint's owner; closed if no lease is returned.
        checkpoint: The checkpoint's canonical URI, for messages.
        goes_on: The function that waits for a number of seconds; returning False ends the wait.
        waiting: The callback at the start of a wait for a different owner.
        refuse_living: Whether an owner that is alive is an error; otherwise its end is awaited.
        now: The clock of the election.
        renewed: The callback with the end of the lease, at its start and after each renewal.

    Returns:
        The lease; None if `goes_on` ended the wait.

    Raises:
        Conflict: The owner is alive, and `refuse_living` is set.
        Unavailable: The election address does not answer.
    """
    lease: Lease | None = None
    try:
        lease = _acquire(election, checkpoint, goes_on, waiting, refuse_living, now, renewed)
    finally:
        if lease is None:
            election.close()
    return lease


def _acquire(
    election: Election,
    checkpoint: str,
    goes_on: Callable[[float], bool],
    waiting: Waiting,
    refuse_living: bool,
    now: Now,
    renewed: Renewed,
) -> Lease | None:
    told = False
    while (term := election.campaign()) is None:
        if refuse_living and election.saw_life:
            raise owned(election, checkpoint)
        if not told:
            told = True
            waiting(*_incumbent(election))
        if not goes_on(election.lease_s / LOOKS):
            return None
    try:
        renewed(term.until_s)
    except BaseException:
        election.resign(term)
        raise
    return Lease(election, term, now, renewed)


def owned(election: Election, checkpoint: str) -> Conflict:
    """Return the error for a checkpoint that a different process owns."""
    holder, lease_s = _incumbent(election)
    lease = rounded_duration(int(lease_s * 1000))
    return Conflict(
        "a different process owns the checkpoint",
        code="HF-E4045",
        where=checkpoint,
        found=f"{holder}, by the lease at {election.address}",
        hint=f"stop that process; its lease ends {lease} later",
    )


def _incumbent(election: Election) -> tuple[str, float]:
    with suppress(HoldfastError):
        incumbent = election.incumbent()
        if incumbent is not None:
            return incumbent.holder, incumbent.lease_s
    return UNKNOWN, election.lease_s
