"""Power cuts at every step of what writes: nothing promised is gone, and nothing torn is called whole.

What a disk may hold after a cut, and which file systems are modelled, is in `power_cuts`.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import power_cut_programs as programs
import power_cut_query as query
import pytest
from grid import WHOLE
from power_cuts import EXT4, POSIX, Recording, State, Tree, cleared

import holdfast as hf
from golden import golden_on_disk
from holdfast import checkpoints, savepoints
from holdfast.checkpoints.record import RecordFile
from holdfast.checkpoints.state.contents import contents
from holdfast.errors import HoldfastError
from holdfast.jobs.registry.registry import REGISTRY
from holdfast.ownership.storage_election import StorageElection
from holdfast.storage.local import LocalStorage
from holdfast.storage.shared_database import SharedDatabase


def _why_not() -> str | None:
    """Why nothing can be recorded here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    try:
        tried = subprocess.run(
            ["strace", "-f", "--seccomp-bpf", "-e", "trace=fsync", "--syscall-times=ns", "true"],
            capture_output=True,
            timeout=20,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "strace does not end here"
    return None if tried.returncode == 0 else f"strace cannot trace here: {tried.stderr.decode()[-200:]}"


WHY_NOT = _why_not()
pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT)),
    pytest.mark.usefixtures("guards_wait_no_time"),
]
SMALL = "3.5/dedupe-memory"
Check = Callable[[Path, State], None]


class Cut:
    """A directory in which a program runs, and each state of it after a cut."""

    def __init__(self, folder: Path, name: str = SMALL) -> None:
        self.root = folder / "place"
        self.root.mkdir()
        self.name = name
        golden_on_disk(name, self.root / programs.CHECKPOINT)

    def save(self, *, batch: int | None = None) -> str:
        """Take a savepoint, which no cut can touch any more."""
        return savepoints.take(
            self.root / programs.CHECKPOINT,
            self.root / programs.CATALOG,
            batch=batch,
            home=self.root / "home",
        ).uri

    def every(self, program: str, check: Check, models: tuple[str, ...] = (POSIX, EXT4)) -> int:
        """Run a program, and check every state after a cut; the number of states."""
        recording = Recording(self.root)
        recording.run([sys.executable, str(Path(programs.__file__)), program], env=_environment())
        count = 0
        failures: dict[str, str] = {}
        for model in models:
            states = recording.states(model)
            for state in states if WHOLE else sample(states):
                count += 1
                cleared(self.root)
                state.tree.write_to(self.root)
                try:
                    check(self.root, state)
                except (AssertionError, HoldfastError, sqlite3.Error) as error:
                    failures.setdefault(f"{error!r}"[:300], f"{state.promised[-1:]} {state.how}")
        assert not failures, "\n".join(f"{how}: {what}" for what, how in failures.items())
        assert count > 10
        return count


def sample(states: Iterator[State], at_most: int = 24) -> list[State]:
    """A part of the states, drawn by a fixed seed."""
    every = list(states)
    return random.Random(5).sample(every, min(at_most, len(every)))


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.fixture
def cut(tmp_path: Path, memory_folder: Path) -> Cut:
    return Cut(memory_folder)


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory: thousands of states are written, and none needs to last."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path.resolve()
        return
    folder = cleared(memory / f"power-cuts-{os.getpid()}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def whole(root: Path) -> dict[str, savepoints.Listed]:
    """The savepoints that are listed; each is proved."""
    found = {each.uri: each for each in savepoints.list(root / programs.CATALOG)}
    for uri in found:
        proof = savepoints.verify(uri)
        assert proof.ok, f"{uri} is listed and not whole: {proof.problems[:2]}"
    return found


def test_take(cut: Cut) -> None:
    before = tree_of(cut.root / programs.CHECKPOINT)

    def check(root: Path, state: State) -> None:
        found = whole(root) if (root / programs.CATALOG).exists() else {}
        assert not set(state.promised) - found.keys(), "a savepoint is gone"
        assert tree_of(root / programs.CHECKPOINT) == before
        if state.number % 10 == 0:
            taken = savepoints.take(root / programs.CHECKPOINT, root / programs.CATALOG, home=root / "home")
            savepoints.gc(root / programs.CATALOG, older_than="0s")
            assert taken.uri in whole(root)

    cut.every("take", check)


def test_label(cut: Cut) -> None:
    cut.save()

    def check(root: Path, state: State) -> None:
        (saved,) = whole(root).values()
        order = [None, "first", "second"]
        label = saved.manifest.label  # type: ignore[union-attr]
        least = order.index(state.promised[-1]) if state.promised else 0
        assert label in order[least : least + 2], f"label {label!r}"

    cut.every("label", check)


@pytest.mark.parametrize("program", ["restore", "change"])
def test_new_checkpoint(cut: Cut, program: str) -> None:
    cut.save()
    before = tree_of(cut.root / programs.CHECKPOINT)
    expected = contents(LocalStorage(cut.root / programs.CHECKPOINT))

    def check(root: Path, state: State) -> None:
        new = root / programs.NEW
        assert tree_of(root / programs.CHECKPOINT) == before
        assert len(whole(root)) == 1
        if (new / "metadata").exists():
            verdict = checkpoints.verify(new)
            assert verdict.ok, f"metadata is there, and the checkpoint not whole: {verdict.problems[:2]}"
            assert contents(LocalStorage(new)) == expected
        else:
            assert not state.promised, "the checkpoint is gone"
            if program == "restore" and state.number % 10 == 0:
                savepoints.restore(next(iter(whole(root))), new)
                assert checkpoints.verify(new).ok

    cut.every(program, check)


def test_erase(cut: Cut) -> None:
    saved = cut.save()
    key = programs.KEY.encode()
    assert any(key in data for data in tree_of(cut.root / programs.CATALOG / "objects").values())

    def check(root: Path, state: State) -> None:
        found = whole(root)
        assert len(found) == 1
        verdict = checkpoints.verify(root / programs.CHECKPOINT)
        assert verdict.ok, verdict.problems[:2]
        if state.promised:
            # In a manifest the two letters are found in hashes.
            files = tree_of(root).items()
            left = [path for path, data in files if key in data and not path.endswith("manifest.json")]
            assert not left, f"erased, and there again: {left}"

    assert saved
    cut.every("erase", check)


def test_delete(cut: Cut) -> None:
    newest = checkpoints.read(cut.root / programs.CHECKPOINT).batch_id or 0
    older, newer = cut.save(batch=newest - 1), cut.save()

    def check(root: Path, state: State) -> None:
        found = whole(root)
        assert newer in found
        assert not (state.promised and older in found), "a deleted savepoint is there again"

    cut.every("delete", check)


def test_gc(cut: Cut) -> None:
    newest = checkpoints.read(cut.root / programs.CHECKPOINT).batch_id or 0
    older, newer = cut.save(batch=newest - 1), cut.save()
    (Path(older.removeprefix("file://")) / "manifest.json").unlink()

    def check(root: Path, state: State) -> None:
        assert newer in whole(root)

    cut.every("gc", check)


def test_record(cut: Cut) -> None:
    commits = cut.root / programs.CHECKPOINT / "commits"
    newest = checkpoints.read(cut.root / programs.CHECKPOINT).batch_id or 0
    (cut.root / "hidden").mkdir()
    for batch in range(newest - 2, newest + 1):
        (commits / str(batch)).rename(cut.root / "hidden" / str(batch))
        (commits / f".{batch}.crc").unlink(missing_ok=True)
    whole_checkpoint = tree_of(cut.root / programs.CHECKPOINT)

    def check(root: Path, state: State) -> None:
        record = RecordFile(root / programs.RECORD).read()
        if state.promised:
            assert record is not None, "the record is gone"
            assert record.batch_id is not None, "the record has no batch"
            assert record.batch_id >= int(state.promised[-1]), "a recorded batch is gone"
        for path, (size, _) in (record.files if record is not None else {}).items():
            known = whole_checkpoint.get(path)
            assert known is None or record.mismatch(path, known) is None, (path, size)  # type: ignore[union-attr]

    cut.every("record", check)


def test_registry(cut: Cut) -> None:
    def check(root: Path, state: State) -> None:
        rows = SharedDatabase(root / programs.REGISTRY_FILE, REGISTRY).read("SELECT id FROM requests")
        assert len(rows) >= len(state.promised), f"a row is gone: {rows}"
        assert len(rows) <= len(state.promised) + 1

    cut.every("registry", check)


def test_ledger(cut: Cut) -> None:
    def check(root: Path, state: State) -> None:
        token = batches = 0
        if (root / programs.LEDGER).exists():
            ledger = hf.ledger(f"sqlite:///{root / programs.LEDGER}")
            owner = ledger.holder("till")
            token = 0 if owner is None else owner.token
            batches = len(ledger.history("till"))
            with closing(sqlite3.connect(root / programs.LEDGER)) as database:
                assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                rows = 0
                with suppress(sqlite3.OperationalError):
                    rows = database.execute("SELECT count(*) FROM sales").fetchone()[0]
            assert rows == batches, "a batch and its rows differ"
        if state.promised:
            assert token == int(state.promised[0].split()[1]), "the token is gone"
        assert batches >= len(state.promised) - 1, "a batch is gone"

    cut.every("ledger", check)


def test_lease(cut: Cut) -> None:
    def check(root: Path, state: State) -> None:
        storage = LocalStorage(root / programs.ELECTION)
        seen = StorageElection(storage, "job", 30.0, lambda: 0.0, lambda: 1000.0).look()
        tokens = [int(text.split()[1]) for text in state.promised if text.startswith("token")]
        records = [text.split()[1].encode() for text in state.promised if text.startswith("record")]
        assert not tokens or (seen.token or 0) >= tokens[-1], f"token {seen.token} after {tokens}"
        if records:
            assert seen.record is not None, "the record is gone"
            assert seen.record >= records[-1]

    cut.every("lease", check)


def tree_of(folder: Path) -> dict[str, bytes]:
    """The bytes of every file."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def logs(tree: Tree) -> dict[str, bytes]:
    """The log files of a checkpoint under their final names, Hadoop's checksums of them included."""
    places = ("offsets/", "commits/", "sources/0/")
    found = {
        path.removeprefix("ck/"): data or b""
        for path, data in tree.contents().items()
        if data is not None and path.startswith("ck/") and not path.endswith(".tmp")
    }
    return {
        path: data
        for path, data in found.items()
        if path in ("metadata", ".metadata.crc") or (path.startswith(places) and ".tmp" not in path)
    }


def in_ledger(root: Path) -> int:
    """The batches that the sink has."""
    if not (root / query.LEDGER).exists():
        return 0
    with closing(sqlite3.connect(root / query.LEDGER)) as database:
        tables = {name for (name,) in database.execute("select name from sqlite_master")}
        if "sales" not in tables:
            return 0
        return int(database.execute("select count(distinct batch) from sales").fetchone()[0])


def missing(tree: Tree, root: Path, promised: int, whole: dict[str, bytes]) -> Iterator[str]:
    """What a cut has taken that Spark, or the sink, relies on."""
    found = logs(tree)
    written = in_ledger(root)
    needed = [f"commits/{batch}" for batch in range(promised)]
    needed += [
        f"{log}/{batch}" for batch in range(max(promised, written)) for log in ("offsets", "sources/0")
    ]
    for path in (*needed, *(["metadata"] if needed else [])):
        if path not in found:
            yield f"{path.rpartition('/')[0] or path} is gone"
    for path, data in found.items():
        if data != whole[path]:
            yield f"{path.rpartition('/')[0] or path} is torn"


def cut_query(root: Path, manager: str, model: str) -> tuple[int, Counter[str]]:
    """Run the query, cut it everywhere, and count the states in which something is missing."""
    root.mkdir()
    recording = Recording(root)
    recording.run([sys.executable, str(Path(query.__file__)), manager], env=_environment())
    tree, _ = Tree.read(root)
    whole = logs(tree)
    assert {
        f"{log}/{batch}" for log in ("offsets", "commits") for batch in range(query.BATCHES)
    } <= whole.keys()
    states, failures = 0, Counter[str]()
    for state in recording.states(model):
        states += 1
        cleared(root)
        state.tree.write_to(root)
        failures.update(set(missing(state.tree, root, len(state.promised), whole)))
    return states, failures


@pytest.mark.spark
@pytest.mark.parametrize("model", [POSIX, EXT4])
def test_a_reported_batch_and_the_input_of_a_written_one_are_kept(memory_folder: Path, model: str) -> None:
    states, failures = cut_query(memory_folder / "place", "holdfast", model)
    assert states > 100
    assert not failures


@pytest.mark.spark
def test_sparks_own_file_manager_loses_both(memory_folder: Path) -> None:
    _, failures = cut_query(memory_folder / "place", "spark", POSIX)
    assert {"commits is gone", "offsets is gone", "offsets is torn"} <= failures.keys()
