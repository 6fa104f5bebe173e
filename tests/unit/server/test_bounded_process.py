"""The directory of a bounded process is made and removed beside the event loop, and none stays."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import Unavailable
from holdfast.server import bounded
from holdfast.server.bounded import _workplace
from holdfast.storage.atomic_swap import sandbox


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_event_loop_goes_on_while_it_is_made(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, others, may_go_on = sandbox, [], threading.Event()

    @contextmanager
    def slow(folder: Path, purpose: str, token: str) -> Iterator[Path]:
        others.append(threading.current_thread())
        may_go_on.wait()  # for the event loop, which never comes to it if it is blocked
        with real(folder, purpose, token) as made:
            yield made
        others.append(threading.current_thread())

    monkeypatch.setattr(bounded, "sandbox", slow)

    async def use() -> None:
        asyncio.get_running_loop().call_later(0.01, may_go_on.set)
        async with _workplace() as folder:
            assert folder.parent == shared
            assert folder.is_dir()

    asyncio.run(use())
    assert len(others) == 2
    assert threading.main_thread() not in others
    assert list(shared.iterdir()) == []


def test_who_is_cancelled_while_it_is_made_leaves_none(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, begun, may_go_on, made = sandbox, threading.Event(), threading.Event(), []

    @contextmanager
    def slow(folder: Path, purpose: str, token: str) -> Iterator[Path]:
        begun.set()
        may_go_on.wait()
        with real(folder, purpose, token) as place:
            made.append(place)
            yield place

    monkeypatch.setattr(bounded, "sandbox", slow)

    async def use() -> None:
        async with _workplace():
            pytest.fail("it was cancelled before")

    async def cancel() -> None:
        task = asyncio.create_task(use())
        await asyncio.to_thread(begun.wait)
        task.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert len(made) == 1
    assert list(shared.iterdir()) == []


def test_where_none_can_be_made_that_is_said(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shared / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(shared / "file"))

    async def use() -> None:
        async with _workplace():
            pytest.fail("there is no such directory")

    with pytest.raises(Unavailable, match="a working directory cannot be created"):
        asyncio.run(use())
