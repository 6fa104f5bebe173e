"""Carry out an upgrade step by step, forward or back, from where its record says it is.

Each step looks at the world before it acts, and is recorded when it is done; so a process that was killed
anywhere is continued by the next one. A checkpoint is replaced only by an atomic exchange with a whole one.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from holdfast.changes import take_and_restore
from holdfast.changes.working_copy import lead_to
from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.copy import batch_files
from holdfast.checkpoints.logs import Logs
from holdfast.errors import Conflict, Failed, HoldfastError, Unavailable
from holdfast.jobs import reports, rollback
from holdfast.jobs.launching import launch
from holdfast.jobs.pending_rescale import place_of
from holdfast.jobs.registry.client import Control, JobStatus
from holdfast.jobs.run_record import RunRecord, digest_of, last_run, runnable_target
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.jobs.upgrades.upgrade_record import (
    UpgradeFile,
    UpgradeMode,
    UpgradeOutcome,
    UpgradeRecord,
    UpgradeStep,
)
from holdfast.jobs.upgrades.watching import HealthWatch
from holdfast.model import JobState
from holdfast.ownership.checkpoint_claim import ORPHAN_GRACE_S, CheckpointClaim
from holdfast.ownership.checkpoint_guard import held_between_drivers
from holdfast.savepoints.catalog import listed, savepoint_uri
from holdfast.storage import open_storage
from holdfast.storage.atomic_swap import exchange
from holdfast.storage.local import LocalStorage, flush_folder

_LOOK_S: Final = 0.2
_STOP_S: Final = 600.0
_START_S: Final = 600.0
RUNNING_ALREADY: Final = "HF-E4035"

OnStep = Callable[[UpgradeStep], None]


class RunningUpgrade:
    """An upgrade under way, by the process that holds its lock.

    Args:
        home: The state home.
        record: What is done.
        clock: Returns epoch milliseconds.
        on_step: Called with each step when it is done.
        tell: Called with the progress of a step.
    """

    def __init__(
        self,
        home: StateHome,
        record: UpgradeRecord,
        clock: Callable[[], int],
        on_step: OnStep,
        tell: ProgressCallback | None = None,
    ) -> None:
        self._home = home
        self._file = UpgradeFile(home, record.job)
        self._record = record
        self._clock = clock
        self._on_step = on_step
        self._tell = tell
        self._control = Control(home, clock)
        self._began_s = 0.0

    def run(self) -> UpgradeRecord:
        """Continue the upgrade until it ends.

        Raises:
            HoldfastError: The way back failed, or is not possible. The record stays unfinished, and a later
                call continues.
        """
        if self._record.reason is None:
            try:
                self._forward()
            except HoldfastError as error:
                if error.code == RUNNING_ALREADY or not self._record.did("stop"):
                    raise  # nothing of the new code has begun
                self._save(replace(self._record, reason=f"{error.fact}{_found(error)}"))
        if self._record.reason is not None:
            self._back()
        return self._record

    # Forward.

    def _forward(self) -> None:
        record = self._record
        self._step("stop", self._stop)
        self._step("savepoint", self._take)
        if record.mode is UpgradeMode.STATELESS:
            self._step("convert", self._set_aside)
        elif record.converts:
            self._step("convert", self._convert)
        self._step("start", self._start)
        if not self._record.did("watch"):
            self._begin()
            watched = self._watch().run(
                lambda: self._control.details(record.job),
                lambda: reports.alerts(self._home, record.job),
                self._clock,
            )
            if not watched.healthy:
                self._save(replace(self._record, reason=watched.text))
                return
            self._done("watch", watched.text, batches=watched.batches)
        self._save(replace(self._record, outcome=UpgradeOutcome.UPGRADED))

    def _stop(self) -> tuple[str, dict[str, Any]]:
        how = self._end_job(at_once=self._record.mode is UpgradeMode.LAST_STATE)
        attempts = self._control.details(self._record.job, batches=1).attempts
        return how, {
            "attempt": max((attempt.number for attempt in attempts), default=0),
            "stopped_ms": self._clock(),
        }

    def _end_job(self, *, at_once: bool) -> str:
        """Stop the job if it runs, and wait until nothing uses its checkpoint."""
        record = self._record
        status = self._status()
        text = "the job did not run"
        if status.runs:
            with suppress(Conflict):  # it has ended by itself
                self._control.stop(record.job, _STOP_S, at_once=at_once)
            text = "stopped at once" if at_once else "stopped after the running batch"
        deadline = time.monotonic() + _STOP_S
        lock = SupervisorLock(self._home, record.job)
        while lock.is_held():
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the supervisor of job {record.job!r} has not ended",
                    code="HF-E5073",
                    where=str(self._home.path),
                    hint=f"look at it with `holdfast status {record.job}`",
                )
            time.sleep(_LOOK_S)
        # After the supervisor was killed, its driver finishes its batch.
        CheckpointClaim(record.checkpoint, record.job, self._home.path).wait(
            ORPHAN_GRACE_S, lambda *_, **__: None
        )
        return text

    def _take(self) -> tuple[str, dict[str, Any]]:
        label = self._label
        taken: dict[str, str] = {}
        for query, checkpoint in self._record.queries.items():
            catalog = open_storage(self._record.catalogs[query], "savepoints")
            uri = next(
                (
                    savepoint_uri(catalog, each.savepoint_id)
                    for each in listed(catalog)
                    if each.manifest is not None
                    and each.manifest.label == label
                    and each.manifest.checkpoint == open_storage(checkpoint).uri
                ),
                None,
            )
            if uri is None:
                began = time.monotonic()
                made = take_and_restore.take(
                    checkpoint, catalog.uri, label=label, digest=False, gentle=False, tell=self._tell
                )
                uri = made.uri
                with suppress(HoldfastError):  # it exists, whether the registry knows of it or not
                    took_ms = int((time.monotonic() - began) * 1000)
                    self._control.note_savepoint(self._record.job, query, made, took_ms)
            taken[query] = uri
        offered = {
            query: max(Logs(open_storage(checkpoint)).offered, default=-1)
            for query, checkpoint in self._record.queries.items()
        }
        return ", ".join(taken.values()), {"savepoints": taken, "offered": offered}

    def _convert(self) -> tuple[str, dict[str, Any]]:
        """Convert the state of queries into new checkpoints, and exchange the old ones with them."""
        record = self._record
        for query in record.converts:
            if query not in self._noted("new"):
                self._require_same_code()
                self._note("new", query, self._make(query))
                self._note("old", query, _number(place_of(record.queries[query])))
            self._swap_in(query)
        kept = ", ".join(str(self._kept(query)) for query in record.converts)
        return f"converted the state for the new code; the old checkpoint is in {kept}", {}

    def _make(self, query: str) -> int:
        """Create the converted checkpoint next to the old one; returns its inode number."""
        from holdfast.jobs.trials.change_api import change  # it loads Spark's plans

        record, checkpoint = self._record, self._record.queries[query]
        made = self._made(query)
        shutil.rmtree(made, ignore_errors=True)
        wanted, wishes = record.wanted, record.wishes
        change(self._savepoint(query), home=self._home.path).code(
            wanted.target,
            query=None if len(record.queries) == 1 else query,
            initial=wishes.initial,
            rename=wishes.rename,
            drop=wishes.drop,
            merge=wishes.merge,
            overrides=wanted.overrides,
            conf=wanted.conf,
        ).to(made, tell=self._tell)
        new, old = LocalStorage(made), open_storage(checkpoint)
        newest = Logs(new).newest
        if newest is not None and newest + 1 in Logs(old).offered:
            # The interrupted batch runs again with the same input; a ledger may have it already.
            for path, data in batch_files(old, new, newest + 1):
                if new.size(path) is None:
                    new.write(path, data)
        lead_to(new, place_of(checkpoint).as_uri())
        flush_folder(made.parent)
        return _number(made)

    def _swap_in(self, query: str) -> None:
        """Exchange a checkpoint with its successor, unless that is done; the old one is kept.

        A directory's inode number shows which of the two it is: the number moves with the directory.
        """
        here, there = place_of(self._record.queries[query]), self._made(query)
        if _number(here) != self._noted("new")[query]:
            with held_between_drivers(LocalStorage(here), "upgrade"):
                exchange(here, there)
        if there.exists():
            there.rename(self._kept(query))
            flush_folder(there.parent)

    def _set_aside(self) -> tuple[str, dict[str, Any]]:
        """Move the checkpoints aside, so that the new code starts without state."""
        for query, checkpoint in self._record.queries.items():
            here, kept = place_of(checkpoint), self._kept(query)
            if query not in self._noted("old"):
                self._note("old", query, _number(here))
            if not kept.exists():
                with held_between_drivers(LocalStorage(here), "upgrade"):
                    here.rename(kept)
                flush_folder(kept.parent)
        moved = ", ".join(str(self._kept(query)) for query in self._record.queries)
        return f"the old checkpoint is in {moved}; the new code starts without state", {}

    def _start(self) -> tuple[str, dict[str, Any]]:
        wanted = self._record.wanted
        if not self._runs(wanted):
            self._require_same_code()
        self._launch(wanted, wanted.target, self._require_no_failure)
        return f"{wanted.target} runs", {}

    def _require_same_code(self) -> None:
        wanted = self._record.wanted
        if digest_of(wanted.target) != wanted.digest:
            raise Conflict(
                "the new code was changed after it was checked",
                code="HF-E4083",
                where=wanted.target,
                hint=f"run `holdfast upgrade {self._record.job} {wanted.target}` again",
            )

    def _require_no_failure(self) -> None:
        """Raise if a driver of the new code has failed, instead of waiting for the restart strategy."""
        failure = self._watch().failure(self._control.details(self._record.job, batches=1))
        if failure is not None:
            raise Failed(
                "the new code failed before its queries ran",
                code="HF-E1013",
                where=self._record.wanted.target,
                found=failure,
            )

    def _watch(self) -> HealthWatch:
        facts = self._record.facts
        return HealthWatch(self._record.goals, facts["attempt"], facts["stopped_ms"], self._record.alerts)

    def _launch(self, run: RunRecord, target: str, look: Callable[[], None] = lambda: None) -> None:
        """Start the job with some code, unless it runs already."""
        if self._runs(run):
            return
        try:
            launch(self._home, run.launch(target), _START_S, look)
        except Conflict as error:
            # A process that was killed here has started it.
            if error.code != RUNNING_ALREADY or not self._comes_to_run(run):
                raise

    def _comes_to_run(self, run: RunRecord) -> bool:
        deadline = time.monotonic() + _START_S
        while not self._runs(run):
            if time.monotonic() > deadline or not SupervisorLock(self._home, self._record.job).is_held():
                return False
            time.sleep(_LOOK_S)
        return True

    def _runs(self, run: RunRecord) -> bool:
        """Return True if the job runs with the code of a run, or has finished with it since the stop."""
        status = self._status()
        facts = self._record.facts
        since_ms = facts.get("back_ms", facts.get("stopped_ms", 0))
        if status.job.started_ms < since_ms:
            return False
        running = last_run(self._home, self._record.job)
        same = running is not None and running.digest == run.digest
        return (
            same
            and status.job.state in (JobState.RUNNING, JobState.RESTARTING, JobState.FINISHED)
            and (status.supervised or status.job.state is JobState.FINISHED)
        )

    # Back.

    def _back(self) -> None:
        self._step("stop-new", self._stop_new)
        self._step("put-back", self._put_back)
        if self._record.ran:
            self._step("start-old", self._start_old)
        self._save(replace(self._record, outcome=UpgradeOutcome.WENT_BACK))

    def _stop_new(self) -> tuple[str, dict[str, Any]]:
        return self._end_job(at_once=True), {"back_ms": self._clock()}

    def _put_back(self) -> tuple[str, dict[str, Any]]:
        lines = [
            text
            for query, checkpoint in self._record.queries.items()
            if (text := self._put_one_back(query, checkpoint)) is not None
        ]
        return "; ".join(lines) or "the checkpoint is unchanged", {}

    def _put_one_back(self, query: str, checkpoint: str) -> str | None:
        """Put the state from before in place of what the new code has made; None if it has made nothing."""
        if self._record.mode is UpgradeMode.STATELESS:
            return self._exchange_back(query, checkpoint)
        saved = self._record.facts.get("savepoints", {}).get(query)
        if saved is None:
            return None
        began = rollback.under_way(checkpoint)
        if not began and not self._was_used(query, checkpoint):
            return self._undo_conversion(query, checkpoint)
        if not began and query not in self._record.returns:
            raise Conflict(
                f"query {query!r} cannot return to the old code, because the new code has planned batches"
                " that the old code cannot repeat",
                code="HF-E4084",
                where=checkpoint,
                found=self._record.reason,
                hint=f"fix the new code and run it; or restore {saved} into a new checkpoint, and accept that"
                " the sink has rows of these batches",
            )
        newest = Logs(open_storage(checkpoint)).newest if not began else began[0].newest
        way = rollback.put_back(query, checkpoint, saved, newest or 0, self._clock())
        return f"query {query} is back at batch {way.batch_id}; the newer checkpoint is in {way.aside}"

    def _was_used(self, query: str, checkpoint: str) -> bool:
        """Return True if the new code has planned or committed a batch."""
        logs = Logs(open_storage(checkpoint))
        planned = max(logs.offered, default=-1) > self._record.facts["offered"][query]
        return planned or (logs.newest is not None and logs.newest > self._savepoint_batch(query))

    def _savepoint_batch(self, query: str) -> int:
        from holdfast.savepoints.savepoint_api import show

        return show(self._savepoint(query)).batch_id

    def _undo_conversion(self, query: str, checkpoint: str) -> str | None:
        """Put the old checkpoint back in place of a converted one that was not used."""
        here, made = place_of(checkpoint), self._made(query)
        if query in self._noted("new") and _number(here) == self._noted("new")[query]:
            self._swap_in(query)
            return self._exchange_back(query, checkpoint)
        shutil.rmtree(made, ignore_errors=True)  # not exchanged yet
        return None

    def _exchange_back(self, query: str, checkpoint: str) -> str | None:
        """Put the checkpoint that was moved aside back in its place."""
        here, kept = place_of(checkpoint), self._kept(query)
        aside = here.with_name(f"{here.name}.upgraded-{self._mark}")
        if query not in self._noted("old"):
            return None
        if not here.exists():
            kept.rename(here)
        elif _number(here) != self._noted("old")[query]:
            with held_between_drivers(LocalStorage(here), "upgrade"):
                exchange(here, kept)
        if kept.exists():
            kept.rename(aside)
        flush_folder(here.parent)
        return f"query {query} has its old checkpoint again" + (
            f"; that of the new code is in {aside}" if aside.exists() else ""
        )

    def _start_old(self) -> tuple[str, dict[str, Any]]:
        former = self._record.former
        try:
            target = runnable_target(self._home, self._record.job, former)
        except OSError as error:
            raise Unavailable(
                "the old code cannot be read",
                code="HF-E5074",
                where=error.filename or former.target,
                found=error.strerror,
                hint="run the old code with `holdfast run`; the checkpoint is ready for it",
            ) from error
        self._launch(former, target)
        copy = "" if target == former.target else ", a copy of the old code, because the file has changed"
        return f"{target} runs{copy}", {}

    # The record.

    def _step(self, name: str, act: Callable[[], tuple[str, Mapping[str, Any]]]) -> None:
        """Carry out a step unless it is done, and record it."""
        if self._record.did(name):
            return
        self._begin()
        text, facts = act()
        self._done(name, text, **facts)

    def _begin(self) -> None:
        self._began_s = time.monotonic()

    def _done(self, name: str, text: str, **facts: Any) -> None:
        took_ms = int((time.monotonic() - self._began_s) * 1000)
        self._save(self._record.with_step(name, text, took_ms, **facts))
        self._on_step(self._record.steps[-1])

    def _save(self, record: UpgradeRecord) -> None:
        self._file.write(record)
        self._record = record

    def _noted(self, name: str) -> Mapping[str, int]:
        """Return the inode numbers of checkpoints, by query."""
        numbers: Mapping[str, int] = self._record.facts.get(name, {})
        return numbers

    def _note(self, name: str, query: str, number: int) -> None:
        self._save(self._record.with_facts(**{name: {**self._noted(name), query: number}}))

    # Names.

    @property
    def _mark(self) -> str:
        return self._record.upgrade_id[:12]

    @property
    def _label(self) -> str:
        return f"before-upgrade-{self._mark}"

    def _savepoint(self, query: str) -> str:
        return str(self._record.facts["savepoints"][query])

    def _made(self, query: str) -> Path:
        here = place_of(self._record.queries[query])
        return here.with_name(f"{here.name}.upgrade-{self._mark}")

    def _kept(self, query: str) -> Path:
        here = place_of(self._record.queries[query])
        return here.with_name(f"{here.name}.before-{self._mark}")

    def _status(self) -> JobStatus:
        return self._control.details(self._record.job, batches=1).status


def _number(place: Path) -> int:
    return os.stat(place).st_ino  # noqa: PTH116 - a path's own way says the same


def _found(error: HoldfastError) -> str:
    return f": {error.found}" if error.found else ""
