"""When a query's loop is let through: a model of the loop, and a clock that the test moves."""

from __future__ import annotations

import pytest

from holdfast.engine.queries.boundary import IDLE_MS, Pause

START = 1_000_000


class FakeLoop:
    """A loop that takes a while for each batch and then waits; each gate is opened once."""

    def __init__(self, clock: FakeClock, batches_ms: list[int | None]) -> None:
        self.clock = clock
        self.left = list(batches_ms)
        self.began: list[int] = []
        self.ended: list[int] = []
        self.newest: str | None = None
        self.until: int | None = None
        self.run()

    def run(self) -> None:
        took = self.left.pop(0) if self.left else None
        self.until = self.clock.now + (took or 0)
        if took is not None:
            self.began.append(self.clock.now)
            self.ended.append(self.until)

    def waits(self) -> bool:
        return self.until is not None and self.clock.now >= self.until

    def newest_batch(self) -> str | None:
        ended = [
            began for began, ended in zip(self.began, self.ended, strict=True) if ended <= self.clock.now
        ]
        return str(ended[-1]) if ended else None

    def let_through(self, now_ms: int) -> None:
        assert self.waits()
        assert now_ms == self.clock.now
        self.run()


class FakeClock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now


def followed(
    pause_ms: int, interval_ms: int | None, batches_ms: list[int | None]
) -> tuple[list[int], list[int]]:
    """When batches began and ended, from the start of the query."""
    clock = FakeClock()
    loop = FakeLoop(clock, batches_ms)
    pause = Pause(loop, pause_ms, interval_ms, clock)
    while loop.left:
        clock.now += max(1, int(pause.look() * 1000))
    return [each - START for each in loop.began], [each - START for each in loop.ended]


@pytest.mark.parametrize("took", [10, 700, 4_000])
def test_the_pause_follows_the_end_of_a_batch_however_long_it_took(took: int) -> None:
    began, ended = followed(2_000, None, [took] * 5)
    assert len(began) == 5
    gaps = [later - former for former, later in zip(ended, began[1:], strict=False)]
    # An end is seen at the next look, and never before it.
    assert all(2_000 <= gap <= 2_000 + 50 for gap in gaps)


def test_the_longer_of_interval_and_pause_decides() -> None:
    began, _ = followed(100, 1_000, [300, 300, 300])
    assert began == [0, 1_000, 2_000]
    began, ended = followed(2_000, 1_000, [300, 300, 300])
    gaps = [later - former for former, later in zip(ended, began[1:], strict=False)]
    assert all(2_000 <= gap <= 2_000 + 50 for gap in gaps)


def test_a_query_without_rows_looks_for_some_at_once_and_does_not_pause() -> None:
    began, _ = followed(60_000, None, [None] * 20 + [10])
    assert began[0] <= 20 * (IDLE_MS + 50)


def test_a_trigger_without_rows_keeps_its_interval_and_does_not_pause() -> None:
    began, _ = followed(60_000, 1_000, [None] * 20 + [10])
    assert began == [20_000]
