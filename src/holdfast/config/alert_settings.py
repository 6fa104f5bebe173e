"""The alert settings of a job: thresholds and receivers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.config.checks import (
    MAX_INT,
    Check,
    check_fields,
    flag,
    fraction,
    redacted_address,
    refused,
    whole,
)
from holdfast.config.setting_report import (
    SettingReport,
    format_setting,
    kept_by_supervisor,
    shown_duration,
    shown_size,
)
from holdfast.config.units import Duration, Size, parse_duration, parse_size

# Disables a rule, also on the command line, which has no None.
OFF: Final = "off"


_ADDRESSES: Final = ("webhook", "alertmanager")
_DURATIONS: Final = (
    "checkpoint_duration",
    "access_latency",
    "recovery_time",
    "full_within",
    "watermark_stuck",
    "lag",
    "lag_growing",
    "offsets_expiring",
    "savepoint_age",
    "mirror_age",
    "drill_time",
)


def _number(value: object) -> object:
    """Convert text from the command line to a number; return any other value unchanged."""
    if isinstance(value, str):
        for kind in (int, float):
            with suppress(ValueError):
                return kind(value)
    return value


def _address(value: object, setting: str) -> str:
    text = value if isinstance(value, str) else ""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not text.isascii() or not text.isprintable() or " " in text:
        expected = "an HTTP address such as http://127.0.0.1:9093, in ASCII without spaces"
        raise refused(setting, value, expected, found=redacted_address(text) if text else None)
    return text


def _unless_off(check: Check) -> Check:
    return lambda value, setting: None if value in (None, OFF) else check(value, setting)


def _count(least: int, most: int = MAX_INT) -> Check:
    return _unless_off(lambda value, setting: whole(_number(value), setting, least=least, most=most))


def _part(least: int, most: int | None = None) -> Check:
    return _unless_off(lambda value, setting: fraction(_number(value), setting, least=least, most=most))


_THRESHOLDS: Final[Mapping[str, Check]] = {
    **dict.fromkeys(_DURATIONS, _unless_off(parse_duration)),
    "state_size": _unless_off(parse_size),
    "checkpoint_failures": _count(0),
    "late_rows": _part(0, 1),
    "skew": _part(1),
    "snapshots_repaired": _count(0),
    "format_version": _count(1, 2),
}
_CHECKS: Final[Mapping[str, Check]] = {
    **_THRESHOLDS,
    "job_failed": flag,
    "webhook": _unless_off(_address),
    # A path is appended to this address.
    "alertmanager": _unless_off(lambda value, setting: _address(value, setting).rstrip("/")),
}


@dataclass(frozen=True, slots=True)
class Alerts:
    """The alert thresholds of a job, and the addresses that alerts are sent to.

    A threshold of None or "off" disables its rule. Durations and sizes may be given as text and are stored in
    milliseconds and bytes. An alert is reported once when it starts and once when it ends.

    Args:
        state_size: The maximum size of a query's state in the store.
        checkpoint_duration: The maximum time from the start of a batch to its commit.
        checkpoint_failures: The maximum number of failed batches within ten minutes.
        access_latency: The maximum average time of one RocksDB get or put, or of one database request. It has
            no effect with `hf.Memory`, for which Spark does not measure access times.
        recovery_time: The maximum time from a failure to the next commit.
        full_within: The minimum time until the state reaches `state_size` at its present growth.
        watermark_stuck: The maximum time without progress of the watermark while rows arrive.
        lag: The maximum waiting time of the oldest unread record of a Kafka topic.
        lag_growing: The maximum time during which the query falls further behind.
        offsets_expiring: The maximum age of unread records before their topic deletes them: its the topic's
            `retention.ms` minus the time that you need to fix a job. Off by default.
        late_rows: The maximum share of rows that are dropped as late.
        skew: The maximum size of the largest partition, as a multiple of the mean.
        savepoint_age: The maximum age of the newest savepoint, if the job takes savepoints.
        mirror_age: The maximum time since `holdfast mirror` last copied what was committed.
        drill_time: The maximum duration of the newest drill.
        snapshots_repaired: The maximum number of snapshots that Spark repairs within ten minutes.
        format_version: The minimum state-checkpoint format.
        job_failed: True to raise an alert when a job has failed for good.
        webhook: An http or https address that receives each alert as JSON by POST; only its host is shown.
        alertmanager: The address of a Prometheus Alertmanager, used through its API, version 2.

    Raises:
        Invalid: A value is not allowed.

    Example:
        alerts = hf.Alerts(lag="5m", skew="off", alertmanager="http://alerts.example:9093")
        assert alerts.thresholds["lag"] == 300
        assert "skew" not in alerts.thresholds
    """

    state_size: Size | None = "10 GB"
    checkpoint_duration: Duration | None = "1m"
    checkpoint_failures: int | str | None = 0
    access_latency: Duration | None = "100ms"
    recovery_time: Duration | None = "5m"
    full_within: Duration | None = "24h"
    watermark_stuck: Duration | None = "10m"
    lag: Duration | None = "10m"
    lag_growing: Duration | None = "15m"
    offsets_expiring: Duration | None = None
    late_rows: float | str | None = 0.05
    skew: float | str | None = 4.0
    savepoint_age: Duration | None = "24h"
    mirror_age: Duration | None = "5m"
    drill_time: Duration | None = "5m"
    snapshots_repaired: int | str | None = 0
    format_version: int | str | None = 2
    job_failed: bool = True
    # An address may contain a secret, so it is not part of the repr.
    webhook: str | None = field(default=None, repr=False)
    alertmanager: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_fields(self, "Alerts", _CHECKS)

    @property
    def thresholds(self) -> dict[str, float]:
        """The threshold of each enabled rule, in the unit of its metric."""
        values = {name: getattr(self, name) for name in _THRESHOLDS if getattr(self, name) is not None}
        on = {name: value / 1000 if name in _DURATIONS else float(value) for name, value in values.items()}
        return {**on, "job_failed": 0.0} if self.job_failed else on

    def knobs(self) -> tuple[SettingReport, ...]:
        """Return the explanation of every field."""
        return tuple(self._knob(name) for name in self.__dataclass_fields__)

    def _knob(self, name: str) -> SettingReport:
        value = getattr(self, name)
        text = format_setting(value)
        if name in _DURATIONS:
            text = shown_duration(value)
        elif name == "state_size":
            text = shown_size(value)
        if name in _ADDRESSES:
            text = text if value is None else redacted_address(value)
            becomes = "not sent" if value is None else text
            why = "Receives the alerts of the supervisor."
        else:
            becomes = "no alert" if value is None or value is False else "an alert"
            why = "The supervisor compares each batch with it and reports when the alert starts and ends."
        return kept_by_supervisor(f"alerts.{name}", text, becomes, why)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as plain values; `Alerts(**values)` restores the object."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Alerts:
        """Build the settings from the result of `as_dict` of this or a different version of Holdfast."""
        return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})
