"""Decide what follows a failure: a restart after a delay, or the end.

A pure state machine. It reads no clock and starts nothing: the supervisor passes events with their times and
acts on the decisions. The same events and the same seed give the same decisions.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

from holdfast.config.policies import Exponential, FailureRate, FixedDelay, NoRestart, RestartStrategy
from holdfast.config.units import exact_duration


@dataclass(frozen=True, slots=True)
class Retry:
    """Start the driver again.

    Attributes:
        delay_ms: The delay before the start.
        attempt: The number of the restart, from 1; an exponential strategy starts again at 1 after a quiet
            time.
    """

    delay_ms: int
    attempt: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Leave the job failed.

    Attributes:
        reason: The reason, as a text that follows "gave up: ".
    """

    reason: str


class RestartPolicy:
    """The failures of one run, and the decisions based on them.

    Created for each `holdfast run`, so that a job started by hand has no earlier failures.

    Args:
        strategy: The restart strategy.
        rng: The source of jitter; a seeded one makes the decisions repeatable.
        ran: True if the job's queries have run before under a different supervisor.
    """

    def __init__(self, strategy: RestartStrategy, rng: random.Random, *, ran: bool = False) -> None:
        self._strategy = strategy
        self._rng = rng
        self._ran = ran
        self._attempt = 0
        self._backoff_ms = strategy.initial_ms if isinstance(strategy, Exponential) else 0
        self._resumed_ms: int | None = None
        self._last_fingerprint: str | None = None
        self._same_in_a_row = 0
        self._recent: deque[int] = deque()
        self._given_up: GiveUp | None = None

    def on_running(self) -> None:
        """Record that the job's queries have started."""
        self._ran = True

    def on_failure(
        self,
        fingerprint: str,
        committed_since_last: bool,
        now_ms: int,
        *,
        comes_again: bool = False,
        permanent: bool = False,
    ) -> Retry | GiveUp:
        """Decide what follows a failure.

        Args:
            fingerprint: A text that is equal for equal failures.
            committed_since_last: True if a batch was committed since the previous failure, or since the
                start.
            now_ms: The time of the failure, on a monotonic clock.
            comes_again: True if another start of the same code would fail the same way. A job whose
                queries have run is restarted nevertheless, since its environment may have changed.
            permanent: True if no restart fixes the failure: the job ends even if its queries have run.

        A policy that gave up does so for every later failure.
        """
        if self._given_up is None:
            self._forget_after_quiet(now_ms)
            self._remember(fingerprint, committed_since_last, now_ms)
            reason = self._reason_to_give_up()
            if comes_again and not self._ran:
                reason = "no query had started, and a restart would fail the same way"
            if permanent:
                reason = "a restart cannot fix this failure"
            if reason is None:
                return self._retry(now_ms)
            self._given_up = GiveUp(reason)
        return self._given_up

    def _forget_after_quiet(self, now_ms: int) -> None:
        """Reset an exponential strategy after the job's quiet time.

        The last failure is kept: a job that runs for an hour, commits nothing and fails the same way again
        has not recovered.
        """
        strategy = self._strategy
        if not isinstance(strategy, Exponential) or self._resumed_ms is None:
            return
        if now_ms - self._resumed_ms >= strategy.reset_after_ms:
            self._attempt = 0
            self._backoff_ms = strategy.initial_ms

    def _remember(self, fingerprint: str, committed_since_last: bool, now_ms: int) -> None:
        same = fingerprint == self._last_fingerprint and not committed_since_last
        self._same_in_a_row = self._same_in_a_row + 1 if same else 1
        self._last_fingerprint = fingerprint
        if isinstance(self._strategy, FailureRate):
            self._recent.append(now_ms)
            while now_ms - self._recent[0] >= self._strategy.per_ms:
                self._recent.popleft()

    def _reason_to_give_up(self) -> str | None:
        strategy = self._strategy
        if isinstance(strategy, NoRestart):
            return "the restart strategy is none"
        if strategy.same_failure is not None and self._same_in_a_row >= strategy.same_failure:
            return f"the same failure occurred {_times(self._same_in_a_row)} without a commit in between"
        if isinstance(strategy, FailureRate):
            if len(self._recent) > strategy.failures:
                window = exact_duration(strategy.per_ms)
                return f"{len(self._recent)} failures within {window}; the limit is {strategy.failures}"
            return None
        if strategy.attempts is not None and self._attempt >= strategy.attempts:
            quiet = ""
            if isinstance(strategy, Exponential):
                quiet = f" without {exact_duration(strategy.reset_after_ms)} of quiet"
            return f"restarted {_times(self._attempt)}{quiet}, the allowed maximum"
        return None

    def _retry(self, now_ms: int) -> Retry:
        self._attempt += 1
        delay_ms = self._next_delay_ms()
        self._resumed_ms = now_ms + delay_ms
        return Retry(delay_ms, self._attempt)

    def _next_delay_ms(self) -> int:
        strategy = self._strategy
        if isinstance(strategy, (FixedDelay, FailureRate)):
            return strategy.delay_ms
        if not isinstance(strategy, Exponential):
            return 0
        spread = strategy.jitter * self._rng.uniform(-1, 1)
        delay_ms = min(strategy.max_ms, max(0, round(self._backoff_ms * (1 + spread))))
        self._backoff_ms = min(strategy.max_ms, round(self._backoff_ms * strategy.multiplier))
        return delay_ms


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
