"""The registry as a supervisor writes to it while another process has it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.jobs.registry.deferred_registry import DeferredRegistry
from holdfast.jobs.registry.registry import JobRecord, Registry
from holdfast.model import JobState

pytestmark = pytest.mark.slow

JOB = JobRecord.begun("shop", "shop.py", "/data/shop", "retain", 1, None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    Registry(tmp_path / "registry.db").start_job(JOB)
    return tmp_path / "registry.db"


@pytest.fixture
def writer(file: Path) -> sqlite3.Connection:
    """Another process that writes to the registry, and is not done."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


def test_what_a_driver_cannot_start_without_is_waited_for(file: Path, writer: sqlite3.Connection) -> None:
    said: list[str] = []
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        writer.close()
        return True

    registry = DeferredRegistry(file, None, lambda kind, text: said.append(text), wait)
    assert registry.now(Registry.start_attempt, "shop", 42, 2, recovers=False) == 1
    assert len(waited) == 1
    assert "the job continues" in said[0]
    assert "is available again" in said[1]


def test_a_wait_that_is_ended_is_an_error(file: Path, writer: sqlite3.Connection) -> None:
    registry = DeferredRegistry(file, None, lambda kind, text: None, lambda seconds: False)
    with pytest.raises(Unavailable):
        registry.now(Registry.start_attempt, "shop", 42, 2, recovers=False)
    writer.close()


def test_what_can_wait_is_written_in_its_order(file: Path, writer: sqlite3.Connection) -> None:
    registry = DeferredRegistry(file, None, lambda kind, text: None, lambda seconds: True)
    registry.later(Registry.set_state, "shop", JobState.RUNNING, 2)
    registry.later(Registry.set_state, "shop", JobState.FINISHED, 3)
    writer.close()
    registry.settle(lambda seconds: True)
    assert Registry(file).job("shop").state is JobState.FINISHED
