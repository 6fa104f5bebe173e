"""The claim on the target of a restore or change, so that only one process creates the checkpoint.

On a local disk, the process holds a lock on the file that records what is being created; no crash leaves the
lock behind. Elsewhere the process holds a lease within the target, which it deletes at the end. If the owner
of such a lease was a process of this machine and has ended, the next process does not wait for the end of the
lease.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from holdfast import layout
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.config.checks import local_path
from holdfast.errors import Conflict, HoldfastError, Unavailable
from holdfast.ownership.checkpoint_guard import MACHINE_TIMING, Timing
from holdfast.ownership.election import LeadershipLost
from holdfast.ownership.lease import LEASE_S, Lease, acquire
from holdfast.ownership.process_identity import myself
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage.file_lock import FileLock
from holdfast.storage.port import Storage

# The name of a temporary file, so that it is never read as a part of the checkpoint.
_LEASE: Final = f"{layout.OWN}/.making.tmp"
_MAKER: Final = ", maker "
# The active holders in this process.
_MAKERS: Final[set[str]] = set()


class Claim(Protocol):
    """The right to create a checkpoint."""

    def require(self) -> None:
        """Check that this process still has the claim.

        Raises:
            Conflict: A different process creates the checkpoint now.
        """

    def rewrite(self, note: bytes) -> None:
        """Replace the content of the checkpoint's mark, which records what is being created.

        Raises:
            Conflict: A different process creates the checkpoint now.
        """


@contextmanager
def claimed(
    target: Storage,
    note: bytes | None,
    *,
    timing: Timing = MACHINE_TIMING,
    tell: ProgressCallback | None = None,
) -> Iterator[Claim]:
    """Claim a target: in the block, no other process creates a checkpoint there or deletes its files.

    Args:
        target: The checkpoint to create.
        note: The content of the checkpoint's mark; None if the mark exists.
        timing: The clocks.
        tell: The callback with the name of the process whose lease must end first, if it is unknown whether
            that process is alive.

    Raises:
        Conflict: A different process creates the checkpoint now.
        Unavailable: The storage does not answer.
    """
    place = local_path(target.uri)
    claims = _leased(target, timing, tell) if place is None else _locked(target, place, note)
    with claims as claim:
        if place is None and note is not None:
            _begin(target, note)
        yield claim


def refuse_claimed(target: Storage) -> None:
    """Check that no process is creating a checkpoint at a target on a local disk. Changes nothing.

    Raises:
        Conflict: A process is creating the checkpoint.
    """
    place = local_path(target.uri)
    taken = False
    with suppress(OSError):  # not our mark, so the file is refused
        taken = place is not None and FileLock(place / layout.ORIGIN).is_held()
    if taken:
        raise _being_made(target)


class _Lock:
    def __init__(self, target: Storage, place: Path) -> None:
        self._target = target
        self._mark = place / layout.ORIGIN
        self._lock = self._acquire()

    def require(self) -> None:
        if not self._lock.holds():
            raise _being_made(self._target)

    def rewrite(self, note: bytes) -> None:
        # Until the new file is locked, a different process may lock it; then this one gives up.
        self.require()
        self._target.write(layout.ORIGIN, note, replace=True)
        former, self._lock = self._lock, self._acquire()
        former.release()

    def release(self) -> None:
        self._lock.release()

    def _acquire(self) -> FileLock:
        lock = FileLock(self._mark)
        with suppress(FileNotFoundError, NotADirectoryError):  # a different process deleted the file
            if lock.take(make=False):
                return lock
        raise _being_made(self._target)


@contextmanager
def _locked(target: Storage, place: Path, note: bytes | None) -> Iterator[Claim]:
    if note is not None:
        _begin(target, note)
    lock = _Lock(target, place)
    try:
        yield lock
    finally:
        lock.release()


class _Lease:
    def __init__(self, target: Storage, lease: Lease) -> None:
        self._target = target
        self._lease = lease

    def require(self) -> None:
        try:
            self._lease.require()
        except LeadershipLost as error:
            raise _being_made(self._target) from error

    def rewrite(self, note: bytes) -> None:
        self.require()
        self._target.write(layout.ORIGIN, note, replace=True)


@contextmanager
def _leased(target: Storage, timing: Timing, tell: ProgressCallback | None) -> Iterator[Claim]:
    maker = uuid.uuid4().hex
    holder = f"{myself()}{_MAKER}{maker}"
    election = StorageElection(
        target, _LEASE, LEASE_S, timing.steady_s, lambda: timing.wall_ms() / 1000, holder
    )

    def wait(seconds: float) -> bool:
        timing.pause(seconds)
        return True

    def say(owner: str, lease_s: float) -> None:
        if tell is not None:
            tell(0, 1, f"waiting at most {lease_s:.0f} s to see whether {owner} still creates the checkpoint")

    _MAKERS.add(maker)
    try:
        election.end_term_of_dead(_has_ended)
        try:
            lease = acquire(election, target.uri, wait, say, refuse_living=True, now=timing.steady_s)
        except Unavailable as error:
            if target.list(_LEASE).names:
                raise
            raise _being_made(target) from error  # the lease ended during the check
        if lease is None:
            raise _being_made(target)
        try:
            yield _Lease(target, lease)
        finally:
            _MAKERS.discard(maker)
            lease.release()
            with suppress(HoldfastError):  # a remaining lease that has ended has no owner
                _clear(target, lease.token)
    finally:
        _MAKERS.discard(maker)


def _clear(target: Storage, token: int) -> None:
    """Delete the files of a lease that has ended, and those of earlier leases."""
    for name in sorted(target.list(_LEASE).names):
        term = name.partition(".")[0]
        if term.isdecimal() and int(term) <= token:
            target.delete(f"{_LEASE}/{name}")


def _has_ended(holder: str) -> bool:
    """Return whether a holder in this process has ended."""
    return holder.rpartition(_MAKER)[2] not in _MAKERS


def _begin(target: Storage, note: bytes) -> None:
    """Write the mark; only one of several concurrent processes succeeds.

    Raises:
        Conflict: A different process has written the mark.
    """
    try:
        target.write(layout.ORIGIN, note)
    except Conflict as error:
        raise _being_made(target) from error


def _being_made(target: Storage) -> Conflict:
    return Conflict(
        "another command is creating this checkpoint",
        code="HF-E4047",
        where=target.uri,
        found=f"{layout.ORIGIN}, locked by that command",
        hint="repeat the command when the other one has ended, or give a new directory",
    )
