"""Servers and supervisors killed in the middle of what they were asked for: it is done, or it is undone.

Three kills, one of each kind, are part of every run; `HOLDFAST_GRID=all` makes twenty.
"""

from __future__ import annotations

import json
import os
import random
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grid import WHOLE
from running_job import until
from scripted_job import MEMORY, Scripted, serving
from served import SHOP, Served

from golden import golden_files
from holdfast import savepoints
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.verification.verifying import verify
from holdfast.jobs.registry.operation_log import Operation, Operations, OperationState, Rescale
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome
from holdfast.model import JobState
from holdfast.storage import open_storage
from holdfast.storage.local import LocalStorage
from holdfast.storage.port import files_below
from holdfast.storage.successors import current_address, list_successors, replaced_by

pytestmark = pytest.mark.fault

SAVEPOINT_KILLS = range(7) if WHOLE else range(1)
STOP_KILLS = range(6) if WHOLE else range(1)
RESCALE_KILLS = range(7) if WHOLE else range(1)


def ask(url: str, path: str, body: Any) -> str:
    request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["request-id"])


def ended(home: Path, operation: str) -> Operation:
    """Wait for the end of an operation, as a new server finds or makes it."""
    operations = Operations(StateHome(home))
    until(lambda: operations.get(operation).state.ended, "the operation has ended")
    return operations.get(operation)


def files(folder: Path) -> int:
    return sum(1 for each in folder.rglob("*") if each.is_file())


def moments(seed: int, folder: Path) -> Callable[[], bool]:
    """A moment of an operation: a directory has so many files."""
    wanted = random.Random(seed).choice([1, 2, 5, 10, 20, 30])
    return lambda: files(folder) >= wanted


def check_savepoints(found: Operation, catalog: Path, before: int) -> None:
    """All of it is there, or nothing of it is."""
    there = savepoints.list(catalog)
    assert all(each.problem is None and savepoints.verify(each.uri).ok for each in there)
    if found.state is OperationState.COMPLETED:
        assert found.result is not None
        (made,) = found.result["savepoints"]
        assert made["savepoint"] in {each.uri for each in there}
        assert len(there) == before + 1
    else:
        assert found.error is not None
        assert "killed" in found.error["error"], found.error
        assert len(there) == before
    assert not list(catalog.glob("takes/*.json"))
    assert not list(catalog.glob("staging/*"))


@pytest.mark.parametrize("seed", SAVEPOINT_KILLS)
def test_a_server_killed_in_a_savepoint(tmp_path: Path, seed: int) -> None:
    served = Served(tmp_path)
    checkpoint = served.checkpoint(MEMORY)
    served.job(checkpoint=checkpoint)
    catalog = tmp_path / "checkpoints" / "sp"
    with served.supervised():
        with serving(served.home.path, "--root", str(served.folder)) as (process, url):
            operation = ask(url, f"/jobs/{SHOP}/savepoints", {"target-directory": str(catalog)})
            reached = moments(seed, catalog)
            operations = Operations(served.home)
            until(lambda: reached() or operations.get(operation).state.ended, "the savepoint is under way")
            process.send_signal(signal.SIGKILL)
            process.wait()
        with serving(served.home.path, "--root", str(served.folder)):
            found = ended(served.home.path, operation)
            check_savepoints(found, catalog, 0)
            until(lambda: files(served.home.path / "operating") == 1, "nothing of the dead server is left")
    assert verify(LocalStorage(checkpoint)).ok


@pytest.mark.parametrize("seed", STOP_KILLS)
def test_a_server_killed_in_a_stop_with_a_savepoint(tmp_path: Path, seed: int) -> None:
    served = Served(tmp_path)
    served.job(checkpoint=served.checkpoint(MEMORY))
    catalog = tmp_path / "checkpoints" / "sp"
    with served.supervised():
        with serving(served.home.path, "--root", str(served.folder)) as (process, url):
            operation = ask(url, f"/jobs/{SHOP}/stop", {"targetDirectory": str(catalog)})
            late = seed % 2 == 1
            if late:  # the job has ended, and the savepoint is being taken
                until(lambda: served.registry.was_asked("shop", "stop", 0), "the job is asked to stop")
                served.registry.set_state("shop", JobState.FINISHED, 0)
                until(moments(seed, catalog), "the savepoint is under way")
            process.send_signal(signal.SIGKILL)
            process.wait()
        operations = Operations(served.home)
        with serving(served.home.path, "--root", str(served.folder)):

            def asked() -> bool:
                return served.registry.was_asked("shop", "stop", 0)

            # One that nobody had begun is begun now; of one that had begun, the job was asked or it was not.
            until(lambda: asked() or operations.get(operation).state.ended, "the operation goes on")
            if asked():
                served.registry.set_state("shop", JobState.FINISHED, 0)
            found = ended(served.home.path, operation)
    if asked():
        # Once the job has been stopped for it, it is finished, whoever does it.
        assert found.state is OperationState.COMPLETED, found.error
        check_savepoints(found, catalog, 0)
    else:
        # It was killed before it had asked.
        assert found.state is OperationState.FAILED


class Rescaled(Scripted):
    """One that is rescaled."""

    def ask(self, partitions: int) -> str:
        operation = os.urandom(16).hex()
        operations = Operations(self.home)
        operations.ask(operation, "rescale", "shop", Rescale({"q": partitions}), 0)
        Registry(self.home.registry).request("shop", "rescale", 0)
        return operation

    @property
    def made(self) -> list[Path]:
        return list(self.checkpoint.parent.glob(f"{self.checkpoint.name}.rescale-*"))

    @property
    def kept(self) -> list[Path]:
        return list(self.checkpoint.parent.glob(f"{self.checkpoint.name}.before-*"))

    def check(self, found: Operation, partitions: int) -> None:
        """The old checkpoint is as it was, or the new one is in its place and the old one kept."""
        storage = LocalStorage(self.checkpoint)
        assert verify(storage).ok
        assert contents(storage) == self.before
        assert self.made == []
        spread = {each.partitions for each in read(storage).operators}
        if found.state is OperationState.COMPLETED:
            assert spread == {partitions}
            (kept,) = self.kept
            assert tree(kept) == golden_files(MEMORY)
        else:
            assert found.error is not None
            assert "killed" in found.error["error"], found.error
            assert self.kept == []
            assert tree(self.checkpoint) == golden_files(MEMORY)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_a_running_job_is_rescaled_between_two_drivers(tmp_path: Path) -> None:
    job = Rescaled(tmp_path)
    with job.supervised():
        operation = job.ask(5)
        found = ended(job.home.path, operation)
        assert found.state is OperationState.COMPLETED, found.error
        until(lambda: len(job.served.registry.attempts("shop")) == 2, "the next driver is started")
        assert job.served.registry.attempts("shop")[0].ending == "stopped"
        job.check(found, 5)


@pytest.mark.parametrize("seed", RESCALE_KILLS)
def test_a_supervisor_killed_in_a_rescale(tmp_path: Path, seed: int) -> None:
    job = Rescaled(tmp_path)

    def kept() -> bool:
        return bool(job.kept)

    reached: list[Callable[[], bool]] = [
        lambda: any(files(each) > 5 for each in job.made),
        lambda: bool(job.made),
        (job.home.job("shop") / "rescale.lock").exists,
        lambda: any((each / "metadata").exists() for each in job.made) or bool(job.kept),
        kept,
        lambda: any(files(each) > 20 for each in job.made) or bool(job.kept),
        lambda: "swapping" in operations.get(operation).steps,
    ]
    with job.supervised() as process:
        operation = job.ask(5)
        operations = Operations(job.home)
        until(reached[seed], "the rescale is under way")
        process.kill()
        process.wait()
    # Whoever comes next mends it: the supervisor that runs the job again, or a server.
    if seed % 2:
        with job.supervised():
            found = ended(job.home.path, operation)
    else:
        with serving(job.home.path, "--root", str(job.served.folder)):
            found = ended(job.home.path, operation)
    job.check(found, 5)


@pytest.mark.services
@pytest.mark.parametrize("moment", ["making", "made", "published"] if WHOLE else ["made"])
def test_a_supervisor_killed_in_a_rescale_on_remote_storage(above: str, tmp_path: Path, moment: str) -> None:
    uri = f"{above}/jobs/ck"
    job = Rescaled(tmp_path, uri)
    checkpoint, successor = open_storage(uri), open_storage(f"{uri}.r1")
    files_before = {path: checkpoint.read(path) for path in files_below(checkpoint)}
    reached: dict[str, Callable[[], bool]] = {
        "making": lambda: bool(successor.list().names),
        "made": lambda: successor.size("metadata") is not None,
        "published": lambda: list_successors(uri) == [1],
    }
    with job.supervised() as process:
        operation = job.ask(5)
        until(reached[moment], "the rescale is under way")
        process.kill()
        process.wait()
    with job.supervised():
        found = ended(job.home.path, operation)
    current = open_storage(current_address(uri))
    assert contents(current) == job.before
    if found.state is OperationState.COMPLETED:
        assert current.uri == f"{uri}.r1"
        assert {operator.partitions for operator in read(current).operators} == {5}
        # No query can start on the former one.
        assert replaced_by(json.loads(checkpoint.read("metadata"))) == "ck.r1"
    else:
        assert found.error is not None
        assert "killed" in found.error["error"], found.error
        assert current.uri == uri
        assert {path: checkpoint.read(path) for path in files_below(checkpoint)} == files_before
