"""What tests share that need neither a JVM nor a server."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import guard_time
import pytest
from cli_runner import cli_in
from command import Holdfast
from typer import main as typer_main

from holdfast.ownership import checkpoint_guard


@pytest.fixture(scope="session", autouse=True)
def parsers_made_once() -> Iterator[None]:
    """A process makes the parser of all verbs once; these tests run hundreds of verbs in one process."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer_main, "get_group", functools.cache(typer_main.get_group))
        yield


@pytest.fixture
def holdfast(tmp_path: Path, home: Path) -> Holdfast:
    """Run the command in an empty directory, without a process of its own."""
    return cli_in(tmp_path, home)


@pytest.fixture
def holdfast_at_once(holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Holdfast:
    """The same for the checkpoint of a query that does not run: watching it takes no time."""

    def call(*arguments: str, **given: Any) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patched:
            patched.setattr(checkpoint_guard, "MACHINE_TIMING", guard_time.passing_time())
            return holdfast(*arguments, **given)

    return call
