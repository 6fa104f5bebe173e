"""Automatic rescale: the number of partitions of a job's queries follows the recommendation of its batches.

A change costs a stop of the query. So the recommendation has to differ from the present number for a while,
the smallest change of that while is made, and the query then rests.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from holdfast.config.checks import local_path
from holdfast.config.policies import Autoscale
from holdfast.config.settings import make_directory
from holdfast.errors import HoldfastError
from holdfast.jobs.events import Say
from holdfast.jobs.registry.operation_log import Operations, Rescale
from holdfast.jobs.rescaler import VERB
from holdfast.jobs.state_home import StateHome
from holdfast.json_shapes import JsonShape
from holdfast.model import BatchProgress
from holdfast.observe.sizing import BATCHES, TOLERATED, sizing
from holdfast.ownership.checkpoint_lease import can_have_successors
from holdfast.plain_values import from_known

_FILE: Final = "autoscale.json"
_WHAT: Final = "the record of the automatic rescale"
_KEPT: Final = 200
# The shortest time between two looks at the recommendation.
_LOOK_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class ScaleDecision(JsonShape):
    """A decision to change the number of partitions of a query.

    Attributes:
        query: The query.
        at_ms: The time of the decision, in epoch milliseconds.
        before: The number of partitions.
        partitions: The new number.
        why: The reason.
        done: True if the change was requested; False in a dry run, or where it is not possible.
        note: The reason why it was not requested; None if it was.

    Example:
        def changes(report: hf.jobs.JobReport) -> list[tuple[int, int]]:
            return [(each.before, each.partitions) for each in report.autoscale if each.done]
    """

    query: str
    at_ms: int
    before: int
    partitions: int
    why: str
    done: bool
    note: str | None = None

    @property
    def line(self) -> str:
        """The decision as one line."""
        change = f"query {self.query}: from {self.before} to {self.partitions} partitions"
        return f"{change}: {self.why}" if self.done else f"{change} not done ({self.note}): {self.why}"


class ScalePolicy:
    """The decisions on one query, from its batches.

    Args:
        settings: The bounds.
        limit_ms: The maximum duration of a batch if the trigger has no interval; None without one.
        changed_ms: The time of the last change, in epoch milliseconds; None without one.
    """

    def __init__(self, settings: Autoscale, limit_ms: float | None, changed_ms: int | None = None) -> None:
        self._settings = settings
        self._limit_ms = limit_ms
        self._changed_ms = changed_ms
        self._history: deque[BatchProgress] = deque(maxlen=BATCHES)
        # The recommendations since `_since_ms`, with the time of each.
        self._wanted: deque[tuple[int, int, str]] = deque()
        self._since_ms: int | None = None
        self._looked_ms: int | None = None

    def decide(self, batch: BatchProgress) -> ScaleDecision | None:
        """Return the change that a further batch leads to, as if it will be done; None for no change."""
        now_ms, settings = batch.committed_ms, self._settings
        if self._history and _partitions(batch) != _partitions(self._history[-1]):
            self._forget()
        self._history.append(batch)
        if self._looked_ms is not None and now_ms - self._looked_ms < min(_LOOK_MS, settings.after_ms):
            return None
        self._looked_ms = now_ms
        found = sizing(self._history, now_ms, self._limit_ms)
        present, right = found.partitions, found.recommended_partitions
        # A few batches, some of them large, are no load.
        if present is None or right is None or found.batches < BATCHES:
            return None
        within = min(max(right, settings.least), settings.most)
        if within < present <= TOLERATED * within:
            within = present
        if self._since_ms is None:
            self._since_ms = now_ms
        self._wanted.append((now_ms, within, "; ".join(found.why)))
        while self._wanted[0][0] < now_ms - settings.after_ms:
            self._wanted.popleft()
        rests = self._changed_ms is not None and now_ms - self._changed_ms < settings.cool_down_ms
        if rests or now_ms - self._since_ms < settings.after_ms:
            return None
        nearest = min(self._wanted, key=lambda each: abs(each[1] - present))
        sides = {(each[1] > present) - (each[1] < present) for each in self._wanted}
        if len(sides) > 1 or nearest[1] == present:
            return None
        self._changed_ms = now_ms
        self._forget()
        return ScaleDecision(batch.query, now_ms, present, nearest[1], nearest[2], done=True)

    def _forget(self) -> None:
        self._history.clear()
        self._wanted.clear()
        self._since_ms = None


def _partitions(batch: BatchProgress) -> int:
    return max((operator.partitions for operator in batch.operators), default=0)


class Autoscaler:
    """The automatic rescale of a running job.

    Args:
        home: The state home.
        job: The job's name.
        settings: The bounds.
        limit_ms: As in `ScalePolicy`.
        clock: Returns epoch milliseconds.
        say: Reports events.
        new_id: Returns the id of an operation.
    """

    def __init__(
        self,
        home: StateHome,
        job: str,
        settings: Autoscale,
        limit_ms: float | None,
        clock: Callable[[], int],
        say: Say,
        new_id: Callable[[], str] = lambda: os.urandom(16).hex(),
    ) -> None:
        self._home = home
        self._job = job
        self._settings = settings
        self._limit_ms = limit_ms
        self._clock = clock
        self._say = say
        self._new_id = new_id
        self._policies: dict[str, ScalePolicy] = {}
        self._checkpoints: Mapping[str, str] = {}

    def started(self, checkpoints: Mapping[str, str]) -> None:
        """Handle the start of queries with these checkpoints, by name."""
        self._checkpoints = dict(checkpoints)

    def committed(self, batch: BatchProgress, *, alone: bool) -> bool:
        """Handle a committed batch; True if a rescale was requested.

        Args:
            batch: The batch.
            alone: True if the job has no other supervisor.
        """
        if batch.query not in self._policies:
            self._policies[batch.query] = ScalePolicy(self._settings, self._limit_ms, self._last(batch.query))
        decision = self._policies[batch.query].decide(batch)
        if decision is None:
            return False
        note = self._obstacle(batch.query, alone=alone)
        try:
            if note is None:
                arguments = Rescale({batch.query: decision.partitions}, {batch.query: decision.before})
                Operations(self._home).ask(self._new_id(), VERB, self._job, arguments, self._clock())
        except HoldfastError as error:  # the file is busy, for example
            note = error.fact
        decision = replace(decision, done=note is None, note=note)
        with suppress(HoldfastError, OSError):  # the decision is reported as an event too
            record(self._home, self._job, decision)
        self._say("autoscale", decision.line, **decision.as_dict())
        return decision.done

    def _last(self, query: str) -> int | None:
        with suppress(HoldfastError, OSError):
            known = decisions(self._home, self._job)
            return max((each.at_ms for each in known if each.query == query), default=None)
        return None

    def _obstacle(self, query: str, *, alone: bool) -> str | None:
        if self._settings.dry_run:
            return "a dry run"
        if not alone:
            return "the job has several supervisors"
        checkpoint = self._checkpoints.get(query, "")
        if local_path(checkpoint) is None and not can_have_successors(checkpoint):
            return "a checkpoint on this storage cannot be replaced"
        return None


@dataclass(frozen=True, slots=True)
class _Record:
    decisions: tuple[ScaleDecision, ...] = ()


def decisions(home: StateHome, job: str) -> tuple[ScaleDecision, ...]:
    """Return the newest decisions on a job's queries, oldest first.

    Raises:
        Corrupt: The record is damaged.
    """
    fields = home.read_json(job, _FILE, _WHAT) or {}
    with suppress(TypeError, ValueError, AttributeError):  # of a different release
        return from_known(_Record, fields).decisions
    return ()


def record(home: StateHome, job: str, decision: ScaleDecision) -> None:
    """Add a decision to those of a job.

    Raises:
        HoldfastError: The state home cannot be read or written.
    """
    kept = (*decisions(home, job), decision)[-_KEPT:]
    make_directory(home.job(job))
    home.write_json(job, _FILE, _Record(kept))
