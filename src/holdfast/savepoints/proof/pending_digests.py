"""Make pending digests one after the other, beside other work, until somebody says stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from urllib.parse import urlsplit

from holdfast.errors import Conflict, Corrupt, HoldfastError, NotFound, Unsupported
from holdfast.savepoints.catalog.catalog import load
from holdfast.savepoints.catalog.leases import Clock
from holdfast.savepoints.proof.digests import Digested, digest, pending
from holdfast.savepoints.taking.pace import Pace, seems_to_run
from holdfast.storage import open_storage
from holdfast.storage.port import Storage


class PendingDigests:
    """Makes pending digests at a pace. One that is stopped stays pending, and is begun anew later.

    Args:
        clock: The time in epoch milliseconds.
        go_on: Asked again and again; once it says no, nothing more is done.
        pause: Waits for so many seconds, or for less.
        longest_s: All pauses of one savepoint together; beyond that it is done at full speed. A periodic
            savepoint is deleted some time, and its digests are of use before that.
    """

    def __init__(
        self,
        clock: Clock,
        go_on: Callable[[], bool],
        *,
        pause: Callable[[float], object] = time.sleep,
        longest_s: float = math.inf,
    ) -> None:
        self._clock = clock
        self._go_on = go_on
        self._pause = pause
        self._longest_s = longest_s
        self._hopeless: set[str] = set()

    def newest(self, catalog: Storage, query_ids: Iterable[str]) -> Digested | None:
        """Make the digests of the newest pending savepoint of these queries.

        Returns:
            None where there is nothing to do, or it was stopped.

        Raises:
            Corrupt: The savepoint is damaged; it is passed over from now on.
            Unsupported: Its state cannot be read; likewise.
            Unavailable: The catalog does not answer.
        """
        for savepoint_id in pending(catalog, query_ids):
            if savepoint_id not in self._hopeless and self._go_on():
                try:
                    return self._digest(catalog, savepoint_id, gentle=True)
                except (NotFound, Conflict):
                    continue  # it was deleted meanwhile, or erased from
        return None

    def one(self, catalog: Storage, savepoint_id: str) -> Digested | None:
        """Make the digests of one savepoint, at a pace where its query seems to run.

        Returns:
            None if it was stopped, or is passed over.

        Raises:
            As `newest`; and
            NotFound: There is no such savepoint.
            Conflict: It has changed meanwhile.
        """
        if savepoint_id in self._hopeless or not self._go_on():
            return None
        gentle = True
        with suppress(HoldfastError):
            checkpoint = load(catalog, savepoint_id).checkpoint
            if _is_near(checkpoint, catalog.uri):
                gentle = seems_to_run(open_storage(checkpoint), self._clock())
        return self._digest(catalog, savepoint_id, gentle=gentle)

    def _digest(self, catalog: Storage, savepoint_id: str, *, gentle: bool) -> Digested | None:
        pace = Pace(longest_s=self._longest_s, pause=self._pause) if gentle else None

        def step() -> None:
            if not self._go_on():
                raise _Stopped
            if pace is not None:
                pace.step()

        try:
            return digest(catalog, savepoint_id, clock=self._clock, step=step)
        except _Stopped:
            return None
        except (Corrupt, Unsupported):
            self._hopeless.add(savepoint_id)
            raise


def _is_near(checkpoint: str, catalog: str) -> bool:
    """Return True if a checkpoint that a manifest names is on this machine, or on the host of the catalog.

    A manifest must not choose the hosts that Holdfast connects to.
    """
    return checkpoint.startswith("file://") or urlsplit(checkpoint)[:2] == urlsplit(catalog)[:2]


class _Stopped(Exception):
    """The pass is to end."""
