"""The lock of a checkpoint, held by the JVM of a session, and the messages of Java exceptions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.errors import Invalid, Unavailable
from holdfast.ownership.checkpoint_lock import (
    LET_WRITE,
    Owner,
    directory_unwritable,
    in_use,
    outlived,
    read_owner,
    render_owner,
    require_regular,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def hold(spark: SparkSession, path: Path, owner: Owner) -> Any:
    """Acquire the lock in the session's JVM and return it; the JVM holds it until the JVM ends.

    Raises:
        Conflict: A different process holds the lock, or a later leader of the same job has held it.
        Corrupt: The lock is not a regular file.
        Invalid: The lock's directory is not writable.
        Unavailable: The lock cannot be written, for example because the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise directory_unwritable(path) from error
    require_regular(path)  # Java would follow a symbolic link
    jvm: Any = spark._jvm
    try:
        file = jvm.java.io.RandomAccessFile(str(path), "rw")
        lock = file.getChannel().tryLock()
    except Exception as error:
        raise Invalid(
            "cannot create the lock of the checkpoint",
            code="HF-E2186",
            where=str(path),
            found=java_message(error),
            hint=LET_WRITE,
        ) from error
    former = read_owner(path)
    if lock is None:
        raise in_use(path, former)
    if former is not None and owner.is_older_than(former):
        lock.release()
        raise outlived(path, owner, former)
    try:
        file.setLength(0)
        file.write(render_owner(owner))
    except Exception as error:
        raise Unavailable(
            f"cannot write the lock of the checkpoint: {java_message(error)}",
            code="HF-E5011",
            where=str(path),
            hint="free space on the disk of this file, then start the query again",
        ) from error
    return lock


def java_cause(error: BaseException) -> Any:
    """Return the innermost Java exception of an error, or None if there is none."""
    java = getattr(error, "java_exception", None)
    while java is not None and java.getCause() is not None:
        java = java.getCause()
    return java


def java_message(error: Exception) -> str:
    """Return the message of the Java exception; Py4J's own message begins with the call."""
    java = getattr(error, "java_exception", None)
    return str(java.getMessage()) if java is not None else str(error).partition("\n")[0]
