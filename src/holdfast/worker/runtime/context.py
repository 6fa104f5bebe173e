"""The `ctx` argument of a handler: the key, the times, and the key's timers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import Invalid
from holdfast.worker.declarations.handler_arguments import Clock, Context, Event, Timer
from holdfast.worker.interface import Moment, Shared
from holdfast.worker.runtime.timers import (
    EPOCH,
    EVENT,
    FIRST_MS,
    LAST_MS,
    TimerCells,
    letter_of,
    moment_of,
    ms_of,
    no_watermark,
    timer_of,
)

NO_BROADCAST = "add a broadcast stream with hf.keyed(…).with_broadcast(…), and do not read it in on_start"
# The number of timer names whose stored form is cached; most processors use only a few names.
_MOST_KNOWN = 1_000


class KeyContext(Context):
    """The context of the current key in a task.

    Args:
        processor: The name of the processor, for error messages.
        default_clock: The clock of timers set without `clock`.
        has_timers: Whether the processor defines `on_timer`.
    """

    __slots__ = (
        "_at",
        "_cells",
        "_default",
        "_due",
        "_event_limit",
        "_has_timers",
        "_keys",
        "_known",
        "_one",
        "_one_ms",
        "_processing_limit",
        "_processor",
        "_shared",
        "_timers",
        "batch_id",
        "now_ms",
        "watermark_ms",
    )

    def __init__(self, processor: str, default_clock: str, *, has_timers: bool) -> None:
        self._processor = processor
        self._default = letter_of(default_clock)
        self._has_timers = has_timers
        self._at = -1
        self._keys: Callable[[int], Event] | None = None
        self._timers: dict[str, int] | None = None
        # Most keys have one timer. A single timer is stored here and needs no dict.
        self._one: str | None = None
        self._one_ms = 0
        self._cells: TimerCells | None = None
        self._shared: Shared | None = None
        self._known: dict[tuple[str | None, str], str] = {}
        self._due = False
        self._event_limit = self._processing_limit = 0
        self.now_ms = 0
        self.watermark_ms: int | None = None
        self.batch_id: int | None = None

    @property
    def key(self) -> Event:
        """See `Context`."""
        if self._at < 0 or self._keys is None:
            raise Invalid(
                "ctx.key cannot be read, because the handler has no current key",
                code="HF-E2485",
                hint="read ctx.key only in the handlers of events and timers",
            )
        return self._keys(self._at)

    @property
    def broadcast(self) -> Mapping[Any, Any]:
        """See `Context`."""
        if self._shared is None:
            raise Invalid(
                "no broadcast stream is available to the handler", code="HF-E2486", hint=NO_BROADCAST
            )
        return self._shared.by_key

    @property
    def now(self) -> dt.datetime:
        """See `Context`."""
        return moment_of(self.now_ms)

    @property
    def watermark(self) -> dt.datetime | None:
        """See `Context`."""
        return None if self.watermark_ms is None else moment_of(self.watermark_ms)

    def timer(self, at: Any, name: str = "", clock: Clock | None = None) -> None:
        """See `Context`."""
        if type(at) is int and FIRST_MS <= at <= LAST_MS:
            at_ms = at
        elif type(at) is dt.datetime and at.tzinfo is dt.timezone.utc:
            since = at - EPOCH  # the same as `ms_of`, without the call
            at_ms = since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000
        else:
            at_ms = ms_of(at)
        key = self._known.get((clock, name)) or self._key_of(clock, name)
        if key == self._one or self._is_first(key):
            self._one_ms = at_ms
        else:
            self._open()[key] = at_ms
        if at_ms <= (self._event_limit if key[0] == "e" else self._processing_limit):
            self._due = True

    def cancel_timer(self, name: str = "", clock: Clock | None = None) -> None:
        """See `Context`."""
        letter = self._default if clock is None else letter_of(clock)
        self._open().pop(letter + name, None)

    def timers(self) -> tuple[Timer, ...]:
        """See `Context`."""
        return tuple(timer_of(key, at) for at, key in sorted((at, key) for key, at in self._open().items()))

    def _key_of(self, clock: Clock | None, name: str) -> str:
        """Return the key of a timer in a dict of timers, and cache it."""
        key = (self._default if clock is None else letter_of(clock)) + name
        if clock == EVENT and self._default != key[0]:
            raise no_watermark()
        if len(self._known) == _MOST_KNOWN:
            self._known.clear()
        self._known[clock, name] = key
        return key

    def _begin(self, moment: Moment, keys: Callable[[int], Event] | None, cells: TimerCells | None) -> None:
        """Start a pass without a current key."""
        self.now_ms, self.watermark_ms, self.batch_id = moment.now_ms, moment.watermark_ms, moment.batch_id
        self._at, self._timers, self._due = -1, None, False
        self._keys, self._cells = keys, cells
        if cells is not None:
            self._event_limit, self._processing_limit = cells.event_limit, cells.processing_limit

    def _enter(self, position: int) -> None:
        """Make the key at this index the current one."""
        self._at = position
        self._timers = self._one = None
        self._due = False

    def _leave(self) -> None:
        """Store the key's only timer; timers in a dict are stored already."""
        if self._one is not None and self._cells is not None:
            self._cells.keep_one(self._one, self._at, self._one_ms)

    def _is_first(self, key: str) -> bool:
        """Return whether the key has no timer other than `key`, and no other timer was accessed."""
        if self._one is not None or self._timers is not None or self._cells is None or self._at < 0:
            return False
        if self._cells.has_only(key)[self._at]:
            self._one = key
            return True
        return False

    def _open(self) -> dict[str, int]:
        """Return the key's timers as a dict, which is authoritative from this call on."""
        if self._timers is not None:
            return self._timers
        if not self._has_timers:
            raise Invalid(
                f"{self._processor} cannot use timers, because it has no on_timer",
                code="HF-E2487",
                hint="define on_timer(self, timer, state, ctx)",
            )
        if self._at < 0 or self._cells is None:
            raise Invalid(
                "timers cannot be used, because the handler has no current key",
                code="HF-E2488",
                hint="use timers in the handlers of events and timers, not in on_start",
            )
        self._timers = self._cells.of(self._at)
        if self._one is not None:
            self._timers[self._one] = self._one_ms
            self._one = None
        return self._timers
