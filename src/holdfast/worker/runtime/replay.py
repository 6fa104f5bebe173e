"""The order of a history: the events of a key by their time, each after the timers that were due before it.

A stream has one watermark in a batch. A history is one batch with months of events, so a watermark at its end
would fire all timers after all events: a session that ended in January would take in the events of June. For
each key the watermark therefore follows the key's own events, as if each event had arrived in order, in a
batch of its own. Nothing depends on how the history is divided into files or partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from holdfast.worker.runtime.event_dispatcher import UNTIMED
from holdfast.worker.runtime.timers import BEFORE_ALL, LAST_MS

if TYPE_CHECKING:
    from holdfast.worker.interface import Moment
    from holdfast.worker.runtime.context import KeyContext
    from holdfast.worker.runtime.timers import TimerCells
    from holdfast.worker.runtime.ttl import Clocks, TtlRule

# Where the watermark is after the last event of a key: at the end of all time, so that every timer in event
# time fires, or where the last event left it, because a stream continues.
TO_THE_END: Final = LAST_MS
TO_THE_LAST_EVENT: Final = BEFORE_ALL


class Replay:
    """The watermark of the current key in a history.

    Args:
        ctx: The context of the handlers.
        clocks: The clocks of the runner.
        rules: The rules of the TTLs in event time.
        delay_ms: The delay of the watermark behind the newest event.

    Attributes:
        until: Where the watermark is after the last event of a key; None outside of a history.
    """

    def __init__(self, ctx: KeyContext, clocks: Clocks, rules: Sequence[TtlRule], delay_ms: int) -> None:
        self._ctx = ctx
        self._clocks = clocks
        self._rules = rules
        self._delay_ms = delay_ms
        self._moment: Moment | None = None
        self._timers: TimerCells | None = None
        self._watermark = BEFORE_ALL
        self.until: int | None = None

    def begin(self, moment: Moment, timers: TimerCells | None) -> None:
        """Start a pass."""
        self._moment, self._timers, self.until = moment, timers, moment.replay
        self._watermark = BEFORE_ALL

    def reaches(self, time_ms: int) -> bool:
        """Advance to the time of an event, less the delay, and return whether a timer is due before it."""
        return time_ms != UNTIMED and self._advance(time_ms - self._delay_ms - 1)

    def stamp(self, time_ms: int) -> None:
        """Set the clock of event time to that of an event; an event without a time has the watermark."""
        self._clocks.event.stamp = self._clocks.watermark_ms if time_ms == UNTIMED else time_ms

    def ends(self) -> bool:
        """Advance to the end of a key; return whether a timer is due."""
        return self.until is not None and self._advance(self.until)

    def leave(self) -> None:
        """Return to the watermark of the pass."""
        if self._moment is not None and self._watermark != BEFORE_ALL:
            self._set(self._moment.watermark_ms or BEFORE_ALL, self._moment)
            self._watermark = BEFORE_ALL

    def _advance(self, watermark: int) -> bool:
        if watermark <= self._watermark or self._moment is None:
            return False
        self._watermark = watermark
        self._set(watermark, replace(self._moment, watermark_ms=watermark))
        if self._timers is None:
            return False
        ctx = self._ctx
        if ctx._one is not None:
            return ctx._one[0] == "e" and ctx._one_ms <= watermark
        return any(at <= watermark for key, at in ctx._open().items() if key[0] == "e")

    def _set(self, watermark: int, moment: Moment) -> None:
        ctx, clocks = self._ctx, self._clocks
        ctx.watermark_ms = moment.watermark_ms
        if self._timers is not None:
            self._timers.event_limit = ctx._event_limit = watermark
        for rule in self._rules:
            rule.begin(moment)
        now = moment.event_time_ms
        if now is not None:
            clocks.watermark_ms = clocks.event.stamp = now
