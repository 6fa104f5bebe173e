"""Work on many files at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final, TypeVar

from holdfast.checkpoints.values import ProgressCallback

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
