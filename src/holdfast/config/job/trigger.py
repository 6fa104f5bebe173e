"""When a batch begins."""

from __future__ import annotations

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
class OneBatch:
    """Run one batch and end: the one that was begun and not finished, if there is one.

    Not for people: Spark's other triggers would go on with what they find.
    """

    def spark_kwargs(self) -> TriggerArguments:
        """The keywords for `DataStreamWriter.trigger`."""
        return {"once": True}

    def __str__(self) -> str:
        return "one batch"


Trigger = Every | AvailableNow

_AVAILABLE_NOW = frozenset({"available now", "available_now", "available-now", "availablenow"})


def every(interval: Duration) -> Every:
    """Begin a batch every `interval`.

    Raises:
        Invalid: Not a duration, or not more than zero.
    """
    return Every(interval)


def available_now() -> AvailableNow:
    """Work off what is there now, then end the query."""
    return AvailableNow()


def parse_trigger(value: Trigger | Duration) -> Trigger:
    """Read a trigger: "1 second", "every 1 second", "available now", a `timedelta` or a trigger.

    Raises:
        Invalid: It is none of these.
    """
    if isinstance(value, (Every, AvailableNow)):
        return value
    if isinstance(value, str):
        words = " ".join(value.lower().split())
        if words in _AVAILABLE_NOW:
            return AvailableNow()
        interval: Duration = words.removeprefix("every ")
    else:
        interval = value
    try:
        return Every(interval)
    except Invalid as error:
        raise refused("trigger", value, f'"available now", or {error.expected}', hint=error.hint) from None
