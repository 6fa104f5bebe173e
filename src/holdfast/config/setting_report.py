"""The report on a setting: its value and its effect in Spark."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast.config.units import exact_duration, exact_size


class SettingOutcome(Enum):
    """The outcome of a setting, one of five."""

    SPARK = "spark"
    """It becomes a setting of Spark."""

    TRIGGER = "trigger"
    """It becomes the trigger of the query."""

    SUPERVISOR = "supervisor"
    """Holdfast's supervisor, or the command that acts for it, enforces it."""

    ALWAYS = "always"
    """Micro-batches always do this, whatever the setting says."""

    NO_USE = "no-use"
    """It is accepted and has no effect."""


@dataclass(frozen=True, slots=True)
class SettingReport:
    """A report on one setting.

    Args:
        name: The setting, as the user wrote it.
        value: The value, as text that can be parsed again.
        outcome: The outcome of the setting.
        becomes: The Spark setting with its value, the trigger, or the rule that is enforced; empty if the
            setting has no effect.
        why: The effect, or the reason why there is none, in one or two sentences.

    Example:
        settings: tuple[hf.SettingReport, ...] = hf.RocksDB(memory="512m").knobs()
        for setting in settings:
            print(setting.name, setting.value, setting.becomes, setting.why)
    """

    name: str
    value: str
    outcome: SettingOutcome
    becomes: str
    why: str


def kept_by_supervisor(name: str, value: str, becomes: str, why: str) -> SettingReport:
    """Return the report of a setting that the supervisor enforces."""
    return SettingReport(name, value, SettingOutcome.SUPERVISOR, becomes, why)


def format_setting(value: object) -> str:
    """Format a value as text: None as "not set", booleans in lower case."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def shown_duration(ms: int | None) -> str:
    """Format a duration; None as "not set"."""
    return format_setting(None) if ms is None else exact_duration(ms)


def shown_size(size_bytes: int | None) -> str:
    """Format a size; None as "not set"."""
    return format_setting(None) if size_bytes is None else exact_size(size_bytes)
