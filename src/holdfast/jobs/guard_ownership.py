"""The right to write to a checkpoint: no two drivers on any machines have it at once.

On a local disk it is the lock next to the checkpoint that every job of Holdfast takes. Elsewhere it is a
lease next to the checkpoint, which the owner renews and others wait for. An owner whose lease is over is
ended with its JVM: it may be frozen or cut off, and a different owner may have continued.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast import layout
from holdfast.clock import steady_s
from holdfast.config.checks import local_path
from holdfast.config.policies import Leading
from holdfast.engine.jvm_lock import hold
from holdfast.ownership.checkpoint_lock import Owner, holder, in_use, lock_path
from holdfast.ownership.election import Now
from holdfast.ownership.elections import elections
from holdfast.ownership.lease import Lease, acquire, owned
from holdfast.ownership.process_identity import this_machine
from holdfast.ownership.watchdog import LeaseWatchdog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOG: Final = logging.getLogger("holdfast.guard")
_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Patience:
    """The time to wait for an earlier owner.

    Attributes:
        until_s: The end of the wait.
        pause: Waits for a number of seconds; True if the wait is to end.
        now: The clock.
    """

    until_s: float
    pause: Callable[[float], bool]
    now: Now = steady_s

    def goes_on(self, seconds: float) -> bool:
        """Wait a moment; False if the time is over or the wait was ended."""
        left = self.until_s - self.now()
        return left > 0 and not self.pause(min(seconds, left))


class CheckpointOwnership:
    """One process's ownership of one checkpoint.

    Args:
        checkpoint: The checkpoint's canonical URI.
        name: The query's name in other commands.
        home: The state home, or None.
        leading: The address and duration of the lease; None for the lock alone.
        now: The clock of the lease.
    """

    def __init__(
        self,
        checkpoint: str,
        name: str,
        home: Path | None,
        leading: Leading | None,
        now: Now = steady_s,
    ) -> None:
        self._checkpoint = checkpoint
        self._name = name
        self._home = home
        self._leading = leading
        self._now = now
        self._lock: Any = None
        self._lease: Lease | None = None
        self._watchdog: LeaseWatchdog | None = None

    @property
    def term(self) -> int | None:
        """The token of the lease, with which ledgers detect a former owner; None without a lease."""
        return None if self._lease is None else self._lease.token

    @property
    def lost(self) -> str | None:
        """The reason why the ownership is lost; None while it holds."""
        return None if self._lease is None else self._lease.lost

    def take(self, spark: SparkSession, java_pid: int, patience: Patience) -> None:
        """Become the owner; waits for a former owner that is ending.

        Args:
            spark: The session whose JVM writes.
            java_pid: The process id of that JVM.
            patience: The maximum wait.

        Raises:
            Conflict: The checkpoint has a different owner.
            Unsupported: The storage supports no lease.
            Unavailable: The address of the lease does not answer.
        """
        try:
            self._win(java_pid, patience)
            self._take_lock(spark, java_pid, patience)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give up the ownership; the next owner need not wait."""
        if self._watchdog is not None:
            self._watchdog.release()
            self._watchdog = None
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        if self._lock is not None:
            with suppress(Exception):  # the session may be gone, and the lock with it
                self._lock.channel().close()
            self._lock = None

    def _win(self, java_pid: int, patience: Patience) -> None:
        if self._leading is None:
            return
        name = layout.lease_beside(self._checkpoint.rstrip("/").rpartition("/")[2])
        election = elections(self._leading, self._now)(name)
        self._watchdog = watchdog = LeaseWatchdog((java_pid, os.getpid()))

        def waiting(holder: str, _lease_s: float) -> None:
            _LOG.warning("%s: waiting for the lease of %s", self._name, holder)

        self._lease = acquire(
            election,
            self._checkpoint,
            patience.goes_on,
            waiting,
            refuse_living=False,
            now=self._now,
            renewed=watchdog.hold,
        )
        if self._lease is None:
            raise owned(election, self._checkpoint)

    def _take_lock(self, spark: SparkSession, java_pid: int, patience: Patience) -> None:
        if self._home is None and local_path(self._checkpoint) is None:
            return  # it would lie in the state home
        home = self._home or Path()
        lock = lock_path(self._checkpoint, home)
        address = "" if self._leading is None else self._leading.address
        owner = Owner(self._name, str(home), java_pid, self.term or 0, address, this_machine())
        told = False
        while (other := holder(lock)) is not None:
            if not told:
                told = True
                _LOG.warning("%s: waiting for process %d, which uses the checkpoint", self._name, other.pid)
            if other.pid == java_pid or not patience.goes_on(_LOOK_S):
                raise in_use(lock, other)
        self._lock = hold(spark, lock, owner)
