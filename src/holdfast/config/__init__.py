"""Settings as values: typed, frozen, checked when they are made, each with an explanation."""

from holdfast.config.alerts import Alerts
from holdfast.config.backend import Backend, Memory, RocksDB
from holdfast.config.checkpoint import Checkpoint
from holdfast.config.defaults import DEFAULTS, Default, machine_defaults
from holdfast.config.flink import FlinkSettings
from holdfast.config.knob import Knob, Outcome
from holdfast.config.recovery import Recovery, recovery
from holdfast.config.restart import (
    Exponential,
    FailureRate,
    FixedDelay,
    NoRestart,
    RestartStrategy,
    exponential,
    failure_rate,
    fixed_delay,
    no_restart,
)
from holdfast.config.settings import Settings, Source
from holdfast.config.trigger import AvailableNow, Every, Trigger, available_now, every, parse_trigger
from holdfast.config.units import (
    Duration,
    Size,
    days,
    format_duration,
    format_size,
    hours,
    minutes,
    parse_duration,
    parse_flink_duration,
    parse_size,
    seconds,
)

__all__ = [
    "DEFAULTS",
    "Alerts",
    "AvailableNow",
    "Backend",
    "Checkpoint",
    "Default",
    "Duration",
    "Every",
    "Exponential",
    "FailureRate",
    "FixedDelay",
    "FlinkSettings",
    "Knob",
    "Memory",
    "NoRestart",
    "Outcome",
    "Recovery",
    "RestartStrategy",
    "RocksDB",
    "Settings",
    "Size",
    "Source",
    "Trigger",
    "available_now",
    "days",
    "every",
    "exponential",
    "failure_rate",
    "fixed_delay",
    "format_duration",
    "format_size",
    "hours",
    "machine_defaults",
    "minutes",
    "no_restart",
    "parse_duration",
    "parse_flink_duration",
    "parse_size",
    "parse_trigger",
    "recovery",
    "seconds",
]
