"""The settings of a job's alerts: thresholds, and addresses to send them to."""

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

# Turns a rule off, also from the command line, where there is no None.
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
    "drill_time",
)


def _number(value: object) -> object:
    """A number that was written as text, as on the command line."""
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
        expected = "an address such as http://127.0.0.1:9093, in ASCII and without spaces"
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
    # A path is put behind it.
    "alertmanager": _unless_off(lambda value, setting: _address(value, setting).rstrip("/")),
}


@dataclass(frozen=True, slots=True)
class Alerts:
    """The thresholds of a job's alerts, and where the alerts are sent.

    Each threshold turns its rule off where it is None or "off". Durations and sizes may be given as text
    and are kept in milliseconds and bytes. An alert is told once when it begins and once when it is over.

    Args:
        state_size: How large the state of a query may be, in the store.
        checkpoint_duration: How long a batch may take to its commit.
        checkpoint_failures: How many batches may fail within ten minutes.
        access_latency: How long one get or put of RocksDB, or one request to a database, may take on average.
            It has no effect on the heap, where Spark measures no access times.
        recovery_time: How long the job may take from a failure to its next commit.
        full_within: How soon the state may reach `state_size`, if it continues growing as it does.
        watermark_stuck: How long the watermark may stand still while rows come in.
        lag: How long the oldest record that is not read may wait, in a topic of Kafka.
        lag_growing: For how long the query may fall further behind.
        offsets_expiring: How old records that are not read may be before their topic drops them: its
            `retention.ms`, less the time that you need to mend a job. Off unless you give it.
        late_rows: Which part of the rows may be dropped as late.
        skew: How many times the mean the largest partition may have.
        savepoint_age: How old the newest savepoint may be, where the job has savepoints taken.
        drill_time: How long the newest drill may have taken.
        snapshots_repaired: How many snapshots Spark may repair by itself within ten minutes.
        format_version: The oldest state-checkpoint format that is good enough.
        job_failed: Whether it is told that the job has failed for good.
        webhook: Gets each alert as JSON, by POST; an http or https address, of which people are shown no more
            than the host.
        alertmanager: The address of a Prometheus Alertmanager, which gets them by its API, version 2.

    Raises:
        Invalid: A value that does not fit, with what is allowed.
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
    drill_time: Duration | None = "5m"
    snapshots_repaired: int | str | None = 0
    format_version: int | str | None = 2
    job_failed: bool = True
    # An address may hold a secret, so it is in no repr.
    webhook: str | None = field(default=None, repr=False)
    alertmanager: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_fields(self, "Alerts", _CHECKS)

    @property
    def thresholds(self) -> dict[str, float]:
        """The threshold of each rule that is on, in the unit of its metric."""
        values = {name: getattr(self, name) for name in _THRESHOLDS if getattr(self, name) is not None}
        on = {name: value / 1000 if name in _DURATIONS else float(value) for name, value in values.items()}
        return {**on, "job_failed": 0.0} if self.job_failed else on

    def knobs(self) -> tuple[SettingReport, ...]:
        """Explain every field."""
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
            becomes = "is not told" if value is None else text
            why = "Gets what the supervisor has to tell."
        else:
            becomes = "no alert" if value is None or value is False else "an alert"
            why = "The supervisor holds each batch against it, and tells when it begins and when it is over."
        return kept_by_supervisor(f"alerts.{name}", text, becomes, why)

    def as_dict(self) -> dict[str, Any]:
        """Plain values; `Alerts(**values)` makes the same again."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Alerts:
        """Read what `as_dict` returned, in this or a different version of Holdfast."""
        return cls(**{name: value for name, value in values.items() if name in cls.__dataclass_fields__})
