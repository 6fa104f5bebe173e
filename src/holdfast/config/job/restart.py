"""What the supervisor does when a driver fails: the strategies, as values.

The decisions themselves are in `holdfast.jobs.recovery.restart_policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from holdfast.config.checks import Check, check_fields, fraction, optional, whole
from holdfast.config.setting_report import SettingReport, kept, shown
from holdfast.config.units import Duration, exact_duration, parse_duration
from holdfast.errors import Invalid

DEFAULT_SAME_FAILURE = 3

_SAME_FAILURE_WHY = (
    "Gives up when the very same failure came this often in a row with no batch committed in between: "
    "another restart would fail the same way."
)


_LIMIT: Final = optional(partial(whole, least=1))
_PAUSE: Final = partial(parse_duration, allow_zero=True)
_EXPONENTIAL: Final[Mapping[str, Check]] = {
    "initial": parse_duration,
    "max": parse_duration,
    "multiplier": partial(fraction, least=1),
    "jitter": partial(fraction, least=0, most=1),
    "reset_after": parse_duration,
    "attempts": _LIMIT,
    "same_failure": _LIMIT,
}
_FAILURE_RATE: Final[Mapping[str, Check]] = {
    "failures": partial(whole, least=1),
    "per": parse_duration,
    "delay": _PAUSE,
    "same_failure": _LIMIT,
}


@dataclass(frozen=True, slots=True)
class NoRestart:
    """Leave a failed job failed."""

    def knobs(self) -> tuple[SettingReport, ...]:
        """Explain every field; there are none."""
        return ()


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Restart after the same pause each time, a limited number of times in all.

    Args:
        attempts: Restarts in the life of this run, however far apart; None for no limit. For a job
            that lives for months an `exponential` or a `failure_rate` strategy forgets old failures,
            this one does not.
        delay: The pause before each restart; kept in milliseconds.
        same_failure: Give up when one failure came this often in a row; None for never.
    """

    attempts: int | None = 3
    delay: Duration = "10s"
    same_failure: int | None = DEFAULT_SAME_FAILURE

    def __post_init__(self) -> None:
        check_fields(self, "fixed_delay", {"attempts": _LIMIT, "delay": _PAUSE, "same_failure": _LIMIT})

    @property
    def delay_ms(self) -> int:
        """The pause before each restart, in milliseconds."""
        return parse_duration(self.delay, allow_zero=True)

    def knobs(self) -> tuple[SettingReport, ...]:
        """Explain every field."""
        return (
            kept("attempts", shown(self.attempts), _at_most(self.attempts), "Counted over the whole run."),
            kept("delay", *_twice(self.delay_ms), "The pause before each restart."),
            _same_failure(self.same_failure),
        )


@dataclass(frozen=True, slots=True)
class Exponential:
    """Restart after a pause that grows with each failure and starts small again after a quiet time.

    Args:
        initial: The first pause; kept in milliseconds, like the other durations.
        max: The longest pause, jitter included.
        multiplier: By how much the pause grows.
        jitter: The share of a pause that is added or taken off at random, so that jobs which failed
            together do not all come back together.
        reset_after: A job that ran this long without failing starts again at the first pause.
        attempts: Restarts without such a quiet time between; None for no limit.
        same_failure: Give up when one failure came this often in a row; None for never.
    """

    initial: Duration = "1s"
    max: Duration = "1m"
    multiplier: float = 2.0
    jitter: float = 0.1
    reset_after: Duration = "10m"
    attempts: int | None = None
    same_failure: int | None = DEFAULT_SAME_FAILURE

    def __post_init__(self) -> None:
        check_fields(self, "exponential", _EXPONENTIAL)
        if self.max_ms < self.initial_ms:
            raise Invalid(
                "the longest pause is shorter than the first",
                where="exponential(max=…)",
                found=exact_duration(self.max_ms),
                expected=f"at least {exact_duration(self.initial_ms)}, the value of initial",
            )

    @property
    def initial_ms(self) -> int:
        """The first pause in milliseconds."""
        return parse_duration(self.initial)

    @property
    def max_ms(self) -> int:
        """The longest pause in milliseconds."""
        return parse_duration(self.max)

    @property
    def reset_after_ms(self) -> int:
        """The quiet time, in milliseconds, after which old failures are forgotten."""
        return parse_duration(self.reset_after)

    def knobs(self) -> tuple[SettingReport, ...]:
        """Explain every field."""
        quiet = exact_duration(self.reset_after_ms)
        return (
            kept("initial", *_twice(self.initial_ms), "The pause before the first restart."),
            kept("max", *_twice(self.max_ms), "No pause is longer."),
            kept(
                "multiplier",
                f"{self.multiplier:g}",
                f"{self.multiplier:g} times the last",
                "The growth of the pause.",
            ),
            kept(
                "jitter",
                f"{self.jitter:g}",
                f"± {self.jitter:.0%}",
                "Spreads jobs that failed together.",
            ),
            kept(
                "reset_after", *_twice(self.reset_after_ms), f"{quiet} without a failure forget the old ones."
            ),
            kept(
                "attempts",
                shown(self.attempts),
                _at_most(self.attempts),
                f"Counted since the job last ran {quiet} without a failure.",
            ),
            _same_failure(self.same_failure),
        )


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Restart until failures come too fast.

    Args:
        failures: The failures that are borne within `per`; the next one ends the job.
        per: The length of the sliding window; kept in milliseconds.
        delay: The pause before each restart; kept in milliseconds.
        same_failure: Give up when one failure came this often in a row; None for never.
    """

    failures: int = 3
    per: Duration = "5m"
    delay: Duration = "10s"
    same_failure: int | None = DEFAULT_SAME_FAILURE

    def __post_init__(self) -> None:
        check_fields(self, "failure_rate", _FAILURE_RATE)

    @property
    def per_ms(self) -> int:
        """The length of the window in milliseconds."""
        return parse_duration(self.per)

    @property
    def delay_ms(self) -> int:
        """The pause before each restart, in milliseconds."""
        return parse_duration(self.delay, allow_zero=True)

    def knobs(self) -> tuple[SettingReport, ...]:
        """Explain every field."""
        window = exact_duration(self.per_ms)
        return (
            kept(
                "failures",
                str(self.failures),
                f"at most {self.failures} in {window}",
                "The next one ends the job.",
            ),
            kept("per", window, f"a sliding window of {window}", "Older failures do not count."),
            kept("delay", *_twice(self.delay_ms), "The pause before each restart."),
            _same_failure(self.same_failure),
        )


RestartStrategy = NoRestart | FixedDelay | Exponential | FailureRate


def no_restart() -> NoRestart:
    """Leave a failed job failed."""
    return NoRestart()


def fixed_delay(
    attempts: int | None = 3,
    delay: Duration = "10s",
    *,
    same_failure: int | None = DEFAULT_SAME_FAILURE,
) -> FixedDelay:
    """Restart up to `attempts` times in all, `delay` after each failure. See `FixedDelay`.

    Raises:
        Invalid: A value that does not fit, with what is allowed.
    """
    return FixedDelay(attempts=attempts, delay=delay, same_failure=same_failure)


def exponential(
    initial: Duration = "1s",
    max: Duration = "1m",  # noqa: A002 - the name under which every such strategy knows it
    multiplier: float = 2.0,
    jitter: float = 0.1,
    reset_after: Duration = "10m",
    *,
    attempts: int | None = None,
    same_failure: int | None = DEFAULT_SAME_FAILURE,
) -> Exponential:
    """Restart after pauses that grow from `initial` to `max`. See `Exponential`.

    Raises:
        Invalid: A value that does not fit, with what is allowed.
    """
    return Exponential(initial, max, multiplier, jitter, reset_after, attempts, same_failure)


def failure_rate(
    failures: int = 3,
    per: Duration = "5m",
    delay: Duration = "10s",
    *,
    same_failure: int | None = DEFAULT_SAME_FAILURE,
) -> FailureRate:
    """Restart unless more than `failures` failures fall within `per`. See `FailureRate`.

    Raises:
        Invalid: A value that does not fit, with what is allowed.
    """
    return FailureRate(failures=failures, per=per, delay=delay, same_failure=same_failure)


def _at_most(limit: int | None) -> str:
    return "no limit" if limit is None else f"at most {limit}"


def _twice(ms: int) -> tuple[str, str]:
    return exact_duration(ms), exact_duration(ms)


def _same_failure(limit: int | None) -> SettingReport:
    return kept("same_failure", shown(limit), _at_most(limit), _SAME_FAILURE_WHY)
