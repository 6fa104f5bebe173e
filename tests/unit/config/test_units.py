from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.config.units import (
    days,
    exact_duration,
    exact_size,
    hours,
    minutes,
    parse_duration,
    parse_size,
    seconds,
)
from holdfast.errors import Invalid
from holdfast.quantities import rounded_duration, rounded_size


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1 second", 1_000),
        ("5 minutes", 300_000),
        ("1m30s", 90_000),
        ("1m 30s", 90_000),
        ("250ms", 250),
        ("24h", 86_400_000),
        ("7d", 604_800_000),
        ("1 w", 604_800_000),
        ("10 min", 600_000),
        ("1 d", 86_400_000),
        ("3s", 3_000),
        ("PT10M", 600_000),
        ("pt1h30m", 5_400_000),
        ("P1DT2H", 93_600_000),
        ("P2D", 172_800_000),
        ("0.1s", 100),
        ("1.5 hours", 5_400_000),
        ("5000 us", 5),
        ("  10S ", 10_000),
    ],
)
def test_a_duration_is_read_as_milliseconds(text: str, ms: int) -> None:
    assert parse_duration(text) == ms
    assert parse_duration(text, bare_ms=True) == ms


def test_timedeltas_and_numbers_are_exact() -> None:
    assert parse_duration(timedelta(minutes=2, milliseconds=5)) == 120_005
    assert parse_duration(1500) == 1500
    assert parse_duration(1500.0) == 1500


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "soon", "10 parsecs", "5", "1m30", "s", "1 month", "P1M", "PT", "P", "1s!", "-5s", -1,
        "0s", 0, True, float("nan"), float("inf"), timedelta(seconds=-1), timedelta(microseconds=5),
        "0.5ms", 0.5, "1 ns", "200000 weeks", "9" * 40 + "s", "\u0661s", "1_000ms", None, [1],
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_by_name(value: object) -> None:
    with pytest.raises(Invalid) as caught:
        parse_duration(value, "Checkpoint(interval=…)")  # type: ignore[arg-type]
    assert caught.value.where == "Checkpoint(interval=…)"
    assert caught.value.found == repr(value)
    assert caught.value.expected


def test_a_bare_number_in_text_means_milliseconds_to_flink_alone() -> None:
    assert parse_duration("5000", bare_ms=True) == 5000
    with pytest.raises(Invalid) as caught:
        parse_duration("5000")
    assert caught.value.hint == 'add the unit: "5000ms" or "5000s"'


def test_zero_is_allowed_where_it_is_asked_for() -> None:
    assert parse_duration("0 ms", allow_zero=True) == 0
    with pytest.raises(Invalid, match="invalid value"):
        parse_size(0)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512m", 536_870_912),
        ("10 GB", 10_737_418_240),
        ("1 GiB", 1_073_741_824),
        ("64k", 65_536),
        ("1.5g", 1_610_612_736),
        ("7 bytes", 7),
        ("2T", 2_199_023_255_552),
        (4096, 4096),
    ],
)
def test_a_size_is_read_as_bytes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("value", ["", "512", "-1m", "many", "1.5b", "9000 pb", True, 1.5, None, -1])
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(Invalid):
        parse_size(value, "RocksDB(memory=…)")  # type: ignore[arg-type]


def test_a_setting_is_written_exactly() -> None:
    assert exact_duration(0) == "0ms"
    assert exact_duration(90_000) == "1m 30s"
    assert exact_duration(93_784_005) == "1d 2h 3m 4s 5ms"
    assert exact_size(536_870_912) == "512 MiB"
    assert exact_size(1536) == "1536 B"
    assert exact_size(0) == "0 B"


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (0.026, "26 µs"),
        (0.9996, "1.0 ms"),
        (1.5, "1.5 ms"),
        (45, "45 ms"),
        (999, "999 ms"),
        (999.7, "1.0 s"),
        (9_400, "9.4 s"),
        (59_940, "59.9 s"),
        (59_960, "1 min 0 s"),
        (185_000, "3 min 5 s"),
        (3_599_600, "1 h 0 min"),
        (7_800_000, "2 h 10 min"),
        (48 * 3_600_000 - 1_000, "47 h 59 min"),
        (70 * 3_600_000, "2 d 22 h"),
        (99 * 3_600_000, "4 d 3 h"),
    ],
)
def test_a_measured_duration_is_rounded(ms: float, text: str) -> None:
    assert rounded_duration(ms) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1000 << 10, "1000 KiB"),
        ((1 << 20) - 1, "1 MiB"),
        (123.4 * (1 << 20), "123 MiB"),
        (10 << 30, "10 GiB"),
        (5 << 40, "5 TiB"),
        (3 << 50, "3 PiB"),
        (2_000 << 50, "2000 PiB"),
    ],
)
def test_a_measured_size_is_rounded(size_bytes: float, text: str) -> None:
    assert rounded_size(size_bytes) == text


def test_the_helpers_give_timedeltas() -> None:
    assert seconds(90) == minutes(1.5) == timedelta(seconds=90)
    assert hours(48) == days(2) == timedelta(days=2)
    assert minutes(-5) == timedelta(minutes=-5)


@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), "5"])
def test_the_helpers_refuse_what_is_no_number(value: float) -> None:
    with pytest.raises(Invalid):
        minutes(value)
