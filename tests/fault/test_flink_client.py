"""Flink's own unmodified command line asks a running job: it is the judge of the shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from flink_client import FlinkClient, Said
from loopback import free_ports
from running_job import JOBS, BatchLogs, RunningJob, running, until
from scripted_job import Scripted, serving
from served import SHOP

import holdfast as hf
from holdfast import savepoints
from holdfast.jobs.registry.registry import job_id
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
    catalog = folder / "checkpoint.savepoints"

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
    assert int(found(waited, r"Checkpoint\(FULL\) (\d+) for job")) in BatchLogs(folder / "checkpoint").commits

    stopped = flink("stop", "-p", str(catalog), ID)
    assert stopped.code == 0, stopped.text
    assert savepoints.verify(found(stopped, r"Path: (\S+)")).ok
    assert started.ended().kinds[-1] == "finished"


def test_a_running_job_gets_other_partitions_and_is_cancelled(
    flink_client: type[FlinkClient], tmp_path: Path
) -> None:
    """Spark's own driver on RocksDB: no number of the stream is lost or counted twice by the move."""
    (port,) = free_ports(1)
    with running(JOB, tmp_path, port=port, conf={"spark.sql.shuffle.partitions": "2"}) as started:
        started.await_event("batch", 2)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            place = f"/jobs/{ID}/resource-requirements"
            ((vertex, asked),) = client.get(place).json().items()
            assert asked == {"parallelism": {"lowerBound": 1, "upperBound": 2}}
            assert client.put(place, json={vertex: {"parallelism": {"upperBound": 3}}}).status_code == 200
            rescaled = started.await_event("rescaled")
            assert rescaled["text"] == "counting: rescaled"
            after = len([event for event in started.events if event["event"] == "batch"])
            started.await_event("batch", after + 2)
            assert client.get(place).json() == {vertex: {"parallelism": {"lowerBound": 1, "upperBound": 3}}}
        flink = flink_client(tmp_path, port)
        cancelled = flink("cancel", ID)
        assert (cancelled.code, f"Cancelled job {ID}." in cancelled.text) == (0, True), cancelled.text
        assert started.ended().kinds[-1] == "canceled"
    state = hf.state(tmp_path / "checkpoint")
    (operator,) = state.operators()
    assert operator.partitions == 3
    rows = state.arrow(operator.states[0].name).read_all().to_pylist()
    # The key's column has Spark's name for the expression.
    counts = {digit: count for digit, count, *_ in map(dict.values, rows)}
    # The stream is 0, 1, 2 and so on.
    total = sum(counts.values())
    assert counts == {digit: len(range(digit, total, 10)) for digit in range(10)}
    assert total > 0


def test_it_fails_as_flinks_own_server_makes_it_fail(flink_client: type[FlinkClient], tmp_path: Path) -> None:
    scripted = Scripted(tmp_path)
    with scripted.supervised(), serving(scripted.home.path, "--root", str(tmp_path)) as (_, url):
        flink = flink_client(tmp_path, int(url.rpartition(":")[2]))
        catalog = str(tmp_path / "checkpoints" / "sp")
        refused(flink("savepoint", SHOP, "/etc"), "is not allowed for requests to this server")
        refused(flink("savepoint", UNKNOWN, catalog), "unknown job")
        missing = f"{catalog}/savepoints/20260305T080000.000Z-1f0c33aa-b41-9d2e"
        refused(flink("savepoint", "-d", missing), "the savepoint does not exist")
        refused(flink("checkpoint", UNKNOWN), "unknown job")
        refused(flink("stop", "-p", "/etc", SHOP), "is not allowed for requests to this server")

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
