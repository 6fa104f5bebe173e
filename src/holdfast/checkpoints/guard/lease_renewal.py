"""A term while it is held: renewed in time on a thread of its own, and known to be over as soon as it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from holdfast.checkpoints.guard.terms import Election, LeadershipLost, Now, Term
from holdfast.errors import HoldfastError

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
        """Why the term is over; None while it is not. A process that was frozen learns it here at once."""
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
