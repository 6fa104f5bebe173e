"""Automatic rescale: the number of partitions of a job's queries follows the recommendation of its batches.

A change costs a stop of the query. So the recommendation has to differ from the present number for a while,
the smallest change of that while is made, and the query then rests.

More partitions do not help a query with a hot key. Keys that stay hot for a while are recorded as a decision
with the call that splits them. The code of the query names them, so the supervisor does not split them.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from holdfast.at_rest.insight import split_joins, split_note
from holdfast.config.checks import local_path
from holdfast.config.policies import Autoscale
from holdfast.config.settings import make_directory
from holdfast.errors import HoldfastError
from holdfast.external.view import open_checkpoint
from holdfast.jobs.events import Say
from holdfast.jobs.pending_rescale import VERB
from holdfast.jobs.registry.operation_log import Operations, Rescale
from holdfast.jobs.state_home import StateHome
from holdfast.json_shapes import JsonShape
from holdfast.model import BatchProgress, HeavyKey, SkewReport
from holdfast.observe.sizing import BATCHES, TOLERATED, sizing
from holdfast.ownership.checkpoint_lease import can_have_successors
from holdfast.plain_values import from_known

_FILE: Final = "autoscale.json"
_WHAT: Final = "the record of the automatic rescale"
_KEPT: Final = 200
# The shortest time between two looks at the recommendation.
_LOOK_MS: Final = 10_000
# A key is not hot because of fewer batches.
_LEAST_BATCHES: Final = 5


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
        hot: The hot keys to split, as JSON, in a decision about keys; the number of partitions then stays.

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
    hot: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The decision as one line."""
        change = f"query {self.query}: from {self.before} to {self.partitions} partitions"
        if self.hot:
            change = f"query {self.query}: hot keys {', '.join(self.hot)}"
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


class HotKeyPolicy:
    """The decisions about the hot keys of one query, from the keys that its batches count.

    Args:
        settings: The bounds.
        decided: The keys of earlier decisions, by the time of the last one, in epoch milliseconds.
    """

    def __init__(self, settings: Autoscale, decided: Mapping[str, int] | None = None) -> None:
        self._settings = settings
        # When each key of a decision was hot last.
        self._decided = dict(decided or {})
        # The hot keys of recent batches, by watched stream, with the time of each.
        self._seen: dict[str, deque[tuple[int, frozenset[str]]]] = {}
        self._since_ms: dict[str, int] = {}

    def decide(self, batch: BatchProgress) -> tuple[SkewReport, ScaleDecision] | None:
        """Return the keys that have become hot, with the stream that counts them; None without any."""
        share, now_ms = self._settings.hot_share, batch.committed_ms
        if share is None:
            return None
        for report in batch.skew:
            if not report.looked_at:
                continue
            hot = frozenset(_text(key) for key in report.heavy if key.share - report.error >= share)
            since_ms = self._since_ms.setdefault(report.name, now_ms)
            seen = self._seen.setdefault(report.name, deque())
            seen.append((now_ms, hot))
            while len(seen) > _LEAST_BATCHES and seen[0][0] < now_ms - self._settings.after_ms:
                seen.popleft()
            self._refresh(hot, now_ms)
            if now_ms - since_ms < self._settings.after_ms or len(seen) < _LEAST_BATCHES:
                continue
            lasting = frozenset.intersection(*(keys for _, keys in seen))
            new = tuple(_text(key) for key in report.heavy if _text(key) in lasting - self._decided.keys())
            if new:
                self._decided.update(dict.fromkeys(new, now_ms))
                present = _partitions(batch)
                why = (
                    f"each has at least {share:.1%} of the rows of {report.name!r} by {', '.join(report.by)}"
                )
                decision = ScaleDecision(batch.query, now_ms, present, present, why, done=False, hot=new)
                return report, decision
        return None

    def _refresh(self, hot: frozenset[str], now_ms: int) -> None:
        """Forget the keys of decisions that were not hot for a whole cool-down."""
        for key in hot & self._decided.keys():
            self._decided[key] = now_ms
        rest_ms = self._settings.cool_down_ms
        self._decided = {key: at_ms for key, at_ms in self._decided.items() if now_ms - at_ms < rest_ms}


def _text(key: HeavyKey) -> str:
    return json.dumps(key.key, ensure_ascii=False)


def _literal(key: str) -> str:
    """Return a key in JSON as Python's literal for `hot=`: a value, or a tuple for several columns."""
    values = tuple(json.loads(key))
    return repr(values[0] if len(values) == 1 else values)


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
        self._key_policies: dict[str, HotKeyPolicy] = {}
        self._checkpoints: Mapping[str, str] = {}

    def started(self, checkpoints: Mapping[str, str]) -> None:
        """Handle the start of queries with these checkpoints, by name."""
        self._checkpoints = dict(checkpoints)

    def committed(self, batch: BatchProgress) -> bool:
        """Handle a committed batch; True if a rescale was requested."""
        self._look_at_keys(batch)
        if batch.query not in self._policies:
            self._policies[batch.query] = ScalePolicy(self._settings, self._limit_ms, self._last(batch.query))
        decision = self._policies[batch.query].decide(batch)
        if decision is None:
            return False
        note = self._obstacle(batch.query)
        try:
            if note is None:
                arguments = Rescale({batch.query: decision.partitions}, {batch.query: decision.before})
                Operations(self._home).ask(self._new_id(), VERB, self._job, arguments, self._clock())
        except HoldfastError as error:  # the file is busy, for example
            note = error.fact
        decision = replace(decision, done=note is None, note=note)
        self._report(decision)
        return decision.done

    def _look_at_keys(self, batch: BatchProgress) -> None:
        """Record the keys that have become hot and are not split yet."""
        if self._settings.hot_share is None or not batch.skew:
            return
        if batch.query not in self._key_policies:
            self._key_policies[batch.query] = HotKeyPolicy(self._settings, self._decided_keys(batch.query))
        found = self._key_policies[batch.query].decide(batch)
        if found is None:
            return
        report, decision = found
        checkpoint = self._checkpoints.get(batch.query, "")
        hot, note = decision.hot, "no join of the query splits these columns, and only its code can"
        with suppress(HoldfastError, OSError):
            split = hot_keys_of(checkpoint, report.by)
            if split is not None:
                join, present = split
                hot = tuple(key for key in hot if key not in present)
                keys = ", ".join(map(_literal, (*present, *hot)))
                call = f"hf.change({checkpoint!r}).split({join!r}, hot=[{keys}])"
                note = f"its code names the keys: change hot= there, and stop the job for {call}"
        if hot:
            note = "a dry run" if self._settings.dry_run else note
            self._report(replace(decision, hot=hot, note=note))

    def _decided_keys(self, query: str) -> dict[str, int]:
        with suppress(HoldfastError, OSError):
            known = decisions(self._home, self._job)
            return {key: each.at_ms for each in known if each.query == query for key in each.hot}
        return {}

    def _report(self, decision: ScaleDecision) -> None:
        with suppress(HoldfastError, OSError):  # the decision is reported as an event too
            record(self._home, self._job, decision)
        self._say("autoscale", decision.line, **decision.as_dict())

    def _last(self, query: str) -> int | None:
        with suppress(HoldfastError, OSError):
            known = decisions(self._home, self._job)
            changes = (each for each in known if each.query == query and not each.hot)
            return max((each.at_ms for each in changes), default=None)
        return None

    def _obstacle(self, query: str) -> str | None:
        if self._settings.dry_run:
            return "a dry run"
        checkpoint = self._checkpoints.get(query, "")
        if local_path(checkpoint) is None and not can_have_successors(checkpoint):
            return "a checkpoint on this storage cannot be replaced"
        return None


def hot_keys_of(checkpoint: str, by: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the join of a checkpoint that splits keys of these columns, with its hot keys as JSON, or None.

    Raises:
        HoldfastError: The checkpoint cannot be read.
    """
    storage = open_checkpoint(checkpoint)
    for join in split_joins(storage):
        note = split_note(storage, join)
        if tuple(note["by"]) == tuple(by):
            return join, tuple(json.dumps(json.loads(key), ensure_ascii=False) for key in note["hot"])
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
