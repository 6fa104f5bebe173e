"""A supervisor or a guard takes savepoints: the first one at once, and none twice of one batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.jobs.background_savepoints import Savepointing
from holdfast.jobs.definition import Periodic
from holdfast.jobs.events import JobEvent

NAME = "4.2/aggregate-changelog"
NEWEST = 11
HOUR_MS = 3_600_000
WAIT_S = 60.0


class Turns:
    """A schedule of one savepoint an hour, by a clock that goes on when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.now = int(time.time() * 1000)
        self.asked = 0
        self.catalog = folder / "catalog"
        self.checkpoint = {"visits": f"file://{golden_on_disk(NAME, folder / 'ck')}"}
        self.work = self.begun()

    def begun(self) -> Savepointing:
        settings = Periodic(f"file://{self.catalog}", every_ms=HOUR_MS, retained=3)
        return Savepointing(settings, lambda: self.now, self._may)

    def _may(self) -> bool:
        if threading.current_thread().name == "holdfast-savepoints":  # digests are asked for as well
            self.asked += 1
        return True

    def turn(self, passed_ms: int = 0) -> list[JobEvent]:
        """What is heard of savepoints in one more turn, or in the turns until something is."""
        self.now += passed_ms
        before = self.asked
        self.work.started(self.checkpoint)
        deadline = time.monotonic() + WAIT_S
        # The turn after this one begins only when this one is over.
        while self.asked < before + 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.work.started(self.checkpoint)
        while self.asked < before + 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return [event for event in self.work.heard() if "savepoint" in event.kind]


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    turns = Turns(tmp_path)
    yield turns
    turns.work.close()


def test_the_first_savepoint_of_a_catalog_is_taken_at_once(turns: Turns) -> None:
    [event] = turns.turn()
    assert (event.kind, event.facts["batch_id"]) == ("savepoint", NEWEST)
    assert turns.turn(HOUR_MS // 2) == []
    [listed] = savepoints.list(turns.catalog)
    assert listed.uri == event.facts["uri"]


def test_a_batch_that_has_a_savepoint_gets_no_second_one_and_that_is_said_once(turns: Turns) -> None:
    [taken] = turns.turn()
    [event] = turns.turn(HOUR_MS + 1)
    assert event.kind == "savepoint-unchanged"
    assert f"batch {NEWEST}" in event.text
    assert str(taken.facts["uri"]).rpartition("/")[2] in event.text
    assert turns.turn(HOUR_MS + 1) == []
    assert len(savepoints.list(turns.catalog)) == 1


def test_after_a_restart_the_schedule_goes_on_from_the_newest_savepoint(turns: Turns) -> None:
    turns.turn()
    turns.work.close()
    turns.work = turns.begun()
    assert turns.turn(HOUR_MS // 2) == []
    assert [event.kind for event in turns.turn(HOUR_MS)] == ["savepoint-unchanged"]
