"""The start of a batch, the reaction to a failure, and the election of a leader, as settings.

The decisions themselves are in `holdfast.jobs.restart_policy`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypedDict, get_args

from holdfast.config.checks import (
    Check,
    canonical_uri,
    check_fields,
    fraction,
    optional,
    parse_storage,
    refused,
    whole,
)
from holdfast.config.setting_report import SettingReport, format_setting, kept_by_supervisor, shown_duration
from holdfast.config.units import Duration, exact_duration, optional_ms, parse_duration
from holdfast.errors import Invalid


class TriggerArguments(TypedDict, total=False):
    """The keywords of `DataStreamWriter.trigger` that Holdfast gives; exactly one is there."""

    processingTime: str
    availableNow: bool
    once: bool
    realTime: str


@dataclass(frozen=True, slots=True)
class Every:
    """Begin a batch every so often; if one runs longer, the next follows at once.

    Args:
        interval: The time from one beginning to the next; kept in milliseconds.
    """

    interval: Duration

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", parse_duration(self.interval, "trigger interval"))

    @property
    def interval_ms(self) -> int:
        """The interval in milliseconds."""
        return parse_duration(self.interval)

    def spark_kwargs(self) -> TriggerArguments:
        """The keywords for `DataStreamWriter.trigger`."""
        return {"processingTime": f"{self.interval_ms} milliseconds"}

    def __str__(self) -> str:
        return f"every {exact_duration(self.interval_ms)}"


@dataclass(frozen=True, slots=True)
class AvailableNow:
    """Work off what exists when the query starts, in as many batches as the sources ask for, and end."""

    def spark_kwargs(self) -> TriggerArguments:
        """The keywords for `DataStreamWriter.trigger`."""
        return {"availableNow": True}

    def __str__(self) -> str:
        return "available now"


@dataclass(frozen=True, slots=True)
class RealTime:
    """Hand each row on as it arrives, and commit every so often: Spark's real-time mode.

    A batch is then what lies between two commits. It lasts as long as the interval says, whatever arrives.

    Args:
        interval: The time from one commit to the next; kept in milliseconds.
    """

    interval: Duration

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", parse_duration(self.interval, "real-time interval"))

    @property
    def interval_ms(self) -> int:
        """The interval in milliseconds."""
        return parse_duration(self.interval)

    def spark_kwargs(self) -> TriggerArguments:
        """The keywords for `DataStreamWriter.trigger`."""
        return {"realTime": f"{self.interval_ms} milliseconds"}

    def __str__(self) -> str:
        return f"real time {exact_duration(self.interval_ms)}"


@dataclass(frozen=True, slots=True)
class OneBatch:
    """Run one batch and end: the one that was begun and not finished, if there is one.

    Not for people: Spark's other triggers would continue with what they find.
    """

    def spark_kwargs(self) -> TriggerArguments:
        """The keywords for `DataStreamWriter.trigger`."""
        return {"once": True}

    def __str__(self) -> str:
        return "one batch"


Trigger = Every | AvailableNow | RealTime

_AVAILABLE_NOW = frozenset({"available now", "available_now", "available-now", "availablenow"})
_REAL_TIME = re.compile(r"real[ _-]?time (.+)")


def every(interval: Duration) -> Every:
    """Begin a batch every `interval`.

    Raises:
        Invalid: Not a duration, or not more than zero.
    """
    return Every(interval)


def available_now() -> AvailableNow:
    """Work off what exists now, then end the query."""
    return AvailableNow()


def real_time(interval: Duration) -> RealTime:
    """Hand each row on as it arrives, and commit every `interval`, in Spark's real-time mode.

    Spark 4.2 does so for queries without state from Kafka to Kafka, the console or `foreach`, in update mode,
    and commits every 5 seconds at most. Rows are handed on before they are committed, so that those of a
    batch that is broken off are handed on again.

    Raises:
        Invalid: Not a duration, or not more than zero.
    """
    return RealTime(interval)


def parse_trigger(value: Trigger | Duration) -> Trigger:
    """Read a trigger: "1 second", "available now", "real time 5 minutes", a `timedelta` or a trigger.

    Raises:
        Invalid: It is none of these.
    """
    if isinstance(value, (Every, AvailableNow, RealTime)):
        return value
    if isinstance(value, str):
        words = " ".join(value.lower().split())
        if words in _AVAILABLE_NOW:
            return AvailableNow()
        if real := _REAL_TIME.fullmatch(words):
            return RealTime(real[1].removeprefix("every "))
        interval: Duration = words.removeprefix("every ")
    else:
        interval = value
    try:
        return Every(interval)
    except Invalid as error:
        raise refused("trigger", value, f'"available now", or {error.expected}', hint=error.hint) from None


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
            kept_by_supervisor(
                "attempts",
                format_setting(self.attempts),
                _at_most(self.attempts),
                "Counted over the whole run.",
            ),
            kept_by_supervisor("delay", *_twice(self.delay_ms), "The pause before each restart."),
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
                code="HF-E2164",
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
            kept_by_supervisor("initial", *_twice(self.initial_ms), "The pause before the first restart."),
            kept_by_supervisor("max", *_twice(self.max_ms), "No pause is longer."),
            kept_by_supervisor(
                "multiplier",
                f"{self.multiplier:g}",
                f"{self.multiplier:g} times the last",
                "The growth of the pause.",
            ),
            kept_by_supervisor(
                "jitter",
                f"{self.jitter:g}",
                f"± {self.jitter:.0%}",
                "Spreads jobs that failed together.",
            ),
            kept_by_supervisor(
                "reset_after", *_twice(self.reset_after_ms), f"{quiet} without a failure forget the old ones."
            ),
            kept_by_supervisor(
                "attempts",
                format_setting(self.attempts),
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
            kept_by_supervisor(
                "failures",
                str(self.failures),
                f"at most {self.failures} in {window}",
                "The next one ends the job.",
            ),
            kept_by_supervisor(
                "per", window, f"a sliding window of {window}", "Older failures do not count."
            ),
            kept_by_supervisor("delay", *_twice(self.delay_ms), "The pause before each restart."),
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
    return kept_by_supervisor("same_failure", format_setting(limit), _at_most(limit), _SAME_FAILURE_WHY)


Fallback = Literal["batch", "savepoint"]
FALLBACKS: Final = get_args(Fallback)


@dataclass(frozen=True, slots=True)
class Recovery:
    """The checks of a checkpoint before a failed job is restarted, and the allowed fallback.

    Args:
        fallback: Where to go back to if the checkpoint is damaged: the newest `batch` in it that is whole, or
            the newest whole `savepoint`. None, the default, leaves the job failed and everything as it is.
        verify: How long looking at it may take before each restart; what has not been looked at by then is
            taken for whole. Kept in milliseconds. None does not look, and so never goes back.
    """

    fallback: Fallback | None = None
    verify: Duration | None = "1m"

    def __post_init__(self) -> None:
        if self.fallback is not None and self.fallback not in FALLBACKS:
            raise Invalid(
                "there is no such way back",
                code="HF-E2141",
                where="recovery(fallback=…)",
                found=repr(self.fallback),
                expected="None, " + " or ".join(repr(fallback) for fallback in FALLBACKS),
            )
        check_fields(self, "recovery", {"verify": optional(parse_duration)})
        if self.verify is None and self.fallback is not None:
            raise Invalid(
                "a job that is to go back from a damaged checkpoint has to look for damage",
                code="HF-E2165",
                where="recovery(verify=…)",
                found="None",
                expected="a time, such as '1m'",
            )

    @property
    def verify_ms(self) -> int | None:
        """The milliseconds that checking the checkpoint may take."""
        return optional_ms(self.verify)

    def knobs(self) -> tuple[SettingReport, ...]:
        """Explain every field."""
        limit = shown_duration(self.verify_ms)
        return (
            kept_by_supervisor(
                "recovery.fallback",
                format_setting(self.fallback),
                self.fallback or "",
                "Where the supervisor goes back to if a checkpoint is damaged; by default it stops.",
            ),
            kept_by_supervisor(
                "recovery.verify",
                limit,
                "" if self.verify is None else limit,
                "How long the checkpoint is looked at before each restart after a failure.",
            ),
        )


def recovery(*, fallback: Fallback | None = None, verify: Duration | None = "1m") -> Recovery:
    """Say what a job's supervisor may do about a damaged checkpoint. See `Recovery`."""
    return Recovery(fallback, verify)


DEFAULT_LEASE: Final = "10s"
# Shorter ones do not survive a pause of the machine.
SHORTEST_MS: Final = 1000
ZOOKEEPER: Final = "zookeeper://"
OFF: Final = ("", "none")
# Leases in the state home itself, where that is on a disk that all candidates share.
HOME: Final = "home"
LEASES: Final = "leases"


@dataclass(frozen=True, slots=True)
class Leading:
    """The address of elections, and how long a leader is elected.

    Args:
        address: `zookeeper://host:port,host:port/path`, or the URI of a directory that all candidates share,
            on a disk or in an object store.
        lease_ms: A leader that gives no sign of life for so long has another one take over.
    """

    address: str
    lease_ms: int

    @classmethod
    def of(cls, address: str | None, lease: Duration | None, cwd: Path, home: Path) -> Leading | None:
        """Read the setting; None if there is to be one supervisor alone.

        Args:
            address: As above; a path is taken from `cwd`, and `home` is a directory in the state home.
            lease: The lease; ten seconds by default.
            cwd: An absolute directory.
            home: The state home.

        Raises:
            Invalid: The address or the lease cannot be right.
        """
        lease_ms = parse_duration(DEFAULT_LEASE if lease is None else lease, "lease")
        if lease_ms < SHORTEST_MS:
            raise Invalid(
                "the lease is too short",
                code="HF-E2166",
                where="lease",
                found=exact_duration(lease_ms),
                expected=f"{exact_duration(SHORTEST_MS)} or more",
            )
        text = (address or "").strip()
        if text.lower() in OFF:
            return None
        if text == HOME:
            text = canonical_uri(str(home / LEASES), cwd)
        elif not text.startswith(ZOOKEEPER):
            text = canonical_uri(parse_storage(text, "ha"), cwd)
        return cls(text, lease_ms)
