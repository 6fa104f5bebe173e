"""Leases on a job: elections, terms, and a lease in a directory that all candidates share.

A leader holds a term. A term has a token, which is greater than that of every term before, and it is good
until a moment that the leader moves on by renewing it. Whoever may be frozen, cut off, or slow is told
apart from the leader by his token: the registry, the checkpoint's lock and the ledgers of sinks refuse an
older one.

Each term has two files, named by its token: a claim, which only one candidate can put there, and a beat,
which its leader rewrites. Nobody locks anything, so a frozen candidate stands in nobody's way, and no clock
is compared with another machine's: a candidate takes a leader for dead when it has not seen the beat move
for a lease on its own clock.

The leader writes its beat and then looks for a later claim; a candidate claims and then looks at the beat
once more. So either the leader sees the claim and leaves, or the candidate sees the beat and waits another
lease.

Where a storage lets both of two candidates write one claim, the later write stays: the other candidate finds
that at its next renewal. Storage that is known to do so is refused before the first claim.

What leaders put down for their successors is a file a term too, so a former leader that writes late writes
where nobody reads any more.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast.errors import Conflict, HoldfastError, NotFound, Unavailable
from holdfast.formats.text import foreign_json
from holdfast.storage.port import Storage, full
from holdfast.storage.remote import RemoteStorage

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# The place of the start time among the fields of /proc/PID/stat that follow the name.
_START_TIME: Final = 19
_LARGEST_PID: Final = (1 << 31) - 1


@cache
def this_machine() -> str:
    """Names the processes that this one can send signals to: the host's name, its boot, its process numbers.

    Two containers of one machine have different names here, because a process number means something else in
    each. So has a machine that was started anew.
    """
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(_BOOT_ID.read_text().strip())
    for namespace in ("pid", "time"):  # the kernel tells start times by the clock of the namespace
        with suppress(OSError):
            parts.append(str(Path(f"/proc/self/ns/{namespace}").readlink()))
    return " ".join(parts)


def host_name(machine: str) -> str:
    """The name that people know a machine by."""
    return machine.partition(" ")[0]


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, distinguished from all others that have had its number.

    Attributes:
        machine: Where it runs, as `this_machine` names it there.
        pid: Its number there.
        started: When it started, in the kernel's ticks; None where the kernel does not tell.
    """

    machine: str
    pid: int
    started: int | None

    @classmethod
    def of(cls, pid: int, machine: str) -> ProcessIdentity:
        """Return that of a process of this machine."""
        return cls(machine, pid, start_time(pid))

    @classmethod
    def own(cls) -> ProcessIdentity:
        """Return that of this process."""
        return cls.of(os.getpid(), this_machine())

    @classmethod
    def parse(cls, value: object) -> ProcessIdentity | None:
        """Return the identity that `asdict` has made a dictionary of; None for anything else."""
        if not isinstance(value, dict):
            return None
        machine, pid, started = (value.get(name) for name in ("machine", "pid", "started"))
        if not isinstance(machine, str) or not isinstance(pid, int) or not 0 < pid <= _LARGEST_PID:
            return None
        return cls(machine, pid, started) if started is None or isinstance(started, int) else None

    def has_died(self) -> bool:
        """Return True if the process ran on this machine and has ended; False where that is not known."""
        if self.machine != this_machine():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it exists, and belongs to a different user
            pass
        started = start_time(self.pid)
        return None not in (self.started, started) and self.started != started

    def end_group(self, machine: str) -> bool:
        """End it with all processes of its group, which it leads, if it lives on this machine.

        Returns:
            True if it was ended.
        """
        if self.machine != machine or self.started is None or start_time(self.pid) != self.started:
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
            return True
        return False


def start_time(pid: int) -> int | None:
    """Return the start of a process in the kernel's ticks; None if unknown, or if it is gone."""
    try:
        # The name is in parentheses and may hold anything, the rest is plain.
        fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return int(fields[_START_TIME])
    except (OSError, IndexError, ValueError):
        return None


# A leader counts on this part of its lease alone: the rest is for clocks that do not run quite alike, and for
# the time from noticing to having ended a driver.
COUNTED: Final = 0.8


class LeadershipLost(Conflict):
    """This supervisor leads the job no longer, so it must leave it alone."""


class CannotLead(LeadershipLost):
    """This supervisor has won, and lacks what it needs to lead: it gives the term up, and stands by."""


@dataclass(frozen=True, slots=True)
class Term:
    """A time of leading.

    Attributes:
        token: Greater than that of every term before it.
        until_s: The moment until which it may be counted on, on the clock of the election.
    """

    token: int
    until_s: float


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a job, as the registry has it.

    Attributes:
        token: That of the term.
        holder: The supervisor: host and process.
        address: Where the elections are held.
        lease_ms: After so long without a sign of life another one takes over.
        since_ms: When the term began.
        beat_ms: The last sign of life.
    """

    token: int
    holder: str
    address: str
    lease_ms: int
    since_ms: int
    beat_ms: int

    def lives(self, now_ms: int) -> bool:
        """Return whether it was active lately. Clocks of two machines may differ by the length of a lease."""
        return now_ms - self.beat_ms < 2 * self.lease_ms


@dataclass(frozen=True, slots=True)
class ElectionState:
    """The state of one job's election.

    Attributes:
        place_id: Names the place itself, and stays the same however a machine reaches it; empty before the
            first term.
        token: That of the newest term; None before the first.
        holder: The supervisor that won the newest term: host and process; None where that is not known.
        record: What the newest leader that wrote one has put down for its successors.
        record_token: The token of the term in which that was written.
        process: The supervisor's process; None where that is not known.
    """

    place_id: str
    token: int | None
    holder: str | None = None
    record: bytes | None = None
    record_token: int | None = None
    process: ProcessIdentity | None = None


class Election(Protocol):
    """The election of one job's leader, as one candidate takes part in it.

    Used from one thread at a time.
    """

    @property
    def address(self) -> str:
        """The address of the election, as messages show it."""

    @property
    def lease_s(self) -> float:
        """The seconds for which a silent leader stays leader."""

    def campaign(self) -> Term | None:
        """Try to become the leader, once and without waiting for others; None if somebody else leads.

        Called again and again, several times in a lease: some kinds find out by watching the leader whether
        it still lives.

        Raises:
            Unavailable: The place of the elections does not answer. Nobody leads on that ground.
        """

    def renew(self, term: Term) -> Term:
        """Move the end of a term on.

        Raises:
            LeadershipLost: Somebody else leads.
            Unavailable: The place of the elections does not answer; the term runs on, to its end.
        """

    def look(self) -> ElectionState:
        """Read the state of the election. Any process may read it.

        Raises:
            Unavailable: The place of the elections does not answer.
        """

    def write_record(self, term: Term, record: bytes) -> None:
        """Put down what the leaders to come have to know. A former leader's write changes nothing they read.

        Raises:
            LeadershipLost: Somebody else leads.
            Unavailable: The place of the elections does not answer.
        """

    def resign(self, term: Term) -> None:
        """Give a term up, so that another one need not wait for its end. Never raises."""

    def close(self) -> None:
        """Let go of connections. A term that was not given up runs to its end."""


def myself(pid: int | None = None) -> str:
    """Return the name of this process, or of a different one of this machine, for others."""
    return f"{socket.gethostname()} pid {os.getpid() if pid is None else pid}"


def place_lost(where: str, known: int, token: int | None) -> Unavailable:
    """The error for a place of elections that knows less than it did.

    A disk that is not mounted any more looks like an empty directory. Whoever went on there would lead
    beside the leader that the others elect.
    """
    return Unavailable(
        "the place of the elections has lost the terms that it held",
        where=where,
        found="no term" if token is None else f"term {token}",
        expected=f"term {known} or a later one",
        hint="see that its disk is mounted; if it was made anew on purpose, give all another --ha",
    )


# Seconds on a clock that never goes back; only differences count, and only within one process.
Now = Callable[[], float]
# Seconds since 1970: the first token of a place that knows none, so that a place that was lost and made anew
# does not begin below the tokens that registries and ledgers remember.
Wall = Callable[[], float]


# Claims that stay, for people who want to know who led.
_KEPT: Final = 10
_CLAIM: Final = ".claim"
_BEAT: Final = ".beat"
_RECORD: Final = ".record"
_PLACE_ID: Final = "place-id"
_TOKEN: Final = re.compile(r"[0-9]{20}")
_ENDED: Final = b"ended"
UNKNOWN: Final = "an unknown process"


@dataclass(frozen=True, slots=True)
class Incumbent:
    """The winner of the newest term, unless released. Only watching shows whether it is alive.

    Attributes:
        holder: The process: host and number, and what it does.
        lease_s: How long it stays the owner without a sign of life.
    """

    holder: str
    lease_s: float


class LeaseElection:
    """One candidate's part in the elections of one job.

    Args:
        storage: The directory that all candidates share. It has to show a file to everybody as soon as it is
            written, and of several who write a new file let one win.
        job: The job's name.
        lease_s: How long a leader that gives no sign of life stays leader.
        now: Seconds on a clock that never goes back.
        wall: Seconds since 1970.
        holder: How others see this candidate; by default its host and process.
        elected_at: Names the elections that this candidate has won. Whoever won them before is over by that,
            and is followed at once.
    """

    def __init__(
        self,
        storage: Storage,
        job: str,
        lease_s: float,
        now: Now,
        wall: Wall,
        holder: str | None = None,
        elected_at: str = "",
    ) -> None:
        self._storage = storage
        self._job = job
        self._lease_s = lease_s
        self._now = now
        self._wall = wall
        self._holder = holder or myself()
        self._elected_at = elected_at
        self._id = uuid.uuid4().hex
        self._beats = 0
        self._seen: tuple[int, bytes] | None = None
        self._seen_s = 0.0
        self._has_moved = False
        # A claim of our own whose former leader was seen alive after all, and when.
        self._pending: tuple[int, float] | None = None
        # The newest term that this candidate has seen.
        self._known: int | None = None
        self._is_checked = False

    @property
    def address(self) -> str:
        """See `Election`."""
        return self._storage.uri

    @property
    def lease_s(self) -> float:
        """See `Election`."""
        return self._lease_s

    @property
    def saw_life(self) -> bool:
        """Return whether a different candidate has been active since the first look."""
        return self._has_moved

    def incumbent(self) -> Incumbent | None:
        """Return the winner of the newest term; None if it was released, or there was none. Changes nothing.

        Raises:
            Unavailable: The place of the elections does not answer.
        """
        newest = self._newest()
        if newest is None or self._beat(newest) == _ENDED:
            return None
        claim = self._read(self._at(newest, _CLAIM))
        return Incumbent(str(claim.get("holder") or UNKNOWN), max(self._lease_s, self._lease_of(newest)))

    def end_term_of_dead(self, has_ended: Callable[[str], bool]) -> None:
        """Give up the newest term in the name of its holder, if that is known to have died.

        Args:
            has_ended: Returns True if a holder within this very process has ended.

        Raises:
            Unavailable: The place of the elections does not answer.
        """
        newest = self._newest()
        claim = {} if newest is None else self._read(self._at(newest, _CLAIM))
        process = ProcessIdentity.parse(claim.get("process"))
        if newest is None or process is None:
            return
        is_own = process == ProcessIdentity.own()
        if has_ended(str(claim.get("holder") or UNKNOWN)) if is_own else process.has_died():
            self._storage.write(self._at(newest, _BEAT), _ENDED, replace=True)

    def campaign(self) -> Term | None:
        """See `Election`."""
        began = self._now()
        newest = self._newest()
        if self._pending is not None:
            return self._after_waiting(newest, began)
        beat = b"" if newest is None else self._beat(newest)
        if newest is not None and not self._over(newest, beat):
            return None
        token = max(newest or 0, int(self._wall()) if newest is None else 0) + 1
        if not self._claim(token):
            return None
        if newest is not None and self._beat(newest) != beat:
            self._pending = (token, self._now())
            return None
        return self._lead(token, began)

    def renew(self, term: Term) -> Term:
        """See `Election`."""
        began = self._now()
        self._newest()  # a beat in an empty place would make it look alive
        self._beats += 1
        self._storage.write(self._at(term.token, _BEAT), f"{self._id} {self._beats}".encode(), replace=True)
        self._require_held(term)
        return Term(term.token, began + COUNTED * self._lease_s)

    def look(self) -> ElectionState:
        """See `Election`."""
        newest = self._newest()
        claim = {} if newest is None else self._read(self._at(newest, _CLAIM))
        written = max(self._tokens(_RECORD), default=None)
        record = None
        if written is not None:
            with suppress(NotFound):  # a later one has come in between
                record = self._storage.read(self._at(written, _RECORD))
        place_id = "" if newest is None else self._place_id()
        process = ProcessIdentity.parse(claim.get("process"))
        return ElectionState(place_id, newest, claim.get("holder"), record, written, process)

    def write_record(self, term: Term, record: bytes) -> None:
        """See `Election`."""
        self._require_held(term)
        self._storage.write(self._at(term.token, _RECORD), record, replace=True)
        self._require_held(term)
        with suppress(HoldfastError):  # they are small, and the next record tries again
            for old in self._tokens(_RECORD):
                if old < term.token:
                    self._storage.delete(self._at(old, _RECORD))

    def resign(self, term: Term) -> None:
        """See `Election`."""
        try:
            if self._newest() == term.token and self._is_own(term.token):
                self._storage.write(self._at(term.token, _BEAT), _ENDED, replace=True)
        except HoldfastError:
            return  # it ends by itself

    def close(self) -> None:
        """See `Election`."""

    def _after_waiting(self, newest: int | None, began: float) -> Term | None:
        token, since = self._pending or (0, 0.0)
        if newest != token:
            self._pending = None
            return None
        if began - since < self._lease_s:
            return None
        self._pending = None
        return self._lead(token, began)

    def _lead(self, token: int, began: float) -> Term | None:
        try:
            term = self.renew(Term(token, began))
        except LeadershipLost:
            return None
        self._forget_before(token)
        return Term(term.token, min(term.until_s, began + COUNTED * self._lease_s))

    def _over(self, token: int, beat: bytes) -> bool:
        """Return whether a term has ended: released, silent for a lease, or that of an earlier leader."""
        if beat == _ENDED or self._is_followed(token):
            return True
        if self._seen != (token, beat):
            self._has_moved = self._seen is not None
            self._seen, self._seen_s = (token, beat), self._now()
            return False
        return self._now() - self._seen_s >= max(self._lease_s, self._lease_of(token))

    def _is_followed(self, token: int) -> bool:
        """Return whether a term belongs to an earlier winner while this candidate is elected."""
        claim = self._read(self._at(token, _CLAIM)) if self._elected_at else {}
        return bool(claim) and claim.get("elected_at") == self._elected_at

    def _claim(self, token: int) -> bool:
        """Return whether this candidate wrote the claim of a term."""
        self._check_storage()
        path = self._at(token, _CLAIM)
        claim = {
            "id": self._id,
            "holder": self._holder,
            "process": asdict(ProcessIdentity.own()),
            "lease_s": self._lease_s,
        }
        if self._elected_at:
            claim["elected_at"] = self._elected_at
        try:
            self._storage.write(path, json.dumps(claim).encode())
        except Conflict:
            return False
        # Of two who wrote at once, where a storage is not as exact as it should be, the later one stands.
        return self._is_own(token)

    def _check_storage(self) -> None:
        """Refuse storage that lets two candidates write one claim.

        Raises:
            Unsupported: It does.
        """
        if not self._is_checked and isinstance(self._storage, RemoteStorage):
            self._storage.require_exclusive_writes(f"{self._job}/{self._id}.probe")
        self._is_checked = True

    def _is_own(self, token: int) -> bool:
        return bool(self._read(self._at(token, _CLAIM)).get("id") == self._id)

    def _lease_of(self, token: int) -> float:
        """The lease that a leader counts on may be longer than one's own."""
        try:
            return float(self._read(self._at(token, _CLAIM)).get("lease_s", 0.0))
        except (TypeError, ValueError):
            return 0.0

    def _read(self, path: str) -> dict[str, Any]:
        try:
            values = foreign_json(self._storage.read(path))
        except (NotFound, ValueError):
            return {}
        return values if isinstance(values, dict) else {}

    def _beat(self, token: int) -> bytes:
        try:
            return self._storage.read(self._at(token, _BEAT))
        except NotFound:
            return b""

    def _require_held(self, term: Term) -> None:
        newest = self._newest()
        if newest != term.token or not self._is_own(term.token):
            raise LeadershipLost(
                f"another supervisor leads job {self._job!r}",
                where=full(self._storage.uri, self._job),
                found=f"term {newest}" if newest != term.token else "a claim of another process",
                expected=f"term {term.token}",
            )

    def _place_id(self) -> str:
        path = f"{self._job}/{_PLACE_ID}"
        with suppress(Conflict):  # of two who look first one writes it
            if self._storage.size(path) is None:
                self._storage.write(path, uuid.uuid4().hex.encode())
        return self._storage.read(path).decode()

    def _newest(self) -> int | None:
        """The newest term, which is never older than one that was seen here before."""
        newest = max(self._tokens(_CLAIM), default=None)
        if self._known is not None and (newest is None or newest < self._known):
            raise place_lost(full(self._storage.uri, self._job), self._known, newest)
        self._known = newest
        return newest

    def _tokens(self, suffix: str) -> list[int]:
        names = self._storage.list(self._job).names
        heads = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
        return [int(head) for head in heads if _TOKEN.fullmatch(head)]

    def _forget_before(self, token: int) -> None:
        try:
            for old in sorted(self._tokens(_CLAIM))[:-_KEPT]:
                if old < token:
                    self._storage.delete(self._at(old, _BEAT))
                    self._storage.delete(self._at(old, _CLAIM))
        except HoldfastError:
            return  # they are small, and the next leader tries again

    def _at(self, token: int, suffix: str) -> str:
        return f"{self._job}/{token:020}{suffix}"
