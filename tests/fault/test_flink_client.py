"""Flink's own unmodified command line asks a running job: it is the judge of the shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from flink_client import FlinkClient, Said
from loopback import free_ports
from running_job import JOBS, RunningJob, running, until
from scripted_job import Scripted, serving
from served import SHOP

from holdfast import savepoints
from holdfast.jobs.registry import job_id
from holdfast.model import JobState

pytestmark = [pytest.mark.services, pytest.mark.fault]

JOB = JOBS / "counting.py"
ID = job_id("counting")
UNKNOWN = "0" * 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flink")


@pytest.fixture(scope="module")
def job(flink_client: type[FlinkClient], folder: Path) -> Iterator[tuple[RunningJob, FlinkClient]]:
    (port,) = free_ports(1)
    with running(JOB, folder, port=port) as started:
        started.await_event("batch")
        yield started, flink_client(folder, port)


def test_it_succeeds_against_a_running_job(job: tuple[RunningJob, FlinkClient], folder: Path) -> None:
    started, flink = job
    catalog = folder / "savepoints"

    listed = flink("list")
    assert listed.code == 0
    assert re.search(rf": {ID} : counting \(RUNNING\)", listed.text)
    assert "No scheduled jobs." in listed.text

    taken = flink("savepoint", ID, str(catalog))
    assert (taken.code, "Savepoint completed. Path: " in taken.text) == (0, True), taken.text
    address = found(taken, r"Path: (\S+)")
    assert savepoints.verify(address, deep=True).ok

    disposed = flink("savepoint", "-d", address)
    assert (disposed.code, f"Savepoint '{address}' disposed." in disposed.text) == (0, True), disposed.text
    assert savepoints.list(catalog) == ()

    waited = flink("checkpoint", "--full", ID)
    assert waited.code == 0, waited.text
    assert int(found(waited, r"Checkpoint\(FULL\) (\d+) for job")) >= 0

    stopped = flink("stop", "-p", str(catalog), ID)
    assert stopped.code == 0, stopped.text
    assert savepoints.verify(found(stopped, r"Path: (\S+)")).ok
    assert started.ended().kinds[-1] == "finished"


def test_it_fails_as_flinks_own_server_makes_it_fail(flink_client: type[FlinkClient], tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    with scripted.supervised(), serving(scripted.home.path) as (_, url):
        flink = flink_client(tmp_path, int(url.rpartition(":")[2]))
        catalog = str(tmp_path / "checkpoints" / "sp")
        refused(flink("savepoint", SHOP, "/etc"), "this server may not use that directory")
        refused(flink("savepoint", UNKNOWN, catalog), "there is no job")
        missing = f"{catalog}/savepoints/20260305T080000.000Z-1f0c33aa-b41-9d2e"
        refused(flink("savepoint", "-d", missing), "there is no such savepoint")
        refused(flink("checkpoint", UNKNOWN), "there is no job")
        refused(flink("stop", "-p", "/etc", SHOP), "this server may not use that directory")

        cancelled = flink("cancel", SHOP)
        assert (cancelled.code, f"Cancelled job {SHOP}." in cancelled.text) == (0, True), cancelled.text
        registry = scripted.served.registry
        until(lambda: registry.job("shop").state is JobState.CANCELED, "the job is cancelled")
        refused(flink("cancel", SHOP), "already reached another terminal state (CANCELED)")


def found(said: Said, pattern: str) -> str:
    match = re.search(pattern, said.text)
    assert match, said.text
    return match[1]


def refused(said: Said, text: str) -> None:
    assert said.code != 0
    assert "The program finished with the following exception:" in said.text
    assert text in said.text, said.text
