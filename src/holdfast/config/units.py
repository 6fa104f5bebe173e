"""Parsing and formatting of durations and sizes.

A duration is a whole number of milliseconds; a size is a whole number of bytes. Text always has a unit. A
plain number is milliseconds or bytes, so that parsing is idempotent: `parse_duration(parse_duration(x)) ==
parse_duration(x)`.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from fractions import Fraction

from holdfast.config.checks import refused
from holdfast.errors import Invalid
from holdfast.quantities import SIZE_NAMES

Duration = str | int | float | timedelta
Size = str | int

MIB = 1 << 20

# A century: longer than any job, and within the range of every clock to which the value is passed.
MAX_DURATION_MS = 36_525 * 86_400_000
# The largest long of the JVM, where sizes are used.
MAX_SIZE_BYTES = 2**63 - 1

_DURATION_UNITS: tuple[tuple[Fraction, tuple[str, ...]], ...] = (
    (Fraction(1, 1_000_000), ("ns", "nano", "nanos", "nanosecond", "nanoseconds")),
    (Fraction(1, 1_000), ("us", "µs", "micro", "micros", "microsecond", "microseconds")),
    (Fraction(1), ("ms", "milli", "millis", "millisecond", "milliseconds")),
    (Fraction(1_000), ("s", "sec", "secs", "second", "seconds")),
    (Fraction(60_000), ("m", "min", "mins", "minute", "minutes")),
    (Fraction(3_600_000), ("h", "hr", "hrs", "hour", "hours")),
    (Fraction(86_400_000), ("d", "day", "days")),
    (Fraction(604_800_000), ("w", "week", "weeks")),
)
_MS_PER = {name: factor for factor, names in _DURATION_UNITS for name in names}
_ISO_FACTORS = (_MS_PER["d"], _MS_PER["h"], _MS_PER["m"], _MS_PER["s"])

_SIZE_UNITS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (1, ("b", "byte", "bytes")),
    (1 << 10, ("k", "kb", "kib", "kibibytes")),
    (MIB, ("m", "mb", "mib", "mebibytes")),
    (1 << 30, ("g", "gb", "gib", "gibibytes")),
    (1 << 40, ("t", "tb", "tib", "tebibytes")),
    (1 << 50, ("p", "pb", "pib", "pebibytes")),
)
_BYTES_PER = {name: factor for factor, names in _SIZE_UNITS for name in names}

# Bounded digits: a thousand of them are a mistake, and Python refuses to convert 5,000.
_NUMBER = r"[0-9]{1,19}(?:\.[0-9]{1,9})?"
_TERM = re.compile(rf"\s*({_NUMBER})\s*([a-zµ]+)\s*")
_BARE = re.compile(rf"\s*({_NUMBER})\s*")
_ISO = re.compile(
    rf"p(?:({_NUMBER})d)?(?:t(?=[0-9])(?:({_NUMBER})h)?(?:({_NUMBER})m)?(?:({_NUMBER})s)?)?",
)

_DURATION_SHAPE = 'a duration with its unit, such as "250ms", "10s", "1 minute", "1m30s", "24h" or "7d"'
_SIZE_SHAPE = 'a size with its unit, such as "64k", "512m" or "10 GB" (1 k = 1024 bytes)'


def parse_duration(
    value: Duration, setting: str = "duration", *, allow_zero: bool = False, bare_ms: bool = False
) -> int:
    """Parse a duration and return whole milliseconds.

    Args:
        value: Text with units ("1 second", "1m30s", "24h", "PT10M"), a `timedelta`, or a number of
            milliseconds. Text without a unit is refused because it is ambiguous.
        setting: The name of the setting, for errors.
        allow_zero: Whether zero is allowed.
        bare_ms: Whether a bare number in text is milliseconds, as Flink reads it.

    Raises:
        Invalid: The value is not a duration, is negative, is zero without `allow_zero`, is not a whole number
            of milliseconds, or is longer than a century.
    """
    ms = _milliseconds(value, setting, bare_ms=bare_ms)
    whole_ms = _whole(ms, value, setting, _DURATION_SHAPE, "milliseconds", allow_zero=allow_zero)
    if whole_ms > MAX_DURATION_MS:
        raise refused(setting, value, "at most 100 years")
    return whole_ms


def optional_ms(value: Duration | None) -> int | None:
    """Return the milliseconds of a checked duration, or None."""
    return None if value is None else parse_duration(value, allow_zero=True)


def parse_size(value: Size, setting: str = "size") -> int:
    """Parse a size and return whole bytes.

    Units are powers of 1024, written "m", "MB" or "MiB", as in Spark and Flink. A number that is not text is
    bytes; text without a unit is refused.

    Raises:
        Invalid: The value is not a size, is negative or zero, is not a whole number of bytes, or is larger
            than a JVM long.
    """
    size_bytes = _whole(_bytes(value, setting), value, setting, _SIZE_SHAPE, "bytes", allow_zero=False)
    if size_bytes > MAX_SIZE_BYTES:
        raise refused(setting, value, f"at most {MAX_SIZE_BYTES} bytes")
    return size_bytes


def exact_duration(ms: int) -> str:
    """Format milliseconds so that `parse_duration` reads the same number back: 90000 is "1m 30s".

    The result is exact, for settings; for measurements, use `rounded_duration`.
    """
    parts: list[str] = []
    rest = ms
    for factor, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")):
        count, rest = divmod(rest, factor)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0ms"


def exact_size(size_bytes: int) -> str:
    """Format bytes so that `parse_size` reads the same number back: 1536 is "1536 B", 2048 is "2 KiB".

    The result is exact, for settings; for measurements, use `rounded_size`.
    """
    value, unit = size_bytes, 0
    while value and value % 1024 == 0 and unit < len(SIZE_NAMES) - 1:
        value, unit = value // 1024, unit + 1
    return f"{value} {SIZE_NAMES[unit]}"


def seconds(n: float) -> timedelta:
    """Return a number of seconds as a `timedelta`, for settings and for arithmetic on event times.

    Raises:
        Invalid: The argument is not a finite number.

    Example:
        trigger = hf.every(hf.seconds(30))
        assert trigger.interval_ms == 30_000
    """
    return timedelta(seconds=_finite(n, "seconds"))


def minutes(n: float) -> timedelta:
    """Return a number of minutes as a `timedelta`.

    Raises:
        Invalid: The argument is not a finite number.

    Example:
        alerts = hf.Alerts(lag=hf.minutes(5))
        assert alerts.lag == 300_000
    """
    return timedelta(minutes=_finite(n, "minutes"))


def hours(n: float) -> timedelta:
    """Return a number of hours as a `timedelta`.

    Raises:
        Invalid: The argument is not a finite number.

    Example:
        assert hf.hours(1.5) == hf.minutes(90)
    """
    return timedelta(hours=_finite(n, "hours"))


def days(n: float) -> timedelta:
    """Return a number of days, each of 24 hours, as a `timedelta`.

    Raises:
        Invalid: The argument is not a finite number.

    Example:
        from datetime import UTC, datetime

        first_visit = datetime(2026, 3, 5, 9, 0, tzinfo=UTC)
        assert (first_visit + hf.days(30)).day == 4
    """
    return timedelta(days=_finite(n, "days"))


def _milliseconds(value: object, setting: str, *, bare_ms: bool) -> Fraction:
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1), 1_000)
    if isinstance(value, str):
        return _duration_text(value, setting, bare_ms=bare_ms)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise refused(setting, value, _DURATION_SHAPE)
    return Fraction(value)


def _duration_text(text: str, setting: str, *, bare_ms: bool) -> Fraction:
    lowered, sign = _unsigned(text)
    iso = _ISO.fullmatch(lowered)
    if iso and any(iso.groups()):
        pairs = zip(iso.groups(), _ISO_FACTORS, strict=True)
        return sign * sum((Fraction(count) * factor for count, factor in pairs if count), Fraction(0))
    bare = _BARE.fullmatch(lowered)
    if bare:
        if bare_ms:
            return sign * Fraction(bare[1])
        raise refused(
            setting, text, _DURATION_SHAPE, hint=f'add the unit: "{text.strip()}ms" or "{text.strip()}s"'
        )
    total = Fraction(0)
    at = 0
    while at < len(lowered):
        term = _TERM.match(lowered, at)
        if term is None or term[2] not in _MS_PER:
            raise refused(setting, text, _DURATION_SHAPE)
        total += Fraction(term[1]) * _MS_PER[term[2]]
        at = term.end()
    if not lowered:
        raise refused(setting, text, _DURATION_SHAPE)
    return sign * total


def _bytes(value: object, setting: str) -> Fraction:
    if isinstance(value, str):
        return _size_text(value, setting)
    if isinstance(value, bool) or not isinstance(value, int):
        raise refused(setting, value, _SIZE_SHAPE)
    return Fraction(value)


def _size_text(text: str, setting: str) -> Fraction:
    lowered, sign = _unsigned(text)
    term = _TERM.fullmatch(lowered)
    if term and term[2] in _BYTES_PER:
        return sign * Fraction(term[1]) * _BYTES_PER[term[2]]
    hint = f'add the unit: "{text.strip()}m" or "{text.strip()}b"' if _BARE.fullmatch(lowered) else None
    raise refused(setting, text, _SIZE_SHAPE, hint=hint)


def _unsigned(text: str) -> tuple[str, int]:
    """Split off a leading minus sign, so that the error for "-5s" names the sign."""
    lowered = text.strip().lower()
    return (lowered[1:].lstrip(), -1) if lowered.startswith("-") else (lowered, 1)


def _whole(amount: Fraction, value: object, setting: str, shape: str, unit: str, *, allow_zero: bool) -> int:
    if amount < 0:
        raise refused(setting, value, f"not a negative value: {shape}")
    if amount == 0 and not allow_zero:
        raise refused(setting, value, f"more than zero: {shape}")
    if amount.denominator != 1:
        raise refused(setting, value, f"a whole number of {unit}")
    return int(amount)


def _finite(n: object, name: str) -> float:
    if isinstance(n, bool) or not isinstance(n, (int, float)) or not math.isfinite(n):
        raise Invalid(
            f"invalid number of {name}",
            code="HF-E2174",
            found=repr(n),
            expected="a finite number",
            hint="give an int or a float",
        )
    return n
