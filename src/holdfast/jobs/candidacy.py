"""The candidacy of a supervisor for the leadership of its job.

Supervisors on several machines need no disk in common for it. It is small, and says only what another state
home could not know: whether the job has begun or ended, what it was asked for, and where its checkpoints are.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from holdfast.clock import steady_s
from holdfast.errors import Conflict, HoldfastError, Unavailable, Unsupported
from holdfast.formats.text import foreign_json
from holdfast.jobs.registry.registry import Registry, writer_of
from holdfast.jobs.state_home import StateHome, SupervisorLock, led_already, running_already
from holdfast.model import JobState, QueryStarted
from holdfast.ownership.election import (
    Election,
    ElectionState,
    Leader,
    LeadershipLost,
    Now,
    Term,
    terms_missing,
)
from holdfast.ownership.elections import Elections
from holdfast.ownership.lease import LOOKS, Lease
from holdfast.ownership.process_identity import ProcessIdentity, myself, this_machine
from holdfast.plain_values import from_known

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """The location of a query's state.

    Attributes:
        checkpoint: The address of its checkpoint.
        query_id: The id that Spark has written there.
    """

    checkpoint: str
    query_id: str


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """A job as its leader knows it.

    Attributes:
        holder: The supervisor that wrote it: host and process.
        checkpoint: The job's checkpoint.
        begun_ms: When the job was begun, by this leader or one before it.
        ran: Whether its queries have started since. If so, their checkpoints have been made.
        queries: Where each query keeps its state, by name.
        driver: The driver that this leader started last.
        request: `stop` or `cancel`, once somebody has asked for that.
        resigned: Whether the leader has given the job up by itself.
        state: How the job has ended; None while it has not.
        reason: Why it has ended.
    """

    holder: str
    checkpoint: str
    begun_ms: int
    ran: bool = False
    queries: Mapping[str, QueryPlace] = field(default_factory=dict)
    driver: ProcessIdentity | None = None
    request: str | None = None
    resigned: bool = False
    state: JobState | None = None
    reason: str | None = None

    def render(self) -> bytes:
        """For the place of the elections."""
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @classmethod
    def parse(cls, data: bytes, where: str) -> LeaderRecord:
        """Parse what `render` wrote. Fields of later versions are ignored.

        Raises:
            Unsupported: A later version of Holdfast wrote it in a way that this one cannot read.
        """
        try:
            values: dict[str, Any] = foreign_json(data)
            if values["format"] != FORMAT:
                raise ValueError(f"format {values['format']}")
            return from_known(cls, values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unsupported(
                "what the job's leader has put down for its successors cannot be read",
                code="HF-E7081",
                where=where,
                found=str(error),
                expected=f"format {FORMAT}",
                hint="run the same version of Holdfast everywhere",
            ) from error


def places_of(queries: Sequence[QueryStarted]) -> dict[str, QueryPlace]:
    """Return the locations of the state of started queries."""
    return {query.name: QueryPlace(query.checkpoint, query.query_id) for query in queries}


# How long a new leader waits for somebody who writes to the registry, before it looks who that is.
_PATIENCE_S: Final = 1.0
# The part of a lease that a sign of life in the registry may take.
_BEAT_PARTS: Final = 10


@dataclass(frozen=True, slots=True)
class Former:
    """The earlier leader of the job.

    Attributes:
        holder: The supervisor: host and process.
        heard_ms: When it gave a sign of life for the last time, as far as that is known here.
    """

    holder: str
    heard_ms: int


class Candidacy:
    """One supervisor's candidacy for one job.

    Args:
        elections: How to take part in elections.
        job: The job's name.
        registry: The registry of this supervisor's state home; its path is taken from it.
        clock: Epoch milliseconds.
        now: The clock of the elections.

    Raises:
        Conflict: A supervisor has the job to itself.

    Attributes:
        former: Who led the job before; known once this one has won.
        record: What the newest leader has put down of the job, from when this one has won; None if it is to
            begin from scratch.
        place_id: Names the place of the elections, however it is reached; known once this one has won.
        incumbent: Who led the job when this one began to stand by, where that is known.
        ended_meanwhile: The job, if it has ended for good under a leader for whom this one has stood by.
        has_stood_by: Whether somebody else has led the job while this one waited.
    """

    def __init__(
        self,
        elections: Elections,
        job: str,
        registry: Registry,
        clock: Callable[[], int],
        now: Now = steady_s,
    ) -> None:
        # Held while this one leads, so that people's commands see that a supervisor lives.
        self._lock = SupervisorLock(StateHome(registry.path.parent), job)
        _require_not_alone(registry, self._lock, job)
        self._election: Election = elections(job)
        self._job = job
        self._path = registry.path
        self._clock = clock
        self._now = now
        self.lease: Lease | None = None
        self._place_checked = False
        # The newest term when this one began to stand by; its own, if it led before that.
        self._watched: int | None = None
        self.former: Former | None = None
        self.record: LeaderRecord | None = None
        self.election_id = ""
        self.incumbent: str | None = None
        self._incumbent_process: ProcessIdentity | None = None
        self.has_stood_by = False
        self.ended_meanwhile: LeaderRecord | None = None
        self._pause_s = 0.0

    def next_try_s(self) -> float:
        """Return how long to wait before the next try; longer after a term that was given up here."""
        pause_s, self._pause_s = self._pause_s, 0.0
        return pause_s or self._election.lease_s / LOOKS

    @property
    def address(self) -> str:
        """The address of the elections."""
        return self._election.address

    @property
    def lease_s(self) -> float:
        """The seconds for which a silent leader stays leader."""
        return self._election.lease_s

    @property
    def leads(self) -> bool:
        """Return whether this supervisor has won; `require` checks whether that still holds."""
        return self.lease is not None

    @property
    def token(self) -> int | None:
        """The token of the term; None while a different supervisor leads."""
        return None if self.lease is None else self.lease.token

    def watch(self) -> str | None:
        """Begin to stand by: who leads the job now, where that is known."""
        with suppress(Unavailable):
            state = self._election.look()
            self.incumbent, self._incumbent_process = state.holder, state.process
            if self._watched is None:
                self._watched = state.token
        return self.incumbent

    def stand(self) -> bool:
        """Try to become the leader, once; whether this supervisor is that now.

        Raises:
            Unavailable: The place of the elections, or the registry, does not answer.
            Conflict: The job is led by way of elections at another place.
            Unsupported: A later version of Holdfast has led the job.
        """
        self._check_place()
        term = self._election.campaign()
        if term is None or not self._won(term):
            self.has_stood_by = True
            if self._watched is None:
                self.watch()
            return False
        # Renewals wait for it: a registry that is busy must not cost the lease.
        patience_s = min(_PATIENCE_S, self._election.lease_s / _BEAT_PARTS)
        registry = Registry(self._path, term.token, patience_s=patience_s)
        self.lease = Lease(self._election, term, self._now, lambda _: registry.beat(self._job, self._clock()))
        return True

    def _won(self, term: Term) -> bool:
        """Take a term up; False if somebody else was elected meanwhile."""
        try:
            self._take(term, self._election.look())
        except LeadershipLost as error:
            self._check_registry_is_behind(term, error)
            return False
        except Unavailable:
            self._election.resign(term)
            self._end_frozen()
            raise
        except BaseException:
            self._election.resign(term)
            raise
        return True

    def begin(self, checkpoint: str, begun_ms: int, *, ran: bool) -> None:
        """Put down that the job is begun, or continued with if its queries `ran` before.

        The registry has to know by then that this supervisor has the job.
        """
        # A former leader of this state home may be frozen with it: the elections decide, not this lock.
        with suppress(OSError):
            self._lock.take()
        fresh = LeaderRecord(myself(), checkpoint, begun_ms)
        former = self.record or fresh
        self.record = replace(fresh, ran=ran, queries=former.queries, driver=former.driver)
        self.note()

    def note(self, **changes: Any) -> None:
        """Put something down for the leaders to come; it is written in the background.

        Args:
            changes: Fields of `LeaderRecord`.
        """
        if self.lease is None or self.record is None:
            return
        self.record = replace(self.record, holder=myself(), **changes)
        self.lease.write_record(self.record.render())

    def note_end(self, state: JobState, reason: str | None, say: Callable[..., None]) -> None:
        """Let the others know that there is nothing to lead any more; `say` is told if that fails."""
        if self.lease is None or self.record is None or not state.terminal:
            return
        self.note(state=state, reason=reason)
        if not self.lease.flush():
            say("caution", f"{self.address} does not answer: another supervisor may start the job again")

    @property
    def lost(self) -> str | None:
        """Return why this supervisor does not lead the job; None while it does."""
        return "it does not lead the job" if self.lease is None else self.lease.lost

    def require(self) -> None:
        """Go on only as the leader.

        Raises:
            LeadershipLost: It leads no longer.
        """
        if self.lease is None:
            raise LeadershipLost(
                "this supervisor does not lead the job", code="HF-E4014", where=self._election.address
            )
        self.lease.require()

    def step_down(self, *, resign: bool) -> None:
        """Lead no longer; with `resign` another one may begin at once."""
        if self.lease is not None:
            if resign:
                with suppress(HoldfastError):
                    Registry(self._path, self.lease.token).beat(self._job, 0)
                self.note(resigned=True)
                self._pause_s = self._election.lease_s
            self._lock.release()
            # The connection is closed with it: a term that was lost must not come back by itself.
            self.lease.release(resign=resign)
            self._watched, self.lease = self.lease.token, None

    def close(self) -> None:
        """Give up what is held, and end."""
        self.step_down(resign=True)
        self._election.close()

    def _check_place(self) -> None:
        """Refuse a place that does not know the terms that this state home remembers of it."""
        if self._place_checked:
            return
        remembered = Registry(self._path, patience_s=_PATIENCE_S).leader(self._job)
        if remembered is not None and remembered.address == self.address and not self._over_here():
            token = self._election.look().token
            if token is None or token < remembered.token:
                raise terms_missing(self.address, remembered.token, token)
        self._place_checked = True

    def _over_here(self) -> bool:
        """Return whether the job has ended, as far as this state home knows."""
        jobs = Registry(self._path, patience_s=_PATIENCE_S).jobs()
        return any(job.name == self._job and job.state.terminal for job in jobs)

    def _take(self, term: Term, state: ElectionState) -> None:
        now = self._clock()
        registry = Registry(self._path, patience_s=_PATIENCE_S)
        known = registry.leader(self._job)
        if known is not None and known.address != self.address and known.lives(now):
            raise Conflict(
                f"job {self._job!r} is led by way of elections at another place",
                code="HF-E4015",
                where=str(self._path),
                found=f"{known.holder}, elected at {known.address}",
                expected=self.address,
                hint="give all supervisors of a job the same --ha",
            )
        lease_ms = int(self._election.lease_s * 1000)
        registry.lead(self._job, Leader(term.token, myself(), self.address, lease_ms, now, now))
        record = None if state.record is None else LeaderRecord.parse(state.record, self.address)
        self.election_id, self.former, self.ended_meanwhile = state.election_id, None, None
        if record is not None and record.state is not None:
            if self._watched is not None and (state.record_token or 0) >= self._watched:
                self.ended_meanwhile = record
            record = None
        elif record is not None:
            # One that has handed the job over was not lost. Of another one this home knows the last sign of
            # life where it shares the registry; else that was a lease ago at most.
            heard_ms = now if record.resigned else now - lease_ms
            if known is not None and known.token == state.record_token and known.beat_ms:
                heard_ms = known.beat_ms
            self.former = Former(record.holder, heard_ms)
            record = replace(record, resigned=False)
        self.record = record

    def _check_registry_is_behind(self, term: Term, error: LeadershipLost) -> None:
        """Go on standing by if somebody else was elected meanwhile; otherwise the registry knows too much."""
        try:
            self._election.renew(term)
        except LeadershipLost:
            return
        self._election.resign(term)
        raise Conflict(
            f"the registry knows a later leader of job {self._job!r} than the elections",
            where=self.address,
            found=error.found,
            code=error.code,
            expected=error.expected,
            hint="the place of the elections was made anew, and its clock is behind: use another place",
        ) from error

    def _end_frozen(self) -> None:
        """End the former leader if it was frozen while it wrote to the registry, which nobody else can then.

        Its transaction is rolled back by the next one who opens the file.
        """
        pid = writer_of(self._path)
        if pid is not None and self._incumbent_process == ProcessIdentity.of(pid, this_machine()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _require_not_alone(registry: Registry, lock: SupervisorLock, job: str) -> None:
    """Refuse a job that one supervisor has to itself in this state home; a leader's lock is no obstacle."""
    if not lock.is_held():
        return
    leader = registry.leader(job)
    record = next((record for record in registry.jobs() if record.name == job), None)
    if leader is None or record is None or leader.holder != myself(record.supervisor_pid):
        raise running_already(StateHome(registry.path.parent), job)


def live_leader(registry: Registry, job: str, now_ms: int) -> Leader | None:
    """The leader of a job that has several supervisors, if one lives."""
    leader = registry.leader(job)
    return leader if leader is not None and leader.lives(now_ms) else None


def take_alone(registry: Registry, home: StateHome, job: str, now_ms: int) -> SupervisorLock:
    """The lock of a job that one supervisor is to have to itself.

    Raises:
        Conflict: Another one has it, or leads it.
    """
    leader = live_leader(registry, job, now_ms)
    if leader is not None:
        raise led_already(home, job, leader.holder, leader.address)
    lock = SupervisorLock(home, job)
    if not lock.take():
        raise running_already(home, job)
    return lock
