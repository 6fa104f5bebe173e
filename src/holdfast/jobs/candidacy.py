"""The candidacy of a supervisor for the leadership of its job.

Supervisors on several machines need no shared disk for it. The record is small and contains only what a
different state home cannot know: whether the job has begun or ended, its requests, and its checkpoints.
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
from holdfast.jobs.pending_rescale import PendingRescale
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
# A version that does not know of rescales must not lead while one is pending.
_PENDING_FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """The location of a query's state.

    Attributes:
        checkpoint: The address of its checkpoint.
        query_id: The query id in that checkpoint.
    """

    checkpoint: str
    query_id: str


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """A leader's record of its job.

    Attributes:
        holder: The supervisor that wrote it: host and process.
        checkpoint: The job's checkpoint.
        begun_ms: The time when this or an earlier leader began the job.
        ran: True if its queries have started since, so that their checkpoints exist.
        queries: The location of each query's state, by name.
        driver: The driver that this leader started last.
        request: `stop` or `cancel`, if requested.
        resigned: True if the leader has resigned.
        state: The final state of the job; None while it has not ended.
        reason: The reason for the end.
        pending: The rescale that this or an earlier leader has begun and not finished.
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
    pending: PendingRescale | None = None

    def render(self) -> bytes:
        """Return the record as bytes for the election address."""
        number = FORMAT if self.pending is None else _PENDING_FORMAT
        return json.dumps({"format": number, **asdict(self)}).encode()

    @classmethod
    def parse(cls, data: bytes, where: str) -> LeaderRecord:
        """Parse what `render` wrote. Fields of later versions are ignored.

        Raises:
            Unsupported: A later version of Holdfast wrote it in a format that this one cannot read.
        """
        try:
            values: dict[str, Any] = foreign_json(data)
            if values["format"] not in (FORMAT, _PENDING_FORMAT):
                raise ValueError(f"format {values['format']}")
            return from_known(cls, values)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise Unsupported(
                "the record of the job's leader cannot be read",
                code="HF-E7081",
                where=where,
                found=str(error),
                expected=f"format {FORMAT} or {_PENDING_FORMAT}",
                hint="run the same version of Holdfast on all machines",
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
        heard_ms: The time of its last sign of life known here.
    """

    holder: str
    heard_ms: int


class Candidacy:
    """One supervisor's candidacy for one job.

    Args:
        elections: The factory of elections.
        job: The job's name.
        registry: The registry of this supervisor's state home; its path is taken from it.
        clock: Returns epoch milliseconds.
        now: The clock of the elections.

    Raises:
        Conflict: A supervisor runs the job without elections.

    Attributes:
        former: The previous leader of the job; set once this one has won.
        record: The newest leader's record of the job, set once this one has won; None if the job starts from
            scratch.
        place_id: The id of the election address, however it is reached; set once this one has won.
        incumbent: The leader when this one began to stand by, if known.
        ended_meanwhile: The job, if it ended under a leader for which this one stood by.
        has_stood_by: True if a different supervisor led the job while this one waited.
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
        """Return the pause before the next try; longer after this supervisor resigned."""
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
        """True if this supervisor has won; `require` checks that it still leads."""
        return self.lease is not None

    @property
    def token(self) -> int | None:
        """The token of the term; None while a different supervisor leads."""
        return None if self.lease is None else self.lease.token

    def watch(self) -> str | None:
        """Start to stand by; return the current leader, if known."""
        with suppress(Unavailable):
            state = self._election.look()
            self.incumbent, self._incumbent_process = state.holder, state.process
            if self._watched is None:
                self._watched = state.token
        return self.incumbent

    def stand(self) -> bool:
        """Try once to become the leader; return True if this supervisor leads now.

        Raises:
            Unavailable: The election address or the registry does not answer.
            Conflict: The job is led through a different election address.
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
        """Start a term; False if a different supervisor was elected meanwhile."""
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
        """Record that the job is begun, or resumed if its queries `ran` before.

        The registry must already name this supervisor as the job's.
        """
        # A former leader of this state home may be frozen with it: the elections decide, not this lock.
        with suppress(OSError):
            self._lock.take()
        fresh = LeaderRecord(myself(), checkpoint, begun_ms)
        former = self.record or fresh
        self.record = replace(fresh, ran=ran, queries=former.queries, driver=former.driver)
        self.note()

    def note(self, **changes: Any) -> None:
        """Change the record for later leaders; it is written in the background.

        Args:
            changes: Fields of `LeaderRecord`.
        """
        if self.lease is None or self.record is None:
            return
        self.record = replace(self.record, holder=myself(), **changes)
        self.lease.write_record(self.record.render())

    def note_now(self, **changes: Any) -> None:
        """Change the record, and wait until it is written.

        Args:
            changes: As of `note`.

        Raises:
            LeadershipLost: The lease was over first. Later leaders may read either record.
        """
        self.note(**changes)
        if self.lease is None or not self.lease.flush():
            self.require()
            raise LeadershipLost("the leader's record was not written", code="HF-E4094", where=self.address)

    def note_end(self, state: JobState, reason: str | None, say: Callable[..., None]) -> None:
        """Record that the job has ended for the other supervisors; report a failure with `say`."""
        if self.lease is None or self.record is None or not state.terminal:
            return
        self.note(state=state, reason=reason)
        if not self.lease.flush():
            say("caution", f"{self.address} does not answer; a standby supervisor may start the job again")

    @property
    def lost(self) -> str | None:
        """The reason why this supervisor does not lead the job; None while it does."""
        return "it does not lead the job" if self.lease is None else self.lease.lost

    def require(self) -> None:
        """Raise unless this supervisor leads the job.

        Raises:
            LeadershipLost: It does not lead any more.
        """
        if self.lease is None:
            raise LeadershipLost(
                "the supervisor does not lead the job",
                code="HF-E4014",
                hint="see the leader of the job with `holdfast status JOB`",
                where=self._election.address,
            )
        self.lease.require()

    def step_down(self, *, resign: bool) -> None:
        """Stop leading; with `resign` another supervisor may take over at once."""
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
        """Resign, and release all resources."""
        self.step_down(resign=True)
        self._election.close()

    def _check_place(self) -> None:
        """Refuse an election address that lacks terms which this state home has seen there."""
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
                f"job {self._job!r} is led through a different election address",
                code="HF-E4015",
                where=str(self._path),
                found=f"{known.holder}, elected at {known.address}",
                expected=self.address,
                hint="give all supervisors of a job the same --ha; to change it, stop all of them first",
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
        """Return if a different supervisor was elected meanwhile; else raise, since the registry is ahead."""
        try:
            self._election.renew(term)
        except LeadershipLost:
            return
        self._election.resign(term)
        raise Conflict(
            f"the election issued a lower fencing token for job {self._job!r} than the registry records",
            where=self.address,
            found=error.found,
            code=error.code,
            expected=error.expected,
            hint="the election at this address is an earlier one, or was recreated while the clock that"
            " numbers its tokens was behind; correct the clock, then give all supervisors a new --ha address",
        ) from error

    def _end_frozen(self) -> None:
        """End the former leader if it was frozen during a write to the registry, which blocks other writers.

        The next process that opens the file rolls its transaction back.
        """
        pid = writer_of(self._path)
        if pid is not None and self._incumbent_process == ProcessIdentity.of(pid, this_machine()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _require_not_alone(registry: Registry, lock: SupervisorLock, job: str) -> None:
    """Refuse a job that a supervisor without elections runs in this state home."""
    if not lock.is_held():
        return
    leader = registry.leader(job)
    record = next((record for record in registry.jobs() if record.name == job), None)
    if leader is None or record is None or leader.holder != myself(record.supervisor_pid):
        raise running_already(StateHome(registry.path.parent), job)


def live_leader(registry: Registry, job: str, now_ms: int) -> Leader | None:
    """Return the live leader of a job with several supervisors, or None."""
    leader = registry.leader(job)
    return leader if leader is not None and leader.lives(now_ms) else None


def take_alone(registry: Registry, home: StateHome, job: str, now_ms: int) -> SupervisorLock:
    """Take the lock of a job for a supervisor without elections.

    Raises:
        Conflict: A different supervisor has or leads the job.
    """
    leader = live_leader(registry, job, now_ms)
    if leader is not None:
        raise led_already(home, job, leader.holder, leader.address)
    lock = SupervisorLock(home, job)
    if not lock.take():
        raise running_already(home, job)
    return lock
