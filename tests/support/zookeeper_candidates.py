"""Candidates for a job in a real ZooKeeper."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from zookeeper_server import Server

from holdfast.errors import Unavailable
from holdfast.ownership.election import Election, Term
from holdfast.ownership.zookeeper_election import Ensemble, ZooKeeperElection

LEASE_S = 1.0
WALL_S = 1_800_000_000
_PATIENCE_S = 60


class ZooKeeperCandidates:
    """Those who want to lead one job, in a place of their own."""

    def __init__(self, server: Server) -> None:
        self._ensemble = Ensemble.of(server.address(f"holdfast-{uuid4().hex}"))
        self._made: list[ZooKeeperElection] = []

    def one(self) -> ZooKeeperElection:
        self._made.append(ZooKeeperElection(self._ensemble, "job", LEASE_S, time.monotonic, lambda: WALL_S))
        return self._made[-1]

    def close(self) -> None:
        for election in self._made:
            election.close()


@contextmanager
def candidates_at(server: Server) -> Iterator[ZooKeeperCandidates]:
    """Candidates that are ended afterwards."""
    candidates = ZooKeeperCandidates(server)
    try:
        yield candidates
    finally:
        candidates.close()


def won(election: Election) -> Term:
    """Campaign until it is won."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        with suppress(Unavailable):
            if (term := election.campaign()) is not None:
                return term
        time.sleep(0.02)
    raise AssertionError("it was never won")
