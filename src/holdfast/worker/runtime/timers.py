r"""The timers of keys: their representation for a processor, their stored text, and the check for due ones.

A key's timers are a dict from the letter of the clock ("e" or "p") and the name to the due time. They are
stored as one string: `e1700000000000` is a timer without a name, `p1700000000000 nudge` a timer with a name.
Several are joined by `|`, in the order of the dict's sorted keys. In a name, `\\`, space and `|` are escaped.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import Invalid
from holdfast.worker.arrays import numbers, placed, whole
from holdfast.worker.declarations.handler_arguments import Clock, Timer
from holdfast.worker.interface import DUE_EVENT, DUE_PROCESSING, TIMERS, Moment, Touched

if TYPE_CHECKING:
    from numpy.typing import NDArray

EVENT = "event"
PROCESSING = "processing"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
# The range of a datetime: the years 1 to 9999.
FIRST_MS = -62_135_596_800_000
LAST_MS = 253_402_300_799_999
# A key that fires more timers than this in one batch sets its timers again in the past.
MOST_FIRINGS = 1_000_000

_LETTERS = {EVENT: "e", PROCESSING: "p"}
_CLOCKS: Final[Mapping[str, Clock]] = {"e": "event", "p": "processing"}
BEFORE_ALL = -(2**63)


def letter_of(clock: str) -> str:
    """Return the letter of a clock.

    Raises:
        Invalid: The name is not that of a clock.
    """
    try:
        return _LETTERS[clock]
    except (KeyError, TypeError):
        raise Invalid(
            "unknown clock of a timer",
            code="HF-E2511",
            found=repr(clock),
            expected='"event" or "processing"',
            hint='remove clock=, or write clock="processing"',
        ) from None


def no_watermark() -> Invalid:
    """Return the error for an event-time timer on a stream without a watermark."""
    return Invalid(
        "a timer in event time would never fire: the stream has no watermark",
        code="HF-E2512",
        hint='call withWatermark on the stream, or use clock="processing"',
    )


def moment_of(at_ms: int) -> dt.datetime:
    """Return epoch milliseconds as a datetime in UTC."""
    return EPOCH + dt.timedelta(milliseconds=at_ms)


def ms_of(at: Any) -> int:
    """Return the due time of a timer in epoch milliseconds, given as a datetime or a number.

    A datetime without a time zone is in UTC. Fractions of a millisecond are truncated.

    Raises:
        Invalid: The argument is neither a datetime nor an integer, or is outside the years 1 to 9999.
    """
    if isinstance(at, dt.datetime):
        since = (at if at.tzinfo is not None else at.replace(tzinfo=dt.timezone.utc)) - EPOCH
        return since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000
    try:
        number = None if isinstance(at, bool) else operator.index(at)
    except TypeError:
        number = None
    if number is None or not FIRST_MS <= number <= LAST_MS:
        raise Invalid(
            "the time of a timer or clock is not valid",
            code="HF-E2513",
            found=f"{at!r}, which is {type(at).__name__}",
            expected="a datetime, or epoch milliseconds in the years 1 to 9999",
            hint="pass a datetime, as in event.ts + timedelta(minutes=5), or epoch milliseconds",
        )
    return number


def timer_of(key: str, at_ms: int) -> Timer:
    """Return a `Timer` for an entry of a key's dict of timers."""
    return Timer(key[1:], moment_of(at_ms), at_ms, _CLOCKS[key[0]])


def encode(timers: Mapping[str, int]) -> str | None:
    """Encode a key's timers as a string, or as None without timers."""
    if len(timers) == 1:
        ((key, at),) = timers.items()
        return f"{key[0]}{at} {_escaped(key[1:])}" if len(key) > 1 else f"{key}{at}"
    if not timers:
        return None
    return "|".join(
        f"{key[0]}{timers[key]} {_escaped(key[1:])}" if len(key) > 1 else f"{key}{timers[key]}"
        for key in sorted(timers)
    )


def decode(text: str | None) -> dict[str, int]:
    """Decode a key's timers from the string of `encode`."""
    if text is None:
        return {}
    if text.isalnum():  # a single timer without a name
        return {text[0]: int(text[1:])}
    timers = {}
    for entry in text.split("|"):
        head, _, name = entry.partition(" ")
        timers[head[0] + (_plain(name) if "\\" in name else name)] = int(head[1:])
    return timers


def earliest(timers: Mapping[str, int]) -> tuple[int | None, int | None]:
    """Return the earliest due time of each clock: event time, processing time."""
    if len(timers) == 1:
        ((key, at),) = timers.items()
        return (at, None) if key[0] == "e" else (None, at)
    event: int | None = None
    processing: int | None = None
    for key, at in timers.items():
        if key[0] == "e":
            if event is None or at < event:
                event = at
        elif processing is None or at < processing:
            processing = at
    return event, processing


def _escaped(name: str) -> str:
    if "\\" in name or " " in name or "|" in name:
        return name.replace("\\", "\\\\").replace(" ", "\\s").replace("|", "\\p")
    return name


def _plain(name: str) -> str:
    parts = name.split("\\\\")
    return "\\".join(part.replace("\\s", " ").replace("\\p", "|") for part in parts)


class TimerCells:
    """The timers of the keys of one pass, read at the first use and written if changed.

    Attributes:
        event_limit: The latest event time that is due.
        processing_limit: The latest processing time that is due.
        changed: The timers of keys that were read, by index of the key; authoritative for these keys.
    """

    __slots__ = ("_due", "_ones", "_only", "_texts", "_touched", "changed", "event_limit", "processing_limit")

    def __init__(self, touched: Touched, moment: Moment) -> None:
        self.event_limit = BEFORE_ALL if moment.watermark_ms is None else moment.watermark_ms
        self.processing_limit = moment.now_ms
        self.changed: dict[int, dict[str, int]] = {}
        self._touched = touched
        self._texts: list[str | None] | None = None
        self._only: dict[str, list[bool]] = {}
        self._ones: dict[str, tuple[list[int], list[int]]] = {}
        self._due = {name: whole(touched.stored(name)) for name in (DUE_EVENT, DUE_PROCESSING)}

    def due(self) -> NDArray[np.bool_] | None:
        """Return a mask of keys with a stored timer that is due, or None if there is none."""
        limits = (self.event_limit, self.processing_limit)
        due = due_keys(list(self._due.values()), limits)
        return due if due.any() else None

    def of(self, position: int) -> dict[str, int]:
        """Return the timers of a key as a dict that may be changed."""
        timers = self.changed.get(position)
        if timers is None:
            if self._texts is None:
                self._texts = self.stored().to_numpy(zero_copy_only=False).tolist()
            timers = self.changed[position] = decode(self._texts[position])
        return timers

    def has_only(self, key: str) -> list[bool]:
        """Return for each key of the pass whether it had no timer other than `key`."""
        alone = self._only.get(key)
        if alone is None:
            alone = self._only[key] = only(self.stored(), key).tolist()
        return alone

    def keep_one(self, key: str, position: int, at_ms: int) -> None:
        """Set the only timer of a key."""
        ones = self._ones.get(key)
        if ones is None:
            ones = self._ones[key] = ([], [])
        ones[0].append(position)
        ones[1].append(at_ms)

    def stored(self) -> pa.Array:
        """Return the encoded timers of all keys, as stored before the pass."""
        return whole(self._touched.stored(TIMERS))

    def columns(self) -> dict[str, pa.Array]:
        """Return the timer columns of the row table; an empty dict if no key's timers were read."""
        if not self.changed and not self._ones:
            return {}
        at = [np.fromiter(self.changed, np.int64, len(self.changed))]
        texts, event, processing = ([column] for column in encode_keys(self.changed.values()))
        for key, (positions, times) in self._ones.items():
            due, none = pa.array(times, pa.int64()), pa.nulls(len(times), pa.int64())
            at.append(np.array(positions, np.int64))
            texts.append(encode_all(key, due))
            event.append(due if key[0] == "e" else none)
            processing.append(none if key[0] == "e" else due)
        places = np.concatenate(at)
        return {
            TIMERS: placed(self.stored(), places, pa.concat_arrays(texts)),
            DUE_EVENT: placed(self._due[DUE_EVENT], places, pa.concat_arrays(event)),
            DUE_PROCESSING: placed(self._due[DUE_PROCESSING], places, pa.concat_arrays(processing)),
        }


def encode_all(key: str, times: pa.Array) -> pa.Array:
    """Encode one timer per key, all with the same name; null for a null time."""
    texts = pc.binary_join_element_wise(key[0], times.cast(pa.string()), "")
    return texts if len(key) == 1 else pc.binary_join_element_wise(texts, _escaped(key[1:]), " ")


def encode_keys(timers: Collection[Mapping[str, int]]) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Encode the timers of several keys: the strings, and the earliest due time of each clock."""
    firsts = [earliest(of_key) for of_key in timers]
    event, processing = (pa.array([first[clock] for first in firsts], pa.int64()) for clock in (0, 1))
    return pa.array([encode(of_key) for of_key in timers], pa.string()), event, processing


def due_keys(columns: Sequence[pa.Array], limits: Sequence[int]) -> NDArray[np.bool_]:
    """Return a mask of keys with a due timer, from the earliest and the latest due time of each clock."""
    due = np.zeros(len(columns[0]), np.bool_)
    for column, limit in zip(columns, limits, strict=True):
        if column.null_count < len(column):
            due |= numbers(pc.fill_null(pc.less_equal(column, pa.scalar(limit, pa.int64())), False))
    return due


def only(texts: pa.Array, key: str) -> NDArray[np.bool_]:
    """Return a mask of the keys that have no timer other than `key`."""
    if texts.null_count == len(texts):
        return np.ones(len(texts), np.bool_)
    name = f" {re.escape(_escaped(key[1:]))}" if len(key) > 1 else ""
    same = pc.fill_null(pc.match_substring_regex(texts, f"^{key[0]}-?[0-9]+{name}$"), True)
    alone: NDArray[np.bool_] = same.to_numpy(zero_copy_only=False)
    return alone


def due_in_order(timers: Mapping[str, int], event_limit: int, processing_limit: int) -> list[tuple[int, str]]:
    """Return the due timers of a key in firing order: by time, then event before processing, then name."""
    return sorted(
        (at, key) for key, at in timers.items() if at <= (event_limit if key[0] == "e" else processing_limit)
    )
