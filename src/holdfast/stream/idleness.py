"""The decision whether a stream is idle, based on the offset log of the query.

A stream is idle when the offset of its source has not changed for a given time during which Spark has asked
the source for rows. The duration of a batch and the downtime of the query prove nothing about a source,
because rows may have been waiting. So only two facts count: planned batches in the offset log, and requests
from Spark that returned no rows.

A tick is an offset of the source of ticks. It is in the offset log before its batch runs, so a repeated batch
has the same tick.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.checkpoints.logs import Logs
from holdfast.errors import Invalid
from holdfast.formats.logs.batch_logs import TICK_AT

if TYPE_CHECKING:
    from holdfast.formats.logs.batch_logs import OffsetLog
    from holdfast.storage.port import Storage


# The number of steps in the time until a stream is idle; an idle stream gets one tick per step.
_STEPS: Final = 10


_SHORTEST_STEP_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Told:
    """The start parameters of a source of ticks, passed through a file.

    Attributes:
        checkpoint: The checkpoint of the query.
        own: The index of the source of ticks in the lines of the offset log.
        watched: The indices of the watched sources in the lines of the offset log.
    """

    checkpoint: str
    own: int
    watched: tuple[int, ...]

    def write(self, place: str) -> None:
        """Write the parameters to a file."""
        Path(place).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, place: str) -> Told:
        """Read the parameters from a file.

        Raises:
            Invalid: The file is missing, because Holdfast did not start the query.
        """
        try:
            found = json.loads(Path(place).read_text())
        except FileNotFoundError as error:
            raise Invalid(
                "idle_after needs a query that is started by Holdfast",
                code="HF-E2302",
                hint="start it with hf.sink(frame)…start(checkpoint=…), or with hf.adopt(writer)",
            ) from error
        return cls(found["checkpoint"], found["own"], tuple(found["watched"]))


def offset_of(at_ms: int) -> dict[str, int]:
    """Return the offset for the event time of the newest tick; 0 before the first tick."""
    return {TICK_AT: at_ms}


def tick_of(offset: dict[str, int]) -> int:
    """Return the event time of the newest tick in an offset."""
    return int(offset[TICK_AT])


def ticks_between(start: dict[str, int], end: dict[str, int]) -> list[int]:
    """Return the event times of the ticks of a batch, given its start and end offsets."""
    return [tick_of(end)] if tick_of(end) > tick_of(start) else []


def step_ms(idle_after_ms: int) -> int:
    """Return the interval between ticks, and between reads of the offset log, in milliseconds."""
    return max(_SHORTEST_STEP_MS, idle_after_ms // _STEPS)


class IdleWatch:
    """A tracker of the watched sources during one run of a query.

    Args:
        storage: The storage of the checkpoint.
        told: The start parameters, with the lines of the offset log.
        idle_after_ms: The time without rows after which the sources are idle, in milliseconds.
    """

    def __init__(self, storage: Storage, told: Told, idle_after_ms: int) -> None:
        self._storage = storage
        self._told = told
        self._idle_after_ms = idle_after_ms
        self._step_ms = step_ms(idle_after_ms)
        self._looked_ms: int | None = None
        self._asked_ms = 0
        self._newest = -1
        self._seen: list[str | None] | None = None
        self._since_ms = 0
        self._silent_until_ms = 0

    def next(self, start: int, now_ms: int) -> int:
        """Return the event time of the newest tick, which is a new one if the sources are idle.

        Call it each time Spark asks for the latest offset, before Spark plans a batch. Once per interval it
        lists the offset log and reads a small file; other calls read nothing.

        Args:
            start: The event time of the newest tick that Spark has.
            now_ms: The current time in epoch milliseconds.

        Raises:
            Invalid: A second query uses the same frame.
        """
        asked_before, self._asked_ms = self._asked_ms, now_ms
        if self._looked_ms is not None and now_ms - self._looked_ms < self._step_ms:
            return start
        self._looked_ms = now_ms
        logs = Logs(self._storage)
        log = logs.offsets(logs.offered[-1]) if logs.offered else None
        if log is None:
            return start
        # With available_now, Spark asks from the first offset, and the result must not be lower than earlier
        # ones.
        sent = max(start, self._sent(log, start))
        self._follow(logs.offered[-1], log, asked_before, now_ms)
        silent = self._silent_until_ms
        idle = silent - self._since_ms >= self._idle_after_ms
        return silent if idle and silent - sent >= self._step_ms else sent

    def _follow(self, number: int, log: OffsetLog, asked_before: int, now_ms: int) -> None:
        """Update the start of the time without rows, and its known end."""
        lines = list(log.offsets.values())
        seen = [lines[at] for at in self._told.watched]
        if self._seen is None:
            self._since_ms = self._silent_until_ms = now_ms
        elif seen != self._seen:
            self._since_ms = self._silent_until_ms = max(self._since_ms, log.timestamp_ms)
        elif number != self._newest:
            self._silent_until_ms = max(self._silent_until_ms, log.timestamp_ms)
        else:
            # No batch was planned since, so Spark's last request returned no rows.
            self._silent_until_ms = max(self._silent_until_ms, asked_before)
        self._seen, self._newest = seen, number

    def _sent(self, log: OffsetLog, start: int) -> int:
        text = list(log.offsets.values())[self._told.own]
        sent = 0 if text is None else tick_of(json.loads(text))
        if start not in (0, sent):
            raise Invalid(
                "two queries use the same frame with idle_after",
                code="HF-E2303",
                where=self._told.checkpoint,
                hint="call hf.watermarked(…) once for each query",
            )
        return sent
