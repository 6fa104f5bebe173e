"""The leadership of a supervisor: it runs its job alone, or as the elected one of several.

If the checkpoint is not on a local disk, it is also owned by a lease next to it: the local lock is invisible
to other machines, and elections to processes that take no part in them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.config.checks import local_path
from holdfast.errors import Internal, Unavailable
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
        elections: The factory of elections; None for a single supervisor.
        clock: Returns epoch milliseconds.
        now: The clock of the elections and of the lease.
        lease_s: The time after which the lease next to a checkpoint expires if it is not renewed; with
            elections, their lease counts.

    Attributes:
        candidacy: The candidacy; None without elections, and until the job is known.
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
                "a supervisor without elections cannot lose the leadership",
                code="HF-E9025",
                hint="please report this",
            )
        return self.candidacy

    @property
    def alone(self) -> bool:
        """True if the supervisor runs the job without elections."""
        return self._elections is None

    @property
    def leads(self) -> bool:
        """True if no other supervisor was elected; `require` checks that this still holds."""
        return self.candidacy is None or self.candidacy.leads

    @property
    def lost(self) -> bool:
        """True if this supervisor does not lead."""
        deposed = self.candidacy is not None and self.candidacy.lost is not None
        return deposed or self.lease_lost is not None

    @property
    def lease_lost(self) -> str | None:
        """The reason why the lease next to the checkpoint is lost; None while it holds, and without one."""
        return None if self._lease is None else self._lease.lost

    @property
    def until_s(self) -> float | None:
        """The time until which a driver may rely on the leadership; None if only locks are used."""
        leases = (None if self.candidacy is None else self.candidacy.lease, self._lease)
        return min((lease.until_s for lease in leases if lease is not None), default=None)

    def enter(self, job: str, home: StateHome, registry: Registry) -> None:
        """Claim the job: take its lock, or enter its elections; further calls do nothing.

        Raises:
            Conflict: A different supervisor runs or leads the job.
        """
        if self._elections is None:
            self._lock = self._lock or take_alone(registry, home, job, self._clock())
        elif self.candidacy is None:
            self.candidacy = Candidacy(self._elections, job, registry, self._clock, self._now)

    def take_lease(
        self, checkpoint: str, job: str, goes_on: Callable[[float], bool], say: Callable[..., None]
    ) -> bool:
        """Own a checkpoint by the lease next to it; further calls take a lost lease again.

        On a local disk the lock is enough, unless a lease exists there.

        Args:
            checkpoint: The checkpoint's canonical URI.
            job: The job's name.
            goes_on: Waits for a number of seconds; False if the job is to end.
            say: Reports the owner that is waited for, or that no lease is possible.

        Returns:
            False if `goes_on` returned False.

        Raises:
            Conflict: A live process on any machine owns the checkpoint.
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
                say("caution", f"{scheme} supports no lease; two machines could use the checkpoint at once")
            return True

        def waiting(holder: str, lease_s: float) -> None:
            say("waiting", f"waiting at most {lease_s:.0f} s for the lease of {holder}", holder=holder)

        def patient(seconds: float) -> bool:
            self.require()
            return goes_on(seconds)

        refuse_living = self.candidacy is None or not self.candidacy.has_stood_by
        self._lease = acquire(
            election, checkpoint, patient, waiting, refuse_living=refuse_living, now=self._now
        )
        return self._lease is not None

    def _lease_of(self, checkpoint: str, job: str) -> StorageElection | None:
        """Return the lease next to a checkpoint; an elected leader replaces the previous one at once."""
        holder, elected = f"{myself()}, job {job!r}", self.candidacy
        if elected is None:
            return lease_of(checkpoint, holder, self._lease_s, self._now)
        elected_at = f"{elected.election_id} {job}"
        return lease_of(checkpoint, holder, elected.lease_s, self._now, elected_at)

    def require(self) -> None:
        """Raise unless this supervisor still has the right to run the job.

        Raises:
            LeadershipLost: It does not lead any more, or has lost the lease.
        """
        if self.candidacy is not None:
            self.candidacy.require()
            if self._lease is not None:
                self._lease.require()

    def require_checkpoint(self) -> None:
        """Raise unless the checkpoint is still this supervisor's; checks nothing where a lock is enough.

        Raises:
            LeadershipLost: A different supervisor leads the job, or may lead it.
            Unavailable: A supervisor without elections has lost the lease.
        """
        self.require()
        why = self.lease_lost
        if why is not None:
            raise Unavailable(
                "the lease of the checkpoint was lost, so the checkpoint was not replaced",
                code="HF-E5076",
                found=why,
                hint="run the job again",
            )

    def step_down(self, *, resign: bool) -> None:
        """Stop leading and stand by; with `resign` another supervisor may take over at once."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        self.required_candidacy.step_down(resign=resign)

    def note(self, **changes: Any) -> None:
        """Change fields of the `LeaderRecord`, if there are elections."""
        if self.candidacy is not None:
            self.candidacy.note(**changes)

    def close(self) -> None:
        """Release the job."""
        if self._lease is not None:
            self._lease.release()
        if self._lock is not None:
            self._lock.release()
        if self.candidacy is not None:
            self.candidacy.close()
