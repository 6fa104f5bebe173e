"""A lock on a checkpoint, held by the process that really writes to it: the JVM.

When a driver's Python dies, its JVM lives on for a moment and may still commit a batch. A lock that the
JVM itself holds is free exactly when that can no longer happen. It is an advisory lock of the operating
system (`fcntl`), so no crash leaves it behind, and Python sees it too.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.storage import local_path
from holdfast.errors import Conflict, HoldfastError, Invalid, Unavailable
from holdfast.storage.file_lock import lock_holder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a checkpoint: a job, from which state home, in which process.

    `term` is the token of the leader for whom it does so, 0 where one supervisor has the job to himself.
    """

    job: str
    home: str
    pid: int
    term: int = 0

    def is_older_than(self, other: Owner) -> bool:
        """Whether both are of one job, and the other one's leader came later."""
        return (self.job, self.home) == (other.job, other.home) and 0 < self.term < other.term


def lock_path(checkpoint_uri: str, state_home: Path) -> Path:
    """Where the lock of a checkpoint is.

    A local checkpoint's lock lies beside it, never inside, so that every state home and every container
    that shares the disk sees the same one. For another file system it lies in the state home and guards
    against this home's jobs only.
    """
    path = local_path(checkpoint_uri)
    if path is not None:
        return path.parent / f".{path.name}.holdfast.lock"
    mark = hashlib.sha256(checkpoint_uri.encode()).hexdigest()[:24]
    return state_home / "locks" / f"{mark}.lock"


def holder(path: Path) -> Owner | None:
    """Who holds the lock now, or None if it is free. Changes nothing."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # Held, though its owner has not written his name yet.
        return _read_owner(path) or Owner(job="", home="", pid=0)
    finally:
        os.close(descriptor)
    return None


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
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise Invalid("the checkpoint's directory cannot be made", where=str(path.parent)) from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    try:
        former = _read_owner(path)
        if former is not None and owner.is_older_than(former):
            raise outlived(path, owner, former)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(owner)).encode(), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return True


def hold(spark: SparkSession, path: Path, owner: Owner) -> Any:
    """Take the lock in the session's JVM and return it; it is held while the JVM lives.

    Raises:
        Conflict: Another process holds it, or a later leader of the same job has had it.
        Invalid: The lock's directory cannot be written.
        Unavailable: The lock cannot be written, because the disk is full for example.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid("the checkpoint's directory cannot be made", where=str(path.parent)) from error
    jvm: Any = spark._jvm
    try:
        file = jvm.java.io.RandomAccessFile(str(path), "rw")
        lock = file.getChannel().tryLock()
    except Exception as error:
        raise Invalid(
            "the checkpoint's lock cannot be taken", where=str(path), found=java_message(error)
        ) from error
    former = _read_owner(path)
    if lock is None:
        raise in_use(path, former)
    if former is not None and owner.is_older_than(former):
        lock.release()
        raise outlived(path, owner, former)
    try:
        file.setLength(0)
        file.write(json.dumps(asdict(owner)).encode())
    except Exception as error:
        raise Unavailable(
            f"the checkpoint's lock cannot be written: {java_message(error)}", where=str(path)
        ) from error
    return lock


def java_message(error: Exception) -> str:
    """What Java said; Py4J's own first line names only the call."""
    java = getattr(error, "java_exception", None)
    return str(java.getMessage()) if java is not None else str(error).partition("\n")[0]


def in_use(path: Path, owner: Owner | None) -> HoldfastError:
    """The error for a checkpoint that somebody else holds."""
    who = "another process"
    if owner is not None and owner.job:
        who = f"job {owner.job!r} (process {owner.pid}, state home {owner.home})"
    return Conflict(
        "the checkpoint is in use by another job",
        where=str(path.parent / path.name.removeprefix(".").removesuffix(".holdfast.lock")),
        found=who,
        hint="stop that job first, or give this one a checkpoint of its own",
    )


def outlived(path: Path, owner: Owner, later: Owner) -> HoldfastError:
    """The error for one who comes for a leader that is no longer the leader."""
    return Conflict(
        f"another supervisor leads job {owner.job!r}",
        where=str(path),
        found=f"term {owner.term}",
        expected=f"term {later.term}",
    )


def _read_owner(path: Path) -> Owner | None:
    try:
        return Owner(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
