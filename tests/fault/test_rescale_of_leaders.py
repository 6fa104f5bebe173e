"""A job with several supervisors is rescaled while it runs, and its leader is lost at each step of that.

The next leader continues with one of the two checkpoints, and a suspended leader changes nothing afterwards.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hdfs_cluster import Cluster
from rescaling_leader import ELSEWHERE, ON_DISK
from s3_gateway import Gateway
from scripted_job import MEMORY
from telling_process import TellingProcess

from golden import golden_files, golden_on_disk, without_checksums
from holdfast.checkpoints.checkpoint import read
from holdfast.checkpoints.state.contents import contents
from holdfast.checkpoints.verification.verifying import verify
from holdfast.config.policies import fixed_delay
from holdfast.jobs.definition import strategy_fields
from holdfast.jobs.registry.operation_log import Operation, Operations, OperationState, Rescale
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.rescaler import recover_left_behind
from holdfast.jobs.state_home import StateHome
from holdfast.storage import open_storage
from holdfast.storage.port import Storage
from holdfast.storage.successors import current_address

pytestmark = pytest.mark.fault

PROGRAM = (sys.executable, str(Path(__file__).with_name("rescaling_leader.py")))
# Long enough for a busy machine to renew it in time; a takeover waits for it to pass.
LEASE_S, LEASE_ELSEWHERE_S = 6, 10
MARKER = "the-next-leader-was-here"
# With the record of the decision, the next leader finishes the rescale.
FOLLOWED = ("made", "decided", "exchanged", "published")
UNDECIDED = ("before it begins", "begun", "made", "before it is decided")


class Leaders:
    """Supervisors of one job, each with a state home and a host name of its own."""

    def __init__(
        self, folder: Path, uri: str, elections: str, stack: ExitStack, lease_s: int = LEASE_S
    ) -> None:
        self.folder, self.uri, self.elections, self._stack = folder, uri, elections, stack
        self._lease_s = lease_s
        self.before = contents(open_storage(uri))

    def home(self, host: str) -> StateHome:
        return StateHome(self.folder / host)

    def start(self, host: str, step: str = "never", signal_name: str = "SIGKILL") -> TellingProcess:
        script = self.folder / f"{host}.json"
        definition = {
            "name": "shop",
            "checkpoint": self.uri,
            "on_cancel": "retain",
            "timeout_ms": None,
            "tolerable_failures": 0,
            "record": False,
            "restart": strategy_fields(fixed_delay(attempts=100, delay="100ms")),
        }
        script.write_text(
            json.dumps({"definition": definition, "query_checkpoint": self.uri, "attempts": [["wait"]]})
        )
        home = self.home(host).path
        process = TellingProcess(
            [*PROGRAM, str(script), str(home), self.elections, str(self._lease_s), host, step, signal_name]
        )
        self._stack.callback(self._end, process)
        return process

    def _end(self, process: TellingProcess) -> None:
        process.process.kill()
        process.process.wait()
        process.close_pipe()

    def ask(self, host: str, partitions: int) -> str:
        operation, home = os.urandom(16).hex(), self.home(host)
        Operations(home).ask(operation, "rescale", "shop", Rescale({"q": partitions}), 0)
        Registry(home.registry).request("shop", "rescale", 0)
        return operation

    def settled(self, host: str, operation: str) -> Operation:
        """Return the operation as a server of its state home finds that it ended."""
        home, operations = self.home(host), Operations(self.home(host))
        recover_left_behind(home, operations, operations.get(operation), lambda: 1)
        return operations.get(operation)

    @property
    def current(self) -> Storage:
        return open_storage(current_address(self.uri))

    @property
    def partitions(self) -> set[int]:
        return {operator.partitions for operator in read(self.current).operators}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def on_disk(tmp_path: Path, stack: ExitStack) -> Leaders:
    checkpoint = golden_on_disk(MEMORY, tmp_path / "checkpoints" / "ck")
    return Leaders(tmp_path, checkpoint.as_uri(), str(tmp_path / "elections"), stack)


def elsewhere(root: str, tmp_path: Path, stack: ExitStack) -> Leaders:
    storage = open_storage(f"{root}/jobs/ck")
    for path, data in without_checksums(golden_files(MEMORY)).items():
        storage.write(path, data)
    return Leaders(tmp_path, storage.uri, f"{root}/elections", stack, LEASE_ELSEWHERE_S)


def check(leaders: Leaders, step: str, signal_name: str) -> None:
    first = leaders.start("etl-1", step, signal_name)
    first.await_event("running")
    second = leaders.start("etl-2")
    second.await_event("standby")
    before = leaders.partitions
    operation = leaders.ask("etl-1", 5)
    first.await_event("step")
    second.await_event("running")
    expected = before if step in UNDECIDED else {5}
    assert leaders.partitions == expected
    leaders.current.write(MARKER, b"")  # what only the checkpoint of the next leader's driver has
    if signal_name == "SIGSTOP":
        first.process.send_signal(signal.SIGCONT)
        first.await_event("deposed")
        first.await_event("standby")
    assert leaders.partitions == expected
    assert leaders.current.size(MARKER) is not None
    assert contents(leaders.current) == leaders.before
    assert verify(leaders.current).ok
    if step != "before it begins":
        first.process.kill()
        first.process.wait()
        ended = leaders.settled("etl-1", operation)
        assert (ended.state is OperationState.COMPLETED) == (step not in UNDECIDED), ended.error
    if step not in FOLLOWED:
        return
    # The next leader rescales, too; the third one knows nothing of all that.
    again = leaders.ask("etl-2", 3)
    second.await_event("rescaled")
    assert Operations(leaders.home("etl-2")).get(again).state is OperationState.COMPLETED
    second.await_event("running", 2)
    assert leaders.partitions == {3}
    assert contents(leaders.current) == leaders.before
    second.process.kill()
    third = leaders.start("etl-3")
    third.await_event("running")
    assert leaders.partitions == {3}
    assert verify(leaders.current).ok


@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("step", ON_DISK)
def test_a_leader_lost_in_a_rescale_on_a_shared_disk(
    tmp_path: Path, stack: ExitStack, step: str, signal_name: str
) -> None:
    check(on_disk(tmp_path, stack), step, signal_name)
    assert [each.name for each in (tmp_path / "checkpoints").iterdir() if ".rescale-" in each.name] == []


@pytest.mark.services
@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("step", ELSEWHERE)
def test_a_leader_lost_in_a_rescale_in_a_bucket(
    s3_gateway: Gateway, tmp_path: Path, stack: ExitStack, step: str, signal_name: str
) -> None:
    check(elsewhere(s3_gateway.bucket().replace("s3:", "s3a:"), tmp_path, stack), step, signal_name)


@pytest.mark.services
@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGSTOP"])
@pytest.mark.parametrize("step", ELSEWHERE)
def test_a_leader_lost_in_a_rescale_on_hdfs(
    hdfs_cluster: Cluster, tmp_path: Path, stack: ExitStack, step: str, signal_name: str
) -> None:
    check(elsewhere(hdfs_cluster.root(), tmp_path, stack), step, signal_name)
