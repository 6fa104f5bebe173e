"""A supervisor's claim on its job's checkpoint, for which it waits for or kills earlier owners."""

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
# The time limit for the driver of a former leader, which has ended by then or is frozen.
DEPOSED_GRACE_S = 1.0
_LOOK_S = 0.05
# The interval at which the caller is asked whether to continue waiting.
_PATIENT_S = 0.2


@dataclass(frozen=True, slots=True)
class CheckpointClaim:
    """A checkpoint and the job that claims it.

    Attributes:
        checkpoint: The checkpoint's canonical URI.
        job: The job's name.
        home: The state home. Without elections, a job of this name in a different home is a different job.
        machine: The name of the machine on which this process runs.
        election: The id of the job's election address; empty without elections.
        term: The token of the leader that claims the checkpoint; 0 without elections.
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
        """Wait for a former driver of this job to end.

        A driver whose supervisor died stops after its batch. A driver that has not stopped within `grace_s`
        seconds is frozen or stuck, and is killed; the next driver repeats its uncommitted batch.

        Raises:
            Conflict: A different job holds the checkpoint, or the owner runs on a different machine and
                cannot be killed.
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
        """Take over the checkpoint for this leader: end drivers of earlier leaders, and lock out late ones.

        A driver on this machine is killed, because its term is over. For a driver on a different machine, and
        for any other holder of the checkpoint, this function waits.

        Args:
            driver: The driver that the previous leader started.
            waiting: The callback for each owner whose end is awaited.
            patient: The callback that is called during the wait; returning False ends the wait.
            refuse_others: Whether a different job that holds the checkpoint is an error; otherwise its end is
                awaited.

        Returns:
            False if `patient` ended the wait while the checkpoint was held.

        Raises:
            Conflict: A different job holds the checkpoint, and `refuse_others` is set.
            LeadershipLost: A later leader has taken over the checkpoint.
        """
        if driver is not None:
            driver.end_group(self.machine)
        told: Owner | None = None
        while not self._fence():
            owner = holder(self.lock)
            # A new holder has not written its name yet.
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
        """Lock out late drivers of earlier leaders; return False if the lock is not free."""
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
        """Return a description of the owner whose end is awaited, with the possible actions."""
        if owner.is_same_job(self._owner) and owner.machine in ("", self.machine):
            return f"a former driver (process {owner.pid}) is ending its batch"
        host = host_name(owner.machine) or "an unknown machine"
        what = f"`holdfast {owner.verb}`" if owner.verb else f"job {owner.job!r} (state home {owner.home})"
        return (
            f"waiting for process {owner.pid} on {host}, which holds the checkpoint for {what}:"
            " end it there, or let it continue"
        )

    def until_free(self, seconds: float) -> bool:
        """Wait until the checkpoint is free; return False on a timeout."""
        deadline = time.monotonic() + seconds
        while holder(self.lock) is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def delete(self) -> bool:
        """Delete a local checkpoint that is free; return False if it is not local."""
        path = local_path(self.checkpoint)
        if path is None:
            return False
        shutil.rmtree(path, ignore_errors=True)
        self.lock.unlink(missing_ok=True)
        return True

    def _end_owner(self, owner: Owner) -> None:
        """Kill the JVM that holds the lock, and its driver, if they run on this machine.

        The driver leads its process group. A frozen driver must be killed too, because it may hold a ledger's
        lock and could resume with an unfinished transaction.
        """
        if owner.machine not in ("", self.machine):
            return  # the process id belongs to a different machine
        pid = holding_process(self.lock)
        if pid is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            group = os.getpgid(pid)
            if group == os.getpgrp():
                os.kill(pid, signal.SIGKILL)
            else:
                os.killpg(group, signal.SIGKILL)
