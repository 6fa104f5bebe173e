from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import Conflict, Corrupt, Internal, Invalid, NotFound, Unsupported
from holdfast.jobs.registry import operation_log as module
from holdfast.jobs.registry.operation_log import (
    Operations,
    OperationState,
    Rescale,
    TakeSavepoint,
    Verify,
    decode,
)
from holdfast.jobs.state_home import StateHome

ONE, TWO = "1" * 32, "2" * 32


@pytest.fixture
def operations(tmp_path: Path) -> Operations:
    return Operations(StateHome(tmp_path))


def test_a_home_that_is_new_has_none_and_is_not_touched(operations: Operations) -> None:
    assert operations.newest() == operations.running() == operations.waiting("rescale") == []
    assert operations.claim("me", ("savepoint",), 1) is None
    assert not operations.path.exists()


def test_asking_again_is_asking_once(operations: Operations) -> None:
    first = operations.ask(ONE, "savepoint", "shop", TakeSavepoint("a"), 10)
    again = operations.ask(ONE, "savepoint", "shop", TakeSavepoint("b"), 20)
    assert again == first == operations.get(ONE)
    assert decode(again.verb, again.arguments) == TakeSavepoint("a")
    with pytest.raises(Conflict):
        operations.ask(ONE, "savepoint", "till", TakeSavepoint("a"), 30)
    with pytest.raises(Conflict):
        operations.ask(ONE, "stop", "shop", TakeSavepoint("a"), 30)
    with pytest.raises(Invalid):
        operations.ask("x", "stop", "shop", TakeSavepoint("a"), 30)
    with pytest.raises(Internal):
        operations.ask(TWO, "dispose", "shop", TakeSavepoint("a"), 30)


def test_its_life(operations: Operations) -> None:
    operations.ask(ONE, "savepoint", "shop", TakeSavepoint("a"), 10)
    mine = operations.claim("me", ("savepoint",), 20)
    assert mine is not None
    assert (mine.state, mine.owner, mine.started_ms) == (OperationState.RUNNING, "me", 20)
    operations.tell(mine, 3, 10, "copying")
    noted = operations.note(mine, at="half")
    noted = operations.note(noted, more=1)
    assert noted.steps == {"at": "half", "more": 1}
    assert noted.progress == {"done": 3, "total": 10, "what": "copying"}
    done = operations.complete(noted, {"savepoint": "there"}, 30)
    assert (done.state, done.result, done.ended_ms, done.progress) == (
        OperationState.COMPLETED,
        {"savepoint": "there"},
        30,
        None,
    )
    with pytest.raises(Conflict):
        operations.fail(noted, {}, 40)
    with pytest.raises(Conflict):
        operations.note(noted, at="all")
    assert operations.get(ONE) == done


def test_only_one_gets_it(operations: Operations) -> None:
    for number in range(20):
        operations.ask(f"{number:032x}", "savepoint", "shop", TakeSavepoint("a"), number)
    got: list[tuple[str, str]] = []

    def take(name: str) -> None:
        while (mine := operations.claim(name, ("savepoint",), 100)) is not None:
            got.append((mine.operation_id, name))

    threads = [threading.Thread(target=take, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each for each, _ in got) == [f"{number:032x}" for number in range(20)]


def test_what_a_dead_one_had_is_taken_over_once(operations: Operations) -> None:
    operations.ask(ONE, "stop", "shop", TakeSavepoint("a"), 10)
    dead = operations.begin(ONE, "dead", 20)
    assert dead is not None
    mine = operations.take_over(dead, "me")
    assert mine is not None
    assert operations.take_over(dead, "other") is None
    with pytest.raises(Conflict):
        operations.complete(dead, {}, 30)
    assert operations.complete(mine, {}, 30).state is OperationState.COMPLETED


def test_kinds_that_are_somebody_elses_are_left_alone(operations: Operations) -> None:
    operations.ask(ONE, "rescale", "shop", Rescale({"q": 4}), 10)
    operations.ask(TWO, "verify", None, Verify("s"), 20)
    mine = operations.claim("me", ("verify", "savepoint"), 30)
    assert mine is not None
    assert mine.operation_id == TWO
    assert [each.operation_id for each in operations.waiting("rescale", "shop")] == [ONE]
    assert operations.waiting("rescale", "till") == []


def test_old_ones_are_forgotten(operations: Operations, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENDED_KEPT", 10)
    for number in range(12):
        operations.ask(f"{number:032x}", "verify", None, Verify("s"), number)
        mine = operations.claim("me", ("verify",), number)
        assert mine is not None
        operations.complete(mine, {}, number)
    operations.ask(ONE, "verify", None, Verify("s"), 5000)
    with pytest.raises(NotFound):
        operations.get(f"{0:032x}")
    assert operations.get(f"{2:032x}").state is OperationState.COMPLETED


def test_a_file_that_is_none_says_so(operations: Operations) -> None:
    operations.path.write_text("this is no database, and long enough to be seen as none " * 40)
    with pytest.raises(Corrupt, match="damaged"):
        operations.newest()


def test_a_file_of_another_version(operations: Operations) -> None:
    operations.ask(ONE, "verify", None, Verify("s"), 1)
    with closing(sqlite3.connect(operations.path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(Unsupported):
        operations.get(ONE)
