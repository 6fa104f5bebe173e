"""Candidates for a lease, with a clock that only the test moves."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from holdfast.ownership.election import Election, Term
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage.port import Storage

LEASE_S = 10.0
WALL_S = 1_800_000_000


class Clocks:
    """A monotonic clock for each candidate: they agree on how fast time goes, and on nothing else."""

    def __init__(self) -> None:
        self.passed = 0.0

    def of(self, beginning: float) -> Callable[[], float]:
        return lambda: beginning + self.passed


class Candidates:
    """Those who want to lead one job, by a lease in a storage."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.clocks = Clocks()
        self._beginnings = itertools.count(1)

    def one(self, storage: Storage | None = None, elected_at: str = "") -> StorageElection:
        clock = self.clocks.of(next(self._beginnings) * 1_000_000.0)
        place = storage or self.storage
        return StorageElection(place, "job", LEASE_S, clock, lambda: WALL_S, elected_at=elected_at)

    def passes(self, seconds: float) -> None:
        self.clocks.passed += seconds


class Meddling:
    """A storage that lets somebody else act at the n-th call of a method."""

    def __init__(self, storage: Storage, method: str, number: int, act: Callable[[], None]) -> None:
        self._storage = storage
        self._method = method
        self._left = number
        self._act = act

    def __getattr__(self, name: str) -> object:
        found = getattr(self._storage, name)
        if name != self._method:
            return found

        def call(*given: object, **named: object) -> object:
            self._left -= 1
            if self._left == 0:
                self._act()
            return found(*given, **named)

        return call


def won(election: Election) -> Term:
    term = election.campaign()
    assert term is not None
    return term
