"""Files of replaced checkpoints in a bucket and on HDFS, deleted when they are no longer needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as hf
from golden import golden_files, without_checksums
from holdfast import checkpoints
from holdfast.errors import Conflict, Corrupt
from holdfast.ownership.checkpoint_lease import lease_of
from holdfast.ownership.lease import acquire
from holdfast.storage import open_storage
from holdfast.storage.port import files_below
from holdfast.storage.successors import current_address, publish_successor, replaced_by

pytestmark = pytest.mark.services

GOLDEN = "4.2/aggregate-memory"


def replaced_twice(above: str) -> str:
    """A checkpoint with two successors, none of the replaced ones retired, as by killed changes."""
    uri = f"{above}/jobs/ck"
    for number, address in enumerate((uri, f"{uri}.r1", f"{uri}.r3", f"{uri}.r4")):
        storage = open_storage(address)
        for path, data in without_checksums(golden_files(GOLDEN)).items():
            storage.write(path, data)
        if number in (1, 2):  # the last one was never published
            publish_successor(uri, number * 2 - 1, "rescale")
    return uri


def contents(address: str) -> dict[str, bytes]:
    storage = open_storage(address)
    return {path: storage.read(path) for path in files_below(storage)}


def test_only_files_of_replaced_checkpoints_are_deleted(above: str) -> None:
    uri = replaced_twice(above)
    current, unused = f"{uri}.r3", f"{uri}.r4"
    assert current_address(uri) == current
    before = {address: contents(address) for address in (current, unused)}
    planned = hf.plan_release(uri)
    assert (planned.checkpoint, planned.batch_id) == (current, checkpoints.read(uri).batch_id)
    assert [replaced.address for replaced in planned.replaced] == [uri, f"{uri}.r1"]
    assert [set(replaced.paths) for replaced in planned.replaced] == [{*before[current]} - {"metadata"}] * 2
    assert planned.size_bytes == 2 * sum(
        len(data) for path, data in before[current].items() if path != "metadata"
    )
    assert contents(uri) == before[current]  # nothing is done yet
    assert hf.release(f"{uri}.r1") == planned
    for former in (uri, f"{uri}.r1"):
        [(path, data)] = contents(former).items()
        assert path == "metadata"
        assert replaced_by(json.loads(data)) == "ck.r3"
    assert {address: contents(address) for address in before} == before
    assert current_address(uri) == current
    assert checkpoints.verify(uri).ok
    assert hf.release(uri).replaced == ()
    assert hf.plan_release(current).replaced == ()


def test_nothing_is_deleted_while_it_is_damaged_or_used(above: str) -> None:
    uri = replaced_twice(above)
    before = contents(uri)
    election = lease_of(uri, "a job")
    assert election is not None
    lease = acquire(election, uri, lambda _: True, lambda *_: None, refuse_living=True)
    assert lease is not None
    with pytest.raises(Conflict):
        hf.release(uri)
    lease.release()
    storage = open_storage(f"{uri}.r3")
    path = next(path for path in files_below(storage) if path.endswith(".delta"))
    storage.write(path, storage.read(path)[:-3], replace=True)
    for call in (hf.plan_release, hf.release):
        with pytest.raises(Corrupt, match="are kept") as caught:
            call(uri)
        assert "holdfast checkpoint verify" in (caught.value.hint or "")
    assert contents(uri) == before


_KILLED = """
import os, signal, sys
import holdfast as hf
from holdfast.storage.remote import RemoteStorage

delete, count = RemoteStorage.delete, [0]

def killed(self, path):
    delete(self, path)
    count[0] += 1
    if count[0] == 5:
        os.kill(os.getpid(), signal.SIGKILL)

RemoteStorage.delete = killed
hf.release(sys.argv[1])
"""


def test_a_killed_release_is_finished_by_the_next_one(above: str, tmp_path: Path) -> None:
    uri = replaced_twice(above)
    current = contents(f"{uri}.r3")
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, uri], cwd=tmp_path, env=dict(os.environ), timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL
    left = contents(uri)
    assert 1 < len(left) < len(current)
    assert replaced_by(json.loads(left["metadata"])) == "ck.r3"
    # The lease of the killed process ends by itself.
    assert [replaced.address for replaced in hf.release(uri).replaced] == [uri, f"{uri}.r1"]
    assert [list(contents(former)) for former in (uri, f"{uri}.r1")] == [["metadata"]] * 2
    assert contents(f"{uri}.r3") == current
