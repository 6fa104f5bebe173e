"""An election in a directory that all candidates share, on a disk or in an object store.

Each term has two files, named by its token: a claim, which only one candidate can write, and a beat, which
the owner rewrites. There are no locks, so that a frozen candidate cannot block others, and no clocks of
different machines are compared: a candidate considers an owner dead if its beat has not changed for the
duration of a lease on the candidate's own clock.

The owner writes its beat and then checks for a later claim; a candidate writes its claim and then checks the
beat again. Therefore either the owner sees the claim and gives up its term, or the candidate sees the beat
and waits for one more lease.

If a storage allows two candidates to write the same claim, the later write remains, and the other candidate
detects it at its next renewal. A storage that is known to allow this is refused before the first claim.

The record for later owners is also one file per term, so that late writes of a former owner have no effect.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from holdfast.errors import Conflict, HoldfastError, NotFound
from holdfast.formats.text import foreign_json
from holdfast.ownership.election import (
    COUNTED,
    UNKNOWN,
    ElectionState,
    Incumbent,
    LeadershipLost,
    Now,
    Term,
    Wall,
    terms_missing,
)
from holdfast.ownership.process_identity import ProcessIdentity, myself
from holdfast.storage.port import Storage, full

# The number of claims that are kept, for people who want to know earlier leaders.
_KEPT: Final = 10
_CLAIM: Final = ".claim"
_BEAT: Final = ".beat"
_RECORD: Final = ".record"
_PLACE_ID: Final = "place-id"
_TOKEN: Final = re.compile(r"[0-9]{20}")
_ENDED: Final = b"ended"


class StorageElection:
    """A candidate in the elections of one job.

    Args:
        storage: The directory that all candidates share. New files must be visible to all candidates at once,
            and only one of several concurrent creations of a file may succeed.
        job: The job's name.
        lease_s: The time in seconds after which a leader that does not renew its lease loses the leadership.
        now: The function that returns seconds on a monotonic clock.
        wall: The function that returns seconds since 1970.
        holder: The name of this candidate for other processes; by default its host and process.
        elected_at: The id of an election that this candidate has won. The term of an earlier winner of that
            election is over, so its end is not awaited.
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
        # This candidate's claim whose former leader turned out to be alive, and the time of that.
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
        """See `Election`. The owner has been active since this candidate first watched it."""
        return self._has_moved

    def incumbent(self) -> Incumbent | None:
        """See `Election`."""
        newest = self._newest()
        if newest is None or self._beat(newest) == _ENDED:
            return None
        claim = self._read(self._at(newest, _CLAIM))
        return Incumbent(str(claim.get("holder") or UNKNOWN), max(self._lease_s, self._lease_of(newest)))

    def end_term_of_dead(self, has_ended: Callable[[str], bool]) -> None:
        """Release the newest term for its holder, if the holder is known to have died.

        Args:
            has_ended: The function that returns whether a holder within this process has ended.

        Raises:
            Unavailable: The election address does not answer.
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
        self._newest()  # a beat in an empty directory would make the election look alive
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
            with suppress(NotFound):  # a later leader has been elected in between
                record = self._storage.read(self._at(written, _RECORD))
        place_id = "" if newest is None else self._place_id()
        process = ProcessIdentity.parse(claim.get("process"))
        return ElectionState(place_id, newest, claim.get("holder"), record, written, process)

    def write_record(self, term: Term, record: bytes) -> None:
        """See `Election`."""
        self._require_held(term)
        self._storage.write(self._at(term.token, _RECORD), record, replace=True)
        self._require_held(term)
        with suppress(HoldfastError):  # the files are small, and the next record retries
            for old in self._tokens(_RECORD):
                if old < term.token:
                    self._storage.delete(self._at(old, _RECORD))

    def resign(self, term: Term) -> None:
        """See `Election`."""
        try:
            if self._newest() == term.token and self._is_own(term.token):
                self._storage.write(self._at(term.token, _BEAT), _ENDED, replace=True)
        except HoldfastError:
            return  # the term ends by itself

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
        """Return whether a term has ended: released, not renewed for a lease, or of an earlier leader."""
        if beat == _ENDED or self._is_followed(token):
            return True
        if self._seen != (token, beat):
            self._has_moved = self._seen is not None
            self._seen, self._seen_s = (token, beat), self._now()
            return False
        return self._now() - self._seen_s >= max(self._lease_s, self._lease_of(token))

    def _is_followed(self, token: int) -> bool:
        """Return whether a term belongs to an earlier winner of the election that this candidate has won."""
        claim = self._read(self._at(token, _CLAIM)) if self._elected_at else {}
        return bool(claim) and claim.get("elected_at") == self._elected_at

    def _claim(self, token: int) -> bool:
        """Write the claim of a term; return whether this candidate's claim was written."""
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
        # If a storage allows two candidates to write the same claim, the later write is valid.
        return self._is_own(token)

    def _check_storage(self) -> None:
        """Check that the storage does not allow two candidates to write the same claim.

        Raises:
            Unsupported: The storage allows two candidates to write the same claim.
        """
        if not self._is_checked:
            self._storage.require_exclusive_writes(f"{self._job}/{self._id}.probe")
        self._is_checked = True

    def _is_own(self, token: int) -> bool:
        return bool(self._read(self._at(token, _CLAIM)).get("id") == self._id)

    def _lease_of(self, token: int) -> float:
        """Return the lease of a term's leader in seconds, which may be longer than this candidate's."""
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
                f"a different supervisor leads job {self._job!r}",
                code="HF-E4046",
                hint=f"see the leader of the job with `holdfast status {self._job}`",
                where=full(self._storage.uri, self._job),
                found=f"term {newest}"
                if newest != term.token
                else f"term {newest}, claimed by a different process",
                expected=f"term {term.token}",
            )

    def _place_id(self) -> str:
        path = f"{self._job}/{_PLACE_ID}"
        with suppress(Conflict):  # one of two concurrent candidates writes it
            if self._storage.size(path) is None:
                self._storage.write(path, uuid.uuid4().hex.encode())
        return self._storage.read(path).decode()

    def _newest(self) -> int | None:
        """Return the token of the newest term; an older one than seen before is an error."""
        newest = max(self._tokens(_CLAIM), default=None)
        if self._known is not None and (newest is None or newest < self._known):
            raise terms_missing(full(self._storage.uri, self._job), self._known, newest)
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
            return  # the files are small, and the next leader retries

    def _at(self, token: int, suffix: str) -> str:
        return f"{self._job}/{token:020}{suffix}"
