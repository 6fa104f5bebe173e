from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.config.policies import (
    AvailableNow,
    Every,
    RealTime,
    available_now,
    every,
    parse_trigger,
    real_time,
)
from holdfast.errors import Invalid


def test_what_spark_is_given() -> None:
    assert every("1 second").spark_kwargs() == {"processingTime": "1000 milliseconds"}
    assert available_now().spark_kwargs() == {"availableNow": True}
    assert real_time("5 minutes").spark_kwargs() == {"realTime": "300000 milliseconds"}


@pytest.mark.parametrize("text", ["available now", "available_now", "Available-Now", " available  now "])
def test_available_now_in_words(text: str) -> None:
    assert parse_trigger(text) == AvailableNow()


def test_triggers_are_read() -> None:
    assert parse_trigger("1 second") == Every(1000)
    assert parse_trigger("real time 5 minutes") == RealTime(300_000)
    assert parse_trigger("Real-Time every 5m") == RealTime(300_000)
    assert parse_trigger(str(real_time("90s"))) == real_time("90s")
    assert parse_trigger("every 1 second") == Every(1000)
    assert parse_trigger(timedelta(minutes=1)) == Every(60_000)
    assert parse_trigger(every("2s")) is not None
    assert str(parse_trigger("90s")) == "every 1m 30s"
    assert parse_trigger(str(every("90s"))) == every("90s")
    assert parse_trigger(str(available_now())) == available_now()


@pytest.mark.parametrize("value", ["", "now", "0s", "5", "every", -1, True, None])
def test_what_is_no_trigger_is_refused(value: object) -> None:
    with pytest.raises(Invalid) as caught:
        parse_trigger(value)  # type: ignore[arg-type]
    assert caught.value.found == repr(value)
    assert "available now" in (caught.value.expected or "")
