"""Of several that make a checkpoint at one place one does, and the files of a living one are let be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from catalogs import Hands, catalog, file_query, target

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.checkpoints.verification.verifying import verify
from holdfast.errors import Conflict, HoldfastError
from holdfast.ownership.checkpoint_guard import Timing
from holdfast.ownership.process_identity import this_machine
from holdfast.ownership.target_claim import claimed
from holdfast.savepoints.restoring import RestoreKind, RestorePlan, plan_restore, restore
from holdfast.storage.local import LocalStorage
from holdfast.storage.memory import MemoryStorage
from holdfast.storage.port import Storage

LEASE = "_holdfast/.making.tmp"


@dataclass
class Gate:
    """Stops a maker where it begins to copy, until it is let through."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def tell(self, _done: int, _total: int, what: str) -> None:
        if what == "copying":
            self.reached.set()
            assert self.opened.wait(60)


@dataclass
class Clocks:
    """A time that passes only where somebody waits."""

    now_s: float = 1000.0

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def timing(self) -> Timing:
        return Timing(lambda: int(self.now_s * 1000), lambda: self.now_s, self.pause)


@contextmanager
def making(work: Callable[[Gate], object]) -> Iterator[list[HoldfastError | None]]:
    """Within the block a maker is at work and stands still; the list has how it ended afterwards."""
    gate, ended = Gate(), list[HoldfastError | None]()

    def run() -> None:
        try:
            work(gate)
        except HoldfastError as error:
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=run)
    thread.start()
    assert gate.reached.wait(60)
    try:
        yield ended
    finally:
        gate.opened.set()
        thread.join()


def plan_of(into: Storage, savepoint_id: str, new: Storage) -> RestorePlan:
    return plan_restore(into, savepoint_id, new, RestoreKind.RESTORE, workers=1)


@pytest.fixture(params=["disk", "memory"])
def new(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return target() if request.param == "memory" else LocalStorage(tmp_path / "new")


def files(storage: Storage, folder: str = "") -> set[str]:
    """The files of a checkpoint without state."""
    found = set()
    for name in storage.list(folder).names:
        path = f"{folder}/{name}" if folder else name
        found |= files(storage, path) if storage.size(path) is None else {path}
    return found


def beside_a_living_one(new: Storage) -> Timing:
    """Clocks of one that watches the lease of a maker, whose beat moves meanwhile; a disk has no lease."""
    clocks = Clocks()

    def pause(seconds: float) -> None:
        clocks.pause(seconds)
        beat = next(name for name in new.list(LEASE).names if name.endswith(".beat"))
        new.write(f"{LEASE}/{beat}", f"alive at {clocks.now_s}".encode(), replace=True)

    return Timing(lambda: 1000, lambda: clocks.now_s, pause)


# A savepoint has the last two batches of each log.
WHOLE = {"_holdfast/origin.json"} | (set(file_query(3)) - {"offsets/0", "commits/0", "sources/0/3"})


def test_one_that_planned_before_leaves_a_living_one_alone(new: Storage) -> None:
    hands, into = Hands(), catalog()
    saved = hands.take(MemoryStorage(file_query(3)), into).manifest.savepoint_id
    early = plan_of(into, saved, new)
    first = plan_of(into, saved, new)
    with making(lambda gate: restore(into, new, first, workers=1, tell=gate.tell)) as ended:
        with pytest.raises(Conflict, match=r"another command is creating|a different process owns"):
            restore(into, new, early, timing=beside_a_living_one(new), workers=1)
        assert new.size("metadata") is None
    assert ended == [None]
    made = files(new)
    assert made == WHOLE
    with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty"):
        restore(into, new, early, workers=1)
    assert files(new) == made
    assert verify(new).ok


def test_what_was_left_over_at_the_plan_is_another_ones_by_now(new: Storage) -> None:
    hands, into = Hands(), catalog()
    saved = hands.take(MemoryStorage(file_query(3)), into).manifest.savepoint_id
    new.write("_holdfast/origin.json", _mark(into, saved, batch=2))
    new.write("offsets/1", b"half of another")
    early = plan_of(into, saved, new)
    assert early.left == ("_holdfast/origin.json", "offsets/1")
    hands.restore(into, saved, new)
    with pytest.raises(Conflict, match="the directory of the new checkpoint is not empty"):
        restore(into, new, early, workers=1)
    assert files(new) == WHOLE
    assert verify(new).ok


def test_a_mark_of_a_killed_try_says_what_is_made_now(new: Storage) -> None:
    """As where a checkpoint has gone on between two tries to move its state."""
    hands, into = Hands(), catalog()
    saved = hands.take(MemoryStorage(file_query(3)), into).manifest.savepoint_id
    new.write("_holdfast/origin.json", _mark(into, saved, batch=7))
    hands.restore(into, saved, new)
    assert json.loads(new.read("_holdfast/origin.json"))["batch"] == 2
    assert verify(new).ok


def _mark(into: Storage, saved: str, batch: int) -> bytes:
    uri = f"{into.uri}/savepoints/{saved}"
    return json.dumps({"operation": "restore", "savepoint": uri, "query_id": "x", "batch": batch}).encode()


def test_a_maker_elsewhere_that_gives_no_sign_of_life_is_followed_when_its_lease_is_over() -> None:
    hands, into, new = Hands(), catalog(), target()
    saved = hands.take(MemoryStorage(file_query(3)), into).manifest.savepoint_id
    new.write("_holdfast/origin.json", _mark(into, saved, batch=2))
    new.write("offsets/1", b"half of another")
    claim = {"id": "1", "holder": "elsewhere pid 1, maker " + 32 * "0", "lease_s": 30.0}
    new.write(f"{LEASE}/{1:020}.claim", json.dumps(claim).encode())
    new.write(f"{LEASE}/{1:020}.beat", b"1 1")
    clocks = Clocks()
    told: list[str] = []
    plan = plan_of(into, saved, new)
    restore(
        into, new, plan, timing=clocks.timing, workers=1, tell=lambda _done, _total, what: told.append(what)
    )
    assert 1030 <= clocks.now_s < 1040
    assert "elsewhere pid 1" in told[0]
    assert files(new) == WHOLE
    assert verify(new).ok


@pytest.mark.parametrize(("machine", "waits"), [(this_machine(), False), ("{host} boot pid:[1]", True)])
def test_a_maker_of_this_machine_that_has_died_is_not_waited_for(machine: str, waits: bool) -> None:
    """In a container with the same host name the number means a different process, which may live."""
    hands, into, new = Hands(), catalog(), target()
    saved = hands.take(MemoryStorage(file_query(3)), into).manifest.savepoint_id
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    new.write("_holdfast/origin.json", _mark(into, saved, batch=2))
    host = os.uname().nodename
    claim = {
        "id": "1",
        "holder": f"{host} pid {gone.pid}, maker " + 32 * "0",
        "process": {"machine": machine.format(host=host), "pid": gone.pid, "started": 1},
        "lease_s": 30.0,
    }
    new.write(f"{LEASE}/{1:020}.claim", json.dumps(claim).encode())
    new.write(f"{LEASE}/{1:020}.beat", b"1 1")
    clocks = Clocks()
    restore(into, new, plan_of(into, saved, new), timing=clocks.timing, workers=1)
    assert (clocks.now_s >= 1030) is waits
    assert files(new) == WHOLE


def test_a_maker_that_has_lost_its_lease_does_not_finish() -> None:
    hands, into, new = Hands(), catalog(), target()
    saved = hands.take(MemoryStorage(file_query(3)), into).manifest.savepoint_id
    clocks = Clocks()

    def frozen(_done: int, _total: int, what: str) -> None:
        if what == "reading back":
            clocks.now_s += 60

    plan = plan_of(into, saved, new)
    with pytest.raises(Conflict, match="another command is creating this checkpoint"):
        restore(into, new, plan, timing=clocks.timing, workers=1, tell=frozen)
    assert new.size("metadata") is None


def test_a_maker_whose_directory_was_taken_away_does_not_finish(tmp_path: Path) -> None:
    hands, into, new = Hands(), catalog(), LocalStorage(tmp_path / "new")
    saved = hands.take(MemoryStorage(file_query(3)), into).manifest.savepoint_id

    def taken_away(_done: int, _total: int, what: str) -> None:
        if what == "reading back":
            (tmp_path / "new/_holdfast/origin.json").unlink(missing_ok=True)

    plan = plan_of(into, saved, new)
    with pytest.raises(Conflict, match="another command is creating this checkpoint"):
        restore(into, new, plan, workers=1, tell=taken_away)
    assert new.size("metadata") is None


MAKER = """
import sys
from holdfast import savepoints

def tell(done, total, what):
    if what == "copying" and done > 5:
        print("copying", flush=True)
        sys.stdin.read()

savepoints.restore(sys.argv[1], sys.argv[2], tell=tell)
"""


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    saved = savepoints.take(golden_on_disk("4.2/aggregate-format2", tmp_path / "ck"), tmp_path / "sp").uri
    new = tmp_path / "new"
    first = subprocess.Popen(
        [sys.executable, "-c", MAKER, saved, str(new)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdout is not None
    try:
        assert first.stdout.readline() == b"copying\n"
        there = files(LocalStorage(new))
        assert len(there) > 5
        with pytest.raises(Conflict, match="another command is creating this checkpoint"):
            savepoints.restore(saved, new)
        assert files(LocalStorage(new)) == there
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    savepoints.restore(saved, new)
    assert verify(LocalStorage(new)).ok


def test_a_rescale_leaves_a_living_one_alone(tmp_path: Path) -> None:
    saved = savepoints.take(golden_on_disk("4.2/aggregate-format2", tmp_path / "ck"), tmp_path / "sp").uri
    new = LocalStorage(tmp_path / "new")
    mark = json.dumps({"operation": "rescale", "savepoint": saved, "query_id": "x"}).encode()
    with claimed(new, mark):
        new.write("offsets/11", b"a living one's")
        with pytest.raises(Conflict, match="another command is creating this checkpoint"):
            savepoints.rescale(saved, tmp_path / "new", partitions=3)
        assert new.read("offsets/11") == b"a living one's"
    made = savepoints.rescale(saved, tmp_path / "new", partitions=3)
    assert made.batch_id == verify(new).batch_id


def test_a_checkpoint_that_has_lost_all_that_it_was_made_with_is_damaged(new: Storage) -> None:
    hands, into = Hands(), catalog()
    saved = hands.take(MemoryStorage(file_query(3)), into).manifest.savepoint_id
    hands.restore(into, saved, new)
    for path in files(new) - {"metadata", "_holdfast/origin.json"}:
        new.delete(path)
    (problem,) = verify(new).problems
    assert problem.file == "commits/2"
    assert problem.what == "the checkpoint was made at batch 2, but the commit of that batch is missing"


@pytest.mark.parametrize(("lost", "damaged"), [({"commits/2"}, True), ({"commits/2", "offsets/2"}, False)])
def test_a_checkpoint_of_the_batch_before_is_whole_by_itself(lost: set[str], damaged: bool) -> None:
    """A savepoint of an earlier batch, taken of a restored checkpoint, has the same mark."""
    hands, into, new = Hands(), catalog(), target()
    saved = hands.take(MemoryStorage(file_query(3)), into).manifest.savepoint_id
    hands.restore(into, saved, new)
    for path in lost:
        new.delete(path)
    assert [problem.file for problem in verify(new).problems] == (["commits/2"] if damaged else [])
