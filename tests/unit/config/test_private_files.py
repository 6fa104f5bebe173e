from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Served

from holdfast.checkpoints.record import Identity, Record, RecordFile
from holdfast.config.settings import Settings, close_to_others
from holdfast.jobs.state_home import StateHome, SupervisorLock
from holdfast.observe.alerting import AlertStore

LOG = (
    "import sys; from holdfast.jobs.processes.driver import log_to;"
    " log_to(sys.argv[1]); print('x', file=sys.stderr)"
)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """A umask that lets everybody read and write, the usual one, and a strict one."""
    former = os.umask(request.param)
    yield request.param
    os.umask(former)


def modes(folder: Path) -> dict[str, int]:
    found = {str(each.relative_to(folder)): stat.S_IMODE(each.stat().st_mode) for each in folder.rglob("*")}
    return {**found, ".": stat.S_IMODE(folder.stat().st_mode)}


def home_in(folder: Path) -> Path:
    return Settings.resolve({"home": folder / "new" / "home"}, {}, folder).ensure_home()


def fill(home: Path) -> None:
    """Everything that a job leaves in its state home."""
    Served(home.parent).job()
    AlertStore(home).save("shop", 1, samples=(), totals={}, standing={}, events=(), told=0)
    lock = SupervisorLock(StateHome(home), "shop")
    assert lock.take()
    lock.release()
    log = StateHome(home).start_log("shop", 1)
    subprocess.run([sys.executable, "-c", LOG, str(log)], check=True)
    assert log.read_text() == "x\n"


@pytest.mark.usefixtures("umask")
@pytest.mark.slow
def test_nobody_else_reads_what_is_in_a_state_home(tmp_path: Path) -> None:
    home = home_in(tmp_path)
    fill(home)
    found = modes(home)
    assert {"registry.db", "watching.db", "jobs/shop/driver-1.log", "jobs/shop/supervisor.lock"} <= set(found)
    folders = {name for name in found if (home / name).is_dir()}
    assert {
        name: oct(mode) for name, mode in found.items() if mode != (0o700 if name in folders else 0o600)
    } == {}


def test_the_parents_of_a_state_home_are_made_as_others_are(tmp_path: Path) -> None:
    former = os.umask(0o022)
    try:
        home = home_in(tmp_path)
    finally:
        os.umask(former)
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o755


@pytest.mark.slow
def test_a_journal_is_as_private_as_its_file(tmp_path: Path) -> None:
    home = home_in(tmp_path)
    fill(home)
    with sqlite3.connect(home / "registry.db", isolation_level=None) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE jobs SET reason = 'x'")
        assert modes(home)["registry.db-journal"] == 0o600
        db.execute("ROLLBACK")
    db.close()


@pytest.mark.slow
def test_an_open_state_home_of_an_earlier_version_is_closed(tmp_path: Path) -> None:
    home = home_in(tmp_path)
    fill(home)
    (home / "savepoints" / "blobs").mkdir(parents=True)
    for path in (home, *home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (home / "jobs" / "elsewhere").symlink_to(tmp_path)
    before = stat.S_IMODE(tmp_path.stat().st_mode)
    Settings.resolve({"home": home}, {}, tmp_path).ensure_home()
    found = modes(home)
    del found["jobs/elsewhere"]
    loose = {name: oct(mode) for name, mode in found.items() if mode & 0o077}
    # What is below a directory that nobody else can enter may stay as it is.
    assert loose == {"savepoints/blobs": "0o755"}
    assert stat.S_IMODE(tmp_path.stat().st_mode) == before


@pytest.mark.slow
def test_a_directory_with_other_things_in_it_is_left_to_its_owner(tmp_path: Path) -> None:
    fill(home_in(tmp_path))
    home = tmp_path / "new" / "home"
    (home / "mine.txt").write_text("mine")
    for path in (home, home / "mine.txt", home / "registry.db", home / "jobs"):
        path.chmod(0o755)
    close_to_others(home)
    found = modes(home)
    assert (found["."], found["mine.txt"]) == (0o755, 0o755)
    assert (found["registry.db"], found["jobs"]) == (0o700, 0o700)


@pytest.mark.usefixtures("umask")
def test_a_record_is_private(tmp_path: Path) -> None:
    home = home_in(tmp_path)
    file = RecordFile(home / "records" / "a.jsonl")
    file.rewrite(Record(Identity("file:/c", "id", None)))
    assert {name: mode for name, mode in modes(home).items() if mode & 0o077} == {}
