from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.config.policies import (
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
from holdfast.config.setting_report import SettingOutcome
from holdfast.errors import Invalid


def test_the_functions_make_the_values() -> None:
    assert no_restart() == NoRestart()
    assert fixed_delay(attempts=5, delay=timedelta(seconds=1)) == FixedDelay(5, 1_000, 3)
    assert exponential(max="1m") == Exponential(1_000, 60_000, 2.0, 0.1, 600_000, None, 3)
    assert failure_rate(2, per="1m", delay="0s", same_failure=None) == FailureRate(2, 60_000, 0, None)


def test_durations_are_kept_in_milliseconds() -> None:
    assert fixed_delay().delay_ms == 10_000
    assert failure_rate().per_ms == 300_000
    assert (exponential().initial_ms, exponential().max_ms) == (1_000, 60_000)
    assert exponential().reset_after_ms == 600_000


@pytest.mark.parametrize("strategy", [no_restart(), fixed_delay(None), exponential(), failure_rate()])
def test_every_field_is_explained_and_the_value_can_be_made_again(strategy: RestartStrategy) -> None:
    knobs = strategy.knobs()
    fields = [field.name for field in dataclasses.fields(strategy)]
    assert [knob.name for knob in knobs] == fields
    assert all(knob.outcome is SettingOutcome.SUPERVISOR and knob.becomes and knob.why for knob in knobs)
    assert type(strategy)(**{name: getattr(strategy, name) for name in fields}) == strategy


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        (fixed_delay, "attempts", 0), (fixed_delay, "attempts", True), (fixed_delay, "delay", "5"),
        (fixed_delay, "same_failure", 0), (exponential, "initial", "0s"), (exponential, "max", "-1s"),
        (exponential, "multiplier", 0.5), (exponential, "multiplier", float("nan")),
        (exponential, "jitter", 1.5), (exponential, "jitter", "0.1"), (exponential, "reset_after", 0),
        (exponential, "attempts", 1.5), (failure_rate, "failures", None), (failure_rate, "per", "0s"),
        (failure_rate, "delay", None),
    ],
)  # fmt: skip
def test_a_bad_value_names_its_field(make: Callable[..., RestartStrategy], field: str, value: object) -> None:
    fields: dict[str, Any] = {field: value}
    with pytest.raises(Invalid) as caught:
        make(**fields)
    assert caught.value.where == f"{make.__name__}({field}=…)"
    assert caught.value.found == repr(value)


def test_the_longest_pause_is_not_shorter_than_the_first() -> None:
    with pytest.raises(Invalid) as caught:
        exponential(initial="2m", max="1m")
    assert caught.value.expected == "at least 2m, the value of initial"
