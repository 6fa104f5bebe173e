"""Two supervisors with homes and host names of their own want one checkpoint on remote storage."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from process_table import runs
from running_job import until
from s3_gateway import Gateway
from tcp_proxy import TcpProxy
from telling_process import TellingProcess

from holdfast import savepoints
from holdfast.config.policies import fixed_delay
from holdfast.errors import Conflict
from holdfast.jobs.definition import strategy_fields
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.state_home import StateHome
from holdfast.ownership.checkpoint_lease import lease_note
from holdfast.storage import open_storage

pytestmark = [pytest.mark.services, pytest.mark.fault]

PROGRAM = (sys.executable, str(Path(__file__).with_name("supervisor_of_a_machine.py")))
# Long enough for a busy machine to renew it in time; a takeover waits for it to pass.
LEASE_S = 3
# A renewal takes several requests, and one over HTTP to HDFS ten times as long as one to S3.
HDFS_LEASE_S = 10


class Machine(TellingProcess):
    """A supervisor of the job on a machine of that name."""

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        host: str,
        checkpoint: str,
        *,
        elections: str = "",
        endpoint: str | None = None,
    ) -> None:
        self.host, self.home = host, folder / host
        script = folder / f"{host}.json"
        definition = {
            "name": "visits",
            "checkpoint": checkpoint,
            "on_cancel": "retain",
            "timeout_ms": None,
            "tolerable_failures": 0,
            "record": False,
            "restart": strategy_fields(fixed_delay(attempts=100, delay="100ms")),
        }
        place = definition["checkpoint"]
        lease_s = HDFS_LEASE_S if checkpoint.startswith("webhdfs:") else LEASE_S
        script.write_text(
            json.dumps({"definition": definition, "query_checkpoint": place, "attempts": [["batch", "wait"]]})
        )
        super().__init__(
            [*PROGRAM, str(script), str(self.home), str(lease_s), host, elections],
            {**os.environ, **({} if endpoint is None else {"AWS_ENDPOINT_URL": endpoint})},
        )
        stack.callback(self.end)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close_pipe()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def test_the_second_machine_is_refused_and_follows_when_the_first_is_lost(
    above: str, tmp_path: Path, stack: ExitStack
) -> None:
    checkpoint = f"{above}/jobs/visits"
    first = Machine(stack, tmp_path, "etl-1", checkpoint)
    first.await_event("batch")
    second = Machine(stack, tmp_path, "etl-2", checkpoint)
    error = second.await_event("error")
    assert error["exit_code"] == Conflict.exit_code
    assert error["error"] == "a different process owns the checkpoint"
    owner = f"etl-1 pid {first.process.pid}, job 'visits'"
    assert error["found"].startswith(f"{owner}, by the lease at {above}/")
    assert not second.heard("running")
    # So is a verb, which is told the same by whoever asks on whatever machine.
    note = lease_note(open_storage(checkpoint))
    assert note is not None
    assert note.holder == owner
    with pytest.raises(Conflict, match="a different process owns the checkpoint"):
        savepoints.rescale(made_whole(checkpoint), f"{checkpoint}-wider", partitions=3, stopped=True)

    first.process.kill()
    driver = first.heard("starting")[-1]["pid"]
    third = Machine(stack, tmp_path, "etl-3", checkpoint)
    assert third.await_event("waiting")["holder"] == owner
    third.await_event("batch")
    # What the lost machine has left cannot write any more.
    until(lambda: not runs(driver), "the driver of the lost machine is ended")
    third.process.send_signal(signal.SIGTERM)
    assert third.await_event("outcome")["state"] == "FINISHED"
    # Who leaves in order is not waited for.
    fourth = Machine(stack, tmp_path, "etl-4", checkpoint)
    fourth.await_event("batch")
    assert not fourth.heard("waiting")


def test_one_that_is_cut_off_ends_its_driver_and_goes_on_when_the_network_is_back(
    s3_gateway: Gateway, tmp_path: Path, stack: ExitStack
) -> None:
    checkpoint = f"{s3_gateway.bucket()}/visits".replace("s3:", "s3a:")
    proxy = TcpProxy(int(s3_gateway.endpoint.rpartition(":")[2]))
    stack.callback(proxy.close)
    machine = Machine(stack, tmp_path, "etl-1", checkpoint, endpoint=f"http://{proxy.address}")
    machine.await_event("batch")
    driver = machine.heard("starting")[-1]["pid"]
    proxy.cut()
    until(lambda: not runs(driver), "its driver is ended")
    proxy.mend()
    machine.await_event("batch", 2)
    machine.process.send_signal(signal.SIGTERM)
    assert machine.await_event("outcome")["state"] == "FINISHED"
    restarts = [event["text"] for event in machine.heard("restarting")]
    assert restarts
    assert Registry(StateHome(machine.home).registry).jobs()[0].state.value == "FINISHED"


def test_an_elected_leader_owns_the_lease_and_its_successor_does_not_wait_for_it(
    above: str, tmp_path: Path, stack: ExitStack
) -> None:
    """An election is known only to its candidates; the lease next to the checkpoint to everybody."""
    checkpoint, elections = f"{above}/jobs/visits", f"{above}/elections"
    first = Machine(stack, tmp_path, "etl-1", checkpoint, elections=elections)
    first.await_event("batch")
    note = lease_note(open_storage(checkpoint))
    assert note is not None
    assert note.holder == f"etl-1 pid {first.process.pid}, job 'visits'"
    # A successor leads only where it sees what the leader before has written.
    made_whole(checkpoint)
    alone = Machine(stack, tmp_path, "etl-2", checkpoint)
    assert alone.await_event("error")["error"] == "a different process owns the checkpoint"
    assert not alone.heard("running")

    standby = Machine(stack, tmp_path, "etl-3", checkpoint, elections=elections)
    standby.await_event("standby")
    first.process.kill()
    driver = first.heard("starting")[-1]["pid"]
    standby.await_event("batch")
    until(lambda: not runs(driver), "the driver of the lost machine is ended")
    assert not standby.heard("waiting")
    standby.process.send_signal(signal.SIGTERM)
    standby.await_event("outcome")
    assert lease_note(open_storage(checkpoint)) is None


def made_whole(checkpoint: str) -> str:
    """The place as a checkpoint that verbs can read; the scripted driver writes nothing there."""
    from golden import golden_files, without_checksums

    storage = open_storage(checkpoint)
    for path, data in without_checksums(golden_files("4.2/aggregate-memory")).items():
        storage.write(path, data)
    return checkpoint
