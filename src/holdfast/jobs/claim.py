"""A supervisor's claim on its job's checkpoint: wait for who had it before, end him if he does not end."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.config.storage import local_path
from holdfast.engine.ownership import Owner, fence, holder, holding_process, in_use, lock_path

# A JVM that was left alone tidies its temporary files and goes.
JVM_GRACE_S = 5.0
# A driver that lost its supervisor ends its batch first.
ORPHAN_GRACE_S = 30.0
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Claim:
    """A checkpoint, and the job that wants it.

    Attributes:
        checkpoint: Its canonical URI.
        job: The job's name.
        home: The state home; a job of this name in another home is another job.
    """

    checkpoint: str
    job: str
    home: Path

    @property
    def lock(self) -> Path:
        """The file whose lock the owner's JVM holds."""
        return lock_path(self.checkpoint, self.home)

    def wait(
        self, grace_s: float, waiting: Callable[[int], None], patient: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait for a former driver of this very job to end; refuse a checkpoint that another job holds.

        A driver whose supervisor died stops by itself after its batch. One that does not within
        `grace_s` is frozen or stuck, and is ended: what it has not committed, the next driver does
        again. `waiting` is told its process id once. One that cannot be ended from here, because it runs on
        another machine, is waited for as long as `patient` says so.

        Raises:
            Conflict: Another job holds it, or its owner cannot be ended from here.
        """
        owner = holder(self.lock)
        if owner is None:
            return
        if (owner.job, owner.home) != (self.job, str(self.home)):
            raise in_use(self.lock, owner)
        waiting(owner.pid)
        if not self.until_free(grace_s):
            self._end_owner()
            while not self.until_free(JVM_GRACE_S):
                if not patient():
                    raise in_use(self.lock, owner)

    def fence(self, term: int) -> None:
        """Keep whatever an earlier leader has started, and is late, away from the free checkpoint.

        Raises:
            Conflict: Somebody has taken it meanwhile, or a later leader has.
        """
        if not fence(self.lock, Owner(self.job, str(self.home), os.getpid(), term)):
            raise in_use(self.lock, holder(self.lock))

    def until_free(self, seconds: float) -> bool:
        """Wait until nobody holds it; False if the time runs out."""
        deadline = time.monotonic() + seconds
        while holder(self.lock) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def delete(self) -> bool:
        """Delete a local checkpoint that nobody holds any more; False if it lies elsewhere."""
        path = local_path(self.checkpoint)
        if path is None:
            return False
        shutil.rmtree(path, ignore_errors=True)
        self.lock.unlink(missing_ok=True)
        return True

    def _end_owner(self) -> None:
        """End the JVM that holds the lock, and the driver that it belongs to.

        The driver leads its group. A frozen one has to go too: it may hold a ledger's lock, and could
        wake up with a transaction half done.
        """
        pid = holding_process(self.lock)
        if pid is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            group = os.getpgid(pid)
            if group == os.getpgrp():
                os.kill(pid, signal.SIGKILL)
            else:
                os.killpg(group, signal.SIGKILL)
