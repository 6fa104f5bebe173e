"""When a batch begins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypedDict

from holdfast.config.checks import refused
from holdfast.config.units import Duration, exact_duration, parse_duration
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
    """Work off what is there when the query starts, in as many batches as the sources ask for, and end."""

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

    Not for people: Spark's other triggers would go on with what they find.
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
    """Work off what is there now, then end the query."""
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
