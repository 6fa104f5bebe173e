"""What a time to live would free, on real state and on states whose times are known."""

from __future__ import annotations

import datetime as dt
import json

import golden_model as model
import pytest

from golden import STATELESS, golden, golden_files
from holdfast.at_rest.insight import WhatIf, what_if
from holdfast.at_rest.state_reader import StateReader
from holdfast.errors import Invalid, NotFound

WINDOWS = "4.2/windowed-memory"
MINUTE_MS = 60_000


def ms(moment: dt.datetime) -> int:
    return round(moment.timestamp() * 1000)


def one(name: str, **rule: int | str | None) -> WhatIf:
    [found] = what_if(StateReader(golden(name)), **rule)  # type: ignore[arg-type]
    return found


def watermark_of(name: str) -> int:
    newest = StateReader(golden(name)).batch_id
    return int(
        json.loads(golden_files(name)[f"commits/{newest}"].decode().splitlines()[1])["nextBatchWatermarkMs"]
    )


def ends() -> list[int]:
    return [ms(start + 2 * model.MINUTE) for start, _ in model.windows()]


@pytest.mark.parametrize("ttl_ms", [0, -MINUTE_MS, -2 * MINUTE_MS, MINUTE_MS])
def test_windows_go_by_their_end(ttl_ms: int) -> None:
    found = one(WINDOWS, ttl_ms=ttl_ms)
    assert found.rows == len(ends())
    assert found.now_ms == watermark_of(WINDOWS) == ms(model.watermark())
    assert found.freed_rows == sum(end <= watermark_of(WINDOWS) - ttl_ms for end in ends())
    assert sum(bar.rows for bar in found.histogram) == len(ends())


@pytest.mark.parametrize("delay_ms", [0, 30_000, MINUTE_MS, 5 * MINUTE_MS])
def test_another_delay_moves_the_watermark(delay_ms: int) -> None:
    # The query runs under a delay of one minute.
    moved = ms(model.watermark()) + MINUTE_MS - delay_ms
    assert one(WINDOWS, watermark_ms=delay_ms).freed_rows == sum(end <= moved for end in ends())


def test_bars_are_by_age() -> None:
    found = one("4.2/join-memory", ttl_ms=0, state="left")
    old = [ms(model.watermark()) - ms(event.ts) for event in model.joinable()]
    assert found.timed_rows == len(old)
    for bar in found.histogram:
        low, high = bar.from_ms, bar.to_ms
        inside = [each for each in old if (low is None or each >= low) and (high is None or each < high)]
        assert bar.rows == len(inside)
    assert found.freed_rows == sum(each >= 0 for each in old)
    assert found.freed_bytes is not None
    assert 0 < found.freed_bytes <= found.size_bytes


def test_a_state_without_times_is_named_as_such() -> None:
    found = one("4.2/aggregate-format2", ttl_ms=MINUTE_MS)
    assert found.freed_rows is None
    assert found.clock is None
    assert found.what == "rows of this state have no timestamp"
    assert found.rows == len(model.aggregate())


def test_a_column_of_times_may_stand_in() -> None:
    by_start = one("4.2/session-rocksdb", ttl_ms=0, state="sessions", by="sessionStartTime")
    starts = [ms(start) for _, start in model.sessions()]
    assert by_start.freed_rows == sum(start <= ms(model.watermark()) for start in starts)
    with pytest.raises(Invalid, match="no timestamp column with this name") as wrong:
        one("4.2/session-rocksdb", ttl_ms=0, state="sessions", by="customer")
    assert "sessionStartTime" in str(wrong.value)


def test_one_rule_is_asked_about() -> None:
    with pytest.raises(Invalid):
        one(WINDOWS)
    with pytest.raises(Invalid):
        one(WINDOWS, ttl_ms=0, watermark_ms=0)
    with pytest.raises(Invalid):
        one(WINDOWS, ttl_ms=0, by="window")


def test_one_operator_can_be_asked_about() -> None:
    reader = StateReader(golden(WINDOWS))
    whole = what_if(reader, ttl_ms=MINUTE_MS)
    [operator] = reader.operators
    for name in (0, "0", operator.name):
        assert what_if(reader, ttl_ms=MINUTE_MS, operator=name) == whole
    with pytest.raises(NotFound, match="unknown operator '9'") as caught:
        what_if(reader, ttl_ms=MINUTE_MS, operator="9")
    assert caught.value.expected == f"0 {operator.name}"


def test_a_query_without_state_is_at_its_newest_batch() -> None:
    newest = max(int(path.removeprefix("commits/")) for path in golden_files(STATELESS) if commit_in(path))
    assert newest > 0
    assert StateReader(golden(STATELESS)).batch_id == newest
    assert StateReader(golden(STATELESS), newest - 1).batch_id == newest - 1


def commit_in(path: str) -> bool:
    return path.startswith("commits/") and path.removeprefix("commits/").isdecimal()
