"""Work on many files in parallel, at a pace that leaves processors to the query."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final, TypeVar

from holdfast.checkpoints.checkpoint import ProgressCallback
from holdfast.checkpoints.logs import Logs
from holdfast.layout import Log, LogFile
from holdfast.savepoints.catalog import modified_ns
from holdfast.storage.port import Storage

# Waiting for a disk to flush and for an object store to answer is most of the work.
WORKERS: Final = 8
_LOOK_S: Final = 0.2

T = TypeVar("T")
R = TypeVar("R")


def each(
    work: Callable[[T], R],
    items: Iterable[T],
    workers: int,
    tell: ProgressCallback | None = None,
    note: str = "",
) -> list[R]:
    """Apply a function to each item, several at a time, and return the results in order.

    The first failure ends the work: items that have not begun are skipped, others are awaited.

    Args:
        work: The function.
        items: The items.
        workers: Number of parallel workers; 1 uses only the calling thread.
        tell: Called with the number of finished items, the number of all items, and the note.
        note: The current step.
    """
    given = list(items)
    if workers == 1 or len(given) < 2:
        return [work(item) for item in followed(given, tell, note)]
    with ThreadPoolExecutor(min(workers, len(given))) as pool:
        futures = [pool.submit(work, item) for item in given]
        waiting = set(futures)
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=_LOOK_S, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                if tell is not None:
                    tell(len(given) - len(waiting), len(given), note)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        return [future.result() for future in futures]


def followed(items: Collection[T], tell: ProgressCallback | None, note: str) -> Iterator[T]:
    """Yield the items and report the progress before each.

    Args:
        items: The items.
        tell: Called with the number of finished items, the number of all items, and the note.
        note: The current step.
    """
    for done, item in enumerate(items):
        if tell is not None:
            tell(done, len(items), note)
        yield item


# Of all processors of this machine; a batch is slowed down by about as much.
SHARE: Final = 0.04
# Woken for every file, it finds nothing in the caches and takes a half longer, and so do those it displaces.
_LEAST_PAUSE_S: Final = 0.2
# With more pauses a large state would take hours; after this limit the work runs at full speed.
LONGEST_PAUSES_S: Final = 10.0
# A query whose newest batch began longer ago counts as stopped or idle.
_RUNS_MS: Final = 60_000


class Pace:
    """A limit of one thread's processor use, enforced by pauses between steps.

    A step within the share is followed immediately by the next one; small excesses of several steps are
    combined into one pause.

    Args:
        share: The share of all processors.
        processors: The number of processors.
        longest_s: The limit of all pauses together, in seconds.
        used: Returns the processor time that this thread has used, in seconds.
        clock: Returns the elapsed time, in seconds.
        pause: Waits for a number of seconds.
    """

    def __init__(
        self,
        share: float = SHARE,
        processors: int | None = None,
        longest_s: float = LONGEST_PAUSES_S,
        *,
        used: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._rate = share * (processors or os.cpu_count() or 1)
        self._left_s = longest_s
        self._used = used
        self._clock = clock
        self._pause = pause
        self._used_before = used()
        self._began = clock()

    def step(self) -> None:
        """Pause until the processor time used so far is within the share; very short pauses are skipped."""
        due = (self._used() - self._used_before) / self._rate - (self._clock() - self._began)
        if due >= _LEAST_PAUSE_S and self._left_s > 0:
            due = min(due, self._left_s)
            self._left_s -= due
            self._pause(due)

    def before(self, tell: ProgressCallback | None) -> ProgressCallback:
        """Return a callback that calls `step` before each progress report, and passes the report on."""

        def step_and_report(done: int, total: int, note: str) -> None:
            self.step()
            if tell is not None:
                tell(done, total, note)

        return step_and_report


def seems_to_run(checkpoint: Storage, now_ms: int) -> bool:
    """Return whether a query on this machine has recently begun a batch of a checkpoint.

    A checkpoint does not record whether a query uses it. For a checkpoint on other storage this is False,
    because the work here takes no processor from a query there.
    """
    newest = max(Logs(checkpoint).offered, default=None)
    if newest is None:
        return False
    written_ns = modified_ns(checkpoint, LogFile(Log.OFFSETS, newest).render())
    return written_ns is not None and now_ms - written_ns // 1_000_000 < _RUNS_MS
