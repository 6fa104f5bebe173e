"""Flink's own unmodified command line asks a running job: it is the judge of the shapes."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from flink_client import FlinkClient, Said
from running_job import JOBS, RunningJob, running

from holdfast import savepoints
from holdfast.jobs.registry import job_id

pytestmark = [pytest.mark.services, pytest.mark.fault]

JOB = JOBS / "counting.py"
ID = job_id("counting")
UNKNOWN = "0" * 32
MISSING = "20260305T080000.000Z-1f0c33aa-b41-9d2e"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flink")


@pytest.fixture(scope="module")
def job(flink_client: type[FlinkClient], folder: Path) -> Iterator[tuple[RunningJob, FlinkClient]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running(JOB, folder, port=port) as started:
        started.await_event("batch")
        yield started, flink_client(folder, port)


def test_flinks_command_line_works_unmodified(job: tuple[RunningJob, FlinkClient], folder: Path) -> None:
    _, flink = job
    catalog = folder / "savepoints"

    listed = flink("list")
    assert listed.code == 0
    assert re.search(rf": {ID} : counting \(RUNNING\)", listed.text)
    assert "No scheduled jobs." in listed.text

    taken = flink("savepoint", ID, str(catalog))
    assert (taken.code, "Savepoint completed. Path: " in taken.text) == (0, True), taken.text
    address = found(taken, r"Path: (\S+)")
    assert savepoints.verify(address, deep=True).ok
    refused(flink("savepoint", ID, "/etc"), "this server may not use that directory")
    refused(flink("savepoint", UNKNOWN, str(catalog)), "there is no job")

    disposed = flink("savepoint", "-d", address)
    assert (disposed.code, f"Savepoint '{address}' disposed." in disposed.text) == (0, True), disposed.text
    assert savepoints.list(catalog) == ()
    refused(flink("savepoint", "-d", f"{catalog}/savepoints/{MISSING}"), "there is no such savepoint")

    waited = flink("checkpoint", ID)
    assert waited.code == 0, waited.text
    assert int(found(waited, r"Checkpoint (\d+) for job")) >= 0
    assert flink("checkpoint", "--full", ID).code == 0
    refused(flink("checkpoint", UNKNOWN), "there is no job")

    refused(flink("stop", "-p", "/etc", ID), "this server may not use that directory")
    stopped = flink("stop", "-p", str(catalog), ID)
    assert stopped.code == 0, stopped.text
    assert savepoints.verify(found(stopped, r"Path: (\S+)")).ok
    refused(flink("stop", "-p", str(catalog), ID), "has already ended")
    refused(flink("cancel", UNKNOWN), "Job could not be found.")


def test_the_job_has_ended_as_it_was_told(job: tuple[RunningJob, FlinkClient]) -> None:
    assert job[0].ended().kinds[-1] == "finished"


def found(said: Said, pattern: str) -> str:
    match = re.search(pattern, said.text)
    assert match, said.text
    return match[1]


def refused(said: Said, text: str) -> None:
    assert said.code != 0
    assert "The program finished with the following exception:" in said.text
    assert text in said.text, said.text
