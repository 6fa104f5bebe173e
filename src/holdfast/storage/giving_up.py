"""Work that is given up on its way: what takes long looks now and then whether anybody still waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from holdfast.errors import Unavailable

_GIVEN_UP: Final[ContextVar[threading.Event | None]] = ContextVar("holdfast_given_up", default=None)


@contextmanager
def until(given_up: threading.Event) -> Iterator[None]:
    """Let all that is done in this block, and in threads that inherit its context, end with an event."""
    token = _GIVEN_UP.set(given_up)
    try:
        yield
    finally:
        _GIVEN_UP.reset(token)


def go_on() -> None:
    """Do nothing, at the cost of a glance, as long as somebody waits.

    Raises:
        Unavailable: Nobody does any more.
    """
    given_up = _GIVEN_UP.get()
    if given_up is not None and given_up.is_set():
        raise Unavailable("this took too long and was given up", hint="ask for less at a time")
