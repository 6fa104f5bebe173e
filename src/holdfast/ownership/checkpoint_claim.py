"""A supervisor's claim on its job's checkpoint: wait for the earlier owner, kill it if it does not end."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.config.checks import local_path
from holdfast.errors import Conflict
from holdfast.ownership.checkpoint_lock import Owner, fence, holder, holding_process, in_use, lock_path
from holdfast.ownership.election import LeadershipLost
from holdfast.ownership.process_identity import ProcessIdentity, host_name, this_machine

# The time in which a JVM without its driver deletes its temporary files and ends.
JVM_GRACE_S = 5.0
# The time in which a driver without its supervisor finishes its batch.
ORPHAN_GRACE_S = 30.0
# The driver of a former leader has ended by itself, or is frozen.
DEPOSED_GRACE_S = 1.0
_LOOK_S = 0.05
# The interval at which the caller is asked whether to continue waiting.
_PATIENT_S = 0.2


@dataclass(frozen=True, slots=True)
class CheckpointClaim:
    """A checkpoint, and the job that wants it.

    Attributes:
        checkpoint: Its canonical URI.
        job: The job's name.
        home: The state home. Where no leader is elected, a job of this name in another home is another job.
        machine: Names the machine that this process runs on.
        election: Names the place where the job's leader is elected; empty where there are no elections.
        term: The token of the leader that wants it; 0 where there are no elections.
    """

    checkpoint: str
    job: str
    home: Path
    machine: str = field(default_factory=this_machine)
    election: str = ""
    term: int = 0

    @property
    def lock(self) -> Path:
        """The file whose lock the owner's JVM holds."""
        return lock_path(self.checkpoint, self.home)

    def wait(self, grace_s: float, say: Callable[..., None]) -> None:
        """Wait for a former driver of this very job to end; refuse a checkpoint that another job holds.

        A driver whose supervisor died stops by itself after its batch. One that does not within
        `grace_s` is frozen or stuck, and is ended: what it has not committed, the next driver does
        again.

        Raises:
            Conflict: Another job holds it, or its owner cannot be ended from here.
        """
        owner = holder(self.lock)
        if owner is None:
            return
        if not owner.is_same_job(self._owner):
            raise in_use(self.lock, owner)
        say("waiting", self.describe(owner), pid=owner.pid, machine=host_name(owner.machine))
        if not self.until_free(grace_s):
            self._end_owner(owner)
            if not self.until_free(JVM_GRACE_S):
                raise in_use(self.lock, owner)

    def take_over(
        self,
        driver: ProcessIdentity | None,
        waiting: Callable[[Owner], None],
        patient: Callable[[], bool],
        *,
        refuse_others: bool,
    ) -> bool:
        """Make the checkpoint this leader's: end drivers of leaders before it, and keep late ones away.

        A driver of this machine is ended, frozen or not: the term for which it ran is over. One that runs on
        another machine is waited for, as is whoever else holds the checkpoint.

        Args:
            driver: The driver that the leader before this one started.
            waiting: Told of each owner who is waited for.
            patient: Asked again and again; with False nobody is waited for any longer.
            refuse_others: Whether another job in the checkpoint is an error, not somebody to wait for.

        Returns:
            False if `patient` said so, and the checkpoint is still somebody else's.

        Raises:
            Conflict: Another job holds it, and that is an error.
            LeadershipLost: A later leader has had it.
        """
        if driver is not None:
            driver.end_group(self.machine)
        told: Owner | None = None
        while not self._fence():
            owner = holder(self.lock)
            # One that has just taken it has not written its name yet.
            if owner is not None and owner.job and owner != told:
                if refuse_others and not owner.is_same_job(self._owner):
                    raise in_use(self.lock, owner)
                told = owner
                waiting(owner)
                if self._may_end(owner) and not self.until_free(DEPOSED_GRACE_S):
                    self._end_owner(owner)
            if not patient():
                return False
            self.until_free(_PATIENT_S)
        return True

    @property
    def _owner(self) -> Owner:
        return Owner(self.job, str(self.home), os.getpid(), self.term, self.election, self.machine)

    def _fence(self) -> bool:
        """Keep whatever an earlier leader has started, and is late, away; False if the lock is not free."""
        try:
            return fence(self.lock, self._owner)
        except Conflict as error:
            raise LeadershipLost(
                error.fact, code=error.code, where=error.where, found=error.expected
            ) from error

    def _may_end(self, owner: Owner) -> bool:
        """Return whether a driver belongs to an earlier leader."""
        earlier = owner.term < self.term or owner.home == str(self.home)
        return earlier and owner.is_same_job(self._owner)

    def describe(self, owner: Owner) -> str:
        """Describe the owner that is waited for, and what can be done about it."""
        if owner.is_same_job(self._owner) and owner.machine in ("", self.machine):
            return f"a former driver (process {owner.pid}) is ending its batch"
        host = host_name(owner.machine) or "an unknown machine"
        what = f"`holdfast {owner.verb}`" if owner.verb else f"job {owner.job!r} (state home {owner.home})"
        return (
            f"waiting for process {owner.pid} on {host}, which holds the checkpoint for {what}:"
            " end it there, or let it go on"
        )

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

    def _end_owner(self, owner: Owner) -> None:
        """End the JVM that holds the lock, and the driver that it belongs to, if they are of this machine.

        The driver leads its group. A frozen one has to go too: it may hold a ledger's lock, and could
        wake up with a transaction half done.
        """
        if owner.machine not in ("", self.machine):
            return  # its number means something else here
        pid = holding_process(self.lock)
        if pid is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            group = os.getpgid(pid)
            if group == os.getpgrp():
                os.kill(pid, signal.SIGKILL)
            else:
                os.killpg(group, signal.SIGKILL)
