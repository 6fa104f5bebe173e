"""The settings of triggers, restarts, recovery and leader election.

`holdfast.jobs.restart_policy` applies them.
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
    """The keywords of `DataStreamWriter.trigger` that Holdfast uses, exactly one at a time.

    Example:
        arguments: hf.TriggerArguments = hf.every("1m").spark_kwargs()  # for DataStreamWriter.trigger
        assert arguments == {"processingTime": "60000 milliseconds"}
    """

    processingTime: str
    availableNow: bool
    once: bool
    realTime: str


@dataclass(frozen=True, slots=True)
class Every:
    """A trigger that starts a batch at each interval, or at once if the previous batch took longer.

    Args:
        interval: The time from one start to the next; stored in milliseconds.

    Example:
        trigger: hf.Every = hf.every("30 seconds")
        assert trigger.interval_ms == 30_000
    """

    interval: Duration

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", parse_duration(self.interval, "trigger interval"))

    @property
    def interval_ms(self) -> int:
        """The interval in milliseconds."""
        return parse_duration(self.interval)

    def spark_kwargs(self) -> TriggerArguments:
        """Return the keywords for `DataStreamWriter.trigger`."""
        return {"processingTime": f"{self.interval_ms} milliseconds"}

    def __str__(self) -> str:
        return f"every {exact_duration(self.interval_ms)}"


@dataclass(frozen=True, slots=True)
class AvailableNow:
    """A trigger that processes the data available at the start in one or more batches, then ends.

    Example:
        trigger: hf.AvailableNow = hf.available_now()
        assert trigger.spark_kwargs() == {"availableNow": True}
    """

    def spark_kwargs(self) -> TriggerArguments:
        """Return the keywords for `DataStreamWriter.trigger`."""
        return {"availableNow": True}

    def __str__(self) -> str:
        return "available now"


@dataclass(frozen=True, slots=True)
class RealTime:
    """A trigger for Spark's real-time mode: rows pass through as they arrive, with a commit at an interval.

    A batch is the interval between two commits, even if no rows arrive.

    Args:
        interval: The time from one commit to the next; stored in milliseconds.

    Example:
        trigger: hf.RealTime = hf.real_time("5 minutes")
        assert trigger.interval_ms == 300_000
    """

    interval: Duration

    def __post_init__(self) -> None:
        object.__setattr__(self, "interval", parse_duration(self.interval, "real-time interval"))

    @property
    def interval_ms(self) -> int:
        """The interval in milliseconds."""
        return parse_duration(self.interval)

    def spark_kwargs(self) -> TriggerArguments:
        """Return the keywords for `DataStreamWriter.trigger`."""
        return {"realTime": f"{self.interval_ms} milliseconds"}

    def __str__(self) -> str:
        return f"real time {exact_duration(self.interval_ms)}"


@dataclass(frozen=True, slots=True)
class OneBatch:
    """A trigger that runs one batch, the unfinished one if it exists, and ends the query.

    For internal use: Spark's other triggers would continue with further batches.
    """

    def spark_kwargs(self) -> TriggerArguments:
        """Return the keywords for `DataStreamWriter.trigger`."""
        return {"once": True}

    def __str__(self) -> str:
        return "one batch"


Trigger = Every | AvailableNow | RealTime

_AVAILABLE_NOW = frozenset({"available now", "available_now", "available-now", "availablenow"})
_REAL_TIME = re.compile(r"real[ _-]?time (.+)")


def every(interval: Duration) -> Every:
    """Return a trigger that starts a batch every `interval`.

    If a batch takes longer than the interval, the next one starts as soon as it ends.

    Args:
        interval: The time from one start to the next, such as "10 seconds" or `hf.minutes(1)`.

    Raises:
        Invalid: The interval is not a duration greater than zero.

    Example:
        trigger = hf.every("30 seconds")
        assert str(trigger) == "every 30s"
    """
    return Every(interval)


def available_now() -> AvailableNow:
    """Return a trigger that processes the available data, then ends the query.

    Example:
        trigger = hf.available_now()
        assert str(trigger) == "available now"
    """
    return AvailableNow()


def real_time(interval: Duration) -> RealTime:
    """Return a trigger for Spark's real-time mode: rows pass through at once; commits every `interval`.

    Spark 4.2 supports it for queries without state from Kafka to Kafka, the console or `foreach`, in update
    mode, with at least 5 seconds between commits. Rows reach the sink before they are committed, so the rows
    of an interrupted batch are sent again.

    Args:
        interval: The time from one commit to the next.

    Raises:
        Invalid: The interval is not a duration greater than zero.

    Example:
        trigger = hf.real_time("5 minutes")
        assert trigger.interval_ms == 300_000
    """
    return RealTime(interval)


def parse_trigger(value: Trigger | Duration) -> Trigger:
    """Parse a trigger: "1 second", "available now", "real time 5 minutes", a `timedelta` or a trigger.

    Raises:
        Invalid: The value is not one of these.
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
    "The job fails for good after this many identical failures in a row without a committed batch between "
    "them: a further restart would fail the same way."
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
    """A restart strategy that never restarts a failed job.

    Example:
        restart: hf.NoRestart = hf.no_restart()
        assert restart.knobs() == ()
    """

    def knobs(self) -> tuple[SettingReport, ...]:
        """Return an empty tuple, because there are no fields."""
        return ()


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """A restart strategy with a constant pause and a limited number of restarts in total.

    Args:
        attempts: The number of restarts of this run, however far apart; None for no limit. For a job that
            runs for months, prefer `exponential` or `failure_rate`, which forget old failures.
        delay: The pause before each restart; stored in milliseconds.
        same_failure: The number of identical failures in a row after which the job fails; None for no limit.

    Example:
        restart: hf.FixedDelay = hf.fixed_delay(attempts=5, delay="30s")
        assert (restart.attempts, restart.delay_ms) == (5, 30_000)
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
        """Return the explanation of every field."""
        return (
            kept_by_supervisor(
                "attempts",
                format_setting(self.attempts),
                _at_most(self.attempts),
                "Counted over the whole run of the job.",
            ),
            kept_by_supervisor("delay", *_twice(self.delay_ms), "The pause before each restart."),
            _same_failure(self.same_failure),
        )


@dataclass(frozen=True, slots=True)
class Exponential:
    """A restart strategy with a pause that grows with each failure and is reset after a failure-free time.

    Args:
        initial: The first pause; stored in milliseconds, like the other durations.
        max: The longest pause, including jitter.
        multiplier: The growth factor of the pause.
        jitter: The share of a pause that is added or subtracted at random, so that jobs that failed together
            do not restart together.
        reset_after: The time without a failure after which the pause is reset to `initial`.
        attempts: The number of restarts until the pause is reset; None for no limit.
        same_failure: The number of identical failures in a row after which the job fails; None for no limit.

    Example:
        restart: hf.Exponential = hf.exponential(max="5m")
        assert (restart.initial_ms, restart.max_ms) == (1_000, 300_000)
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
                "the longest restart pause is shorter than the first",
                code="HF-E2164",
                hint="raise max, or lower initial",
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
        """The time without a failure, in milliseconds, after which old failures are forgotten."""
        return parse_duration(self.reset_after)

    def knobs(self) -> tuple[SettingReport, ...]:
        """Return the explanation of every field."""
        quiet = exact_duration(self.reset_after_ms)
        return (
            kept_by_supervisor("initial", *_twice(self.initial_ms), "The pause before the first restart."),
            kept_by_supervisor("max", *_twice(self.max_ms), "The longest pause."),
            kept_by_supervisor(
                "multiplier",
                f"{self.multiplier:g}",
                f"{self.multiplier:g} times the previous pause",
                "The growth factor of the pause.",
            ),
            kept_by_supervisor(
                "jitter",
                f"{self.jitter:g}",
                f"± {self.jitter:.0%}",
                "Spreads the restarts of jobs that failed together.",
            ),
            kept_by_supervisor(
                "reset_after",
                *_twice(self.reset_after_ms),
                f"After {quiet} without a failure, old failures are forgotten.",
            ),
            kept_by_supervisor(
                "attempts",
                format_setting(self.attempts),
                _at_most(self.attempts),
                f"Counted since the job last ran for {quiet} without a failure.",
            ),
            _same_failure(self.same_failure),
        )


@dataclass(frozen=True, slots=True)
class FailureRate:
    """A restart strategy that limits the number of failures in a sliding window.

    Args:
        failures: The number of failures allowed within `per`; the next one ends the job.
        per: The length of the sliding window; stored in milliseconds.
        delay: The pause before each restart; stored in milliseconds.
        same_failure: The number of identical failures in a row after which the job fails; None for no limit.

    Example:
        restart: hf.FailureRate = hf.failure_rate(failures=5, per="1h")
        assert restart.per_ms == 3_600_000
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
        """Return the explanation of every field."""
        window = exact_duration(self.per_ms)
        return (
            kept_by_supervisor(
                "failures",
                str(self.failures),
                f"at most {self.failures} in {window}",
                "The next one ends the job.",
            ),
            kept_by_supervisor(
                "per", window, f"a sliding window of {window}", "Older failures are not counted."
            ),
            kept_by_supervisor("delay", *_twice(self.delay_ms), "The pause before each restart."),
            _same_failure(self.same_failure),
        )


RestartStrategy = NoRestart | FixedDelay | Exponential | FailureRate


def no_restart() -> NoRestart:
    """Return the strategy that never restarts a failed job.

    Example:
        restart = hf.no_restart()
        assert restart.knobs() == ()
    """
    return NoRestart()


def fixed_delay(
    attempts: int | None = 3,
    delay: Duration = "10s",
    *,
    same_failure: int | None = DEFAULT_SAME_FAILURE,
) -> FixedDelay:
    """Return the strategy that restarts a failed job up to `attempts` times, `delay` after each failure.

    Args:
        attempts: The number of restarts of this run, however far apart; None for no limit. For a job that
            runs for months, prefer `exponential` or `failure_rate`, which forget old failures.
        delay: The pause before each restart.
        same_failure: The number of identical failures in a row after which the job fails; None for no limit.

    Raises:
        Invalid: A value is not allowed.

    Example:
        restart = hf.fixed_delay(attempts=5, delay="30s")
        assert restart.delay_ms == 30_000
    """
    return FixedDelay(attempts=attempts, delay=delay, same_failure=same_failure)


def exponential(
    initial: Duration = "1s",
    max: Duration = "1m",  # noqa: A002 - the usual name in such strategies
    multiplier: float = 2.0,
    jitter: float = 0.1,
    reset_after: Duration = "10m",
    *,
    attempts: int | None = None,
    same_failure: int | None = DEFAULT_SAME_FAILURE,
) -> Exponential:
    """Return the strategy that restarts a failed job after pauses that grow from `initial` to `max`.

    Args:
        initial: The first pause.
        max: The longest pause, including jitter.
        multiplier: The growth factor of the pause.
        jitter: The share of a pause that is added or subtracted at random, so that jobs that failed together
            do not restart together.
        reset_after: The time without a failure after which the pause is reset to `initial`.
        attempts: The number of restarts until the pause is reset; None for no limit.
        same_failure: The number of identical failures in a row after which the job fails; None for no limit.

    Raises:
        Invalid: A value is not allowed.

    Example:
        restart = hf.exponential(initial="2s", max="5m", attempts=20)
        assert restart.max_ms == 300_000
    """
    return Exponential(initial, max, multiplier, jitter, reset_after, attempts, same_failure)


def failure_rate(
    failures: int = 3,
    per: Duration = "5m",
    delay: Duration = "10s",
    *,
    same_failure: int | None = DEFAULT_SAME_FAILURE,
) -> FailureRate:
    """Return the strategy that restarts a job as long as at most `failures` failures occur within `per`.

    Args:
        failures: The number of failures allowed within `per`; the next one ends the job.
        per: The length of the sliding window.
        delay: The pause before each restart.
        same_failure: The number of identical failures in a row after which the job fails; None for no limit.

    Raises:
        Invalid: A value is not allowed.

    Example:
        restart = hf.failure_rate(failures=5, per="1h", delay="20s")
        assert restart.per_ms == 3_600_000
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
    """The settings of the checkpoint check before a restart, and of the fallback if it finds damage.

    Args:
        fallback: The fallback for a damaged checkpoint: "batch" for its newest undamaged batch, or
            "savepoint" for the newest undamaged savepoint. None, the default, lets the job fail and leaves
            the checkpoint unchanged.
        verify: The maximum time for checking the checkpoint before each restart; files not checked by then
            are assumed to be undamaged. Stored in milliseconds. None disables the check and allows no
            fallback.

    Example:
        recovery: hf.Recovery = hf.recovery(fallback="batch")
        assert (recovery.fallback, recovery.verify_ms) == ("batch", 60_000)
    """

    fallback: Fallback | None = None
    verify: Duration | None = "1m"

    def __post_init__(self) -> None:
        if self.fallback is not None and self.fallback not in FALLBACKS:
            raise Invalid(
                "unknown fallback",
                code="HF-E2141",
                where="recovery(fallback=…)",
                found=repr(self.fallback),
                expected="None, " + " or ".join(repr(fallback) for fallback in FALLBACKS),
                hint="give one of these values, or remove fallback=…",
            )
        check_fields(self, "recovery", {"verify": optional(parse_duration)})
        if self.verify is None and self.fallback is not None:
            raise Invalid(
                "a fallback cannot be used without verification of the checkpoint",
                code="HF-E2165",
                hint="remove fallback=…, or set verify to a duration",
                where="recovery(verify=…)",
                found="verify=None",
                expected="a duration, such as '1m'",
            )

    @property
    def verify_ms(self) -> int | None:
        """The maximum time for checking the checkpoint, in milliseconds."""
        return optional_ms(self.verify)

    def knobs(self) -> tuple[SettingReport, ...]:
        """Return the explanation of every field."""
        limit = shown_duration(self.verify_ms)
        return (
            kept_by_supervisor(
                "recovery.fallback",
                format_setting(self.fallback),
                self.fallback or "",
                "The fallback for a damaged checkpoint; by default the job fails.",
            ),
            kept_by_supervisor(
                "recovery.verify",
                limit,
                "" if self.verify is None else limit,
                "The maximum time for checking the checkpoint before each restart after a failure.",
            ),
        )


def recovery(*, fallback: Fallback | None = None, verify: Duration | None = "1m") -> Recovery:
    """Return the settings for recovering from a damaged checkpoint.

    The supervisor checks the checkpoint before each restart after a failure.

    Args:
        fallback: The fallback for a damaged checkpoint: "batch" for its newest undamaged batch, or
            "savepoint" for the newest undamaged savepoint. None, the default, lets the job fail and leaves
            the checkpoint unchanged.
        verify: The maximum time for the check; files not checked by then are assumed to be undamaged. None
            disables the check and allows no fallback.

    Raises:
        Invalid: A value is not allowed, or a fallback is combined with `verify=None`.

    Example:
        recovery = hf.recovery(fallback="savepoint", verify="30s")
        assert recovery.verify_ms == 30_000
    """
    return Recovery(fallback, verify)


# Spark starts a task for each of them in every batch.
_MOST_PARTITIONS: Final = 10_000
# A key with a smaller share does not keep a task longer than others.
_LEAST_HOT_SHARE: Final = 0.001


@dataclass(frozen=True, slots=True)
class Autoscale:
    """The bounds of a job's automatic rescale.

    Args:
        least: The smallest number of partitions.
        most: The largest number of partitions.
        after: The time for which the recommendation has to differ from the present number. Stored in
            milliseconds.
        cool_down: The minimum time between two changes of a query. Stored in milliseconds.
        dry_run: True to record the decisions and change nothing.
        hot_share: The share of a batch's rows from which a watched key is hot; None to ignore keys.

    Example:
        scale: hf.Autoscale = hf.autoscale(4, 64)
        assert (scale.least, scale.most, scale.cool_down_ms) == (4, 64, 3_600_000)
    """

    least: int
    most: int
    after: Duration = "10m"
    cool_down: Duration = "1h"
    dry_run: bool = False
    hot_share: float | None = None

    def __post_init__(self) -> None:
        checks: dict[str, Check] = {
            "least": partial(whole, least=1, most=_MOST_PARTITIONS),
            "most": partial(whole, least=1, most=_MOST_PARTITIONS),
            "after": parse_duration,
            "cool_down": parse_duration,
        }
        if self.hot_share is not None:
            checks["hot_share"] = partial(fraction, least=_LEAST_HOT_SHARE, most=1.0)
        check_fields(self, "autoscale", checks)
        if self.least > self.most:
            raise Invalid(
                "the smallest number of partitions is larger than the largest",
                code="HF-E2553",
                where="autoscale(…)",
                found=f"{self.least} and {self.most}",
                hint="give the smaller number first, for example autoscale(4, 64)",
            )

    @property
    def after_ms(self) -> int:
        """The time for which the recommendation has to differ, in milliseconds."""
        return parse_duration(self.after)

    @property
    def cool_down_ms(self) -> int:
        """The minimum time between two changes of a query, in milliseconds."""
        return parse_duration(self.cool_down)


def scaling_knobs(scale: Autoscale | None) -> tuple[SettingReport, ...]:
    """Return the explanation of the automatic rescale of a job."""
    text = "off"
    if scale is not None:
        after, pause = exact_duration(scale.after_ms), exact_duration(scale.cool_down_ms)
        text = f"{scale.least} to {scale.most} partitions, after {after}, at most once in {pause}"
        text += "" if scale.hot_share is None else f", keys from {scale.hot_share:.1%} of the rows"
        text += ", dry run" if scale.dry_run else ""
    return (
        kept_by_supervisor(
            "autoscale.partitions",
            text,
            "" if scale is None else text,
            "The bounds within which the supervisor changes the number of partitions; by default it never"
            " does.",
        ),
    )


def autoscale(
    least: int,
    most: int,
    *,
    after: Duration = "10m",
    cool_down: Duration = "1h",
    dry_run: bool = False,
    hot_share: float | None = None,
) -> Autoscale:
    """Return the bounds within which a job's supervisor changes the number of partitions of its queries.

    The number follows the recommendation of `holdfast status`. A change stops the driver after its batch,
    rescales the checkpoint and starts a new driver, as a rescale by REST does. All decisions are recorded.

    Args:
        least: The smallest number of partitions.
        most: The largest number of partitions.
        after: The time for which the recommendation has to differ from the present number. The change is the
            smallest one that was recommended in this time.
        cool_down: The minimum time between two changes of a query.
        dry_run: True to record the decisions and change nothing.
        hot_share: The share of a batch's rows from which a key that `hf.skew.watch` counts is hot. Hot keys
            that are not split yet are recorded as a decision with the call that splits them; the code names
            the hot keys, so the supervisor does not split them. By default keys are ignored.

    Raises:
        Invalid: A value is not allowed.

    Example:
        @hf.job(name="visits", checkpoint="checkpoints/shop", autoscale=hf.autoscale(4, 64, after="15m"))
        def visits(spark): ...

        assert visits.autoscale.after_ms == 900_000
    """
    return Autoscale(least, most, after, cool_down, dry_run, hot_share)


DEFAULT_LEASE: Final = "10s"
# Shorter leases do not survive a pause of the machine.
SHORTEST_MS: Final = 1000
ZOOKEEPER: Final = "zookeeper://"
OFF: Final = ("", "none")
# The address for leases in the state home itself, if that is on a disk that all candidates share.
HOME: Final = "home"
LEASES: Final = "leases"


@dataclass(frozen=True, slots=True)
class Leading:
    """The address of elections and the lease of a leader.

    Args:
        address: `zookeeper://host:port,host:port/path`, or the URI of a directory that all candidates share,
            on a disk or in an object store.
        lease_ms: The time after which an unresponsive leader is replaced, in milliseconds.
    """

    address: str
    lease_ms: int

    @classmethod
    def of(cls, address: str | None, lease: Duration | None, cwd: Path, home: Path) -> Leading | None:
        """Return the parsed setting; None for a single supervisor.

        Args:
            address: The address, as in the class; a path is relative to `cwd`, and `home` selects a directory
                in the state home.
            lease: The duration of the lease; ten seconds by default.
            cwd: The working directory; must be absolute.
            home: The state home.

        Raises:
            Invalid: The address or the lease is not valid.
        """
        lease_ms = parse_duration(DEFAULT_LEASE if lease is None else lease, "lease")
        if lease_ms < SHORTEST_MS:
            raise Invalid(
                "the duration of the lease is too short",
                code="HF-E2166",
                hint="set a longer lease",
                where="lease",
                found=exact_duration(lease_ms),
                expected=f"at least {exact_duration(SHORTEST_MS)}",
            )
        text = (address or "").strip()
        if text.lower() in OFF:
            return None
        if text == HOME:
            text = canonical_uri(str(home / LEASES), cwd)
        elif not text.startswith(ZOOKEEPER):
            text = canonical_uri(parse_storage(text, "ha"), cwd)
        return cls(text, lease_ms)
