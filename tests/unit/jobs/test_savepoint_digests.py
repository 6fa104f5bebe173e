"""A supervisor has the rows of its savepoints counted and hashed, aside; the next one does what is left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from golden import golden_on_disk
from holdfast import savepoints
from holdfast.jobs.background_savepoints import SavepointDigests, Savepointing
from holdfast.jobs.definition import Periodic
from holdfast.savepoints import planning
from holdfast.savepoints.catalog import PENDING, RECORDED

NAME = "4.2/aggregate-changelog"
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SMALL_BYTES", 0)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return f"file://{golden_on_disk(NAME, tmp_path / 'ck')}"


def clock() -> int:
    return int(time.time() * 1000)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def contents(catalog: Path) -> list[str | None]:
    return [each.content for each in savepoints.list(catalog)]


@pytest.mark.slow
def test_what_is_taken_is_digested_without_being_asked(checkpoint: str, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog"
    work = Savepointing(Periodic(f"file://{catalog}", every_ms=1, retained=3), clock)
    work.started({"visits": checkpoint})
    kinds: list[str] = []

    def told() -> bool:
        kinds.extend(each.kind for each in work.heard())
        return "digests" in kinds

    until(told)
    work.close()
    assert kinds.index("savepoint") < kinds.index("digests")
    assert "no-digests" not in kinds
    assert contents(catalog) == [RECORDED]
    [one] = savepoints.list(catalog)
    assert savepoints.verify(one.uri, deep=True).content == "compared"


@pytest.mark.slow
def test_what_a_killed_supervisor_has_left_is_done_by_the_next(checkpoint: str, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog"
    for batch in (9, 10, 11):
        savepoints.take(checkpoint, catalog, batch=batch, digest=False)
    other = f"file://{golden_on_disk('4.2/join-format2', tmp_path / 'other')}"
    savepoints.take(other, catalog, digest=False)
    digests = SavepointDigests(f"file://{catalog}", clock, 0.0)
    digests.started({"visits": checkpoint})
    heard = []

    def told() -> bool:
        heard.extend(digests.heard())
        return len(heard) == 3

    until(told)
    digests.end()
    assert {each.kind for each in heard} == {"digests"}
    assert sorted(map(str, contents(catalog))) == [PENDING, RECORDED, RECORDED, RECORDED]


def test_an_end_waits_for_no_pass(checkpoint: str, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog"
    savepoints.take(checkpoint, catalog, digest=False)
    begun, go_on = threading.Event(), threading.Event()

    def may() -> bool:
        # Asked for the turn first, then again and again while rows are read.
        if begun.is_set():
            go_on.wait(WAIT_S)
        begun.set()
        return True

    digests = SavepointDigests(f"file://{catalog}", clock, 0.0, may)
    digests.started({"visits": checkpoint})
    assert begun.wait(WAIT_S)
    digests.end()
    go_on.set()
    assert digests.heard() == []
    assert contents(catalog) == [PENDING]


def test_a_damaged_one_is_told_once_and_the_others_are_done(checkpoint: str, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog"
    savepoints.take(checkpoint, catalog, batch=10, digest=False)
    newest = savepoints.take(checkpoint, catalog, batch=11, digest=False)
    file = next(each for each in newest.manifest.files if each.path == "state/0/0/12.changelog")
    place = catalog / "objects" / file.sha256[0] / file.sha256
    data = place.read_bytes()
    place.unlink()  # it may be a link to the checkpoint's
    place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    digests = SavepointDigests(f"file://{catalog}", clock, 0.0)
    digests.started({"visits": checkpoint})
    heard = []

    def told() -> bool:
        heard.extend(digests.heard())
        return len(heard) == 2

    until(told)
    digests.end()
    assert [each.kind for each in heard] == ["no-digests", "digests"]
    assert "the digests were not recorded" in heard[0].text
    assert os.fspath(catalog) in heard[0].text
    assert contents(catalog) == [RECORDED, PENDING]
