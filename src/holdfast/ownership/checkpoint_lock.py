"""A lock on a checkpoint, held by the process that writes to it: the JVM.

When a driver's Python process dies, its JVM continues for a moment and may still commit a batch. The JVM
therefore holds the lock, which is released only when no commit is possible any more. It is an advisory lock
of the operating system (`fcntl`), so that no crash leaves it behind, and Python can detect it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from holdfast.config.checks import local_path
from holdfast.errors import Conflict, Corrupt, HoldfastError, Invalid
from holdfast.formats.text import foreign_json
from holdfast.plain_values import from_known
from holdfast.storage.file_lock import FileLock, is_locked, lock_holder, lock_whole

_LONGEST: Final = 1 << 16
LET_WRITE: Final = "give this user write permission to the directory, or choose a different checkpoint"


@dataclass(frozen=True, slots=True)
class Owner:
    """The holder of a checkpoint: a job, its state home, and its process.

    Attributes:
        job: The job's name.
        home: The state home of its supervisor.
        pid: The process id.
        term: The token of the leader for which the process holds the lock; 0 without elections.
        election: The id of the election address at which the leader was elected; empty without elections.
        machine: The machine of the process; empty if not recorded.
        verb: The command that holds the lock; empty for a driver. For a command, all fields except `pid` are
            those of the driver that held the lock before.
    """

    job: str
    home: str
    pid: int
    term: int = 0
    election: str = ""
    machine: str = ""
    verb: str = ""

    def is_same_job(self, other: Owner) -> bool:
        """Return whether both owners are of the same job: equal name, and equal election or state home."""
        if self.verb or other.verb:
            return False
        if self.election and other.election:
            return (self.job, self.election) == (other.job, other.election)
        return (self.job, self.home) == (other.job, other.home)

    def is_older_than(self, other: Owner) -> bool:
        """Return whether both owners are of the same job, and the other owner's leader is newer.

        Terms of different election addresses can be compared: the terms of a recreated address start with the
        current time, so they are later than all earlier terms.
        """
        related = self.home == other.home or bool(self.election and other.election)
        return related and self.job == other.job and 0 < self.term < other.term


def lock_path(checkpoint_uri: str, state_home: Path) -> Path:
    """Return the path of a checkpoint's lock.

    The lock of a local checkpoint is next to the checkpoint, never inside, so that every state home and every
    container that shares the disk sees the same lock. For other file systems, the lock is in the state home
    and guards only against jobs of this home.
    """
    path = local_path(checkpoint_uri)
    if path is not None:
        return path.parent / f".{path.name}.holdfast.lock"
    mark = hashlib.sha256(checkpoint_uri.encode()).hexdigest()[:24]
    return state_home / "locks" / f"{mark}.lock"


def holder(path: Path) -> Owner | None:
    """Return the holder of a lock; None if the lock is free. Changes nothing.

    The JVM tries to take the lock only once, so this check must not take it, even briefly.
    """
    try:
        descriptor = _open_lock(path, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        if not is_locked(descriptor):
            return None
    finally:
        os.close(descriptor)
    # The owner may not have written its name yet.
    return read_owner(path) or Owner(job="", home="", pid=0)


def holding_process(path: Path) -> int | None:
    """Return the id of the process that holds a lock, as reported by the kernel.

    The result is None if the lock is free, or if the holder runs in a different container that shares the
    disk, whose process ids are not valid here. If the kernel cannot report the process, the result is the id
    that the holder recorded.
    """
    if not sys.platform.startswith("linux"):
        owner = holder(path)
        return owner.pid if owner else None
    return lock_holder(path)


def fence(path: Path, owner: Owner) -> bool:
    """Prevent earlier leaders of the same job from taking a free lock.

    Returns False if the lock is not free: its holder must end first.

    Raises:
        Conflict: A later leader has already fenced the lock.
        Invalid: The directory of the lock is not writable.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _open_lock(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise directory_unwritable(path) from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    try:
        # Opening and closing the file again would release the lock, because POSIX locks are per process.
        former = _parsed(os.pread(descriptor, _LONGEST, 0))
        if former is not None and owner.is_older_than(former):
            raise outlived(path, owner, former)
        _write_owner(descriptor, render_owner(owner))
    finally:
        os.close(descriptor)
    return True


@contextmanager
def reserved(path: Path, verb: str, *, create: bool = True) -> Iterator[None]:
    """Hold a checkpoint's lock during a command, so that no job starts on the checkpoint.

    The last owner in the lock's file is restored at the end, so that late drivers of earlier leaders stay
    locked out. If the file cannot be created because the directory is read-only, no process here can take the
    lock, and nothing is held.

    Args:
        path: The path of the lock.
        verb: The command, as typed.
        create: Whether to create the file if it is missing.

    Raises:
        Conflict: A process holds the lock.
    """
    try:
        descriptor = _open_lock(path, os.O_RDWR | (os.O_CREAT if create else 0))
    except OSError:
        yield
        return
    try:
        if not lock_whole(descriptor):
            raise in_use(path, holder(path))
        before = os.pread(descriptor, _LONGEST, 0)
        former = _parsed(before) or Owner(job="", home="", pid=0)
        _write_owner(descriptor, render_owner(replace(former, pid=os.getpid(), verb=verb)))
        try:
            yield
        finally:
            _write_owner(descriptor, before)
    finally:
        os.close(descriptor)


def last_owner(path: Path) -> Owner | None:
    """Return the owner whose driver last held the lock, now or earlier; None if no job ever held it."""
    owner = read_owner(path)
    return owner if owner is not None and owner.job else None


def supervisor_lock(home: Path, job: str) -> Path:
    """Return the path of the file that a job's supervisor locks while it is running."""
    return home / "jobs" / job / "supervisor.lock"


def supervised(owner: Owner) -> bool:
    """Return whether the owner's job has a live supervisor, which may start a driver at any moment."""
    return FileLock(supervisor_lock(Path(owner.home), owner.job)).is_held()


def in_use(path: Path, owner: Owner | None) -> HoldfastError:
    """Return the error for a checkpoint whose lock is held."""
    where = str(path.parent / path.name.removeprefix(".").removesuffix(".holdfast.lock"))
    if owner is not None and owner.verb:
        return Conflict(
            "the checkpoint is in use by another command",
            code="HF-E4041",
            where=where,
            found=f"`holdfast {owner.verb}` (process {owner.pid})",
            hint="repeat the command when the other one has ended",
        )
    who = "another process"
    if owner is not None and owner.job:
        who = f"job {owner.job!r} (process {owner.pid}, state home {owner.home})"
    return Conflict(
        "the checkpoint is in use by another job",
        code="HF-E4042",
        where=where,
        found=who,
        hint="stop the other job, or give this job a different checkpoint",
    )


def outlived(path: Path, owner: Owner, later: Owner) -> HoldfastError:
    """Return the error for a driver of a former leader."""
    return Conflict(
        f"a different supervisor leads job {owner.job!r}",
        code="HF-E4043",
        where=str(path),
        found=f"term {owner.term}",
        expected=f"term {later.term}",
        hint=f"see the leader with `holdfast status {owner.job}`; let this supervisor stand by with"
        " --ha, or stop it",
    )


def directory_unwritable(path: Path) -> Invalid:
    """Return the error for a lock whose directory cannot be created."""
    return Invalid(
        "the checkpoint directory cannot be created", code="HF-E2244", where=str(path.parent), hint=LET_WRITE
    )


def render_owner(owner: Owner) -> bytes:
    """Return the content of a lock's file; without a verb, in the format of earlier versions."""
    return json.dumps(
        {name: value for name, value in asdict(owner).items() if name != "verb" or value}
    ).encode()


def _write_owner(descriptor: int, data: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, data, 0)
    os.fsync(descriptor)


def read_owner(path: Path) -> Owner | None:
    """Return the owner recorded in the file of a lock; None if the file is missing or records none."""
    try:
        descriptor = _open_lock(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return _parsed(os.pread(descriptor, _LONGEST, 0))
    finally:
        os.close(descriptor)


def _open_lock(path: Path, flags: int) -> int:
    """Open the file of a lock safely, because other users may write to its directory.

    Raises:
        Corrupt: The path is a symbolic link or not a regular file.
        OSError: The file cannot be opened.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _not_a_lock(path, "a symbolic link") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_a_lock(path, "a special file")
    return descriptor


def require_regular(path: Path) -> None:
    """Check that the file of a lock is regular or missing, without opening it.

    The file is not opened, because closing it would release the locks that this process has on it.

    Raises:
        Corrupt: The path is a symbolic link or not a regular file.
    """
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise _not_a_lock(path, "a symbolic link")
        if not stat.S_ISREG(mode):
            raise _not_a_lock(path, "a special file")


def _not_a_lock(path: Path, found: str) -> Corrupt:
    return Corrupt(
        "the lock file of the checkpoint is not a regular file",
        code="HF-E6038",
        where=str(path),
        found=found,
        hint="remove the lock file while no process uses the checkpoint",
    )


def _parsed(data: bytes) -> Owner | None:
    try:
        return from_known(Owner, foreign_json(data))
    except (ValueError, TypeError):
        return None
