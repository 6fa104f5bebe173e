"""The timers of many keys at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.worker.arrays import placed, whole
from holdfast.worker.interface import DUE_EVENT, DUE_PROCESSING, TIMERS, Moment, Touched
from holdfast.worker.runtime.timers import (
    BEFORE_ALL,
    EVENT,
    PROCESSING,
    decode,
    due_in_order,
    due_keys,
    encode_all,
    encode_keys,
    only,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from holdfast.worker.runtime.table_state.vectors import Positions


class Fired:
    """Timers that are due, by key and then in the order of their times.

    Attributes:
        position: The key of each.
        key: Its clock and name.
        at: When it was due.
    """

    def __init__(self, fired: list[tuple[int, int, str]]) -> None:
        self.position: Positions = np.array([timer[0] for timer in fired], np.int64)
        self.at: NDArray[np.int64] = np.array([timer[1] for timer in fired], np.int64)
        self.key = [timer[2] for timer in fired]

    def event_times(self, watermark_ms: int) -> NDArray[np.int64]:
        """Give what writes bear in event time: the timer's time, or the watermark for the other clock."""
        is_event = np.array([key[0] == "e" for key in self.key], np.bool_)
        return np.where(is_event, self.at, watermark_ms)

    def table(self, keys: pa.Table) -> pa.Table:
        """Give the timers as a handler gets them: the key columns, `name`, `clock`, `at`."""
        timers = keys.take(pa.array(self.position))
        clocks = [EVENT if key[0] == "e" else PROCESSING for key in self.key]
        timers = timers.append_column("name", pa.array([key[1:] for key in self.key], pa.string()))
        timers = timers.append_column("clock", pa.array(clocks, pa.string()))
        return timers.append_column("at", pa.array(self.at * 1_000).cast(pa.timestamp("us", "UTC")))


class TimerColumns:
    """The timers of all keys of a pass, as columns."""

    def __init__(self, touched: Touched, moment: Moment) -> None:
        self._event_limit = BEFORE_ALL if moment.watermark_ms is None else moment.watermark_ms
        self._processing_limit = moment.now_ms
        self._texts = whole(touched.stored(TIMERS))
        self._event = whole(touched.stored(DUE_EVENT))
        self._processing = whole(touched.stored(DUE_PROCESSING))
        self._changed = False

    def set(self, key: str, keys: Positions, at: NDArray[np.int64]) -> None:
        """Set a timer of some keys; those that have others are dealt with one by one."""
        if not len(keys):
            return
        single = only(self._texts.take(pa.array(keys)), key)
        times, none = pa.array(at[single]), pa.nulls(int(single.sum()), pa.int64())
        due = (times, none) if key[0] == "e" else (none, times)
        self._place(keys[single], encode_all(key, times), *due)
        self._one_by_one(keys[~single], at[~single].tolist(), key)

    def cancel(self, key: str, keys: Positions) -> None:
        """Take a timer of some keys away."""
        texts = self._texts.take(pa.array(keys))
        single = only(texts, key)
        none = pa.nulls(int(single.sum()), pa.int64())
        self._place(keys[single], none.cast(pa.string()), none, none)
        self._one_by_one(keys[~single], [None] * int((~single).sum()), key)

    def take_due(self) -> Fired | None:
        """Take all timers away that are due, and give them; None where none is."""
        limits = (self._event_limit, self._processing_limit)
        keys = np.flatnonzero(due_keys((self._event, self._processing), limits))
        if not len(keys):
            return None
        fired: list[tuple[int, int, str]] = []
        left = []
        for key, text in zip(keys.tolist(), self._texts.take(pa.array(keys)).to_pylist(), strict=True):
            timers = decode(text)
            for at, name in due_in_order(timers, self._event_limit, self._processing_limit):
                fired.append((key, at, name))
                del timers[name]
            left.append(timers)
        self._place(keys, *encode_keys(left))
        return Fired(fired)

    def columns(self) -> dict[str, pa.Array]:
        """The columns of the row table, or none where nothing was set, cancelled or fired."""
        if not self._changed:
            return {}
        return {TIMERS: self._texts, DUE_EVENT: self._event, DUE_PROCESSING: self._processing}

    def _one_by_one(self, keys: Positions, times: list[Any], key: str) -> None:
        """Set a timer, or take it away where the time is None."""
        if not len(keys):
            return
        changed = []
        for text, at in zip(self._texts.take(pa.array(keys)).to_pylist(), times, strict=True):
            timers = decode(text)
            timers.pop(key, None)
            if at is not None:
                timers[key] = at
            changed.append(timers)
        self._place(keys, *encode_keys(changed))

    def _place(self, keys: Positions, texts: pa.Array, event: pa.Array, processing: pa.Array) -> None:
        if len(keys):
            self._changed = True
            self._texts = placed(self._texts, keys, texts)
            self._event = placed(self._event, keys, event)
            self._processing = placed(self._processing, keys, processing)
