"""When a stream is idle: hand-worked offset logs, and a clock that the test sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import Invalid
from holdfast.storage.memory import MemoryStorage
from holdfast.stream.idleness import IdleWatch, Told, offset_of, tick_of, ticks_between

MINUTE = 60_000
IDLE_AFTER = 5 * MINUTE  # so a step is half a minute


class Log:
    """An offset log whose sources are: a busy one, the watched one, the ticks."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.watch = self.start()
        self.batch = -1

    def start(self) -> IdleWatch:
        return IdleWatch(self.storage, Told("checkpoint", 2, (1,)), IDLE_AFTER)

    def plan(self, at_ms: int, watched: int, tick: int = 0) -> None:
        self.batch += 1
        fields = {"batchWatermarkMs": 0, "batchTimestampMs": at_ms, "conf": {}}
        lines = ["v1", json.dumps(fields), str(self.batch), str(watched), json.dumps(offset_of(tick))]
        self.storage.write(f"offsets/{self.batch}", "\n".join(lines).encode())


def test_a_stream_is_idle_when_batches_found_nothing_in_it_for_that_long() -> None:
    log = Log()
    log.plan(0, watched=7)
    assert log.watch.next(0, 1_000) == 0  # the first look: silent since now
    for minute in range(1, 6):
        log.plan(minute * MINUTE, watched=7)
        assert log.watch.next(0, minute * MINUTE + 500) == 0
    log.plan(6 * MINUTE, watched=7)
    # The batch planned at six minutes proves a silence of five minutes since the first look.
    assert log.watch.next(0, 6 * MINUTE + 30_000) == 6 * MINUTE


def test_rows_begin_the_silence_anew() -> None:
    log = Log()
    log.plan(0, watched=7)
    log.watch.next(0, 0)
    for minute in range(1, 9):
        log.plan(minute * MINUTE, watched=7 if minute < 4 else 8)
        assert log.watch.next(0, minute * MINUTE + 30_000) == 0
    log.plan(9 * MINUTE, watched=8)
    assert log.watch.next(0, 9 * MINUTE + 30_000) == 9 * MINUTE


def test_a_long_batch_proves_nothing() -> None:
    log = Log()
    log.plan(0, watched=7)
    log.watch.next(0, 0)
    # It ran for an hour, in which Spark asked no source. Rows may be waiting.
    assert log.watch.next(0, 60 * MINUTE) == 0


def test_time_in_which_the_query_was_down_proves_nothing() -> None:
    log = Log()
    log.plan(0, watched=7)
    again = log.start()
    assert again.next(0, 60 * MINUTE) == 0
    log.plan(61 * MINUTE, watched=7)
    assert again.next(0, 62 * MINUTE) == 0


def test_looks_that_found_nothing_in_any_source_prove_silence() -> None:
    log = Log()
    log.plan(0, watched=7)
    found = [log.watch.next(0, second * 1_000) for second in range(0, 340, 10)]
    # Thirty seconds apart it looks; the look at 330 s knows of the one that found nothing at 320 s.
    assert found[:33] == [0] * 33
    assert found[33] == 320_000


def test_ticks_come_a_step_apart_while_it_is_idle() -> None:
    log = Log()
    log.plan(0, watched=7)
    sent, ticks = 0, []
    log.watch.next(sent, 0)
    for second in range(10, 400, 10):
        tick = log.watch.next(sent, second * 1_000)
        if tick != sent:
            ticks.append(tick)
            sent = tick
            log.plan(second * 1_000, watched=7, tick=sent)
    # The batch of the first tick is planned at 330 s, which is all that the look at 360 s knows of. The one
    # at 390 s knows that at 380 s Spark found nothing.
    assert ticks == [320_000, 380_000]


def test_no_batch_no_tick() -> None:
    log = Log()
    for minute in range(30):
        assert log.watch.next(0, minute * MINUTE) == 0


def test_available_now_is_not_sent_back_to_the_beginning() -> None:
    log = Log()
    log.plan(0, watched=7, tick=5)
    assert log.start().next(0, 10 * MINUTE) == 5


def test_two_queries_of_one_frame_are_told() -> None:
    log = Log()
    log.plan(0, watched=7, tick=5)
    with pytest.raises(Invalid, match="two queries use the same frame"):
        log.watch.next(6, 1_000)


def test_a_repeated_batch_has_the_same_ticks() -> None:
    assert ticks_between(offset_of(5), offset_of(9)) == [9]
    assert ticks_between(offset_of(9), offset_of(9)) == []
    assert ticks_between(offset_of(9), offset_of(0)) == []
    assert tick_of(offset_of(9)) == 9


def test_a_query_that_holdfast_did_not_start_is_told(tmp_path: Path) -> None:
    place = str(tmp_path / "told.json")
    with pytest.raises(Invalid, match="a query that is started by Holdfast"):
        Told.read(place)
    told = Told("file:/checkpoint", 3, (1, 2))
    told.write(place)
    assert Told.read(place) == told
