from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.config.units import (
    MAX_DURATION_MS,
    MAX_SIZE_BYTES,
    exact_duration,
    exact_size,
    parse_duration,
    parse_size,
)
from holdfast.errors import Invalid

DURATIONS = st.integers(0, MAX_DURATION_MS) | st.builds(
    lambda count, unit: count * unit, st.integers(0, 400), st.sampled_from([1, 1_000, 60_000, 86_400_000])
)
SIZES = st.integers(1, MAX_SIZE_BYTES) | st.builds(
    lambda count, shift: count << shift, st.integers(1, 4096), st.sampled_from([0, 10, 20, 30, 40])
)


@given(DURATIONS)
def test_a_duration_survives_being_written(ms: int) -> None:
    assert parse_duration(exact_duration(ms), allow_zero=True) == ms
    assert parse_duration(str(ms), allow_zero=True, bare_ms=True) == ms
    assert parse_duration(timedelta(milliseconds=ms), allow_zero=True) == ms
    assert parse_duration(ms, allow_zero=True) == ms


@given(SIZES)
@example(MAX_SIZE_BYTES)
@example(MAX_SIZE_BYTES - 1)
def test_a_size_survives_being_written(size: int) -> None:
    assert parse_size(exact_size(size)) == size
    assert parse_size(size) == size


@given(
    st.text(max_size=20) | st.from_regex(r"[0-9.]{0,5} ?[a-z]{0,3}[0-9]{0,3}", fullmatch=True),
    st.sampled_from([parse_duration, partial(parse_duration, bare_ms=True), parse_size]),
)
def test_any_text_is_read_or_refused(text: str, parse: Callable[[str], int]) -> None:
    try:
        read = parse(text)
    except Invalid:
        return
    assert read > 0
