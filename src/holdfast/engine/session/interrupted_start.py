"""Ctrl-C while a JVM starts ends that JVM."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType


@contextmanager
def no_jvm_left() -> Iterator[None]:
    """While this lasts, Ctrl-C also ends the processes that began since.

    PySpark's launcher deletes the directory in which the JVM says where it listens, when an exception comes
    out of it. A JVM that cannot say so stays for good: it has not come to the line that ends it with its
    parent. Once PySpark has its session, it handles Ctrl-C itself.
    """
    former = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield
        return
    before = _children()

    def end(number: int, frame: FrameType | None) -> None:
        end_children(but=before)
        former(number, frame)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is end:
            signal.signal(signal.SIGINT, former)


def end_children(but: Collection[int] = ()) -> None:
    """End the processes that this one has started and that live, but for some."""
    for child in _children() - set(but):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)


def _children() -> frozenset[int]:
    """The processes that this one has started and that live; none where the system does not tell."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name is in parentheses and may hold anything; state and parent follow it.
            parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found.add(int(folder.name))
    return frozenset(found)
