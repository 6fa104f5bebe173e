"""Decide from the offset log of a query whether a stream is idle.

A stream is idle when the position of its source has not changed for a given time, in which Spark has asked
it for rows. The duration of a batch and the downtime of the query prove nothing about a source: rows may
have been waiting. So only two things count: planned batches in the offset log, and requests of Spark that
returned no rows.

The decision to send a tick is an offset of the source of ticks. It is in the offset log before its batch
runs, so a batch that is repeated has the same tick.
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


# In so many steps is the time until a stream is idle; a tick comes once in each while it is.
_STEPS: Final = 10


_SHORTEST_STEP_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Told:
    """The start parameters of a source of ticks.

    Attributes:
        checkpoint: The checkpoint of the query.
        own: The index of the source's own line in the offset log.
        watched: The indexes of the lines of the sources that it watches.
    """

    checkpoint: str
    own: int
    watched: tuple[int, ...]

    def write(self, place: str) -> None:
        """Write the parameters to a file for the source."""
        Path(place).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, place: str) -> Told:
        """Read the parameters from a file.

        Raises:
            Invalid: The file is missing: the query was not started by Holdfast.
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
    """Return the offset of a source of ticks from the event time of its newest tick; 0 before the first."""
    return {TICK_AT: at_ms}


def tick_of(offset: dict[str, int]) -> int:
    """Return the event time of the newest tick."""
    return int(offset[TICK_AT])


def ticks_between(start: dict[str, int], end: dict[str, int]) -> list[int]:
    """Return the event times of the ticks of a batch, from its offsets alone."""
    return [tick_of(end)] if tick_of(end) > tick_of(start) else []


def step_ms(idle_after_ms: int) -> int:
    """Return the interval of ticks and of reads of the offset log."""
    return max(_SHORTEST_STEP_MS, idle_after_ms // _STEPS)


class IdleWatch:
    """A tracker of the watched sources during one run of a query.

    Args:
        storage: The checkpoint.
        told: The lines of the offset log.
        idle_after_ms: The silence after which they are idle, in milliseconds.
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
        """Return the event time of the newest tick: of a new one if the sources are idle.

        Call it each time Spark asks for the latest offset, before it plans a batch. Free until the next
        interval; then it lists the offset log and reads a small file.

        Args:
            start: The event time of the newest tick, as Spark knows it.
            now_ms: The current time.

        Raises:
            Invalid: A different query uses the same frame.
        """
        asked_before, self._asked_ms = self._asked_ms, now_ms
        if self._looked_ms is not None and now_ms - self._looked_ms < self._step_ms:
            return start
        self._looked_ms = now_ms
        logs = Logs(self._storage)
        log = logs.offsets(logs.offered[-1]) if logs.offered else None
        if log is None:
            return start
        # Under available_now Spark asks from the beginning, and must not be sent back to it.
        sent = max(start, self._sent(log, start))
        self._follow(logs.offered[-1], log, asked_before, now_ms)
        silent = self._silent_until_ms
        idle = silent - self._since_ms >= self._idle_after_ms
        return silent if idle and silent - sent >= self._step_ms else sent

    def _follow(self, number: int, log: OffsetLog, asked_before: int, now_ms: int) -> None:
        """Update the start of the silence, and the time until which it is known."""
        lines = list(log.offsets.values())
        seen = [lines[at] for at in self._told.watched]
        if self._seen is None:
            self._since_ms = self._silent_until_ms = now_ms
        elif seen != self._seen:
            self._since_ms = self._silent_until_ms = max(self._since_ms, log.timestamp_ms)
        elif number != self._newest:
            self._silent_until_ms = max(self._silent_until_ms, log.timestamp_ms)
        else:
            # No batch was planned since, so Spark found no rows when it asked last.
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
