from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.jobs.processes.driver import DriverSpec
from holdfast.jobs.processes.driver_process import DriverProcess
from holdfast.jobs.registry.operation_log import Operations, OperationState, Rescale
from holdfast.jobs.registry.registry import Registry
from holdfast.jobs.rescaler import Rescaler
from holdfast.jobs.state_home import StateHome
from holdfast.model import QueryStarted

OPERATION = "ab" * 16


def test_a_rescale_whose_process_cannot_be_started_fails_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = StateHome(tmp_path / "home")
    home.path.mkdir()
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    started = QueryStarted("q", "id", "run", checkpoint.as_uri(), "none: x")
    Registry(home.registry).queries_started("shop", 1, [started], 0)
    operations = Operations(home)
    operations.ask(OPERATION, "rescale", "shop", Rescale({"q": 4}), 0)

    def start(*_: Any, **__: Any) -> DriverProcess:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(DriverProcess, "start", start)
    spec = DriverSpec(target=str(tmp_path / "job.py"), home=str(home.path))
    said: list[str] = []

    def say(kind: str, text: str, **facts: Any) -> None:
        said.append(text)

    Rescaler(home, "shop", spec, lambda: 1).carry_out(lambda: True, say)
    failed = operations.get(OPERATION)
    assert failed.state is OperationState.FAILED
    assert failed.error is not None
    assert (failed.error["kind"], failed.error["found"]) == (
        "unavailable",
        "Resource temporarily unavailable",
    )
    assert said[-1] == "the rescale failed: the rescaling process cannot be started"
    assert [each.name for each in tmp_path.iterdir() if "rescale" in each.name] == []
