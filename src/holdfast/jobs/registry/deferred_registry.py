"""The registry of a running job's supervisor: writes that are not possible now are done later.

No job depends on the registry. So a busy file, a full disk or a lack of descriptors is waited for while a
healthy driver continues.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from holdfast.errors import Corrupt, HoldfastError, Unavailable
from holdfast.jobs.registry.registry import BATCHES_KEPT, JobRecord, Registry
from holdfast.ownership.election import LeadershipLost

T = TypeVar("T")
P = ParamSpec("P")

PATIENCE_S: Final = 1.0
_PAUSE_S: Final = 1.0
_AT_THE_END_S: Final = 60.0
# More is not kept for later: the registry itself keeps no more batches.
_MOST_WAITING: Final = BATCHES_KEPT + 200
_AWAY: Final[tuple[type[HoldfastError], ...]] = (Unavailable, Corrupt)


class DeferredRegistry:
    """Writes to a registry in the order of the calls, now or later.

    `LeadershipLost` is raised at the latest with the next call.

    Args:
        path: The registry's file.
        token: As in `Registry`.
        say: Reports when the registry becomes unavailable and available.
        wait: Waits a number of seconds for the registry if nothing can be done without it; False ends the
            wait.
    """

    def __init__(
        self,
        path: Path,
        token: int | None,
        say: Callable[[str, str], None],
        wait: Callable[[float], bool],
    ) -> None:
        self._registry = Registry(path, token, patience_s=PATIENCE_S)
        self._say = say
        self._wait = wait
        self._waiting: deque[Callable[[], object]] = deque()
        self._left_out = 0
        self._away = False
        self._next_s = 0.0

    def write_what_waits(self) -> None:
        """Retry pending writes if due, and report a change."""
        if self._waiting and time.monotonic() >= self._next_s:
            self._write()

    def settle(self, wait: Callable[[float], bool], timeout_s: float = _AT_THE_END_S) -> None:
        """Write everything before the supervisor ends; what cannot be written in time is lost.

        Args:
            wait: Waits a number of seconds; False ends the wait.
            timeout_s: The maximum time to wait.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while self._waiting and not self._write():
                if time.monotonic() >= deadline or not wait(_PAUSE_S):
                    self._say("registry", "the end of the job could not be recorded")
                    self._waiting.clear()
        except LeadershipLost:  # another supervisor has the job, and writes what happens to it
            self._waiting.clear()

    def start_job(self, record: JobRecord) -> None:
        """Call `Registry.start_job`; waits for the registry.

        Raises:
            Unavailable: The registry did not become available in time.
            Corrupt: The registry is damaged.
        """
        self._done(lambda: self._registry.start_job(record), away=(Unavailable,))

    def now(self, do: Callable[Concatenate[Registry, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method that cannot be deferred, such as `Registry.start_attempt`; waits for the registry.

        Raises:
            Unavailable: The registry did not become available in time.
        """
        return self._done(partial(do, self._registry, *args, **kwargs), _AWAY)

    def later(
        self, write: Callable[Concatenate[Registry, P], object], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Write now or later, such as `Registry.add_batch`."""
        self._waiting.append(partial(write, self._registry, *args, **kwargs))
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self._left_out += 1
        self.write_what_waits()

    def take_requests(self, job: str, now_ms: int) -> list[str]:
        """Call `Registry.take_requests`; returns none while the registry is unavailable."""
        if time.monotonic() < self._next_s:
            return []
        try:
            asked = self._registry.take_requests(job, now_ms)
        except _AWAY as error:
            self._is_away(error)
            return []
        if not self._waiting:
            self._is_back()
        return asked

    def _done(self, do: Callable[[], T], away: tuple[type[HoldfastError], ...]) -> T:
        """Call a method that cannot be deferred, after all earlier writes."""
        while True:
            try:
                self._write_all()
                done = do()
            except away as error:  # noqa: PERF203 - it is waited for
                self._is_away(error)
                if not self._wait(_PAUSE_S):
                    raise
            else:
                self._is_back()
                return done

    def _write(self) -> bool:
        """Write pending changes; False if the registry is unavailable."""
        try:
            self._write_all()
        except _AWAY as error:
            self._is_away(error)
            return False
        self._is_back()
        return True

    def _write_all(self) -> None:
        while self._waiting:
            self._waiting[0]()
            self._waiting.popleft()

    def _is_away(self, error: HoldfastError) -> None:
        self._next_s = time.monotonic() + _PAUSE_S
        if not self._away:
            self._away = True
            why = f"{error.fact}: {error.found}" if error.found else error.fact
            self._say("registry", f"{why}; the job continues, and changes are recorded later")

    def _is_back(self) -> None:
        if self._away:
            self._away = False
            self._next_s = 0.0
            lost = f", except for the oldest {self._left_out} changes" if self._left_out else ""
            self._left_out = 0
            self._say("registry", f"the registry is available again, and all changes are recorded{lost}")
