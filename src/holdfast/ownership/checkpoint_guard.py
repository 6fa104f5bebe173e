"""The guard for every verb that changes, replaces or copies a checkpoint, which no query may be using.

Jobs of Holdfast hold the lock of a checkpoint, or its lease if it is not on a local disk: the guard checks
both and then holds them. A plain query holds neither, so a person must confirm that it is stopped. The
confirmation is checked: the checkpoint is watched for longer than the usual time between two batches, and its
files are compared again immediately before and after the step that publishes the change.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from holdfast import layout
from holdfast.checkpoints.checkpoint import ProgressCallback, Tree
from holdfast.clock import now_ms, steady_s
from holdfast.config.checks import local_path, place_word
from holdfast.config.settings import Settings
from holdfast.errors import Conflict, Unavailable
from holdfast.ownership.checkpoint_lease import has_lease, lease_note, lease_of
from holdfast.ownership.checkpoint_lock import holder, in_use, last_owner, lock_path, reserved, supervised
from holdfast.ownership.lease import Lease, acquire
from holdfast.ownership.process_identity import myself
from holdfast.ownership.usage import CheckpointUsage, usage_of
from holdfast.storage.port import Storage
from holdfast.storage.successors import first_address

LEAST_WATCH_MS: Final = 3_000
LONGEST_WATCH_MS: Final = 120_000
_MARGIN_MS: Final = 2_000
_LOOK_S: Final = 0.25
# The interval between checks of a remote storage.
_LOOK_FAR_S: Final = 2.0
_SHOWN: Final = 3

# The size, modification time and inode of a file; 0 if the storage does not have one.
Marks = Mapping[str, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Timing:
    """The clocks of a guard.

    Attributes:
        wall_ms: The function that returns the wall-clock time in epoch milliseconds.
        steady_s: The function that returns seconds on a monotonic clock.
        pause: The function that waits for a number of seconds.
    """

    wall_ms: Callable[[], int] = now_ms
    steady_s: Callable[[], float] = steady_s
    pause: Callable[[float], None] = time.sleep


# The default clocks.
MACHINE_TIMING = Timing()


class CheckpointGuard:
    """A checkpoint that a person confirmed to be unused, with the marks of its files at that time.

    Args:
        checkpoint: The checkpoint.
        timing: The clocks.
        leases: The leases that the guard holds.

    Attributes:
        marks: The marks of the checkpoint's files when the guard was taken.
    """

    def __init__(self, checkpoint: Storage, timing: Timing, leases: Sequence[Lease] = ()) -> None:
        self._checkpoint = checkpoint
        self._timing = timing
        self._leases = tuple(leases)
        self.marks = file_marks(checkpoint)
        self._look_s = _LOOK_FAR_S if local_path(checkpoint.uri) is None else _LOOK_S

    def watch(self, wanted_ms: int, tell: ProgressCallback | None, note: str) -> None:
        """Check that nothing is written to the checkpoint for some time.

        Raises:
            Conflict: A file was written to the checkpoint.
        """
        if tell is not None:
            tell(0, 1, note)
        names = _log_names(self._checkpoint)
        until = self._timing.steady_s() + wanted_ms / 1000
        while self._timing.steady_s() < until:
            self._timing.pause(self._look_s)
            if _log_names(self._checkpoint) != names:
                break
        self.require_unmoved()

    def pause(self, wanted_ms: int) -> None:
        """Wait for a number of milliseconds."""
        until = self._timing.steady_s() + wanted_ms / 1000
        while self._timing.steady_s() < until:
            self._timing.pause(self._look_s)

    def require_unmoved(self) -> None:
        """Check that all files of the checkpoint are unchanged, and that its lease is still held.

        Raises:
            Conflict: A file has changed, so a query is using the checkpoint, or the lease is lost.
        """
        for lease in self._leases:
            lease.require()
        moves = moves_between(self.marks, file_marks(self._checkpoint))
        if moves:
            raise written_meanwhile(self._checkpoint.uri, moves)


@contextmanager
def guarded(
    checkpoint: Storage,
    verb: str,
    *,
    stopped: bool,
    hint: str,
    timing: Timing | None = None,
    tell: ProgressCallback | None = None,
) -> Iterator[CheckpointGuard]:
    """Guard a checkpoint: in the block, no job of Holdfast can start on it; detected use is an error.

    Args:
        checkpoint: The checkpoint.
        verb: The verb, as typed.
        stopped: Whether a person confirmed that no query uses the checkpoint.
        hint: The hint of the error for a missing confirmation.
        timing: The clocks; by default the machine's.
        tell: The callback for progress: steps done, total steps, and the current step.

    Raises:
        Conflict: A job holds the checkpoint, a different process owns its lease, a process has one of its
            files open, a file was written, or the confirmation is missing.
    """
    timing = timing or MACHINE_TIMING
    refuse_held(checkpoint)
    if not stopped:
        raise not_said(dry_run_usage(checkpoint, timing.wall_ms()), hint)
    with _reserved(checkpoint, verb), _leased(checkpoint, verb, timing, tell) as leases:
        # A supervisor may have started between the check and the lock.
        refuse_supervised(checkpoint)
        usage = usage_of(checkpoint, timing.wall_ms())
        refuse_open(usage)
        guard = CheckpointGuard(checkpoint, timing, leases)
        wanted_ms = watch_ms(usage)
        guard.watch(wanted_ms, tell, _note(usage, wanted_ms))
        yield guard


@contextmanager
def held_between_drivers(checkpoint: Storage, verb: str) -> Iterator[CheckpointGuard]:
    """Guard a checkpoint as `guarded` does, for the supervisor of its job while no driver runs.

    The driver held the lock until now, and the supervisor holds the lease, so neither a confirmation nor a
    watch is needed.

    Raises:
        Conflict: A different process holds the checkpoint or has one of its files open.
    """
    with _reserved(checkpoint, verb):
        refuse_open(usage_of(checkpoint, MACHINE_TIMING.wall_ms()))
        yield CheckpointGuard(checkpoint, MACHINE_TIMING)


@contextmanager
def held_for_making(target: Storage, verb: str) -> Iterator[None]:
    """Guard the target of a restore: in the block, no job can start on a checkpoint that existed there.

    Raises:
        Conflict: A job holds the lock of the target, or a different process holds its lease.
    """
    refuse_held(target)
    with (
        _reserved(target, verb, create=False),
        _leased(target, verb, MACHINE_TIMING, None, create=False),
    ):
        yield


@contextmanager
def _reserved(checkpoint: Storage, verb: str, *, create: bool = True) -> Iterator[None]:
    with ExitStack() as held:
        for lock, own in _locks(checkpoint):
            held.enter_context(reserved(lock, verb, create=create and own))
        yield


@contextmanager
def _leased(
    checkpoint: Storage, verb: str, timing: Timing, tell: ProgressCallback | None, *, create: bool = True
) -> Iterator[list[Lease]]:
    """Hold the lease next to a checkpoint, and that of a job with several queries if one ever existed.

    A local checkpoint has a lock; it has a lease only if an owner keeps one for other machines.
    """
    held: list[Lease] = []
    with ExitStack() as stack:
        for uri, own in _addresses(checkpoint):
            made = create and own and local_path(uri) is None
            had = has_lease(uri)
            if not had and not made:
                continue
            election = lease_of(uri, f"{myself()}, `holdfast {verb}`", now=timing.steady_s)
            if election is None:
                continue
            wait, say = partial(_wait, timing), partial(_say_waiting, tell)
            try:
                lease = acquire(election, uri, wait, say, refuse_living=True, now=timing.steady_s)
            except Unavailable:
                if had:
                    raise
                continue  # no lease exists in a directory that this process cannot write
            if lease is not None:
                stack.callback(lease.release)
                held.append(lease)
        yield held


def _wait(timing: Timing, seconds: float) -> bool:
    timing.pause(seconds)
    return True


def _say_waiting(tell: ProgressCallback | None, holder: str, lease_s: float) -> None:
    if tell is not None:
        tell(0, 1, f"waiting at most {lease_s:.0f} s to see whether {holder} still owns the checkpoint")


def dry_run_usage(checkpoint: Storage, now_ms: int) -> CheckpointUsage:
    """Return the evidence that a checkpoint is in use, for a person to judge.

    Raises:
        Conflict: A job holds the checkpoint, or a process has one of its files open.
    """
    refuse_held(checkpoint)
    usage = usage_of(checkpoint, now_ms)
    refuse_open(usage)
    return replace(usage, lease=lease_note(checkpoint))


def refuse_held(checkpoint: Storage) -> None:
    """Check that no job of Holdfast, in any state home, holds a checkpoint. Changes nothing.

    Raises:
        Conflict: A job holds the checkpoint, or the job's supervisor is about to start a driver.
    """
    for lock, _ in _locks(checkpoint):
        owner = holder(lock)
        if owner is not None:
            raise in_use(lock, owner)
    refuse_supervised(checkpoint)


def refuse_supervised(checkpoint: Storage) -> None:
    """Check that the last job of a checkpoint has no live supervisor, which may be between two drivers.

    Raises:
        Conflict: The job has a live supervisor.
    """
    for lock, _ in _locks(checkpoint):
        owner = last_owner(lock)
        if owner is not None and supervised(owner):
            raise Conflict(
                "the checkpoint belongs to a job with a live supervisor",
                code="HF-E4037",
                where=checkpoint.uri,
                found=f"a live supervisor of job {owner.job!r} in state home {owner.home}",
                hint=f"stop the job first: `holdfast stop {owner.job} --home {place_word(owner.home)}`",
            )


def refuse_open(usage: CheckpointUsage) -> None:
    """Check that no process of this machine has a file of the checkpoint open.

    Raises:
        Conflict: A process has a file of the checkpoint open.
    """
    writers = usage.scan.writers
    if writers:
        raise Conflict(
            "a process of this machine has the checkpoint open",
            code="HF-E4038",
            where=usage.uri,
            found=", ".join(str(process) for process in writers[:_SHOWN]),
            hint="stop the process, then repeat the command",
        )


def not_said(usage: CheckpointUsage, hint: str) -> Conflict:
    """Return the error for a missing confirmation that the query is stopped, with the evidence of use."""
    return Conflict(
        "a query may still be using the checkpoint",
        code="HF-E4039",
        where=usage.uri,
        found="\n    ".join(usage.lines()),
        hint=hint,
    )


def watch_ms(usage: CheckpointUsage) -> int:
    """Return the time to watch in milliseconds: more than twice the usual time between two batches."""
    wanted_ms = 2 * (usage.interval_ms or 0) + _MARGIN_MS - (usage.silent_ms or 0)
    return min(max(wanted_ms, LEAST_WATCH_MS), LONGEST_WATCH_MS)


def file_marks(checkpoint: Storage) -> Marks:
    """Return the marks of all files of a checkpoint, including hidden files."""
    place = local_path(checkpoint.uri)
    if place is not None:
        return _local_marks(place)
    tree = Tree(checkpoint)
    return {path: (tree.size(path) or 0, 0, 0) for path, _ in tree.places()}


def moves_between(before: Marks, after: Marks) -> list[str]:
    """Describe the files that were written or removed, hidden files last."""
    moves = [(path, "is new") for path in after.keys() - before.keys()]
    moves += [(path, "has changed") for path in after if path in before and after[path] != before[path]]
    moves += [(path, "is gone") for path in before.keys() - after.keys()]
    return [f"{path} {what}" for path, what in sorted(moves, key=lambda move: ("/." in move[0], move))]


def written_meanwhile(uri: str, moves: list[str], done: str = "nothing was changed") -> Conflict:
    """Return the error for a checkpoint to which a query still writes."""
    shown = ", ".join(moves[:_SHOWN])
    more = f", and {len(moves) - _SHOWN} more" if len(moves) > _SHOWN else ""
    return Conflict(
        f"a query still uses the checkpoint, so {done}",
        code="HF-E4040",
        where=uri,
        found=f"{shown}{more}",
        expected="no new or changed files",
        hint="find and stop the query, then repeat the command",
    )


def _locks(checkpoint: Storage) -> list[tuple[Path, bool]]:
    """Return the locks of a checkpoint and of its parent directory, which may be that of a job.

    The second lock is never created, because the parent directory may not belong to a job.
    """
    home = Path()
    if local_path(checkpoint.uri) is None:
        home = Settings.resolve({}, os.environ, Path.cwd()).home
    return [(lock_path(uri, home), own) for uri, own in _addresses(checkpoint)]


def _addresses(checkpoint: Storage) -> list[tuple[str, bool]]:
    """Return the address of a checkpoint and its parent directory, which may be that of a job.

    A checkpoint that has replaced another has the lock and the lease of the first one.
    """
    first = first_address(checkpoint.uri)
    above = first.rpartition("/")[0]
    addresses = [(first, True)]
    if above.partition("://")[2].strip("/"):
        addresses.append((above, False))
    return addresses


def _note(usage: CheckpointUsage, wanted_ms: int) -> str:
    note = f"watching {usage.uri} for {wanted_ms / 1000:.0f} s"
    if usage.interval_ms is not None and wanted_ms < usage.interval_ms:
        apart_s = usage.interval_ms // 1000
        note += f", the maximum, though its batches are usually {apart_s} s apart"
    return note


def _log_names(checkpoint: Storage) -> frozenset[str]:
    folders = (layout.OFFSETS, layout.COMMITS)
    return frozenset(f"{folder}/{name}" for folder in folders for name in checkpoint.list(folder).names)


def _local_marks(place: Path) -> Marks:
    marks = {}
    for folder, _, names in os.walk(place):
        for name in names:
            path = f"{folder}/{name}"
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                continue  # the missing mark shows that the file was deleted
            marks[path[len(str(place)) + 1 :]] = (found.st_size, found.st_mtime_ns, found.st_ino)
    return marks
