"""A lock on a checkpoint, held by the process that really writes to it: the JVM.

When a driver's Python dies, its JVM lives on for a moment and may still commit a batch. A lock that the
JVM itself holds is free exactly when that can no longer happen. It is an advisory lock of the operating
system (`fcntl`), so no crash leaves it behind, and Python sees it too.
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
LET_WRITE: Final = "let this user write there, or name another checkpoint"


@dataclass(frozen=True, slots=True)
class Owner:
    """The holder of a checkpoint: a job, its state home, and its process.

    Attributes:
        job: The job's name.
        home: The state home of its supervisor.
        pid: The process.
        term: The token of the leader for whom it does so, 0 where one supervisor has the job to itself.
        election: Names the place where that leader was elected; empty where there are no elections.
        machine: Names the machine of the process; empty where that was not written down.
        verb: The command that holds it, empty where a driver does; all but the process is then that of the
            driver that had it before.
    """

    job: str
    home: str
    pid: int
    term: int = 0
    election: str = ""
    machine: str = ""
    verb: str = ""

    def is_same_job(self, other: Owner) -> bool:
        """Return whether both are of one job: one name, and one election, or else one state home."""
        if self.verb or other.verb:
            return False
        if self.election and other.election:
            return (self.job, self.election) == (other.job, other.election)
        return (self.job, self.home) == (other.job, other.home)

    def is_older_than(self, other: Owner) -> bool:
        """Return whether both are of one job, and the other one's leader is newer.

        Terms of two places of elections are compared too: one that is recreated begins with the time, so that
        its terms come after those of the place before it.
        """
        related = self.home == other.home or bool(self.election and other.election)
        return related and self.job == other.job and 0 < self.term < other.term


def lock_path(checkpoint_uri: str, state_home: Path) -> Path:
    """Return the path of a checkpoint's lock.

    A local checkpoint's lock lies next to it, never inside, so that every state home and every container
    that shares the disk sees the same one. For another file system it lies in the state home and guards
    against this home's jobs only.
    """
    path = local_path(checkpoint_uri)
    if path is not None:
        return path.parent / f".{path.name}.holdfast.lock"
    mark = hashlib.sha256(checkpoint_uri.encode()).hexdigest()[:24]
    return state_home / "locks" / f"{mark}.lock"


def holder(path: Path) -> Owner | None:
    """Return who holds the lock now, or None if it is free. Changes nothing.

    The JVM tries to take the lock only once, so a look must not take it even for an instant.
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
    """The process that holds the lock, as the kernel knows it.

    None if it is free, or if the holder lives in another container that shares the disk: its number
    means nothing here. Where the kernel cannot be asked this way, it is what the holder wrote down.
    """
    if not sys.platform.startswith("linux"):
        owner = holder(path)
        return owner.pid if owner else None
    return lock_holder(path)


def fence(path: Path, owner: Owner) -> bool:
    """Have nobody take a free lock any more for an earlier leader of the same job.

    Returns False if the lock is not free: whoever holds it has to end first.

    Raises:
        Conflict: A later leader has done the same.
        Invalid: The lock's directory cannot be written.
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
        # To open and close the file a second time would let go of the lock: POSIX has one a process.
        former = _parsed(os.pread(descriptor, _LONGEST, 0))
        if former is not None and owner.is_older_than(former):
            raise outlived(path, owner, former)
        _write_owner(descriptor, render_owner(owner))
    finally:
        os.close(descriptor)
    return True


@contextmanager
def reserved(path: Path, verb: str, *, create: bool = True) -> Iterator[None]:
    """Hold a checkpoint's lock for a command, so that no job starts on the checkpoint meanwhile.

    What the lock's file says of its last owner is put back at the end: a late driver of an earlier leader is
    kept away as before. Where the file cannot be made, because the directory is read-only, nobody else here
    can take the lock either, and nothing is held.

    Args:
        path: The lock.
        verb: The command, as a person knows it.
        create: Whether to make the file where there is none.

    Raises:
        Conflict: Somebody else holds it.
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
    """Return the owner whose driver held the lock last, now or earlier; None if no job ever did."""
    owner = read_owner(path)
    return owner if owner is not None and owner.job else None


def supervisor_lock(home: Path, job: str) -> Path:
    """The file that the one supervisor of a job holds a lock on while it lives."""
    return home / "jobs" / job / "supervisor.lock"


def supervised(owner: Owner) -> bool:
    """Return whether the owner's job has a live supervisor, which may start a driver at any moment."""
    return FileLock(supervisor_lock(Path(owner.home), owner.job)).is_held()


def in_use(path: Path, owner: Owner | None) -> HoldfastError:
    """The error for a checkpoint that somebody else holds."""
    where = str(path.parent / path.name.removeprefix(".").removesuffix(".holdfast.lock"))
    if owner is not None and owner.verb:
        return Conflict(
            "the checkpoint is in use by another command",
            code="HF-E4041",
            where=where,
            found=f"`holdfast {owner.verb}` (process {owner.pid})",
            hint="wait until that has ended",
        )
    who = "another process"
    if owner is not None and owner.job:
        who = f"job {owner.job!r} (process {owner.pid}, state home {owner.home})"
    return Conflict(
        "the checkpoint is in use by another job",
        code="HF-E4042",
        where=where,
        found=who,
        hint="stop that job first, or give this one a checkpoint of its own",
    )


def outlived(path: Path, owner: Owner, later: Owner) -> HoldfastError:
    """The error for one who comes for a leader that is no longer the leader."""
    return Conflict(
        f"another supervisor leads job {owner.job!r}",
        code="HF-E4043",
        where=str(path),
        found=f"term {owner.term}",
        expected=f"term {later.term}",
        hint=f"see who leads with `holdfast status {owner.job}`; this one stands by, or stop it",
    )


def directory_unwritable(path: Path) -> Invalid:
    """Return the error for a lock whose directory cannot be made."""
    return Invalid(
        "the checkpoint's directory cannot be made", code="HF-E2244", where=str(path.parent), hint=LET_WRITE
    )


def render_owner(owner: Owner) -> bytes:
    """An owner as its file has it; without a verb, as earlier versions read it."""
    return json.dumps(
        {name: value for name, value in asdict(owner).items() if name != "verb" or value}
    ).encode()


def _write_owner(descriptor: int, data: bytes) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, data, 0)
    os.fsync(descriptor)


def read_owner(path: Path) -> Owner | None:
    """Return the owner that the file of a lock names; None if it is missing or names none."""
    try:
        descriptor = _open_lock(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return _parsed(os.pread(descriptor, _LONGEST, 0))
    finally:
        os.close(descriptor)


def _open_lock(path: Path, flags: int) -> int:
    """Open the file of a lock. Other users may write to its directory.

    Raises:
        Corrupt: It is a link, or no regular file.
        OSError: It cannot be opened.
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
    """Require that a lock is a regular file or missing, without opening it.

    To close a file drops the locks that this process has on it.

    Raises:
        Corrupt: It is a link, or no regular file.
    """
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise _not_a_lock(path, "a symbolic link")
        if not stat.S_ISREG(mode):
            raise _not_a_lock(path, "a special file")


def _not_a_lock(path: Path, found: str) -> Corrupt:
    return Corrupt(
        "the lock of a checkpoint is not a regular file",
        code="HF-E6038",
        where=str(path),
        found=found,
        expected="a regular file",
        hint="remove it while nothing uses the checkpoint",
    )


def _parsed(data: bytes) -> Owner | None:
    try:
        return from_known(Owner, foreign_json(data))
    except (ValueError, TypeError):
        return None
