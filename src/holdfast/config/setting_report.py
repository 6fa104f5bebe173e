"""The explanation of every setting: its value here, and what Spark gets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.config.units import exact_duration, exact_size


class SettingOutcome(Enum):
    """The five things that a setting can become."""

    SPARK = "spark"
    """It becomes a setting of Spark."""

    TRIGGER = "trigger"
    """It becomes the trigger of the query."""

    SUPERVISOR = "supervisor"
    """Holdfast's supervisor, or the command that acts for it, keeps it."""

    ALWAYS = "always"
    """A micro-batch does this anyway, whatever the setting says."""

    NO_USE = "no-use"
    """It is accepted, and there is nothing here that it could change."""


@dataclass(frozen=True, slots=True)
class SettingReport:
    """One setting and what it becomes.

    Args:
        name: The setting, as the user wrote it.
        value: Its value, as text that can be written back.
        outcome: Which of the five things happened.
        becomes: The Spark setting with its value, the trigger, or the rule that is kept; empty where
            nothing came of it.
        why: One or two sentences: what it does here, or why it can do nothing.
    """

    name: str
    value: str
    outcome: SettingOutcome
    becomes: str
    why: str


def kept_by_supervisor(name: str, value: str, becomes: str, why: str) -> SettingReport:
    """The report of a setting that the supervisor keeps."""
    return SettingReport(name, value, SettingOutcome.SUPERVISOR, becomes, why)


def format_setting(value: object) -> str:
    """Write a value the way a knob shows it: `None` is "not set", booleans are lower-case."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def shown_duration(ms: int | None) -> str:
    """Write a duration that may not be set."""
    return format_setting(None) if ms is None else exact_duration(ms)


def shown_size(size_bytes: int | None) -> str:
    """Write a size that may not be set."""
    return format_setting(None) if size_bytes is None else exact_size(size_bytes)
