"""Whether a supervisor may run its job: it has the job to itself, or it is one of several and was elected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.checkpoints.guard.terms import Now
from holdfast.errors import Internal
from holdfast.jobs.ha.candidacy import Candidacy, take_alone
from holdfast.jobs.ha.elections import Elections
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome, SupervisorLock


class Leadership:
    """One supervisor's right to run its job.

    Args:
        elections: How to take part in elections; None where the supervisor has the job to itself.
        clock: Epoch milliseconds.
        now: The clock of the elections.

    Attributes:
        candidacy: The part in the elections; None without elections, and until the job is known.
    """

    def __init__(self, elections: Elections | None, clock: Callable[[], int], now: Now) -> None:
        self._elections = elections
        self._clock = clock
        self._now = now
        self._lock: SupervisorLock | None = None
        self.candidacy: Candidacy | None = None

    @property
    def required_candidacy(self) -> Candidacy:
        """The candidacy of a supervisor that has one."""
        if self.candidacy is None:
            raise Internal("a supervisor that has the job to itself cannot lose the lead")
        return self.candidacy

    @property
    def alone(self) -> bool:
        """Whether there are no elections, and the supervisor has the job to itself."""
        return self._elections is None

    @property
    def leads(self) -> bool:
        """Whether nobody else was elected; `require` tells whether that still holds."""
        return self.candidacy is None or self.candidacy.leads

    @property
    def lost(self) -> bool:
        """Whether the lead is not this supervisor's, or is no longer."""
        return self.candidacy is not None and self.candidacy.lost is not None

    def enter(self, job: str, home: StateHome, registry: Registry) -> None:
        """Claim the job: take its lock, or enter the elections of its leader. Called again, it does nothing.

        Raises:
            Conflict: Another supervisor has the job to itself, or leads it.
        """
        if self._elections is None:
            self._lock = self._lock or take_alone(registry, home, job, self._clock())
        elif self.candidacy is None:
            self.candidacy = Candidacy(self._elections, job, registry, self._clock, self._now)

    def require(self) -> None:
        """Go on only with the right to run the job.

        Raises:
            LeadershipLost: It leads no longer.
        """
        if self.candidacy is not None:
            self.candidacy.require()

    def note(self, **changes: Any) -> None:
        """Put down fields of `LeaderRecord` for the leaders to come, where there are elections."""
        if self.candidacy is not None:
            self.candidacy.note(**changes)

    def close(self) -> None:
        """Leave the job to others."""
        if self._lock is not None:
            self._lock.release()
        if self.candidacy is not None:
            self.candidacy.close()
