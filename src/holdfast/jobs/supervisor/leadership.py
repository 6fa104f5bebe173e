"""The leadership of a supervisor: it has the job to itself, or it is one of several and was elected.

Either also owns the checkpoint by the lease next to it, where that lies on no local disk: the lock of this
machine tells no other one, and elections tell nobody who takes no part in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.config.checks import local_path
from holdfast.errors import Internal
from holdfast.jobs.candidacy import Candidacy, take_alone
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.ownership.checkpoint_lease import has_lease, lease_of
from holdfast.ownership.election import Now
from holdfast.ownership.elections import Elections
from holdfast.ownership.lease import LEASE_S, Lease, acquire
from holdfast.ownership.process_identity import myself
from holdfast.ownership.storage_election import StorageElection


class Leadership:
    """One supervisor's right to run its job.

    Args:
        elections: How to take part in elections; None where the supervisor has the job to itself.
        clock: Epoch milliseconds.
        now: The clock of the elections, and of the lease.
        lease_s: How long the lease next to a checkpoint lasts without a sign of life; that of the elections,
            where there are any.

    Attributes:
        candidacy: The part in the elections; None without elections, and until the job is known.
    """

    def __init__(
        self, elections: Elections | None, clock: Callable[[], int], now: Now, lease_s: float = LEASE_S
    ) -> None:
        self._elections = elections
        self._clock = clock
        self._now = now
        self._lease_s = lease_s
        self._lock: SupervisorLock | None = None
        self._lease: Lease | None = None
        self._told_of_none = False
        self.candidacy: Candidacy | None = None

    @property
    def required_candidacy(self) -> Candidacy:
        """The candidacy of a supervisor that has one."""
        if self.candidacy is None:
            raise Internal(
                "a supervisor that has the job to itself cannot lose the lead",
                code="HF-E9025",
            )
        return self.candidacy

    @property
    def alone(self) -> bool:
        """Return whether there are no elections, and the supervisor has the job to itself."""
        return self._elections is None

    @property
    def leads(self) -> bool:
        """Return whether no other supervisor was elected; `require` checks whether that still holds."""
        return self.candidacy is None or self.candidacy.leads

    @property
    def lost(self) -> bool:
        """Return whether this supervisor does not lead, or no longer."""
        deposed = self.candidacy is not None and self.candidacy.lost is not None
        return deposed or self.lease_lost is not None

    @property
    def lease_lost(self) -> str | None:
        """Return why the lease next to the checkpoint is over; None while it holds, and without one."""
        return None if self._lease is None else self._lease.lost

    @property
    def until_s(self) -> float | None:
        """The moment until which a driver may count on it; None where nothing but locks decides."""
        leases = (None if self.candidacy is None else self.candidacy.lease, self._lease)
        return min((lease.until_s for lease in leases if lease is not None), default=None)

    def enter(self, job: str, home: StateHome, registry: Registry) -> None:
        """Claim the job: take its lock, or enter the elections of its leader. Called again, it does nothing.

        Raises:
            Conflict: Another supervisor has the job to itself, or leads it.
        """
        if self._elections is None:
            self._lock = self._lock or take_alone(registry, home, job, self._clock())
        elif self.candidacy is None:
            self.candidacy = Candidacy(self._elections, job, registry, self._clock, self._now)

    def take_lease(
        self, checkpoint: str, job: str, goes_on: Callable[[float], bool], say: Callable[..., None]
    ) -> bool:
        """Own a checkpoint by the lease next to it; called again, it takes one that was lost anew.

        On a local disk the lock is enough, unless somebody has kept a lease there.

        Args:
            checkpoint: Its canonical URI.
            job: The job's name.
            goes_on: Waits for a number of seconds; False if the job is to end.
            say: Told who is waited for, or that no lease can be kept.

        Returns:
            False if `goes_on` said so.

        Raises:
            Conflict: A process that lives owns it, on whatever machine.
            Unavailable: The storage does not answer.
        """
        if self._lease is not None:
            if self._lease.lost is None:
                return True
            self._lease.release()
            self._lease = None
        if local_path(checkpoint) is not None and not has_lease(checkpoint):
            return True
        election = self._lease_of(checkpoint, job)
        if election is None:
            if not self._told_of_none:
                self._told_of_none = True
                scheme = checkpoint.partition(":")[0]
                say("caution", f"no lease can be kept at {scheme}: nothing keeps two machines apart there")
            return True

        def waiting(holder: str, lease_s: float) -> None:
            say("waiting", f"waiting {lease_s:.0f} s at most for the lease of {holder}", holder=holder)

        def patient(seconds: float) -> bool:
            self.require()
            return goes_on(seconds)

        refuse_living = self.candidacy is None or not self.candidacy.has_stood_by
        self._lease = acquire(
            election, checkpoint, patient, waiting, refuse_living=refuse_living, now=self._now
        )
        return self._lease is not None

    def _lease_of(self, checkpoint: str, job: str) -> StorageElection | None:
        """The lease next to a checkpoint; an elected leader follows the one before at once."""
        holder, elected = f"{myself()}, job {job!r}", self.candidacy
        if elected is None:
            return lease_of(checkpoint, holder, self._lease_s, self._now)
        elected_at = f"{elected.election_id} {job}"
        return lease_of(checkpoint, holder, elected.lease_s, self._now, elected_at)

    def require(self) -> None:
        """Go on only with the right to run the job.

        Raises:
            LeadershipLost: It leads no longer, or what it leads by is no longer its own.
        """
        if self.candidacy is not None:
            self.candidacy.require()
            if self._lease is not None:
                self._lease.require()

    def step_down(self, *, resign: bool) -> None:
        """Lead no longer, and stand by; with `resign` another one may begin at once."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        self.required_candidacy.step_down(resign=resign)

    def note(self, **changes: Any) -> None:
        """Put down fields of `LeaderRecord` for the leaders to come, where there are elections."""
        if self.candidacy is not None:
            self.candidacy.note(**changes)

    def close(self) -> None:
        """Leave the job to others."""
        if self._lease is not None:
            self._lease.release()
        if self._lock is not None:
            self._lock.release()
        if self.candidacy is not None:
            self.candidacy.close()
