"""Work on many files at once, at a pace that leaves the query its processors."""

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
    """Do something with each item, several at a time, and give the outcomes in their order.

    The first failure ends it: what has not begun is not done, what has begun is waited for.

    Args:
        work: What to do.
        items: With what.
        workers: How many at a time; with 1 nothing but the calling thread is used.
        tell: Called with items done, items in all, and the note.
        note: Said with it.
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
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def followed(items: Collection[T], tell: ProgressCallback | None, note: str) -> Iterator[T]:
    """The items one after the other; before each it is told how many there were, and how many there are.

    Args:
        items: The items.
        tell: Called with items done, items in all, and the note.
        note: Said with it.
    """
    for done, item in enumerate(items):
        if tell is not None:
            tell(done, len(items), note)
        yield item


# Of all processors of this machine; a batch is slowed down by about as much.
SHARE: Final = 0.04
# Woken for every file, it finds nothing in the caches and takes a half longer, and so do those it displaces.
_LEAST_PAUSE_S: Final = 0.2
# A large state would be worked on for hours. What goes beyond that is done at full speed.
LONGEST_PAUSES_S: Final = 10.0
# A query whose newest batch began longer ago than that is taken for stopped, or has little to do.
_RUNS_MS: Final = 60_000


class Pace:
    """Keeps the work of one thread to a share of the machine's processors, by pauses between its steps.

    It is not waited for anything: a step that has used less than its share is followed at once by the next,
    and a few that have used little more are waited for together.

    Args:
        share: The share of all processors.
        processors: How many there are.
        longest_s: All pauses together, at the most.
        used: Seconds of a processor that this thread has used.
        clock: Seconds that have passed.
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
        """Wait until the share covers what has been used since the beginning, if that is worth a pause."""
        due = (self._used() - self._used_before) / self._rate - (self._clock() - self._began)
        if due >= _LEAST_PAUSE_S and self._left_s > 0:
            due = min(due, self._left_s)
            self._left_s -= due
            self._pause(due)

    def before(self, tell: ProgressCallback | None) -> ProgressCallback:
        """Take a step whenever something is told, and pass it on."""

        def step_and_report(done: int, total: int, note: str) -> None:
            self.step()
            if tell is not None:
                tell(done, total, note)

        return step_and_report


def seems_to_run(checkpoint: Storage, now_ms: int) -> bool:
    """Return whether a query on this machine has begun a batch of a checkpoint lately.

    Nothing in a checkpoint says whether a query uses it. Of a checkpoint elsewhere it is not asked: what is
    done here takes no processor from a query there.
    """
    newest = max(Logs(checkpoint).offered, default=None)
    if newest is None:
        return False
    written_ns = modified_ns(checkpoint, LogFile(Log.OFFSETS, newest).render())
    return written_ns is not None and now_ms - written_ns // 1_000_000 < _RUNS_MS
