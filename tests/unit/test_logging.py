"""Long operations log under `holdfast`; what is no warning is shown only if the program asks for it."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from command import Holdfast

import holdfast as hf
from golden import golden_on_disk
from holdfast.jobs.events import JobEvent, logged

NAME = "4.2/aggregate-memory"

pytestmark = pytest.mark.usefixtures("guards_wait_no_time")


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "holdfast")
    return caplog


def records(log: pytest.LogCaptureFixture) -> set[tuple[str, str, str]]:
    """Logger, level and first two words of each record; what was logged before is forgotten."""
    found = {
        (record.name, record.levelname, " ".join(record.getMessage().split()[:2])) for record in log.records
    }
    log.clear()
    return found


def test_only_warnings_reach_a_program_that_has_configured_nothing() -> None:
    """The alerts of `hf.watch` are warnings: they are not to be lost."""
    program = (
        "import logging, holdfast\n"
        "log = logging.getLogger('holdfast.watch')\n"
        "log.info('a batch'); log.warning('an alert')\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (said.stdout, said.stderr) == ("", "an alert\n")


def test_long_operations_log_their_begin_and_their_end(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    checkpoint, catalog = golden_on_disk(NAME, tmp_path / "ck"), tmp_path / "sp"
    assert hf.checkpoints.verify(checkpoint).ok
    verified = {
        ("holdfast.checkpoints", "DEBUG", f"verifying file://{checkpoint}"),
        ("holdfast.checkpoints", "INFO", f"verified file://{checkpoint}:"),
    }
    assert records(log) == verified
    taken = hf.savepoints.take(checkpoint, catalog)
    assert records(log) >= {
        ("holdfast.savepoints", "DEBUG", "taking a"),
        ("holdfast.savepoints", "INFO", "took savepoint"),
    }
    hf.savepoints.restore(taken.uri, tmp_path / "restored")
    assert records(log) >= {
        ("holdfast.savepoints", "DEBUG", f"restoring file://{catalog}"),
        ("holdfast.savepoints", "INFO", f"made file://{tmp_path}/restored"),
    }
    hf.savepoints.rescale(taken.uri, tmp_path / "rescaled", partitions=3)
    assert records(log) >= {
        ("holdfast.savepoints", "DEBUG", f"rescaling {taken.uri}"),
        ("holdfast.savepoints", "INFO", f"rescaled {taken.uri}"),
    }


def test_an_erasure_is_logged_without_the_key(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    hf.savepoints.take(golden_on_disk(NAME, tmp_path / "ck"), tmp_path / "sp")
    log.clear()
    hf.erase("c3", everywhere=tmp_path / "sp")
    texts = [record.getMessage() for record in log.records]
    assert f"erased a key from 1 savepoints of file://{tmp_path}/sp" in texts
    assert not [text for text in texts if "c3" in text]


def test_the_events_of_a_supervisor_are_logged_and_still_told(log: pytest.LogCaptureFixture) -> None:
    told: list[JobEvent] = []
    handle = logged(told.append)
    events = [JobEvent("running", "shop: running, 1 query"), JobEvent("batch", "shop: orders batch 7")]
    for event in events:
        handle(event)
    assert told == events
    assert [(record.name, record.levelname, record.getMessage()) for record in log.records] == [
        ("holdfast.jobs", "INFO", "shop: running, 1 query"),
        ("holdfast.jobs", "DEBUG", "shop: orders batch 7"),
    ]


def test_a_verb_prints_what_it_did_once(tmp_path: Path, holdfast: Holdfast) -> None:
    checkpoint = golden_on_disk(NAME, tmp_path / "ck")
    said = holdfast("savepoint", "take", str(checkpoint), str(tmp_path / "sp"))
    assert said.returncode == 0
    assert "took savepoint" not in said.stdout + said.stderr
